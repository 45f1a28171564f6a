"""Cells of an imported run: texts of columns, and numbers as they were written."""

import math
from typing import Any

from ...core.errors import ConfigError

__all__ = ["ImportedRow", "number_of", "put"]

ImportedRow = dict[str, str]


def number_of(value: Any) -> float | None:
    """A finite number, or None where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except ValueError:
        return None
    return result if math.isfinite(result) else None


def put(row: ImportedRow, column: str, value: Any, least: float = 0.0) -> None:
    """Set a cell to a number above `least`; leave it out where there is none.

    Raises:
        ConfigError: a number below zero.
    """
    result = number_of(value)
    if result is not None and result < 0:
        raise ConfigError(f"{column} = {result:g} is negative")
    if result is not None and result > least:
        row[column] = f"{result:.12g}"
