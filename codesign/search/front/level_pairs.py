"""Plans (or groups of them) at levels of a front: pairs that are bounded and closed side by side.

Source: see docs/optimisation.md, section 6.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from ..branch_and_bound.bounding import Bounding
from ..branch_and_bound.dual_solutions import settled
from ..branch_and_bound.incumbent import AbstractIncumbent, keeps
from ..branch_and_bound.oracle import AbstractOracle, Tangents
from ..branch_and_bound.programme import Programme
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
        """Mask of the pairs of one plan."""
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
        result, shift = self.inner.tangents(self.plan[plan], u, sharpness), self.shift[plan]
        affine = result.affine.copy()
        affine[..., 0] -= shift
        return Tangents(result.exact - shift, affine, result.broken)


class LevelIncumbents(AbstractIncumbent):
    """Designs of pairs, of which only those of one level compete.

    Args:
        asked: the pairs.
        upper: value to beat, the same at every level.
        best: of each level, so far.
    """

    def __init__(self, asked: Levelled, upper: float, best: Float[np.ndarray, " levels"]):
        self.asked, self.upper, self.best, self.feasible = asked, upper, best, {}

    def notice(self, plan: np.ndarray, u: np.ndarray, exact: np.ndarray, single: np.ndarray) -> None:
        """A better design closes only pairs of its own level."""
        if self.near(plan, u, exact, single).min(initial=np.inf) < self.upper:
            values = np.where(keeps(exact) & single, exact[:, 0], np.inf)
            np.minimum.at(self.best, self.asked.level[plan], values)

    def open(self, lower: Float[np.ndarray, " nodes"], gap: float) -> np.ndarray:
        """Pairs that may still be best at their level."""
        return lower < self.best[self.asked.level] - gap


def apart(
    asked: Levelled, rows: tuple[str, ...], gap: float, upper: float, best: Float[np.ndarray, " levels"], pool: Pool
) -> Bounding:
    """Bounds of pairs, each level for itself, the rows (the goal first) relative to the levels.

    Args:
        asked, upper, best: as of `LevelIncumbents`.
        rows: the programme's, the goal first.
        gap: in the log, within which a level's best design counts as found.
        pool: takes note of what is proven.
    """
    programme = Programme(asked, rows[0], rows[1:])
    return Bounding(programme, gap, pool.listener(programme, asked), LevelIncumbents(asked, upper, best), pruned=True)


@dataclass
class Lines:
    """Bounds of plans that are straight over all levels: constant - weights . level.

    Args:
        others: rows that have levels.
        least: below the goal of every design. To it the constraints of a plan that cannot hold together add so much.
    """

    others: tuple[str, ...]
    least: float
    plan: list[np.ndarray] = field(default_factory=list[np.ndarray])
    constant: list[np.ndarray] = field(default_factory=list[np.ndarray])
    weights: list[np.ndarray] = field(default_factory=list[np.ndarray])

    def learn(self, bounding: Bounding, asked: Levelled | None = None) -> None:
        """Take over the Lagrangian bounds of a programme; of pairs if given."""
        solved, bound, weights = bounding.duals.bounds()
        if len(solved):
            self._add(bounding, asked, solved, bound, weights)
        for one in bounding.pruned or []:
            self._add(bounding, asked, *one)

    def _add(
        self, bounding: Bounding, asked: Levelled | None, which: np.ndarray, bound: np.ndarray, weights: np.ndarray
    ) -> None:
        """Bounds at what was allowed, and their multipliers [which, rows]: the line is of the plan, not of a level."""
        rows = bounding.programme.rows
        taken = bounding.programme.shift[None]
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
        whole = never | settled(weights[:, 0])
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
