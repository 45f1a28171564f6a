"""Gap of a mix's best tuple to the optimum, at most: bounds over all tuples of plans and the box of hardware.

    lean     duals of the relaxed programme (`master_problem`) price hardware for every workload: w f + m . u, the m of
             all workloads adding to zero. The sum of their least leaned goals, each over all its plans, is a bound
    drop     a plan whose leaned goal lies above the least one by more than what is missing to the best tuple is in no
             better tuple
    choose   the programme over whole shares of the plans left bounds their tuples; its solution is a tuple to try, and
             the place of new tangents

Every bound is the least over what it leaves out and what it covers, so the search may stop at any moment.

Source: [geoffrion1974], [dantzigwolfe1960]; see docs/optimisation.md, section 6 (mixes).
"""

import time
from collections.abc import Callable

import numpy as np

from ..blend import Blend
from ..branch_and_bound.bounding import REFERENCE_SHARPNESS
from ..branch_and_bound.effort import Effort
from ..branch_and_bound.interior_point import ELASTIC
from ..settings import MIX
from .alternating import Alternating
from .joint import solve_tuples
from .master_problem import Lean, Master, MasterSolution
from .mix_evidence import Round, WholeShares
from .side import Side
from .workload_work import Searches, WorkloadSearch

WITHIN = 1e-6  # log by which a mixed-integer bound is lowered for the solver's tolerances


class Proof:
    """Lower bound of a mix beside its best tuple; `lower` and `search.upper` hold at any moment."""

    def __init__(
        self, searches: Searches, blend: Blend, search: Alternating, gap: float, until: float,
        note: Callable[[str], None],
    ):  # fmt: skip
        self.members = members = list(searches.members)
        self.searches, self.blend, self.search, self.gap = searches, blend, search, gap
        self.until, self.note, self.lower, self._took = until, note, -np.inf, 0.0
        self.sides = [Side(member) for member in members]
        goals = np.array([m.programme.tangents(search.plans[k : k + 1], search.u[None], 1e6)[0][0, 0]
                          for k, m in enumerate(members)])  # fmt: skip
        self.points = [goals, *(goals + 3.0 * row for row in np.eye(len(members)))]
        self.rounds: list[Round] = []
        self.whole: WholeShares | None = None

    def late(self) -> bool:
        """True if time is up."""
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

    def _settled(self, pools: list[np.ndarray], rounds: int = 40) -> MasterSolution | None:
        """The relaxed programme with tangents added where its solution lies, until it hardly changes."""
        solution: MasterSolution | None = None
        values: list[float] = []
        for _ in range(rounds):
            solution = self._master(pools).relaxed()
            if solution is None or solution.lean is None or self.late():
                break
            self.points.append(solution.logs)
            off = 0.0  # by how much the programme lies below the model where its solution is
            for k, member in enumerate(self.members):
                used = np.flatnonzero(solution.shares[k] > 1e-6)
                exact, _ = member.tangents(pools[k][used], solution.places[k][used], MIX.sharpness)
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
            float(np.clip(0.2 * missing / count, 0.2 * self.gap / count, MIX.coarsest))
            if np.isfinite(missing)
            else MIX.coarsest
        )

        def asked(k: int, share: float) -> WorkloadSearch:
            seconds = share * max(self.until - time.perf_counter(), 0.5)
            return self.sides[k].asking(lean.weights[k], lean.slopes[k], Effort(gap=gap, seconds=seconds))

        outcomes = list(self.searches.run(asked, spread=self._took > self.searches.worth_s))
        for side, outcome in zip(self.sides, outcomes, strict=True):
            side.priced(outcome)
        self._took = sum(outcome.seconds for outcome in outcomes)
        return self._floors(lean)

    def _floors(self, lean: Lean) -> float:
        self.priced = lean
        bound, enough = lean.constant + sum(side.least for side in self.sides), self.search.upper - self.gap
        if np.isfinite(bound):
            self._keep(lean)
        for side in self.sides:
            side.drop(bound, enough)
            self._raise(min(float(side.floor.min()), enough))
        return bound

    def _keep(self, lean: Lean) -> None:
        """Keep the evidence of the floors; plans told apart after a pricing replace what it left."""
        if self.rounds and self.rounds[-1].lean is lean:
            self.rounds.pop()
        self.rounds.append(Round(lean, [side.noted() for side in self.sides]))

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
        return np.union1d(left[np.argsort(soft, kind="stable")[: MIX.pool]], self.search.plans[k : k + 1])

    def _pool(self, k: int, solution: MasterSolution, pools: list[np.ndarray]) -> np.ndarray:
        side = self.sides[k]
        used = pools[k][solution.shares[k] > 1e-6]
        pool = np.unique(
            np.concatenate([side.promising(MIX.pool), used[side.alive[used]], self.search.plans[k : k + 1]])
        )
        side.look(pool, self.search.u)
        return pool

    def _try(self, solution: MasterSolution, pools: list[np.ndarray]) -> None:
        """The tuple with the largest shares of a solution, and exchanges from there where it is the best so far."""
        tuples = np.array([[int(p[np.argmax(s)]) for p, s in zip(pools, solution.shares, strict=True)]])
        bounding = solve_tuples(
            self.members, self.blend, tuples, solution.u.mean(axis=0)[None], self.search.gap, np.inf
        )
        if bounding.upper < self.search.upper:
            self.search.upper, self.search.plans, self.search.u = bounding.upper, tuples[0], bounding.u.copy()
            self.search.beam.insert(0, (bounding.upper, tuples[0], bounding.u.copy()))
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
            before = self.lower
            self._raise(min(solution.bound - WITHIN, outside))
            if self.lower > before:
                self.whole = WholeShares.of(self.members, inside, self.points)
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
        dropped = min(side.dropped for side in self.sides)
        if len(floors) <= MIX.most_whole:
            return dropped, [side.plans for side in self.sides]
        limit = float(floors[MIX.most_whole])
        return min(limit, dropped), [np.flatnonzero(side.alive & (side.floor < limit)) for side in self.sides]
