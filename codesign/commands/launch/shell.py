"""Programs that a text of a shell starts: their words, variables of their environment, files written on the way.

No shell runs. Words are split as POSIX says (quotes, escapes, comments, continuations), variables that the text sets
are filled in, arrays and `here` documents too; substitutions of commands are left as they stand.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ...core.errors import ConfigError

__all__ = ["EngineProgram", "filled", "programs"]

ASSIGNED = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?-([^}]*))?\}|\$([A-Za-z_]\w*)|\$\(([A-Za-z_]\w*)\)")
CONTINUED = re.compile(r"(?:\\[ \t]*(?:#[^\n]*)?\n|[ \t]*\n(?=[ \t]*--?[A-Za-z]))")
HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n(.*?)\n[ \t]*\2[ \t]*(?=\n|$)", re.DOTALL)
REDIRECTED = re.compile(r"(?:(?<=\s)[0-9])?&?>{1,2}\s*&?\s*[^\s;&|]*|<(?![A-Za-z<])\s*[^\s;&|]*")
PLACEHOLDER = re.compile(r"<[A-Za-z][\w ./:-]*>")
PROMPT = re.compile(r"(?m)^[ \t]*(?:\$|>>>|#\s*(?=vllm serve\b))[ \t]+")
ENDS = (";", "&", "|", "\n")
MOST_WORDS = 20_000
MOST_FILLED = 100_000  # characters of a word once variables are filled in


@dataclass(frozen=True)
class EngineProgram:
    """Words of one command, the variables set for it alone, and files that stand in the text: name -> content.

    replicas: times it runs. pods_are_nodes: those are the nodes of one engine where it spans several (StatefulSet).
    role: `prefill` or `decode` by what stands around it. device: option of the group `accelerator`, where one is named.
    """

    words: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, str] = field(default_factory=dict[str, str])
    replicas: int = 1
    role: str = ""
    pods_are_nodes: bool = False
    device: str = ""


def programs(text: str) -> list[EngineProgram]:
    """Commands of a text, in order.

    Raises:
        ConfigError: a quote that is not closed, or a text too long for a command.
    """
    files: dict[str, str] = {}
    text = _without_documents(text.replace("\r\n", "\n"), files)
    known: dict[str, str] = {}
    arrays: dict[str, list[str]] = {}
    result: list[EngineProgram] = []
    for words in _statements(CONTINUED.sub(" ", PROMPT.sub("", text))):
        env, rest = _assignments(words, known, arrays)
        filled_words = [word for one in rest for word in _expanded(one, {**known, **env}, arrays)]
        if filled_words:
            result.append(EngineProgram(tuple(filled_words), {**known, **env}, files))
        else:
            known |= env
    return [inner for one in result for inner in _unwrapped(one)]


def _without_documents(text: str, files: dict[str, str]) -> str:
    """The text without `cat > FILE <<EOF ... EOF`, whose content is kept under the file's name."""

    def keep(match: re.Match[str]) -> str:
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()] + match[3]
        target = re.search(r">\s*(\S+)|\btee\s+(?:-a\s+)?(\S+)", line)
        if target:
            files[(target[1] or target[2]).strip("'\"")] = match[4]
        return match[3]

    return HEREDOC.sub(keep, text)


def _statements(text: str) -> Iterator[list[str]]:
    """Words between the ends of statements; `(` and `)` are words of their own, for arrays."""
    words: list[str] = []
    for count, word in enumerate(_words(text)):
        if count > MOST_WORDS:
            raise ConfigError(f"--from: more than {MOST_WORDS:,} words are no launch command")
        if word[0] in ENDS and len(word) == 1:
            if words:
                yield words
            words = []
        else:
            words.append(word)
    if words:
        yield words


def _words(text: str) -> Iterator[str]:
    """Words and operators; a word in single quotes keeps its dollar signs behind a zero byte."""
    at, end = 0, len(text)
    word: list[str] | None = None
    depth = 0  # of $( and ${
    while at < end:
        char = text[at]
        if char == "\\" and at + 1 < end:
            word = [*(word or []), text[at + 1]]
            at += 2
            continue
        if char in "'\"":
            close = _closing(text, at)
            inner = text[at + 1 : close]
            inner = inner.replace("$", "\0") if char == "'" else re.sub(r"\\([\\\"$`])", r"\1", inner)
            word = (word or []) + [inner]
            at = close + 1
            continue
        if text.startswith(("${", "$("), at):
            close = _balanced(text, at + 1)
            word = (word or []) + [text[at : close + 1]]
            at = close + 1
            continue
        quiet = depth == 0 and word is None
        if char == "#" and quiet:
            at = text.find("\n", at)
            at = end if at < 0 else at
            continue
        placeholder = PLACEHOLDER.match(text, at) if char == "<" else None
        if placeholder:
            word = (word or []) + [placeholder[0]]
            at = placeholder.end()
            continue
        redirect = REDIRECTED.match(text, at) if char in "<>" or ((char.isdigit() or char == "&") and quiet) else None
        if redirect and redirect.end() > at and any(one in redirect[0] for one in "<>"):
            if word is not None:
                yield "".join(word)
                word = None
            at = redirect.end()
            continue
        if char in " \t" or char in ENDS or char in "()":
            if word is not None:
                yield "".join(word)
                word = None
            if char not in " \t":
                yield char
            at += 1
            continue
        word = (word or []) + [char]
        at += 1
    if word is not None:
        yield "".join(word)


def _closing(text: str, at: int) -> int:
    """Place of the quote that closes the one at a place."""
    quote = text[at]
    close = at + 1
    while close < len(text) and text[close] != quote:
        close += 2 if quote == '"' and text[close] == "\\" else 1
    if close >= len(text):
        shown = text[at : at + 60].splitlines()[0]
        raise ConfigError(f"--from: the text cannot be read as words of a shell: no closing quotation after {shown!r}")
    return close


def _balanced(text: str, at: int) -> int:
    """Place of the bracket that closes the one at a place; the end of its word where none does."""
    opened, closed, depth = text[at], {"{": "}", "(": ")"}[text[at]], 0
    for index in range(at, len(text)):
        depth += (text[index] == opened) - (text[index] == closed)
        if not depth:
            return index
    return len(text) - 1


def _assignments(
    words: list[str], known: dict[str, str], arrays: dict[str, list[str]]
) -> tuple[dict[str, str], list[str]]:
    """Variables set before a command, and the words after them; `NAME=( ... )` fills an array."""
    env, rest = dict[str, str](), list(words)
    while rest and (rest[0] in ("export", "set", "declare", "env", "local", "readonly", "-x", "then", "do", "else")):
        rest = rest[1:]
    while rest and (match := ASSIGNED.fullmatch(rest[0])):
        if not match[2] and len(rest) > 1 and rest[1] == "(":
            close = rest.index(")") if ")" in rest else len(rest)
            more = [word for one in rest[2:close] for word in _expanded(one, known | env, arrays)]
            arrays[match[1]] = (arrays.get(match[1], []) if "+=" in rest[0] else []) + more
            rest = rest[close + 1 :]
        else:
            env[match[1]] = filled(match[2], known | env)
            rest = rest[1:]
    return env, [word for word in rest if word not in ("(", ")")]


def _expanded(word: str, known: dict[str, str], arrays: dict[str, list[str]]) -> Iterable[str]:
    """Words that a word becomes: an array's, those of a variable that stands alone, or itself with variables filled."""
    alone = re.fullmatch(r"\$\{?([A-Za-z_]\w*)(?:\[[@*]\])?\}?", word)
    if alone and alone[1] in arrays:
        return arrays[alone[1]]
    if alone and alone[1] in known:
        try:
            return shlex.split(filled(known[alone[1]], known))
        except ValueError:
            return [known[alone[1]]]
    return [filled(word, known).replace("\0", "$")]


def filled(text: str, known: dict[str, str]) -> str:
    """A text with the variables that are known, or that have a default, in the place of their names."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3] or match[4]
        return known.get(name, match[2] if match[2] is not None else match[0])

    for _ in range(4):  # variables of variables
        before, text = text, VARIABLE.sub(value, text)
        if text == before or len(text) > MOST_FILLED:
            break
    return text[:MOST_FILLED]


def _unwrapped(one: EngineProgram) -> Iterator[EngineProgram]:
    """Commands inside `bash -c "..."`, with the variables around them."""
    for word in one.words[1:]:
        if " " in word.strip() and re.search(
            r"\bvllm\s+serve\b|api_server|launch_server|trtllm-serve|sglang\s+serve", word
        ):
            for inner in programs(word):
                yield replace(inner, env=one.env | inner.env, files=one.files | inner.files)
            return
    yield one
