"""The bound of a mix derived anew: rounds of duals, each bounding every plan that the rounds before have not ruled out.

With prices m_k on hardware that add to zero over the workloads k, and a tangent c + sum_k w_k x_k below the blend,

    blend(goals) >= c + sum_k min over k's plans of min over u in the cube of (w_k goal_k(u) + m_k . u)

wherever all limits hold. With one workload's plan fixed, its own least value stands in its place: what then reaches the
claim is in no tuple below the claim, and is not asked for in the next round.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for
from jaxtyping import Float, Int

from ..curvature import TOLERATED
from .derivation import Refuted
from .goals_blended import CheckedBlend
from .inequality import MODEL, SINGLE, UNIT, off, rows_in, summed
from .mix_derivation import Duals, MixDerivation, Part
from .model_answers import CheckedModel

# Tuples of plans on common hardware as a linear programme: shares of plans, their tangents, the blend's, in a box.
#
# A plan with share x has hardware z = x u and goal t; its tangents c + b . u <= goal become c x + b . z <= t. Shares
# of a workload add to 1 and its hardware is that of the others. Whole shares are tuples; fractions give multipliers.


PRECISE = 1e-7  # log by which tangents of the blend differ to be two
SECONDS = 120.0  # of a mixed-integer solver: what it has proven by then counts
PRICE = 1e3  # of a unit of violation: more than any multiplier of a limit that matters


@dataclass(frozen=True)
class PlanCuts:
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

    def __init__(self, cuts: Sequence[PlanCuts], blend: CheckedBlend, points: np.ndarray):
        self.cuts, self.blend, self.constants = cuts, blend, [each.constant for each in cuts]
        self.points = np.zeros((0, len(cuts)))
        self.weights, self.offset = np.zeros((0, len(cuts))), np.zeros(0)
        for point in points:
            self.linearise(point)

    def linearise(self, point: np.ndarray) -> bool:
        """One more tangent of the blend, if it is another."""
        value, slope = self.blend.tangent(point)
        constant = value - float(slope @ point)
        distance = np.abs(self.weights - slope).max(axis=1, initial=0.0) + np.abs(self.offset - constant)
        if len(distance) and distance.min() < PRECISE:
            return False
        self.points = np.concatenate([self.points, point[None]])
        self.weights, self.offset = np.concatenate([self.weights, slope[None]]), np.append(self.offset, constant)
        return True

    def rows(self, region: Region) -> tuple[list[np.ndarray], list[tuple[np.ndarray, np.ndarray]], list[np.ndarray]]:
        """Rows of each workload: cuts of its plans, (cut, row) of limits that may bind in it, place of each plan."""
        goal_cuts, binding, plan_index = list[np.ndarray](), list[tuple[np.ndarray, np.ndarray]](), list[np.ndarray]()
        for each, constant, mine in zip(self.cuts, self.constants, region.plans, strict=True):
            where = np.full(each.count, -1)
            where[mine] = np.arange(len(mine))
            active = np.flatnonzero(where[each.plan] >= 0)
            slope = each.slope[active, 1:]
            most = constant[active, 1:] + np.maximum(slope * region.low, slope * region.high).sum(axis=-1)
            cut, row = np.nonzero(most > 0)
            goal_cuts.append(active)
            binding.append((active[cut], 1 + row))
            plan_index.append(where)
        return goal_cuts, binding, plan_index

    def _build(self, region: Region) -> _Linear:
        """Columns: x, z, t of all plans, then the slack of limits and the blended goal R."""
        sizes = [len(mine) for mine in region.plans]
        first, total, n = np.concatenate([[0], np.cumsum(sizes)]), sum(sizes), len(region.low)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        width = total * (n + 2) + 2
        goal_cuts, binding, plan_index = self.rows(region)
        goals, limits = (list[tuple[np.ndarray, np.ndarray, np.ndarray]]() for _ in range(2))
        for k, each in enumerate(self.cuts):
            plan = first[k] + plan_index[k][each.plan[goal_cuts[k]]]
            goals.append((self.constants[k][goal_cuts[k], 0], each.slope[goal_cuts[k], 0], plan))
            cut, row = binding[k]
            limits.append((self.constants[k][cut, row], each.slope[cut, row], first[k] + plan_index[k][each.plan[cut]]))
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
        goal_cuts, binding, _ = self.rows(region)
        goals, limits = sum(map(len, goal_cuts)), sum(len(cut) for cut, _ in binding)
        other = -result.eqlin.marginals[count:].reshape(count - 1, n)
        return SolvedTuples(
            multipliers[:goals], multipliers[goals : goals + limits], multipliers[-len(self.weights) :],
            np.concatenate([-other.sum(axis=0)[None], other]),
            result.x[:total], result.x[total : total * (n + 1)].reshape(total, n), owner,
            np.bincount(owner, result.x[total * (n + 1) : total * (n + 2)], minlength=count), float(result.x[-1]),
        )  # fmt: skip

    def integer_optimum(self, region: Region) -> float:
        """The least over whole shares, as a mixed-integer solver has it."""
        made = self._build(region)
        low, high, cost = self._edges(len(made.owner), len(region.low), 0.0)
        is_integral = (np.arange(len(cost)) < len(made.owner)).astype(int)
        result = scipy.optimize.milp(
            cost, integrality=is_integral, bounds=scipy.optimize.Bounds(low, high),
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


Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Floors:
    """Floors of every plan of each workload: no tuple with it, and without plans ruled out before, lies below `floor`.

    left: plans whose floor does not reach the target. tangents: weighted, of all rounds.
    """

    floor: list[np.ndarray]
    left: list[np.ndarray]
    tangents: int

    @property
    def proven(self) -> bool:
        """No tuple lies below the target: of some workload nothing is left."""
        return any(not left.any() for left in self.left)

    @property
    def bound(self) -> float:
        """Value that no tuple lies below."""
        ruled_out = min(
            float(np.min(floor, where=~left, initial=np.inf)) for floor, left in zip(self.floor, self.left, strict=True)
        )
        return min(ruled_out, max(float(floor.min()) for floor in self.floor))


def replayed(
    certificate: MixDerivation, models: Sequence[CheckedModel], blend: CheckedBlend, target: float, report: Report
) -> Floors:
    """Floors by all rounds in order, rounded outward.

    Raises:
        Refuted: a plan that is asked for has no weights, or weights that bound nothing.
    """
    parts = certificate.parts
    left = [np.ones(len(part.plans.low), dtype=bool) for part in parts]
    floors = [np.full(len(mine), -np.inf) for mine in left]
    used = 0
    for number, duals in enumerate(certificate.rounds):
        constant, weights = constants(duals, blend)
        lower: list[np.ndarray] = []
        for k, (part, model) in enumerate(zip(parts, models, strict=True)):
            report(number * len(parts) + k, len(certificate.rounds) * len(parts))
            cuts = np.flatnonzero((part.round == number) & left[k][part.plans.node])
            used += len(cuts)
            try:
                lower.append(_leaned(part, model, cuts, left[k], weights[k], duals.slopes[k]))
            except Refuted as why:
                raise Refuted(f"{part.name}, round {number}: {why}") from why
        least = [float(each.min(initial=np.inf)) for each in lower]
        for k, mine in enumerate(left):
            others = [constant, *(least[j] for j in range(len(parts)) if j != k)]
            floors[k][mine] = np.maximum(floors[k][mine], sum_below(others, lower[k]))
        for mine, floor in zip(left, floors, strict=True):
            mine &= ~(floor >= target)
        if any(not mine.any() for mine in left):
            break
    return Floors(floors, left, used)


def constants(duals: Duals, blend: CheckedBlend) -> tuple[float, np.ndarray]:
    """(constant, weights) of the blend's tangents, less what prices on hardware that do not cancel may gain."""
    constant, weights = blend.mean(list(duals.points), duals.shares)
    size = 1.0 + float(np.abs(duals.points).max(initial=0.0)) + float(np.abs(blend.offset).max(initial=0.0))
    stray = float(np.abs(duals.slopes.sum(axis=0)).sum()) + 4 * len(weights) * UNIT * float(np.abs(duals.slopes).sum())
    return constant - stray - MODEL * size, weights


def sum_below(terms: Sequence[float], last: np.ndarray) -> np.ndarray:
    """The sum of all terms, rounded down; inf where one is."""
    size = sum(abs(t) for t in terms if np.isfinite(t)) + np.where(np.isfinite(last), np.abs(last), 0.0)
    total = sum(terms) + last
    return np.where(np.isfinite(total), total - 4 * (len(terms) + 2) * UNIT * size, total)


def _leaned(
    part: Part, model: CheckedModel, cuts: np.ndarray, required: np.ndarray, weight: float, slope: np.ndarray
) -> Float[np.ndarray, " asked"]:
    """Below w goal + m . u of each plan asked for, wherever its limits hold; inf where they never do.

    Weights of the goal add to 1 before they are scaled by w; those of limits are what they are.
    """
    plans = part.plans
    plan_index = np.cumsum(required) - 1
    node, row, count = plan_index[plans.node[cuts]], plans.row[cuts], int(required.sum())
    goal = np.bincount(node, weights=np.where(row == 0, plans.weight[cuts], 0.0), minlength=count)
    none = np.flatnonzero(np.bincount(node, minlength=count) == 0)
    numbers = np.flatnonzero(required)
    if len(none):
        first = plans.named(int(numbers[none[0]]))
        raise Refuted(f"{len(none):,} plans that reach less than is claimed have no weights; the first: {first}")
    wrong = np.flatnonzero((goal > 0) & (np.abs(goal - 1.0) > SINGLE))
    if len(wrong):
        at = int(wrong[0])
        raise Refuted(f"{plans.named(int(numbers[at]))}: the goal's weights add to {goal[at]:.9g}, not to 1")
    value, slopes = _tangents(part, model, cuts)
    doubts = off(model, rows_in(plans, model)[row], value)
    scaled = plans.weight[cuts] * np.where(row == 0, weight, 1.0)
    constant, slopes, doubt = summed(node, scaled, value, slopes, plans.u[plans.point[cuts]], count, doubts)
    scale = np.where(goal > 0, goal, 1.0)[:, None]
    leaning = np.where(goal > 0, 1.0, 0.0)[:, None] * slope
    total = slopes / scale + leaning
    least = (constant - doubt) / scale[:, 0] + np.minimum(total, 0.0).sum(axis=1)
    size = np.abs(constant) + (np.abs(slopes) + np.abs(leaning)).sum(axis=1)
    least -= 8 * (len(slope) + 2) * UNIT * size
    idle = np.flatnonzero((goal == 0) & ~(least > 0))
    if len(idle):
        at = int(idle[0])
        raise Refuted(
            f"{plans.named(int(numbers[at]))}: its constraints, so weighted, are {least[at]:.3g} somewhere in the box:"
            " they do not rule it out"
        )
    return np.where(goal > 0, least, np.inf)


def _tangents(part: Part, model: CheckedModel, cuts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Value and slopes of the row of each of these cuts where it was linearised."""
    plans = part.plans
    row = rows_in(plans, model)[plans.row[cuts]]
    calls, call = np.unique(np.stack([plans.node[cuts], plans.point[cuts]], axis=-1), axis=0, return_inverse=True)
    call = call.reshape(-1)
    if len(calls) == 0:
        return np.zeros(0), np.zeros((0, len(model.variables)))
    at = calls[:, 1]
    value, slope = model.tangents(plans.values(plans.low[calls[:, 0]]), plans.u[at], plans.sharpness[at])
    value, slope = value[call, row], slope[call, row]
    wrong = np.flatnonzero(~(np.isfinite(value) & np.isfinite(slope).all(axis=1)))
    if len(wrong):
        cut = cuts[wrong[0]]
        raise Refuted(f"{plans.named(int(plans.node[cut]))}: row {plans.rows[plans.row[cut]]} is no number there")
    return value, slope


# Tuples that rounds of duals leave: bounded box by box of hardware, every bound by multipliers checked here.
#
# A linear programme over shares of the plans left, their tangents and the blend's, gives multipliers; what they prove
# is worked out anew, as of a round of duals. A part that they do not prove is cut in two where its plans want
# different hardware, or, where few tuples are left, taken tuple by tuple. So the solver's word is not needed, only
# its proposals.


MOST_PARTS = 600  # boxes and tuples, after which a mixed-integer solver is asked
FEW = 24  # tuples that are taken one by one
LEAST_SIDE = 0.1  # of a box: how near to its edge it may be cut
BLENDED = 6  # rounds in which the blend is linearised once more where a programme has its solution


@dataclass(frozen=True)
class TupleBound:
    """Bound of the tuples: none lies below `bound`; parts that were bounded; `trusted`: a solver's word is in it."""

    bound: float
    parts: int
    trusted: bool = False


def bounded(
    cuts: Sequence[PlanCuts],
    blend: CheckedBlend,
    points: Float[np.ndarray, "points workloads"],
    target: float,
    report: Callable[[int, int], None],
    most: int = MOST_PARTS,
) -> TupleBound:
    """Bound all tuples by the target; where that fails, by what a mixed-integer solver says.

    Args:
        cuts: of each workload.
        blend: of their goals.
        points: logs of goals at which the blend is linearised at first.
        target: log that no tuple should lie below.
        report: hears how many parts are done.
        most: parts.
    """
    width, done = int(cuts[0].u.shape[1]), 0
    start = Region(np.zeros(width), np.ones(width), [np.arange(each.count) for each in cuts])
    waiting, programme = [start], TupleProgramme(cuts, blend, points)
    while waiting:
        region = waiting.pop()
        report(done, done + len(waiting) + 1)
        bound, region, solved = _proven(programme, region, target)
        done += 1
        if bound >= target:
            continue
        if done >= most or region.tuples == 1:
            return TupleBound(programme.integer_optimum(start), done, trusted=True)
        waiting += _split(region, solved)
    return TupleBound(target, done)


def _proven(programme: TupleProgramme, region: Region, target: float) -> tuple[float, Region, SolvedTuples | None]:
    """(a bound of the region's tuples, the region without plans whose tuples reach the target, the programme)."""
    bound, solved = -np.inf, None
    for _ in range(BLENDED):
        solved = programme.relaxed(region)
        if solved is None:
            break
        bound, region = _checked(programme, solved, region, target)
        off = programme.blend.tangent(solved.logs)[0] - solved.value
        if bound >= target or off < PRECISE or not programme.linearise(solved.logs):
            break
    return bound, region, solved


def _checked(programme: TupleProgramme, solved: SolvedTuples, region: Region, target: float) -> tuple[float, Region]:
    """(what these multipliers prove of the region's tuples, the region without plans whose tuples reach the target)."""
    cuts = programme.cuts
    each = solved.blend
    if each.sum() <= 0:
        return -np.inf, region
    duals = Duals(programme.points, each / each.sum(), solved.slopes)
    constant, weights = constants(duals, programme.blend)
    goal_cuts, binding, plan_index = programme.rows(region)
    lower, goals, limits = list[np.ndarray](), 0, 0
    for k, (goal_rows, (cut, row)) in enumerate(zip(goal_cuts, binding, strict=True)):
        goal, limit = solved.goal[goals : goals + len(goal_rows)], solved.limit[limits : limits + len(cut)]
        goals, limits = goals + len(goal_rows), limits + len(cut)
        count = len(region.plans[k])
        of_goal, of_limit = plan_index[k][cuts[k].plan[goal_rows]], plan_index[k][cuts[k].plan[cut]]
        goal = _scaled(goal, of_goal, count, weights[k])
        node, weight = np.concatenate([of_goal, of_limit]), np.concatenate([goal, limit])
        at, rows = np.concatenate([goal_rows, cut]), np.concatenate([np.zeros(len(goal_rows), dtype=int), row])
        result = summed(node, weight, cuts[k].value[at, rows], cuts[k].slope[at, rows], cuts[k].u[at], count, TOLERATED)
        lower.append(_least(*result, solved.slopes[k], region))
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
    """Multipliers of goal rows, scaled so that they add to `weight` for every plan; all alike where there are none."""
    total = np.bincount(plan, weights=goal, minlength=count)
    alone = 1.0 / np.maximum(np.bincount(plan, minlength=count), 1)
    scalable = total > 1e-9 * weight
    return weight * np.where(scalable[plan], goal / np.where(scalable, total, 1.0)[plan], alone[plan])


def _least(
    constant: np.ndarray, slopes: np.ndarray, doubt: np.ndarray, leaning: np.ndarray, region: Region
) -> np.ndarray:
    """The least over the box of each weighted sum of tangents, leaned; rounded down."""
    total = slopes + leaning
    least = constant - doubt + np.minimum(total * region.low, total * region.high).sum(axis=1)
    size = np.abs(constant) + (np.abs(slopes) + np.abs(leaning)).sum(axis=1)
    return least - 8 * (len(leaning) + 2) * UNIT * size


def _split(region: Region, solved: SolvedTuples | None) -> list[Region]:
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
