"""The best designs that a search has evaluated, and which bounds they leave open.

Source: see docs/optimisation.md, section 4.
"""

import abc

import numpy as np
from jaxtyping import Bool, Float

from ...study.objective import feasible_logs

NEAR = 0.1  # log above the best up to which designs are kept: next-best plans for the frame, and to start others from


def keeps(exact: Float[np.ndarray, "k rows"]) -> Bool[np.ndarray, " k"]:
    """Mask of the points that keep all constraints (rows after the goal's)."""
    return feasible_logs(exact[:, 1:].max(axis=1, initial=-np.inf))


class AbstractIncumbent(abc.ABC):
    """The best designs known, by the exact model; values are logs of the goal.

    upper: what a bound must reach, less the gap, for its plan to need no more work; feasible: plan -> its best value
    and where, of plans that come near.
    """

    upper: float
    feasible: dict[int, tuple[float, np.ndarray]]

    @abc.abstractmethod
    def notice(self, plan: np.ndarray, u: np.ndarray, exact: np.ndarray, single: np.ndarray) -> None:
        """Take note of points [k, variables] with their rows; those of groups (not `single`) are no designs."""

    @abc.abstractmethod
    def open(self, lower: Float[np.ndarray, " nodes"], gap: float) -> Bool[np.ndarray, " nodes"]:
        """Mask of the nodes with these bounds that may hold a design that is better by more than the gap."""

    def near(self, plan: np.ndarray, u: np.ndarray, exact: np.ndarray, single: np.ndarray) -> np.ndarray:
        """Values of the designs among these points, inf of others; what comes near the best is kept."""
        holds = single & np.isfinite(exact).all(axis=1) & keeps(exact)
        values = np.where(holds, exact[:, 0], np.inf)
        for i in np.flatnonzero(values < self.upper + NEAR):
            if values[i] < self.value_of(int(plan[i])):
                self.feasible[int(plan[i])] = (float(values[i]), u[i].copy())
        return values

    def value_of(self, plan: int) -> float:
        """The best value of a plan; inf where none is known."""
        return self.feasible.get(plan, (np.inf,))[0]

    def ranked(self, count: int | None = None) -> list[int]:
        """Plans of the best designs, the best first."""
        return sorted(self.feasible, key=lambda plan: self.feasible[plan][0])[:count]


class Incumbent(AbstractIncumbent):
    """One best design: `upper` its value, `plan` its plan (-1 where there is none), `u` its coordinates.

    Args:
        width: hardware variables.
        upper: value that a design must beat.
    """

    def __init__(self, width: int, upper: float = np.inf):
        self.upper, self.plan, self.u = upper, -1, np.full(width, 0.5)
        self.feasible = {}

    def notice(self, plan: np.ndarray, u: np.ndarray, exact: np.ndarray, single: np.ndarray) -> None:
        """Keep what is better."""
        values = self.near(plan, u, exact, single)
        if len(values):
            best = int(np.argmin(values))
            self.offer(float(values[best]), int(plan[best]), u[best])

    def offer(self, value: float, plan: int, u: np.ndarray) -> None:
        """A design evaluated elsewhere, with its value."""
        if value < self.upper:
            self.upper, self.plan, self.u = value, plan, u.copy()

    def open(self, lower: Float[np.ndarray, " nodes"], gap: float) -> Bool[np.ndarray, " nodes"]:
        """Bounds below the best value less the gap."""
        return lower < self.upper - gap
