"""Arrays of a few numbers written out, each number by itself.

A model that prices its operations together has arrays of them at every point. Where points are many, arrays of each
number alone stay in a cache, and what is computed twice or for nothing is seen.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from ..core.jax_typed import make_jaxpr
from ..jaxprs.evaluator import doer
from ..jaxprs.identities import without_identities
from ..jaxprs.numpy_primitives import ELEMENTWISE, FLOATING, SETTLED, several
from ..jaxprs.program import Equation, Program, flatten, reduced
from .derivatives import AbstractDraft

# Norms of two numbers by half as many powers.
#
# (a / top)^p + (b / top)^p with top = max(a, b) has one power of one. It is one where top has an end and no number
# where it has none, as top / top is: the other power is that of min(a, b) / top, and the sum is the same to the last
# bit.


class _Pair(NamedTuple):
    """Slots of a norm: both numbers, the larger one, the exponent."""

    numbers: tuple[int, int]
    top: int
    exponent: int


def with_fewer_powers(program: Program) -> Program:
    """Rewrite norms of two numbers in a program without identities by fewer powers; exponents are at least one."""
    maker = {slot: equation for equation in program.equations for slot in equation.outputs}
    shapes, kinds, equations = list(program.shapes), list(program.kinds), list[Equation]()

    def put(like: Equation, primitive: Any, inputs: tuple[int, ...]) -> int:
        made = like._replace(name=primitive.name, primitive=primitive, params={}, inputs=inputs)
        shapes.append(shapes[inputs[0]])
        kinds.append(kinds[inputs[0]])
        equations.append(made._replace(outputs=(len(shapes) - 1,)))
        return len(shapes) - 1

    for equation in program.equations:
        pair = _pair_of(equation, maker)
        if pair is not None:
            least = put(equation, lax.min_p, pair.numbers)
            one = put(equation, lax.div_p, (pair.top, pair.top))
            share = put(equation, lax.div_p, (least, pair.top))
            equation = equation._replace(inputs=(one, put(equation, lax.pow_p, (share, pair.exponent))))
        equations.append(equation)
    return reduced(program._replace(equations=equations, shapes=shapes, kinds=kinds))


def _pair_of(equation: Equation, maker: Mapping[int, Equation]) -> _Pair | None:
    """Parts of a norm, if the equation is one: the sum of two powers of shares of the larger."""
    powers = [maker.get(slot) for slot in equation.inputs]
    if equation.name != "add" or not all(power is not None and power.name == "pow" for power in powers):
        return None
    (first, exponent), (second, other) = (power.inputs for power in powers if power is not None)
    shares = [maker.get(first), maker.get(second)]
    if exponent != other or not all(share is not None and share.name == "div" for share in shares):
        return None
    (one, top), (two, same) = (share.inputs for share in shares if share is not None)
    largest = maker.get(top)
    if top != same or one == two or largest is None or largest.name != "max" or {one, two} != {*largest.inputs}:
        return None
    return _Pair((one, two), top, exponent)


MOST = 16  # numbers of an array that is written out
EACH = {*ELEMENTWISE, *SETTLED, *FLOATING, "select_n", "convert_element_type", "round"}  # done number by number
MOVED = {"squeeze", "expand_dims", "reshape", "transpose", "rev", "stack", "concatenate", "split", "slice",
         "broadcast_in_dim"}  # numbers in other places  # fmt: skip
PAIRS = {"reduce_sum": lax.add_p, "reduce_prod": lax.mul_p, "reduce_max": lax.max_p, "reduce_min": lax.min_p}


class UnrolledInputs(NamedTuple):
    """parts: of each input of the program that was written out, (slot, index) of the numbers it has."""

    program: Program
    parts: dict[int, list[tuple[int, tuple[int, ...]]]]


def by_lanes(program: Program, largest: Mapping[int, float], most: int = MOST) -> UnrolledInputs:
    """Rewrite a program to the same numbers, small arrays written out.

    Args:
        program: of primitives alone.
        largest: input -> what its numbers never exceed, in either direction.
        most: numbers of an array that is written out.
    """
    draft = _Lanes(program, most)
    parts = {slot: draft.split_input(slot) for slot in program.inputs if draft.small(slot)}
    for equation in program.equations:
        draft.write(equation)
    sizes = {part: largest[slot] for slot in program.inputs for part, _ in parts.get(slot, [(slot, ())])}
    plain = without_identities(draft.done([draft.joined_lanes(slot) for slot in program.outputs]), sizes)
    written = with_fewer_powers(plain)
    return UnrolledInputs(written._replace(equations=in_turn(written)), parts)


def in_turn(program: Program) -> list[Equation]:
    """Each equation shortly before what reads it, so that few numbers wait at a time."""
    maker = {slot: equation for equation in program.equations for slot in equation.outputs}
    done, order = set[int](), list[Equation]()
    for output in program.outputs:
        waiting = [(output, False)]
        while waiting:
            slot, ready = waiting.pop()
            equation = maker.get(slot)
            if equation is None or slot in done:
                continue
            if ready:
                done.update(equation.outputs)
                order.append(equation)
            else:
                waiting.append((slot, True))
                waiting += [(read, False) for read in reversed(equation.inputs)]
    return order


class _Lanes(AbstractDraft):
    """lanes: slot of the program -> slots of its numbers, an array of its shape."""

    def __init__(self, program: Program, most: int):
        super().__init__(program, program.inputs)
        self.program, self.most = program, most
        self.lanes: dict[int, np.ndarray] = {}
        self.at: dict[int, int] = {}  # where a whole array is, if not in its own slot

    def small(self, slot: int) -> bool:
        """True if it is an array that is written out."""
        shape = self.program.shapes[slot]
        return shape != () and math.prod(shape) <= self.most

    def split_input(self, slot: int) -> list[tuple[int, tuple[int, ...]]]:
        """Have an input for each number instead."""
        shape, position = self.program.shapes[slot], self.inputs.index(slot)
        scalars = [(self.new((), self.program.kinds[slot]), index) for index in np.ndindex(*shape)]
        self.inputs[position : position + 1] = [number for number, _ in scalars]
        self.lanes[slot] = np.array([number for number, _ in scalars], dtype=int).reshape(shape)
        return scalars

    def write(self, equation: Equation) -> None:
        """One equation, by numbers where that can be done."""
        small = [self.small(slot) for slot in (*equation.inputs, *equation.outputs)]
        fits = [self.program.shapes[slot] == () or self.small(slot) for slot in (*equation.inputs, *equation.outputs)]
        if any(small) and all(fits):
            if equation.name in EACH:
                return self._each(equation)
            if equation.name in MOVED:
                return self._moved(equation)
            if equation.name in PAIRS:
                return self._reduced(equation)
        inputs = tuple(self.joined_lanes(slot) for slot in equation.inputs)
        self.equations.append(equation._replace(inputs=inputs))
        return None

    def numbers(self, slot: int) -> np.ndarray:
        """Slots of the numbers of an array, or of a number itself."""
        if slot not in self.lanes:
            shape, at = self.program.shapes[slot], self.at.get(slot, slot)
            if shape == ():
                self.lanes[slot] = np.array(at)
            elif slot in self.program.constants:
                each = [self.constant(value) for value in self.program.constants[slot].reshape(-1)]
                self.lanes[slot] = np.array(each).reshape(shape)
            else:
                like = jax.ShapeDtypeStruct(shape, self.program.kinds[slot])

                def each_of(x: Any) -> list[Any]:
                    return [x[index] for index in np.ndindex(*shape)]

                cut = flatten(make_jaxpr(each_of)(like))
                self.lanes[slot] = np.array(self.put(cut, [at])).reshape(shape)
        return self.lanes[slot]

    def joined_lanes(self, slot: int) -> int:
        """Slot of the whole array."""
        if slot in self.lanes and slot not in self.at:
            shape, lanes = self.program.shapes[slot], self.lanes[slot]
            if shape == ():
                self.at[slot] = int(lanes)
            elif slot not in self.program.constants:
                number = jax.ShapeDtypeStruct((), self.program.kinds[slot])

                def joined(*x: Any) -> Any:
                    return jax.numpy.stack(x).reshape(shape)

                join = flatten(make_jaxpr(joined)(*[number] * lanes.size))
                self.at[slot] = self.put(join, lanes.reshape(-1).tolist())[0]
        return self.at.get(slot, slot)

    def _each(self, equation: Equation) -> None:
        made = equation.outputs[0]
        shape = self.program.shapes[made]
        given = [np.broadcast_to(self.numbers(slot), shape) for slot in equation.inputs]
        params = equation.params | ({"sharding": None} if "sharding" in equation.params else {})
        result = np.empty(shape, dtype=int)
        for index in np.ndindex(*shape):
            read = tuple(int(numbers[index]) for numbers in given)
            result[index] = self._one(equation._replace(params=params), read, self.program.kinds[made])
        self.lanes[made] = result

    def _moved(self, equation: Equation) -> None:
        given = [self.numbers(slot) for slot in equation.inputs]
        result = doer(equation.primitive, equation.params, [np.dtype(int)] * len(given))(*given)
        for slot, numbers in zip(equation.outputs, several(result), strict=True):
            self.lanes[slot] = np.asarray(numbers)

    def _reduced(self, equation: Equation) -> None:
        axes, made = tuple(int(axis) for axis in equation.params["axes"]), equation.outputs[0]
        numbers = self.numbers(equation.inputs[0])
        rest = [axis for axis in range(numbers.ndim) if axis not in axes]
        shape = tuple(numbers.shape[axis] for axis in rest)
        columns = numbers.transpose((*rest, *axes)).reshape(*shape, -1)
        primitive, result = PAIRS[equation.name], np.empty(shape, dtype=int)
        for index in np.ndindex(*shape):
            first, *others = columns[index].tolist()
            for other in others:
                pair = equation._replace(name=primitive.name, primitive=primitive, params={})
                first = self._one(pair, (first, other), self.program.kinds[made])
            result[index] = first
        self.lanes[made] = result

    def _one(self, equation: Equation, inputs: tuple[int, ...], kind: Any) -> int:
        made = self.new((), kind)
        self.equations.append(equation._replace(inputs=inputs, outputs=(made,)))
        return made
