"""Load that varies over the day: hours from a file, and how many replicas run in which."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import ConfigError
from ...core.untrusted_io import read_text, tree_of_yaml

__all__ = ["Day", "read_load", "replicas_by_hour"]

COLUMNS = ("hour", "requests_per_s")
ROUNDING = 1e-9  # of a replica
MOST_PER_S = 1e12  # requests, as of a workload
HELP = f"a CSV file with the columns {', '.join(COLUMNS)}, or a YAML list of requests/s, one an hour from hour 0"


class Day(NamedTuple):
    """Replicas hour by hour, and accelerator-hours saved against as many as the busiest hour needs all day."""

    replicas: np.ndarray
    saved: float


def replicas_by_hour(rates: Sequence[float] | np.ndarray, of_one: float) -> Day:
    """Replicas needed in each hour, each good for so many requests/s; at least one.

    Raises:
        ConfigError: an hour without a rate, or a replica that is good for nothing.
    """
    hours = np.asarray(rates, dtype=float)
    wrong = np.flatnonzero(~(np.isfinite(hours) & (hours >= 0)))
    if hours.ndim != 1 or not len(hours) or len(wrong):
        where = f"hour {wrong[0]} has a rate of {hours[wrong[0]]}" if len(wrong) else "there are no hours"
        raise ConfigError(f"daily load: {where}: give requests/s, 0 or more, for each hour")
    if not of_one > 0:
        raise ConfigError(f"daily load: a replica that is good for {of_one:g} requests/s serves nobody")
    replicas = np.maximum(np.ceil(hours / of_one - ROUNDING), 1)
    return Day(replicas, float(1 - replicas.sum() / (replicas.max() * len(replicas))))


def read_load(path: Path | str) -> np.ndarray:
    """Requests/s of each hour, from hour 0 on: a CSV file, or a list in YAML.

    Raises:
        ConfigError: the file, the line or hour, and what is allowed.
    """
    what = f"load {str(path)!r}"
    text = read_text(Path(path), what)
    is_yaml = Path(path).suffix in (".yaml", ".yml")
    rows = _listed(tree_of_yaml(text, what), what) if is_yaml else _tabled(text, what)
    if not rows:
        raise ConfigError(f"{what} has no hours: give {HELP}")
    rates = np.array([_rate(value, hour, what) for hour, value in enumerate(rows)])
    if not rates.max() > 0:
        raise ConfigError(f"{what}: nobody asks in any of {len(rates)} hours: give requests/s above 0")
    return rates


def _listed(tree: Any, what: str) -> list[Any]:
    if not isinstance(tree, list):
        raise ConfigError(f"{what} holds no list: give {HELP}")
    return tree


def _tabled(text: str, what: str) -> list[Any]:
    """Cells of the rates, whose hours follow each other."""
    try:
        rows = list(csv.DictReader(io.StringIO(text)))
    except csv.Error as error:
        raise ConfigError(f"{what} is no table: {error}") from error
    missing = [name for name in COLUMNS if rows and name not in rows[0]]
    if missing:
        raise ConfigError(f"{what} has no column {', '.join(missing)} (it has {', '.join(map(str, rows[0]))})")
    for expected, row in enumerate(rows):
        if row["hour"] is None or row["hour"].strip() != str(expected):
            raise ConfigError(f"{what}, line {expected + 2}: hour = {row['hour']!r} where {expected} should follow")
    return [row["requests_per_s"] for row in rows]


def _rate(value: Any, hour: int, what: str) -> float:
    """A finite rate of a cell."""
    try:
        rate = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        rate = math.nan
    if not (math.isfinite(rate) and rate >= 0):
        said = "is empty" if value in (None, "") else f"= {value!r} is no rate"
        raise ConfigError(f"{what}, hour {hour}: requests_per_s {said}: give a number of 0 or more")
    if rate > MOST_PER_S:
        raise ConfigError(
            f"{what}, hour {hour}: requests_per_s = {rate:g} is more than {MOST_PER_S:g}; give requests a second"
        )
    return rate
