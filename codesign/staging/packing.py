"""Batches of equations that are done together, and where their numbers lie: what `packs` runs, in plain numbers.

Arrays are written out number by number (`lanes`). Of the equations that could be done next those of one kind are done
as one operation on [equations, points], until none is left: the 4,300 equations of a study's rows and slopes are some
250 operations. Each equation does what it does by itself, to the same arguments.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..jaxprs.dispatch import doer
from ..jaxprs.numpy_primitives import several
from ..jaxprs.program import Equation, Program, key_of
from .identities import PASSED_ON
from .lanes import EACH, MOVED, by_lanes

MOST = 1024  # numbers of an array that is written out


class Step(NamedTuple):
    """One equation, its arguments and results number by number.

    shapes: of its arguments, where it takes and makes whole arrays; kind: equal for steps that can be done together.
    """

    kind: Any
    equation: Equation
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...] | None = None


class PackedBatch(NamedTuple):
    """Equations of one kind that are done at once, or one of whole arrays.

    does: one of them; kinds: types of its arguments' numbers; reads: of each argument, which buffer and which rows of
    it; writes: (buffer, first row, rows) of the results; shapes: of its arguments, if it takes and makes whole arrays.
    """

    does: Equation
    kinds: tuple[Any, ...]
    reads: tuple[tuple[int, tuple[int, ...]], ...]
    writes: tuple[tuple[int, int, int], ...]
    shapes: tuple[tuple[int, ...], ...] | None


class Packing(NamedTuple):
    """A program cut into batches whose numbers are rows of points in a buffer for each type.

    kinds, sizes: type and rows of each buffer; constants: (buffer, first row, values) of what is known; wanted: of each
    input, in turn, (which buffer, first row, rows) its numbers are written to; outputs: (buffer, row) of each.
    """

    kinds: tuple[Any, ...]
    sizes: tuple[int, ...]
    constants: list[tuple[int, int, np.ndarray]]
    wanted: list[tuple[int, int, int]]
    batches: list[PackedBatch]
    outputs: list[tuple[int, int]]


def packing_of(program: Program) -> Packing:
    """Pack a program of primitives alone."""
    written, parts = by_lanes(program, dict.fromkeys(program.inputs, math.inf), MOST)
    numbers = _Numbers(written)
    steps, rows = list(_in_batches(numbers.steps)), _Rows(numbers.kinds)
    last = {slot: index for index, batch in enumerate(steps) for step in batch for slot in step.inputs}
    asked = [int(numbers.of[slot]) for slot in written.outputs]
    last |= dict.fromkeys(asked, len(steps))
    constants = [
        (buffer, rows.take(buffer, own), np.array([numbers.known[slot] for slot in own]))
        for buffer, own in rows.of_each_buffer([slot for slot in numbers.known if slot in last])
    ]
    given = [[p for p, _ in parts[slot]] if slot in parts else numbers.of[slot].ravel() for slot in program.inputs]
    for buffer, own in rows.of_each_buffer([int(slot) for each in given for slot in each]):
        rows.take(buffer, own)
    wanted = [(rows.buffer[int(own[0])], rows.at[int(own[0])], len(own)) for own in given]
    batches: list[PackedBatch] = []
    for index, batch in enumerate(steps):
        batches.append(rows.placed(batch))
        done = {slot for step in batch for slot in (*step.inputs, *step.outputs)}
        rows.give_back([slot for slot in done if last.get(slot, index) <= index])
    outputs = [(rows.buffer[slot], rows.at[slot]) for slot in asked]
    return Packing(tuple(rows.kinds), rows.sizes, constants, wanted, batches, outputs)


class _Numbers:
    """A program by numbers: what only puts them elsewhere is no step, but says where they are.

    of: slot -> its numbers, an array of its shape; known: number -> its value; kinds: number -> its type.
    """

    def __init__(self, program: Program):
        self._program, self.kinds = program, list(program.kinds)
        self.of: dict[int, np.ndarray] = {}
        self.known: dict[int, Any] = {}
        self.steps: list[Step] = []
        for slot in program.inputs:
            self._new(slot)
        for slot, value in program.known.items():
            if slot not in self.of:
                self.known |= dict(zip(self._new(slot), np.asarray(value).ravel(), strict=True))
        for equation in program.equations:
            self._add(equation)

    def _new(self, slot: int) -> tuple[int, ...]:
        """Numbers of a slot that something makes: of one number, itself."""
        shape = self._program.shapes[slot]
        if shape == ():
            self.of[slot] = np.array(slot)
        else:
            first, count = len(self.kinds), math.prod(shape)
            self.kinds += [self._program.kinds[slot]] * count
            self.of[slot] = np.arange(first, first + count).reshape(shape)
        return tuple(self.of[slot].ravel().tolist())

    def _add(self, equation: Equation) -> None:
        given = [self.of[slot] for slot in equation.inputs]
        if equation.name in PASSED_ON:
            self.of[equation.outputs[0]] = given[0]
        elif equation.name in MOVED:
            result = doer(equation.primitive, equation.params, [np.dtype(int)] * len(given))(*given)
            self.of |= dict(zip(equation.outputs, map(np.asarray, several(result)), strict=True))
        else:
            inputs = tuple(int(number) for numbers in given for number in numbers.ravel())
            outputs = tuple(number for slot in equation.outputs for number in self._new(slot))
            alone = equation.name in EACH and all(
                self._program.shapes[s] == () for s in (*equation.inputs, *equation.outputs)
            )
            key = (
                (key_of(equation, ()), *(self.kinds[number] for number in (*inputs, *outputs)))
                if alone
                else len(self.steps)
            )
            shapes = None if alone else tuple(numbers.shape for numbers in given)
            self.steps.append(Step(key, equation, inputs, outputs, shapes))


def _in_batches(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Steps of one kind that can be done at once, those first that the longest chain waits for."""
    maker = {slot: number for number, step in enumerate(steps) for slot in step.outputs}
    needs = [{maker[slot] for slot in step.inputs if slot in maker} for step in steps]
    users, length = defaultdict[int, list[int]](list), [1] * len(steps)
    for number in reversed(range(len(steps))):
        length[number] += max((length[user] for user in users[number]), default=0)
        for need in needs[number]:
            users[need].append(number)
    missing, ready = [len(need) for need in needs], defaultdict[Any, list[int]](list)
    for number, step in enumerate(steps):
        if missing[number] == 0:
            ready[step.kind].append(number)
    while ready:
        chosen = max(ready, key=lambda kind: max(length[number] for number in ready[kind]))
        batch = ready.pop(chosen)
        yield [steps[number] for number in batch]
        for number in batch:
            for user in users[number]:
                missing[user] -= 1
                if missing[user] == 0:
                    ready[steps[user].kind].append(user)


class _Rows:
    """Buffer rows of numbers: a buffer for each type, in it a row of points for each number that is still needed.

    Args:
        kinds: number -> its type.

    Attributes: at says in which row each number is, buffer which buffer holds it; kinds are those of the buffers.
    """

    def __init__(self, kinds: Sequence[Any]):
        self._kind_of, self.kinds = kinds, list(dict.fromkeys(kinds))
        place = {kind: number for number, kind in enumerate(self.kinds)}
        self.buffer = [place[kind] for kind in kinds]
        self.at: dict[int, int] = {}
        self._busy: list[list[bool]] = [[] for _ in self.kinds]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each buffer."""
        return tuple(map(len, self._busy))

    def of_each_buffer(self, slots: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Numbers by buffer."""
        for buffer in range(len(self.kinds)):
            own = [slot for slot in slots if self.buffer[slot] == buffer]
            if own:
                yield buffer, own

    def take(self, buffer: int, slots: Sequence[int]) -> int:
        """The first of rows side by side for these."""
        busy, first, length = self._busy[buffer], 0, 0
        for row, taken in enumerate(busy):
            first, length = (row + 1, 0) if taken else (first, length + 1)
            if length == len(slots):
                break
        busy += [False] * (first + len(slots) - len(busy))
        busy[first : first + len(slots)] = [True] * len(slots)
        self.at |= {slot: first + index for index, slot in enumerate(slots)}
        return first

    def give_back(self, slots: Sequence[int]) -> None:
        """Rows that nobody reads any more."""
        for slot in slots:
            self._busy[self.buffer[slot]][self.at[slot]] = False

    def placed(self, steps: list[Step]) -> PackedBatch:
        """Steps of one kind, their results put where there is room."""
        if steps[0].shapes is not None:
            return self._whole(steps[0], steps[0].shapes)
        count = len(steps[0].inputs)
        orders = [steps, *(sorted(steps, key=lambda s, i=i: self.at[s.inputs[i]]) for i in range(count))]
        steps = max(orders, key=lambda order: sum(are_even(rows) for rows in self._read(order)))
        first, columns = steps[0], self._read(steps)
        reads = tuple((self.buffer[slot], rows) for slot, rows in zip(first.inputs, columns, strict=True))
        kinds = tuple(self._kind_of[slot] for slot in first.inputs)
        return PackedBatch(first.equation, kinds, reads, (self._target([step.outputs[0] for step in steps]),), None)

    def _whole(self, step: Step, shapes: tuple[tuple[int, ...], ...]) -> PackedBatch:
        """An equation of whole arrays."""
        reads, kinds, start = list[tuple[int, tuple[int, ...]]](), list[Any](), 0
        for shape in shapes:
            own = step.inputs[start : start + math.prod(shape)]
            start += len(own)
            kinds.append(self._kind_of[own[0]])
            reads.append((self.buffer[own[0]], tuple(self.at[slot] for slot in own)))
        made = [
            [slot for slot in step.outputs if self._kind_of[slot] == kind]  # a loop counts and computes
            for kind in dict.fromkeys(self._kind_of[slot] for slot in step.outputs)
        ]
        return PackedBatch(step.equation, tuple(kinds), tuple(reads), tuple(map(self._target, made)), shapes)

    def _target(self, slots: Sequence[int]) -> tuple[int, int, int]:
        buffer = self.buffer[slots[0]]
        return buffer, self.take(buffer, slots), len(slots)

    def _read(self, steps: Sequence[Step]) -> list[tuple[int, ...]]:
        """Rows of each argument."""
        return list(zip(*([self.at[slot] for slot in step.inputs] for step in steps), strict=True))


def are_even(rows: Sequence[int]) -> bool:
    """True if rows lie in even steps, so that nothing is copied."""
    return len({b - a for a, b in itertools.pairwise(rows)}) < 2
