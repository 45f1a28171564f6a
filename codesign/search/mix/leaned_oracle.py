"""An oracle with a price on its hardware: how one workload of a mix is asked for what suits the others."""

import numpy as np
from jaxtyping import Float

from ..branch_and_bound.oracle import GOAL, AbstractOracle, AbstractRelay, Tangents


class LeanedOracle(AbstractRelay):
    """The rows of another oracle, with the goal `weight * goal + slope . u`.

    Source: Lagrangian pricing, [geoffrion1974]; see docs/optimisation.md, section 6 (mixes).
    """

    def __init__(self, inner: AbstractOracle, weight: float, slope: Float[np.ndarray, " variables"]):
        super().__init__(inner)
        self._weight, self._slope, self._goal = weight, slope, inner.names.index(GOAL)

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """Evaluate and lean."""
        self.evaluated += len(plan)
        result = self.inner.tangents(plan, u, sharpness)
        affine = result.affine.copy()
        affine[:, self._goal] *= self._weight
        affine[:, self._goal, 1:] += self._slope
        return Tangents(self._leaned(result.exact, u), affine, result.broken)

    def values(self, plan: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Exact rows alone, leaned."""
        self.evaluated += len(plan)
        exact, broken = self.inner.values(plan, u)
        return self._leaned(exact, u), broken

    def _leaned(self, exact: np.ndarray, u: np.ndarray) -> np.ndarray:
        goal = exact[:, self._goal]
        legal, leaned = np.isfinite(goal), exact.copy()
        leaned[:, self._goal] = np.where(legal, self._weight * np.where(legal, goal, 0.0) + u @ self._slope, np.inf)
        return leaned
