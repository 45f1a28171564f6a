"""A problem as a box that any search can step in, and its price at many points at once.

A point has one coordinate in [0, 1] for every field of the plan that varies (its values in rising order, each an
equal part of the range) and one for every hardware variable (its place between its bounds, in the logarithm). A
combination of plan values that breaks a rule stands for the nearest legal plan.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]  # loads its parts when asked for
from jaxtyping import Float, Int

from ...staging import Points, row_program
from ...staging.reserves import RESERVE
from ...study.feasible_plans import as_it_stands
from ..base import Problem
from ..branch_and_bound.oracle import GOAL, Rows


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
        places = [place for _, place in columns.values()]
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
        known = np.isfinite(goals).all(axis=1) & ~np.isnan(over).any(axis=1) & ~np.isnan(result.broken)
        total = np.where(known & legal, over.sum(axis=1), np.inf)
        worst = np.where(known & legal, over.max(axis=1, initial=0.0), np.inf)
        return Prices(np.where(known[:, None], goals, np.inf), total, worst)
