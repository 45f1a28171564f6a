"""Rows of imported runs: cells as texts and numbers, and rows of collectives as tables of their suites."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import ConfigError, suggestion
from ..measurements.registry import CLUSTERS, SCALE_UP

__all__ = ["ImportedRow", "collective_rows", "is_collective", "number_of", "put"]


# Cells of an imported run: texts of columns, and numbers as they were written.


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


# Rows of collectives as a table that the suites of collectives read: one node, or several of a named cluster.


COLLECTIVE_COLUMNS = {*SCALE_UP.required, *SCALE_UP.carried, *CLUSTERS.required, *CLUSTERS.carried}
"""Columns that whoever imports may add."""


def is_collective(rows: Sequence[ImportedRow]) -> bool:
    """True for rows of collectives; runs have a metric with a share or a rate instead.

    Raises:
        ConfigError: some are and some are not: they belong in tables of their own.
    """
    kinds = {"message_bytes" in row for row in rows}
    if len(kinds) > 1:
        raise ConfigError("import: collectives and runs are tables of different kinds: import them one after the other")
    return kinds == {True}


def collective_rows(rows: Sequence[ImportedRow], added: Mapping[str, str]) -> list[ImportedRow]:
    """The rows with what was added: of kind `clusters` where a cluster is named, else of kind `scale_up`.

    Raises:
        ConfigError: a column that neither kind has, or one that no file says and nobody added.
    """
    for key in added:
        if key not in COLLECTIVE_COLUMNS:
            raise ConfigError(f"import: {key} is no column of collectives{suggestion(key, COLLECTIVE_COLUMNS)}")
    completed = [row | dict(added) for row in rows]
    across = next((row for row in completed if row.get("num_nodes", "1") != "1"), None)
    if across is not None and "cluster" not in added:
        nodes = across["num_nodes"]
        raise ConfigError(
            f"import: collectives on {nodes} nodes: add cluster=NAME, which says the class of their network: "
            "cluster=mine-400G"
        )
    schema = CLUSTERS if "cluster" in added else SCALE_UP
    for row in completed:
        missing = [name for name in schema.required if name not in row]
        if missing:
            raise ConfigError(f"import: no file says {missing[0]} of these collectives; add {missing[0]}=...")
    return [{name: value for name, value in row.items() if name not in schema.without} for row in completed]
