"""Errors of cross-validation to quantiles: split conformal prediction, widened until groups left out are covered."""

import io
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from .spreads import LEVELS, SHARE, column

WIDEST = 3.0  # times; more says that the groups have nothing in common
STEPS = 41
DIGITS = 4


class Missed(NamedTuple):
    """log(measured / predicted) of rows of one kind, each with the group that was left out together."""

    kind: str
    name: str
    model: str
    regime: str
    errors: np.ndarray
    groups: np.ndarray
    members: tuple[str, ...] = ()  # accelerators that were measured, where the regime is theirs


def covered(parts: Sequence[np.ndarray], inflation: float) -> float:
    """Share of the rows of a group inside the interval of the other groups, mean over groups."""
    shares = []
    for place, mine in enumerate(parts):
        others = [size for other, size in enumerate(parts) if other != place]
        shares.append(float(np.mean(mine <= inflation * quantiles(others, (SHARE,))[0])))
    return float(np.mean(shares))


def quantiles(parts: Sequence[np.ndarray], levels: Sequence[float]) -> np.ndarray:
    """Quantiles of sizes in which every group counts alike."""
    sizes = np.concatenate(parts)
    weight = np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])
    order = np.argsort(sizes)
    return np.interp(levels, np.cumsum(weight[order]) / weight.sum(), sizes[order])


def parts_of(missed: Missed) -> list[np.ndarray]:
    """Sizes of errors by group; of one group alone, its halves by turns."""
    sizes = np.abs(missed.errors)
    found = [sizes[missed.groups == name] for name in sorted(set(missed.groups))]
    return found if len(found) > 1 else [sizes[::2], sizes[1::2]]


def fitted(missed: Missed) -> dict[str, object]:
    """A row of the file."""
    parts = parts_of(missed)
    tried = np.linspace(1.0, WIDEST, STEPS)
    shares = [covered(parts, inflation) for inflation in tried]
    place = next((place for place, share in enumerate(shares) if share >= SHARE), len(tried) - 1)
    sizes = tried[place] * quantiles(parts, LEVELS)
    told: dict[str, object] = {name: getattr(missed, name) for name in ("kind", "name", "model", "regime")}
    told |= {"rows": len(missed.errors), "groups": len(set(missed.groups)), "inflation": tried[place]}
    told |= {"coverage": shares[place], "width": np.exp(sizes[LEVELS.index(SHARE)])}
    told |= {column(level): size for level, size in zip(LEVELS, sizes, strict=True)}
    return told | {"members": " ".join(missed.members)}


def as_text(missed: Iterable[Missed]) -> str:
    """The file."""
    frame = pd.DataFrame([fitted(one) for one in missed])
    buffer = io.StringIO()
    frame.round(DIGITS).to_csv(buffer, index=False, lineterminator="\n")
    return buffer.getvalue()
