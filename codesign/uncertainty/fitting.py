"""Errors of cross-validation to quantiles: split conformal prediction, widened until groups left out are covered."""

import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .spreads import LEVELS, SHARE, column

TRIED = np.linspace(0.7, 3.0, 93)
"""Times that quantiles are stretched about their median, least first."""
APART = 1.5
"""Times where no stretch covers: groups have nothing in common, the widest would say nothing, and the file says how
many rows are covered."""
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


def parts_of(missed: Missed) -> list[np.ndarray]:
    """Errors by group; of one group alone, its halves by turns."""
    result = [missed.errors[missed.groups == name] for name in sorted(set(missed.groups))]
    return result if len(result) > 1 else [missed.errors[::2], missed.errors[1::2]]


def fitted(missed: Missed) -> dict[str, Any]:
    """A row of the file."""
    parts = parts_of(missed)
    shares = covered(parts, TRIED)
    place = int(np.argmax(shares >= SHARE)) if (shares >= SHARE).any() else int(np.argmin(np.abs(TRIED - APART)))
    ends = widened(quantiles(parts, LEVELS), LEVELS.index(0.5), TRIED[place])
    told: dict[str, Any] = {name: getattr(missed, name) for name in ("kind", "name", "model", "regime")}
    told |= {"rows": len(missed.errors), "groups": len(set(missed.groups)), "inflation": TRIED[place]}
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
