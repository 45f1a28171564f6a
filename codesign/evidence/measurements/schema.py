"""Schemas of tables of measurements: columns, their units, types and ranges, declared once for all readers."""

import csv
import difflib
import io
import math
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
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


def integer(name: str, meaning: str, most: float = 1e9, unit: str = "", zero: bool = False) -> Column:
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
        named = {*self.carried, *(column.name for column in self.columns)}
        return [name for name in header if name not in named]


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


# One checked reader of CSV files: whatever is wrong is one line with file, row, column and what is allowed.


MOST_BYTES = 128 * 2**20
SEPARATORS = {";": "semicolons", "\t": "tabulators", "|": "bars"}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")  # UTF-16 and UTF-32
FLAGS = {"true": True, "false": False}
SHOWN = 40  # characters of a cell that are worth repeating


class Cells(NamedTuple):
    """A file as texts: column names, rows, and the line on which each row ends."""

    header: list[str]
    rows: list[list[str]]
    lines: list[int]


def raw_text(path: Path, shown: str) -> str:
    """The whole file.

    Raises:
        DataError: no regular file, empty, too large, binary, or in another encoding than UTF-8.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{shown} is {'a folder' if path.is_dir() else 'no regular file'}; allowed: a CSV file")
        if status.st_size > MOST_BYTES:
            most = f"{MOST_BYTES / 2**20:g} MiB"
            raise DataError(f"{shown} has {status.st_size / 2**20:.0f} MiB; allowed: at most {most} a table")
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{shown} cannot be read: {error.strerror}; allowed: a CSV file") from error
    if not data.strip():
        raise DataError(f"{shown} is empty; allowed: a line of column names, then rows")
    if data.startswith(WIDE_MARKS):
        raise DataError(f"{shown} is written in UTF-16 or UTF-32; allowed: CSV in UTF-8")
    if 0 in data:
        line = data[: data.index(0)].count(b"\n") + 1
        raise DataError(f"{shown}, line {line}: binary data (a byte 0); allowed: CSV in UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        byte = f"0x{data[error.start]:02x}"
        raise DataError(f"{shown}, line {line}: byte {byte} is no UTF-8 text; allowed: CSV in UTF-8") from error


def cells(path: Path, shown: str, only_header: bool = False) -> Cells:
    """A file as texts, every row as long as the header.

    Args:
        only_header: stop there; rows are then neither read nor checked.

    Raises:
        DataError: see `raw_text`; names that are missing or twice, no rows, rows of another length, open quotes.
    """
    reader = csv.reader(io.StringIO(raw_text(path, shown), newline=""), strict=True)
    header: list[str] = []
    rows, lines = list[list[str]](), list[int]()
    try:
        for row in reader:
            if not row:
                continue
            if not header:
                header = _checked_header(row, shown)
                if only_header:
                    break
            elif len(row) != len(header):
                raise DataError(
                    f"{shown}, row {len(rows) + 1} (line {reader.line_num}): {len(row)} cells; "
                    f"allowed: {len(header)}, as many as there are column names"
                )
            else:
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(f"{shown}, line {reader.line_num}: {error}; allowed: CSV with closed quotes") from error
    if not rows and not only_header:
        raise DataError(f"{shown} has column names and no rows; allowed: at least one row")
    return Cells(header, rows, lines)


def _checked_header(header: list[str], shown: str) -> list[str]:
    for mark, plural in SEPARATORS.items():
        if len(header) == 1 and mark in header[0]:
            raise DataError(f"{shown}, line 1: cells are separated by {plural}; allowed: commas")
    for index, name in enumerate(header, start=1):
        if not name.strip():
            raise DataError(f"{shown}, line 1: column {index} has no name; allowed: a name for every column")
        if name != name.strip() or not name.isprintable():
            raise DataError(f"{shown}, line 1: column {name!r}; allowed: printable names without blanks around them")
        if name in header[: index - 1]:
            raise DataError(f"{shown}, line 1: column {name} stands there twice; allowed: once")
    return header


def read(path: Path, schema: Schema, shown: str, messages: list[str]) -> pd.DataFrame:
    """The columns of a schema, checked and converted.

    Args:
        messages: rows set aside, where the schema says that they may be, are told here.

    Raises:
        DataError: whatever the schema does not allow.
    """
    result = cells(path, shown)
    columns = {name: [row[index] for row in result.rows] for index, name in enumerate(result.header)}
    there = [column for column in schema.columns if column.name in columns]
    frame = pd.DataFrame({c.name: _converted(c, columns[c.name], result, shown) for c in there})
    for column in there:
        if column.options:
            allowed = frame[column.name].isin(column.options) | (frame[column.name].isna() if column.blank else False)
            others = ", ".join(sorted({str(name) for name in frame[column.name][~allowed]}))
            if others:
                messages.append(f"{shown}: {int((~allowed).sum())} rows set aside, {column.name} {others} is not known")
            frame = frame[allowed]
    for check in schema.checks:
        broken = np.flatnonzero(np.asarray(check.broken(frame), dtype=bool))
        if len(broken):
            row = int(np.asarray(frame.index)[broken[0]])
            values = ", ".join(f"{name} = {columns[name][row] or 'blank'}" for name in check.columns)
            raise DataError(f"{_where(shown, row, result)}: {values}; allowed: {check.says}{_more(len(broken))}")
    return frame


def _where(shown: str, row: int, cells: Cells) -> str:
    return f"{shown}, row {row + 1} (line {cells.lines[row]})"


def _more(count: int) -> str:
    return f" (and {count - 1} more such rows)" if count > 1 else ""


def _converted(column: Column, texts: list[str], cells: Cells, shown: str) -> Any:
    convert: Callable[[Column, str], Any] = {"name": _name, "word": _word, "flag": _flag}.get(column.kind, _number)
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for value in dict.fromkeys(texts):
        try:
            values[value] = np.nan if not value.strip() and column.blank else convert(column, value)
        except ValueError as error:
            wrong[value] = str(error)
    if wrong:
        rows = [row for row, value in enumerate(texts) if value in wrong]
        value = texts[rows[0]]
        short = value if len(value) <= SHOWN else value[:SHOWN] + "..."
        raise DataError(
            f"{_where(shown, rows[0], cells)}, column {column.name}: {short!r} {wrong[value]}; "
            f"allowed: {column.allowed}{_more(len(rows))}"
        )
    return _array(column, [values[value] for value in texts])


def _array(column: Column, values: list[Any]) -> Any:
    """Whole numbers as integers where no cell is blank."""
    if column.kind in ("name", "word", "flag"):
        return pd.Series(values, dtype=object)
    numbers = np.asarray(values, dtype=float)
    return numbers.astype(np.int64) if column.kind == "whole" and not np.isnan(numbers).any() else numbers


def _number(column: Column, value: str) -> float:
    if not value.strip():
        raise ValueError("is blank")
    if not NUMBER.fullmatch(value.strip(" ")):
        raise ValueError("is no finite number" if value.strip().lower() in _ODD else "is no number")
    result = float(value)
    if not math.isfinite(result):
        raise ValueError("is no finite number")
    if result < 0 or (result == 0 and not column.zero):
        raise ValueError("is zero" if result == 0 else "is negative")
    if result > column.most:
        raise ValueError("is too large")
    if column.kind == "whole" and result != math.floor(result):
        raise ValueError("is not whole")
    return result


_ODD = {sign + word for sign in ("", "+", "-") for word in ("nan", "inf", "infinity")}


def _name(column: Column, value: str) -> str:
    if not value.strip():
        raise ValueError("is blank")
    if value != value.strip():
        raise ValueError("has blanks around it")
    if not value.isprintable() or "\ufffd" in value:
        raise ValueError("holds a character that is not printable")
    return value


def _word(column: Column, value: str) -> str:
    if not is_word(_name(column, value)):
        raise ValueError("is no such word")
    return value


def is_word(text: str) -> bool:
    """True if it may be part of a file's name on every system, and a key."""
    return bool(WORD.fullmatch(text))


def _flag(column: Column, value: str) -> bool:
    if value.strip().lower() not in FLAGS:
        raise ValueError("is neither")
    return FLAGS[value.strip().lower()]
