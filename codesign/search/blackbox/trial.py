"""Evaluator of a black-box search: prices points, keeps the best, ends when time or evaluations are up."""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for
from jaxtyping import Float, Int

from ...core.pareto_tools import non_dominated_rows
from ...staging import Points, row_program
from ...staging.model import RESERVE
from ...study.feasible_plans import as_it_stands
from ...study.objective import feasible_logs
from ..base import Problem, Progress, Report, silent
from ..branch_and_bound.bounding_state import Incumbent
from ..branch_and_bound.oracle import GOAL, Rows

# A problem as a box that any search can step in, and its price at many points at once.
#
# A point has one coordinate in [0, 1] for every field of the plan that varies (its values in rising order, each an
# equal part of the range) and one for every hardware variable (its place between its bounds, in the logarithm). A
# combination of plan values that breaks a rule stands for the nearest legal plan.


@dataclass
class Box:
    """The coordinates of a space.

    levels: plan field -> its values in any legal plan, rising; plans: the legal plans, one array a field.
    """

    problem: Problem
    plans: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    levels: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])

    def __post_init__(self) -> None:
        """List legal plans and number their values.

        Raises:
            ConfigError: nothing varies, or no plan is legal.
        """
        scenario, space = self.problem.scenario, self.problem.space
        self.problem.check_varies()
        self.plans = space.plans(scenario) if space.plan else {}
        columns = {name: np.unique(column, return_inverse=True) for name, column in self.plans.items()}
        columns = {name: pair for name, pair in columns.items() if len(pair[0]) > 1}
        self.levels = {name: values for name, (values, _) in columns.items()}
        places = [index for _, index in columns.values()]
        self._places = np.stack(places, axis=-1) if places else np.zeros((1, 0), dtype=int)
        self._radix = np.cumprod([1, *self.sizes[:-1]], dtype=np.int64)[: len(places)]
        keys = self._places @ self._radix
        self._order = np.argsort(keys)
        self._keys = keys[self._order]
        self._repaired: dict[int, int] = {}
        self._tree: scipy.spatial.KDTree | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of each plan field that varies."""
        return tuple(map(len, self.levels.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coordinates: plan fields, then hardware."""
        return (*self.levels, *self.problem.space.names)

    def places(self, x: Float[np.ndarray, "points coordinates"]) -> Int[np.ndarray, "points fields"]:
        """Number of the value of each plan field."""
        sizes = np.array(self.sizes, dtype=int)
        return np.clip((x[:, : len(sizes)] * sizes).astype(int), 0, sizes - 1)

    def plan_numbers(self, x: Float[np.ndarray, "points coordinates"]) -> Int[np.ndarray, " points"]:
        """The legal plan that each point stands for."""
        places = self.places(x)
        keys = places @ self._radix
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        numbers, legal = self._order[at], self._keys[at] == keys
        unknown = np.flatnonzero(~legal)
        new = [i for i in unknown if int(keys[i]) not in self._repaired]
        if new:
            tree = self._tree = self._tree or scipy.spatial.KDTree(self._places)
            _, nearest = tree.query(places[new], p=1)
            self._repaired |= dict(zip(keys[new].tolist(), np.atleast_1d(nearest).tolist(), strict=True))
        numbers[unknown] = [self._repaired[int(keys[i])] for i in unknown]
        return numbers

    def hardware(self, x: Float[np.ndarray, "points coordinates"]) -> Float[np.ndarray, "points variables"]:
        """The hardware's coordinates."""
        return np.clip(x[:, len(self.sizes) :], 0.0, 1.0)

    def designs(self, plan: Int[np.ndarray, " points"], u: np.ndarray) -> dict[str, np.ndarray]:
        """Columns of a trace."""
        names = self.problem.space.names
        values = self.problem.space.values({name: u[:, i] for i, name in enumerate(names)})
        listed = {name: column[plan] for name, column in self.plans.items()}
        return listed | values


class Prices(NamedTuple):
    """Rows of a batch of points: logs of the goals, sum and largest of the log-violations (inf: a rule is broken)."""

    goals: Float[np.ndarray, "points goals"]
    violation: Float[np.ndarray, " points"]
    worst: Float[np.ndarray, " points"]


class Evaluator:
    """Goals and violations of many points at once, in float64.

    Args:
        box: where the points lie.
        rows: (metrics, values) -> name -> log of a quantity; all that are no goals must be at most 0.
        goals: rows to be minimised.
    """

    def __init__(self, box: Box, rows: Rows, goals: tuple[str, ...] = (GOAL,)):
        self.box, self.rows, self.goals = box, rows, goals
        plans = box.plans or as_it_stands(box.problem.scenario)
        self._fields, self._table = tuple(plans), np.stack(list(plans.values()), axis=-1)
        program = row_program(box.problem.scenario, box.problem.space, self._fields, rows, GOAL)
        self._points = Points(program, box.problem.space.every_value(plans), slopes=False)
        self._goals = [program.names.index(name) for name in goals]
        aims = {GOAL, *goals, *(name for name in program.names if name.startswith(RESERVE))}
        self._limits = [at for at, name in enumerate(program.names) if name not in aims]

    def __call__(self, plan: Int[np.ndarray, " points"], u: Float[np.ndarray, "points variables"]) -> Prices:
        """Price plans by their numbers, at hardware coordinates."""
        result = self._points(self.box.problem.scenario, self._table[plan], u, np.ones(len(plan)))
        goals, over = result.exact[:, self._goals], np.maximum(result.exact[:, self._limits], 0.0)
        legal = result.broken <= 0
        is_priced = np.isfinite(goals).all(axis=1) & ~np.isnan(over).any(axis=1) & ~np.isnan(result.broken)
        total = np.where(is_priced & legal, over.sum(axis=1), np.inf)
        worst = np.where(is_priced & legal, over.max(axis=1, initial=0.0), np.inf)
        return Prices(np.where(is_priced[:, None], goals, np.inf), total, worst)


class Exhausted(Exception):
    """Time or evaluations are used up."""


class Trial:
    """Prices points of a box under a budget.

    Args:
        evaluator: the vectorised model.
        seconds, evaluations: the budget; the clock starts with the first question, after compilation.
        report: told how it goes.
        stage: name for the report.

    Attributes:
        incumbent: the best design by its first goal, and others with other plans that come near it.
        front: feasible points that no other dominates (several goals only), as (goals, plan, coordinates).
        history: (seconds, best) at every improvement.
    """

    def __init__(
        self, evaluator: Evaluator, seconds: float, evaluations: float, report: Report = silent, stage: str = ""
    ):
        self.evaluator, self.seconds, self.evaluations = evaluator, seconds, evaluations
        self.report, self.stage = report, stage
        self.incumbent, self.count = Incumbent(len(evaluator.box.problem.space.names)), 0
        self.least = (np.inf, 0, np.zeros(0))
        self.history: list[tuple[float, float]] = []
        self.front: list[tuple[np.ndarray, int, np.ndarray]] = []
        box = evaluator.box
        self.warm_up = np.full((1, len(box.names)), 0.5)
        evaluator(box.plan_numbers(self.warm_up), box.hardware(self.warm_up))
        self.began = time.perf_counter()
        self._reported = self.began

    @property
    def best(self) -> float:
        """Log of the best feasible first goal."""
        return self.incumbent.upper

    @property
    def elapsed(self) -> float:
        """Seconds of the budget that are gone."""
        return time.perf_counter() - self.began

    def prices(self, x: Float[np.ndarray, "points coordinates"]) -> tuple[np.ndarray, np.ndarray]:
        """(goals [points, goals], summed violation [points]) as logs; inf where a point has no price.

        Raises:
            Exhausted: after the answer that used up the budget was noted.
        """
        box = self.evaluator.box
        plan, u = box.plan_numbers(x), box.hardware(x)
        goals, violation, worst = self.evaluator(plan, u)
        self.count += len(x)
        self._note(goals, violation, worst, plan, u)
        if self.elapsed > self.seconds or self.count >= self.evaluations:
            raise Exhausted
        return goals, violation

    def losses(self, x: Float[np.ndarray, "points coordinates"], penalty: float) -> Float[np.ndarray, " points"]:
        """First goal plus `penalty` times the violation; a large number where a point has no price."""
        goals, violation = self.prices(x)
        loss = goals[:, 0] + penalty * violation
        return np.where(np.isfinite(loss), loss, 1e3)

    def _note(
        self, goals: np.ndarray, violation: np.ndarray, worst: np.ndarray, plan: np.ndarray, u: np.ndarray
    ) -> None:
        holds, before = feasible_logs(worst), self.best
        if not np.isfinite(self.best):
            at = int(np.argmin(violation))
            if violation[at] < self.least[0]:
                self.least = (float(violation[at]), int(plan[at]), u[at].copy())
        self.incumbent.notice(plan, u, np.stack([goals[:, 0], worst], axis=-1), np.ones(len(plan), dtype=bool))
        if self.best < before:
            self.history.append((self.elapsed, self.best))
        if goals.shape[1] > 1 and holds.any():
            self._extend(goals[holds], plan[holds], u[holds])
        now = time.perf_counter()
        if now - self._reported > 0.2:
            self._reported = now
            self.report(Progress(self.stage, self.count, self._total(), self.best))

    def _extend(self, goals: np.ndarray, plan: np.ndarray, u: np.ndarray) -> None:
        """Few points against a long front, without sorting it: what this costs is taken from the search's time."""
        non_dominated = non_dominated_rows(goals)
        new, front_goals = (
            goals[non_dominated],
            np.array([point[0] for point in self.front]).reshape(-1, goals.shape[1]),
        )
        non_dominated = non_dominated[~np.any(np.all(front_goals[None] <= new[:, None], axis=2), axis=1)]
        if len(non_dominated):
            keep = ~np.any(np.all(goals[non_dominated][None] <= front_goals[:, None], axis=2), axis=1)
            self.front = [self.front[i] for i in np.flatnonzero(keep)]
            self.front += [(goals[i], int(plan[i]), u[i].copy()) for i in non_dominated]

    def _total(self) -> int:
        """Evaluations to come to, as far as one can say."""
        by_time = self.count * self.seconds / max(self.elapsed, 1e-9)
        return max(int(min(by_time, self.evaluations)), self.count)

    def finish(self) -> None:
        """The last report."""
        self.report(Progress(self.stage, self.count, self.count, self.best))
