"""Words of the command line, read as a command and its options."""

import argparse
import os
import re
from typing import cast

from ..core.earlier_names import current_command
from ..core.errors import ConfigError, is_text, suggestion
from ..core.short_names import full_names
from .parser import COMPOSING, parser

TEXTS = (
    "overrides",
    "columns",
    "words",
    "what",
    "names",
    "name",
    "kind",
    "sql",
    "only",
    "load",
)  # of commands, by argument


def parsed(words: list[str]) -> argparse.Namespace:
    """A command's options, read from its words.

    Raises:
        ConfigError: a command or option that there is not, or a word too many.
    """
    top = parser()
    actions = top._subparsers._group_actions if top._subparsers else []
    commands: dict[str, argparse.ArgumentParser] = dict(actions[0].choices or {})
    words = [current_command(words[0]), *words[1:]]
    if not words[0].startswith("-") and words[0] not in commands:
        raise ConfigError(f"{words[0]!r} is not a command{suggestion(words[0], commands)}")
    known, unknown = top.parse_known_args(_negative_values(words))
    for taken in ("overrides", "words", "what", "columns"):  # those that stand after an option
        if hasattr(known, taken):
            setattr(known, taken, getattr(known, taken) + [word for word in unknown if not word.startswith("-")])
            unknown = [word for word in unknown if word.startswith("-")]
    if unknown:
        if not unknown[0].startswith("-"):
            many = f"{unknown[0]!r} is one argument too many (see `codesign {known.command} --help`)"
            raise ConfigError(f"{known.command}: {many}")
        asked, where = (commands[known.command], f"{known.command}: ") if known.command else (top, "")
        options = [text for action in asked._actions for text in action.option_strings]
        raise ConfigError(f"{where}unknown option {unknown[0]!r}{suggestion(unknown[0], options)}")
    _check_texts(known)
    for taken in ("overrides", "words", "what"):
        if known.command in COMPOSING and isinstance(getattr(known, taken, None), list):
            setattr(known, taken, full_names(getattr(known, taken)))
    return known


def _negative_values(words: list[str]) -> list[str]:
    """Words with `--rate -5/s` as `--rate=-5/s`: argparse takes a negative number with a unit for an option."""
    joined: list[str] = []
    for word in words:
        if re.match(r"-\.?\d", word) and joined and re.fullmatch(r"--[a-z][a-z0-9-]*", joined[-1]):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _check_texts(options: argparse.Namespace) -> None:
    """Refuse bytes that are no UTF-8, but in names of files that are there.

    In the C locale Python keeps every byte beyond ASCII as half of a pair, those of UTF-8 too.
    """
    for name in TEXTS:
        value = getattr(options, name, None)
        if isinstance(value, list):
            setattr(options, name, [_text_of(options.command, text) for text in cast(list[object], value)])
        elif value is not None:
            setattr(options, name, _text_of(options.command, value))


def _text_of(command: str, word: object) -> object:
    """A word as UTF-8."""
    if not isinstance(word, str) or is_text(word) or os.path.lexists(word):
        return word
    try:
        return word.encode("utf-8", "surrogateescape").decode()
    except UnicodeError as error:
        raise ConfigError(f"{command}: {word!r} is no text of UTF-8") from error
