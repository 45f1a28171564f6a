"""Lengths of requests as they are: few numbers, and what share of the requests each stands for.

Closed forms read lengths at few points. Without any these are quantiles of a lognormal distribution with the mean and
variation that are given; of requests that are known (`workload.trace`) they are means of groups of requests. Groups are
ranges of lengths: the range is halved that matters most, its share of the squared deviations, of lengths and of their
logarithms, so that two kinds of requests never share a group, until there are `COUNT`; the longest are apart
from the beginning (`TAIL`), since percentiles rest on them.
"""

import functools
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...core.errors import ConfigError
from ...core.fields import static

__all__ = ["COUNT", "Kinds", "drawn_from", "kinds_of", "known_kinds", "table_of"]

Kinds = tuple[tuple[float, float, float], ...]
"""(length over the mean, share of the requests, standard deviation over the mean of all) of each group, the shortest
first; () of what is lognormal."""

COUNT = 24
TAIL = (0.9, 0.95, 0.98, 0.993)  # shares of requests below, where groups begin


TOLERANCE = 1e-3  # of what shares and the mean of lengths come to, as numbers are written


def known_kinds(name: str) -> Any:
    """A field of such lengths: a choice of structure, since programs are written for so many of them."""
    return static(default=(), converter=functools.partial(checked, name=name))


def checked(given: Any, name: str) -> Kinds:
    """Lists of a configuration as what they are.

    Args:
        given: rows, or none.
        name: of the field.

    Raises:
        ConfigError: rows that are no lengths and shares, or do not come to 1.
    """
    try:
        kinds = tuple((float(length), float(share), float(spread)) for length, share, spread in given)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} = {given!r} are no rows of length over mean, share, deviation") from None
    if not kinds:
        return ()
    mean, total = sum(one[0] * one[1] for one in kinds), sum(one[1] for one in kinds)
    ordered = all(one[0] <= other[0] for one, other in itertools.pairwise(kinds))
    sound = ordered and all(length > 0 and share > 0 and spread >= 0 for length, share, spread in kinds)
    if not (sound and abs(mean - 1) < TOLERANCE and abs(total - 1) < TOLERANCE):
        raise ConfigError(
            f"{name}: lengths over their mean must rise and be above 0, with shares above 0; the mean is"
            f" {mean:.6g} and shares are {total:.6g} together, where both must be 1"
        )
    return kinds


def drawn_from(kinds: Kinds, rng: np.random.Generator, mean: float, count: int, least: int = 1) -> np.ndarray:
    """Whole numbers with this mean: a group for each, and anywhere within its spread."""
    length, share, spread = np.array(kinds).T
    at = rng.choice(len(kinds), count, p=share / share.sum())
    lengths = mean * (length[at] + np.sqrt(3) * spread[at] * rng.uniform(-1, 1, count))
    return np.maximum(np.rint(lengths), least).astype(int)


def table_of(kinds: Kinds) -> Array | None:
    """[kinds, 3]; None of what is lognormal."""
    return jnp.asarray(np.array(kinds)) if kinds else None


def kinds_of(lengths: np.ndarray) -> Kinds:
    """Groups of lengths; their mean is 1, their shares together as well."""
    ordered = np.sort(lengths * 1.0)
    places = sorted({0, len(ordered), *(round(share * len(ordered)) for share in TAIL)})
    groups = [(low, high) for low, high in itertools.pairwise(places) if high > low]
    while len(groups) < COUNT:
        cuts = [_best_cut(ordered, *group) for group in groups]
        at = max(range(len(groups)), key=lambda index: cuts[index][0])
        gain, cut = cuts[at]
        if not gain > 0:
            break
        groups[at : at + 1] = [(groups[at][0], cut), (cut, groups[at][1])]
    mean = ordered.mean()
    parts = [ordered[low:high] / mean for low, high in groups]
    return tuple((float(part.mean()), len(part) / len(ordered), float(part.std())) for part in parts)


def _best_cut(ordered: np.ndarray, low: int, high: int) -> tuple[float, int]:
    """(by how much it lessens squared deviations, relative; where) of the best cut of a group."""
    part = ordered[low:high]
    if len(part) < 2 or part[0] == part[-1]:
        return 0.0, low
    counts, gains = np.arange(1, len(part)), np.zeros(len(part) - 1)
    for values, scale in ((part, ordered), (np.log(part), np.log(ordered))):
        below = np.cumsum(values)[:-1]
        above = values.sum() - below
        between = below**2 / counts + above**2 / (len(part) - counts) - values.sum() ** 2 / len(part)
        gains += between / max(scale.var() * len(ordered), 1e-300)
    gains[part[1:] == part[:-1]] = 0.0  # the same length is one kind
    best = int(np.argmax(gains))
    return float(gains[best]), low + best + 1
