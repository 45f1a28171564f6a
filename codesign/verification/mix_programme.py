"""Tuples of plans on common hardware as a linear programme: shares of plans, their tangents, the blend's, in a box.

A plan with share x has hardware z = x u and goal t; its tangents c + b . u <= goal become c x + b . z <= t. Shares of a
workload add to 1 and its hardware is that of the others. Whole shares are tuples; fractions give multipliers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for
from jaxtyping import Float, Int

from .goals_blended import CheckedBlend

PRECISE = 1e-7  # log by which tangents of the blend differ to be two
SECONDS = 120.0  # of a mixed-integer solver: what it has proven by then counts
PRICE = 1e3  # of a unit of violation: more than any multiplier of a limit that matters


@dataclass(frozen=True)
class Cuts:
    """Tangents of the plans that are left of one workload, of all rows, the goal's first.

    plan: of each, from 0; value, slope: of each row where it was linearised, at u.
    """

    count: int
    plan: Int[np.ndarray, " cuts"]
    u: Float[np.ndarray, "cuts variables"]
    value: Float[np.ndarray, "cuts rows"]
    slope: Float[np.ndarray, "cuts rows variables"]

    @property
    def constant(self) -> Float[np.ndarray, "cuts rows"]:
        """Values at the corner where all coordinates are 0."""
        return self.value - np.einsum("crv,cv->cr", self.slope, self.u)


@dataclass(frozen=True)
class Region:
    """A box of hardware and the plans of each workload that may be in a tuple below the target there."""

    low: Float[np.ndarray, " variables"]
    high: Float[np.ndarray, " variables"]
    plans: list[np.ndarray]

    @property
    def tuples(self) -> float:
        """Number of tuples of plans, one a workload."""
        return float(np.prod([float(len(mine)) for mine in self.plans]))


@dataclass(frozen=True)
class _Linear:
    """upper x <= right, equal x = sides; the workload of each plan."""

    upper: scipy.sparse.csr_array
    right: np.ndarray
    equal: scipy.sparse.csr_array
    sides: np.ndarray
    owner: np.ndarray


@dataclass(frozen=True)
class SolvedTuples:
    """Solution of a relaxed programme: multipliers, and where its plans want the hardware to be."""

    goal: np.ndarray  # of all goal rows, in their order
    limit: np.ndarray
    blend: np.ndarray
    slopes: np.ndarray
    shares: np.ndarray
    places: np.ndarray  # shares times coordinates
    owner: np.ndarray  # workload of each plan
    logs: np.ndarray  # goals of the workloads
    value: float  # of the blend


class TupleProgramme:
    """Linear programmes over shares x, hardware z = x u and goals t = x goal of plans, and the blended goal."""

    def __init__(self, cuts: Sequence[Cuts], blend: CheckedBlend, points: np.ndarray):
        self.cuts, self.blend, self.constants = cuts, blend, [each.constant for each in cuts]
        self.points = np.zeros((0, len(cuts)))
        self.weights, self.offset = np.zeros((0, len(cuts))), np.zeros(0)
        for point in points:
            self.linearise(point)

    def linearise(self, point: np.ndarray) -> bool:
        """One more tangent of the blend, if it is another."""
        value, slope = self.blend.tangent(point)
        constant = value - float(slope @ point)
        known = np.abs(self.weights - slope).max(axis=1, initial=0.0) + np.abs(self.offset - constant)
        if len(known) and known.min() < PRECISE:
            return False
        self.points = np.concatenate([self.points, point[None]])
        self.weights, self.offset = np.concatenate([self.weights, slope[None]]), np.append(self.offset, constant)
        return True

    def rows(self, region: Region) -> tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]], list[np.ndarray]]:
        """Rows of each workload: cuts of its plans, (cut, row) of limits that may bind in it, place of each plan."""
        own, binding, place = list[np.ndarray](), list[tuple[np.ndarray, np.ndarray]](), list[np.ndarray]()
        for each, constant, mine in zip(self.cuts, self.constants, region.plans, strict=True):
            where = np.full(each.count, -1)
            where[mine] = np.arange(len(mine))
            kept = np.flatnonzero(where[each.plan] >= 0)
            slope = each.slope[kept, 1:]
            most = constant[kept, 1:] + np.maximum(slope * region.low, slope * region.high).sum(axis=-1)
            cut, row = np.nonzero(most > 0)
            own.append(kept)
            binding.append((kept[cut], 1 + row))
            place.append(where)
        return own, binding, place

    def _build(self, region: Region) -> _Linear:
        """Columns: x, z, t of all plans, then the slack of limits and the blended goal R."""
        sizes = [len(mine) for mine in region.plans]
        first, total, n = np.concatenate([[0], np.cumsum(sizes)]), sum(sizes), len(region.low)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        width = total * (n + 2) + 2
        own, binding, place = self.rows(region)
        goals, limits = (list[tuple[np.ndarray, np.ndarray, np.ndarray]]() for _ in range(2))
        for k, each in enumerate(self.cuts):
            plan = first[k] + place[k][each.plan[own[k]]]
            goals.append((self.constants[k][own[k], 0], each.slope[own[k], 0], plan))
            cut, row = binding[k]
            limits.append((self.constants[k][cut, row], each.slope[cut, row], first[k] + place[k][each.plan[cut]]))
        blocks = [_of_plans(goals, total, n, goal=True), _of_plans(limits, total, n, goal=False)]
        x, z = np.repeat(np.arange(total), n), total + np.arange(total * n)
        row, one = np.arange(total * n), np.ones(total * n)
        for sign, edge in ((1.0, region.high), (-1.0, region.low)):
            data = np.concatenate([sign * one, -sign * np.tile(edge, total)])
            blocks.append(_matrix(data, np.tile(row, 2), np.concatenate([z, x]), (total * n, width)))
        t = total * (n + 1) + np.arange(total)
        count = len(self.weights)
        data = np.concatenate([self.weights[:, owner].ravel(), -np.ones(count)])
        rows = np.concatenate([np.repeat(np.arange(count), total), np.arange(count)])
        columns = np.concatenate([np.tile(t, count), np.full(count, width - 1)])
        blocks.append(_matrix(data, rows, columns, (count, width)))
        sizes = [len(plan) for parts in (goals, limits) for _, _, plan in parts]
        right = np.concatenate([np.zeros(sum(sizes) + 2 * total * n), -self.offset])
        upper = scipy.sparse.csr_array(scipy.sparse.vstack(blocks, format="csr"))
        return _Linear(upper, right, *self._equal(owner, n, width), owner)

    def _equal(self, owner: np.ndarray, n: int, width: int) -> tuple[scipy.sparse.csr_array, np.ndarray]:
        """Shares of a workload add to 1; its hardware is that of the first."""
        count, total = len(self.cuts), len(owner)
        data, rows, columns = [np.ones(total)], [owner], [np.arange(total)]
        for i in range(n):
            z = total + n * np.arange(total) + i
            for k in range(1, count):
                for sign, whose in ((1.0, k), (-1.0, 0)):
                    mine = z[owner == whose]
                    data.append(np.full(len(mine), sign))
                    rows.append(np.full(len(mine), count + n * (k - 1) + i))
                    columns.append(mine)
        shape = count + n * (count - 1), width
        matrix = _matrix(np.concatenate(data), np.concatenate(rows), np.concatenate(columns), shape)
        return matrix, np.concatenate([np.ones(count), np.zeros(n * (count - 1))])

    def _edges(self, total: int, n: int, slack: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Least and largest values of the columns, and what is minimised; limits may give way by `slack`."""
        width = total * (n + 2) + 2
        low, high, cost = np.full(width, -np.inf), np.full(width, np.inf), np.zeros(width)
        low[: total * (n + 1)], high[: total * (n + 1)] = 0.0, 1.0
        low[-2], high[-2], cost[-2:] = 0.0, slack, (PRICE, 1.0)
        return low, high, cost

    def relaxed(self, region: Region) -> SolvedTuples | None:
        """Over continuous shares; None where it gave no multipliers."""
        made = self._build(region)
        owner, total, n, count = made.owner, len(made.owner), len(region.low), len(self.cuts)
        low, high, cost = self._edges(total, n, np.inf)
        edges = np.stack([low, high], axis=-1)
        result = scipy.optimize.linprog(cost, made.upper, made.right, made.equal, made.sides, edges, method="highs")
        if result.x is None or result.status != 0:
            return None
        multipliers = np.maximum(-result.ineqlin.marginals, 0.0)
        own, binding, _ = self.rows(region)
        goals, limits = sum(map(len, own)), sum(len(cut) for cut, _ in binding)
        other = -result.eqlin.marginals[count:].reshape(count - 1, n)
        return SolvedTuples(
            multipliers[:goals], multipliers[goals : goals + limits], multipliers[-len(self.weights) :],
            np.concatenate([-other.sum(axis=0)[None], other]),
            result.x[:total], result.x[total : total * (n + 1)].reshape(total, n), owner,
            np.bincount(owner, result.x[total * (n + 1) : total * (n + 2)], minlength=count), float(result.x[-1]),
        )  # fmt: skip

    def whole(self, region: Region) -> float:
        """The least over whole shares, as a mixed-integer solver has it."""
        made = self._build(region)
        low, high, cost = self._edges(len(made.owner), len(region.low), 0.0)
        whole = (np.arange(len(cost)) < len(made.owner)).astype(int)
        result = scipy.optimize.milp(
            cost, integrality=whole, bounds=scipy.optimize.Bounds(low, high),
            constraints=[
                scipy.optimize.LinearConstraint(made.upper, -np.inf, made.right),
                scipy.optimize.LinearConstraint(made.equal, made.sides, made.sides),
            ],
            options={"time_limit": SECONDS},
        )  # fmt: skip
        if result.status == 2:
            return np.inf
        return -np.inf if result.mip_dual_bound is None else float(result.mip_dual_bound)


def _matrix(data: np.ndarray, rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((data, (rows, columns)), shape=shape)


def _of_plans(
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]], total: int, n: int, *, goal: bool
) -> scipy.sparse.csr_array:
    """Rows `constant x + slope . z <= t` of goals, `<= slack` of limits."""
    constant, slope, plan = (np.concatenate(each) for each in zip(*parts, strict=True))
    width = total * (n + 2) + 2
    rows = np.arange(len(plan))
    data, row = [constant, slope.ravel()], [rows, np.repeat(rows, n)]
    column = [plan, (total + n * plan[:, None] + np.arange(n)).ravel()]
    data, row = [*data, -np.ones(len(plan))], [*row, rows]
    column = [*column, total * (n + 1) + plan if goal else np.full(len(plan), total * (n + 2))]
    return _matrix(np.concatenate(data), np.concatenate(row), np.concatenate(column), (len(plan), width))
