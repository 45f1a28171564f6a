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
        found = float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def put(row: ImportedRow, column: str, value: Any, least: float = 0.0) -> None:
    """Set a cell to a number above `least`; leave it out where there is none.

    Raises:
        ConfigError: a number below zero.
    """
    found = number_of(value)
    if found is not None and found < 0:
        raise ConfigError(f"{column} = {found:g} is negative")
    if found is not None and found > least:
        row[column] = f"{found:.12g}"
