"""The programme that a branch and bound solves: one row of an oracle minimised under others.

Source: see docs/optimisation.md, section 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from .oracle import GOAL, AbstractOracle


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
    allowed: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        """Order the rows: goal first."""
        if self.constraints is None:
            self.constraints = tuple(n for n in self.oracle.names if n not in (GOAL, self.goal))
        self.rows = (self.goal, *self.constraints)
        self.width = len(self.oracle.variables)
        self.shift = np.array([0.0, *(self.allowed.get(name, 0.0) for name in self.constraints)])
        self._index = np.array([self.oracle.names.index(name) for name in self.rows])

    def tangents(
        self, plan: Int[np.ndarray, " k"], u: Float[np.ndarray, "k n"], sharpness: np.ndarray | float
    ) -> tuple[np.ndarray, np.ndarray]:
        """(exact rows, affine rows) of this programme, goal first, constraints relative to what is allowed."""
        result = self.oracle.tangents(plan, u, sharpness)
        return self._own(result.exact, result.broken), self._allowing(result.affine)

    def screening(self, plan: Int[np.ndarray, " k"], u: Float[np.ndarray, "k n"]) -> np.ndarray | None:
        """Affine rows of which only those that cost little are known; None where there are none."""
        result = self.oracle.screening(plan, u)
        return None if result is None else self._allowing(result.affine)

    def _allowing(self, affine: np.ndarray) -> np.ndarray:
        own = affine[:, self._index].copy()
        own[..., 0] -= self.shift
        return own

    def values(self, plan: Int[np.ndarray, " k"], u: Float[np.ndarray, "k n"]) -> np.ndarray:
        """The exact rows of `tangents` alone."""
        return self._own(*self.oracle.values(plan, u))

    def _own(self, exact: np.ndarray, broken: np.ndarray) -> np.ndarray:
        return np.where((broken > 0)[:, None], np.inf, exact[:, self._index] - self.shift)
