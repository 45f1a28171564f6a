"""One checked reader of CSV files: whatever is wrong is one line with file, row, column and what is allowed."""

import csv
import io
import math
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...core.errors import DataError
from .schema import Column, Schema

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
    columns = {name: [row[place] for row in result.rows] for place, name in enumerate(result.header)}
    there = [column for column in schema.columns if column.name in columns]
    frame = pd.DataFrame({c.name: _converted(c, columns[c.name], result, shown) for c in there})
    for column in there:
        if column.options:
            known = frame[column.name].isin(column.options) | (frame[column.name].isna() if column.blank else False)
            others = ", ".join(sorted({str(name) for name in frame[column.name][~known]}))
            if others:
                messages.append(f"{shown}: {int((~known).sum())} rows set aside, {column.name} {others} is not known")
            frame = frame[known]
    for check in schema.checks:
        broken = np.flatnonzero(np.asarray(check.broken(frame), dtype=bool))
        if len(broken):
            row = int(np.asarray(frame.index)[broken[0]])
            values = ", ".join(f"{name} = {columns[name][row] or 'blank'}" for name in check.columns)
            raise DataError(f"{_where(shown, row, result)}: {values}; allowed: {check.says}{_more(len(broken))}")
    return frame


def _where(shown: str, row: int, found: Cells) -> str:
    return f"{shown}, row {row + 1} (line {found.lines[row]})"


def _more(count: int) -> str:
    return f" (and {count - 1} more such rows)" if count > 1 else ""


def _converted(column: Column, texts: list[str], found: Cells, shown: str) -> Any:
    convert: Callable[[Column, str], Any] = {"name": _name, "word": _word, "flag": _flag}.get(column.kind, _number)
    known: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for value in dict.fromkeys(texts):
        try:
            known[value] = np.nan if not value.strip() and column.blank else convert(column, value)
        except ValueError as error:
            wrong[value] = str(error)
    if wrong:
        rows = [row for row, value in enumerate(texts) if value in wrong]
        value = texts[rows[0]]
        short = value if len(value) <= SHOWN else value[:SHOWN] + "..."
        raise DataError(
            f"{_where(shown, rows[0], found)}, column {column.name}: {short!r} {wrong[value]}; "
            f"allowed: {column.allowed}{_more(len(rows))}"
        )
    return _array(column, [known[value] for value in texts])


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
