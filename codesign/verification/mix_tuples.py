"""Tuples that rounds of duals leave: bounded box by box of hardware, every bound by multipliers checked here.

A linear programme over shares of the plans left, their tangents and the blend's, gives multipliers; what they prove is
worked out anew, as of a round of duals. A part that they do not prove is cut in two where its plans want different
hardware, or, where few tuples are left, taken tuple by tuple. So the solver's word is not needed, only its proposals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize, sparse

from .blend import Blend
from .inequality import UNIT, summed
from .mix_bound import constants, sum_below
from .mix_certificate import Duals

MOST_PARTS = 600  # boxes and tuples, after which a mixed-integer solver is asked
FEW = 24  # tuples that are taken one by one
LEAST_SIDE = 0.1  # of a box: how near to its edge it may be cut
BLENDED = 6  # rounds in which the blend is linearised once more where a programme has its solution
PRECISE = 1e-7  # log by which the blend may lie above its tangents there
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
        """How many."""
        return float(np.prod([float(len(mine)) for mine in self.plans]))


@dataclass(frozen=True)
class Found:
    """What came of it: `bound` no tuple lies below; parts that were bounded; whether a solver's word is in it."""

    bound: float
    parts: int
    trusted: bool = False


def bounded(
    cuts: Sequence[Cuts],
    blend: Blend,
    points: Float[np.ndarray, "points workloads"],
    target: float,
    told: Callable[[int, int], None],
    most: int = MOST_PARTS,
) -> Found:
    """Whether no tuple lies below the target; else the bound that a mixed-integer solver says.

    Args:
        cuts: of each workload.
        blend: of their goals.
        points: logs of goals at which the blend is linearised at first.
        target: log that no tuple should lie below.
        told: hears how many parts are done.
        most: parts.
    """
    width, done = cuts[0].u.shape[1], 0
    start = Region(np.zeros(width), np.ones(width), [np.arange(each.count) for each in cuts])
    waiting, programme = [start], _Programme(cuts, blend, points)
    while waiting:
        region = waiting.pop()
        told(done, done + len(waiting) + 1)
        bound, region, solved = programme.proven(region, target)
        done += 1
        if bound >= target:
            continue
        if done >= most or region.tuples == 1:
            return Found(programme.whole(start), done, trusted=True)
        waiting += _split(region, solved)
    return Found(target, done)


@dataclass(frozen=True)
class _Solved:
    """Of a relaxed programme: multipliers, and where its plans want the hardware to be."""

    goal: np.ndarray  # of all goal rows, in their order
    limit: np.ndarray
    blend: np.ndarray
    slopes: np.ndarray
    shares: np.ndarray
    places: np.ndarray  # shares times coordinates
    owner: np.ndarray  # workload of each plan
    logs: np.ndarray  # goals of the workloads
    value: float  # of the blend


class _Programme:
    """Linear programmes over shares x, hardware z = x u and goals t = x goal of plans, and the blended goal."""

    def __init__(self, cuts: Sequence[Cuts], blend: Blend, points: np.ndarray):
        self.cuts, self.blend, self.constants = cuts, blend, [each.constant for each in cuts]
        self.points = np.zeros((0, len(cuts)))
        self.weights, self.offset = np.zeros((0, len(cuts))), np.zeros(0)
        for point in points:
            self._linearise(point)

    def _linearise(self, point: np.ndarray) -> bool:
        """One more tangent of the blend, if it is another."""
        value, slope = self.blend.tangent(point)
        constant = value - float(slope @ point)
        known = np.abs(self.weights - slope).max(axis=1, initial=0.0) + np.abs(self.offset - constant)
        if len(known) and known.min() < PRECISE:
            return False
        self.points = np.concatenate([self.points, point[None]])
        self.weights, self.offset = np.concatenate([self.weights, slope[None]]), np.append(self.offset, constant)
        return True

    def proven(self, region: Region, target: float) -> tuple[float, Region, "_Solved | None"]:
        """(a bound of the region's tuples, the region without plans whose tuples reach the target, the programme)."""
        bound, solved = -np.inf, None
        for _ in range(BLENDED):
            solved = self.relaxed(region)
            if solved is None:
                break
            bound, region = _checked(self, solved, region, target)
            off = self.blend.tangent(solved.logs)[0] - solved.value
            if bound >= target or off < PRECISE or not self._linearise(solved.logs):
                break
        return bound, region, solved

    def rows(self, region: Region) -> tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]], list[np.ndarray]]:
        """Of each workload: cuts of its plans, (cut, row) of limits that may bind in the box, place of each plan."""
        own, binding, place = [], [], []
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

    def build(self, region: Region) -> tuple[sparse.csr_array, np.ndarray, sparse.csr_array, np.ndarray, np.ndarray]:
        """(inequalities, their right side, equalities, their right side, workload of each plan)."""
        sizes = [len(mine) for mine in region.plans]
        first, total, n = np.concatenate([[0], np.cumsum(sizes)]), sum(sizes), len(region.low)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        width = total * (n + 2) + 2
        own, binding, place = self.rows(region)
        goals, limits = [], []
        for k, each in enumerate(self.cuts):
            plan = first[k] + place[k][each.plan[own[k]]]
            goals.append((self.constants[k][own[k], 0], each.slope[own[k], 0], plan))
            cut, row = binding[k]
            limits.append((self.constants[k][cut, row], each.slope[cut, row], first[k] + place[k][each.plan[cut]]))
        blocks = [_of_plans(goals, total, n, goal=True), _of_plans(limits, total, n, goal=False)]  # behind t: slack, R
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
        upper = sparse.vstack(blocks, format="csr")
        right = np.zeros(upper.shape[0])
        right[-count:] = -self.offset
        return upper, right, *self._equal(owner, n, width), owner

    def _equal(self, owner: np.ndarray, n: int, width: int) -> tuple[sparse.csr_array, np.ndarray]:
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

    def _edges(self, total: int, n: int, width: int, slack: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Least and largest values of the columns, and what is minimised; limits may give way by `slack`."""
        low, high, cost = np.full(width, -np.inf), np.full(width, np.inf), np.zeros(width)
        low[: total * (n + 1)], high[: total * (n + 1)] = 0.0, 1.0
        low[-2], high[-2], cost[-2:] = 0.0, slack, (PRICE, 1.0)
        return low, high, cost

    def relaxed(self, region: Region) -> _Solved | None:
        """Over continuous shares; None where it gave no multipliers."""
        upper, right, equal, sides, owner = self.build(region)
        total, n, count = len(owner), len(region.low), len(self.cuts)
        low, high, cost = self._edges(total, n, upper.shape[1], np.inf)
        found = optimize.linprog(cost, upper, right, equal, sides, np.stack([low, high], axis=-1), method="highs")
        if found.x is None or found.status != 0:
            return None
        multipliers = np.maximum(-found.ineqlin.marginals, 0.0)
        own, binding, _ = self.rows(region)
        goals, limits = sum(map(len, own)), sum(len(cut) for cut, _ in binding)
        other = -found.eqlin.marginals[count:].reshape(count - 1, n)
        return _Solved(
            multipliers[:goals], multipliers[goals : goals + limits], multipliers[-len(self.weights) :],
            np.concatenate([-other.sum(axis=0)[None], other]),
            found.x[:total], found.x[total : total * (n + 1)].reshape(total, n), owner,
            np.bincount(owner, found.x[total * (n + 1) : total * (n + 2)], minlength=count), float(found.x[-1]),
        )  # fmt: skip

    def whole(self, region: Region) -> float:
        """The least over whole shares, as a mixed-integer solver has it."""
        upper, right, equal, sides, owner = self.build(region)
        low, high, cost = self._edges(len(owner), len(region.low), upper.shape[1], 0.0)
        found = optimize.milp(
            cost, integrality=(np.arange(len(cost)) < len(owner)).astype(int), bounds=optimize.Bounds(low, high),
            constraints=[optimize.LinearConstraint(upper, -np.inf, right),
                         optimize.LinearConstraint(equal, sides, sides)],
        )  # fmt: skip
        if found.status == 2:
            return np.inf
        return -np.inf if found.mip_dual_bound is None else float(found.mip_dual_bound)


def _matrix(data: np.ndarray, rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> sparse.csr_array:
    return sparse.csr_array((data, (rows, columns)), shape=shape)


def _of_plans(
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]], total: int, n: int, *, goal: bool
) -> sparse.csr_array:
    """Rows `constant x + slope . z <= t` of goals, `<= slack` of limits."""
    constant, slope, plan = (np.concatenate(each) for each in zip(*parts, strict=True))
    rows = np.arange(len(plan))
    data, row = [constant, slope.ravel()], [rows, np.repeat(rows, n)]
    column = [plan, (total + n * plan[:, None] + np.arange(n)).ravel()]
    data, row = [*data, -np.ones(len(plan))], [*row, rows]
    column = [*column, total * (n + 1) + plan if goal else np.full(len(plan), total * (n + 2))]
    joined = (np.concatenate(each) for each in (data, row, column))
    return _matrix(*joined, (len(plan), total * (n + 2) + 2))


def _checked(programme: _Programme, solved: _Solved, region: Region, target: float) -> tuple[float, Region]:
    """(what these multipliers prove of the region's tuples, the region without plans whose tuples reach the target)."""
    cuts = programme.cuts
    each = solved.blend
    if each.sum() <= 0:
        return -np.inf, region
    duals = Duals(programme.points, each / each.sum(), solved.slopes)
    constant, weights = constants(duals, programme.blend)
    own, binding, place = programme.rows(region)
    lower, goals, limits = [], 0, 0
    for k, (kept, (cut, row)) in enumerate(zip(own, binding, strict=True)):
        goal, limit = solved.goal[goals : goals + len(kept)], solved.limit[limits : limits + len(cut)]
        goals, limits = goals + len(kept), limits + len(cut)
        count = len(region.plans[k])
        of_goal, of_limit = place[k][cuts[k].plan[kept]], place[k][cuts[k].plan[cut]]
        goal = _scaled(goal, of_goal, count, weights[k])
        node, weight = np.concatenate([of_goal, of_limit]), np.concatenate([goal, limit])
        at, rows = np.concatenate([kept, cut]), np.concatenate([np.zeros(len(kept), dtype=int), row])
        found = summed(node, weight, cuts[k].value[at, rows], cuts[k].slope[at, rows], cuts[k].u[at], count)
        lower.append(_least(*found, solved.slopes[k], region))
    least = [float(values.min(initial=np.inf)) for values in lower]
    floors = [
        sum_below([constant, *(least[j] for j in range(len(cuts)) if j != k)], lower[k]) for k in range(len(cuts))
    ]
    bound = max(float(floor.min(initial=np.inf)) for floor in floors)
    if bound >= target:
        return bound, region
    left = [mine[~(floor >= target)] for mine, floor in zip(region.plans, floors, strict=True)]
    return bound, replace(region, plans=left)


def _scaled(goal: np.ndarray, plan: np.ndarray, count: int, weight: float) -> np.ndarray:
    """Multipliers of goal rows that add to `weight` for every plan, rounded so that they do not exceed it by more."""
    total = np.bincount(plan, weights=goal, minlength=count)
    alone = 1.0 / np.maximum(np.bincount(plan, minlength=count), 1)
    known = total > 1e-9 * weight
    return weight * np.where(known[plan], goal / np.where(known, total, 1.0)[plan], alone[plan])


def _least(
    constant: np.ndarray, slopes: np.ndarray, doubt: np.ndarray, leaning: np.ndarray, region: Region
) -> np.ndarray:
    """The least over the box of each weighted sum of tangents, leaned; rounded down."""
    total = slopes + leaning
    least = constant - doubt + np.minimum(total * region.low, total * region.high).sum(axis=1)
    size = np.abs(constant) + (np.abs(slopes) + np.abs(leaning)).sum(axis=1)
    return least - 8 * (len(leaning) + 2) * UNIT * size


def _split(region: Region, solved: _Solved | None) -> list[Region]:
    """Tuple by tuple where they are few; else the box cut across the variable in which its plans differ most."""
    if 1 < region.tuples <= FEW:
        k = int(np.argmax([len(mine) for mine in region.plans]))
        return [
            replace(region, plans=[mine if j != k else mine[i : i + 1] for j, mine in enumerate(region.plans)])
            for i in range(len(region.plans[k]))
        ]
    side = region.high - region.low
    middle, spread = 0.5 * (region.low + region.high), side
    if solved is not None:
        at = solved.places / np.maximum(solved.shares, 1e-9)[:, None]
        mean = solved.places[solved.owner == 0].sum(axis=0)
        spread = (solved.shares[:, None] * np.abs(at - mean)).sum(axis=0)
        spread = spread if spread.max(initial=0.0) > 1e-6 else side
        middle = np.clip(mean, region.low + LEAST_SIDE * side, region.high - LEAST_SIDE * side)
    i = int(np.argmax(spread))
    high, low = region.high.copy(), region.low.copy()
    high[i] = low[i] = middle[i]
    return [replace(region, high=high), replace(region, low=low)]
