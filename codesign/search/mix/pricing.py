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
from ..branch_and_bound.bounding import REFERENCE_SHARPNESS, Bounding, Outcome, SearchEffort, WarmStart
from ..branch_and_bound.bounding_state import Incumbent
from ..branch_and_bound.evidence import Recorder
from ..branch_and_bound.interior_point import ELASTIC
from ..settings import MIX
from .alternating import Alternating, Member, solve_tuples
from .master_problem import LagrangianDuals, MasterProgramme, MasterSolution
from .mix_evidence import Priced, Round, WholeShares
from .workload_oracles import Searches, WorkloadSearch

# One workload of a mix under duals: its leaned goals bounded plan by plan, plans dropped, the promising ones named.
#
# Source: see docs/optimisation.md, section 6.


class WorkloadPlans:
    """One workload's plans: those that may still be in a better tuple, and bounds of their leaned goals."""

    def __init__(self, member: Member):
        self.member = member
        self.alive = np.ones(member.count, dtype=bool)
        self.floor = np.full(member.count, -np.inf)  # of the goal of tuples with a plan, the others never dropped
        self.last_priced = self.alive.copy()  # plans that the last pricing was of
        self.least = -np.inf  # bound of the leaned goal
        self.bounding: Bounding | None = None

    @property
    def plans(self) -> np.ndarray:
        """Plans left."""
        return np.flatnonzero(self.alive)

    @property
    def dropped(self) -> float:
        """Least floor of the plans that were dropped: all that is proven of tuples with one of them."""
        return float(np.min(self.floor, where=~self.alive, initial=np.inf))

    def asking(self, weight: float, slope: np.ndarray, effort: SearchEffort) -> WorkloadSearch:
        """The search for the least leaned goal over the plans left, from the designs that were seen."""
        incumbent = Incumbent(len(slope))
        for plan, cuts in self.member.seen.items():
            for seen in cuts if self.alive[plan] else []:
                if seen.holds:
                    incumbent.offer(weight * float(seen.exact[0]) + float(slope @ seen.u), plan, seen.u)
        warm = WarmStart(np.where(self.alive, -np.inf, np.inf), incumbent=incumbent)
        return WorkloadSearch(self.member.name, effort, weight, slope, warm)

    def priced(self, outcome: Outcome) -> None:
        """Take over what such a search left."""
        self.bounding, self.last_priced = outcome.unless_interrupted().bounding, self.alive.copy()
        self.least = float(outcome.bounding.lower.min())

    def widen(self, margin: float, tolerance: float, late: Callable[[], bool], rounds: int = 24) -> None:
        """Bound plans up to `margin` above the least as well, so that floors can tell them apart."""
        bounding = self.bounding
        if bounding is None:
            return
        bounding.gap = -margin
        left = bounding.open()
        new = left[~bounding.cuts.has_cuts(left)]
        if len(new):
            at = np.broadcast_to(bounding.u, (len(new), bounding.width))
            exact, affine = bounding.evaluate(new, at, REFERENCE_SHARPNESS)
            point_index, some = bounding.point_index(at, REFERENCE_SHARPNESS), iter(bounding.duals.weights.values())
            bounding.bound_by(new, affine, next(some, np.zeros(affine.shape[1])), point_index)
            bounding.cuts.keep(new, exact, affine, at=point_index)
        for _ in range(rounds):
            left = bounding.open()
            gap, tried = bounding.cuts.soft_of(left) - bounding.lower[left], bounding.table.rounds[left]
            selected = left[(gap > tolerance) & (tried < np.where(gap > 4 * tolerance, 8, 4))][: MIX.batch]
            if len(selected) == 0 or late():
                return
            bounding.refine(selected)

    def drop(self, bound: float, enough: float) -> None:
        """With `bound` on all tuples of the plans priced: raise their floors, leave out those that reach `enough`."""
        if self.bounding is not None and np.isfinite(bound):
            raised = np.maximum(self.floor, bound + np.maximum(self.bounding.lower - self.least, 0.0))
            self.floor = np.where(self.last_priced, raised, self.floor)
        self.alive &= self.floor < enough

    def noted(self) -> Priced:
        """Evidence of the last pricing."""
        assert self.bounding is not None
        assert isinstance(self.bounding.recorder, Recorder)
        return Priced(self.bounding.recorder, self.bounding.lower.copy(), self.last_priced)

    def promising(self, count: int) -> np.ndarray:
        """Plans left with the best designs of the last pricing and with its least bounds."""
        bounding = self.bounding
        if bounding is None:
            return self.plans[:0]
        incumbents = bounding.incumbent.ranked(count // 2)
        lowest = [p for p in bounding.open()[: 4 * count].tolist() if p in bounding.duals.point][: count // 2]
        both = np.unique(np.array([*incumbents, *lowest], dtype=int))
        return both[self.alive[both]]

    def look(self, plans: np.ndarray, u: np.ndarray) -> None:
        """Tangents of plans, for the relaxed programme: at u, and where the last pricing has their optimum."""
        fresh = plans[[p not in self.member.seen for p in plans.tolist()]]
        if len(fresh):
            self.member.tangents(fresh, np.broadcast_to(u, (len(fresh), len(u))), REFERENCE_SHARPNESS)
        bounding = self.bounding
        solved = [p for p in plans.tolist() if bounding is not None and p in bounding.duals.point]
        if bounding is not None and solved:
            places = [bounding.feasible[p][1] if p in bounding.feasible else bounding.duals.point[p] for p in solved]
            self.member.tangents(np.array(solved), np.array(places), MIX.sharpness)


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
        self.sides = [WorkloadPlans(member) for member in members]
        goals = np.array([m.programme.tangents(search.plans[k : k + 1], search.u[None], 1e6)[0][0, 0]
                          for k, m in enumerate(members)])  # fmt: skip
        self.points = [goals, *(goals + 3.0 * row for row in np.eye(len(members)))]
        self.rounds: list[Round] = []
        self.integer_shares: WholeShares | None = None

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

    def _master(self, plans: list[np.ndarray]) -> MasterProgramme:
        points = np.array(self.points[:1] if self.blend.how == "log_sum" else self.points)
        return MasterProgramme(self.members, self.blend, plans, points)

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

    def _price(self, lean: LagrangianDuals) -> float:
        """Bound by these duals, and drop what cannot be in a better tuple; returns the bound."""
        count = len(self.sides)
        missing = self.search.upper - self.lower
        gap = (
            float(np.clip(0.2 * missing / count, 0.2 * self.gap / count, MIX.coarsest))
            if np.isfinite(missing)
            else MIX.coarsest
        )

        def search_of(k: int, share: float) -> WorkloadSearch:
            seconds = share * max(self.until - time.perf_counter(), 0.5)
            return self.sides[k].asking(lean.weights[k], lean.slopes[k], SearchEffort(gap=gap, seconds=seconds))

        outcomes = list(self.searches.run(search_of, spread=self._took > self.searches.worth_s))
        for side, outcome in zip(self.sides, outcomes, strict=True):
            side.priced(outcome)
        self._took = sum(outcome.seconds for outcome in outcomes)
        return self._floors(lean)

    def _floors(self, lean: LagrangianDuals) -> float:
        self.priced = lean
        bound, enough = lean.constant + sum(side.least for side in self.sides), self.search.upper - self.gap
        if np.isfinite(bound):
            self._keep(lean)
        for side in self.sides:
            side.drop(bound, enough)
            self._raise(min(float(side.floor.min()), enough))
        return bound

    def _keep(self, lean: LagrangianDuals) -> None:
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
        cuts = self.members[k].seen
        left = np.array(sorted(cuts), dtype=int)
        soft = [min(s.exact[0] + ELASTIC * max(s.exact[1:].max(initial=0.0), 0.0) for s in cuts[p]) for p in left]
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
            solution = self._master(inside).integer_solution(seconds, 0.1 * self.gap, self.search.upper)
            if solution is None:
                break
            before = self.lower
            self._raise(min(solution.bound - WITHIN, outside))
            if self.lower > before:
                self.integer_shares = WholeShares.of(self.members, inside, self.points)
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
