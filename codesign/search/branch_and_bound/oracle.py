"""What a certified search asks of the model: its logarithms and their slopes for many plans at many points.

A row is the log of one quantity: the goal, and the used share of each constraint (at most 0 where it holds). For a
fixed plan every row is a convex function of the unit-cube coordinates u of the hardware variables, where the walk over
its program proves it (`unproven`), so its tangent at any point lies below it everywhere: one evaluation with its slopes
is a bound for the whole box.

Source: tangents as cuts of convex programmes, [kelley1960], [duran1986]; see docs/optimisation.md, section 2.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...curvature import Judgement, judge
from ...metrics import Metrics
from ...scenario import Scenario
from ...smooth import at_least
from ...staging import Found, PlanTables, Points, RowProgram, Rows, row_program
from ..base import Problem

LEAST_SHARE = 1e-9  # a constraint that uses nothing has no logarithm: this share of its bound stands in
MOST_PLACED = 256  # scenarios kept on the device
GOAL = "goal"


@dataclass(frozen=True)
class Tangents:
    """Exact rows at the points asked for, and affine functions of u that lie below the rows everywhere.

    exact: the hard model. affine: intercept at u = 0, then slopes; of the weighted reading, whose tangent at a kink
    lies between the slopes on its sides (coefficients: 1 + variables). broken: largest violation of a rule of the
    plan.
    """

    exact: Float[np.ndarray, "points rows"]
    affine: Float[np.ndarray, "points rows coefficients"]
    broken: Float[np.ndarray, " points"]


def rows_of(problem: Problem) -> Rows:
    """The rows of a problem: log of the goal, then log of the used share of every constraint."""

    def rows(metrics: Metrics, _: dict[str, Array]) -> dict[str, Array]:
        shares = problem.objective.usages(metrics)
        logs = {name: jnp.log(at_least(share, LEAST_SHARE)) for name, share in shares.items()}
        return {GOAL: problem.objective.log_goal(metrics)} | logs

    return rows


class AbstractOracle(abc.ABC):
    """Anything whose rows are convex in u for a fixed plan: all that bounding and closing know of a model.

    names: of the rows; count: plans; variables: names of the coordinates; evaluated: points asked for so far;
    doubt: why the plans listed do not stand for all of them, or groups not for their plans.
    """

    names: tuple[str, ...]
    evaluated: int
    doubt: str = ""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """Plans."""

    @property
    @abc.abstractmethod
    def variables(self) -> tuple[str, ...]:
        """Hardware variables, in the order of the coordinates."""

    @abc.abstractmethod
    def near(self, plan: int, changes: int) -> np.ndarray:
        """Numbers of the plans that differ from `plan` in at most so many fields."""

    def unproven(self, held: Mapping[str, Sequence[float]] | None = None) -> dict[str, str]:
        """Row -> why nothing proves it convex in u; empty where all are. An oracle that cannot tell says so.

        Args:
            held: variable -> coordinates that it has, where it is not free.
        """
        del held
        return dict.fromkeys(self.names, "nothing is known of how it was made")

    @property
    def plan_count(self) -> int:
        """Plans in all; `count` numbers are given out so far, to plans and to groups of them."""
        return self.count

    @property
    def roots(self) -> np.ndarray:
        """Numbers that stand for all plans together."""
        return np.arange(self.count)

    def sample(self, rng: np.random.Generator, most: int) -> np.ndarray:
        """Numbers of so many random plans, or of all."""
        if self.count <= most:
            return np.arange(self.count)
        return np.sort(rng.choice(self.count, most, replace=False))

    def single(self, plan: np.ndarray) -> np.ndarray:
        """Which numbers stand for one plan, not for a group."""
        return np.ones(len(plan), dtype=bool)

    def weight(self, plan: np.ndarray) -> np.ndarray:
        """Plans that each number stands for."""
        return np.ones(len(plan), dtype=np.int64)

    def split(self, plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(numbers of the parts of these groups, position in `plan` of the group of each)."""
        return plan[:0], np.zeros(0, dtype=int)

    @property
    def parents(self) -> np.ndarray:
        """For every number that of a group with all its plans and more; itself where there is none."""
        return np.arange(self.count)

    @property
    def divided(self) -> np.ndarray:
        """Numbers of groups that were split: `split` lists all their parts."""
        return np.zeros(0, dtype=int)

    @abc.abstractmethod
    def tangents(
        self,
        plan: Int[np.ndarray, " points"],
        u: Float[np.ndarray, "points variables"],
        sharpness: Float[np.ndarray, " points"] | float,
    ) -> Tangents:
        """Rows and tangents of plan numbers `plan` at `u`.

        A larger `sharpness` puts the tangent of a kink closer to one of its sides.
        """

    def values(
        self, plan: Int[np.ndarray, " points"], u: Float[np.ndarray, "points variables"]
    ) -> tuple[Float[np.ndarray, "points rows"], Float[np.ndarray, " points"]]:
        """(exact rows, broken) of `tangents` alone, for less where an oracle can do without tangents."""
        found = self.tangents(plan, u, 1.0)
        return found.exact, found.broken


class RelayingOracle(AbstractOracle):
    """The plans, groups and variables of another oracle; what is done with its tangents is left to subclasses."""

    def __init__(self, inner: AbstractOracle):
        self.inner, self.names, self.evaluated = inner, inner.names, 0

    @property
    def count(self) -> int:
        """Numbers given out."""
        return self.inner.count

    @property
    def plan_count(self) -> int:
        """Plans."""
        return self.inner.plan_count

    @property
    def variables(self) -> tuple[str, ...]:
        """Hardware variables."""
        return self.inner.variables

    @property
    def roots(self) -> np.ndarray:
        """Numbers that stand for all plans."""
        return self.inner.roots

    @property
    def parents(self) -> np.ndarray:
        """For every number that of a group around it."""
        return self.inner.parents

    def unproven(self, held: Mapping[str, Sequence[float]] | None = None) -> dict[str, str]:
        """As of the other oracle: what is done with its tangents keeps convexity."""
        return self.inner.unproven(held)

    def near(self, plan: int, changes: int) -> np.ndarray:
        """Plans that differ little."""
        return self.inner.near(plan, changes)

    def sample(self, rng: np.random.Generator, most: int) -> np.ndarray:
        """Random plans."""
        return self.inner.sample(rng, most)

    def single(self, plan: np.ndarray) -> np.ndarray:
        """Which numbers stand for one plan."""
        return self.inner.single(plan)

    def weight(self, plan: np.ndarray) -> np.ndarray:
        """Plans that each number stands for."""
        return self.inner.weight(plan)

    def split(self, plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Parts of groups."""
        return self.inner.split(plan)


@dataclass
class Oracle(AbstractOracle):
    """Rows and tangents of a problem's plans: traced once, run by NumPy.

    Args:
        problem: scenario and space; the objective only matters through `rows`.
        rows: (metrics, point) -> name -> log of a quantity, each convex in u for a fixed plan.
        block: points that a search asks for at once, where it may choose.
    """

    problem: Problem
    rows: Rows
    block: int = 512
    names: tuple[str, ...] = ()
    evaluated: int = 0
    plans: dict[str, np.ndarray] = field(default_factory=dict)
    program: RowProgram = field(init=False, repr=False)
    _placed: dict[int, tuple[Scenario, Scenario]] = field(default_factory=dict, repr=False)
    _points: dict[tuple[Any, bool], Points] = field(default_factory=dict, repr=False)
    _compiled: Callable[..., Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """List the legal plans and name the rows."""
        scenario, space = self.problem.scenario, self.problem.space
        if not self.plans:
            self.plans = space.plans(scenario) or {"tp": np.full(1, float(scenario.plan.tp))}
        self._table = np.stack(list(self.plans.values()), axis=-1)
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

    def judged(
        self, held: Mapping[str, Sequence[float]] | None = None, scenarios: Sequence[Scenario] = ()
    ) -> Judgement:
        """The rows as the walk over their program sees them, for all plans; `scenarios` stand in for the problem's."""
        return judge(self.program, scenarios or [self.problem.scenario], self.plans, held=held)

    def unproven(self, held: Mapping[str, Sequence[float]] | None = None) -> dict[str, str]:
        """Rows that the walk does not prove; all of them in single precision, where rounding breaks bounds."""
        if not jax.config.values["jax_enable_x64"]:
            return dict.fromkeys(
                self.names, "single precision: jax.config.update('jax_enable_x64', True) before JAX runs"
            )
        said = self.problem.objective.doubt()
        found = self.judged(held).unproven
        return {row: said if said and "expressions.py" in why else why for row, why in found.items()}

    @property
    def count(self) -> int:
        """Legal plans."""
        return len(self._table)

    @property
    def variables(self) -> tuple[str, ...]:
        """Hardware variables, in the order of the coordinates."""
        return self.problem.space.names

    def _one(self, scenario: Scenario, plan: Array, u: Array, sharpness: Array) -> tuple[Array, Array, Array, Array]:
        """Exact rows, rows of the reading below and their slopes, broken rules, of one plan at one point."""
        exact, broken = self.program.exact(scenario, plan, u)
        if not self.variables:
            return exact, exact, jnp.zeros((len(self.names), 0)), broken
        return exact, *self.program.tangent(scenario, plan, u, sharpness), broken

    def tangents(
        self,
        plan: Int[np.ndarray, " points"],
        u: Float[np.ndarray, "points variables"],
        sharpness: Float[np.ndarray, " points"] | float,
        scenario: Scenario | None = None,
    ) -> Tangents:
        """Rows and tangents; `scenario` stands in for the problem's own if given."""
        return self.of_rows(self._table[plan], u, sharpness, scenario)

    def values(
        self,
        plan: Int[np.ndarray, " points"],
        u: Float[np.ndarray, "points variables"],
        scenario: Scenario | None = None,
    ) -> tuple[Float[np.ndarray, "points rows"], Float[np.ndarray, " points"]]:
        """Rows alone; `scenario` as in `tangents`."""
        found = self._found(self._table[plan], u, 1.0, scenario, slopes=False)
        return found.exact, found.broken

    def of_rows(
        self,
        rows: Float[np.ndarray, "points fields"],
        u: Float[np.ndarray, "points variables"],
        sharpness: Float[np.ndarray, " points"] | float,
        scenario: Scenario | None = None,
        names: Sequence[str] | None = None,
    ) -> Tangents:
        """The same for plans given by the values of their fields; of these rows alone if any are named."""
        found = self._found(rows, u, sharpness, scenario, names)
        return Tangents(found.exact, affine(found.below, found.slopes, u), found.broken)

    def _found(
        self,
        rows: np.ndarray,
        u: np.ndarray,
        sharpness: np.ndarray | float,
        scenario: Scenario | None = None,
        names: Sequence[str] | None = None,
        *,
        slopes: bool = True,
    ) -> Found:
        self.evaluated += len(rows)
        sharpness = np.broadcast_to(np.asarray(sharpness, dtype=float), (len(rows),))
        tree = self.problem.scenario if scenario is None else scenario
        if self._compiled is None:
            return self.points(names, slopes=slopes)(tree, rows, u, sharpness)
        found, chosen = self._blocks(tree, rows, u, sharpness), [self.names.index(name) for name in names or self.names]
        return Found(found.exact[:, chosen], found.broken, found.below[:, chosen], found.slopes[:, chosen])

    def _blocks(self, scenario: Scenario, rows: np.ndarray, u: np.ndarray, sharpness: np.ndarray) -> Found:
        """By a compiled function of the whole model, in blocks of one shape: of scenarios that are asked for once."""
        count, parts, tree = len(rows), [], self._on_device(scenario)
        assert self._compiled is not None
        for first in range(0, count, self.block):
            index = np.minimum(np.arange(first, first + self.block), count - 1)
            out = self._compiled(tree, *map(jnp.asarray, (rows[index], u[index], sharpness[index])))
            parts.append([np.asarray(part)[: count - first] for part in out])
        exact, below, slopes, broken = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Found(exact, broken, below, slopes)

    def _on_device(self, scenario: Scenario) -> Scenario:
        """The scenario as the compiler's own arrays: calls with plain numbers would wait for each other."""
        found = self._placed.get(id(scenario))
        if found is None or found[0] is not scenario:
            if len(self._placed) >= MOST_PLACED:
                self._placed.clear()
            found = self._placed[id(scenario)] = (scenario, jax.device_put(scenario))
        return found[1]

    def columns(self, plan: Int[np.ndarray, " points"]) -> dict[str, np.ndarray]:
        """Fields of these plans."""
        return {name: column[plan] for name, column in self.plans.items()}

    def point(self, plan: int, u: np.ndarray) -> dict[str, float]:
        """Plan fields and hardware values of a design."""
        values = self.problem.space.values(dict(zip(self.variables, u[:, None], strict=True)))
        fields = self.columns(np.array([plan]))
        return {name: float(column[0]) for name, column in (fields | values).items()}

    def near(self, plan: int, changes: int) -> np.ndarray:
        """Numbers of the plans that differ from `plan` in at most so many fields."""
        differing = np.zeros(self.count, dtype=np.uint8)
        for column in self.plans.values():
            differing += column != column[plan]
        return np.flatnonzero(differing <= changes)


def affine(value: np.ndarray, slope: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Intercept at u = 0 and slopes of the tangent with this value and slope at u; no number says -inf."""
    intercept = value - np.einsum("prv,pv->pr", slope, u)
    known = np.isfinite(intercept) & np.isfinite(slope).all(axis=-1)
    whole = np.concatenate([intercept[..., None], slope], axis=-1)
    return np.where(known[..., None], whole, np.concatenate([[-1e3], np.zeros(slope.shape[-1])]))


def designs_of(oracle: Oracle, plan: np.ndarray, u: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of a trace for these plans and coordinates; without the plan fields where none varies."""
    listed: dict[str, Any] = oracle.columns(plan) if oracle.problem.space.plan else {}
    coordinates = {name: u[:, i] for i, name in enumerate(oracle.variables)}
    return listed | oracle.problem.space.values(coordinates)
