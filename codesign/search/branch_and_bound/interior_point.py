"""A primal-dual interior-point method for many small linear programmes at once, and the bounds its duals give.

The programme of one plan, over u in the unit cube, s >= 0 and r, from tangents a + b u of the rows:

    minimise r + elastic s   with   a + b u <= r for tangents of the goal,   a + b u <= s for those of constraints

Any non-negative multipliers give a lower bound on the goal of every feasible design, however badly the programme was
solved: the weighted sum of tangents, minimised over the cube.

Source: [mehrotra1992]; see docs/optimisation.md, section 3.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from itertools import repeat

import numpy as np
from jaxtyping import Float

# Lower bounds of many plans at once from one or two tangents of every row: weak duality over the unit cube.
#
# For multipliers m >= 0 of the constraints, goal + sum m_i constraint_i is below the goal wherever the constraints
# hold, its tangent is below that, and the tangent's minimum over the cube is a sum of single terms. So one evaluation
# with slopes bounds a plan for every hardware in the box, and better multipliers only raise the bound.
#
# Source: [geoffrion1974]; see docs/optimisation.md, section 3.


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


ELASTIC = 64.0
"""First price of a unit of log-violation. It must exceed the sum of the multipliers for the violation to vanish: that
of a plan is raised where it does not."""
SMALLEST_PART = 192  # programmes that are worth a thread
FEW, SOME = 3, 64  # lanes up to which they are factored number by number, and all rows of a step together
EMPTY = -1e3  # intercept of a tangent that says nothing


@dataclass(frozen=True)
class SolutionBatch:
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
    return least_over_cube(np.einsum("ltr,ltrv->lv", weights, affine))


class _Programmes:
    """Tangents with the lanes along the last axis, so that every step is one array operation over all lanes.

    z = (u, s, r); the slacks are those of the tangents (the goal's first), the faces u <= 1 and u >= 0, and s >= 0.
    """

    def __init__(self, value: np.ndarray, slope: np.ndarray, goals: int):
        self.value, self.slope, self.goals = value, slope, goals
        self.tangents, self.n, _ = slope.shape

    @classmethod
    def of(cls, affine: np.ndarray) -> "_Programmes":
        """From [lanes, tangents, rows, coefficients]; the tangents of one row lie side by side."""
        lanes, count, rows, width = affine.shape
        flat = np.ascontiguousarray(affine.transpose(2, 1, 3, 0).reshape(count * rows, width, lanes))
        return cls(flat[:, 0].copy(), flat[:, 1:].copy(), count)

    def of_lanes(self, lanes: np.ndarray) -> "_Programmes":
        """Only these lanes."""
        return _Programmes(self.value[:, lanes], self.slope[:, :, lanes], self.goals)

    def start(self) -> np.ndarray:
        """A z inside."""
        middle = self.value + 0.5 * self.slope.sum(axis=1)
        z = np.full((self.n + 2, self.value.shape[1]), 0.5)
        z[-2] = np.maximum(middle[self.goals :].max(axis=0, initial=-np.inf), 0.0) + 0.5
        z[-1] = middle[: self.goals].max(axis=0) + 0.5
        return z

    def times(self, z: np.ndarray) -> np.ndarray:
        """Change of the left-hand sides with z."""
        n, m = self.n, self.tangents
        result = np.empty((m + 2 * n + 1, z.shape[1]))
        np.einsum("tnl,nl->tl", self.slope, z[:n], out=result[:m])
        result[: self.goals] -= z[-1]
        result[self.goals : m] -= z[-2]
        result[m : m + n], result[m + n : -1], result[-1] = z[:n], -z[:n], -z[-2]
        return result

    def slack(self, z: np.ndarray) -> np.ndarray:
        """Slack of every constraint."""
        n, m = self.n, self.tangents
        left = -self.times(z)
        left[:m] -= self.value
        left[m : m + n] += 1.0
        return left

    def weighted(self, v: np.ndarray) -> np.ndarray:
        """Sum of the constraints' gradients with these weights."""
        n, m = self.n, self.tangents
        result = np.empty((n + 2, v.shape[1]))
        np.einsum("tnl,tl->nl", self.slope, v[:m], out=result[:n])
        result[:n] += v[m : m + n] - v[m + n : -1]
        result[-2], result[-1] = -v[self.goals : m].sum(axis=0) - v[-1], -v[: self.goals].sum(axis=0)
        return result

    def normal(self, d: np.ndarray) -> np.ndarray:
        """Sum of the squares of the gradients with these weights, below the diagonal."""
        n, m = self.n, self.tangents
        result = np.zeros((n + 2, n + 2, d.shape[1]))
        scaled = self.slope * d[:m, None]
        for i in range(n):
            np.einsum("tl,tjl->jl", scaled[:, i], self.slope[:, : i + 1], out=result[i, : i + 1])
            result[i, i] += d[m + i] + d[m + n + i]
        result[-2, :n], result[-2, -2] = -scaled[self.goals :].sum(axis=0), d[self.goals : m].sum(axis=0) + d[-1]
        result[-1, :n], result[-1, -1] = -scaled[: self.goals].sum(axis=0), d[: self.goals].sum(axis=0)
        return result

    def bound(self, v: np.ndarray) -> np.ndarray:
        """`lower_bound` of multipliers that are not normalised yet."""
        slope = np.einsum("tnl,tl->nl", self.slope, v[: self.tangents])
        value = (self.value * v[: self.tangents]).sum(axis=0) + np.minimum(slope, 0.0).sum(axis=0)
        return value / np.maximum(v[: self.goals].sum(axis=0), 1e-12)


def _longest(value: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Longest step up to 1 that keeps every entry positive, with a margin."""
    return np.minimum(1.0, 0.99 / np.maximum(-np.minimum.reduce(change / value), 1e-30))


class _Factor:
    """Cholesky's factor of the normal matrix of every lane, scaled to a diagonal of ones.

    Of few lanes a call of NumPy costs more than the arithmetic: these are done number by number, of some more lanes all
    rows of a step together. All three ways do the same to each number, in the same order.
    """

    def __init__(self, normal: np.ndarray):
        self.scale = np.maximum(np.einsum("iil->il", normal), 1e-30) ** -0.5
        low = normal * self.scale[:, None] * self.scale[None]
        self.one_by_one = [_OneLane(one) for one in low.transpose(2, 0, 1).tolist()] if low.shape[2] <= FEW else []
        if self.one_by_one:
            return
        for j in range(len(low)):
            low[j, j] = np.maximum(low[j, j] + 1e-12, 1e-14) ** -0.5  # the inverse of the diagonal is kept
            low[j + 1 :, j] *= low[j, j]
            if low.shape[2] <= SOME:
                below = low[j + 1 :, j]
                low[j + 1 :, j + 1 :] -= below[:, None] * below[None]
                continue
            for i in range(j + 1, len(low)):
                low[i, j + 1 : i + 1] -= low[i, j] * low[j + 1 : i + 1, j]
        self.steps = [(low[j, j], low[j + 1 :, j], low[j, :j]) for j in range(len(low))]

    def solve(self, right: np.ndarray) -> np.ndarray:
        """x with normal x = right."""
        x = right * self.scale
        if self.one_by_one:
            result = [one.solve(column) for one, column in zip(self.one_by_one, x.T.tolist(), strict=True)]
            return np.array(result).T * self.scale
        for j, (inverse, below, _) in enumerate(self.steps):
            x[j] *= inverse
            x[j + 1 :] -= below * x[j]
        for j in range(len(x) - 1, -1, -1):
            inverse, _, before = self.steps[j]
            x[j] *= inverse
            x[:j] -= before * x[j]
        return x * self.scale


class _OneLane:
    """The factor of one lane in plain numbers; the inverse of the diagonal is kept."""

    def __init__(self, low: list[list[float]]):
        for i, row in enumerate(low):
            for j in range(i):
                number, other = row[j], low[j]
                for k in range(j):
                    number -= row[k] * other[k]
                row[j] = number * other[j]
            number = row[i]
            for k in range(i):
                number -= row[k] * row[k]
            row[i] = float(np.power(max(number + 1e-12, 1e-14), -0.5))
        self.low = low
        self.high = [[low[j][i] for j in range(len(low) - 1, i, -1)] for i in range(len(low))]

    def solve(self, x: list[float]) -> list[float]:
        """Forward, then back."""
        for i, row in enumerate(self.low):
            number = x[i]
            for k in range(i):
                number -= row[k] * x[k]
            x[i] = number * row[i]
        for i in range(len(x) - 1, -1, -1):
            number = x[i]
            for entry, other in zip(self.high[i], reversed(x), strict=False):
                number -= entry * other
            x[i] = number * self.low[i][i]
        return x


def _direction(
    programmes: _Programmes, factor: _Factor, residual: np.ndarray, w: np.ndarray, v: np.ndarray, rc: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Changes of z, w and v that make w v change by `rc`."""
    dz = factor.solve(-residual - programmes.weighted(rc / w))
    moved = programmes.times(dz)
    return dz, -moved, (rc + v * moved) / w


def _newton(
    programmes: _Programmes, w: np.ndarray, v: np.ndarray, product: np.ndarray, residual: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Mehrotra's predictor and corrector: changes of z, w and v; `product` is w v."""
    factor = _Factor(programmes.normal(v / w))
    mu = np.add.reduce(product) / len(w)
    _, dw, dv = _direction(programmes, factor, residual, w, v, -product)
    after = np.add.reduce((w + _longest(w, dw) * dw) * (v + _longest(v, dv) * dv)) / len(w)
    centring = np.clip(after / mu, 0.0, 1.0) ** 3
    return _direction(programmes, factor, residual, w, v, centring * mu - product - dw * dv)


def solve(
    affine: Float[np.ndarray, "lanes tangents rows coefficients"],
    spread: Float[np.ndarray, " lanes"],
    tolerance: Float[np.ndarray, " lanes"],
    enough: float = np.inf,
    elastic: Float[np.ndarray, " lanes"] | float = ELASTIC,
    threads: int = 2,
) -> SolutionBatch:
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
    pieces = [np.array_split(part, parts) for part in (affine, spread, tolerance, price)]
    with ThreadPoolExecutor(parts) as pool:
        solved = list(pool.map(_solve, *pieces, repeat(enough)))
    return SolutionBatch(*(np.concatenate([getattr(part, f.name) for part in solved]) for f in fields(SolutionBatch)))


def _solve(
    affine: np.ndarray,
    spread: np.ndarray,
    tolerance: np.ndarray,
    price: np.ndarray,
    enough: float,
    iterations: int = 40,
) -> SolutionBatch:
    lanes, count, rows, width = affine.shape
    n, tangents, left = width - 1, count * rows, _Programmes.of(affine)
    z = left.start()
    cost = np.zeros_like(z)
    cost[-2], cost[-1] = price, 1.0
    w, v = left.slack(z), np.empty((tangents + 2 * n + 1, lanes))
    v[:] = 0.1 / w
    v[-1] = np.maximum(price - v[count:tangents].sum(axis=0), v[-1])  # a dear violation starts with its price
    central, final_z, final_v = z.copy(), z.copy(), v.copy()
    active = np.arange(len(affine))
    last = (active, z, v)
    for step in range(iterations):
        product = w * v
        gap = np.add.reduce(product)
        outside = gap > spread
        central[:, active[outside]] = z[:, outside]
        residual = cost + left.weighted(v)
        last = (active, z, v)
        going = (gap > tolerance) | (np.maximum.reduce(np.abs(residual)) > tolerance)
        if step > 2 and enough < np.inf:
            going &= left.bound(v) < enough
        if not going.any():
            break
        if going.sum() < 0.8 * len(active):
            final_z[:, active], final_v[:, active] = z, v
            active, left = active[going], left.of_lanes(going)
            z, w, v, product = z[:, going], w[:, going], v[:, going], product[:, going]
            residual, cost, spread, tolerance = residual[:, going], cost[:, going], spread[going], tolerance[going]
            last = (active, z, v)
        dz, dw, dv = _newton(left, w, v, product, residual)
        z, v = z + _longest(w, dw) * dz, v + _longest(v, dv) * dv
        w = np.maximum(left.slack(z), 1e-14)
    final_z[:, last[0]], final_v[:, last[0]] = last[1], last[2]
    weights = np.maximum(final_v[:tangents], 0.0).reshape(rows, count, lanes).transpose(2, 1, 0)
    weights = weights * (affine[..., 0] > 0.5 * EMPTY)
    weights = weights / np.maximum(weights[:, :, 0].sum(axis=1), 1e-12)[:, None, None]
    edge, inside = (np.clip(result[:n].T, 0.0, 1.0) for result in (final_z, central))
    return SolutionBatch(edge, inside, final_z[-2].copy(), weights, lower_bound(affine, weights))
