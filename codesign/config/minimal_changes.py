"""Smallest sets of changes that make a design fit: by number of fields, found by search over the values of each field.

A set of fields is minimal where some values of it fit and no values of fewer of its fields do. Of its values those
nearest to the design's own are taken: of the least sum of |log2(new / old)|, then the larger ones. Of a field that is
a list of names (`plan_fields.combination`) the names that differ are counted.
"""

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Change", "FieldValues", "minimal_changes"]

FieldValues = Mapping[str, Sequence[float]]
"""Field -> values that it may take beside its own."""
Fits = Callable[[list[dict[str, float]]], np.ndarray]


class Change(NamedTuple):
    """New values of some fields, and how far they are from the old ones."""

    values: dict[str, float]
    distance: float


def minimal_changes(
    start: Mapping[str, float], fields: FieldValues, fits: Fits, most: int = 3, lists: Collection[str] = ()
) -> list[Change]:
    """Every minimal set of at most so many fields, the fewest and nearest first; of each its nearest values.

    Args:
        start: the design's own values.
        fields: what may change, and to what.
        fits: which points, of changed fields alone, are legal and fit; called once for each number of fields.
        most: fields of a set.
        lists: fields whose values stand for lists of names.
    """
    result: list[Change] = []
    for count in range(1, most + 1):
        known = [set(change.values) for change in result]
        sets = [names for names in itertools.combinations(fields, count) if not any(one <= {*names} for one in known)]
        points = [
            dict(zip(names, values, strict=True))
            for names in sets
            for values in itertools.product(*(fields[name] for name in names))
        ]
        if not points:
            continue
        fitting = [point for point, good in zip(points, fits(points), strict=True) if good]
        best: dict[frozenset[str], Change] = {}
        for point in fitting:
            one, key = Change(point, distance(start, point, lists)), frozenset(point)
            if key not in best or _rank(one) < _rank(best[key]):
                best[key] = one
        result += sorted(best.values(), key=_rank)
    return result


def distance(start: Mapping[str, float], point: Mapping[str, float], lists: Collection[str] = ()) -> float:
    """Sum of |log2(new / old)|; a field that is 0 or becomes 0 counts its difference, a list the names that differ."""
    total = 0.0
    for name, new in point.items():
        old = start[name]
        if name in lists:
            total += (int(new) ^ int(old)).bit_count()
            continue
        total += abs(math.log2(new / old)) if new > 0 and old > 0 else abs(new - old)
    return total


def _rank(change: Change) -> tuple[float, tuple[float, ...]]:
    return round(change.distance, 9), tuple(-value for value in change.values.values())
