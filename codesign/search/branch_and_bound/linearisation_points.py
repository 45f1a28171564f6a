"""Solved plans that others are bounded from.

Source: see docs/optimisation.md, section 4.
"""

import numpy as np

from .bounding import REFERENCE_SHARPNESS, Bounding


class References:
    """Solved plans, to start others from: the nearest by what the model does at one shared point.

    Two plans whose rows and slopes agree at `base` trade their resources alike, so the solution and multipliers of one
    are a good guess for the other.
    """

    def __init__(self, bounding: Bounding, plans: np.ndarray, base: np.ndarray):
        self.base = base
        plans = plans[bounding.duals.known(plans)]
        points = np.broadcast_to(base, (len(plans), len(base)))
        _, affine = bounding.programme.tangents(plans, points, REFERENCE_SHARPNESS)
        self.features = self._features(affine)
        self.u, self.multipliers = bounding.duals.of(plans)

    def _features(self, affine: np.ndarray) -> np.ndarray:
        value = affine[..., 0] + affine[..., 1:] @ self.base
        flat = [affine[:, 0, 1:], 0.3 * affine[:, 1:, 1:].reshape(len(affine), -1), np.clip(value[:, 1:], -2, 2)]
        return np.concatenate(flat, axis=1).astype(np.float32)

    def nearest(self, affine: np.ndarray) -> np.ndarray:
        """Index of the reference of each plan, from its tangents at `base`."""
        asked = self._features(affine)
        squares = (self.features**2).sum(axis=1)
        return np.argmin(squares[None] - 2 * asked @ self.features.T, axis=1)
