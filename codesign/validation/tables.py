"""Suites of a validation: which files each understands."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..calibration.tables import matching
from .scores import Row


class Suite(NamedTuple):
    """A kind of measurement.

    files: the tables below a folder that the suite understands; run: its rows, messages added to the list given.
    """

    name: str
    files: Callable[[Path], list[Path]]
    run: Callable[[Path, list[str]], list[Row]]


def named(*patterns: str) -> Callable[[Path], list[Path]]:
    """Files of these names anywhere below a folder."""
    return lambda directory: sorted({path for pattern in patterns for path in matching(directory, pattern)})
