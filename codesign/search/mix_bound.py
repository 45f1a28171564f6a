"""How far the best tuple of a mix may be from the optimum: bounds over all tuples of plans and the box of hardware.

    lean     duals of the relaxed programme (`mix_master`) price hardware for every workload: w f + m . u, the m of all
             workloads adding to zero. The sum of each workload's least leaned goal, over all its plans, is a bound.
    drop     a plan whose leaned goal lies above the least one by more than what is missing to the best tuple is in no
             better tuple
    choose   the programme over whole shares of the plans left bounds their tuples; its solution is a tuple to try, and
             the place of new tangents

Every bound is the least over what it leaves out and what it covers, so the search may stop at any moment.
"""

import time
from collections.abc import Callable

import numpy as np

from .interior import ELASTIC
from .ledger import REFERENCE_SHARPNESS, Ledger, Programme
from .mix_goal import Blend
from .mix_joint import Alternating, Member, Seen, solve_tuples
from .mix_master import Lean, Master, Solution

CHUNK, BATCH = 16384, 512
POOL, MOST_WHOLE = 40, 600  # plans of a workload in a relaxed programme, plans in all in a whole one
WITHIN = 1e-6  # log by which a mixed-integer bound is lowered for the solver's tolerances


class Leaning(Programme):
    """A workload's programme with the goal `weight * goal + slope . u`; what is evaluated is kept by the workload."""

    def __init__(self, member: Member, weight: float, slope: np.ndarray):
        self.member, self.weight, self.slope = member, weight, slope
        self.oracle, self.rows = member.programme.oracle, member.programme.rows

    def lean(self, exact: np.ndarray, affine: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows with the goal leaned; [..., rows] and [..., rows, coefficients] at u."""
        exact, affine = exact.copy(), affine.copy()
        finite = np.isfinite(exact[..., 0])
        exact[..., 0] = np.where(finite, self.weight * np.where(finite, exact[..., 0], 0.0) + u @ self.slope, np.inf)
        affine[..., 0, :] *= self.weight
        affine[..., 0, 1:] += self.slope
        return exact, affine

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate, keep, lean."""
        return self.lean(*self.member.tangents(plan, u, sharpness), u)


class Side:
    """One workload's plans: those that may still be in a better tuple, each with a tangent at a common place."""

    def __init__(self, member: Member, base: np.ndarray):
        self.member, self.base = member, base
        self.plans = np.arange(member.count)
        parts = []
        for first in range(0, member.count, CHUNK):
            plans = self.plans[first : first + CHUNK]
            u = np.broadcast_to(base, (len(plans), len(base)))
            parts.append(member.tangents(plans, u, REFERENCE_SHARPNESS, keep=False))
        self.exact = np.concatenate([exact for exact, _ in parts])
        self.affine = np.concatenate([affine for _, affine in parts])
        self.multipliers = np.zeros(len(member.programme.rows))
        self.lower = np.full(member.count, -np.inf)  # of the leaned goal, at the last pricing, along `plans`
        self.least = -np.inf
        self.floor = np.full(member.count, -np.inf)  # of the blended goal of every tuple with a plan, along `plans`

    def price(self, weight: float, slope: np.ndarray, margin: float, tolerance: float, rounds: int, late) -> None:
        """Bound the leaned goal of every plan left: closely for the least, to `margin` above it for the others."""
        programme = Leaning(self.member, weight, slope)
        ledger = Ledger(programme, -margin)
        ledger.lower[:] = np.inf
        ledger.lower[self.plans] = -np.inf
        self._recall(ledger, programme)
        exact, affine = programme.lean(
            self.exact, self.affine, np.broadcast_to(self.base, (len(self.plans), len(slope)))
        )
        for first in range(0, len(self.plans), CHUNK):
            part = slice(first, first + CHUNK)
            ledger.bound_by(self.plans[part], affine[part], self.multipliers)
        left = np.flatnonzero(ledger.lower[self.plans] < ledger.cut)
        ledger.keep(self.plans[left], exact[left], affine[left])
        for _ in range(rounds):
            asked = self._unsettled(ledger, tolerance)
            if len(asked) == 0 or late():
                break
            ledger.refine(asked)
        best = ledger.open()[:1]
        if len(best) and int(best[0]) in ledger.weights:
            self.multipliers = ledger.weights[int(best[0])]
        self.lower, self.least = ledger.lower[self.plans], float(ledger.lower.min())

    def _recall(self, ledger: Ledger, programme: Leaning) -> None:
        """What was seen of the plans left: tangents, and the least leaned goal."""
        left = set(self.plans.tolist())
        for plan, known in self.member.seen.items():
            if plan not in left:
                continue
            for seen in known:
                exact, affine = programme.lean(seen.exact, seen.affine, seen.u)
                ledger.own.setdefault(plan, []).append(affine)
                excess = max(float(exact[1:].max(initial=0.0)), 0.0)
                soft = float(exact[0]) + ELASTIC * excess
                ledger.soft[plan] = min(ledger.soft.get(plan, np.inf), soft)
                if seen.holds and exact[0] < ledger.upper:
                    ledger.upper, ledger.plan, ledger.u = float(exact[0]), plan, seen.u

    def _unsettled(self, ledger: Ledger, tolerance: float) -> np.ndarray:
        """Plans to refine: those that may be the least, then those within the margin that were never solved."""
        left = ledger.open()
        tries = np.array([ledger.tries.get(p, 0) for p in left.tolist()])
        gap = np.array([ledger.soft[p] for p in left.tolist()]) - ledger.lower[left]
        least = (ledger.lower[left] < ledger.upper - tolerance) & (tries < 30)
        rough = (gap > 4 * tolerance) & (tries < 3)
        return np.concatenate([left[least], left[rough & ~least]])[:BATCH]

    def drop(self, bound: float, enough: float) -> None:
        """With `bound` on all tuples: raise the floors of single plans, leave out those that reach `enough`."""
        self.floor = np.maximum(self.floor, bound + np.maximum(self.lower - self.least, 0.0))
        keep = self.floor < enough
        self.plans, self.lower, self.floor = self.plans[keep], self.lower[keep], self.floor[keep]
        self.exact, self.affine = self.exact[keep], self.affine[keep]

    def ensure(self, plans: np.ndarray) -> None:
        """At least the common tangent of these plans stands among those seen."""
        place = {int(p): i for i, p in enumerate(self.plans)}
        for p in plans.tolist():
            if p not in self.member.seen and p in place:
                i = place[p]
                self.member.seen[p] = [Seen(self.base, self.exact[i], self.affine[i])]


class Proof:
    """Lower bound of a mix beside its best tuple; `lower` and `search.upper` hold at any moment."""

    def __init__(
        self, members: list[Member], blend: Blend, search: Alternating, gap: float, until: float,
        note: Callable[[str], None],
    ):  # fmt: skip
        self.members, self.blend, self.search, self.gap, self.until, self.note = (
            members,
            blend,
            search,
            gap,
            until,
            note,
        )
        self.lower = -np.inf
        self.sides = [Side(member, search.u.copy()) for member in members]
        goals = np.array([s.exact[np.searchsorted(s.plans, search.plans[k]), 0] for k, s in enumerate(self.sides)])
        self.points = [goals, *(goals + 3.0 * row for row in np.eye(len(members)))]
        self.rounds = 0

    def late(self) -> bool:
        """Whether time is up."""
        return time.perf_counter() > self.until

    @property
    def done(self) -> bool:
        """The gap is closed."""
        return self.lower >= self.search.upper - self.gap

    @property
    def left(self) -> list[int]:
        """Plans of each workload that may be in a better tuple."""
        return [len(side.plans) for side in self.sides]

    def run(self) -> None:
        """Lean, drop, choose."""
        self.lean()
        if not self.done and not self.late():
            self.choose()

    def _raise(self, bound: float) -> None:
        self.lower = max(self.lower, min(bound, self.search.upper))

    def _master(self, plans: list[np.ndarray]) -> Master:
        for side, mine in zip(self.sides, plans, strict=True):
            side.ensure(mine)
        points = np.array(self.points[:1] if self.blend.how == "log_sum" else self.points)
        return Master(self.members, self.blend, plans, points, self.search.u)

    def lean(self, rounds: int = 24) -> None:
        """Raise the bound by the duals of the relaxed programme until it stands still."""
        pools = [self._first_pool(k) for k in range(len(self.members))]
        still, best = 0, -np.inf
        for _ in range(rounds):
            solution = self._master(pools).relaxed()
            if solution is None or solution.lean is None:
                return
            self._price(solution.lean, solution.value)
            self.points.append(solution.logs)
            if self.rounds % 4 == 1:
                self._try(solution, pools)
            self.note("lean")
            gained = self.lower - best
            best = self.lower
            still = 0 if gained > 0.02 * (self.search.upper - self.lower) else still + 1
            if self.done or self.late() or still >= 3:
                return
            pools = [self._pool(k, solution, pools) for k in range(len(self.members))]

    def _price(self, lean: Lean, guess: float) -> None:
        """Bound by these duals, and drop what cannot be in a better tuple."""
        self.rounds += 1
        missing = self.search.upper - self.gap - max(self.lower, min(guess, self.search.upper))
        margin = float(np.clip(1.2 * missing, self.gap, 2.0))
        tolerance = max(0.05 * missing / len(self.sides), 0.02 * self.gap)
        for k, side in enumerate(self.sides):
            side.price(lean.weights[k], lean.slopes[k], margin, tolerance, 12, self.late)
        bound = lean.constant + sum(side.least for side in self.sides)
        enough = self.search.upper - self.gap
        for side in self.sides:
            side.drop(bound, enough)
            self._raise(min(float(side.floor.min(initial=np.inf)), enough))

    def _first_pool(self, k: int) -> np.ndarray:
        side, known = self.sides[k], self.members[k].seen
        left = np.array([p for p in side.plans.tolist() if p in known], dtype=int)
        soft = np.array(
            [min(s.exact[0] + ELASTIC * max(s.exact[1:].max(initial=0.0), 0.0) for s in known[p]) for p in left]
        )
        pool = left[np.argsort(soft, kind="stable")[:POOL]]
        return np.union1d(pool, [self.search.plans[k]])

    def _pool(self, k: int, solution: Solution, pools: list[np.ndarray]) -> np.ndarray:
        side = self.sides[k]
        used = pools[k][solution.shares[k] > 1e-6]
        least = side.plans[np.argsort(side.lower, kind="stable")[:POOL]]
        return np.intersect1d(np.concatenate([least, used]), side.plans)

    def _try(self, solution: Solution, pools: list[np.ndarray]) -> None:
        """The tuple with the largest shares of a solution, and exchanges from there where it is the best so far."""
        tuples = np.array([[int(p[np.argmax(s)]) for p, s in zip(pools, solution.shares, strict=True)]])
        ledger = solve_tuples(self.members, self.blend, tuples, solution.u.mean(axis=0)[None], self.search.gap, np.inf)
        if ledger.upper < self.search.upper:
            self.search.upper, self.search.plans, self.search.u = ledger.upper, tuples[0], ledger.u.copy()
            self.search.run(4)

    def choose(self, rounds: int = 60) -> None:
        """Bound the tuples of the plans left by the programme over whole shares; try what it chooses."""
        outside, inside = self._split()
        for _ in range(rounds):
            if self.done or self.late() or any(len(p) == 0 for p in inside):
                break
            master = self._master(inside)
            seconds = max(self.until - time.perf_counter(), 1.0)
            solution = master.whole(seconds, 0.1 * self.gap, self.search.upper)
            if solution is None:
                break
            self._raise(min(solution.bound - WITHIN, outside))
            self.note("choose")
            if not solution.shares or self.done:
                break
            u = solution.u.mean(axis=0)
            for member, mine in zip(self.members, inside, strict=True):
                member.tangents(mine, np.broadcast_to(u, (len(mine), len(u))), REFERENCE_SHARPNESS)
            self._try(solution, inside)
            self.points.append(solution.logs)
            if self.lower >= outside - WITHIN:
                break

    def _split(self) -> tuple[float, list[np.ndarray]]:
        """(bound of tuples with a plan outside, the plans inside): the least floors where there are too many."""
        floors = np.sort(np.concatenate([side.floor for side in self.sides]))
        if len(floors) <= MOST_WHOLE:
            return np.inf, [side.plans for side in self.sides]
        limit = float(floors[MOST_WHOLE])
        return limit, [side.plans[side.floor < limit] for side in self.sides]
