"""Slopes of a few numbers by every number of a scenario: one forward pass along all of them at once."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..metrics import Account
from ..scenario import Scenario
from .model import base_of
from .program import Program, flatten
from .rows import run_equation
from .running import at_points


def slopes_of(scenario: Scenario, function: Callable[[Account], list[Array]]) -> list[Scenario]:
    """For each number of `function`, its slope by every single number of the scenario, as a tree like the scenario.

    Tables have no slopes: zeros stand in their place. Hard maxima have, at a tie, the mean of both sides' slopes.
    """
    leaves, asked = jax.tree.leaves(scenario), base_of(scenario).asked(function)
    real = [i for i, slot in enumerate(asked.inputs) if asked.shapes[slot] == () and _is_real(asked.kinds[slot])]
    found = at_points(_along(asked, real), leaves, [*np.eye(len(real))])
    structure, zeros, trees = jax.tree.structure(scenario), [np.zeros(np.shape(leaf)) for leaf in leaves], []
    for slopes in found:
        of_each = dict(zip(real, np.broadcast_to(slopes, (len(real),)), strict=True))
        trees.append(jax.tree.unflatten(structure, [of_each.get(i, zero) for i, zero in enumerate(zeros)]))
    return trees


def _is_real(kind: Any) -> bool:
    return np.issubdtype(kind, np.floating)


def _along(asked: Program, real: Sequence[int]) -> Program:
    """(leaves, direction: one number for each of the real ones) -> slopes of the outputs along the direction."""

    def told(leaves: list[Any], direction: list[Any]) -> list[Array]:
        def outputs(some: list[Any]) -> list[Any]:
            given = list(leaves)
            for place, leaf in zip(real, some, strict=True):
                given[place] = leaf
            slots: dict[int, Any] = {slot: jnp.asarray(value) for slot, value in asked.known.items()}
            slots |= dict(zip(asked.inputs, given, strict=True))
            for equation in asked.equations:
                found = run_equation(equation, [slots[slot] for slot in equation.inputs], None)
                slots |= dict(zip(equation.outputs, found, strict=True))
            return [slots[slot] for slot in asked.outputs]

        return jax.jvp(outputs, ([leaves[place] for place in real],), (direction,))[1]

    leaves = [jax.ShapeDtypeStruct(asked.shapes[slot], asked.kinds[slot]) for slot in asked.inputs]
    return flatten(jax.make_jaxpr(told)(leaves, [jnp.asarray(1.0)] * len(real)))
