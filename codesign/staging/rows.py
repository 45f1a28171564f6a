"""The rows of a study as one traced program: what a search bounds, and what curvature is read off.

Both are the same equations. A row is bounded by tangents of a reading that lies below it: where the exact program takes
the maximum of numbers that the hardware reaches, the reading takes a fixed mean of them, w a + (1 - w) b with
w = sigmoid(sharpness log(a / b)), whose slope at a kink lies between those of its sides. Constants of the plan are read
exactly.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.jax_typed import asarray, jacfwd, make_jaxpr
from ..core.smooth import OPERATION, TINY
from ..jaxprs.partial_evaluation import bound
from ..jaxprs.program import DERIVED, Equation, Program, chained, flatten, likeness, reduced
from ..model.metrics import Metrics
from ..model.scenario import Scenario
from ..study.design_space import DesignSpace
from .again import Made, made_again, program_key
from .model import Answers, model_of, reserve_rows

Rows = Callable[[Metrics, dict[str, Array]], dict[str, Array]]
MOST_MADE = 16  # programs
_made: OrderedDict[Any, Made] = OrderedDict()
KINK, KINKS = OPERATION + "kink", OPERATION + "kinks"


class RowProgram(NamedTuple):
    """Rows, and the largest violation of a rule of the plan, as a program of (scenario, plan fields, coordinates).

    names: of the rows, the outputs but for the last; leaves: how many of the inputs are the scenario's; fields: of the
    plan; variables: names of the coordinates; varied: slots that the hardware reaches; objective_constants: slots of
    the objective's constants, such as limits: the model has none of them.
    """

    program: Program
    names: tuple[str, ...]
    leaves: int
    fields: tuple[str, ...]
    variables: tuple[str, ...]
    varied: frozenset[int]
    objective_constants: frozenset[int] = frozenset()

    def exact(self, scenario: Scenario, plan: Array, u: Array) -> tuple[Float[Array, " rows"], Array]:
        """Rows of the hard model, and the largest violation."""
        result = _run(self.program, self._inputs(scenario, plan, u), None, self.varied)
        return jnp.stack(result[:-1]), result[-1]

    def below(self, scenario: Scenario, plan: Array, u: Array, sharpness: Array) -> Float[Array, " rows"]:
        """Rows of the reading below, of which tangents are taken."""
        return jnp.stack(_run(self.program, self._inputs(scenario, plan, u), sharpness, self.varied)[:-1])

    def tangent(
        self, scenario: Scenario, plan: Array, u: Array, sharpness: Array
    ) -> tuple[Float[Array, " rows"], Float[Array, "rows variables"]]:
        """Values and slopes of the reading below at one point."""

        def twice(u: Array) -> tuple[Array, Array]:
            rows = self.below(scenario, plan, u, sharpness)
            return rows, rows

        slopes, value = jacfwd(twice, has_aux=True)(u)
        return value, slopes

    def only(self, names: Sequence[str]) -> "RowProgram":
        """Copy with these rows alone."""
        if tuple(names) == self.names:
            return self
        rows = [self.program.outputs[self.names.index(name)] for name in names]
        fewer, constants = self.program._replace(outputs=(*rows, self.program.outputs[-1])), self.program.constants
        program = made_again(_made, program_key(fewer), fewer, constants, lambda: reduced(fewer), MOST_MADE)
        return self._replace(program=program, names=tuple(names))

    def _inputs(self, scenario: Scenario, plan: Array, u: Array) -> list[Any]:
        fields = [plan[i] for i in range(len(self.fields))]
        return [*jax.tree.leaves(scenario), *fields, *(u[i] for i in range(len(self.variables)))]


def row_program(scenario: Scenario, space: DesignSpace, fields: Sequence[str], rows: Rows, goal: str) -> RowProgram:
    """The rows of a space: the goal first, then the others by name, those of `reserves` among them."""
    model, names = model_of(scenario, space, fields), list[str]()

    def priced(answers: Answers) -> list[Array]:
        metrics = answers.metrics
        result = rows(metrics, answers.values) | reserve_rows(answers.reserves)
        names[:] = [goal, *sorted(set(result) - {goal})]
        broken = asarray(0.0)
        for violation in metrics.violations.values():
            broken = jnp.maximum(broken, violation)
        return [*(asarray(result[name]) for name in names), broken]

    def placed(u: list[Any]) -> list[Array]:
        values = space.values(dict(zip(space.names, u, strict=True)))
        return [asarray(values[name]) for name in space.names]

    behind = model.program_of(priced)
    before = flatten(make_jaxpr(placed)([asarray(0.5)] * len(space.names)))
    fed, shift = dict(zip(model.of_variables, before.outputs, strict=True)), len(before.shapes)
    constants = {slot + shift: value for slot, value in behind.constants.items()}
    key = (likeness(before), program_key(behind), model.of_variables)
    full = made_again(_made, key, (before, behind), constants, lambda: chained(before, behind, fed), MOST_MADE)
    objective_constants = frozenset(slot for slot in constants if slot >= shift + len(model.program.shapes))
    coordinates, others = full.inputs[: len(space.names)], full.inputs[len(space.names) :]
    program = full._replace(inputs=(*others, *coordinates))
    varied = program.reached(coordinates)
    return RowProgram(program, tuple(names), model.leaves, tuple(fields), space.names, varied, objective_constants)


def _run(program: Program, inputs: Sequence[Any], sharpness: Any, varied: frozenset[int]) -> list[Any]:
    """Outputs of a program; of its reading below if a sharpness is given."""
    slots: dict[int, Any] = {slot: asarray(value) for slot, value in program.constants.items()}
    slots |= dict(zip(program.inputs, inputs, strict=True))
    for equation in program.equations:
        given = [slots[slot] for slot in equation.inputs]
        result = run_equation(equation, given, sharpness if equation.outputs[0] in varied else None)
        slots |= dict(zip(equation.outputs, result, strict=True))
    return [slots[slot] for slot in program.outputs]


def has_kink(equation: Equation) -> bool:
    """True if it is one of the maxima that the reading below is lower at."""
    return equation.name in (KINK, KINKS)


def run_equation(equation: Equation, given: Sequence[Any], sharpness: Any) -> list[Any]:
    """Outputs of an equation by JAX; where a sharpness is given, a mean in the place of a maximum."""
    if sharpness is not None and has_kink(equation):
        return _mean_of(equation.inner.jaxpr, given, sharpness)
    return bound(equation, given)


def _mean_of(jaxpr: Any, given: Sequence[Array], sharpness: Array) -> list[Array]:
    """A maximum with a mean in its place, along whichever axes it was asked for."""
    slots = dict(zip(jaxpr.invars, given, strict=True))
    for equation in jaxpr.eqns:
        values, name = [slots[variable] for variable in equation.invars], equation.primitive.name
        if name in DERIVED:
            result = _mean_of(equation.params[DERIVED[name]].jaxpr, values, sharpness)
        elif name == "max":
            result = [_mean_of_two(values[0], values[1], sharpness)]
        elif name == "reduce_max":
            result = [_mean_along(values[0], sharpness, tuple(int(axis) for axis in equation.params["axes"]))]
        else:
            primitive = equation.primitive
            result = primitive.bind(*values, **primitive.get_bind_params(equation.params))
            result = list(result) if primitive.multiple_results else [result]
        slots |= dict(zip(equation.outvars, result, strict=True))
    return [slots[variable] for variable in jaxpr.outvars]


def _mean_of_two(a: Array, b: Array, sharpness: Array) -> Array:
    log_a, log_b = jnp.log(jnp.maximum(a, TINY)), jnp.log(jnp.maximum(b, TINY))
    weight = jax.lax.stop_gradient(jax.nn.sigmoid(sharpness * (log_a - log_b)))
    return weight * a + (1 - weight) * b


def _mean_along(values: Array, sharpness: Array, axes: tuple[int, ...]) -> Array:
    logs = jnp.log(jnp.maximum(values, TINY))
    return jnp.sum(jax.lax.stop_gradient(jax.nn.softmax(sharpness * logs, axis=axes)) * values, axis=axes)
