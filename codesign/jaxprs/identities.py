"""Equations that change nothing: zero added, one multiplied by, a choice that is known or between the same, a copy.

A product with zero is zero where the other factor has an end, which follows from the largest of all inputs. Of sums
with zero only the sign of a zero may differ.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .program import Equation, Program, reduced

NEUTRAL = {"add": (0.0, True), "mul": (1.0, True), "sub": (0.0, False), "div": (1.0, False)}
"""Operation -> the number that changes nothing, and whether it may also come first."""
PASSED_ON = ("stop_gradient", "copy")  # a word about slopes
LARGEST = 1e300  # what is below has an end, whatever rounding does


def without_identities(program: Program, sizes: Mapping[int, float], *, slopes: bool = False) -> Program:
    """Rewrite a program to the same numbers by fewer equations.

    Args:
        program: of numbers.
        sizes: input -> what its numbers never exceed, in either direction.
        slopes: whether slopes are to stay the same, too: what has none is then left as it is.
    """
    same: dict[int, int] = {}
    simplified, most = list[Equation](), _most(program, sizes)
    for equation in program.equations:
        inputs = tuple(same.get(slot, slot) for slot in equation.inputs)
        alike = None if slopes and equation.name in PASSED_ON else _alike(equation, inputs, program, most)
        if alike is not None:
            same[equation.outputs[0]] = alike
        else:
            simplified.append(equation if inputs == equation.inputs else equation._replace(inputs=inputs))
    outputs = tuple(same.get(slot, slot) for slot in program.outputs)
    return reduced(program._replace(equations=simplified, outputs=outputs))


def without_ones(program: Program, ones: frozenset[int]) -> Program:
    """Drop inputs, [] each, that are one, and products with them; all numbers stay the same.

    Raises:
        ValueError: where something else is done with them than to multiply by them.
    """
    same: dict[int, int] = {}
    remaining, gone = list[Equation](), set(ones)
    for equation in program.equations:
        inputs = tuple(same.get(slot, slot) for slot in equation.inputs)
        by = gone.intersection(inputs)
        if not by:
            remaining.append(equation if inputs == equation.inputs else equation._replace(inputs=inputs))
            continue
        made = equation.outputs[0]
        if equation.name == "broadcast_in_dim":
            gone.add(made)
            continue
        left = next((slot for slot in inputs if slot not in by), inputs[0])
        if equation.name != "mul" or program.shapes[left] != program.shapes[made]:
            raise ValueError(f"{equation.name} of a number that is left out, at {equation.where}")
        same[made] = left
        gone.update([made] if left in by else [])
    outputs = tuple(same.get(slot, slot) for slot in program.outputs)
    inputs = tuple(slot for slot in program.inputs if slot not in ones)
    return reduced(program._replace(equations=remaining, inputs=inputs, outputs=outputs))


def _most(program: Program, sizes: Mapping[int, float]) -> dict[int, float]:
    """Slot -> what its numbers never exceed, in either direction; infinite where that is not known."""
    most = {slot: largest(value) for slot, value in program.constants.items()}
    most |= {slot: sizes.get(slot, math.inf) for slot in program.inputs}
    for equation in program.equations:
        given = [most[slot] for slot in equation.inputs]
        result = math.inf
        if equation.name in ("add", "sub"):
            result = sum(given)
        elif equation.name == "mul":
            result = math.inf if math.inf in given else math.prod(given)
        elif equation.name in ("max", "min", "neg", "abs"):
            result = max(given)
        elif equation.name == "select_n":
            result = max(given[1:])
        most |= dict.fromkeys(equation.outputs, result)
    return most


def largest(value: np.ndarray) -> float:
    """Its largest number, in either direction; infinite where one is none."""
    result = float(np.max(np.abs(value.astype(float)), initial=0.0))
    return result if result < LARGEST else math.inf


def _alike(equation: Equation, inputs: Sequence[int], program: Program, most: Mapping[int, float]) -> int | None:
    """The argument that an equation passes on."""
    result = None
    if equation.name in NEUTRAL and len(inputs) == 2:
        number, first = NEUTRAL[equation.name]
        if _always(program, inputs[1], lambda value: value == number):
            result = inputs[0]
        elif first and _always(program, inputs[0], lambda value: value == number):
            result = inputs[1]
        elif equation.name == "mul":
            zeros = [slot for slot in inputs if _always(program, slot, lambda value: value == 0.0)]
            result = zeros[0] if zeros and all(most[slot] < LARGEST for slot in inputs) else None
    elif equation.name in PASSED_ON:
        result = inputs[0]
    elif equation.name == "select_n":
        if len(set(inputs[1:])) == 1:
            result = inputs[1]
        elif len(inputs) == 3 and _always(program, inputs[0], lambda value: value == value.reshape(-1)[:1]):
            result = inputs[1 + int(program.constants[inputs[0]].reshape(-1)[0])]
    made = equation.outputs[0]
    if result is None or (program.shapes[result], program.kinds[result]) != (program.shapes[made], program.kinds[made]):
        return None
    return result


def _always(program: Program, slot: int, holds: Callable[[np.ndarray], np.ndarray]) -> bool:
    """True if something holds of every number of a slot that is known."""
    return (
        slot in program.constants and program.constants[slot].size > 0 and bool(np.all(holds(program.constants[slot])))
    )
