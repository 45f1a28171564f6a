"""The oracle of one model: its rows and their tangents for the plans that are listed, traced once, run by NumPy.

Source: see docs/optimisation.md, section 2.
"""

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ...core.jax_typed import configured
from ...curvature import Judgement, judge
from ...model.scenario import Scenario
from ...staging import PlanTables, Points, RowProgram, Rows, RowValues, distinct_plans, row_program
from ...study.feasible_plans import as_it_stands
from ..base import Problem
from ..settings import BRANCH_AND_BOUND
from .oracle import GOAL, AbstractOracle, Tangents

WORTH_SCREENING = 10_000  # numbers a point that the rows take together from which on cheap rows are looked at first
CHEAP = 0.02  # share of these numbers that a cheap row takes at most
LOWEST = -1e3  # log of a row of which nothing is known


class AbstractModelOracle(AbstractOracle):
    """Plans of one problem, whose rows may be asked for in another scenario than its own."""

    problem: Problem

    @property
    def variables(self) -> tuple[str, ...]:
        """Hardware variables, in the order of the coordinates."""
        return self.problem.space.names

    @abc.abstractmethod
    def judged(
        self, held: Mapping[str, Sequence[float]] | None = None, scenarios: Sequence[Scenario] = ()
    ) -> Judgement:
        """The rows as the walk over their program sees them, for all plans; `scenarios` stand in for the problem's."""

    @abc.abstractmethod
    def columns(self, plan: Int[np.ndarray, " points"]) -> dict[str, np.ndarray]:
        """Fields of these plans."""

    def unproven(self, held: Mapping[str, Sequence[float]] | None = None) -> dict[str, str]:
        """Rows that the walk does not prove; all of them in single precision, where rounding breaks bounds.

        Without variables a bound is an evaluation of the plan: nothing is to be proven.
        """
        if not configured("jax_enable_x64"):
            return dict.fromkeys(
                self.names, "single precision: jax.config.update('jax_enable_x64', True) before JAX runs"
            )
        return self.judged(held).unproven if self.variables else {}

    def point(self, plan: int, u: np.ndarray) -> dict[str, float]:
        """Plan fields and hardware values of a design."""
        values = self.problem.space.values(dict(zip(self.variables, u[:, None], strict=True)))
        fields = self.columns(np.array([plan]))
        return {name: float(column[0]) for name, column in (fields | values).items()}


@dataclass
class Oracle(AbstractModelOracle):
    """Rows and tangents of a problem's plans: traced once, run by NumPy.

    Args:
        problem: scenario and space; the objective only matters through `rows`.
        rows: (metrics, point) -> name -> log of a quantity, each convex in u for a fixed plan.
        block: points that a search asks for at once, where it may choose.
        plans: field -> its value in each plan; where none are given every legal plan, those that are equal in every
            metric once.
        scenarios: that stand in for the problem's, where there are several; plans must be equal in each.
    """

    problem: Problem
    rows: Rows
    block: int = 512
    names: tuple[str, ...] = ()
    evaluated: int = 0
    plans: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    scenarios: Sequence[Scenario] = ()
    program: RowProgram = field(init=False, repr=False)
    _points: dict[tuple[Any, bool], Points] = field(default_factory=dict[tuple[Any, bool], Points], repr=False)

    def __post_init__(self) -> None:
        """List the legal plans and name the rows."""
        scenario, space = self.problem.scenario, self.problem.space
        if not self.plans:
            legal = space.plans(scenario) or as_it_stands(scenario)
            self.plans = distinct_plans(self.scenarios or [scenario], space, legal)
        self.table = np.stack(list(self.plans.values()), axis=-1)
        self.program = row_program(scenario, space, tuple(self.plans), self.rows, GOAL)
        self.names = self.program.names

    def points(self, names: Sequence[str] | None = None, *, slopes: bool = True) -> Points:
        """All rows or some staged: what the plan alone decides as tables, the rest by NumPy."""
        names = tuple(self.names if names is None else names)
        if (names, slopes) not in self._points:
            values = self.problem.space.every_value(self.plans)
            tables = next((points.tables for points in self._points.values()), None) or PlanTables(self.program, values)
            self._points[names, slopes] = Points(self.program.only(names), values, slopes=slopes, tables=tables)
        return self._points[names, slopes]

    @cached_property
    def cheap(self) -> tuple[str, ...]:
        """Constraints that take few of the numbers that all rows take at a point: memory beside a queue."""
        fields = self.points(slopes=False).tables.fields

        def numbers(names: Sequence[str]) -> int:
            rest = [each for each in self.program.only(names).program.equations if each.outputs[0] not in fields]
            shapes = self.program.program.shapes
            return sum(math.prod(shapes[slot]) for equation in rest for slot in equation.outputs)

        total = numbers(self.names)
        if total < WORTH_SCREENING:
            return ()
        return tuple(name for name in self.names if name != GOAL and numbers((name,)) <= CHEAP * total)

    def screened(
        self,
        rows: Float[np.ndarray, "points fields"],
        u: Float[np.ndarray, "points variables"],
        scenario: Scenario | None = None,
    ) -> Tangents | None:
        """`screening` of plans given by the values of their fields."""
        if not self.cheap:
            return None
        some = self.of_rows(rows, u, BRANCH_AND_BOUND.reference_sharpness, scenario, self.cheap)
        self.evaluated -= len(rows)  # a point is one with all its rows
        places = [self.names.index(name) for name in self.cheap]
        exact = np.full((len(rows), len(self.names)), LOWEST)
        below = np.zeros((*exact.shape, 1 + len(self.variables)))
        below[..., 0] = LOWEST
        exact[:, places], below[:, places] = some.exact, some.affine
        return Tangents(exact, below, some.broken)

    def screening(
        self,
        plan: Int[np.ndarray, " points"],
        u: Float[np.ndarray, "points variables"],
        scenario: Scenario | None = None,
    ) -> Tangents | None:
        """Tangents of memory and the like alone; `scenario` as in `tangents`."""
        return self.screened(self.table[plan], u, scenario)

    def judged(
        self, held: Mapping[str, Sequence[float]] | None = None, scenarios: Sequence[Scenario] = ()
    ) -> Judgement:
        """The rows as the walk over their program sees them, for all plans; `scenarios` stand in for the problem's."""
        return judge(self.program, scenarios or [self.problem.scenario], self.plans, held=held)

    @property
    def count(self) -> int:
        """Plans that are listed."""
        return len(self.table)

    def tangents(
        self,
        plan: Int[np.ndarray, " points"],
        u: Float[np.ndarray, "points variables"],
        sharpness: Float[np.ndarray, " points"] | float,
        scenario: Scenario | None = None,
    ) -> Tangents:
        """Rows and tangents; `scenario` stands in for the problem's own if given."""
        return self.of_rows(self.table[plan], u, sharpness, scenario)

    def values(
        self,
        plan: Int[np.ndarray, " points"],
        u: Float[np.ndarray, "points variables"],
        scenario: Scenario | None = None,
    ) -> tuple[Float[np.ndarray, "points rows"], Float[np.ndarray, " points"]]:
        """Rows alone; `scenario` as in `tangents`."""
        result = self.evaluate(self.table[plan], u, 1.0, scenario, slopes=False)
        return result.exact, result.broken

    def of_rows(
        self,
        rows: Float[np.ndarray, "points fields"],
        u: Float[np.ndarray, "points variables"],
        sharpness: Float[np.ndarray, " points"] | float,
        scenario: Scenario | None = None,
        names: Sequence[str] | None = None,
    ) -> Tangents:
        """Rows and tangents of plans given by the values of their fields; of these rows alone if any are named."""
        result = self.evaluate(rows, u, sharpness, scenario, names)
        return Tangents(result.exact, affine(result.below, result.slopes, u), result.broken)

    def evaluate(
        self,
        rows: np.ndarray,
        u: np.ndarray,
        sharpness: np.ndarray | float,
        scenario: Scenario | None = None,
        names: Sequence[str] | None = None,
        *,
        slopes: bool = True,
    ) -> RowValues:
        """Exact rows, rows of the reading below and their slopes, broken rules; see `of_rows`."""
        self.evaluated += len(rows)
        sharpness = np.broadcast_to(np.asarray(sharpness, dtype=float), (len(rows),))
        tree = self.problem.scenario if scenario is None else scenario
        result = self.points(names, slopes=slopes and bool(self.variables))(tree, rows, u, sharpness)
        if slopes and not self.variables:  # nothing to differ along: the exact rows are their own bounds
            return result._replace(below=result.exact, slopes=np.empty((*result.exact.shape, 0)))
        return result

    def columns(self, plan: Int[np.ndarray, " points"]) -> dict[str, np.ndarray]:
        """Fields of these plans."""
        return {name: column[plan] for name, column in self.plans.items()}

    def near(self, plan: int, changes: int) -> np.ndarray:
        """Numbers of the plans that differ from `plan` in at most so many fields."""
        differing = np.zeros(self.count, dtype=np.uint8)
        for column in self.plans.values():
            differing += column != column[plan]
        return np.flatnonzero(differing <= changes)


def affine(value: np.ndarray, slope: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Intercept at u = 0 and slopes of the tangent with this value and slope at u; no number says -inf."""
    intercept = value - np.einsum("prv,pv->pr", slope, u)
    finite = np.isfinite(intercept) & np.isfinite(slope).all(axis=-1)
    coefficients = np.concatenate([intercept[..., None], slope], axis=-1)
    return np.where(finite[..., None], coefficients, np.concatenate([[LOWEST], np.zeros(slope.shape[-1])]))


def designs_of(oracle: AbstractModelOracle, plan: np.ndarray, u: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of a trace for these plans and coordinates; without the plan fields where none varies."""
    listed: dict[str, Any] = oracle.columns(plan) if oracle.problem.space.plan else {}
    coordinates = {name: u[:, i] for i, name in enumerate(oracle.variables)}
    return listed | oracle.problem.space.values(coordinates)
