"""Errors met in cross-validation, a row a class and regime: `conf/calibration/intervals.csv`.

Of log(measured / predicted) the file keeps quantiles, each tail on its own: most errors of whole jobs are of one sign.
`inflation` widens them about their median until groups left out (a device, a generation, a source) are covered as often
as the interval says: split conformal prediction with groups as what is exchangeable.

Source: quantiles fitted by `codesign calibrate --intervals`.
"""

import csv
import functools
import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

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


# Errors of cross-validation to quantiles: split conformal prediction, widened until groups left out are covered.


TRIED = np.linspace(0.7, 3.0, 93)
"""Times that quantiles are stretched about their median, least first."""
APART = 1.5
"""Times where no stretch covers: groups have nothing in common, the widest would say nothing, and the file says how
many rows are covered."""
DIGITS = 4
TAIL = round((1 - SHARE) / 2, 3)  # outside on either side


class PredictionErrors(NamedTuple):
    """log(measured / predicted) of rows of one kind, each with the group that was left out together."""

    kind: str
    name: str
    model: str
    regime: str
    errors: np.ndarray
    groups: np.ndarray
    members: tuple[str, ...] = ()  # `accelerator:generation` of those measured, where the regime is theirs


def covered(parts: Sequence[np.ndarray], inflations: np.ndarray) -> np.ndarray:
    """Share of the rows of a group inside the interval of the other groups, mean over groups, for each inflation."""
    shares: list[np.ndarray] = []
    for index, mine in enumerate(parts):
        others = [errors for other, errors in enumerate(parts) if other != index]
        ends = quantiles(others, (TAIL, 0.5, 1 - TAIL))
        low, _, high = widened(ends[:, None], 1, inflations)
        ordered = np.sort(mine)
        below: np.ndarray = np.searchsorted(ordered, np.asarray(np.minimum(low, 0.0)), side="left")
        under: np.ndarray = np.searchsorted(ordered, np.asarray(np.maximum(high, 0.0)), side="right")
        shares.append((under - below) / len(mine))
    return np.mean(shares, axis=0)


def widened(values: np.ndarray, middle: int, inflation: float | np.ndarray) -> np.ndarray:
    """Quantiles farther from their median, or nearer to it."""
    return values[middle] + inflation * (values - values[middle])


def quantiles(parts: Sequence[np.ndarray], levels: Sequence[float]) -> np.ndarray:
    """Quantiles of errors in which every group counts alike."""
    errors = np.concatenate(parts)
    weight = np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])
    order = np.argsort(errors)
    reached = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    return np.interp(levels, reached, errors[order])


def parts_of(missed: PredictionErrors) -> list[np.ndarray]:
    """Errors by group; of one group alone, its halves by turns."""
    result = [missed.errors[missed.groups == name] for name in sorted(set(missed.groups))]
    return result if len(result) > 1 else [missed.errors[::2], missed.errors[1::2]]


def fitted(missed: PredictionErrors) -> dict[str, Any]:
    """A row of the file."""
    parts = parts_of(missed)
    shares = covered(parts, TRIED)
    index = int(np.argmax(shares >= SHARE)) if (shares >= SHARE).any() else int(np.argmin(np.abs(TRIED - APART)))
    ends = widened(quantiles(parts, LEVELS), LEVELS.index(0.5), TRIED[index])
    summary: dict[str, Any] = {name: getattr(missed, name) for name in ("kind", "name", "model", "regime")}
    summary |= {"rows": len(missed.errors), "groups": len(set(missed.groups)), "inflation": TRIED[index]}
    low, high = (ends[LEVELS.index(level)] for level in (TAIL, 1 - TAIL))
    summary |= {"coverage": shares[index], "width": np.exp((max(high, 0.0) - min(low, 0.0)) / 2)}
    summary |= {column(level): size for level, size in zip(LEVELS, ends, strict=True)}
    return summary | {"members": " ".join(missed.members)}


def as_text(missed: Iterable[PredictionErrors]) -> str:
    """The file."""
    frame = pd.DataFrame([fitted(one) for one in missed])
    buffer = io.StringIO()
    frame.round(DIGITS).to_csv(buffer, index=False, lineterminator="\n")
    return buffer.getvalue()
