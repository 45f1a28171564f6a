"""Lower bounds of many plans at once from one or two tangents of every row: weak duality over the unit cube.

For multipliers m >= 0 of the constraints, goal + sum m_i constraint_i is below the goal wherever the constraints
hold, its tangent is below that, and the tangent's minimum over the cube is a sum of single terms. So one evaluation
with slopes bounds a plan for every hardware in the box, and better multipliers only raise the bound.

Source: [geoffrion1974]; see docs/optimisation.md, section 3.
"""

import numpy as np
from jaxtyping import Float

HOPELESS = np.inf
"""Lower bound of a plan that breaks a constraint everywhere in the box."""
LARGEST = 1e6  # multiplier tried
PART = 1024  # plans worked on at once, so that a step's arrays stay in the cache


def least_over_cube(affine: Float[np.ndarray, "*some coefficients"]) -> Float[np.ndarray, "*some"]:
    """Least value of a + b . u over the unit cube: a + sum of min(0, b_j)."""
    return affine[..., 0] + np.minimum(affine[..., 1:], 0.0).sum(axis=-1)


def dual_value(
    affine: Float[np.ndarray, "plans rows coefficients"], multipliers: Float[np.ndarray, "plans rows"]
) -> Float[np.ndarray, " plans"]:
    """Bound with these multipliers, that of the goal (row 0) being 1."""
    return least_over_cube(np.einsum("pr,prv->pv", multipliers, affine))


def least_of_rows(affine: Float[np.ndarray, "plans rows coefficients"]) -> Float[np.ndarray, "plans rows"]:
    """Least value of every constraint's tangent over the whole cube; the goal's place says that it may be anything.

    A plan with one that is positive breaks that constraint everywhere.
    """
    least = least_over_cube(affine)
    least[:, 0] = -np.inf
    return least


def dual_ascent(
    affine: Float[np.ndarray, "plans rows coefficients"],
    start: Float[np.ndarray, "plans rows"],
    sweeps: int = 2,
) -> tuple[Float[np.ndarray, " plans"], Float[np.ndarray, "plans rows"]]:
    """(bound, multipliers) after raising one multiplier after the other to its best value, from `start`."""
    limits = np.full(affine.shape[1] - 1, np.inf)
    bound, multipliers = np.empty(len(affine)), np.ones(affine.shape[:2])
    for first in range(0, len(affine), PART):
        part = slice(first, first + PART)
        rows = np.ascontiguousarray(affine[part].transpose(1, 2, 0))
        bound[part], weights = _ascend(rows[0], rows[1:], start[part, 1:].T, limits, sweeps)
        multipliers[part, 1:] = weights.T
    return np.where(least_of_rows(affine).max(axis=1) > 0, HOPELESS, bound), multipliers


def dual_ascent_of_two(
    first: Float[np.ndarray, "plans rows coefficients"],
    second: Float[np.ndarray, "plans rows coefficients"],
    start: Float[np.ndarray, "plans rows"],
    sweeps: int = 2,
) -> tuple[Float[np.ndarray, " plans"], Float[np.ndarray, "plans 2 rows"]]:
    """(bound, multipliers) from two tangents of every row: any mean of the goal's two, multipliers for all constraints.

    `start` are multipliers of the second.
    """
    rows = first.shape[1]
    limits = np.concatenate([[1.0], np.full(2 * rows - 2, np.inf)])
    bound, multipliers = np.empty(len(first)), np.empty((len(first), 2, rows))
    for begin in range(0, len(first), PART):
        part = slice(begin, begin + PART)
        a, b = (np.ascontiguousarray(each[part].transpose(1, 2, 0)) for each in (first, second))
        directions = np.concatenate([(a[0] - b[0])[None], b[1:], a[1:]])
        weights = np.concatenate([np.zeros((1, b.shape[2])), start[part, 1:].T, np.zeros((rows - 1, b.shape[2]))])
        bound[part], weights = _ascend(b[0], directions, weights, limits, sweeps)
        multipliers[part, 0, 0], multipliers[part, 1, 0] = weights[0], 1.0 - weights[0]
        multipliers[part, 1, 1:], multipliers[part, 0, 1:] = weights[1:rows].T, weights[rows:].T
    return bound, multipliers


def _ascend(
    goal: Float[np.ndarray, "coefficients plans"],
    directions: Float[np.ndarray, "weights coefficients plans"],
    start: Float[np.ndarray, "weights plans"],
    limits: Float[np.ndarray, " weights"],
    sweeps: int,
) -> tuple[Float[np.ndarray, " plans"], Float[np.ndarray, "weights plans"]]:
    """Coordinate ascent of min over the cube of goal + sum of weighted directions, weights between 0 and limits."""
    weights = np.array(start)
    total = goal + np.einsum("kp,kcp->cp", weights, directions)
    for _ in range(sweeps):
        for k, direction in enumerate(directions):
            rest = total - weights[k] * direction
            weights[k] = _best_weight(rest, direction, limits[k])
            total = rest + weights[k] * direction
    return total[0] + np.minimum(total[1:], 0.0).sum(axis=0), weights


def _best_weight(rest: np.ndarray, direction: np.ndarray, limit: float) -> np.ndarray:
    """Weight along a direction at which the bound, concave and piecewise linear, is largest.

    That is 0, the limit, or one of the places where a slope of the total changes sign.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        turns = -rest[1:] / direction[1:]
    turns = np.where((turns > 0) & (turns < min(limit, LARGEST)), turns, 0.0)
    ends = [0.0] if np.isinf(limit) else [0.0, limit]
    turns = np.concatenate([turns, np.broadcast_to(np.array(ends)[:, None], (len(ends), turns.shape[1]))])
    slopes = np.minimum(rest[1:, None] + turns * direction[1:, None], 0.0).sum(axis=0)
    values = rest[0] + turns * direction[0] + slopes
    return np.take_along_axis(turns, values.argmax(axis=0)[None], axis=0)[0]
