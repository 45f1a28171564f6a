"""The peer model as a suite."""

from pathlib import Path

from ..measurements import tables
from .scores import Row
from .suites import Suite


def run_calculon(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of every table of Calculon runs below a folder."""
    from .calculon import run  # compiles a scenario: only where there are runs

    return [row for table in tables(directory, "calculon") for row in run(table.path)]


CALCULON = Suite("calculon", ("calculon",), run_calculon)
