"""The objective of a study as one pure function of the unit cube, for whatever JAX does with functions.

For a plan the function is traced, and what the hardware variables do not reach is computed, when it is made: `jax.jit`,
`grad`, `vmap`, `jacfwd` and `hessian` meet a tenth of the model. It is the model that searches bound, to rounding: the
log of the goal plus, for each constraint that is exceeded, its weight times the log of the share.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..core.errors import ConfigError, suggestion
from ..core.few_kernels import in_few_kernels
from ..core.jax_typed import asarray, value_and_grad
from ..core.matrix_slopes import by_matrix
from ..jaxprs.evaluator import interpreted
from ..jaxprs.partial_evaluation import folded, run_folded
from ..model.metrics import Metrics, evaluate
from ..staging import Program, RowProgram, row_program
from .base import Problem
from .branch_and_bound.oracle import GOAL, rows_of

PENALTY = 40.0  # weight of an exceeded constraint: the last one of a descent (`Descent.penalty`)


class ObjectiveFunction:
    """Log of a study's goal with its exceeded constraints, as a function of the hardware variables at one plan.

    Called with u, [variables] in the unit cube (0: the low end of a range, 1: the high end, logarithmic between them),
    it returns a number to minimise: exp of it is the goal in its unit (1 / the goal where that is maximised), wherever
    no constraint is exceeded.

    names: of the variables, in the order of u; plan: field -> value; penalty: weight of an exceeded constraint; broken:
    by how much the plan breaks a rule, at most 0 where it keeps all.
    """

    def __init__(self, problem: Problem, plan: Mapping[str, float], rows: RowProgram, penalty: float):
        self.names, self.plan, self.penalty = rows.variables, dict(plan), penalty
        self._problem, self._rows = problem, rows.names
        leaves = [np.asarray(leaf, dtype=float) for leaf in jax.tree.leaves(problem.scenario)]
        settled = [*leaves, *(np.asarray(float(plan[name])) for name in rows.fields)]
        inputs = rows.program.inputs
        given = dict(zip(inputs[: len(settled)], settled, strict=True))
        self._program: Program = folded(rows.program, given, dict.fromkeys(inputs[len(settled) :], 1.0))
        middle = folded(self._program, dict.fromkeys(self._program.inputs, np.asarray(0.5)), {})
        self.broken = float(middle.constants[middle.outputs[-1]])

    def __call__(self, u: Float[Array, " variables"]) -> Float[Array, ""]:
        """Log of the goal, with exceeded constraints; to be minimised."""
        return self._value(u)

    @functools.cached_property
    def _value(self) -> Callable[[Any], Array]:
        """Function with slopes taken forward, whoever asks: in reverse it compiles half as fast."""

        def value(u: Array) -> Array:
            rows = self.rows(u)
            goal = rows.pop(GOAL)
            exceeded = [jnp.where(row > 0.0, row, 0.0) for row in rows.values()]
            return goal + self.penalty * sum(exceeded, start=asarray(0.0))

        return by_matrix(value, in_few_kernels)

    def rows(self, u: Float[Array, " variables"]) -> dict[str, Float[Array, ""]]:
        """Log of the goal ("goal"), and by constraint the log of its used share: at most 0 where it is kept."""
        result = run_folded(self._program, [u[index] for index in range(len(self.names))])
        return dict(zip(self._rows, result[:-1], strict=True))

    @functools.cached_property
    def value_and_grad(self) -> Callable[[Any], tuple[Array, Array]]:
        """(value, slope along each variable) of u: the first times by NumPy, which compiles nothing, then compiled."""
        return interpreted(value_and_grad(self._value), once=False)

    def at(self, values: Mapping[str, Any]) -> Float[Array, ""]:
        """Log of the goal, with exceeded constraints, of values by variable, each in its unit.

        Raises:
            ConfigError: a variable that is missing, or one that there is not.
        """
        return self(self.coordinates(values))

    def coordinates(self, values: Mapping[str, Any]) -> Float[Array, " variables"]:
        """The u of values by variable, each in its unit.

        Raises:
            ConfigError: a variable that is missing, or one that there is not.
        """
        for name in values:
            if name not in self.names:
                raise ConfigError(f"{name!r} is no variable of the space{suggestion(name, self.names)}")
        for name in self.names:
            if name not in values:
                raise ConfigError(f"{name!r} has no value: the variables are {', '.join(self.names)}")
        result = self._problem.space.coordinates({name: asarray(values[name]) for name in self.names})
        return jnp.stack([asarray(result[name]) for name in self.names])

    def values(self, u: Float[Array, " variables"]) -> dict[str, Array]:
        """Values by variable, each in its unit, of u."""
        return self._problem.space.values({name: u[index] for index, name in enumerate(self.names)})

    def metrics(self, u: Float[Array, " variables"]) -> Metrics:
        """Every metric of the design, by the whole model."""
        return evaluate(self._problem.space.place(self._problem.scenario, self.plan | self.values(u)))


def objective_fn(study: Any, plan: Mapping[str, float] | None = None, *, penalty: float = PENALTY) -> ObjectiveFunction:
    """Objective of a study at a plan as a pure function of its hardware variables.

    Args:
        study: from `study_from_config`, or a `Problem`.
        plan: field of the plan -> value, as in {"tp": 8, "pp": 4}; other fields are the scenario's own.
        penalty: weight of a constraint that is exceeded.

    Raises:
        ConfigError: no variable, a plan field that the space does not vary, or a plan that breaks a rule.
    """
    problem: Problem = study if isinstance(study, Problem) else study.problem
    space, scenario = problem.space, problem.scenario
    if not space.names:
        raise ConfigError("space.hardware is empty: the objective is a function of hardware variables")
    fixed = {name.removeprefix("plan."): float(value) for name, value in (plan or {}).items()}
    for name in fixed:
        if name not in space.plan:
            raise ConfigError(f"plan {name!r} is no plan field of the space{suggestion(name, space.plan)}")
    fields = {name: float(getattr(scenario.plan, name)) for name in space.plan} | fixed
    rows = row_program(scenario, space, list(space.plan), rows_of(problem), GOAL)
    result = ObjectiveFunction(problem, fields, rows, penalty)
    middle = asarray([0.5] * len(space.names))
    if not result.broken <= 0:
        broken = {name: float(by) for name, by in result.metrics(middle).violations.items() if not float(by) <= 0}
        raise ConfigError(f"plan {_plan_text(fields)} breaks {', '.join(broken)}")
    return result


def _plan_text(plan: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:g}" for name, value in plan.items())
