"""Schemas of tables of measurements: columns, their units, types and ranges, declared once for all readers."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pandas as pd

from ...core.errors import DataError

SET_ASIDE = "row set aside with a note"
EVERYTHING = ("*",)  # as `carried`: a table has many columns that nobody reads


@dataclass(frozen=True)
class Column:
    """One column that is read.

    kind: `number`, `whole` (a number without fraction), `flag` (True or False), `name` (any text that is printable, not
    empty and has no blanks around it) or `word` (a name that may be part of a file's name). Numbers lie above zero, or
    from zero where `zero`, up to `most`. `blank` says what an empty cell means, and none is allowed where it is empty.
    Of `options` others are `SET_ASIDE`.
    """

    name: str
    kind: str
    meaning: str
    unit: str = ""
    most: float = 0.0
    zero: bool = False
    blank: str = ""
    options: tuple[str, ...] = ()
    optional: bool = False

    @property
    def allowed(self) -> str:
        """Allowed content of a cell, in words."""
        if self.kind == "flag":
            text = "True or False"
        elif self.kind == "word":
            text = "a word of letters, digits, . _ + -"
        elif self.kind == "name":
            text = f"one of {', '.join(self.options)}; else {SET_ASIDE}" if self.options else "a name"
        else:
            kind = "a whole number" if self.kind == "whole" else "a number"
            text = f"{kind} {'from' if self.zero else 'above'} 0 to {self.most:g}{f' [{self.unit}]' * bool(self.unit)}"
        return text + (f"; blank: {self.blank}" if self.blank else "")

    def or_blank(self, means: str) -> "Column":
        """Copy with empty cells allowed."""
        return replace(self, blank=means)

    def if_there(self) -> "Column":
        """Copy that a table may do without."""
        return replace(self, optional=True)


MOST = {  # of a unit: far beyond anything measured, so that only damage lies above
    "us": 1e10, "ms": 1e8, "s": 1e7, "min": 1e6, "h": 1e9, "TFLOP/s": 1e5, "TB/s": 1e3, "GB/s": 1e6, "W": 1e8,
    "bytes": 1e15, "tokens/s": 1e12, "tokens": 1e12, "J": 1e9, "1/s": 1e9, "10^9": 1e6, "%": 100.0, "GB": 1e6,
}  # fmt: skip


def number(name: str, unit: str, meaning: str, zero: bool = False) -> Column:
    """A number above zero."""
    return Column(name, "number", meaning, unit, MOST[unit], zero)


def whole(name: str, meaning: str, most: float = 1e9, unit: str = "", zero: bool = False) -> Column:
    """A count, at least one unless zero is allowed."""
    return Column(name, "whole", meaning, unit, most, zero)


def text(name: str, meaning: str, options: tuple[str, ...] = ()) -> Column:
    """A name."""
    return Column(name, "name", meaning, options=options)


def word(name: str, meaning: str) -> Column:
    """A name of which files may be called."""
    return Column(name, "word", meaning)


def flag(name: str, meaning: str) -> Column:
    """Yes or no."""
    return Column(name, "flag", meaning)


class Check(NamedTuple):
    """Rule that several columns must keep to together: a sentence, and the rows of a table that break it."""

    says: str
    columns: tuple[str, ...]
    broken: Callable[[pd.DataFrame], Any]


@dataclass(frozen=True)
class Schema:
    """One kind of table.

    suite: who scores it on `validate`; where empty, `why` says why nobody does. fitted: whether `calibrate` fits on it.
    A table with one of the columns `without` is of another kind. carried: columns that are known and not read.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    suite: str = ""
    why: str = ""
    fitted: bool = False
    without: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the columns that must be there."""
        return tuple(column.name for column in self.columns if not column.optional)

    def fits(self, header: list[str]) -> bool:
        """True if a table of these columns is of this kind."""
        return set(self.required) <= set(header) and not set(self.without) & set(header)

    def lacking(self, header: list[str]) -> list[str]:
        """Required columns that are not there."""
        return [name for name in self.required if name not in header]

    def unread(self, header: list[str]) -> list[str]:
        """Columns that nobody knows."""
        if self.carried == EVERYTHING:
            return []
        known = {*self.carried, *(column.name for column in self.columns)}
        return [name for name in header if name not in known]


RULE = (
    "A table is of the kind whose required columns it holds, whatever its name and folder; of several such kinds the "
    "one that requires most columns, then the first in this list. A table that lacks at most a quarter of the required "
    "columns of a kind (or one) is refused; any other is named in a note."
)


def choose(header: list[str], schemas: tuple[Schema, ...], shown: str) -> Schema | None:
    """The kind of a table with these columns (`RULE`), or None where it resembles none.

    Raises:
        DataError: it resembles a kind and lacks columns of it.
    """
    fitting = [schema for schema in schemas if schema.fits(header)]
    if fitting:
        return max(fitting, key=lambda schema: len(schema.required))
    near = [(len(s.lacking(header)) / len(s.required), s) for s in schemas if _near(s, header)]
    if not near:
        return None
    schema = min(near, key=lambda pair: pair[0])[1]
    missing = schema.lacking(header)
    if not missing:
        wrong = ", ".join(name for name in header if name in schema.without)
        raise DataError(f"{shown}: {schema.title} has no column {wrong}, and no other kind has all of these columns")
    close = difflib.get_close_matches(missing[0], schema.unread(header), n=1)
    hint = f" (is {close[0]!r} meant to be {missing[0]}?)" if close else ""
    raise DataError(f"{shown} lacks column(s) {', '.join(missing)} of {schema.title}{hint}; it has {', '.join(header)}")


def nearest(header: list[str], schemas: tuple[Schema, ...]) -> str:
    """Explain why a table resembles no kind, and name the nearest where two columns or more agree."""
    shared = [len(schema.required) - len(schema.lacking(header)) for schema in schemas]
    best = max(shared)
    if best < 2:
        return "no kind has these columns"
    near = [schema for schema, count in zip(schemas, shared, strict=True) if count == best]
    schema = min(near, key=lambda each: len(each.required))
    return f"no kind has these columns; {schema.title} ({schema.name}) lacks {', '.join(schema.lacking(header))}"


def _near(schema: Schema, header: list[str]) -> bool:
    missing = len(schema.lacking(header))
    return missing <= max(1, len(schema.required) // 4) and len(schema.required) - missing >= 2
