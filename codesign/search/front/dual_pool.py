"""Dual proofs from the search for a front: weighted tangents of plans, which bound any metric at any levels.

What weights make of a plan's tangents lies, over the whole cube, above `value`:

    w_0 metric_0 + w_1 metric_1 + ... + (weights of limits) . limits  >=  value      for every design of the plan

Limits are at most 0 and a metric is at most its level, so with w_0 = 1 the first metric is at least

    value - w_1 level_1 - ...

whatever programme the weights come from, and with w_0 = 0 a positive right-hand side says that the levels cannot be
kept. A statement, that a metric is at least `bound` wherever the others keep to their levels, is backed where every
plan, or a group around it, has weights that say so.

Source: see docs/optimisation.md, section 6 (fronts).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from ..branch_and_bound.bounding_state import settled
from ..branch_and_bound.evidence import AbstractListener, LinearisationPoints
from ..branch_and_bound.oracle import AbstractOracle, Programme

FORGIVEN = 1e-6  # log by which weighted constraints must be broken everywhere before a plan is called impossible
SHORT = 1e-12  # log by which weights may fall short of a bound, for rounding


@runtime_checkable
class _Pairs(Protocol):
    """Plans at levels, by the numbers of the pairs; `shift` is what a level takes off the rows `names`."""

    names: tuple[str, ...]
    plan: np.ndarray
    shift: np.ndarray


@dataclass(frozen=True)
class Statement:
    """Statement: the metric `goal` is at least `bound` (logs) wherever the other metrics keep to `levels`.

    An infinite bound says that nothing keeps to them.
    """

    goal: str
    levels: dict[str, float]
    bound: float


@dataclass(frozen=True)
class Backed:
    """bounds: what each statement's metric is proven to be at least, never more than it said; used: notes that do."""

    bounds: Float[np.ndarray, " statements"]
    used: Int[np.ndarray, " notes"]


@dataclass(frozen=True)
class Notes:
    """Notes of a pool that can be sent: see `Pool.take`; terms: note, place of its point, row, weight."""

    plan: Int[np.ndarray, " notes"]
    value: Float[np.ndarray, " notes"]
    lean: Float[np.ndarray, "notes metrics"]
    terms: dict[str, np.ndarray]
    points: Float[np.ndarray, "points variables"]
    sharpness: Float[np.ndarray, " points"]


class Pool:
    """Weighted tangents of plans and groups, of many programmes over the same rows.

    Args:
        names: of all rows.
        metrics: rows that have levels where they are not what is minimised.
        places: numbers the points.
    """

    def __init__(self, names: tuple[str, ...], metrics: tuple[str, ...], places: LinearisationPoints):
        self.names, self.metrics, self.places = names, metrics, places
        self._plan: list[np.ndarray] = []
        self._value: list[np.ndarray] = []
        self._lean: list[np.ndarray] = []  # weights of the metrics
        self._terms: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []  # note, point, row, weight
        self._noted = 0

    def listener(self, programme: Programme, pairs: _Pairs | None = None) -> "PoolListener":
        """For the bounds of a programme; of pairs of plans and levels if given."""
        return PoolListener(self, programme, pairs)

    def take(self, plan: np.ndarray, at: np.ndarray, rows: np.ndarray, weights: np.ndarray, value: np.ndarray) -> None:
        """Keep weights [notes, cuts, rows] of tangents at points [notes, cuts]; `rows` are places among all rows."""
        note, cut, row = np.nonzero(weights)
        self._terms.append((self._noted + note, at[note, cut], rows[row], weights[note, cut, row]))
        lean, total = np.zeros((len(plan), len(self.metrics))), weights.sum(axis=1)
        for i, name in enumerate(self.metrics):
            for column in np.flatnonzero(rows == self.names.index(name)):
                lean[:, i] += total[:, column]
        self._plan.append(plan)
        self._value.append(value)
        self._lean.append(lean)
        self._noted += len(plan)

    def notes(self, used: Int[np.ndarray, " notes"]) -> Notes:
        """Some of them, on their own."""
        terms = self.terms(used)
        points, sharpness, terms["point"] = self.places.distinct(terms["point"])
        value, lean = np.concatenate(self._value)[used], np.concatenate(self._lean)[used]
        return Notes(self.plan[used], value, lean, terms, points, sharpness)

    def absorb(self, notes: Notes) -> None:
        """Take notes of another pool over the same rows and numbers of plans."""
        point = self.places.index_of(notes.points, notes.sharpness)[notes.terms["point"]]
        self._terms.append((self._noted + notes.terms["node"], point, notes.terms["row"], notes.terms["weight"]))
        self._plan.append(notes.plan)
        self._value.append(notes.value)
        self._lean.append(notes.lean)
        self._noted += len(notes.plan)

    @property
    def plan(self) -> Int[np.ndarray, " notes"]:
        """Number of the plan or group of each note."""
        return np.concatenate(self._plan) if self._plan else np.zeros(0, dtype=int)

    def back(self, statements: Sequence[Statement], oracle: AbstractOracle) -> Backed:
        """Find the notes that back each statement over all plans of the oracle, and the bounds that they prove."""
        plan = self.plan
        order = np.argsort(plan, kind="stable")
        present, first = np.unique(plan[order], return_index=True)
        value, lean = np.concatenate(self._value)[order], np.concatenate(self._lean)[order]
        used = np.zeros(len(order), dtype=bool)
        bounds: list[float] = []
        family = _Family(oracle, present)
        for one in statements:
            reached = _reached(one, self.metrics, value, lean)
            best = np.maximum.reduceat(reached, first)
            chosen, least = family.chosen(best, one.bound - SHORT)
            bounds.append(min(one.bound, least))
            _use(used, reached, best, chosen, first, one.bound - SHORT)
        return Backed(np.array(bounds), order[used])

    def terms(self, used: Int[np.ndarray, " notes"]) -> dict[str, np.ndarray]:
        """node (place among `used`), point, row, weight of everything that these notes weigh."""
        where = np.full(self._noted, -1)
        where[used] = np.arange(len(used))
        parts: list[tuple[np.ndarray, ...]] = []
        for note, point, row, weight in self._terms:
            mine = where[note] >= 0
            parts.append((where[note[mine]], point[mine], row[mine], weight[mine]))
        columns = (np.concatenate(part) for part in zip(*parts, strict=True))
        return dict(zip(("node", "point", "row", "weight"), columns, strict=True))


class PoolListener(AbstractListener):
    """Turns what is proven of one programme into notes of a pool; see `AbstractListener`."""

    def __init__(self, pool: Pool, programme: Programme, pairs: _Pairs | None):
        self.pool, self.pairs, self.places = pool, pairs, pool.places
        self._rows = np.array([pool.names.index(name) for name in programme.rows])
        self._allowed = programme.shift

    def inherit(self, part: Int[np.ndarray, " k"], group: Int[np.ndarray, " k"]) -> None:
        """Parts are found under their groups in the end."""

    def note(
        self,
        plan: Int[np.ndarray, " k"],
        at: Int[np.ndarray, "k cuts"],
        weights: Float[np.ndarray, "k cuts rows"],
        value: Float[np.ndarray, " k"],
        higher: Bool[np.ndarray, " k"],
    ) -> None:
        """Keep all that bounds anything, raised or not: at other levels it may be the best there is."""
        total = weights.sum(axis=1)
        is_settled = settled(total[:, 0]) | ((total[:, 0] == 0.0) & (value > 0))
        some = np.flatnonzero(np.isfinite(value) & is_settled)
        taken = self._allowed
        if self.pairs is not None:
            taken = taken + self.pairs.shift[plan[some]][:, self._rows]
        value = value[some] + (total[some] * taken).sum(axis=1)
        plan = plan[some] if self.pairs is None else self.pairs.plan[plan[some]]
        self.pool.take(plan, at[some], self._rows, weights[some], value)


class _Family:
    """Groups and all their parts, down to the last that were listed.

    present: numbers with notes.
    """

    def __init__(self, oracle: AbstractOracle, present: np.ndarray):
        self.roots, self.present, self.count = oracle.roots, present, oracle.count
        groups = oracle.divided
        self.part, parent_index = oracle.split(groups) if len(groups) else (groups, groups)
        self.group = groups[parent_index] if len(groups) else groups
        depth = np.zeros(self.count, dtype=int)
        while len(deeper := np.flatnonzero(depth[self.part] <= depth[self.group])):
            depth[self.part[deeper]] = depth[self.group[deeper]] + 1
        self.levels = [np.flatnonzero(depth[self.part] == d) for d in range(1, int(depth.max(initial=0)) + 1)]
        self.under = np.zeros(self.count, dtype=bool)
        self.under[self.roots] = True
        for level in self.levels:
            self.under[self.part[level]] |= self.under[self.group[level]]

    def chosen(self, best: np.ndarray, wanted: float) -> tuple[np.ndarray, float]:
        """(which of `present` reach what is wanted and no group around them does, what all plans reach)."""
        best_of = np.full(self.count, -np.inf)
        best_of[self.present] = best
        full = best_of.copy()
        for level in reversed(self.levels):  # a group is worth its worst part, where that is more
            least = np.full(self.count, np.inf)
            np.minimum.at(least, self.group[level], full[self.part[level]])
            groups = np.unique(self.group[level])
            full[groups] = np.maximum(full[groups], least[groups])
        reached, covered = float(full[self.roots].min(initial=np.inf)), np.zeros(self.count, dtype=bool)
        enough = min(wanted, reached)
        for level in self.levels:
            above = self.group[level]
            covered[self.part[level]] = covered[above] | (best_of[above] >= enough)
        return ((best_of >= enough) & ~covered & self.under)[self.present], reached


def _reached(one: Statement, metrics: tuple[str, ...], value: np.ndarray, lean: np.ndarray) -> np.ndarray:
    """Lower bound of the statement's metric by each note; inf where it says that nothing keeps to the levels."""
    result, goal = value.copy(), lean[:, metrics.index(one.goal)]
    for i, name in enumerate(metrics):
        if name == one.goal:
            continue
        if name in one.levels:
            result -= lean[:, i] * one.levels[name]
        else:
            result[lean[:, i] > 0] = -np.inf
    never = np.where(result > FORGIVEN, np.inf, -np.inf)
    return np.where(settled(goal), result, np.where(goal == 0.0, never, -np.inf))


def _use(
    used: np.ndarray, reached: np.ndarray, best: np.ndarray, chosen: np.ndarray, first: np.ndarray, wanted: float
) -> None:
    """Mark one note of each chosen plan: one that is used already where it reaches what is wanted, else the best."""
    size = np.diff(np.append(first, len(reached)))
    group = np.repeat(np.arange(len(first)), size)
    enough = np.minimum(best, wanted)
    reached_before = used & (reached >= enough[group])
    missing = chosen.copy()
    missing[group[reached_before]] = False
    better = missing[group] & (reached >= best[group])
    _, where = np.unique(group[better], return_index=True)
    used[np.flatnonzero(better)[where]] = True
