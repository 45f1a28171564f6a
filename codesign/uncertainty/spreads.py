"""Errors met in cross-validation, a row a class and regime: `conf/calibration/intervals.csv`.

Of log(measured / predicted) the file keeps quantiles, each tail on its own: most errors of whole jobs are of one sign.
`inflation` widens them about their median until groups left out (a device, a generation, a source) are covered as often
as the interval says: split conformal prediction with groups as what is exchangeable.

Source: quantiles fitted by `codesign calibrate --intervals`.
"""

import csv
import functools
from typing import NamedTuple

import numpy as np

from ..core.resources import conf_dir

LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
SHARE = 0.9  # of what is measured lies inside an interval
MEASURED, RELATIVE, NEW = "measured", "relative", "new"
"""Regimes: a measured device; one whose generation was measured; any other."""
PHYSICS, LEARNED = "physics", "learned"
ANY = "any"  # what holds for every name of a kind
FILE = "intervals.csv"


class Spread(NamedTuple):
    """Errors of one kind of number: quantiles of log(measured / predicted) at `LEVELS`, widened."""

    kind: str  # kernel, collective, source or stratum
    name: str
    model: str
    regime: str
    rows: int
    groups: int
    inflation: float
    coverage: float
    width: float
    members: tuple[str, ...]  # `accelerator:generation` of those measured
    sizes: tuple[float, ...]

    def at(self, level: np.ndarray) -> np.ndarray:
        """The error that this share of rows stays below; never beyond the outer levels."""
        return np.asarray(np.interp(level, LEVELS, self.sizes))

    def interval(self, share: float = SHARE) -> tuple[float, float]:
        """Ends of the interval of the error; the prediction itself is always inside."""
        low, high = self.at(np.asarray([(1 - share) / 2, (1 + share) / 2]))
        return min(float(low), 0.0), max(float(high), 0.0)

    def half_width(self) -> float:
        """Half of the interval."""
        low, high = self.interval()
        return (high - low) / 2


Table = dict[tuple[str, str, str, str], Spread]


@functools.cache
def spreads() -> Table:
    """(kind, name, model, regime) -> errors, as last fitted; empty where there is no file."""
    path = conf_dir() / "calibration" / FILE
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = [_spread(row) for row in csv.DictReader(file)]
    return {(row.kind, row.name, row.model, row.regime): row for row in rows}


def _spread(row: dict[str, str]) -> Spread:
    return Spread(
        row["kind"], row["name"], row["model"], row["regime"], int(row["rows"]), int(row["groups"]),
        float(row["inflation"]), float(row["coverage"]), float(row["width"]), tuple(row["members"].split()),
        tuple(float(row[column(level)]) for level in LEVELS),
    )  # fmt: skip


def column(level: float) -> str:
    """Name of the column of a level."""
    return f"p{round(100 * level):02d}"


def find(kind: str, names: tuple[str, ...], model: str, regime: str, least: float = 0.0) -> Spread | None:
    """The first of these names that has errors of its own in a regime, or in the next one beyond it.

    Args:
        kind, names, model, regime: as in the file, the nearest name first.
        least: share of rows left out that it must have covered; where none did, the first counts all the same.
    """
    table, regimes = spreads(), (MEASURED, RELATIVE, NEW)
    keys = [
        (kind, name, made, beyond)
        for beyond in regimes[regimes.index(regime) :]
        for name in names
        for made in (model, LEARNED, PHYSICS)
    ]
    result = [table[key] for key in keys if key in table]
    return next((one for one in result if one.coverage >= least), result[0] if result else None)
