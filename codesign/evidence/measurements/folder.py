"""The tables below a folder and of which kind each is."""

import contextlib
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ...core.errors import DataError
from . import reader
from .catalogue import SCHEMAS
from .run_columns import is_runs
from .schema import Schema, choose, nearest


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
    """The folder, or one that holds nothing but this table."""
    if not path.is_file():
        yield path
        return
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
