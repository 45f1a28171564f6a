"""Designs at levels between those a front was solved at, each with its own bound, for little more work.

For one plan the front is a convex curve in the logarithms, so plans that are good at two levels are solved again for
levels between them. What was proven at the neighbours bounds all other plans there: a bound holds at every tighter
level, and a Lagrangian bound is a straight line over all levels. The few pairs of a plan and a level that neither
excludes are closed like plans, all side by side.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from .closing import MOST_TRIES
from .ledger import HOLDS, REFERENCE_SHARPNESS, Ledger, Programme
from .oracle import GOAL, AbstractOracle, Tangents
from .recall import Memory
from .sweep import Sweep

RIVALS = 8  # of each neighbouring step: its best plans are tried at the levels between
ROUNDS = 12  # of a plan at a level
KIN_PENALTY = 8.0  # price of a unit of log-violation where plans are ranked at hardware that is another's
FINE = 0.05  # of the gap: designs between are solved so far
MOST_PAIRS = 100_000  # plans at levels that are closed side by side
MOST_OPEN = 20_000  # plans of one level: with more of them left its own search is cheaper


class Levelled(AbstractOracle):
    """Pairs of a plan and a level: rows of the plan, each less what its level takes off it."""

    def __init__(
        self, inner: AbstractOracle, plan: Int[np.ndarray, " pairs"], shift: Float[np.ndarray, "pairs rows"]
    ) -> None:
        self.inner, self.plan, self.shift = inner, plan, shift
        self.names, self.evaluated = inner.names, 0

    @property
    def count(self) -> int:
        """Pairs."""
        return len(self.plan)

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
        found, shift = self.inner.tangents(self.plan[plan], u, sharpness), self.shift[plan]
        affine = found.affine.copy()
        affine[..., 0] -= shift
        return Tangents(found.exact - shift, affine, found.broken)


class Apart(Ledger):
    """A ledger of pairs in which only those of one level compete.

    Args:
        programme: of the pairs.
        gap: in the log, within which a level's best design counts as found.
        level: number of the level of each pair.
        best: value to beat, the same at every level.
    """

    def __init__(self, programme: Programme, gap: float, level: Int[np.ndarray, " pairs"], best: float):
        super().__init__(programme, gap)
        self.level, self.upper, self.fixed = level, best, best
        self.best = np.full(level.max() + 1, best)

    def evaluate(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """As in any ledger, but a better design cuts only pairs of its own level."""
        exact, affine = super().evaluate(plan, u, sharpness)
        if self.upper < self.fixed:
            holds = exact[:, 1:].max(axis=1, initial=-np.inf) <= HOLDS
            np.minimum.at(self.best, self.level[plan], np.where(holds, exact[:, 0], np.inf))
            self.upper = self.fixed
        return exact, affine

    def open(self) -> np.ndarray:
        """Pairs that may still be best at their level, least bound first."""
        left = np.flatnonzero((self.lower < self.best[self.level] - self.gap) & (self.tried < MOST_TRIES))
        return left[np.argsort(self.lower[left], kind="stable")]


@dataclass
class Lines:
    """Bounds of plans that are straight over all levels: constant - weights . level.

    Args:
        others: rows that have levels.
    """

    others: tuple[str, ...]
    plan: list[np.ndarray] = field(default_factory=list)
    constant: list[np.ndarray] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)

    def learn(self, ledger: Ledger, plan: np.ndarray | None = None, shift: np.ndarray | None = None) -> None:
        """Take over the Lagrangian bounds of a ledger; of pairs with their plans and shifts if given."""
        rows, programme = ledger.programme.rows, ledger.programme
        solved = np.array(list(ledger.lagrangian), dtype=int)
        if len(solved) == 0:
            return
        total = np.array([ledger.lagrangian[p] for p in solved.tolist()])
        weights = np.array([ledger.weights[p] for p in solved.tolist()])
        taken = np.array([programme.allowed.get(name, 0.0) for name in rows])[None]
        if shift is not None:
            taken = taken + shift[solved][:, [programme.oracle.names.index(name) for name in rows]]
        bound = total[:, 0] + np.minimum(total[:, 1:], 0.0).sum(axis=1)
        # the goal's shift and those of further rows are undone: the line is of the plan, not of a level
        own = [i for i, name in enumerate(rows) if i == 0 or name in self.others]
        bound += (weights[:, own] * np.broadcast_to(taken, weights.shape)[:, own]).sum(axis=1)
        whole = np.abs(weights[:, 0] - 1.0) < 1e-9  # multipliers that never settled bound nothing
        lean = np.zeros((len(solved), len(self.others)))
        for i, name in enumerate(self.others):
            lean[:, i] = weights[:, rows.index(name)] if name in rows else 0.0
        self.plan.append((solved if plan is None else plan[solved])[whole])
        self.constant.append(bound[whole])
        self.weights.append(lean[whole])

    def raise_(self, floor: Float[np.ndarray, " plans"], level: Float[np.ndarray, " others"]) -> None:
        """Raise bounds of all plans at a level."""
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


class Between:
    """Solves further levels after a sweep.

    Args:
        sweep: that was run.
        others: rows that have levels.
    """

    def __init__(self, sweep: Sweep, others: tuple[str, ...]):
        self.sweep, self.others, self.oracle = sweep, others, sweep.oracle
        self.gap = sweep.effort.gap
        self.columns = [self.oracle.names.index(name) for name in others]
        self.lines, self.steps, self.points, self.seen = Lines(others), [], [], 0
        self.learn()

    def learn(self) -> None:
        """Take over what was proven since."""
        new = [step for step in self.sweep.steps[self.seen :] if step.goal == GOAL]
        self.steps, self.seen = [*self.steps, *new], len(self.sweep.steps)
        for step in new:
            self.lines.learn(step.ledger)

    def _programme(self, oracle: AbstractOracle, plan: np.ndarray, shift: np.ndarray) -> Programme:
        return Programme(Levelled(oracle, plan, shift), GOAL, (*self.sweep.limits, *self.others))

    def _allowed(self, level: np.ndarray) -> dict[str, float]:
        return dict(zip(self.others, level.tolist(), strict=True))

    def _recall(self, ledger: Ledger, pairs: np.ndarray) -> None:
        """Give pairs the tangents that are remembered of their plans."""
        asked = ledger.programme.oracle
        assert isinstance(asked, Levelled)
        for slot in range(self.oracle.depth):
            known = pairs[self.oracle.asked[asked.plan[pairs]] > slot]
            if len(known):
                memory = self._programme(Memory(self.oracle, slot), asked.plan, asked.shift)
                ledger.keep(known, *memory.tangents(known, np.zeros((len(known), ledger.width)), 1.0))

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
            feasible = step.ledger.feasible
            best = sorted(feasible, key=lambda p: feasible[p][0])[:RIVALS]
            tried = {p: feasible[p][1] for p in best} | tried
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
        soft = exact[:, 0] + KIN_PENALTY * np.maximum(exact[:, 1:], 0.0).sum(axis=1)
        return dict.fromkeys(plan[np.argsort(soft, kind="stable")[:RIVALS]].tolist(), point.u)

    def _solve(self, points: list[Point], tried: list[dict[int, np.ndarray]]) -> None:
        """Solve these plans at these levels."""
        pairs = [(i, p) for i, plans in enumerate(tried) for p in plans]
        if not pairs:
            return
        at, plan = np.array(pairs).T
        shift = np.zeros((len(plan), len(self.oracle.names)))
        shift[:, self.columns] = np.array([point.level for point in points])[at]
        ledger = Apart(self._programme(self.oracle, plan, shift), FINE * self.gap, at, np.inf)
        every, start = np.arange(len(plan)), np.array([u for plans in tried for u in plans.values()])
        ledger.best = np.array([point.value for point in points])
        ledger.keep(every, *ledger.evaluate(every, start, REFERENCE_SHARPNESS))
        self._recall(ledger, every)
        self._refine(ledger, ROUNDS)
        for pair, (value, u) in ledger.feasible.items():
            points[at[pair]].take(value, int(plan[pair]), u)
        self.lines.learn(ledger, plan, shift)

    def floor(self, level: np.ndarray) -> np.ndarray:
        """Bound of every plan at a level, from what was proven elsewhere."""
        floor, allowed = np.full(self.oracle.count, -np.inf), self._allowed(level)
        for step in self.steps:
            if step.looser(GOAL, allowed):
                np.maximum(floor, step.ledger.lower, out=floor)
        self.lines.raise_(floor, level)
        return floor

    def prove(self, points: list[Point]) -> list[Point]:
        """Bound all plans at these levels; those not excluded yet are closed. Returns levels with too many of them."""
        group: list[tuple[Point, np.ndarray, np.ndarray]] = []
        hard, waiting = [], 0
        for point in points:
            floor = self.floor(point.level)
            left = np.flatnonzero(floor < point.value - self.gap)
            if len(left) > MOST_OPEN:
                hard.append(point)
                continue
            point.lower = max(point.lower, float(np.delete(floor, left).min(initial=np.inf)))
            group.append((point, left, floor[left]))
            waiting += len(left)
            if waiting > MOST_PAIRS:
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
        ledger = Apart(self._programme(self.oracle, plan, shift), self.gap, at, 0.0)
        ledger.lower = np.concatenate([floor for _, _, floor in group]) - value[at]
        self._bound(ledger, np.array([point.u for point, _, _ in group])[at])
        self._refine(ledger, MOST_TRIES)
        for pair, (gained, u) in ledger.feasible.items():
            group[at[pair]][0].take(value[at[pair]] + gained, int(plan[pair]), u)
        least = np.full(len(group), np.inf)
        np.minimum.at(least, at, ledger.lower)
        for (point, _, _), before, lower in zip(group, value, least, strict=True):
            point.lower = min(point.lower, float(before + lower))
        self.lines.learn(ledger, plan, shift)

    def _refine(self, ledger: Apart, most: int) -> None:
        """Rounds over what is open."""
        while self.sweep.left > 0:
            left = ledger.open()
            left = left[ledger.tried[left] < most][: 4 * self.sweep.effort.batch]
            if len(left) == 0:
                return
            ledger.refine(left)

    def _bound(self, ledger: Ledger, u: np.ndarray) -> None:
        """Bounds of pairs from remembered tangents, then from one where the level's best design lies."""
        asked = ledger.programme.oracle
        assert isinstance(asked, Levelled)
        weights = self._weights()
        for slot in range(self.oracle.depth):
            left = ledger.open()
            left = left[self.oracle.asked[asked.plan[left]] > slot]
            memory = self._programme(Memory(self.oracle, slot), asked.plan, asked.shift)
            if len(left):
                ledger.bound_by(left, memory.tangents(left, u[left], 1.0)[1], weights)
        left = ledger.open()
        exact, affine = ledger.evaluate(left, u[left], REFERENCE_SHARPNESS) if len(left) else (None, None)
        if exact is None or affine is None:
            return
        ledger.bound_by(left, affine, weights)
        still = ledger.lower[left] < ledger.cut
        ledger.keep(left[still], exact[still], affine[still])
        self._recall(ledger, left[still])

    def _weights(self) -> np.ndarray:
        """Multipliers of a typical best design."""
        rows = (GOAL, *self.sweep.limits, *self.others)
        known = [s.ledger.weights[s.ledger.plan] for s in self.steps
                 if s.ledger.programme.rows == rows and s.ledger.plan in s.ledger.weights]  # fmt: skip
        return np.median(known, axis=0) if known else np.ones(len(rows))
