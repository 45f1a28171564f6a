"""The peer model as a suite."""

from pathlib import Path

from .scores import Row
from .tables import Suite, named


def run_calculon(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of every folder of Calculon runs below a folder."""
    from .calculon import run  # compiles a scenario: only where there are runs

    return [row for path in named("runs.csv")(directory) for row in run(path.parent)]


CALCULON = Suite("calculon", named("runs.csv"), run_calculon)
