"""A primal-dual interior-point method for many small linear programmes at once, and the bounds its duals give.

The programme of one plan, over u in the unit cube, s >= 0 and r, from tangents a + b u of the rows:

    minimise r + elastic s   with   a + b u <= r for tangents of the goal,   a + b u <= s for those of constraints

Any non-negative multipliers give a lower bound on the goal of every feasible design, however badly the programme was
solved: the weighted sum of tangents, minimised over the cube.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float

ELASTIC = 64.0
"""First price of a unit of log-violation. It must exceed the sum of the multipliers for the violation to vanish: that
of a plan is raised where it does not."""
SMALLEST_PART = 96  # programmes that are worth a thread
EMPTY = -1e3  # intercept of a tangent that says nothing


@dataclass(frozen=True)
class Solved:
    """Solutions of a batch of programmes.

    edge: where the tangents are lowest; central: a point inside, where the next tangents are worth most; violation: s;
    weights: one multiplier for each tangent of each row, those of the goal (row 0) adding to 1; lower: the bound.
    """

    edge: Float[np.ndarray, "lanes variables"]
    central: Float[np.ndarray, "lanes variables"]
    violation: Float[np.ndarray, " lanes"]
    weights: Float[np.ndarray, "lanes tangents rows"]
    lower: Float[np.ndarray, " lanes"]


def lower_bound(
    affine: Float[np.ndarray, "lanes tangents rows coefficients"], weights: Float[np.ndarray, "lanes tangents rows"]
) -> Float[np.ndarray, " lanes"]:
    """min over the cube of the weighted sum of tangents."""
    total = np.einsum("ltr,ltrv->lv", weights, affine)
    return total[:, 0] + np.minimum(total[:, 1:], 0.0).sum(axis=1)


def _programme(affine: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(G, h, start) of min c z with G z <= h, z = (u, s, r): tangents, faces of the cube, s >= 0; a z inside."""
    lanes, count, rows, width = affine.shape
    n, tangents = width - 1, count * rows
    flat, goal = affine.reshape(lanes, tangents, width), np.arange(tangents) % rows == 0
    G, h = np.zeros((lanes, tangents + 2 * n + 1, n + 2)), np.zeros((lanes, tangents + 2 * n + 1))
    G[:, :tangents, :n] = flat[..., 1:]
    G[:, :tangents, n], G[:, :tangents, n + 1] = np.where(goal, 0.0, -1.0), np.where(goal, -1.0, 0.0)
    h[:, :tangents] = -flat[..., 0]
    G[:, tangents:-1, :n] = np.concatenate([np.eye(n), -np.eye(n)])
    h[:, tangents : tangents + n] = 1.0
    G[:, -1, n] = -1.0
    middle = flat[..., 0] + 0.5 * flat[..., 1:].sum(axis=-1)
    s = np.maximum(np.where(goal, -np.inf, middle).max(axis=1), 0.0) + 0.5
    r = np.where(goal, middle, -np.inf).max(axis=1) + 0.5
    return G, h, np.concatenate([np.full((lanes, n), 0.5), s[:, None], r[:, None]], axis=1)


def _longest(value: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Longest step up to 1 that keeps every entry positive, with a margin; one column."""
    with np.errstate(divide="ignore", invalid="ignore"):
        limit = np.where(change < 0, -value / change, np.inf)
    return np.minimum(1.0, 0.99 * limit.min(axis=1))[:, None]


def _direction(
    G: np.ndarray, inverse: np.ndarray, residual: np.ndarray, w: np.ndarray, v: np.ndarray, rc: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Changes of z, w and v that make w v change by `rc`; a function of its own, so that tests check it once."""
    rhs = -residual - np.matmul((rc / w)[:, None], G)[:, 0]
    dz = np.matmul(inverse, rhs[..., None])[..., 0]
    moved = np.matmul(G, dz[..., None])[..., 0]
    return dz, -moved, (rc + v * moved) / w


def _newton(G: np.ndarray, w: np.ndarray, v: np.ndarray, residual: np.ndarray) -> tuple[np.ndarray, ...]:
    """Mehrotra's predictor and corrector: changes of z and v."""
    GT = G.transpose(0, 2, 1)
    normal = np.matmul(GT * (v / w)[:, None, :], G)
    scale = np.maximum(np.einsum("lvv->lv", normal), 1e-30) ** -0.5
    normal = normal * scale[:, :, None] * scale[:, None, :] + 1e-12 * np.eye(G.shape[2])
    inverse = np.linalg.inv(normal) * scale[:, :, None] * scale[:, None, :]

    mu = (w * v).mean(axis=1)
    _, dw, dv = _direction(G, inverse, residual, w, v, -w * v)
    after = ((w + _longest(w, dw) * dw) * (v + _longest(v, dv) * dv)).mean(axis=1)
    centring = np.clip(after / mu, 0.0, 1.0) ** 3
    return _direction(G, inverse, residual, w, v, (centring * mu)[:, None] - w * v - dw * dv)


def solve(
    affine: Float[np.ndarray, "lanes tangents rows coefficients"],
    spread: Float[np.ndarray, " lanes"],
    tolerance: Float[np.ndarray, " lanes"],
    enough: float = np.inf,
    elastic: Float[np.ndarray, " lanes"] | float = ELASTIC,
    threads: int = 2,
) -> Solved:
    """Solve the programme of every lane by Mehrotra's predictor and corrector.

    Args:
        affine: tangents, the goal's in row 0; an intercept of `EMPTY` says nothing and pads.
        spread: duality gap at which the central point of a lane is taken; large keeps it far from the edges.
        tolerance: duality gap at which a lane is done.
        enough: bound at which a lane is done as well.
        elastic: price of a unit of violation.
        threads: parts of the batch solved side by side.
    """
    parts = min(threads, -(-len(affine) // SMALLEST_PART))
    price = np.broadcast_to(np.asarray(elastic, dtype=float), (len(affine),))
    if parts < 2:
        return _solve(affine, spread, tolerance, price, enough)
    pieces = zip(*(np.array_split(part, parts) for part in (affine, spread, tolerance, price)), strict=True)
    with ThreadPoolExecutor(parts) as pool:
        solved = list(pool.map(lambda piece: _solve(piece[0], piece[1], piece[2], piece[3], enough), pieces))
    return Solved(*(np.concatenate([getattr(part, f.name) for part in solved]) for f in fields(Solved)))


def _bound(affine: np.ndarray, v: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """`lower_bound` of flat tangents and multipliers that are not normalised yet."""
    total = np.matmul(v[:, None], affine)[:, 0] / np.maximum(v[:, goal].sum(axis=1), 1e-12)[:, None]
    return total[:, 0] + np.minimum(total[:, 1:], 0.0).sum(axis=1)


def _solve(
    affine: np.ndarray,
    spread: np.ndarray,
    tolerance: np.ndarray,
    price: np.ndarray,
    enough: float,
    iterations: int = 40,
) -> Solved:
    lanes, count, rows, width = affine.shape
    n, tangents = width - 1, count * rows
    cost = np.concatenate([np.zeros((lanes, n)), price[:, None], np.ones((lanes, 1))], axis=1)
    G, h, z = _programme(affine)
    w = h - np.matmul(G, z[..., None])[..., 0]
    v = 0.1 / w
    central, final_z, final_v = z.copy(), z.copy(), v.copy()
    active, flat, goal = np.arange(lanes), affine.reshape(lanes, tangents, width), np.arange(tangents) % rows == 0
    for step in range(iterations):
        gap = (w * v).sum(axis=1)
        outside = gap > spread[active]
        central[active[outside]] = z[outside]
        residual = cost[active] + np.matmul(v[:, None, :], G)[:, 0]
        final_z[active], final_v[active] = z, v
        going = (gap > tolerance[active]) | (np.abs(residual).max(axis=1) > tolerance[active])
        if step > 2 and enough < np.inf:
            going &= _bound(flat, v[:, :tangents], goal) < enough
        if not going.any():
            break
        if going.sum() < 0.8 * len(active):
            active, G, h, flat = active[going], G[going], h[going], flat[going]
            z, w, v, residual = z[going], w[going], v[going], residual[going]
        dz, dw, dv = _newton(G, w, v, residual)
        z, v = z + _longest(w, dw) * dz, v + _longest(v, dv) * dv
        w = np.maximum(h - np.matmul(G, z[..., None])[..., 0], 1e-14)
    weights = np.maximum(final_v[:, :tangents], 0.0).reshape(lanes, count, rows) * (affine[..., 0] > 0.5 * EMPTY)
    weights = weights / np.maximum(weights[:, :, 0].sum(axis=1), 1e-12)[:, None, None]
    edge, inside = np.clip(final_z[:, :n], 0.0, 1.0), np.clip(central[:, :n], 0.0, 1.0)
    return Solved(edge, inside, final_z[:, n], weights, lower_bound(affine, weights))
