"""Assignment of request classes to pools of several accelerators: the least cost of whole replicas and boxes.

A pool is so many replicas of one plan on one kind of device, for one class. With n_j replicas of option j (of class c,
on kind k, of N_j devices, good for r_j requests/s within the class's SLO, with e_j dollars a second of electricity),
b_k boxes of B_k devices that are bought and o_k that are owned already:

    min  sum e_j n_j + sum B_k (h_k b_k + g_k o_k)      h, g: dollars a second of a device that is bought, or owned
         sum_(j of c) r_j n_j >= rate_c                 every class is served
         B_k (b_k + o_k) >= sum_(j on k) N_j n_j        replicas stand in boxes
         o_k <= stock_k, b_k <= most_k,  sum capex <= budget,  sum watts <= power,  all whole

Replicas whose sizes divide one another and the box fill boxes without a gap, the largest first, so that the second row
is not only needed but enough. An option is the plan of its size that serves most. A slower one may draw less: with the
electricity that any plan draws at least in the place of e_j the same programme bounds the fleets of all plans.

Lower bound: for any y >= 0 and any box low <= x <= high, every x with A x >= b costs at least

    y b + sum_i min(d_i low_i, d_i high_i),   d = c - A' y

A branch and bound splits the box on whole numbers until each part's bound (y from the LP's dual) reaches the best
solution; its leaves with their y are the certificate, which anybody can check by sums of products.

The parts of the box differ in one end each, so a dual simplex with few rows goes on from where it ended in the part
that was split, a tenth of a millisecond each; what it does not finish is left to HiGHS.

Source: linear programming's weak duality; HiGHS [huangfu2018].
"""

import functools
import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for

from ..core.errors import ConfigError

__all__ = [
    "AssignedFleet", "AssignmentLimits", "AssignmentProgram", "BranchNode", "DeviceKind", "PoolOption", "assign",
    "assignment_program",
]  # fmt: skip

GAP = 1e-5  # relative, to which the branch and bound goes
MOST_NODES = 3000
ROUNDING = 1e-9  # relative, of a row
INTEGER_TOLERANCE = 1e-6


class PoolOption(NamedTuple):
    """A replica that serves one class: its devices, requests/s within the SLO, dollars/s of electricity.

    least_usd_per_s: of the electricity of a replica of this size with whatever plan, none of which serves more.
    """

    request_class: str
    kind: str
    devices: int
    rate: float
    usd_per_s: float
    least_usd_per_s: float = 0.0


@dataclass(frozen=True)
class DeviceKind:
    """A kind of accelerator: devices of a box; cost, capital and watts of a device; boxes owned, and for sale.

    held_usd_per_s: of a device that is bought; owned_usd_per_s: of one that is there already, electricity aside.
    """

    name: str
    box: int
    held_usd_per_s: float
    owned_usd_per_s: float = 0.0
    capex_usd: float = 0.0
    watts: float = 0.0
    owned_boxes: int = 0
    most_boxes: int | None = None

    def __post_init__(self) -> None:
        """Boxes of at least one device, nothing below zero.

        Raises:
            ConfigError: naming what is not.
        """
        if self.box < 1 or self.owned_boxes < 0 or (self.most_boxes is not None and self.most_boxes < 0):
            raise ConfigError(
                f"{self.name}: box = {self.box} must be at least 1, boxes owned {self.owned_boxes} and for sale"
                f" {self.most_boxes} not below 0"
            )


@dataclass(frozen=True)
class AssignmentLimits:
    """Capital of what is bought, dollars, and provisioned watts of all that runs; infinite: no limit."""

    capex_usd: float = math.inf
    watts: float = math.inf


@dataclass(frozen=True)
class AssignmentProgram:
    """min cost x, rows x >= sides, 0 <= x <= high, x whole; names of rows: (`class`, name), (`boxes`, kind), ..."""

    cost: np.ndarray
    rows: np.ndarray
    sides: np.ndarray
    high: np.ndarray
    row_names: tuple[tuple[str, str], ...]


class BranchNode(NamedTuple):
    """A part of the box: split at `at` of a variable (`x <= at` in `children`[0], above in [1]), or a leaf.

    dual: multipliers of the rows that bound a leaf; infeasible: they are a ray, with which the bound without costs is
    above 0, so that nothing in the part keeps all rows.
    """

    variable: int = -1
    at: int = 0
    children: tuple[int, int] = (-1, -1)
    dual: tuple[float, ...] = ()
    infeasible: bool = False


@dataclass(frozen=True)
class AssignedFleet:
    """The best fleet that was found, and how good any can be.

    replicas: of each option; bought, owned: boxes of each kind; bound: that no fleet of these options is below, dollars
    a second; floor: that none of whatever plans is below; relaxed_usd_per_s, relaxed: the optimum with parts of
    replicas and boxes allowed, and its variables; prices: row -> dollars/s that one unit more of its side costs (a
    request/s of a class), or saves (a dollar of the budget, a watt); box_worth: kind -> dollars/s that one owned box
    more saves; nodes: of the branch and bound, the first one the whole box.
    """

    options: tuple[PoolOption, ...]
    kinds: tuple[DeviceKind, ...]
    replicas: tuple[int, ...]
    bought: tuple[int, ...]
    owned: tuple[int, ...]
    usd_per_s: float
    bound: float
    relaxed_usd_per_s: float
    relaxed: tuple[float, ...]
    prices: dict[tuple[str, str], float]
    box_worth: dict[str, float]
    program: AssignmentProgram = field(repr=False)
    nodes: tuple[BranchNode, ...] = field(repr=False, default=())
    most_nodes: int = field(repr=False, default=MOST_NODES)
    known_floor: float | None = field(repr=False, default=None)

    @functools.cached_property
    def floor(self) -> float:
        """Dollars a second that no fleet of whatever plans is below; a branch and bound of its own, when asked for."""
        if self.known_floor is not None:
            return self.known_floor
        return _floor(self.program, self.options, self.most_nodes // 10)

    @property
    def gap(self) -> float:
        """Relative distance of the bound below this fleet."""
        return 1 - self.bound / self.usd_per_s if self.usd_per_s > 0 else 0.0

    def pools(self) -> list[tuple[int, int]]:
        """(option, replicas) of those that are used."""
        return [(index, count) for index, count in enumerate(self.replicas) if count]


def assignment_program(
    rates: dict[str, float], options: Sequence[PoolOption], kinds: Sequence[DeviceKind], limits: AssignmentLimits
) -> AssignmentProgram:
    """The programme: replicas of each option, then boxes bought and boxes owned of each kind."""
    count, sorts = len(options), len(kinds)
    fewest = [math.ceil(Fraction(rates[one.request_class]) / Fraction(one.rate)) for one in options]
    most = {kind.name: 0.0 for kind in kinds}
    for name in rates:
        for kind in kinds:
            coefficients = [n * each.devices for n, each in zip(fewest, options, strict=True)
                   if each.kind == kind.name and each.request_class == name]  # fmt: skip
            most[kind.name] += sum(coefficients)
    bought = [
        math.ceil(most[kind.name] / kind.box) if kind.most_boxes is None
        else min(kind.most_boxes, math.ceil(most[kind.name] / kind.box))
        for kind in kinds
    ]  # fmt: skip
    cost = [one.usd_per_s for one in options]
    cost += [kind.box * kind.held_usd_per_s for kind in kinds] + [kind.box * kind.owned_usd_per_s for kind in kinds]
    rows, sides, names = list[list[float]](), list[float](), list[tuple[str, str]]()
    for name, rate in rates.items():
        rows.append([one.rate * (one.request_class == name) for one in options] + [0.0] * 2 * sorts)
        sides.append(rate)
        names.append(("class", name))
    for index, kind in enumerate(kinds):
        coefficients = [float(kind.box) if at == index else 0.0 for at in range(sorts)]
        rows.append([-float(one.devices) * (one.kind == kind.name) for one in options] + coefficients + coefficients)
        sides.append(0.0)
        names.append(("boxes", kind.name))
    if math.isfinite(limits.capex_usd):
        rows.append([0.0] * count + [-kind.box * kind.capex_usd for kind in kinds] + [0.0] * sorts)
        sides.append(-limits.capex_usd)
        names.append(("budget", ""))
    if math.isfinite(limits.watts):
        drawn = [-kind.box * kind.watts for kind in kinds]
        rows.append([0.0] * count + drawn + drawn)
        sides.append(-limits.watts)
        names.append(("power", ""))
    high = [*map(float, fewest), *map(float, bought), *(float(kind.owned_boxes) for kind in kinds)]
    return AssignmentProgram(np.array(cost), np.array(rows), np.array(sides), np.array(high), tuple(names))


def assign(
    rates: dict[str, float],
    options: Sequence[PoolOption],
    kinds: Sequence[DeviceKind],
    limits: AssignmentLimits | None = None,
    most_nodes: int = MOST_NODES,
) -> AssignedFleet:
    """The cheapest fleet, with a certificate.

    Args:
        rates: class -> requests/s.
        options: of any class and kind; sizes divide one another and the box of their kind, or are whole boxes.
        kinds: of devices.
        limits: of the whole fleet.
        most_nodes: of the branch and bound, after which the gap is what it is.

    Raises:
        ConfigError: no fleet serves every class within the limits.
    """
    program = assignment_program(rates, options, kinds, limits or AssignmentLimits())
    scaled = _scaled(program)
    zero = np.zeros(len(program.cost))
    first = _relaxed(scaled, zero, program.high)
    if first is None:
        raise ConfigError(_why_none(program, rates, kinds))
    best = _best_integer(scaled, program)
    if best is None:
        raise ConfigError(_why_none(program, rates, kinds))
    nodes, bound, best = _tree(scaled, program, best, most_nodes)
    count, sorts = len(options), len(kinds)
    dual = first.dual * scaled.factors
    prices = {name: float(dual[row]) for row, name in enumerate(program.row_names)}
    reduced = program.cost - program.rows.T @ dual
    worth = {kind.name: max(-float(reduced[count + sorts + index]), 0.0) for index, kind in enumerate(kinds)}
    counts = [round(each) for each in best]
    usd = float(program.cost @ best)
    return AssignedFleet(
        tuple(options), tuple(kinds), tuple(counts[:count]), tuple(counts[count : count + sorts]),
        tuple(counts[count + sorts :]), usd, min(bound, usd), float(first.value), tuple(map(float, first.x)),
        prices, worth, program, tuple(nodes), most_nodes,
    )  # fmt: skip


def _floor(program: AssignmentProgram, options: Sequence[PoolOption], most_nodes: int) -> float:
    """Bound under the fleets of whatever plans: with the least electricity of a replica of each size."""
    least = np.concatenate([[one.least_usd_per_s for one in options], program.cost[len(options) :]])
    cheap = replace(program, cost=least)
    scaled = _scaled(cheap)
    best = _best_integer(scaled, cheap)
    assert best is not None
    return min(_tree(scaled, cheap, best, most_nodes)[1], float(least @ best))


class _ScaledRows(NamedTuple):
    """Rows and sides times a factor each, so that a solver's tolerance is one of shares."""

    cost: np.ndarray
    rows: np.ndarray
    sides: np.ndarray
    factors: np.ndarray


def _scaled(program: AssignmentProgram) -> _ScaledRows:
    factors = 1.0 / np.where(program.sides != 0, np.abs(program.sides), 1.0)
    return _ScaledRows(program.cost, program.rows * factors[:, None], program.sides * factors, factors)


class _RelaxationSolution(NamedTuple):
    value: float
    x: np.ndarray
    dual: np.ndarray


def _relaxed(scaled: _ScaledRows, low: np.ndarray, high: np.ndarray) -> _RelaxationSolution | None:
    """Optimum of the linear programme in a box; None where it has no point."""
    unit = float(np.abs(scaled.cost).max()) or 1.0
    result: Any = scipy.optimize.linprog(
        scaled.cost / unit, A_ub=-scaled.rows, b_ub=-scaled.sides, bounds=np.stack([low, high], 1), method="highs"
    )
    if result.status != 0:
        return None
    return _RelaxationSolution(float(result.fun) * unit, result.x, np.maximum(-result.ineqlin.marginals, 0.0) * unit)


class _Basis(NamedTuple):
    """End of a dual simplex: variables that are solved for, and which of the others stand at their upper end."""

    solved: np.ndarray
    at_high: np.ndarray


PIVOTS = 200  # of one part; an optimum is a few away from that of the part which was split
PIVOT = 1e-9  # least entry of a row that is divided by


def _continued(
    scaled: _ScaledRows, low: np.ndarray, high: np.ndarray, start: _Basis | None
) -> tuple[_RelaxationSolution, _Basis] | None:
    """Optimum of the linear programme in a box by a dual simplex; None where it is not found.

    Where there is no point its value is infinite, and its dual a ray that proves it.
    Rows become equal to their sides with a surplus each, behind the variables. Every variable has two ends, so that a
    basis of surpluses, with each variable at its cheaper end, begins.
    """
    rows, count = scaled.rows.shape
    unit = float(np.abs(scaled.cost).max()) or 1.0
    cost = np.concatenate([scaled.cost / unit, np.zeros(rows)])
    table = np.hstack([scaled.rows, -np.eye(rows)])
    least, most = np.concatenate([low, np.zeros(rows)]), np.concatenate([high, np.full(rows, np.inf)])
    start = start or _Basis(np.arange(count, count + rows), cost < 0)
    solved, at_high = start.solved.copy(), start.at_high.copy()
    fixed: Any = least == most
    for _ in range(PIVOTS):
        try:
            inverse = np.linalg.inv(table[:, solved])
        except np.linalg.LinAlgError:
            return None
        dual = cost[solved] @ inverse
        reduced = cost - dual @ table
        sure = np.abs(reduced[:count]) > ROUNDING  # the other end is cheaper where an end was fixed before
        at_high[:count] = np.where(sure, reduced[:count] < 0, at_high[:count])
        values = np.where(at_high, most, least)
        values[solved] = 0.0
        values[solved] = inverse @ (scaled.sides - table @ values)
        short, over = least[solved] - values[solved], values[solved] - most[solved]
        lacks = np.maximum(short, over)
        out = int(np.argmax(lacks))
        if lacks[out] <= ROUNDING * max(1.0, float(np.abs(values[solved[out]]))):
            x = np.clip(values[:count], low, high)
            return _RelaxationSolution(float(scaled.cost @ x), x, np.maximum(dual, 0.0) * unit), _Basis(solved, at_high)
        row: Any = inverse[out] @ table * (1.0 if short[out] >= over[out] else -1.0)
        moves = ((at_high & (row > PIVOT)) | (~at_high & (row < -PIVOT))) & ~fixed
        moves[solved] = False
        if not moves.any():
            ray = inverse[out] * (-1.0 if short[out] >= over[out] else 1.0)
            return _RelaxationSolution(math.inf, low, np.maximum(ray, 0.0)), _Basis(solved, at_high)
        places = np.flatnonzero(moves)
        ratios = np.abs(reduced[places]) / np.abs(row[places])
        near = places[ratios <= ratios.min() + ROUNDING]
        at_high[solved[out]] = over[out] > short[out]
        entering = near[int(np.argmax(np.abs(row[near])))]
        solved[out], at_high[entering] = entering, False
    return None


def _ray(scaled: _ScaledRows, low: np.ndarray, high: np.ndarray) -> np.ndarray | None:
    """Multipliers that prove a box without points: those of the least sum of what the rows lack."""
    rows, count = scaled.rows.shape
    result: Any = scipy.optimize.linprog(
        np.concatenate([np.zeros(count), np.ones(rows)]), A_ub=-np.hstack([scaled.rows, np.eye(rows)]),
        b_ub=-scaled.sides, method="highs",
        bounds=np.concatenate([np.stack([low, high], 1), np.tile([0.0, np.inf], (rows, 1))]),
    )  # fmt: skip
    if result.status != 0 or result.fun <= INTEGER_TOLERANCE:
        return None
    return np.maximum(-result.ineqlin.marginals, 0.0)


def _best_integer(scaled: _ScaledRows, program: AssignmentProgram) -> np.ndarray | None:
    """The best solution that HiGHS finds, rounded; the branch and bound proves it or finds a better one."""
    optimize: Any = scipy.optimize
    unit = float(np.abs(scaled.cost).max()) or 1.0
    result = optimize.milp(
        scaled.cost / unit, constraints=optimize.LinearConstraint(scaled.rows, scaled.sides, np.inf),
        bounds=optimize.Bounds(0, program.high), integrality=np.ones(len(program.cost)),
        options={"mip_rel_gap": GAP, "time_limit": 20.0},
    )  # fmt: skip
    if result.x is None:
        return None
    rounded = np.rint(result.x)
    return rounded if _keeps(program, rounded) else _raised(program, rounded)


def _keeps(program: AssignmentProgram, x: np.ndarray) -> bool:
    return bool((program.rows @ x >= program.sides - ROUNDING * np.maximum(np.abs(program.sides), 1.0)).all())


def _raised(program: AssignmentProgram, x: np.ndarray) -> np.ndarray | None:
    """A solution that a solver's tolerance let through, with one replica more where a class lacks some."""
    for row, (sort, _) in enumerate(program.row_names):
        if sort == "class" and program.rows[row] @ x < program.sides[row] * (1 - ROUNDING):
            used = np.flatnonzero((program.rows[row] > 0) & (x > 0) & (x < program.high))
            if len(used):
                x = x.copy()
                x[used[0]] += 1
    return x if _keeps(program, x) else None


def _bound(program: AssignmentProgram, dual: np.ndarray, low: np.ndarray, high: np.ndarray, cost: np.ndarray) -> float:
    reduced = cost - program.rows.T @ dual
    return float(dual @ program.sides + np.minimum(reduced * low, reduced * high).sum())


def _tree(
    scaled: _ScaledRows, program: AssignmentProgram, best: np.ndarray, most_nodes: int
) -> tuple[list[BranchNode], float, np.ndarray]:
    """Nodes, the bound that they prove, and the best solution: the part with the least bound is split first."""
    nodes = [BranchNode()]
    order = itertools.count()
    value = float(program.cost @ best)
    open_: list[tuple[float, int, int, np.ndarray, np.ndarray, np.ndarray, _Basis | None]] = []
    done: list[float] = []

    def visit(number: int, low: np.ndarray, high: np.ndarray, start: _Basis | None = None) -> None:
        nonlocal best, value
        continued = _continued(scaled, low, high, start)
        result, basis = continued or (_relaxed(scaled, low, high), None)
        if result is None or math.isinf(result.value):
            ray = _ray(scaled, low, high) if result is None else result.dual
            if ray is not None:
                ray = ray * scaled.factors
                if _bound(program, ray, low, high, np.zeros_like(program.cost)) > 0:
                    nodes[number] = BranchNode(dual=tuple(map(float, ray)), infeasible=True)
                    return
            raise ConfigError("assignment: a part of the programme could not be solved: rates or costs far apart")
        dual = result.dual * scaled.factors
        bound = _bound(program, dual, low, high, program.cost)
        nodes[number] = BranchNode(dual=tuple(map(float, dual)))
        up = _keeping(program, np.clip(np.ceil(result.x - INTEGER_TOLERANCE), low, high))
        if up is not None and float(program.cost @ up) < value:
            best, value = up, float(program.cost @ up)
        heapq.heappush(open_, (bound, next(order), number, low, high, result.x, basis))

    visit(0, np.zeros(len(program.cost)), program.high.copy())
    while open_:
        bound, _, number, low, high, x, basis = heapq.heappop(open_)
        part = np.abs(x - np.rint(x))
        if bound >= value * (1 - GAP) or len(nodes) >= most_nodes or part.max() <= INTEGER_TOLERANCE:
            done.append(bound)
            continue
        index = int(np.argmax(part * (program.cost + 1e-3 * program.cost.max())))
        if part[index] <= INTEGER_TOLERANCE:
            index = int(np.argmax(part))
        at = math.floor(x[index])
        below, above = high.copy(), low.copy()
        below[index], above[index] = at, at + 1
        left = len(nodes)
        nodes += [BranchNode(), BranchNode()]
        nodes[number] = BranchNode(index, at, (left, left + 1))
        visit(left, low, below, basis)
        visit(left + 1, above, high, basis)
    return nodes, min(done, default=value), best


def _keeping(program: AssignmentProgram, x: np.ndarray) -> np.ndarray | None:
    return x if _keeps(program, x) else None


def _why_none(program: AssignmentProgram, rates: dict[str, float], kinds: Sequence[DeviceKind]) -> str:
    """One line: what share of the load can be served within the limits, and what would help."""
    count = len(program.cost)
    loads = np.array([sort == "class" for sort, _ in program.row_names])
    rows = np.hstack([program.rows, -np.where(loads, program.sides, 0.0)[:, None]])
    result: Any = scipy.optimize.linprog(
        np.concatenate([np.zeros(count), [-1.0]]), A_ub=-rows, b_ub=-np.where(loads, 0.0, program.sides),
        bounds=[*((0.0, float(each)) for each in program.high), (0.0, 1.0)], method="highs",
    )  # fmt: skip
    share = -float(result.fun) if result.status == 0 else 0.0
    stock = ", ".join(
        f"{kind.owned_boxes * kind.box} {kind.name} owned" for kind in kinds if kind.owned_boxes
    )  # fmt: skip
    most = ", ".join(
        f"{kind.most_boxes * kind.box} {kind.name} for sale" for kind in kinds if kind.most_boxes is not None
    )
    where = "; ".join(filter(None, [stock, most])) or "these devices"
    limits = " and ".join(sort for sort, _ in program.row_names if sort in ("budget", "power"))
    within = f" within {limits}" if limits else ""
    load = ", ".join(f"{name} {rate:.4g}/s" for name, rate in rates.items())
    what = (
        "whole replicas and boxes do not fit"
        if share >= 1 - INTEGER_TOLERANCE
        else f"at most {share:.1%} of the load can be"
    )
    return (
        f"no fleet serves {load} with {where}{within}: {what}; allow more devices{', budget or power' * bool(limits)}"
    )
