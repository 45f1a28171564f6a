"""How far the best tuple of a mix may be from the optimum: bounds over all tuples of plans and the box of hardware.

    lean     duals of the relaxed programme (`mix_master`) price hardware for every workload: w f + m . u, the m of all
             workloads adding to zero. The sum of each workload's least leaned goal, over all its plans, is a bound
    drop     a plan whose leaned goal lies above the least one by more than what is missing to the best tuple is in no
             better tuple
    choose   the programme over whole shares of the plans left bounds their tuples; its solution is a tuple to try, and
             the place of new tangents

Every bound is the least over what it leaves out and what it covers, so the search may stop at any moment.
"""

import time
from collections.abc import Callable

import numpy as np

from .closing import Closing
from .effort import INTERRUPTED, Effort
from .interior import ELASTIC
from .ledger import REFERENCE_SHARPNESS, Ledger, Programme
from .mix_alternating import Alternating
from .mix_goal import Blend
from .mix_joint import Member, solve_tuples
from .mix_master import Lean, Master, Solution

POOL, MOST_WHOLE = 24, 600  # plans of a workload in a relaxed programme, plans in all in a whole one
BATCH = 512
COARSEST = 0.02  # log to which the least leaned goal of a workload is known at first
SETTLING = 100.0  # sharpness of tangents where the relaxed programme has its solution
WITHIN = 1e-6  # log by which a mixed-integer bound is lowered for the solver's tolerances


class Leaning(Programme):
    """A workload's programme with the goal `weight * goal + slope . u`."""

    def __init__(self, member: Member, weight: float, slope: np.ndarray):
        self.member, self.weight, self.slope = member, weight, slope
        self.oracle, self.rows = member.programme.oracle, member.programme.rows

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate and lean."""
        exact, affine = self.member.programme.tangents(plan, u, sharpness)
        legal = np.isfinite(exact[:, 0])
        exact[:, 0] = np.where(legal, self.weight * np.where(legal, exact[:, 0], 0.0) + u @ self.slope, np.inf)
        affine[:, 0] *= self.weight
        affine[:, 0, 1:] += self.slope
        return exact, affine


class Side:
    """One workload's plans: those that may still be in a better tuple, and bounds of their leaned goals."""

    def __init__(self, member: Member):
        self.member = member
        self.alive = np.ones(member.count, dtype=bool)
        self.floor = np.full(member.count, -np.inf)  # of the blended goal of every tuple with a plan
        self.least = -np.inf  # bound of the leaned goal
        self.ledger: Ledger | None = None

    @property
    def plans(self) -> np.ndarray:
        """Plans left."""
        return np.flatnonzero(self.alive)

    def price(self, weight: float, slope: np.ndarray, gap: float, seconds: float, seed: int) -> None:
        """The least leaned goal over the plans left, to `gap`."""
        closing = Closing(Leaning(self.member, weight, slope), Effort(gap=gap, seconds=seconds), seed)
        ledger = closing.ledger
        ledger.lower[~self.alive] = np.inf
        for plan, known in self.member.seen.items():
            for seen in known if self.alive[plan] else []:
                value = weight * float(seen.exact[0]) + float(slope @ seen.u) if seen.holds else np.inf
                if value < ledger.upper:
                    ledger.upper, ledger.plan, ledger.u = value, plan, seen.u
        outcome = closing.run()
        if outcome.stopped == INTERRUPTED:
            raise KeyboardInterrupt
        self.ledger, self.least = ledger, float(ledger.lower.min())

    def widen(self, margin: float, tolerance: float, late: Callable[[], bool], rounds: int = 24) -> None:
        """Bound plans up to `margin` above the least as well, so that floors can tell them apart."""
        ledger = self.ledger
        if ledger is None:
            return
        ledger.gap = -margin
        left = ledger.open()
        new = left[[p not in ledger.own for p in left.tolist()]]
        if len(new):
            at = np.broadcast_to(ledger.u, (len(new), ledger.width))
            exact, affine = ledger.evaluate(new, at, REFERENCE_SHARPNESS)
            ledger.bound_by(new, affine, next(iter(ledger.weights.values()), np.zeros(affine.shape[1])))
            ledger.keep(new, exact, affine)
        for _ in range(rounds):
            left = ledger.open()
            gap = np.array([ledger.soft[p] for p in left.tolist()]) - ledger.lower[left]
            tries = np.array([ledger.tries.get(p, 0) for p in left.tolist()])
            asked = left[(gap > tolerance) & (tries < np.where(gap > 4 * tolerance, 8, 4))][:BATCH]
            if len(asked) == 0 or late():
                return
            ledger.refine(asked)

    def drop(self, bound: float, enough: float) -> None:
        """With `bound` on all tuples: raise the floors of single plans, leave out those that reach `enough`."""
        if self.ledger is not None and np.isfinite(bound):
            self.floor = np.maximum(self.floor, bound + np.maximum(self.ledger.lower - self.least, 0.0))
        self.alive &= self.floor < enough

    def promising(self, count: int) -> np.ndarray:
        """Plans left with the best designs of the last pricing and with its least bounds."""
        ledger = self.ledger
        if ledger is None:
            return self.plans[:0]
        known = sorted(ledger.feasible, key=lambda p: ledger.feasible[p][0])[: count // 2]
        lowest = [p for p in ledger.open()[: 4 * count].tolist() if p in ledger.solution][: count // 2]
        both = np.unique(np.array([*known, *lowest], dtype=int))
        return both[self.alive[both]]

    def look(self, plans: np.ndarray, u: np.ndarray) -> None:
        """Tangents of plans, for the relaxed programme: at u, and where the last pricing has their optimum."""
        fresh = plans[[p not in self.member.seen for p in plans.tolist()]]
        if len(fresh):
            self.member.tangents(fresh, np.broadcast_to(u, (len(fresh), len(u))), REFERENCE_SHARPNESS)
        ledger = self.ledger
        solved = [p for p in plans.tolist() if ledger is not None and p in ledger.solution]
        if ledger is not None and solved:
            places = [ledger.feasible[p][1] if p in ledger.feasible else ledger.solution[p] for p in solved]
            self.member.tangents(np.array(solved), np.array(places), SETTLING)


class Proof:
    """Lower bound of a mix beside its best tuple; `lower` and `search.upper` hold at any moment."""

    def __init__(
        self, members: list[Member], blend: Blend, search: Alternating, gap: float, until: float, seed: int,
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
        self.seed, self.lower = seed, -np.inf
        self.sides = [Side(member) for member in members]
        goals = np.array([m.programme.tangents(search.plans[k : k + 1], search.u[None], 1e6)[0][0, 0]
                          for k, m in enumerate(members)])  # fmt: skip
        self.points = [goals, *(goals + 3.0 * row for row in np.eye(len(members)))]

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
        return [int(side.alive.sum()) for side in self.sides]

    def run(self) -> None:
        """Lean, drop, choose."""
        self.lean()
        if not self.done and not self.late():
            self.drop()
        if not self.done and not self.late():
            self.choose()

    def _raise(self, bound: float) -> None:
        self.lower = max(self.lower, min(bound, self.search.upper))

    def _master(self, plans: list[np.ndarray]) -> Master:
        points = np.array(self.points[:1] if self.blend.how == "log_sum" else self.points)
        return Master(self.members, self.blend, plans, points)

    def lean(self, rounds: int = 16) -> None:
        """Raise the bound by the duals of the relaxed programme until it stands still."""
        pools, best, still = [self._first_pool(k) for k in range(len(self.members))], -np.inf, 0
        for _ in range(rounds):
            solution = self._settled(pools)
            if solution is None or solution.lean is None or self.late():
                return
            self._try(solution, pools)
            bound = self._price(solution.lean)
            self.note("lean")
            missing = self.search.upper - self.lower
            still = 0 if bound > best + 0.1 * missing else still + 1
            best = max(best, bound)
            if self.done or self.late() or still >= 2:
                return
            pools = [self._pool(k, solution, pools) for k in range(len(self.members))]

    def _settled(self, pools: list[np.ndarray], rounds: int = 40) -> Solution | None:
        """The relaxed programme with tangents added where its solution lies, until it hardly changes."""
        solution, values = None, []
        for _ in range(rounds):
            solution = self._master(pools).relaxed()
            if solution is None or solution.lean is None or self.late():
                break
            self.points.append(solution.logs)
            off = 0.0  # by how much the programme lies below the model where its solution is
            for k, member in enumerate(self.members):
                used = np.flatnonzero(solution.shares[k] > 1e-6)
                exact, _ = member.tangents(pools[k][used], solution.places[k][used], SETTLING)
                share, goals = solution.shares[k][used], solution.goals[k][used]
                excess = np.maximum(exact[:, 1:].max(axis=1, initial=0.0), 0.0)
                off += float((share * (solution.lean.weights[k] * (exact[:, 0] - goals) + excess)).sum())
            values.append(solution.value)
            enough = max(self.search.upper - solution.value, self.gap)
            if off < 0.1 * enough or (len(values) > 4 and abs(values[-1] - values[-4]) < 0.02 * enough):
                break
        return solution

    def _price(self, lean: Lean) -> float:
        """Bound by these duals, and drop what cannot be in a better tuple; returns the bound."""
        count = len(self.sides)
        missing = self.search.upper - self.lower
        gap = (
            float(np.clip(0.2 * missing / count, 0.2 * self.gap / count, COARSEST))
            if np.isfinite(missing)
            else COARSEST
        )
        for k, side in enumerate(self.sides):
            seconds = max(self.until - time.perf_counter(), 0.5) / (count - k)
            side.price(lean.weights[k], lean.slopes[k], gap, seconds, self.seed)
        return self._floors(lean)

    def _floors(self, lean: Lean) -> float:
        self.priced = lean
        bound, enough = lean.constant + sum(side.least for side in self.sides), self.search.upper - self.gap
        for side in self.sides:
            side.drop(bound, enough)
            self._raise(min(float(side.floor.min()), enough))
        return bound

    def drop(self) -> None:
        """Tell plans apart by their leaned goals, as far as is missing to the best tuple."""
        missing = self.search.upper - self.gap - self.lower
        for side in self.sides:
            side.widen(1.1 * missing, max(0.1 * missing, 0.1 * self.gap), self.late)
        self._floors(self.priced)
        self.note("drop")

    def _first_pool(self, k: int) -> np.ndarray:
        known = self.members[k].seen
        left = np.array(sorted(known), dtype=int)
        soft = [min(s.exact[0] + ELASTIC * max(s.exact[1:].max(initial=0.0), 0.0) for s in known[p]) for p in left]
        return np.union1d(left[np.argsort(soft, kind="stable")[:POOL]], self.search.plans[k : k + 1])

    def _pool(self, k: int, solution: Solution, pools: list[np.ndarray]) -> np.ndarray:
        side = self.sides[k]
        used = pools[k][solution.shares[k] > 1e-6]
        pool = np.unique(np.concatenate([side.promising(POOL), used[side.alive[used]], self.search.plans[k : k + 1]]))
        side.look(pool, self.search.u)
        return pool

    def _try(self, solution: Solution, pools: list[np.ndarray]) -> None:
        """The tuple with the largest shares of a solution, and exchanges from there where it is the best so far."""
        tuples = np.array([[int(p[np.argmax(s)]) for p, s in zip(pools, solution.shares, strict=True)]])
        ledger = solve_tuples(self.members, self.blend, tuples, solution.u.mean(axis=0)[None], self.search.gap, np.inf)
        if ledger.upper < self.search.upper:
            self.search.upper, self.search.plans, self.search.u = ledger.upper, tuples[0], ledger.u.copy()
            self.search.beam.insert(0, (ledger.upper, tuples[0], ledger.u.copy()))
            for _ in self.search.follow(4):
                pass

    def choose(self, rounds: int = 60) -> None:
        """Bound the tuples of the plans left by the programme over whole shares; try what it chooses."""
        outside, inside = self._split()
        for side, mine in zip(self.sides, inside, strict=True):
            side.look(mine, self.search.u)
        for _ in range(rounds):
            if self.done or self.late() or any(len(p) == 0 for p in inside):
                break
            seconds = max(self.until - time.perf_counter(), 1.0)
            solution = self._master(inside).whole(seconds, 0.1 * self.gap, self.search.upper)
            if solution is None:
                break
            self._raise(min(solution.bound - WITHIN, outside))
            self.note("choose")
            if not solution.shares or self.done or self.lower >= outside - WITHIN:
                break
            u = solution.u.mean(axis=0)
            for member, mine in zip(self.members, inside, strict=True):
                member.tangents(mine, np.broadcast_to(u, (len(mine), len(u))), REFERENCE_SHARPNESS)
            self._try(solution, inside)
            self.points.append(solution.logs)

    def _split(self) -> tuple[float, list[np.ndarray]]:
        """(bound of tuples with a plan outside, the plans inside): the least floors where there are too many."""
        floors = np.sort(np.concatenate([side.floor[side.alive] for side in self.sides]))
        if len(floors) <= MOST_WHOLE:
            return np.inf, [side.plans for side in self.sides]
        limit = float(floors[MOST_WHOLE])
        return limit, [np.flatnonzero(side.alive & (side.floor < limit)) for side in self.sides]
