"""A program of which most inputs are settled: what they alone decide is computed once, the rest is left to JAX.

At one plan of one scenario a model of 3,000 equations keeps some hundred that its hardware variables reach: what is
multiplied by zero or one, added to zero or chosen by a truth that is known goes with the rest.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from ..core.jax_typed import asarray
from ..core.smooth import larger, smaller
from ..jaxprs.program import DERIVED, Equation, Program, inside, reduced, written_out
from ..model.scenario import Scenario
from .identities import without_identities
from .rows import RowProgram, run_equation
from .tables import run_rows

BEYOND = 1e30  # what no field of a plan exceeds
ORDERED = {"max": larger, "min": smaller}  # operations of JAX whose slopes a compiler may lose


def folded(program: Program, given: Mapping[int, np.ndarray], sizes: Mapping[int, float]) -> Program:
    """Rewrite a program for inputs of which some are settled; equal results and slopes.

    Args:
        program: any.
        given: input -> its numbers.
        sizes: each other input -> what its numbers never exceed, in either direction.

    Returns:
        The program of the other inputs.
    """
    whole = written_out(program, DERIVED)
    left = tuple(slot for slot in whole.inputs if slot not in given)
    whole = _computed(whole._replace(known={**whole.known, **given}, inputs=left))
    count = len(whole.equations) + 1
    while len(whole.equations) < count:
        count = len(whole.equations)
        whole = _computed(without_identities(whole, sizes, slopes=True))
    return whole


def fields_without_rules(rows: RowProgram, scenario: Scenario) -> tuple[str, ...]:
    """Plan fields that no rule of the plan depends on in a scenario: each value is legal wherever another is."""
    program = reduced(rows.program._replace(outputs=rows.program.outputs[-1:]))
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(scenario)]
    given = dict(zip(rows.program.inputs[: rows.leaves], leaves, strict=True))
    left = folded(program._replace(inputs=rows.program.inputs), given, dict.fromkeys(rows.program.inputs, BEYOND))
    read = {*left.outputs, *(slot for equation in left.equations for slot in equation.inputs)}
    slots = rows.program.inputs[rows.leaves : rows.leaves + len(rows.fields)]
    return tuple(name for name, slot in zip(rows.fields, slots, strict=True) if slot not in read)


def _computed(program: Program) -> Program:
    """The program without the equations that follow from its known numbers."""
    known, late = dict(program.known), list[Equation]()
    for equation in program.equations:
        if not all(slot in known for slot in equation.inputs):
            late.append(equation)
            continue
        with np.errstate(all="ignore"):
            result = run_rows(equation, [known[slot][None] for slot in equation.inputs])
        known |= {slot: value[0] for slot, value in zip(equation.outputs, result, strict=True)}
    read = {*program.outputs, *(slot for equation in late for slot in equation.inputs)}
    return program._replace(equations=late, known={slot: value for slot, value in known.items() if slot in read})


def _name_of(equation: Equation) -> str:
    """Name of an operation; of `larger` and `smaller`, traced for one precision alone, that of what they compute."""
    if equation.primitive.name not in DERIVED:
        return equation.name
    inner = inside(equation.inner)
    parts = [one.name for one in inner.equations if one.name != "convert_element_type"]
    return parts[0] if len(parts) == 1 and len(inner.inputs) == 2 else equation.name


def run_folded(program: Program, inputs: Sequence[Any]) -> list[Array]:
    """Outputs of a program by JAX, in the precision of its inputs: to be differentiated, batched and compiled."""
    given = [asarray(value) for value in inputs]
    kind = given[0].dtype if given else np.dtype(float)

    def as_given(value: Any) -> Array:
        array = asarray(value)
        return array.astype(kind) if array.dtype == np.float64 else array

    slots: dict[int, Any] = {slot: as_given(value) for slot, value in program.known.items()}
    slots |= dict(zip(program.inputs, given, strict=True))
    for equation in program.equations:
        arguments = [slots[slot] for slot in equation.inputs]
        one = ORDERED.get(_name_of(equation) if kind == np.float32 else equation.name)
        result = [one(*arguments)] if one else run_equation(equation, arguments, None)
        slots |= {slot: as_given(value) for slot, value in zip(equation.outputs, result, strict=True)}
    return [slots[slot] for slot in program.outputs]
