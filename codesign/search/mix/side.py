"""One workload of a mix under duals: its leaned goals bounded plan by plan, plans dropped, the promising ones named.

Source: see docs/optimisation.md, section 6.
"""

from collections.abc import Callable

import numpy as np

from ..branch_and_bound.bounding import REFERENCE_SHARPNESS, Bounding
from ..branch_and_bound.effort import Effort, Outcome
from ..branch_and_bound.evidence import Recorder
from ..branch_and_bound.incumbent import Incumbent
from ..branch_and_bound.warm_start import WarmStart
from ..settings import MIX
from .joint import Member
from .mix_evidence import Priced
from .workload_work import WorkloadSearch


class Side:
    """One workload's plans: those that may still be in a better tuple, and bounds of their leaned goals."""

    def __init__(self, member: Member):
        self.member = member
        self.alive = np.ones(member.count, dtype=bool)
        self.floor = np.full(member.count, -np.inf)  # of the goal of tuples with a plan, the others never dropped
        self.asked = self.alive.copy()  # plans that the last pricing was of
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

    def asking(self, weight: float, slope: np.ndarray, effort: Effort) -> WorkloadSearch:
        """The search for the least leaned goal over the plans left, from the designs that were seen."""
        incumbent = Incumbent(len(slope))
        for plan, known in self.member.seen.items():
            for seen in known if self.alive[plan] else []:
                if seen.holds:
                    incumbent.offer(weight * float(seen.exact[0]) + float(slope @ seen.u), plan, seen.u)
        warm = WarmStart(np.where(self.alive, -np.inf, np.inf), incumbent=incumbent)
        return WorkloadSearch(self.member.name, effort, weight, slope, warm)

    def priced(self, outcome: Outcome) -> None:
        """Take over what such a search left."""
        self.bounding, self.asked = outcome.unless_interrupted().bounding, self.alive.copy()
        self.least = float(outcome.bounding.lower.min())

    def widen(self, margin: float, tolerance: float, late: Callable[[], bool], rounds: int = 24) -> None:
        """Bound plans up to `margin` above the least as well, so that floors can tell them apart."""
        bounding = self.bounding
        if bounding is None:
            return
        bounding.gap = -margin
        left = bounding.open()
        new = left[~bounding.own.known(left)]
        if len(new):
            at = np.broadcast_to(bounding.u, (len(new), bounding.width))
            exact, affine = bounding.evaluate(new, at, REFERENCE_SHARPNESS)
            place, some = bounding.place(at, REFERENCE_SHARPNESS), iter(bounding.duals.weights.values())
            bounding.bound_by(new, affine, next(some, np.zeros(affine.shape[1])), place)
            bounding.own.keep(new, exact, affine, at=place)
        for _ in range(rounds):
            left = bounding.open()
            gap, tried = bounding.own.soft_of(left) - bounding.lower[left], bounding.table.rounds[left]
            asked = left[(gap > tolerance) & (tried < np.where(gap > 4 * tolerance, 8, 4))][: MIX.batch]
            if len(asked) == 0 or late():
                return
            bounding.refine(asked)

    def drop(self, bound: float, enough: float) -> None:
        """With `bound` on all tuples of the plans priced: raise their floors, leave out those that reach `enough`."""
        if self.bounding is not None and np.isfinite(bound):
            raised = np.maximum(self.floor, bound + np.maximum(self.bounding.lower - self.least, 0.0))
            self.floor = np.where(self.asked, raised, self.floor)
        self.alive &= self.floor < enough

    def noted(self) -> Priced:
        """Evidence of the last pricing."""
        assert self.bounding is not None
        assert isinstance(self.bounding.recorder, Recorder)
        return Priced(self.bounding.recorder, self.bounding.lower.copy(), self.asked)

    def promising(self, count: int) -> np.ndarray:
        """Plans left with the best designs of the last pricing and with its least bounds."""
        bounding = self.bounding
        if bounding is None:
            return self.plans[:0]
        known = bounding.incumbent.ranked(count // 2)
        lowest = [p for p in bounding.open()[: 4 * count].tolist() if p in bounding.duals.point][: count // 2]
        both = np.unique(np.array([*known, *lowest], dtype=int))
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
