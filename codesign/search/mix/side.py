"""One workload of a mix under duals: its leaned goals bounded plan by plan, plans dropped, the promising ones named."""

from collections.abc import Callable

import numpy as np

from ..branch_and_bound.closing import Closing
from ..branch_and_bound.effort import INTERRUPTED, Effort
from ..branch_and_bound.evidence import Recorder
from ..branch_and_bound.ledger import REFERENCE_SHARPNESS, Ledger, Programme
from .joint import Member
from .mix_evidence import Priced

BATCH = 512
SETTLING = 100.0  # sharpness of tangents where the relaxed programme has its solution


class Leaning(Programme):
    """A workload's programme with the goal `weight * goal + slope . u`."""

    def __init__(self, member: Member, weight: float, slope: np.ndarray):
        self.member, self.weight, self.slope = member, weight, slope
        self.oracle, self.rows = member.programme.oracle, member.programme.rows

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate and lean."""
        exact, affine = self.member.programme.tangents(plan, u, sharpness)
        affine[:, 0] *= self.weight
        affine[:, 0, 1:] += self.slope
        return self._leaned(exact, u), affine

    def values(self, plan: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Exact rows alone, leaned."""
        return self._leaned(self.member.programme.values(plan, u), u)

    def _leaned(self, exact: np.ndarray, u: np.ndarray) -> np.ndarray:
        legal = np.isfinite(exact[:, 0])
        exact[:, 0] = np.where(legal, self.weight * np.where(legal, exact[:, 0], 0.0) + u @ self.slope, np.inf)
        return exact


class Side:
    """One workload's plans: those that may still be in a better tuple, and bounds of their leaned goals."""

    def __init__(self, member: Member):
        self.member = member
        self.alive = np.ones(member.count, dtype=bool)
        self.floor = np.full(member.count, -np.inf)  # of the goal of tuples with a plan, the others never dropped
        self.asked = self.alive.copy()  # plans that the last pricing was of
        self.least = -np.inf  # bound of the leaned goal
        self.ledger: Ledger | None = None

    @property
    def plans(self) -> np.ndarray:
        """Plans left."""
        return np.flatnonzero(self.alive)

    @property
    def dropped(self) -> float:
        """Least floor of the plans that were dropped: all that is proven of tuples with one of them."""
        return float(np.min(self.floor, where=~self.alive, initial=np.inf))

    def price(self, weight: float, slope: np.ndarray, gap: float, seconds: float, seed: int) -> None:
        """The least leaned goal over the plans left, to `gap`."""
        effort = Effort(gap=gap, seconds=seconds)
        closing = Closing(Leaning(self.member, weight, slope), effort, seed, recorder=Recorder())
        ledger, self.asked = closing.ledger, self.alive.copy()
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
            place = ledger.place(at, REFERENCE_SHARPNESS)
            ledger.bound_by(new, affine, next(iter(ledger.weights.values()), np.zeros(affine.shape[1])), place)
            ledger.keep(new, exact, affine, at=place)
        for _ in range(rounds):
            left = ledger.open()
            gap = np.array([ledger.soft[p] for p in left.tolist()]) - ledger.lower[left]
            tries = np.array([ledger.tries.get(p, 0) for p in left.tolist()])
            asked = left[(gap > tolerance) & (tries < np.where(gap > 4 * tolerance, 8, 4))][:BATCH]
            if len(asked) == 0 or late():
                return
            ledger.refine(asked)

    def drop(self, bound: float, enough: float) -> None:
        """With `bound` on all tuples of the plans priced: raise their floors, leave out those that reach `enough`."""
        if self.ledger is not None and np.isfinite(bound):
            raised = np.maximum(self.floor, bound + np.maximum(self.ledger.lower - self.least, 0.0))
            self.floor = np.where(self.asked, raised, self.floor)
        self.alive &= self.floor < enough

    def noted(self) -> Priced:
        """What the last pricing rests on."""
        assert self.ledger is not None
        assert self.ledger.recorder is not None
        return Priced(self.ledger.recorder, self.ledger.lower.copy(), self.asked)

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
