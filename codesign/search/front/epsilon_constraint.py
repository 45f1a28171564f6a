"""Choice of the levels to search for designs of a front: its ends, then wherever least is known of it.

The levels of all metrics but the first form a box. What is known of one of its cells: the first metric of a design
that keeps to the cell's low corner is enough anywhere in it, the bound at its high corner holds anywhere in it. The
volume between the two is neither dominated nor proven empty; the cell with most of it is searched next, at its middle.

Source: [haimes1971epsilon]; see docs/optimisation.md, section 6.
"""

import itertools
import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from ...core.pareto_tools import non_dominated_rows
from ...study.objective import feasible_logs
from ..base import Progress, Report, silent
from ..branch_and_bound.bounding import INTERRUPTED, REFERENCE_SHARPNESS, Outcome
from ..branch_and_bound.oracle import GOAL
from ..settings import FRONT
from .level_pairs import LevelSolver, Point
from .parametric_sequence import ParametricSequence

# Designs half-way between neighbours on a front: for one plan they are nearly as good as any, and cost one
# evaluation.
#
# For a plan the logarithms of all metrics are convex in the coordinates, so that a blend of two designs keeps every
# constraint that both keep and lies, in every metric, on the straight line between them or below it.
#
# Source: see docs/optimisation.md, section 6.


def neighbours(values: Float[np.ndarray, "designs metrics"]) -> tuple[np.ndarray, np.ndarray]:
    """(design, neighbour) of every pair, each both ways: next along a front of two metrics, nearest of three.

    Distances are in shares of each metric's range.
    """
    count = len(values)
    if values.shape[1] == 2:
        order = np.argsort(values[:, 0], kind="stable")
        one, other = order[:-1], order[1:]
    else:
        span = np.ptp(values, axis=0)
        scaled = values / np.where(span > 0, span, 1.0)
        apart = np.abs(scaled[:, None] - scaled[None]).max(axis=2)
        np.fill_diagonal(apart, np.inf)
        near = np.argsort(apart, axis=1, kind="stable")[:, : min(FRONT.nearest, count - 1)]
        one, other = np.repeat(np.arange(count), near.shape[1]), near.ravel()
    pairs = np.unique(np.stack([np.append(one, other), np.append(other, one)], axis=-1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def blends(
    values: Float[np.ndarray, "designs metrics"],
    plan: Int[np.ndarray, " designs"],
    u: Float[np.ndarray, "designs variables"],
) -> tuple[Int[np.ndarray, " blends"], Float[np.ndarray, "blends variables"]]:
    """(plans, coordinates): every design with its own plan, on the way to each neighbour's hardware."""
    one, other = neighbours(values)
    way = np.arange(1, FRONT.blends + 1) / (FRONT.blends + 1)
    mixed = u[one, None] + way[None, :, None] * (u[other] - u[one])[:, None]
    return np.repeat(plan[one], FRONT.blends), mixed.reshape(len(one) * FRONT.blends, u.shape[1])


MARGIN = 1e-6  # a level is this far beyond a value found, so that the design that has it is not lost to rounding


@dataclass
class FrontDesign:
    """A design on the front: plan and coordinates, logs of all metrics, bound and gap of the first under its levels."""

    plan: int
    u: np.ndarray
    values: np.ndarray
    lower: float
    levels: dict[str, float]
    closed: bool

    @property
    def gap(self) -> float:
        """Largest possible decrease of the first metric, in the log, with no other metric worse."""
        return self.values[0] - self.lower


@dataclass(frozen=True)
class Cell:
    """A part of the box of levels."""

    low: Float[np.ndarray, " others"]
    high: Float[np.ndarray, " others"]

    @property
    def middle(self) -> Float[np.ndarray, " others"]:
        """Half-way, in the logs."""
        return 0.5 * (self.low + self.high)

    @property
    def size(self) -> float:
        """Its volume."""
        return float(np.prod(self.high - self.low))

    def split(self) -> list["Cell"]:
        """Cut through the middle along every axis."""
        ends = np.array([self.low, self.middle, self.high])
        axes = range(len(self.low))
        parts = [np.array(part) for part in itertools.product((0, 1), repeat=len(self.low))]
        return [Cell(ends[part, axes], ends[part + 1, axes]) for part in parts]


@dataclass
class FrontWalk:
    """From the ends of a front over its levels.

    Args:
        sweep: solves the programmes.
        rows: of the metrics, the first to be minimised.
        levels: at which a programme is solved.
        between: further designs, so many times `levels`, or its square for three metrics.
        report: told after each programme.
    """

    sweep: ParametricSequence
    rows: tuple[str, ...]
    levels: int
    between: int = 0
    report: Report = silent
    designs: list[FrontDesign] = field(default_factory=list[FrontDesign])
    impossible: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    least: dict[str, float] = field(default_factory=dict[str, float])
    most: dict[str, float] = field(default_factory=dict[str, float])
    lowest: dict[str, float] = field(default_factory=dict[str, float])  # what each metric is proven to be at least
    cells: list[Cell] = field(default_factory=list[Cell])
    done: int = 0

    def run(self) -> str:
        """Ends, then programmes, then designs between; says why where it stopped early."""
        late = f"stopped at its time limit of {self.sweep.effort.seconds:g} s"
        try:
            if not self.ends():
                return late
            self.cells = [Cell(*(np.array([end[n] for n in self.rows[1:]]) for end in (self.least, self.most)))]
            finished = self._programmes()
            if self.between:
                finished = self._fill() and finished
            return "" if finished else late
        except KeyboardInterrupt:
            return INTERRUPTED

    @property
    def planned(self) -> int:
        """Programmes to solve, ends included."""
        return self.levels + {2: 1, 3: 5}[len(self.rows)]

    def _solve(self, goal: str, allowed: dict[str, float]) -> Outcome | None:
        """Solve one programme; None where the search has to stop."""
        if self.sweep.left <= 0:
            return None
        outcome = self.sweep.solve(goal, allowed)
        self.done += 1
        if goal == GOAL and outcome.bounding.plan >= 0:
            self.designs.append(self._design(outcome, allowed))
        self.report_progress("front", self.done, max(self.planned, self.done))
        return outcome.unless_interrupted()

    def report_progress(self, stage: str, done: int, total: int) -> None:
        """Report how far a stage is, with the widest gap."""
        gap = math.expm1(max((one.gap for one in self.designs), default=float("nan")))
        self.report(Progress(stage, done, total, float("nan"), gap))

    def _design(self, outcome: Outcome, allowed: dict[str, float]) -> FrontDesign:
        bounding = outcome.bounding
        values = self._values(bounding.plan, bounding.u)
        return FrontDesign(bounding.plan, bounding.u.copy(), values, outcome.lower, dict(allowed), not outcome.stopped)

    def _values(self, plan: int, u: np.ndarray) -> np.ndarray:
        return self.metrics_of(np.array([plan]), u[None])[0][0]

    def metrics_of(self, plan: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(logs of the metrics, whether all limits hold) of designs."""
        oracle = self.sweep.oracle.inner
        result = oracle.tangents(plan, u, REFERENCE_SHARPNESS)
        metric_columns, limits = ([oracle.names.index(row) for row in rows] for rows in (self.rows, self.sweep.limits))
        holds = feasible_logs(result.exact[:, limits].max(axis=1, initial=-np.inf))
        return result.exact[:, metric_columns], holds & (result.broken <= 0) & np.isfinite(result.exact).all(axis=1)

    def ends(self) -> bool:
        """Least value of every metric, and its greatest among the designs that are best in another."""
        if self._solve(GOAL, {}) is None or not self.designs:
            return False
        for row, value in zip(self.rows[1:], self.designs[0].values[1:], strict=True):
            outcome = self._solve(row, {})
            if outcome is None or not math.isfinite(outcome.upper):
                return False
            self.least[row], self.most[row], self.lowest[row] = outcome.upper + MARGIN, value, outcome.lower
        if len(self.rows) == 2:
            return self._solve(GOAL, dict(self.least)) is not None
        for row, other in itertools.permutations(self.rows[1:], 2):
            # the other is at its worst where this one is at its least
            outcome = self._solve(GOAL, {row: self.least[row] + self.sweep.effort.gap})
            if outcome is None or outcome.bounding.plan < 0:
                return False
            self.most[other] = max(self.most[other], self.designs[-1].values[self.rows.index(other)])
        return True

    def _programmes(self) -> bool:
        """Split the cell of which least is known until so many programmes are solved; False where time ran out."""
        reserve = FRONT.reserved * self.sweep.effort.seconds if self.between else 0.0
        while self.done < self.planned:
            if self.sweep.left <= reserve:
                return False
            unknown = self._unknown(self.sweep.effort.gap)
            if unknown.max() <= 0:
                return True
            cell = self.cells.pop(int(unknown.argmax()))
            allowed = self._allowed(cell.middle)
            self.cells += cell.split()
            if not self._covered(allowed) and not self._programme(allowed):
                return False
        return True

    def _programme(self, allowed: dict[str, float]) -> bool:
        outcome = self._solve(GOAL, allowed)
        if outcome is not None and outcome.bounding.plan < 0:
            self.impossible.append(allowed)
        return outcome is not None

    def _fill(self) -> bool:
        """Split the cells of which least is known, many at a time, their middles proven by what is known already."""
        between = LevelSolver(self.sweep, self.rows[1:])
        self._polish(between)
        left = total = self.between * self.levels ** (len(self.rows) - 1)
        while left > 0:
            unknown = self._unknown(0.0)
            most = np.argsort(-unknown, kind="stable")[: min(FRONT.wave, left)]
            chosen = [int(i) for i in most if unknown[i] > 0]
            if len(chosen) == 0:
                return True
            if self.sweep.left <= 0:
                return False
            points = [Point(self.cells[i].middle) for i in chosen]
            between.designs(points)
            hard = between.prove([point for point in points if point.plan >= 0])
            self.cells = [c for i, c in enumerate(self.cells) if i not in chosen] + [
                part for i in chosen for part in self.cells[i].split()
            ]
            self._take(points)
            for point in hard:
                if not self._programme(self._allowed(point.level)):
                    return False
            between.learn()
            left -= len(chosen)
            self.report_progress("between", total - left, total)
        return self._blend(between)

    def _take(self, points: list[Point]) -> None:
        """The designs that are proven, with their metrics."""
        points = [p for p in points if p.plan >= 0 and p.value - p.lower <= self.sweep.effort.gap + 1e-9]
        if points:
            values = self.metrics_of(np.array([p.plan for p in points]), np.array([p.u for p in points]))[0]
            for p, row_values in zip(points, values, strict=True):
                self.designs.append(
                    FrontDesign(p.plan, p.u, row_values, min(p.lower, row_values[0]), self._allowed(p.level), True)
                )

    def _blend(self, between: LevelSolver) -> bool:
        """Designs on the way from each to its neighbours, proven by what is known; False where time ran out."""
        values_before = np.array([one.values for one in self.designs])
        front = [self.designs[i] for i in map(int, non_dominated_rows(values_before))]
        if len(front) < 2:
            return True
        plan, u = blends(
            np.array([f.values for f in front]), np.array([f.plan for f in front]), np.array([f.u for f in front])
        )
        values, holds = self.metrics_of(plan, u)
        plan, u, values = plan[holds], u[holds], values[holds]
        new = non_dominated_rows(np.concatenate([values_before, values])) - len(values_before)
        points = [Point(values[i, 1:], float(values[i, 0]), int(plan[i]), u[i]) for i in new[new >= 0]]
        for first in range(0, len(points), FRONT.block):
            if self.sweep.left <= 0:
                return False
            some = points[first : first + FRONT.block]
            between.prove(some)
            self._take(some)
            self.report_progress("blends", first + len(some), len(points))
        return True

    def _polish(self, between: LevelSolver) -> None:
        """Solve the programmes' own designs to their end: their bounds hold, their gaps shrink."""
        points: list[Point] = []
        for one in self.designs:
            level = [one.levels.get(name, value) for name, value in zip(self.rows[1:], one.values[1:], strict=True)]
            points.append(Point(np.array(level), one.values[0], one.plan, one.u, one.lower))
        between.designs(points)
        for one, point in zip(self.designs, points, strict=True):
            if point.value < one.values[0]:
                one.plan, one.u, one.values = point.plan, point.u, self._values(point.plan, point.u)

    def _allowed(self, level: np.ndarray) -> dict[str, float]:
        return dict(zip(self.rows[1:], level.tolist(), strict=True))

    def _covered(self, allowed: dict[str, float]) -> bool:
        """True if a solved programme answers this one: it allowed more and its design keeps to less, or had none."""
        for one in self.designs:
            more = all(name in allowed and allowed[name] <= most for name, most in one.levels.items())
            within = all(one.values[self.rows.index(name)] <= most for name, most in allowed.items())
            if more and within and one.closed:
                return True
        return any(all(allowed[name] <= most for name, most in levels.items()) for levels in self.impossible)

    def _unknown(self, gap: float) -> Float[np.ndarray, " cells"]:
        """Volume of each cell that is neither dominated nor proven empty; 0 where less than `gap` is open."""
        low, high = np.array([cell.low for cell in self.cells]), np.array([cell.high for cell in self.cells])
        values = np.array([one.values for one in self.designs])
        inside = (values[None, :, 1:] <= low[:, None] + 1e-9).all(axis=2)
        upper = np.where(inside, values[None, :, 0], values[:, 0].max()).min(axis=1)
        open_ = upper - self._lower(high)
        return np.where(open_ > gap, open_, 0.0) * np.array([cell.size for cell in self.cells])

    def _lower(self, level: Float[np.ndarray, "levels others"]) -> Float[np.ndarray, " levels"]:
        """Proven lower bound of the first metric wherever the others keep to these levels."""
        proven = [(one.levels, one.lower) for one in self.designs] + [(levels, np.inf) for levels in self.impossible]
        most = np.array([[levels.get(name, np.inf) for name in self.rows[1:]] for levels, _ in proven])
        lower = np.array([value for _, value in proven])
        return np.where((level[:, None] <= most[None] + 1e-12).all(axis=2), lower[None], -np.inf).max(axis=1)

    def optimistic(self) -> Float[np.ndarray, "corners metrics"]:
        """Points that dominate whatever any design can reach: the bound of every cell at its low corner.

        Beyond the box's upper faces the bounds are those of programmes without that level, below it nothing lies.
        """
        corners: list[list[float]] = []
        least = np.array([self.least[name] for name in self.rows[1:]]) if self.least else np.zeros(0)
        lowest, most = ([end.get(name, np.nan) for name in self.rows[1:]] for end in (self.lowest, self.most))
        for cell in self.cells:
            low = np.where(cell.low <= least, lowest, cell.low)
            for free in itertools.product((False, True), repeat=len(low)):
                if all(cell.high[i] >= most[i] for i in np.flatnonzero(free)):
                    high = np.where(free, np.inf, cell.high)
                    corners.append([self._lower(high[None])[0], *np.where(free, cell.high, low)])
        result = np.array(corners).reshape(-1, len(self.rows))
        return result[np.isfinite(result).all(axis=1)]
