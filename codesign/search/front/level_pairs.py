"""Plans (or groups of them) at levels of a front: pairs that are bounded and closed side by side.

Source: see docs/optimisation.md, section 6.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from ..branch_and_bound.bounding import REFERENCE_SHARPNESS, Bounding
from ..branch_and_bound.bounding_state import AbstractIncumbent, keeps, passed_down, settled
from ..branch_and_bound.oracle import GOAL, AbstractOracle, Programme, Tangents
from ..settings import BRANCH_AND_BOUND, FRONT
from .dual_pool import Pool
from .parametric_sequence import Memory, ParametricSequence, SolvedProgramme

AMISS = 1e3  # price of a unit by which constraints cannot hold together


class LevelOracle(AbstractOracle):
    """Pairs of a plan (or group) and a level: rows of the plan, each less what its level takes off it.

    Args:
        inner: answers for plans.
        plan, level: of each pair, by their numbers.
        shift: log that each pair's level takes off each row.
    """

    def __init__(
        self,
        inner: AbstractOracle,
        plan: Int[np.ndarray, " pairs"],
        shift: Float[np.ndarray, "pairs rows"],
        level: Int[np.ndarray, " pairs"] | None = None,
    ) -> None:
        self.inner, self.plan, self.shift = inner, plan, shift
        self.level = np.zeros(len(plan), dtype=int) if level is None else level
        self.names, self.evaluated, self._roots = inner.names, 0, len(plan)

    @property
    def count(self) -> int:
        """Pairs listed so far."""
        return len(self.plan)

    @property
    def roots(self) -> np.ndarray:
        """The pairs that were not split off others."""
        return np.arange(self._roots)

    def single(self, plan: np.ndarray) -> np.ndarray:
        """Mask of the pairs of one plan."""
        return self.inner.single(self.plan[plan])

    def weight(self, plan: np.ndarray) -> np.ndarray:
        """Plans of each pair."""
        return self.inner.weight(self.plan[plan])

    def split(self, plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of the same levels with the parts of groups; asked once of a pair."""
        parts, parent_index = self.inner.split(self.plan[plan])
        first, parent = self.count, plan[parent_index]
        self.plan = np.concatenate([self.plan, parts])
        self.shift = np.concatenate([self.shift, self.shift[parent]])
        self.level = np.concatenate([self.level, self.level[parent]])
        return np.arange(first, self.count), parent_index

    @property
    def variables(self) -> tuple[str, ...]:
        """Hardware variables."""
        return self.inner.variables

    def near(self, plan: int, changes: int) -> np.ndarray:
        """Pairs whose plans differ in at most so many fields."""
        return np.flatnonzero(np.isin(self.plan, self.inner.near(int(self.plan[plan]), changes)))

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """Rows and tangents relative to the levels."""
        self.evaluated += len(plan)
        result, shift = self.inner.tangents(self.plan[plan], u, sharpness), self.shift[plan]
        affine = result.affine.copy()
        affine[..., 0] -= shift
        return Tangents(result.exact - shift, affine, result.broken)


class LevelIncumbents(AbstractIncumbent):
    """Designs of pairs, of which only those of one level compete.

    Args:
        asked: the pairs.
        upper: value to beat, the same at every level.
        best: of each level, so far.
    """

    def __init__(self, levelled: LevelOracle, upper: float, best: Float[np.ndarray, " levels"]):
        self.levelled, self.upper, self.best, self.feasible = levelled, upper, best, {}

    def notice(self, plan: np.ndarray, u: np.ndarray, exact: np.ndarray, single: np.ndarray) -> None:
        """A better design closes only pairs of its own level."""
        if self.near(plan, u, exact, single).min(initial=np.inf) < self.upper:
            values = np.where(keeps(exact) & single, exact[:, 0], np.inf)
            np.minimum.at(self.best, self.levelled.level[plan], values)

    def open(self, lower: Float[np.ndarray, " nodes"], gap: float) -> np.ndarray:
        """Pairs that may still be best at their level."""
        return lower < self.best[self.levelled.level] - gap


def apart(
    levelled: LevelOracle,
    rows: tuple[str, ...],
    gap: float,
    upper: float,
    best: Float[np.ndarray, " levels"],
    pool: Pool,
) -> Bounding:
    """Bounds of pairs, each level for itself, the rows (the goal first) relative to the levels.

    Args:
        asked, upper, best: as of `LevelIncumbents`.
        rows: the programme's, the goal first.
        gap: in the log, within which a level's best design counts as found.
        pool: takes note of what is proven.
    """
    programme = Programme(levelled, rows[0], rows[1:])
    return Bounding(
        programme, gap, pool.listener(programme, levelled), LevelIncumbents(levelled, upper, best), pruned=True
    )


@dataclass
class Lines:
    """Bounds of plans that are straight over all levels: constant - weights . level.

    Args:
        others: rows that have levels.
        least: below the goal of every design. To it the constraints of a plan that cannot hold together add so much.
    """

    others: tuple[str, ...]
    least: float
    plan: list[np.ndarray] = field(default_factory=list[np.ndarray])
    constant: list[np.ndarray] = field(default_factory=list[np.ndarray])
    weights: list[np.ndarray] = field(default_factory=list[np.ndarray])

    def learn(self, bounding: Bounding, levelled: LevelOracle | None = None) -> None:
        """Take over the Lagrangian bounds of a programme; of pairs if given."""
        solved, bound, weights = bounding.duals.bounds()
        if len(solved):
            self._add(bounding, levelled, solved, bound, weights)
        for one in bounding.pruned or []:
            self._add(bounding, levelled, *one)

    def _add(
        self,
        bounding: Bounding,
        levelled: LevelOracle | None,
        which: np.ndarray,
        bound: np.ndarray,
        weights: np.ndarray,
    ) -> None:
        """Bounds at what was allowed, and their multipliers [which, rows]: the line is of the plan, not of a level."""
        rows = bounding.programme.rows
        taken = bounding.programme.shift[None]
        if levelled is not None:
            taken = taken + levelled.shift[which][:, [levelled.names.index(name) for name in rows]]
        columns = [i for i, name in enumerate(rows) if i == 0 or name in self.others]
        at, bound = bound, bound + (weights * taken)[:, columns].sum(axis=1)
        lean = np.zeros((len(which), len(self.others)))
        for i, name in enumerate(self.others):
            lean[:, i] = weights[:, rows.index(name)] if name in rows else 0.0
        never = (weights[:, 0] == 0.0) & (at > 0)
        price = np.where(lean.any(axis=1), AMISS, np.inf)  # whatever the level
        bound = np.where(never, self.least + price * bound, bound)
        lean = np.where(never[:, None], AMISS * lean, lean)
        is_settled = never | settled(weights[:, 0])
        self.plan.append((which if levelled is None else levelled.plan[which])[is_settled])
        self.constant.append(bound[is_settled])
        self.weights.append(lean[is_settled])

    def raise_(self, floor: Float[np.ndarray, " plans"], level: Float[np.ndarray, " others"]) -> None:
        """Raise bounds of all plans at a level."""
        if len(self.plan) > 1:
            self.plan, self.constant, self.weights = (
                [np.concatenate(each)] for each in (self.plan, self.constant, self.weights)
            )
        for plan, constant, weights in zip(self.plan, self.constant, self.weights, strict=True):
            np.maximum.at(floor, plan, constant - weights @ level)


@dataclass
class Point:
    """A level, the best design found there (log of the goal, plan, coordinates), and a bound on all designs there."""

    level: np.ndarray
    value: float = np.inf
    plan: int = -1
    u: np.ndarray = field(default_factory=lambda: np.zeros(0))
    lower: float = -np.inf

    def take(self, value: float, plan: int, u: np.ndarray) -> None:
        """Keep the better design."""
        if value < self.value:
            self.value, self.plan, self.u = value, plan, u


# Designs at levels between those a front was solved at, each with its own bound, for little more work.
#
# For one plan the front is a convex curve in the logarithms, so plans that are good at two levels are solved again
# for levels between them. What was proven at the neighbours bounds all other plans there: a bound holds at every
# tighter level, and a Lagrangian bound is a straight line over all levels. The few pairs of a plan and a level that
# neither excludes are closed like plans, all side by side.
#
# Source: see docs/optimisation.md, section 6.


class LevelSolver:
    """Solves further levels after a sweep.

    Args:
        sweep: that was run.
        others: rows that have levels.
    """

    def __init__(self, sweep: ParametricSequence, others: tuple[str, ...]):
        self.sweep, self.others, self.oracle = sweep, others, sweep.oracle
        self.gap = sweep.effort.gap
        self.rows = (GOAL, *sweep.limits, *others)
        self.columns = [self.oracle.names.index(name) for name in others]
        self.lines, self.seen = Lines(others, sweep.steps[0].outcome.lower), 0
        self.steps: list[SolvedProgramme] = []
        self.points: list[Point] = []
        self.learn()

    def learn(self) -> None:
        """Take over what was proven since."""
        new = [step for step in self.sweep.steps[self.seen :] if step.goal == GOAL]
        self.steps, self.seen = [*self.steps, *new], len(self.sweep.steps)
        for step in new:
            self.lines.learn(step.bounding)

    def _programme(self, oracle: AbstractOracle, plan: np.ndarray, shift: np.ndarray) -> Programme:
        return Programme(LevelOracle(oracle, plan, shift), GOAL, self.rows[1:])

    def _allowed(self, level: np.ndarray) -> dict[str, float]:
        return dict(zip(self.others, level.tolist(), strict=True))

    def _recall(self, bounding: Bounding, levelled: LevelOracle, pairs: np.ndarray) -> None:
        """Give pairs the tangents that are remembered of their plans."""
        for slot in range(self.oracle.depth):
            recalled = pairs[self.oracle.evaluations[levelled.plan[pairs]] > slot]
            if len(recalled):
                memory = self._programme(Memory(self.oracle, slot), levelled.plan, levelled.shift)
                at = self.oracle.number[levelled.plan[recalled], slot]
                bounding.cuts.keep(
                    recalled, *memory.tangents(recalled, np.zeros((len(recalled), bounding.width)), 1.0), at=at
                )

    def designs(self, points: list[Point]) -> None:
        """The best design at every level among the plans that are good at the neighbouring steps, and their own kin."""
        self._solve(points, [self._rivals(point) for point in points])
        self._solve(points, [self._kin(point) for point in points])
        self.points += [point for point in points if point.plan >= 0]

    def _rivals(self, point: Point) -> dict[int, np.ndarray]:
        """Plans that did well near a level, with the hardware they did it with."""
        near = sorted(self.steps, key=lambda step: step.apart(GOAL, self._allowed(point.level)))
        tried: dict[int, np.ndarray] = {}
        for step in near[: 2 * len(self.others) + 1]:
            incumbent = step.bounding.incumbent
            tried = {p: incumbent.feasible[p][1] for p in incumbent.ranked(FRONT.neighbours)} | tried
        close = sorted(self.points, key=lambda other: np.abs(other.level - point.level).sum())
        return tried | {other.plan: other.u for other in close[: 2 * len(self.others)]}

    def _kin(self, point: Point) -> dict[int, np.ndarray]:
        """Plans that differ from a level's best in two fields, those that do best with its hardware."""
        if point.plan < 0:
            return {}
        plan = self.oracle.near(point.plan, 2)
        plan = plan[plan != point.plan]
        shift = np.zeros((len(plan), len(self.oracle.names)))
        shift[:, self.columns] = point.level
        u = np.broadcast_to(point.u, (len(plan), len(point.u)))
        exact, _ = self._programme(self.oracle.inner, plan, shift).tangents(np.arange(len(plan)), u, 1.0)
        soft = exact[:, 0] + FRONT.penalty * np.maximum(exact[:, 1:], 0.0).sum(axis=1)
        return dict.fromkeys(plan[np.argsort(soft, kind="stable")[: FRONT.neighbours]].tolist(), point.u)

    def _solve(self, points: list[Point], tried: list[dict[int, np.ndarray]]) -> None:
        """Solve these plans at these levels."""
        pairs = [(i, p) for i, plans in enumerate(tried) for p in plans]
        if not pairs:
            return
        at, plan = np.array(pairs).T
        shift = np.zeros((len(plan), len(self.oracle.names)))
        shift[:, self.columns] = np.array([point.level for point in points])[at]
        levelled, best = LevelOracle(self.oracle, plan, shift, at), np.array([point.value for point in points])
        bounding = apart(levelled, self.rows, FRONT.fine * self.gap, np.inf, best, self.sweep.pool)
        every, start = np.arange(len(plan)), np.array([u for plans in tried for u in plans.values()])
        bounding.learn(every, start, REFERENCE_SHARPNESS)
        self._recall(bounding, levelled, every)
        self._refine(bounding, levelled, FRONT.rounds)
        for pair, (value, u) in bounding.feasible.items():
            points[int(at[pair])].take(value, int(plan[pair]), u)
        self.lines.learn(bounding, levelled)

    def floor(self, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(plans and groups that together stand for all plans, bound of each at a level from what was proven)."""
        floor, allowed = np.full(self.oracle.count, -np.inf), self._allowed(level)
        for step in self.steps:
            if step.looser(GOAL, allowed):
                step.raise_(floor)
        self.lines.raise_(floor, level)
        every = np.flatnonzero(self._nearest(level).bounding.table.leaf)
        return every, passed_down(floor, self.oracle.parents)[every]

    def _nearest(self, level: np.ndarray) -> SolvedProgramme:
        return min(self.steps, key=lambda step: step.apart(GOAL, self._allowed(level)))

    def prove(self, points: list[Point]) -> list[Point]:
        """Bound all plans at these levels; those not excluded yet are closed. Returns levels with too many of them."""
        group: list[tuple[Point, np.ndarray, np.ndarray]] = []
        hard: list[Point] = []
        waiting = 0
        for point in points:
            every, floor = self.floor(point.level)
            left = floor < point.value - self.gap
            if left.sum() > FRONT.most_open:
                hard.append(point)
                continue
            point.lower = max(point.lower, float(floor[~left].min(initial=np.inf)))
            group.append((point, every[left], floor[left]))
            waiting += int(left.sum())
            if waiting > FRONT.most_pairs:
                self._close(group)
                group, waiting = [], 0
        self._close(group)
        return hard

    def _close(self, group: list[tuple[Point, np.ndarray, np.ndarray]]) -> None:
        """Close pairs of a plan and a level; a point's bound is the least of its plans'."""
        at = np.repeat(np.arange(len(group)), [len(left) for _, left, _ in group])
        if len(at) == 0:
            return
        plan = np.concatenate([left for _, left, _ in group])
        shift = np.zeros((len(plan), len(self.oracle.names)))
        shift[:, self.columns] = np.array([point.level for point, _, _ in group])[at]
        value = np.array([point.value for point, _, _ in group])
        shift[:, self.oracle.names.index(GOAL)] = value[at]
        levelled = LevelOracle(self.oracle, plan, shift, at)
        bounding = apart(levelled, self.rows, self.gap, 0.0, np.zeros(len(group)), self.sweep.pool)
        bounding.table.raise_all(np.concatenate([floor for _, _, floor in group]) - value[at])
        hardware = np.array([point.u for point, _, _ in group])
        self._bound(bounding, levelled, np.arange(len(at)), hardware)
        self._refine(bounding, levelled, BRANCH_AND_BOUND.most_tries, hardware)
        self._take_over(bounding, levelled, group, value)

    def _take_over(
        self,
        bounding: Bounding,
        levelled: LevelOracle,
        group: list[tuple[Point, np.ndarray, np.ndarray]],
        value: np.ndarray,
    ) -> None:
        """Better designs and bounds of levels, `value` being what their pairs were compared with."""
        for pair, (gained, u) in bounding.feasible.items():
            at = int(levelled.level[pair])
            group[at][0].take(value[at] + gained, int(levelled.plan[pair]), u)
        least, every = np.full(len(group), np.inf), np.flatnonzero(bounding.table.leaf)
        np.minimum.at(least, levelled.level[every], bounding.lower[every])
        for (point, _, _), before, lower in zip(group, value, least, strict=True):
            point.lower = min(point.lower, float(before + lower))
        self.lines.learn(bounding, levelled)

    def _refine(self, bounding: Bounding, levelled: LevelOracle, most: int, hardware: np.ndarray | None = None) -> None:
        """Rounds over what is open; parts of groups begin at the hardware of their level."""
        while self.sweep.left > 0:
            left = bounding.open()
            left = left[bounding.table.rounds[left] < most][: 4 * self.sweep.effort.batch]
            if len(left) == 0:
                return
            new = bounding.advance(left)
            if hardware is not None and len(new):
                self._bound(bounding, levelled, new, hardware)

    def _bound(
        self, bounding: Bounding, levelled: LevelOracle, pairs: Int[np.ndarray, " some"], hardware: np.ndarray
    ) -> None:
        """Bounds of pairs from remembered tangents, then from one where their level's best design lies."""
        weights = self._weights()
        for slot in range(self.oracle.depth):
            left = self._still(bounding, pairs)
            left = left[self.oracle.evaluations[levelled.plan[left]] > slot]
            memory = self._programme(Memory(self.oracle, slot), levelled.plan, levelled.shift)
            if len(left):
                affine, at = memory.tangents(left, hardware[levelled.level[left]], 1.0)[1], self.oracle.number
                bounding.bound_by(left, affine, weights, at[levelled.plan[left], slot])
        left = self._still(bounding, pairs)
        if len(left) == 0:
            return
        u = hardware[levelled.level[left]]
        at, (exact, affine) = (
            bounding.point_index(u, REFERENCE_SHARPNESS),
            bounding.evaluate(left, u, REFERENCE_SHARPNESS),
        )
        bounding.bound_by(left, affine, weights, at)
        still = bounding.lower[left] < bounding.cut
        bounding.cuts.keep(left[still], exact[still], affine[still], at=at[still])
        self._recall(bounding, levelled, left[still])

    def _still(self, bounding: Bounding, pairs: np.ndarray) -> np.ndarray:
        """Open pairs among those of a list."""
        left = bounding.open()
        return left[np.isin(left, pairs)]

    def _weights(self) -> np.ndarray:
        """Multipliers of a typical best design."""
        alike = [step.bounding for step in self.steps if step.bounding.programme.rows == self.rows]
        weights = [one.duals.weights[one.plan] for one in alike if one.plan in one.duals.weights]
        return np.median(weights, axis=0) if weights else np.ones(len(self.rows))
