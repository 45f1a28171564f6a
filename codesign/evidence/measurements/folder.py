"""The tables below a folder and of which kind each is."""

import contextlib
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ...core.errors import DataError
from . import schema as reader
from .columns import metric_of, names_devices
from .registry import SCHEMAS
from .schema import RULE, Column, Schema, choose, nearest

__all__ = [
    "FoundTable", "Survey", "as_data", "as_folder", "as_text", "files", "is_runs", "survey", "tables", "unread",
]  # fmt: skip


def is_runs(header: list[str]) -> bool:
    """True if a table of these columns holds measured runs; one of kernels has TFLOP/s and devices, too."""
    plain = {name.lower() for name in header}
    return "kernel" not in plain and names_devices(header) and any(metric_of(name) for name in header)


# The kinds of tables as text and as data: what `codesign validate --schema` prints.


def _column(column: Column) -> dict[str, Any]:
    result = {
        "name": column.name, "kind": column.kind, "required": not column.optional, "meaning": column.meaning,
        "allowed": column.allowed,
    }  # fmt: skip
    if column.kind in ("number", "whole"):
        result |= {"unit": column.unit, "most": column.most, "zero": column.zero}
    if column.options:
        result |= {"options": list(column.options)}
    return result | ({"blank": column.blank} if column.blank else {})


def _kind(schema: Schema) -> dict[str, Any]:
    return {
        "name": schema.name, "title": schema.title, "suite": schema.suite or None, "why_not": schema.why or None,
        "fitted": schema.fitted, "columns": [_column(column) for column in schema.columns],
        "without": list(schema.without), "not_read": list(schema.carried),
        "checks": [{"columns": list(check.columns), "allowed": check.says} for check in schema.checks],
    }  # fmt: skip


def as_data() -> dict[str, Any]:
    """The rule of choice and every kind."""
    return {"rule": RULE, "kinds": [_kind(schema) for schema in SCHEMAS]}


def as_text() -> str:
    """Text of the rule of choice and every kind, for reading."""
    lines = [RULE, ""]
    for schema in SCHEMAS:
        used = [f"scored by {schema.suite}"] if schema.suite else [f"not scored: {schema.why}"]
        used += ["fitted by calibrate"] if schema.fitted else []
        lines.append(f"{schema.name}: {schema.title} ({'; '.join(used)})")
        width = max(len(column.name) for column in schema.columns)
        for column in schema.columns:
            optional = " (may be missing)" if column.optional else ""
            lines.append(f"    {column.name:{width}}  {column.meaning} ({column.allowed}){optional}")
        lines += [f"    together: {check.says}" for check in schema.checks]
        lines += [f"    never with: {', '.join(schema.without)}"] if schema.without else []
        lines.append("")
    return "\n".join(lines).rstrip()


class FoundTable(NamedTuple):
    """A file of a kind: `shown` is its path as messages say it."""

    path: Path
    shown: str
    schema: Schema

    def rows(self, messages: list[str]) -> pd.DataFrame:
        """Its checked columns; what was set aside is added to the messages.

        Raises:
            DataError: whatever the schema does not allow.
        """
        return reader.read(self.path, self.schema, self.shown, messages)


class Survey(NamedTuple):
    """Tables of known kinds, and files that resemble none, with the reason."""

    tables: list[FoundTable]
    others: dict[str, str]


@contextlib.contextmanager
def as_folder(path: Path) -> Generator[Path, None, None]:
    """The folder, or one that holds nothing but this table.

    Raises:
        DataError: a file that is no CSV, such as a benchmark's result.
    """
    if not path.is_file():
        yield path
        return
    if path.suffix.lower() != ".csv":
        raise DataError(f"{path} is no CSV; `codesign import {path} --out TABLE.csv` makes one of a result or a log")
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / path.name).symlink_to(path.resolve())
        yield Path(made)


def files(directory: Path) -> list[Path]:
    """All *.csv files below a folder, except hidden ones, sorted.

    Raises:
        DataError: no such folder.
    """
    if not directory.is_dir():
        raise DataError(f"{directory} is no folder and no table")
    return sorted(p for p in directory.rglob("*") if p.suffix.lower() == ".csv" and not p.name.startswith("."))


def survey(directory: Path) -> Survey:
    """The kind of every table below a folder, by its columns alone.

    Raises:
        DataError: no such folder, a file that is no CSV, or a table that lacks columns of the kind it resembles.
    """
    tables, others = list[FoundTable](), dict[str, str]()
    for path in files(directory):
        shown = path.relative_to(directory).as_posix()
        header = reader.cells(path, shown, only_header=True).header
        try:
            schema = choose(header, SCHEMAS, shown)
        except DataError:
            if not is_runs(header):
                raise
            schema = None
        if schema is None:
            others[shown] = nearest(header, SCHEMAS)
        else:
            tables.append(FoundTable(path, shown, schema))
    return Survey(tables, others)


def tables(directory: Path, *names: str) -> list[FoundTable]:
    """The tables of these kinds below a folder, sorted by path.

    Raises:
        DataError: see `survey`.
    """
    return [table for table in survey(directory).tables if table.schema.name in names]


def unread(directory: Path) -> list[str]:
    """A line for every table with columns that nobody knows.

    Raises:
        DataError: see `survey`.
    """
    lines: list[str] = []
    for table in survey(directory).tables:
        extra = table.schema.unread(reader.cells(table.path, table.shown, only_header=True).header)
        if extra:
            lines.append(f"{table.shown}: column(s) {', '.join(sorted(extra))} not used")
    return lines
