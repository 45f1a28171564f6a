"""Output that never fails for its encoding: what a terminal cannot write is written as what comes closest.

A terminal of ASCII or of a Windows code page lacks signs that tables and units have. Bytes of file names that are no
UTF-8 are written as they are, so that a printed path is the path.
"""

import codecs
import contextlib
import os
import sys
import unicodedata
from collections.abc import Callable, Generator
from typing import Any

__all__ = ["lenient_output"]

ERRORS = "codesign.nearest"
NEAREST = {
    "\N{MULTIPLICATION SIGN}": "x", "\N{MICRO SIGN}": "u", "\N{GREEK SMALL LETTER MU}": "u",
    "\N{MIDDLE DOT}": "*", "\N{DOT OPERATOR}": "*", "\N{BULLET}": "*", "\N{HORIZONTAL ELLIPSIS}": ".",
    "\N{RIGHTWARDS ARROW}": ">", "\N{LEFTWARDS ARROW}": "<", "\N{DIVISION SLASH}": "/", "\N{FRACTION SLASH}": "/",
    "\N{LESS-THAN OR EQUAL TO}": "<=", "\N{GREATER-THAN OR EQUAL TO}": ">=", "\N{INFINITY}": "inf",
    "\N{LEFT SINGLE QUOTATION MARK}": "'", "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": '"', "\N{RIGHT DOUBLE QUOTATION MARK}": '"', "\N{MINUS SIGN}": "-",
    "\N{EURO SIGN}": "EUR",
}  # fmt: skip
HORIZONTAL, VERTICAL = set("─━═╌╍┄┅┈┉╴╶╸╺"), set("│┃║╎╏┆┇┊┋╵╷╹╻")
ESCAPED = range(0xDC80, 0xDD00)  # a byte that is no UTF-8, as Python keeps those of arguments and file names


def nearest(sign: str) -> str:
    """A sign in ASCII."""
    if sign in NEAREST:
        return NEAREST[sign]
    if sign in HORIZONTAL or unicodedata.category(sign) == "Pd":
        return "-"
    if sign in VERTICAL:
        return "|"
    if "\u2500" <= sign <= "\u257f":  # corners and crossings of tables
        return "+"
    if "\u2580" <= sign <= "\u259f" or "\u2800" <= sign <= "\u28ff":  # bars, and dots that turn
        return "#"
    return unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode() or "?"


def _handle(error: UnicodeError) -> tuple[str | bytes, int]:
    """One sign at a time, as codecs ask for it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    sign = error.object[error.start]
    if ord(sign) in ESCAPED:
        return bytes([ord(sign) - 0xDC00]), error.start + 1
    return nearest(sign), error.start + 1


codecs.register_error(ERRORS, _handle)


@contextlib.contextmanager
def lenient_output(*, restore: bool) -> Generator[None]:
    """Standard output and error that write whatever comes; closed ones lead nowhere.

    Args:
        restore: whether they are put back after, as for a caller who goes on.
    """
    before: list[tuple[Callable[..., Any], str]] = []
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:
            if restore:
                continue
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (or the next file has its number)
        elif hasattr(stream, "reconfigure"):
            before.append((stream.reconfigure, stream.errors))
            stream.reconfigure(errors=ERRORS)
    try:
        yield
    finally:
        for reconfigure, errors in before if restore else ():
            with contextlib.suppress(OSError, ValueError):  # full, or closed since
                reconfigure(errors=errors)
