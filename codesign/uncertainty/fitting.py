"""Errors of cross-validation to quantiles: split conformal prediction, widened until groups left out are covered."""

import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .spreads import LEVELS, SHARE, column

WIDEST = 1.5  # times; where more were needed groups have little in common, and the file says how many are covered
STEPS = 21
DIGITS = 4
TAIL = round((1 - SHARE) / 2, 3)  # outside on either side


class Missed(NamedTuple):
    """log(measured / predicted) of rows of one kind, each with the group that was left out together."""

    kind: str
    name: str
    model: str
    regime: str
    errors: np.ndarray
    groups: np.ndarray
    members: tuple[str, ...] = ()  # `accelerator:generation` of those measured, where the regime is theirs


def covered(parts: Sequence[np.ndarray], inflation: float) -> float:
    """Share of the rows of a group inside the interval of the other groups, mean over groups."""
    shares: list[float] = []
    for place, mine in enumerate(parts):
        others = [errors for other, errors in enumerate(parts) if other != place]
        low, _, high = map(float, widened(quantiles(others, (TAIL, 0.5, 1 - TAIL)), 1, inflation))
        shares.append(float(np.mean((mine >= min(low, 0.0)) & (mine <= max(high, 0.0)))))
    return float(np.mean(shares))


def widened(values: np.ndarray, middle: int, inflation: float) -> np.ndarray:
    """Quantiles farther from their median."""
    return values[middle] + inflation * (values - values[middle])


def quantiles(parts: Sequence[np.ndarray], levels: Sequence[float]) -> np.ndarray:
    """Quantiles of errors in which every group counts alike."""
    errors = np.concatenate(parts)
    weight = np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])
    order = np.argsort(errors)
    reached = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    return np.interp(levels, reached, errors[order])


def parts_of(missed: Missed) -> list[np.ndarray]:
    """Errors by group; of one group alone, its halves by turns."""
    found = [missed.errors[missed.groups == name] for name in sorted(set(missed.groups))]
    return found if len(found) > 1 else [missed.errors[::2], missed.errors[1::2]]


def fitted(missed: Missed) -> dict[str, Any]:
    """A row of the file."""
    parts = parts_of(missed)
    tried = np.linspace(1.0, WIDEST, STEPS)
    shares = [covered(parts, inflation) for inflation in tried]
    place = next((place for place, share in enumerate(shares) if share >= SHARE), len(tried) - 1)
    ends = widened(quantiles(parts, LEVELS), LEVELS.index(0.5), tried[place])
    told: dict[str, Any] = {name: getattr(missed, name) for name in ("kind", "name", "model", "regime")}
    told |= {"rows": len(missed.errors), "groups": len(set(missed.groups)), "inflation": tried[place]}
    low, high = (ends[LEVELS.index(level)] for level in (TAIL, 1 - TAIL))
    told |= {"coverage": shares[place], "width": np.exp((max(high, 0.0) - min(low, 0.0)) / 2)}
    told |= {column(level): size for level, size in zip(LEVELS, ends, strict=True)}
    return told | {"members": " ".join(missed.members)}


def as_text(missed: Iterable[Missed]) -> str:
    """The file."""
    frame = pd.DataFrame([fitted(one) for one in missed])
    buffer = io.StringIO()
    frame.round(DIGITS).to_csv(buffer, index=False, lineterminator="\n")
    return buffer.getvalue()
