"""The model of a study, traced once: whatever else is asked of it is written behind this one program."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..metrics import Metrics, evaluate
from ..scenario import Scenario
from ..space import DesignSpace
from .program import Program, chained, flatten
from .reserves import reserve_shares, tight_tiers

MOST_KEPT = 16
_kept: OrderedDict[Any, "Model"] = OrderedDict()


class Model(NamedTuple):
    """Metrics of a scenario, plan fields and hardware variables, as a program of numbers.

    program: (leaves of the scenario, plan fields, values of the variables) -> leaves of `structure`; leaves, fields,
    variables: what its inputs are; structure, avals: of (metrics, reserved shares of tiers that may be too small).
    """

    program: Program
    leaves: int
    fields: tuple[str, ...]
    variables: tuple[str, ...]
    structure: Any
    avals: tuple[Any, ...]

    @property
    def of_leaves(self) -> tuple[int, ...]:
        """Inputs that are numbers of the scenario."""
        return self.program.inputs[: self.leaves]

    @property
    def of_fields(self) -> tuple[int, ...]:
        """Inputs that are fields of the plan."""
        return self.program.inputs[self.leaves : self.leaves + len(self.fields)]

    @property
    def of_variables(self) -> tuple[int, ...]:
        """Inputs that are values of hardware variables."""
        return self.program.inputs[self.leaves + len(self.fields) :]

    def asked(self, function: Callable[[Metrics, dict[str, Array], dict[str, Array]], Any]) -> Program:
        """`function` of (metrics, values of the variables, reserved shares), as a program of the model's inputs."""

        def told(leaves: Sequence[Any], values: Sequence[Any]) -> list[Any]:
            metrics, reserves = jax.tree.unflatten(self.structure, leaves)
            return jax.tree.leaves(function(metrics, dict(zip(self.variables, values, strict=True)), reserves))

        number = jax.ShapeDtypeStruct((), jnp.asarray(1.0).dtype)
        second = flatten(jax.make_jaxpr(told)(list(self.avals), [number] * len(self.variables)))
        given = (*self.program.outputs, *self.of_variables)
        return chained(self.program, second, dict(zip(second.inputs, given, strict=True)))


def model_of(scenario: Scenario, space: DesignSpace, fields: Sequence[str]) -> Model:
    """The model of a space: traced where no scenario of this structure was asked for with these variables.

    Args:
        scenario: of which the structure matters, and which tiers may be too small.
        space: of which the leaves matter that its variables move.
        fields: of the plan, which are given; others are the scenario's.
    """
    leaves, structure = jax.tree.flatten(scenario)
    tight = tight_tiers(scenario, space)
    kinds = tuple((jnp.shape(leaf), jnp.asarray(leaf).dtype) for leaf in leaves)
    moved = tuple((name, type(space.hardware[name]).__name__, _moves(space.hardware[name])) for name in space.names)
    key = (structure, kinds, tuple(fields), moved, tight, jax.config.values["jax_enable_x64"])
    if key not in _kept:
        _kept[key] = _traced(leaves, structure, space, tuple(fields), tight)
        if len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key]


def _moves(variable: Any) -> tuple[Any, ...]:
    """What a variable does, without its bounds."""
    return (variable.path, getattr(variable, "denominator", ""), tuple(variable.along))


def _traced(
    leaves: list[Any], structure: Any, space: DesignSpace, fields: tuple[str, ...], tight: tuple[str, ...]
) -> Model:
    shapes: list[Any] = []

    def priced(leaves: list[Any], plan: list[Any], values: list[Any]) -> list[Array]:
        point = dict(zip((*fields, *space.names), (*plan, *values), strict=True))
        candidate = space.place(jax.tree.unflatten(structure, leaves), point)
        found = jax.tree.map(jnp.asarray, (evaluate(candidate), reserve_shares(candidate, tight)))
        flat, told = jax.tree.flatten(found)
        shapes[:] = [told, tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in flat)]
        return flat

    one = jnp.asarray(1.0)
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    program = flatten(jax.make_jaxpr(priced)(arrays, [one] * len(fields), [one] * len(space.names)))
    return Model(program, len(leaves), fields, space.names, *shapes)
