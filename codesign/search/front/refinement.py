"""Designs at levels between those a front was solved at, each with its own bound, for little more work.

For one plan the front is a convex curve in the logarithms, so plans that are good at two levels are solved again for
levels between them. What was proven at the neighbours bounds all other plans there: a bound holds at every tighter
level, and a Lagrangian bound is a straight line over all levels. The few pairs of a plan and a level that neither
excludes are closed like plans, all side by side.

Source: see docs/optimisation.md, section 6.
"""

import numpy as np
from jaxtyping import Int

from ..branch_and_bound.bounding import REFERENCE_SHARPNESS, Bounding
from ..branch_and_bound.bounds_table import passed_down
from ..branch_and_bound.oracle import GOAL, AbstractOracle
from ..branch_and_bound.programme import Programme
from ..settings import BRANCH_AND_BOUND, FRONT
from .level_pairs import Levelled, Lines, Point, apart
from .parametric_sequence import ParametricSequence, SolvedProgramme
from .remembered_cuts import Memory


class Between:
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
        return Programme(Levelled(oracle, plan, shift), GOAL, self.rows[1:])

    def _allowed(self, level: np.ndarray) -> dict[str, float]:
        return dict(zip(self.others, level.tolist(), strict=True))

    def _recall(self, bounding: Bounding, asked: Levelled, pairs: np.ndarray) -> None:
        """Give pairs the tangents that are remembered of their plans."""
        for slot in range(self.oracle.depth):
            known = pairs[self.oracle.asked[asked.plan[pairs]] > slot]
            if len(known):
                memory = self._programme(Memory(self.oracle, slot), asked.plan, asked.shift)
                at = self.oracle.number[asked.plan[known], slot]
                bounding.own.keep(known, *memory.tangents(known, np.zeros((len(known), bounding.width)), 1.0), at=at)

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
            known = step.bounding.incumbent
            tried = {p: known.feasible[p][1] for p in known.ranked(FRONT.neighbours)} | tried
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
        asked, best = Levelled(self.oracle, plan, shift, at), np.array([point.value for point in points])
        bounding = apart(asked, self.rows, FRONT.fine * self.gap, np.inf, best, self.sweep.pool)
        every, start = np.arange(len(plan)), np.array([u for plans in tried for u in plans.values()])
        bounding.learn(every, start, REFERENCE_SHARPNESS)
        self._recall(bounding, asked, every)
        self._refine(bounding, asked, FRONT.rounds)
        for pair, (value, u) in bounding.feasible.items():
            points[int(at[pair])].take(value, int(plan[pair]), u)
        self.lines.learn(bounding, asked)

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
        asked = Levelled(self.oracle, plan, shift, at)
        bounding = apart(asked, self.rows, self.gap, 0.0, np.zeros(len(group)), self.sweep.pool)
        bounding.table.raise_all(np.concatenate([floor for _, _, floor in group]) - value[at])
        hardware = np.array([point.u for point, _, _ in group])
        self._bound(bounding, asked, np.arange(len(at)), hardware)
        self._refine(bounding, asked, BRANCH_AND_BOUND.most_tries, hardware)
        self._take_over(bounding, asked, group, value)

    def _take_over(
        self, bounding: Bounding, asked: Levelled, group: list[tuple[Point, np.ndarray, np.ndarray]], value: np.ndarray
    ) -> None:
        """Better designs and bounds of levels, `value` being what their pairs were compared with."""
        for pair, (gained, u) in bounding.feasible.items():
            at = int(asked.level[pair])
            group[at][0].take(value[at] + gained, int(asked.plan[pair]), u)
        least, every = np.full(len(group), np.inf), np.flatnonzero(bounding.table.leaf)
        np.minimum.at(least, asked.level[every], bounding.lower[every])
        for (point, _, _), before, lower in zip(group, value, least, strict=True):
            point.lower = min(point.lower, float(before + lower))
        self.lines.learn(bounding, asked)

    def _refine(self, bounding: Bounding, asked: Levelled, most: int, hardware: np.ndarray | None = None) -> None:
        """Rounds over what is open; parts of groups begin at the hardware of their level."""
        while self.sweep.left > 0:
            left = bounding.open()
            left = left[bounding.table.rounds[left] < most][: 4 * self.sweep.effort.batch]
            if len(left) == 0:
                return
            new = bounding.advance(left)
            if hardware is not None and len(new):
                self._bound(bounding, asked, new, hardware)

    def _bound(
        self, bounding: Bounding, asked: Levelled, pairs: Int[np.ndarray, " some"], hardware: np.ndarray
    ) -> None:
        """Bounds of pairs from remembered tangents, then from one where their level's best design lies."""
        weights = self._weights()
        for slot in range(self.oracle.depth):
            left = self._still(bounding, pairs)
            left = left[self.oracle.asked[asked.plan[left]] > slot]
            memory = self._programme(Memory(self.oracle, slot), asked.plan, asked.shift)
            if len(left):
                affine, at = memory.tangents(left, hardware[asked.level[left]], 1.0)[1], self.oracle.number
                bounding.bound_by(left, affine, weights, at[asked.plan[left], slot])
        left = self._still(bounding, pairs)
        if len(left) == 0:
            return
        u = hardware[asked.level[left]]
        at, (exact, affine) = bounding.place(u, REFERENCE_SHARPNESS), bounding.evaluate(left, u, REFERENCE_SHARPNESS)
        bounding.bound_by(left, affine, weights, at)
        still = bounding.lower[left] < bounding.cut
        bounding.own.keep(left[still], exact[still], affine[still], at=at[still])
        self._recall(bounding, asked, left[still])

    def _still(self, bounding: Bounding, pairs: np.ndarray) -> np.ndarray:
        """Open pairs among those of a list."""
        left = bounding.open()
        return left[np.isin(left, pairs)]

    def _weights(self) -> np.ndarray:
        """Multipliers of a typical best design."""
        alike = [step.bounding for step in self.steps if step.bounding.programme.rows == self.rows]
        known = [one.duals.weights[one.plan] for one in alike if one.plan in one.duals.weights]
        return np.median(known, axis=0) if known else np.ones(len(self.rows))
