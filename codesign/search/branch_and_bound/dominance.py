"""Monotone plan fields: every row orders their values, so that the same is always better, whatever else is chosen.

More offloading never needs more of the first memory and never takes less time. Where every row orders the values of a
field, a whole range of them is bounded by one evaluation for each direction: every row at the value that is best for
it. The walk over the model proves orders that run with or against the listed values. Others are tested on random plans
and hardware, only where plans are too many to do without, and whatever rests on them is not called proven.

Source: see docs/optimisation.md, section 4 (nodes and their relaxation).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ...curvature import Judgement

LOOKS = 256  # random designs on which it is looked how much a field matters
FEW = 64  # random designs that show of most fields that no row orders them
SAMPLES = 1024  # random designs, each with up to `LEVELS` values of every field
LEVELS = 8  # values of a field compared in one look; of longer lists each look draws others
SAME = 1e-9  # log by which a row may contradict an order, for rounding
NEVER_OPEN = ("sequence_parallel", "zero")  # few values; next-best designs that differ in them are worth telling apart
Ask = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]  # (plan rows, u) -> (exact rows, broken)


class Order(NamedTuple):
    """Effect of a field on every row.

    below: [row, a, b], no design was seen whose row is lower at value b than at value a; effect: mean range of the
    rows over the values tried, summed over the rows.
    """

    below: Bool[np.ndarray, "rows values values"]
    effect: float


@dataclass(frozen=True)
class View:
    """Rows that agree which values are best: all are bounded by one evaluation.

    best: for each inner field, [first, last] of a range -> the place of the value that these rows have least at.
    """

    rows: np.ndarray
    best: list[np.ndarray]


def order_of(judgement: Judgement, rows: Sequence[str], field: str, values: np.ndarray) -> Order | None:
    """The order that the walk proves of a field; None where some row has none."""
    ways = [judgement.direction(row, field) for row in rows]
    if None in ways:
        return None
    rising = np.triu(np.ones((len(values), len(values)), dtype=bool))
    below = {1: rising, -1: rising.T, 0: rising | rising.T}
    return Order(np.stack([below[way] for way in ways if way is not None]), 0.0)


def effects(
    lists: dict[str, np.ndarray],
    plans: Float[np.ndarray, "plans fields"],
    width: int,
    ask: Ask,
    seed: int,
    fields: Collection[str],
) -> dict[str, float]:
    """Mean range of the rows between the ends of each of these fields, summed over the rows: how much it matters."""
    rng = np.random.default_rng(seed)
    result: dict[str, float] = {}
    for column, (name, values) in enumerate(lists.items()):
        if name in fields:
            rows = np.repeat(plans[rng.integers(0, len(plans), LOOKS)], 2, axis=0)
            rows[:, column] = np.tile(values[[0, -1]], LOOKS)
            exact, _ = ask(rows, np.repeat(rng.uniform(size=(LOOKS, width)), 2, axis=0))
            moved = np.abs(exact[1::2] - exact[::2])
            result[name] = float(np.where(np.isfinite(moved), moved, 0.0).mean(axis=0).sum())
    return result


def find_orders(
    lists: dict[str, np.ndarray],
    plans: Float[np.ndarray, "plans fields"],
    width: int,
    ask: Ask,
    seed: int,
    fields: Collection[str],
    samples: int = SAMPLES,
) -> dict[str, Order]:
    """Find the fields that every row orders, on random plans and hardware, half of it at corners of the box."""
    rng = np.random.default_rng(seed)
    result: dict[str, Order] = {}
    for column, (name, values) in enumerate(lists.items()):
        if name not in fields:
            continue
        taken = np.sort(rng.permuted(np.tile(np.arange(len(values)), (samples, 1)), axis=1)[:, :LEVELS], axis=1)
        rows = np.repeat(plans[rng.integers(0, len(plans), samples)], taken.shape[1], axis=0)
        rows[:, column] = values[taken.reshape(-1)]
        u = rng.uniform(size=(samples, width))
        u[::2] = np.round(u[::2])
        exact, broken = ask(rows, np.repeat(u, taken.shape[1], axis=0))
        order = _order(exact.reshape(samples, taken.shape[1], -1), broken.reshape(samples, -1), taken, len(values))
        if order is not None and all(_ranking(below) is not None for below in order.below):
            result[name] = order
    return result


def _order(exact: np.ndarray, broken: np.ndarray, taken: np.ndarray, count: int) -> Order | None:
    """The order that these designs leave possible; None where the field decides what is legal."""
    if not np.isfinite(exact).all() or (broken != broken[:, :1]).any():
        return None
    below = np.ones((exact.shape[2], count, count), dtype=bool)
    for i in range(taken.shape[1]):
        for k in range(taken.shape[1]):
            wrong, lane = np.nonzero((exact[:, i] > exact[:, k] + SAME).T)
            below[wrong, taken[lane, i], taken[lane, k]] = False
    return Order(below, float((exact.max(axis=1) - exact.min(axis=1)).mean(axis=0).sum()))


def _ranking(*below: np.ndarray) -> np.ndarray | None:
    """Places from best to worst by which none of these relations is contradicted."""
    both = np.logical_and.reduce(below)
    rising = np.arange(len(both))
    for places in (rising, rising[::-1], np.argsort(-both.sum(axis=1), kind="stable")):
        if both[np.ix_(places, places)][np.triu_indices(len(places))].all():
            return places
    return None


def views(orders: Sequence[Order], rows: int) -> list[View]:
    """Rows sorted into as few views as their orders allow; one view of all where nothing is grouped."""
    groups: list[list[int]] = []
    for row in range(rows):
        for group in groups:
            if all(_ranking(*(order.below[r] for r in (*group, row))) is not None for order in orders):
                group.append(row)
                break
        else:
            groups.append([row])
    return [
        View(np.array(group), [_best_of_ranges(*(order.below[r] for r in group)) for order in orders])
        for group in groups
    ]


def _best_of_ranges(*below: np.ndarray) -> np.ndarray:
    """[first, last] -> the place of lowest rank between them, of relations that have a ranking."""
    ranking = _ranking(*below)
    assert ranking is not None
    count = len(ranking)
    rank = np.empty(count, dtype=int)
    rank[ranking] = np.arange(count)
    best = np.zeros((count, count), dtype=np.int32)
    for first in range(count):
        lowest = np.minimum.accumulate(rank[first:])
        best[first, first:] = ranking[lowest]
    return best
