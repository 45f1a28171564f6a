"""Errors a user can mend.

`CodesignError`
    `ConfigError`  a key, value or combination that the configuration may not have
    `DataError`    a table of measurements that cannot be read as what it claims to be
    `WriteError`   a file or folder that cannot be written; an `OSError` as well

The command line prints the message on one line and exits with code 2, as it does for a file that the system refuses to
read or write; nothing else is caught.
"""

import difflib
from collections.abc import Iterable

__all__ = ["CodesignError", "ConfigError", "DataError", "WriteError", "either", "is_text", "suggestion"]


LONGEST, LONGEST_WORD = 1_900, 300  # characters of a message, and of one word of it: some repeat what they were given


class CodesignError(Exception):
    """Error that the user can fix; the message is one line that a terminal can show as it is."""

    def __init__(self, message: object = ""):
        super().__init__(one_line(str(message)))


def one_line(message: str) -> str:
    """A message without line ends and signs that steer terminals, cut where it repeats what has no end."""
    message = "".join(ch if ch.isprintable() else repr(ch)[1:-1] for ch in message)
    if len(message) > LONGEST_WORD:
        words = message.split(" ")
        message = " ".join(word if len(word) <= LONGEST_WORD else f"{word[:LONGEST_WORD]}..." for word in words)
    return message if len(message) <= LONGEST else f"{message[:LONGEST]}..."


def is_text(word: str) -> bool:
    """True if a word can be written as UTF-8: half of a pair of surrogates, as bytes of arguments become, cannot."""
    return not any("\ud800" <= sign <= "\udfff" for sign in word)


class ConfigError(CodesignError):
    """Bad configuration: names the key, the value and what is allowed."""


class DataError(CodesignError):
    """A measured table that does not follow the schema."""


class WriteError(CodesignError, OSError):
    """A file or folder that cannot be written: the message names it and says why.

    Args:
        message: one line.
        number: `errno` of the system, where it gave one.
    """

    def __init__(self, message: object = "", number: int | None = None):
        super().__init__(message)
        self.errno = number


MOST_BEGUN = 8  # options that begin with a word and are still worth listing


def either(words: list[str]) -> str:
    """`'a', 'b' or 'c'`."""
    quoted = [repr(word) for word in words]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def suggestion(word: str, names: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for a misspelt word, or the list of what is known when nothing is close.

    What begins with the word goes before what is spelt like it: `h100` is rather `h100_sxm` than `h800`. Then the same
    letters in another order go first: `modle` is rather `model` than `mode`.
    """
    options = sorted((str(k) for k in names), key=lambda k: ("." in k, k))  # of metrics, the parts of others last
    begun = [option for option in options if len(word) > 1 and option.lower().startswith(word.lower())]
    if 0 < len(begun) <= MOST_BEGUN:
        return f" (did you mean {either(begun)}?)"
    close = difflib.get_close_matches(word, options, n=5, cutoff=0.6)
    close.sort(key=lambda option: sorted(option) != sorted(word))  # stable: closest first otherwise
    if close:
        return f" (did you mean {close[0]!r}?)"
    shown = ", ".join(options[:20]) + (", ..." if len(options) > 20 else "")
    return f" (known: {shown})" if options else ""
