"""Programmes over the same rows that differ in what is minimised and what is allowed: each helps the next.

Source: see docs/optimisation.md, section 6.
"""

import time
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..branch_and_bound.bounding import COLD, Bounding, Outcome, References, SearchEffort, WarmStart
from ..branch_and_bound.bounding_state import passed_down, settled
from ..branch_and_bound.branch_and_bound import BranchAndBound
from ..branch_and_bound.evidence import LinearisationPoints
from ..branch_and_bound.interior_point import EMPTY
from ..branch_and_bound.oracle import AbstractOracle, AbstractRelay, Programme, Tangents
from ..settings import FRONT
from .dual_pool import Pool

# Tangents that outlive the question they were asked for: the next programme over the same rows starts from them.
#
# Source: see docs/optimisation.md, section 6.


class RememberedTangents(NamedTuple):
    """Plans with one remembered tangent each, where it was taken, and the number of that point."""

    plan: np.ndarray
    u: np.ndarray
    at: np.ndarray


class RememberingOracle(AbstractRelay):
    """An oracle that keeps the last few tangents of every plan or group. They bound any goal under any limits.

    Args:
        inner: the oracle that is asked.
        depth: tangents of a plan; fewer where there are too many plans to keep so many. Of plans and groups that are
            listed later and find no room none is kept.

    `places` numbers all points.
    """

    def __init__(self, inner: AbstractOracle, depth: int = FRONT.deepest):
        super().__init__(inner)
        self.places = LinearisationPoints()
        rows, n = len(inner.names), len(inner.variables)
        most = FRONT.memory_bytes / (8.0 * (rows * (n + 2) + n))
        self.depth = int(np.clip(most / inner.count, 1, depth))
        self.most = int(most / self.depth)
        self.exact, self.affine = np.zeros((0, self.depth, rows)), np.zeros((0, self.depth, rows, n + 1))
        self.at, self._evaluations = np.zeros((0, self.depth, n)), np.zeros(0, dtype=int)
        self.number = np.zeros((0, self.depth), dtype=int)
        self._make_room()

    @property
    def evaluations(self) -> np.ndarray:
        """Number of times that a tangent of each plan was kept."""
        self._make_room()
        return self._evaluations

    def _make_room(self) -> None:
        lacking = self.inner.count - len(self._evaluations)
        if lacking <= 0:
            return
        room = lacking + (int((FRONT.room - 1) * self.inner.count) if len(self._evaluations) else 0)
        capacity = min(max(self.most, len(self.exact)), len(self._evaluations) + room) - len(self.exact)
        self._evaluations = np.concatenate([self._evaluations, np.zeros(room, dtype=int)])
        empty = np.zeros((capacity, *self.affine.shape[1:]))
        empty[..., 0] = EMPTY
        self.affine = np.concatenate([self.affine, empty])
        self.exact = np.concatenate([self.exact, np.full((capacity, *self.exact.shape[1:]), np.inf)])
        self.at = np.concatenate([self.at, np.zeros((capacity, *self.at.shape[1:]))])
        self.number = np.concatenate([self.number, np.full((capacity, self.depth), -1)])

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """Ask, and remember the answer in the place of the oldest of its plan."""
        result = self.inner.tangents(plan, u, sharpness)
        self.evaluated += len(plan)
        self._make_room()
        number = self.places.index_of(u, sharpness)
        retained = np.flatnonzero(plan < len(self.exact))
        plan = plan[retained]
        slot = (self._evaluations[plan] + _repeats(plan)) % self.depth
        np.add.at(self._evaluations, plan, 1)
        self.exact[plan, slot] = np.where((result.broken > 0)[:, None], np.inf, result.exact)[retained]
        self.affine[plan, slot], self.at[plan, slot] = result.affine[retained], u[retained]
        self.number[plan, slot] = number[retained]
        return result

    def recall(self, plan: np.ndarray, slot: int) -> RememberedTangents:
        """Points of the tangents in this slot, of the plans that have one there."""
        plan = plan[self.evaluations[plan] > slot]
        return RememberedTangents(plan, self.at[plan, slot], self.number[plan, slot])


class Memory(AbstractRelay):
    """Answers from what one slot of a `RememberingOracle` holds, wherever it is asked; evaluates nothing."""

    def __init__(self, source: RememberingOracle, slot: int):
        super().__init__(source)
        self.source, self.slot = source, slot

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """Recall the tangents of these plans."""
        exact, tangent = self.source.exact[plan, self.slot], self.source.affine[plan, self.slot]
        return Tangents(exact, tangent, np.zeros(len(plan)))


def _repeats(plan: np.ndarray) -> np.ndarray:
    """Number of earlier occurrences of each entry in the array."""
    order = np.argsort(plan, kind="stable")
    ordered = plan[order]
    first = np.searchsorted(ordered, ordered)
    result = np.empty(len(plan), dtype=int)
    result[order] = np.arange(len(plan)) - first
    return result


@dataclass
class SolvedProgramme:
    """A programme that was solved: what was minimised, what was allowed, how it ended."""

    goal: str
    allowed: dict[str, float]
    outcome: Outcome

    @property
    def bounding(self) -> Bounding:
        """Bounds, cuts and multipliers that the programme's solution left."""
        return self.outcome.bounding

    def carried(self, programme: Programme, lower: np.ndarray) -> None:
        """Raise bounds of another programme, in place, to what was proven here.

        What a plan's multipliers make of its tangents bounds it whatever is allowed: that only shifts the bound, by
        the multipliers. The rows of both must be the same.
        """
        mine = self.bounding.programme
        if mine.rows == programme.rows:
            plans, bound, weights = self.bounding.duals.bounds(programme.shift - mine.shift)
            if len(plans):
                is_settled = settled(weights[:, 0])
                lower[plans[is_settled]] = np.maximum(lower[plans[is_settled]], bound[is_settled])

    def raise_(self, lower: np.ndarray) -> None:
        """Raise bounds of plans and groups to those proven here, which must hold there too (`looser`)."""
        mine = self.bounding.lower
        np.maximum(lower[: len(mine)], mine, out=lower[: len(mine)])

    def looser(self, goal: str, allowed: dict[str, float]) -> bool:
        """True if whatever `allowed` admits was admitted here too, for the same goal: bounds then carry over."""
        inside = all(name in allowed and allowed[name] <= most for name, most in self.allowed.items())
        return self.goal == goal and inside

    def apart(self, goal: str, allowed: dict[str, float]) -> float:
        """Distance between two programmes: in their levels, their constraints and their goals."""
        common = [abs(self.allowed[name] - allowed[name]) for name in self.allowed if name in allowed]
        lacking = len(set(self.allowed) ^ set(allowed))
        return sum(common) + lacking + (10.0 if self.goal != goal else 0.0)


@dataclass
class ParametricSequence:
    """Solves programmes one after the other, with one oracle and one compilation.

    Args:
        oracle: remembers the tangents of every plan.
        limits: rows that must hold in every programme.
        effort: of one programme; its seconds are those of the whole sweep.
        seed: of the first programme's sample.
    """

    oracle: RememberingOracle
    limits: tuple[str, ...]
    effort: SearchEffort
    seed: int
    steps: list[SolvedProgramme] = field(default_factory=list[SolvedProgramme])
    began: float = field(default_factory=time.perf_counter)
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        """Create the pool that keeps all dual proofs."""
        metrics = tuple(name for name in self.oracle.names if name not in self.limits)
        self.pool = Pool(self.oracle.names, metrics, self.oracle.places)

    @property
    def left(self) -> float:
        """Seconds that remain."""
        return self.effort.seconds - (time.perf_counter() - self.began)

    def solve(self, goal: str, allowed: dict[str, float]) -> Outcome:
        """Minimise a row under the limits and under what further rows are allowed (logs)."""
        programme = Programme(self.oracle, goal, (*self.limits, *allowed), allowed)
        effort, listener = replace(self.effort, seconds=max(self.left, 0.1)), self.pool.listener(programme)
        warm = self._warm(programme, goal, allowed)
        search = BranchAndBound(programme, effort, self.seed, recorder=listener, warm=warm, pruned=True)
        outcome = search.run(lambda: self._follow(search, goal, allowed)) if self.steps else search.run()
        outcome.bounding.cuts.forget()  # the oracle remembers the latest cuts
        self.steps.append(SolvedProgramme(goal, allowed, outcome))
        return outcome

    def _warm(self, programme: Programme, goal: str, allowed: dict[str, float]) -> WarmStart:
        """Warm start from earlier programmes: what they proved, and what had to be split next door."""
        if not self.steps:
            return COLD
        lower = np.full(self.oracle.count, -np.inf)
        for step in self.steps:
            if step.looser(goal, allowed):
                step.raise_(lower)
            step.carried(programme, lower)
        neighbour = self._neighbour(goal, allowed)
        near = neighbour.apart(goal, allowed) <= FRONT.next_door
        leaf = neighbour.bounding.table.leaf if near else None
        return WarmStart(passed_down(lower, self.oracle.parents), leaf)

    def _neighbour(self, goal: str, allowed: dict[str, float]) -> SolvedProgramme:
        return min(self.steps, key=lambda step: step.apart(goal, allowed))

    def _follow(self, search: BranchAndBound, goal: str, allowed: dict[str, float]) -> None:
        """Begin with what earlier programmes found: their best plans, the tangents of all."""
        bounding, neighbour = search.bounding, self._neighbour(goal, allowed)
        nearest = neighbour.bounding
        first = _promising(nearest)
        self._recall(bounding, first)
        first = first[bounding.cuts.has_cuts(first)]
        for _ in range(FRONT.first_rounds):
            if len(first):
                bounding.refine(first)
            first = first[bounding.lower[first] < bounding.cut]
        if bounding.plan < 0 or len(bounding.duals.point) == 0 or neighbour.apart(goal, allowed) > FRONT.next_door:
            search.incumbent()  # its optima and multipliers are of this programme: bounds from afar are too weak
        else:
            search.base = bounding.u.copy()
            self._borrow(bounding, nearest)
            search.references = References(bounding, np.array(list(bounding.duals.point)), search.base)
        self._bound_again(search, nearest)

    def _borrow(self, bounding: Bounding, nearest: Bounding) -> None:
        """Optima and multipliers of plans of all kinds from next door, to bound others from."""
        if nearest.programme.rows != bounding.programme.rows:
            return
        solved = np.array([p for p in nearest.duals.point if p not in bounding.duals.point], dtype=int)
        some = np.random.default_rng(self.seed).permutation(solved)[: self.effort.references]
        bounding.duals.borrow(nearest.duals, some)

    def _bound_again(self, search: BranchAndBound, nearest: Bounding) -> None:
        """Bounds of all plans from remembered tangents; those that were solved next door keep theirs."""
        bounding = search.bounding
        open_nodes = bounding.open()
        weights = bounding.duals.weights.get(bounding.plan, np.ones(len(bounding.programme.rows)))
        for slot in range(self.oracle.depth):
            memory = self._memory(bounding, slot)
            for start in range(0, len(open_nodes), FRONT.chunk):
                plan, u, at = self.oracle.recall(open_nodes[start : start + FRONT.chunk], slot)
                if len(plan):
                    bounding.bound_by(plan, bounding.evaluate(plan, u, 1.0, memory)[1], weights, at)
            open_nodes = open_nodes[bounding.lower[open_nodes] < bounding.cut]
        again = open_nodes[[p in nearest.duals.weights and p not in bounding.cuts for p in open_nodes.tolist()]]
        self._recall(bounding, again)
        new = open_nodes[~bounding.cuts.has_cuts(open_nodes)]
        for start in range(0, len(new), FRONT.chunk):
            search.bound(new[start : start + FRONT.chunk])

    def _recall(self, bounding: Bounding, plan: np.ndarray) -> None:
        """Give plans the tangents that are remembered of them."""
        for slot in range(self.oracle.depth):
            seen, u, at = self.oracle.recall(plan, slot)
            if len(seen):
                bounding.cuts.keep(seen, *bounding.evaluate(seen, u, 1.0, self._memory(bounding, slot)), at=at)

    def _memory(self, bounding: Bounding, slot: int) -> Programme:
        """Copy of the programme that is answered from memory."""
        return replace(bounding.programme, oracle=Memory(self.oracle, slot))


def _promising(bounding: Bounding) -> np.ndarray:
    """Plans that a programme solved, those with the best designs first, then those with the least bounds."""
    best = bounding.incumbent.ranked(FRONT.start // 2)
    solved = np.array(list(bounding.duals.point), dtype=int)
    solved = solved[bounding.table.leaf[solved] | bounding.programme.oracle.single(solved)]  # others were split
    least = solved[np.argsort(bounding.lower[solved], kind="stable")][: FRONT.start // 2] if len(solved) else solved
    return np.union1d(np.array(best, dtype=int), least)
