"""Lower bounds of many plans at once from one tangent of every row: weak duality over the unit cube.

For multipliers m >= 0 of the constraints, goal + sum m_i constraint_i is below the goal wherever the constraints
hold, its tangent is below that, and the tangent's minimum over the cube is a sum of single terms. So one evaluation
with slopes bounds a plan for every hardware in the box, and better multipliers only raise the bound.
"""

import numpy as np
from jaxtyping import Float

HOPELESS = np.inf
"""Lower bound of a plan that breaks a constraint everywhere in the box."""


def dual_value(
    affine: Float[np.ndarray, "plans rows coefficients"], multipliers: Float[np.ndarray, "plans rows"]
) -> Float[np.ndarray, " plans"]:
    """Bound with these multipliers, that of the goal (row 0) being 1."""
    total = np.einsum("pr,prv->pv", multipliers, affine)
    return total[:, 0] + np.minimum(total[:, 1:], 0.0).sum(axis=1)


def never_holds(affine: Float[np.ndarray, "plans rows coefficients"]) -> np.ndarray:
    """Plans with a constraint whose tangent is positive over the whole cube."""
    least = affine[:, 1:, 0] + np.minimum(affine[:, 1:, 1:], 0.0).sum(axis=-1)
    return (least > 0).any(axis=1) if least.shape[1] else np.zeros(len(affine), dtype=bool)


def dual_ascent(
    affine: Float[np.ndarray, "plans rows coefficients"],
    start: Float[np.ndarray, "plans rows"],
    sweeps: int = 2,
) -> Float[np.ndarray, " plans"]:
    """The bound after raising one multiplier after the other to its best value, from `start`.

    Along one multiplier the bound is concave and piecewise straight, so its best value is 0 or one of the places
    where a slope of the total changes sign.
    """
    multipliers = start.copy()
    multipliers[:, 0] = 1.0
    for _ in range(sweeps):
        for row in range(1, affine.shape[1]):
            multipliers[:, row] = 0.0
            rest = np.einsum("pr,prv->pv", multipliers, affine)
            own = affine[:, row]
            with np.errstate(divide="ignore", invalid="ignore"):
                turns = -rest[:, 1:] / own[:, 1:]
            turns = np.concatenate([np.zeros((len(affine), 1)), np.where(turns > 0, turns, 0.0)], axis=1)
            turns = np.where(np.isfinite(turns), turns, 0.0)
            totals = rest[:, None, :] + turns[:, :, None] * own[:, None, :]
            values = totals[..., 0] + np.minimum(totals[..., 1:], 0.0).sum(axis=-1)
            multipliers[:, row] = np.take_along_axis(turns, values.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.where(never_holds(affine), HOPELESS, dual_value(affine, multipliers))
