"""Slopes of a few numbers by every number of a scenario: one backward pass each."""

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
    """For each number of `function`, its slope by every number of the scenario, as a tree like the scenario."""
    base, leaves = base_of(scenario), jax.tree.leaves(scenario)
    asked = base.asked(function)
    real = [i for i, slot in enumerate(asked.inputs) if np.issubdtype(asked.kinds[slot], np.floating)]
    count = len(asked.outputs)
    found = at_points(_pulled(asked, real), leaves, [*np.eye(count)])
    parts = [np.zeros((count, *np.shape(leaf))) for leaf in leaves]
    for place, slope in zip(real, found, strict=True):
        parts[place] = np.broadcast_to(slope, parts[place].shape)
    structure = jax.tree.structure(scenario)
    return [jax.tree.unflatten(structure, [part[number] for part in parts]) for number in range(count)]


def _pulled(asked: Program, real: Sequence[int]) -> Program:
    """(leaves, weight of each output) -> slopes of the weighted sum by the leaves that are real numbers."""

    def told(leaves: list[Any], weights: list[Any]) -> list[Array]:
        def weighted(some: list[Any]) -> Array:
            given = list(leaves)
            for place, leaf in zip(real, some, strict=True):
                given[place] = leaf
            slots: dict[int, Any] = {slot: jnp.asarray(value) for slot, value in asked.known.items()}
            slots |= dict(zip(asked.inputs, given, strict=True))
            for equation in asked.equations:
                found = run_equation(equation, [slots[slot] for slot in equation.inputs], None)
                slots |= dict(zip(equation.outputs, found, strict=True))
            return sum((w * slots[slot] for w, slot in zip(weights, asked.outputs, strict=True)), jnp.asarray(0.0))

        return jax.grad(weighted)([leaves[place] for place in real])

    leaves = [jax.ShapeDtypeStruct(asked.shapes[slot], asked.kinds[slot]) for slot in asked.inputs]
    return flatten(jax.make_jaxpr(told)(leaves, [jnp.asarray(1.0)] * len(asked.outputs)))
