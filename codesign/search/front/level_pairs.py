"""Plans (or groups of them) at levels of a front: pairs that are bounded and closed side by side."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from ...objective import feasible_logs
from ..branch_and_bound.closing import MOST_TRIES
from ..branch_and_bound.ledger import Ledger, Programme
from ..branch_and_bound.oracle import AbstractOracle, Tangents
from .dual_pool import Pool

AMISS = 1e3  # price of a unit by which constraints cannot hold together


class Levelled(AbstractOracle):
    """Pairs of a plan (or group) and a level: rows of the plan, each less what its level takes off it.

    Args:
        inner: answers for plans.
        plan, level: of each pair, by their numbers.
        shift: log that each pair's level takes off each row.
    """

    def __init__(
        self,
        inner: AbstractOracle,
        plan: Int[np.ndarray, " pairs"],
        shift: Float[np.ndarray, "pairs rows"],
        level: Int[np.ndarray, " pairs"] | None = None,
    ) -> None:
        self.inner, self.plan, self.shift = inner, plan, shift
        self.level = np.zeros(len(plan), dtype=int) if level is None else level
        self.names, self.evaluated, self._roots = inner.names, 0, len(plan)

    @property
    def count(self) -> int:
        """Pairs listed so far."""
        return len(self.plan)

    @property
    def roots(self) -> np.ndarray:
        """The pairs that were not split off others."""
        return np.arange(self._roots)

    def single(self, plan: np.ndarray) -> np.ndarray:
        """Which pairs are of one plan."""
        return self.inner.single(self.plan[plan])

    def weight(self, plan: np.ndarray) -> np.ndarray:
        """Plans of each pair."""
        return self.inner.weight(self.plan[plan])

    def split(self, plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of the same levels with the parts of groups; asked once of a pair."""
        parts, place = self.inner.split(self.plan[plan])
        first, parent = self.count, plan[place]
        self.plan = np.concatenate([self.plan, parts])
        self.shift = np.concatenate([self.shift, self.shift[parent]])
        self.level = np.concatenate([self.level, self.level[parent]])
        return np.arange(first, self.count), place

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
        asked: the pairs.
        rows: the programme's, the goal first.
        gap: in the log, within which a level's best design counts as found.
        best: value to beat, the same at every level.
        pool: takes note of what is proven.
    """

    def __init__(self, asked: Levelled, rows: tuple[str, ...], gap: float, best: float, pool: Pool):
        programme = Programme(asked, rows[0], rows[1:])
        super().__init__(programme, gap, pool.listener(programme, asked))
        self.asked, self.upper, self.fixed, self.endings = asked, best, best, []
        self.best = np.full(asked.level.max() + 1, best)

    def evaluate(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """As in any ledger, but a better design cuts only pairs of its own level."""
        exact, affine = super().evaluate(plan, u, sharpness)
        if self.upper < self.fixed:
            holds = feasible_logs(exact[:, 1:].max(axis=1, initial=-np.inf))
            holds &= self.asked.single(plan)
            np.minimum.at(self.best, self.asked.level[plan], np.where(holds, exact[:, 0], np.inf))
            self.upper = self.fixed
        return exact, affine

    def open(self) -> np.ndarray:
        """Pairs that may still be best at their level, least bound first."""
        asked = self.lower < self.best[self.asked.level] - self.gap
        left = np.flatnonzero(self.frontier & asked & (self.tried < MOST_TRIES))
        return left[np.argsort(self.lower[left], kind="stable")]


@dataclass
class Lines:
    """Bounds of plans that are straight over all levels: constant - weights . level.

    Args:
        others: rows that have levels.
        least: below the goal of every design. To it the constraints of a plan that cannot hold together add so much.
    """

    others: tuple[str, ...]
    least: float
    plan: list[np.ndarray] = field(default_factory=list)
    constant: list[np.ndarray] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)

    def learn(self, ledger: Ledger, asked: Levelled | None = None) -> None:
        """Take over the Lagrangian bounds of a ledger; of pairs if given."""
        solved = np.array(list(ledger.lagrangian), dtype=int)
        if len(solved):
            total = np.array([ledger.lagrangian[p] for p in solved.tolist()])
            bound = total[:, 0] + np.minimum(total[:, 1:], 0.0).sum(axis=1)
            self._add(ledger, asked, solved, bound, np.array([ledger.weights[p] for p in solved.tolist()]))
        for ending in ledger.endings or []:
            self._add(ledger, asked, *ending)

    def _add(
        self, ledger: Ledger, asked: Levelled | None, which: np.ndarray, bound: np.ndarray, weights: np.ndarray
    ) -> None:
        """Bounds at what was allowed, and their multipliers [which, rows]: the line is of the plan, not of a level."""
        rows = ledger.programme.rows
        taken = np.array([ledger.programme.allowed.get(name, 0.0) for name in rows])[None]
        if asked is not None:
            taken = taken + asked.shift[which][:, [asked.names.index(name) for name in rows]]
        own = [i for i, name in enumerate(rows) if i == 0 or name in self.others]
        at, bound = bound, bound + (weights * taken)[:, own].sum(axis=1)
        lean = np.zeros((len(which), len(self.others)))
        for i, name in enumerate(self.others):
            lean[:, i] = weights[:, rows.index(name)] if name in rows else 0.0
        never = (weights[:, 0] == 0.0) & (at > 0)
        price = np.where(lean.any(axis=1), AMISS, np.inf)  # whatever the level
        bound = np.where(never, self.least + price * bound, bound)
        lean = np.where(never[:, None], AMISS * lean, lean)
        whole = never | (np.abs(weights[:, 0] - 1.0) < 1e-9)  # multipliers that never settled bound nothing
        self.plan.append((which if asked is None else asked.plan[which])[whole])
        self.constant.append(bound[whole])
        self.weights.append(lean[whole])

    def raise_(self, floor: Float[np.ndarray, " plans"], level: Float[np.ndarray, " others"]) -> None:
        """Raise bounds of all plans at a level."""
        if len(self.plan) > 1:
            self.plan, self.constant, self.weights = (
                [np.concatenate(each)] for each in (self.plan, self.constant, self.weights)
            )
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
