"""Equations run by NumPy on whole arrays of points, each result dropped as soon as nobody reads it any more."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..by_numpy import doer
from .program import Equation


class Step(NamedTuple):
    """One operation: what does it, slots of inputs and outputs, slots that nobody reads afterwards."""

    does: Callable[..., Any]
    several: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    done_with: tuple[int, ...]


def steps_of(equations: Sequence[Equation], kinds: Sequence[Any], lead: int, kept: Collection[int]) -> list[Step]:
    """Equations made ready to run.

    Args:
        equations: primitives alone (see `written_out`).
        kinds: slot -> type of its numbers.
        lead: axes of points in front of each array's own.
        kept: slots that are read when all is done.
    """
    needed, steps = set(kept), []
    for equation in reversed(equations):
        last = tuple({*equation.inputs, *equation.outputs} - needed)
        needed.update(equation.inputs)
        does = doer(equation.primitive, equation.params, [kinds[slot] for slot in equation.inputs], lead)
        steps.append(Step(does, equation.primitive.multiple_results, equation.inputs, equation.outputs, last))
    return steps[::-1]


def run_steps(steps: Sequence[Step], given: Mapping[int, Any]) -> dict[int, Any]:
    """What is kept of the slots; `given` holds what the equations start from."""
    slots = dict(given)
    with np.errstate(all="ignore"):
        for does, several, inputs, outputs, done_with in steps:
            found = does(*[slots[slot] for slot in inputs])
            for slot, value in zip(outputs, found if several else [found], strict=True):
                slots[slot] = value
            for slot in done_with:
                slots.pop(slot, None)
    return slots
