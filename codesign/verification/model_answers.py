"""Model of a verification: rows, tangents and designs, by a program of its own."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..core.jax_typed import asarray, make_jaxpr, zeros
from ..core.smooth import at_least
from ..curvature import TOLERATED, Judgement, judge
from ..jaxprs.control_flow import LOOPS
from ..model.metrics import Metrics, evaluate
from ..model.scenario import Scenario
from ..staging import (
    PlanRanges,
    Points,
    Running,
    classes_of_plans,
    flatten,
    reserve_shares,
    row_program,
    running,
    tight_tiers,
)
from ..study.design_space import DesignSpace
from ..study.objective import Objective
from .derivation import GOAL
from .goals_blended import StudyCases
from .legal_plans import LegalPlans

LEVELLED = "metrics."  # before the name of a metric that has levels, so that it cannot be a limit's
LEAST_SHARE = 1e-9  # stands in for a share of zero, which has no logarithm; far below 1, where a constraint binds
TARGETS = ("time_s", "energy_j", "capex_usd", "provisioned_power_w")
TANGENT_BLOCK = 2048  # points of one pass: arrays of them stay in a cache
LOOPED_BLOCK = 512  # the same where loops run beneath, each of which has a few hundred numbers a point
THREADS = 2
COMPARED = 64  # pairs of plans that should be equal, priced without tables


@dataclass(frozen=True)
class VerifiedProblem:
    """A study as its configuration says it.

    goal: name of what is optimised: the objective's, or a variable of the space (`search=inverse`); sign: 1 where less
    is better. targets: metrics whose extremes an attack visits too: a goal may have its cliff there. values: hardware
    variable -> the only values it may have; each is chosen as a plan field is. units: hardware variable -> what a
    design must have a whole number of; bounds hold for all numbers. levelled: metrics that a front holds to levels ->
    1 where less is better, -1 where more is. cases: that a design is judged in, where some constants are uncertain;
    else it is judged in the scenario alone.
    """

    scenario: Scenario
    space: DesignSpace
    objective: Objective
    goal: str
    sign: float = 1.0
    targets: tuple[str, ...] = TARGETS
    values: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    units: Mapping[str, float] = field(default_factory=dict[str, float])
    levelled: Mapping[str, float] = field(default_factory=dict[str, float])
    cases: StudyCases | None = None

    @property
    def scenarios(self) -> list[Scenario]:
        """Scenarios that a design is judged in."""
        return [self.scenario] if self.cases is None else self.cases.scenarios

    @property
    def nominal(self) -> "VerifiedProblem":
        """Copy that is judged in the scenario alone."""
        return dataclasses.replace(self, cases=None)

    @property
    def lists(self) -> dict[str, np.ndarray]:
        """Plan field, then listed variable -> its values, rising."""
        listed = {name: np.array(self.values[name], dtype=float) for name in sorted(self.values)}
        return {name: np.unique(values) for name, values in (dict(self.space.lists) | listed).items()}

    @functools.cached_property
    def legal(self) -> LegalPlans:
        """Legal combinations of listed plan values, values of each field rising."""
        return LegalPlans(
            {name: values for name, values in self.lists.items() if name in self.space.plan}, self.scenario
        )

    @property
    def combinations(self) -> int:
        """Combinations of plan fields and listed variables, legal or not."""
        return self.space.combinations * math.prod(len(np.unique(values)) for values in self.values.values())

    @property
    def variables(self) -> tuple[str, ...]:
        """Hardware variables that may have any value of their range."""
        return tuple(name for name in self.space.names if name not in self.values)

    def metrics(self, point: dict[str, float], scenario: Scenario | None = None) -> Metrics:
        """The hard model in float64 at plan fields and hardware values, run by NumPy, not compiled."""
        values = {name: asarray(point[name], dtype=float) for name in (*self.space.plan, *self.space.hardware)}
        return evaluate(self.space.place(self.scenario if scenario is None else scenario, values))

    @functools.cached_property
    def _judged(self) -> dict[tuple[float, ...], tuple[np.ndarray, np.ndarray]]:
        """Designs that were judged, by the values of their fields and variables: a claim's is asked for thrice."""
        return {}

    def in_cases(self, point: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """(goals, largest violations) of one design, one a case."""
        key = tuple(float(point[name]) for name in (*self.space.plan, *self.space.hardware))
        if key not in self._judged:
            self._judged[key] = self._in_cases(point)
        return self._judged[key]

    def _in_cases(self, point: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
        each = [self.metrics(point, scenario) for scenario in self.scenarios]
        goals = [float(self.value(metrics, point)) for metrics in each]
        return np.array(goals), np.array([float(self.objective.excess(metrics)) for metrics in each])

    def priced(self, point: dict[str, float]) -> tuple[float, float]:
        """(goal, largest violation) of one design, over all cases."""
        goals, excess = self.in_cases(point)
        if self.cases is None:
            return float(goals[0]), float(excess[0])
        with np.errstate(divide="ignore", invalid="ignore"):
            log = float(self.cases.blended(self.sign * np.log(goals)[:, None])[0])
        return math.exp(self.sign * log) if math.isfinite(log) else math.nan, float(excess.max())

    def value(self, metrics: Metrics, hardware: dict[str, Any]) -> Any:
        """The goal of a design."""
        if self.goal in self.space.hardware and self.goal != self.objective.goal:
            return hardware[self.goal]
        return self.objective.value(metrics, self.goal)


class ExactRows(NamedTuple):
    """Designs by the hard model: logs of the goal, of used shares and of the targets; whether all constraints hold.

    Over all cases, where there are several: the goal blended, the rest where it is largest.
    """

    rows: Float[np.ndarray, "designs rows"]
    feasible: np.ndarray


class CheckedModel:
    """Evaluates plans at coordinates of the unit cube, in float64 and in blocks.

    Listed variables are fields of a plan, behind its own. names: of the rows: the goal's log, the log of each
    constraint's used share, the logs of metrics that have levels, and those of the targets; `bounded` counts all but
    the last. off, steep: of these, what rounding may do to a row by the rules, and whether where a share is beyond 1 it
    may do so many times as much; until they were judged, what is tolerated. tabled: whether designs are priced with
    tables of the plan.
    """

    def __init__(self, problem: VerifiedProblem):
        self.problem, self.evaluated = problem, 0
        self.fields, self.variables = tuple(problem.lists), problem.variables
        self._free = np.array([problem.space.names.index(name) for name in self.variables], dtype=int)
        somewhere = {name: values[0] for name, values in problem.space.lists.items()}
        somewhere |= {name: variable.low for name, variable in problem.space.hardware.items()}
        shares = problem.objective.usages(problem.metrics(somewhere))
        reserves = reserve_shares(problem.scenario, tight_tiers(problem.scenario, problem.space))
        self.constraints = tuple(sorted({*shares, *reserves}))
        self.levelled = tuple(LEVELLED + name for name in problem.levelled)
        self.names = (GOAL, *self.constraints, *self.levelled, *problem.targets)
        self.bounded = len(self.names) - len(problem.targets)
        self.keys = tuple(name if name in reserves else f"{number:03d}" for number, name in enumerate(self.names))
        space = dataclasses.replace(problem.space, given=tuple(sorted(problem.values)))
        self.program = row_program(problem.scenario, space, tuple(space.plan), self._rows, self.keys[0])
        self._order = np.array([self.program.names.index(key) for key in self.keys])
        self._tangents = self._derived()
        looped = any(equation.name in LOOPS for equation in self.program.program.equations)
        self._block = LOOPED_BLOCK if looped else TANGENT_BLOCK
        self._plain = running(self.program.program)
        values = {name: np.unique(column) for name, column in problem.space.lists.items()}
        self._tabled, self.tabled = Points(self.program, values, slopes=False), True
        self.off, self.steep = np.full(self.bounded, TOLERATED), np.ones(self.bounded, dtype=bool)

    @property
    def cases(self) -> StudyCases | None:
        """Cases that designs are judged in, where some constants are uncertain."""
        return self.problem.cases

    def _rows(self, metrics: Metrics, hardware: dict[str, Array]) -> dict[str, Array]:
        """Every row by its key, but for those that come with a program."""
        shares, problem = self.problem.objective.usages(metrics), self.problem
        result = {self.keys[0]: problem.sign * jnp.log(problem.value(metrics, hardware))}
        for key, name in zip(self.keys[1:], self.names[1:], strict=True):
            if name in self.constraints and key.isdigit() and int(key) <= len(self.constraints):
                result[key] = jnp.log(at_least(shares[name], LEAST_SHARE))
            elif name in self.levelled:
                metric = name.removeprefix(LEVELLED)
                result[key] = problem.levelled[metric] * jnp.log(metrics.get(metric))
            elif key.isdigit():
                result[key] = jnp.log(metrics.get(name))
        return result

    def judged(
        self, listed: Mapping[str, np.ndarray], free: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, str], dict[tuple[str, str], int]]:
        """Curvature of the rows: row -> why it is not convex; (row, field) -> which way it goes.

        Args:
            listed: field -> its value in each legal combination.
            free: field -> all its values, where each is legal with every combination.
        """
        rows = dict(zip(self.keys[: self.bounded], self.names[: self.bounded], strict=True))
        unproven: dict[str, str] = {}
        said: list[dict[tuple[str, str], int | None]] = []
        judgements = self._judgements(listed, free)
        errors = [[result.errors[at] for at in rows] for result in judgements]
        self.off = np.max([[error.absolute for error in each] for each in errors], axis=0)
        self.steep = np.any([[error.steep for error in each] for each in errors], axis=0)
        for result in judgements:
            unproven |= {rows.get(at, at): why for at, why in result.unproven.items() if at in rows or not at.isdigit()}
            said.append({(name, field): result.direction(at, field) for at, name in rows.items() for field in free})
        agreed = {pair: way for pair, way in said[0].items() if all(other[pair] == way for other in said)}
        return unproven, {pair: way for pair, way in agreed.items() if way is not None}

    def _judgements(self, listed: Mapping[str, np.ndarray], free: Mapping[str, np.ndarray]) -> list[Judgement]:
        """Judge all values of the listed variables at once; where that does not prove all rows, each combination."""
        held = {name: np.unique(listed[name]) for name in self.problem.values}
        free_fields = [name for name in listed if name not in held]
        table = (
            np.unique(np.stack([listed[name] for name in free_fields], axis=-1), axis=0)
            if free_fields
            else np.zeros((1, 0))
        )
        plans = dict(zip(free_fields, table.T, strict=True))

        def judged(held: Mapping[str, Sequence[float]]) -> Judgement:
            return judge(self.program, self.problem.scenarios, plans, free, held, ordered=tuple(free))

        together = judged({name: values.tolist() for name, values in held.items()})
        if not held or not together.unproven:
            return [together]
        return [judged({name: [value] for name, value in zip(held, one, strict=True)})
                for one in itertools.product(*(values.tolist() for values in held.values()))]  # fmt: skip

    def _coordinates(self, plan: Array, u: Array) -> Array:
        """Inputs of the program for the variables: coordinates, or values of those that are listed."""
        given = dict(zip(self.fields, plan, strict=True)) | dict(zip(self.variables, u, strict=True))
        names = self.program.variables
        return jnp.stack([given[name] for name in names]) if names else zeros(0)

    @property
    def _leaves(self) -> list[list[np.ndarray]]:
        """Numbers of the scenario in every case, each with an axis of points."""
        return [[np.asarray(leaf)[..., None] for leaf in jax.tree.leaves(one)] for one in self.problem.scenarios]

    def _columns(self, plan: np.ndarray, u: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Inputs of the program for the plan, and for the variables."""
        given = dict(zip(self.fields, plan.T, strict=True)) | dict(zip(self.variables, u.T, strict=True))
        return [given[name] for name in self.program.fields], [given[name] for name in self.program.variables]

    def disagreement(self, plan: np.ndarray, u: np.ndarray, count: int) -> float:
        """Largest distance between rows priced with tables, each way, and those of the whole program without them.

        Designs share tables of their values; the first `count` are also priced without such tables, and without any.
        """
        shared = self._in_cases(plan, u, sharing=True)[0][:, :count]
        plan, u = plan[:count], u[:count]
        fields, values = self._columns(plan, u)
        result = [
            [np.broadcast_to(row, (len(plan),)) for row in self._plain(*leaves, *fields, *values)[:-1]]
            for leaves in self._leaves
        ]
        plain = np.tile(np.moveaxis(np.array(result), 1, -1)[..., self._order], (1, 2, 1))
        tabled = np.concatenate([self._in_cases(plan, u, sharing=False)[0], shared], axis=1)
        with np.errstate(invalid="ignore"):
            apart = np.abs(plain - tabled) / (1 + np.abs(plain))
        alike = (plain == tabled) | (np.isnan(plain) & np.isnan(tabled))
        return float(np.where(alike, 0.0, np.nan_to_num(apart, nan=np.inf)).max(initial=0.0))

    def classes(
        self, plans: Mapping[str, np.ndarray], free: Mapping[str, np.ndarray] | None = None
    ) -> Int[np.ndarray, " plans"]:
        """Equal numbers for plans whose rows are equal in every case, at any hardware and with each value of `free`."""
        space, scenarios = self.problem.space, self.problem.scenarios
        held = dataclasses.replace(space, given=tuple(sorted(self.problem.values)))
        program = row_program(scenarios[0], held, (*plans, *(free or {})), self._rows, self.keys[0])
        only = program.program._replace(outputs=program.program.outputs[:-1])  # rules: they are legal
        return classes_of_plans(only, program.leaves, scenarios, plans, free)

    def apart(self, plans: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]) -> float:
        """Largest difference between rows of some pairs of plans, at random hardware, priced without tables."""
        rng = np.random.default_rng(0)
        pair = rng.integers(0, len(next(iter(plans.values()))), COMPARED)
        held = [rng.choice(self.problem.lists[name], COMPARED) for name in sorted(self.problem.values)]
        u, rows = rng.uniform(size=(COMPARED, len(self.variables))), list[np.ndarray]()
        for side in (plans, others):
            free = [side[name][pair] for name in self.fields if name in side]
            fields, values = self._columns(np.stack([*free, *held], axis=-1), u)
            result = [self._plain(*leaves, *fields, *values)[:-1] for leaves in self._leaves]
            rows.append(np.array([[np.broadcast_to(row, (COMPARED,)) for row in one] for one in result]))
        same = (rows[0] == rows[1]) | (np.isnan(rows[0]) & np.isnan(rows[1]))
        with np.errstate(invalid="ignore"):
            return float(np.where(same, 0.0, np.nan_to_num(np.abs(rows[0] - rows[1]), nan=np.inf)).max(initial=0.0))

    def _derived(self) -> Running:
        """(scenario, plan, coordinates, sharpness) -> values and slopes of the reading below, run by NumPy."""

        def tangent(scenario: Scenario, plan: Array, u: Array, sharpness: Array) -> tuple[Array, Array]:
            at = self._coordinates(plan, u)
            if not self.variables:
                return self.program.exact(scenario, plan, at)[0][self._order], zeros((len(self.names), 0))
            value, slopes = self.program.tangent(scenario, plan, at, sharpness)
            return value[self._order], slopes[self._order][:, self._free]

        numbers = [jax.ShapeDtypeStruct((len(names),), float) for names in (self.fields, self.variables)]
        return running(flatten(make_jaxpr(tangent)(self.problem.scenario, *numbers, 1.0)))

    def tangents(
        self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray, report: Callable[[int], None] = lambda done: None
    ) -> tuple[Float[np.ndarray, "points rows"], Float[np.ndarray, "points rows variables"]]:
        """Values and slopes of all rows, over all cases; `report` hears how many points are done."""
        count, cases, every = len(plan), self.problem.cases, self._leaves
        self.evaluated += count

        def one(leaves: list[np.ndarray], part: slice) -> tuple[np.ndarray, ...]:
            result, size = self._tangents(*leaves, plan[part].T, u[part].T, sharpness[part]), len(plan[part])
            return tuple(np.moveaxis(np.broadcast_to(each, (*each.shape[:-1], size)), -1, 0) for each in result)

        def run(part: slice) -> tuple[np.ndarray, ...]:
            result = [one(leaves, part) for leaves in every]
            if cases is None:
                return result[0]
            value, slope = (np.stack(each) for each in zip(*result, strict=True))
            return cases.tangents(value, slope, sharpness[part])

        # written where they stay: small arrays that outlive their block leave holes in the heap, a gigabyte of a proof
        values, slopes, done = np.zeros((0, 0)), np.zeros((0, 0, 0)), 0
        with ThreadPoolExecutor(THREADS) as pool:
            for part, (value, slope) in zip(self._parts(count), pool.map(run, self._parts(count)), strict=True):
                if not done:
                    values, slopes = (np.empty((count, *each.shape[1:])) for each in (value, slope))
                values[part], slopes[part] = value, slope
                done += len(value)
                report(done)
        return values, slopes

    def least(
        self, low: Int[np.ndarray, "nodes fields"], high: Int[np.ndarray, "nodes fields"]
    ) -> Float[np.ndarray, "nodes rows"]:
        """Least of each row over the legal plans of nodes whose fields have one value or any.

        Fields keep the values that some legal plan has; a node with another has no legal plan, and no row is finite.
        """
        places = self.problem.legal.possible
        lists = {name: each[some] for (name, each), some in zip(self.problem.lists.items(), places, strict=True)}
        result, codes, legal = np.full((len(low), len(self.names)), np.inf), np.zeros_like(low), low < high
        if not all(map(len, places)):
            return result
        for number, some in enumerate(places):
            at = np.minimum(np.searchsorted(some, low[:, number]), len(some) - 1)
            codes[:, number] = at
            legal[:, number] |= some[at] == low[:, number]
        ranges = PlanRanges(self.program, self.problem.scenario, lists, self.problem.legal.rules_of(places))
        for mask in np.unique(low < high, axis=0):
            mine = np.flatnonzero(((low < high) == mask).all(axis=1) & legal.all(axis=1))
            least = ranges.least(codes[mine], frozenset(np.flatnonzero(mask).tolist()))
            result[mine] = least[:, self._order]
        self.evaluated += len(low)
        return result

    def _parts(self, count: int) -> list[slice]:
        """Blocks of so many points."""
        return [slice(first, first + self._block) for first in range(0, count, self._block)]

    def exact(self, plan: np.ndarray, u: np.ndarray, *, sharing: bool = False) -> ExactRows:
        """Designs by the hard model. A constraint holds where its share is at most 1, with no tolerance.

        Args:
            plan: [designs, fields] values.
            u: [designs, variables] coordinates.
            sharing: whether designs have few values of each variable, of which tables are worth it.
        """
        self.evaluated += len(plan)
        result, broken = self._in_cases(plan, u, sharing=sharing)
        rows = result[0] if self.problem.cases is None else self.problem.cases.rows(result)
        return ExactRows(rows, self._holds(rows[None], broken.max(axis=0)[None])[0])

    def holds(self, plan: np.ndarray, u: np.ndarray, case: int | None = None, *, sharing: bool = False) -> np.ndarray:
        """[cases, designs] whether designs keep every constraint in one case, or in each."""
        cases = self.problem.scenarios if case is None else self.problem.scenarios[case : case + 1]
        return self._holds(*self._in_cases(plan, u, cases, sharing=sharing))

    def _holds(self, rows: np.ndarray, broken: np.ndarray) -> np.ndarray:
        last = 1 + len(self.constraints)
        return (rows[..., 1:last] <= 0).all(axis=-1) & (broken <= 0) & np.isfinite(rows[..., 0])

    def _without_tables(
        self, count: int, given: list[np.ndarray], cases: Sequence[Scenario]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows and violations of `_in_cases`, by the whole program."""
        result = np.empty((len(cases), len(self.names) + 1, count))
        for number, case in enumerate(cases):
            leaves = [np.asarray(leaf)[..., None] for leaf in jax.tree.leaves(case)]
            for row, value in enumerate(self._plain(*leaves, *given)):
                result[number, row] = value
        return np.moveaxis(result[:, self._order], 1, -1), result[:, -1]

    def _in_cases(
        self, plan: np.ndarray, u: np.ndarray, cases: Sequence[Scenario] = (), *, sharing: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """(rows [cases, designs, rows], largest violation of a rule of the plan [cases, designs])."""
        cases = cases or self.problem.scenarios
        fields, values = self._columns(plan, u)
        if not self.tabled:
            return self._without_tables(len(plan), [*fields, *values], cases)
        rows, at = np.stack(fields, axis=-1), np.stack([*values, np.zeros(len(plan))], axis=-1)[:, :-1]
        if sharing:
            result = [self._tabled.sharing(one, rows, at) for one in cases]
        else:
            result = [self._tabled(one, rows, at, np.ones(len(plan))) for one in cases]
        return np.stack([each.exact[:, self._order] for each in result]), np.stack([each.broken for each in result])
