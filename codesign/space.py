"""Design variables: names over legal plans and over the unit cube of hardware numbers.

A point is a dict name -> value. Plan variables take the values listed; hardware variables range between two bounds
and have a coordinate u in [0, 1], value = low (high / low)^u, so that searches step in log-space.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .errors import ConfigError, suggestion
from .fields import get_path, replace
from .scenario import Scenario
from .workloads import Plan
from .workloads.plan import RECOMPUTE, recompute_level

PLAN_FIELDS = tuple(f.name for f in fields(Plan))


@dataclass(frozen=True)
class Continuous:
    """A hardware number between two bounds.

    Args:
        path: dotted path of the leaf.
        low, high: bounds, in the leaf's unit.
        grid: levels of the exhaustive search, evenly spaced in log.
        along: further leaves that change in proportion (the bandwidth of a memory with its capacity).
    """

    path: str
    low: float
    high: float
    grid: int = 4
    along: Sequence[str] = ()

    def leaves(self, scenario: Scenario, value: Any) -> dict[str, Any]:
        """Dotted path -> new value."""
        factor = value / get_path(scenario, self.path)
        return {self.path: value} | {path: get_path(scenario, path) * factor for path in self.along}


@dataclass(frozen=True)
class Ratio:
    """The ratio of one leaf to another, which stays: the numerator (and what goes `along`) is scaled.

    `numerator = value * denominator` is a monomial, so the model stays log-convex in it.
    """

    numerator: str
    denominator: str
    low: float
    high: float
    grid: int = 4
    along: Sequence[str] = ()

    @property
    def path(self) -> str:
        """The leaf that moves."""
        return self.numerator

    def leaves(self, scenario: Scenario, value: Any) -> dict[str, Any]:
        """Dotted path -> new value."""
        target = value * get_path(scenario, self.denominator)
        factor = target / get_path(scenario, self.numerator)
        return {self.numerator: target} | {path: get_path(scenario, path) * factor for path in self.along}


Variable = Continuous | Ratio


def levels(variable: Variable) -> np.ndarray:
    """Values that an exhaustive search tries, evenly spaced in log; the middle if there is one."""
    if variable.grid == 1:
        return np.array([np.sqrt(variable.low * variable.high)])
    return np.geomspace(variable.low, variable.high, variable.grid)


@dataclass(frozen=True)
class DesignSpace:
    """What may be chosen.

    Args:
        plan: field of the plan -> values to try; the others keep the scenario's value.
        hardware: name -> `Continuous` or `Ratio`.
    """

    plan: dict[str, Sequence[Any]] = field(default_factory=dict)
    hardware: dict[str, Variable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Known plan fields, non-empty lists, proper bounds."""
        for name, values in self.plan.items():
            if name not in PLAN_FIELDS:
                raise ConfigError(f"space.plan.{name} is no field of a plan{suggestion(name, PLAN_FIELDS)}")
            if isinstance(values, str) or not isinstance(values, Sequence) or len(values) == 0:
                raise ConfigError(f"space.plan.{name} = {values!r} must be a non-empty list of values")
        for name, variable in self.hardware.items():
            if not 0 < variable.low < variable.high:
                raise ConfigError(
                    f"space.hardware.{name}: bounds {variable.low:g} and {variable.high:g} must be 0 < low < high"
                )
            if variable.grid < 1:
                raise ConfigError(f"space.hardware.{name}.grid = {variable.grid} must be at least 1")

    def check(self, scenario: Scenario) -> None:
        """Refuse paths that the scenario does not have.

        Raises:
            ConfigError: unknown path, with a suggestion.
        """
        for variable in self.hardware.values():
            for path in (variable.path, getattr(variable, "denominator", variable.path), *variable.along):
                get_path(scenario, path)

    @property
    def names(self) -> tuple[str, ...]:
        """Hardware variables, in a fixed order."""
        return tuple(sorted(self.hardware))

    def values(self, coordinates: dict[str, Array]) -> dict[str, Array]:
        """Unit-cube coordinates -> values of the hardware variables."""
        return {
            name: self.hardware[name].low * (self.hardware[name].high / self.hardware[name].low) ** u
            for name, u in coordinates.items()
        }

    def coordinates(self, values: dict[str, Array]) -> dict[str, Array]:
        """Values of the hardware variables -> unit-cube coordinates."""
        return {
            name: jnp.log(value / self.hardware[name].low) / np.log(self.hardware[name].high / self.hardware[name].low)
            for name, value in values.items()
        }

    def place(self, scenario: Scenario, point: dict[str, Any]) -> Scenario:
        """The scenario with the plan fields and hardware variables of a point."""
        leaves = {f"plan.{name}": value for name, value in point.items() if name in PLAN_FIELDS}
        for name, value in point.items():
            if name in self.hardware:
                leaves |= self.hardware[name].leaves(scenario, value)
        return replace(scenario, leaves)

    def grid(self) -> dict[str, np.ndarray]:
        """All combinations of the hardware levels, one array per variable; a single point without variables."""
        points = list(itertools.product(*(levels(self.hardware[name]) for name in self.names)))
        table = np.array(points, dtype=float).reshape(len(points), len(self.names))
        return {name: table[:, column] for column, name in enumerate(self.names)}

    def plans(self, scenario: Scenario) -> dict[str, np.ndarray]:
        """Every legal plan, one array per listed field (one row where no field is listed).

        Legal means that no rule of the workload is broken on the scenario's devices; plans that only differ in a
        choice without effect (sequence parallelism of one rank, sharding over one replica) are listed once.

        Raises:
            ConfigError: no plan is legal; names the rule that the fewest plans keep.
        """
        names = tuple(self.plan)
        lists = [[float(recompute_level(v)) if n == "recompute" else float(v) for v in self.plan[n]] for n in names]
        rows = list(itertools.product(*lists))
        table = np.array(rows, dtype=float).reshape(len(rows), len(names))
        columns = {name: table[:, column] for column, name in enumerate(names)}
        broken, dp = _rules(scenario, columns, len(table))
        legal = np.ones(len(table), dtype=bool)
        for violation in broken.values():
            legal &= violation <= 0
        if not legal.any():
            worst = max(broken, key=lambda rule: (broken[rule] > 0).mean())
            share = (broken[worst] > 0).mean()
            raise ConfigError(
                f"space is empty: none of {len(table)} plans is legal; the rule {worst!r} alone refuses {share:.0%}"
            )
        legal &= ~self._pointless(scenario, columns, dp)
        return {name: column[legal] for name, column in columns.items()}

    def _pointless(self, scenario: Scenario, columns: dict[str, np.ndarray], dp: np.ndarray) -> np.ndarray:
        def column(name: str) -> np.ndarray:
            return columns.get(name, np.full_like(dp, float(getattr(scenario.plan, name))))

        repeated = np.zeros(len(dp), dtype=bool)
        if "sequence_parallel" in columns and 0.0 in columns["sequence_parallel"]:
            repeated |= (column("sequence_parallel") > 0) & (column("tp") <= 1)
        if "zero" in columns and 0.0 in columns["zero"]:
            repeated |= (column("zero") > 0) & (dp * column("cp") <= 1)
        return repeated


def _rules(scenario: Scenario, columns: dict[str, np.ndarray], count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Violation of each rule, and the data-parallel degree, for every plan."""
    if not columns:
        columns = {"tp": np.full(count, float(scenario.plan.tp))}

    def one(point: dict[str, Array]) -> tuple[dict[str, Array], Array]:
        candidate = replace(scenario, {f"plan.{name}": value for name, value in point.items()})
        layout = candidate.layout
        return candidate.workload.violations(layout), layout.dp

    broken, dp = jax.jit(jax.vmap(one))({name: jnp.asarray(column) for name, column in columns.items()})
    return {rule: np.asarray(value) for rule, value in broken.items()}, np.asarray(dp)


def shown(name: str, value: float) -> str:
    """A plan value as a reader wants it."""
    if name == "recompute":
        return RECOMPUTE[round(value)]
    return f"{value:g}"
