"""What a certified search knows: bounds and tangents of plans and groups of plans, the best design."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...objective import feasible_logs
from . import interior_point as interior
from .evidence import AbstractListener
from .lagrangian_bound import dual_ascent, dual_ascent_of_two, dual_value, least_of_rows
from .oracle import GOAL, AbstractOracle

MOST_TANGENTS = 48  # of a plan; beyond, those that its last programme did not lean on are dropped
INSIDE = 1e-5  # log by which a point keeps every constraint that others are pulled towards
LENGTHS = (3, 8, 20)  # tangents of plans that are solved in one batch
FORGIVEN = 1e-6  # log by which a plan must break its constraints everywhere before it is called infeasible
DEAR_ENOUGH, LEAST_PRICE = 8.0, 0.2  # price of a unit of violation in estimates: where no multiplier is known, and more
DEAREST = 1e6  # price of a unit of violation that is not raised any more
GROUP_TRIES = 8  # rounds after which a group that is still open is split
SETTLED = 1e-9  # by which the weights of the goal may miss 1: multipliers that never settled bound nothing
REFERENCE_SHARPNESS = 50.0  # of tangents at a point shared by several plans


@dataclass
class Programme:
    """Minimise one row of the oracle under others: for every plan a convex programme over the cube.

    Args:
        goal: name of the row to minimise.
        constraints: rows that must be at most `allowed` (0 where not named); all others if None.
        allowed: row -> log of what it may exceed its bound by.
    """

    oracle: AbstractOracle
    goal: str = GOAL
    constraints: tuple[str, ...] | None = None
    allowed: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Order the rows: goal first."""
        if self.constraints is None:
            self.constraints = tuple(n for n in self.oracle.names if n not in (GOAL, self.goal))
        self.rows = (self.goal, *self.constraints)
        self._index = np.array([self.oracle.names.index(name) for name in self.rows])
        self._shift = np.array([0.0, *(self.allowed.get(name, 0.0) for name in self.constraints)])

    def tangents(
        self, plan: Int[np.ndarray, " k"], u: Float[np.ndarray, "k n"], sharpness: np.ndarray | float
    ) -> tuple[np.ndarray, np.ndarray]:
        """(exact rows, affine rows) of this programme, goal first, constraints relative to what is allowed."""
        found = self.oracle.tangents(plan, u, sharpness)
        affine = found.affine[:, self._index].copy()
        affine[..., 0] -= self._shift
        return self._own(found.exact, found.broken), affine

    def values(self, plan: Int[np.ndarray, " k"], u: Float[np.ndarray, "k n"]) -> np.ndarray:
        """The exact rows of `tangents` alone."""
        return self._own(*self.oracle.values(plan, u))

    def _own(self, exact: np.ndarray, broken: np.ndarray) -> np.ndarray:
        return np.where((broken > 0)[:, None], np.inf, exact[:, self._index] - self._shift)


class Ending(NamedTuple):
    """How plans were closed: `bound` is the least, over the cube, of their tangents with `weights` [plans, rows].

    Without the goal among them it is positive, and the constraints cannot hold together.
    """

    plan: Int[np.ndarray, " plans"]
    bound: Float[np.ndarray, " plans"]
    weights: Float[np.ndarray, "plans rows"]


class Ledger:
    """Bounds, tangents and designs of one programme; every method leaves the bounds valid.

    Values are logs of the goal. `own` holds the tangents of plans that were neither closed nor left out, `soft` the
    least goal plus penalties that a plan has shown, `estimate` its goal when last seen, with what it breaks at the
    price of its multipliers, `weights` its multipliers when it was last solved. `recorder`, if given, is told what
    each bound rests on.
    """

    def __init__(self, programme: Programme, gap: float, recorder: AbstractListener | None = None):
        self.programme, self.gap, self.recorder = programme, gap, recorder
        self.width = len(programme.oracle.variables)
        self.lower, self.tried = np.zeros(0), np.zeros(0, dtype=np.int32)  # tried: 0 where never solved
        self.frontier = np.zeros(0, dtype=bool)  # numbers that together stand for all plans
        self.grow()
        self.frontier[programme.oracle.roots] = True
        self.upper, self.plan, self.u = np.inf, -1, np.full(self.width, 0.5)
        self.own: dict[int, list[np.ndarray]] = {}
        self.own_at: dict[int, list[int]] = {}  # where a recorder listens: the numbers of their points
        self.soft: dict[int, float] = {}
        self.estimate: dict[int, float] = {}
        self.feasible: dict[int, tuple[float, np.ndarray]] = {}
        self.weights: dict[int, np.ndarray] = {}
        self.solution: dict[int, np.ndarray] = {}
        self.lagrangian: dict[int, np.ndarray] = {}  # weighted tangents: below the plan's goal wherever limits hold
        self.inside: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # plan -> a point that keeps all, and its rows
        self.price: dict[int, float] = {}  # plan -> price of its violation, once the first was too low
        self.tries: dict[int, int] = {}
        self.endings: list[Ending] | None = None  # where a front is sought: how plans were closed without a programme
        self.history: list[tuple[float, float, float]] = []
        self.solved = 0
        self.began = time.perf_counter()
        self.evaluated_before = programme.oracle.evaluated

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.began

    @property
    def bound(self) -> float:
        """Lower bound on the goal of every design."""
        return min(float(np.min(self.lower, where=self.frontier, initial=np.inf)), self.upper)

    @property
    def cut(self) -> float:
        """Plans whose bound reaches this need no more work."""
        return self.upper - self.gap

    def open(self) -> np.ndarray:
        """Plans that may still win, least bound first."""
        left = np.flatnonzero(self.frontier & (self.lower < self.cut))
        return left[np.argsort(self.lower[left], kind="stable")]

    def grow(self) -> None:
        """Make room for the numbers that the oracle has given out since."""
        new = self.programme.oracle.count - len(self.lower)
        if new > 0:
            self.lower = np.concatenate([self.lower, np.full(new, -np.inf)])
            self.tried = np.concatenate([self.tried, np.zeros(new, dtype=np.int32)])
            self.frontier = np.concatenate([self.frontier, np.zeros(new, dtype=bool)])
            if self.recorder is not None:
                self.recorder.grow(len(self.lower))

    def split(self, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Put the parts of these groups in their place, bounded as these were: (parts, the group of each)."""
        parts, place = self.programme.oracle.split(group)
        parent = group[place]
        self.grow()
        self.frontier[group], self.frontier[parts] = False, True
        if self.recorder is not None:
            higher = self.lower[parent] > self.lower[parts]
            self.recorder.inherit(parts[higher], parent[higher])
        self.lower[parts] = np.maximum(self.lower[parts], self.lower[parent])
        return parts, parent

    def pass_down(self) -> None:
        """Raise the bounds of all parts to those of their groups."""
        self.lower = passed_down(self.lower, self.programme.oracle.parents)

    def advance(self, some: np.ndarray) -> np.ndarray:
        """One round: split groups that were refined often enough or are not worth it, refine the rest.

        Returns parts that nothing is known of, since their groups were never solved: to be bounded by the caller.
        """
        group = ~self.programme.oracle.single(some)
        soft = np.array([self.soft.get(p, np.inf) for p in some.tolist()])
        ripe = group & ((self.tried[some] >= GROUP_TRIES) | (soft < self.cut))
        self.refine(some[~ripe])
        if not ripe.any():
            return some[:0]
        parts, parent = self.split(some[ripe])
        new = np.flatnonzero([p not in self.own for p in parts.tolist()])
        return self.inherit(parts[new], parent[new])

    def inherit(self, plan: np.ndarray, parent: np.ndarray) -> np.ndarray:
        """Bound parts of groups by a tangent where their group has its optimum; returns those whose group has none."""
        solved = np.array([p in self.solution for p in parent.tolist()], dtype=bool)
        unknown, plan, parent = plan[~solved], plan[solved], parent[solved]
        if len(plan):
            u = np.array([self.solution[p] for p in parent.tolist()])
            exact, affine = self.evaluate(plan, u, REFERENCE_SHARPNESS)
            multipliers = np.array([self.weights[p] for p in parent.tolist()])
            at = self.place(u, REFERENCE_SHARPNESS)
            self.bound_by(plan, affine, multipliers, at)
            self.keep(plan, exact, affine, multipliers, at)
        return unknown

    def place(self, u: Float[np.ndarray, "k n"], sharpness: np.ndarray | float) -> Int[np.ndarray, " k"]:
        """Numbers of points; of no meaning where no recorder listens."""
        return np.zeros(len(u), dtype=np.int64) if self.recorder is None else self.recorder.place(u, sharpness)

    def raise_(
        self,
        plan: np.ndarray,
        bound: np.ndarray,
        at: np.ndarray | None,
        weights: Float[np.ndarray, "plans cuts rows"],
        value: np.ndarray | None = None,
    ) -> None:
        """Raise bounds to those that the tangents at these points [plans, cuts] give with these weights.

        `value` is the least of the weighted tangents where a bound is infinite: constraints that cannot hold together.
        """
        if self.recorder is not None and at is not None:
            self.recorder.note(plan, at, weights, bound if value is None else value, bound > self.lower[plan])
        self.lower[plan] = np.maximum(self.lower[plan], bound)

    def evaluate(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Exact and affine rows; designs that keep every constraint are taken note of."""
        exact, affine = self.programme.tangents(plan, u, sharpness)
        self._notice(plan, u, exact)
        return exact, affine

    def look(self, plan: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Exact rows alone, designs taken note of."""
        exact = self.programme.values(plan, u)
        self._notice(plan, u, exact)
        return exact

    def _notice(self, plan: np.ndarray, u: np.ndarray, exact: np.ndarray) -> None:
        single = self.programme.oracle.single(plan)
        holds = single & np.isfinite(exact).all(axis=1) & feasible_logs(exact[:, 1:].max(axis=1, initial=-np.inf))
        values = np.where(holds, exact[:, 0], np.inf)
        for i in np.flatnonzero(values < self.upper + 0.1):
            if values[i] < self.feasible.get(int(plan[i]), (np.inf,))[0]:
                self.feasible[int(plan[i])] = (float(values[i]), u[i].copy())
        best = int(np.argmin(values))
        if values[best] < self.upper:
            self.upper, self.plan, self.u = float(values[best]), int(plan[best]), u[best].copy()

    def keep(
        self,
        plan: np.ndarray,
        exact: np.ndarray,
        affine: np.ndarray,
        prices: np.ndarray | float = DEAR_ENOUGH,
        at: np.ndarray | None = None,
    ) -> None:
        """Remember tangents, for the programmes of their plans; `prices` of violations [plans, rows] for estimates.

        `at` numbers the points they were taken at.
        """
        over = np.maximum(exact[:, 1:], 0.0)
        known = np.isfinite(exact).all(axis=1)
        soft = np.where(known, exact[:, 0] + interior.ELASTIC * over.max(axis=1, initial=0.0), np.inf).tolist()
        prices = np.broadcast_to(prices, exact.shape)[:, 1:] + LEAST_PRICE
        looks = np.where(known, exact[:, 0] + (prices * over).sum(axis=1), np.inf).tolist()
        latest: dict[int, float] = {}
        for i, p in enumerate(plan.tolist()):
            self.own.setdefault(p, []).append(affine[i])
            self.soft[p] = min(self.soft.get(p, np.inf), soft[i])
            latest[p] = min(latest.get(p, np.inf), looks[i])
        self.estimate |= latest
        if at is not None and self.recorder is not None:
            for p, point in zip(plan.tolist(), at.tolist(), strict=True):
                self.own_at.setdefault(p, []).append(point)

    def bound_by(
        self, plan: np.ndarray, affine: np.ndarray, multipliers: np.ndarray, at: np.ndarray | None = None
    ) -> None:
        """Raise the bounds of plans by one tangent each, starting from given multipliers [rows] or [plans, rows]."""
        weights = np.broadcast_to(multipliers, affine.shape[:2]).copy()
        weights[:, 0] = 1.0
        least = least_of_rows(affine)
        bound = np.where(least.max(axis=1) > 0, np.inf, dual_value(affine, weights))
        left = np.flatnonzero(bound < self.cut)
        if len(left) and affine.shape[1] > 1:
            raised, better = dual_ascent(affine[left], weights[left])
            left, raised, better = (part[raised > bound[left]] for part in (left, raised, better))
            bound[left], weights[left] = raised, better
        broken = np.flatnonzero(least.max(axis=1) > 0)
        weights[broken] = 0.0
        weights[broken, least[broken].argmax(axis=1)] = 1.0
        value = bound.copy()
        value[broken] = least[broken].max(axis=1)
        self.raise_(plan, bound, None if at is None else at[:, None], weights[:, None], value)
        if self.endings is not None:
            bound = value
            closed = self.lower[plan] >= self.cut
            self.endings.append(Ending(plan[closed], bound[closed], weights[closed]))

    def bound_by_two(
        self,
        plan: np.ndarray,
        first: np.ndarray,
        second: np.ndarray,
        multipliers: np.ndarray,
        at: np.ndarray | None = None,
    ) -> None:
        """Raise the bounds of plans by two tangents of every row together; the multipliers are those of the second.

        `at` [plans, 2] numbers their points.
        """
        bound, weights = dual_ascent_of_two(first, second, multipliers)
        self.raise_(plan, bound, at, weights)
        if self.endings is not None:
            closed = bound >= self.cut
            self.endings.append(Ending(plan[closed], bound[closed], weights[closed].sum(axis=1)))

    def refine(self, plan: np.ndarray, enough: float | None = None) -> None:
        """One round for these plans: solve their programmes, evaluate where those say, learn.

        Work on a plan stops where its bound reaches `enough`, by default the incumbent less the gap.
        """
        for group in self._alike(plan) if len(plan) else []:
            self._refine(group, self.cut if enough is None else enough)

    def _alike(self, plan: np.ndarray) -> list[np.ndarray]:
        """Groups of plans with about as many tangents: the longest programme of a batch sets the length of all."""
        count = np.array([len(self.own[p]) for p in plan.tolist()])
        order = np.argsort(count, kind="stable")
        size = np.searchsorted(LENGTHS, count[order])
        return np.split(plan[order], np.flatnonzero(np.diff(size)) + 1)

    def _refine(self, plan: np.ndarray, enough: float) -> None:
        affine = self.gathered(plan)
        known = np.array([self.soft[p] for p in plan.tolist()])
        gap = np.clip(np.where(np.isfinite(known), known, 1.0) - np.maximum(self.lower[plan], -10.0), 1e-6, 4.0)
        price = np.array([self.price.get(p, interior.ELASTIC) for p in plan.tolist()])
        tolerance = np.clip(0.03 * gap, max(1e-8, 0.03 * self.gap), 0.02)
        solved = interior.solve(affine, 0.3 * gap, tolerance, enough, price)
        settled = np.abs(solved.weights[:, :, 0].sum(axis=1) - 1.0) < SETTLED
        at = self._gathered_at(plan, affine.shape[1])
        self.raise_(plan, np.where(settled, solved.lower, -np.inf), at, solved.weights)
        self._rule_out(plan, affine, at, solved, enough)
        lagrangian = np.einsum("ltr,ltrv->lv", solved.weights, affine)
        leant_on = solved.weights[:, :, 1:].sum(axis=(1, 2))
        for lane, p in enumerate(plan.tolist()):
            self.weights[p], self.solution[p] = solved.weights[lane].sum(axis=0), solved.edge[lane]
            self.lagrangian[p] = lagrangian[lane]
            self.tries[p] = self.tries.get(p, 0) + 1
            self.tried[p] += 1
            if leant_on[lane] > 0.9 * price[lane]:  # as dear as can be, and still a constraint gives way
                self.price[p] = min(4 * price[lane], DEAREST)
            if len(self.own[p]) > MOST_TANGENTS:
                leant = np.argsort(-solved.weights[lane, : len(self.own[p])].sum(axis=1), kind="stable")
                left = np.sort(leant[: MOST_TANGENTS // 2]).tolist()
                self.own[p] = [self.own[p][i] for i in left]
                if self.recorder is not None:
                    self.own_at[p] = [self.own_at[p][i] for i in left]
        self.solved += len(plan)
        still = self.lower[plan] < enough
        if not still.any():
            return
        plan, gap = plan[still], gap[still]
        tries = np.array([self.tries[p] for p in plan.tolist()])
        least = 30.0 * 1.6 ** np.minimum(tries, 20)  # rows of great weight need sharper kinks than the gap tells
        sharpness = np.clip(3.0 / gap, least, 1e6)
        both = np.concatenate([plan, plan])
        points = np.concatenate([solved.central[still], solved.edge[still]])
        exact, learnt = self.evaluate(both, points, np.concatenate([sharpness, sharpness]))
        prices = np.array([self.weights[p] for p in both.tolist()])
        self.keep(both, exact, learnt, prices, self.place(points, np.concatenate([sharpness, sharpness])))
        self._repair(plan, points, exact, sharpness)

    def _repair(self, plan: np.ndarray, points: np.ndarray, exact: np.ndarray, sharpness: np.ndarray) -> None:
        """Pull edges that break a constraint back along the line to a point inside, as far as convexity asks."""
        count = len(plan)
        worst = exact[:, 1:].max(axis=1, initial=-np.inf)
        for lane in np.flatnonzero(worst[:count] < -INSIDE):
            self.inside[int(plan[lane])] = (points[lane], exact[lane])
        edge, found = points[count:], exact[count:]
        asked = np.flatnonzero(
            ~feasible_logs(worst[count:]) & (found[:, 0] < self.upper) & np.isfinite(found).all(axis=1)
        )
        asked = asked[[p in self.inside for p in plan[asked].tolist()]]
        if len(asked) == 0:
            return
        inside = [self.inside[p] for p in plan[asked].tolist()]
        u, rows = np.array([each[0] for each in inside]), np.array([each[1] for each in inside])
        over = np.maximum(found[asked, 1:], 0.0)
        share = (over / np.where(over > 0, over - np.minimum(rows[:, 1:], -1e-12), 1.0)).max(axis=1)[:, None]
        pulled = edge[asked] + share * (u - edge[asked])
        learnt = self.evaluate(plan[asked], pulled, sharpness[asked])
        self.keep(plan[asked], *learnt, at=self.place(pulled, sharpness[asked]))

    def _rule_out(
        self, plan: np.ndarray, affine: np.ndarray, at: np.ndarray | None, solved: interior.Solved, enough: float
    ) -> None:
        """Plans whose tangents cannot all hold anywhere (Farkas).

        First by the constraints' multipliers of their programmes; those that still break a constraint after some
        rounds by the programme of the least violation alone.
        """
        alone = affine.copy()
        alone[:, :, 0] = 0.0
        missing = self._amiss(plan, alone, at, solved.weights)
        violates = (solved.violation > FORGIVEN) & (self.lower[plan] < enough) & ~missing
        suspect = np.flatnonzero(violates & (self.tried[plan] >= 2) & (self.tried[plan] % 3 == 2))
        if len(suspect):
            found = interior.solve(alone[suspect], np.ones(len(suspect)), np.full(len(suspect), 1e-7))
            self._amiss(plan[suspect], alone[suspect], None if at is None else at[suspect], found.weights)

    def _amiss(self, plan: np.ndarray, alone: np.ndarray, at: np.ndarray | None, weights: np.ndarray) -> np.ndarray:
        """Rule out plans whose constraints, so weighted, are positive everywhere; says which these are."""
        of_rows = weights.sum(axis=1)
        of_rows[:, 0] = 0.0
        total = np.maximum(of_rows.sum(axis=1), 1e-12)
        least = interior.lower_bound(alone, weights) / total
        missing = least > FORGIVEN
        lanes = np.flatnonzero(missing)
        shares = weights[lanes] / total[lanes, None, None]
        shares[:, :, 0] = 0.0
        where = None if at is None else at[lanes]
        self.raise_(plan[lanes], np.full(len(lanes), np.inf), where, shares, least[lanes])
        if self.endings is not None:
            self.endings.append(Ending(plan[missing], least[missing], (of_rows / total[:, None])[missing]))
        return missing

    def gathered(self, plan: np.ndarray) -> np.ndarray:
        """Tangents of each plan side by side, padded by some that say nothing."""
        most = max(len(self.own[p]) for p in plan.tolist())
        affine = np.zeros((len(plan), most, len(self.programme.rows), self.width + 1))
        affine[..., 0] = interior.EMPTY
        for lane, p in enumerate(plan.tolist()):
            affine[lane, : len(self.own[p])] = self.own[p]
        return affine

    def _gathered_at(self, plan: np.ndarray, most: int) -> np.ndarray | None:
        """The points of these tangents; -1 where one pads."""
        if self.recorder is None:
            return None
        at = np.full((len(plan), most), -1)
        for lane, p in enumerate(plan.tolist()):
            at[lane, : len(self.own_at[p])] = self.own_at[p]
        return at


def passed_down(lower: Float[np.ndarray, " numbers"], parents: Int[np.ndarray, " numbers"]) -> np.ndarray:
    """Bounds of parts raised to those of their groups."""
    while True:
        raised = np.maximum(lower, lower[parents])
        if (raised == lower).all():
            return raised
        lower = raised
