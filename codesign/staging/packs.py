"""Equations of one kind done together: for few points a program costs its calls of NumPy, not their numbers.

Arrays are written out number by number (`lanes`). Of the equations that could be done next those of one kind are done
as one operation on [equations, points], until none is left: the 4,300 equations of a study's rows and slopes are some
250 operations. Each equation does what it does by itself, to the same arguments.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..by_numpy import behind, doer, several
from .lanes import EACH, MOVED, by_lanes
from .program import Equation, Program, key_of

PASSED_ON = ("stop_gradient", "copy")
MOST = 1024  # numbers of an array that is written out
ROOTS = {0.5: np.sqrt, 2.0: np.square, -1.0: np.reciprocal}
"""Exponent -> what NumPy takes for a power with it."""
Write = Callable[[Sequence[np.ndarray]], None]


class Step(NamedTuple):
    """One equation, its arguments and results number by number.

    shapes: of its arguments, where it takes and makes whole arrays; kind: equal for steps that can be done together.
    """

    kind: Any
    equation: Equation
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...] | None = None


class Packs:
    """A program made ready to run at few points.

    Args:
        program: of primitives alone.

    Attributes: wanted says of each input, in turn, (which buffer, first row, rows) its numbers are written to.
    """

    def __init__(self, program: Program):
        written, parts = by_lanes(program, dict.fromkeys(program.inputs, math.inf), MOST)
        numbers = _Numbers(written)
        batches, rows = list(_in_batches(numbers.steps)), _Rows(numbers.kinds)
        last = {slot: place for place, batch in enumerate(batches) for step in batch for slot in step.inputs}
        asked = [int(numbers.of[slot]) for slot in written.outputs]
        last |= dict.fromkeys(asked, len(batches))
        self.operations = len(batches)
        self._constants = [
            (buffer, rows.take(buffer, own), np.array([numbers.known[slot] for slot in own])[:, None])
            for buffer, own in rows.of_each_buffer([slot for slot in numbers.known if slot in last])
        ]
        given = [[p for p, _ in parts[slot]] if slot in parts else numbers.of[slot].ravel() for slot in program.inputs]
        for buffer, own in rows.of_each_buffer([int(slot) for each in given for slot in each]):
            rows.take(buffer, own)
        self.wanted = [(rows.buffer(int(own[0])), rows.at[int(own[0])], len(own)) for own in given]
        space: dict[str, Any] = {}
        lines: list[str] = []
        for place, batch in enumerate(batches):
            lines += rows.lines(place, batch, space)
            done = {slot for step in batch for slot in (*step.inputs, *step.outputs)}
            rows.give_back([slot for slot in done if last.get(slot, place) <= place])
        self._outputs: list[tuple[int, list[int], list[int]]] = []
        for buffer in range(len(rows.kinds)):
            columns = [column for column, slot in enumerate(asked) if rows.buffer(slot) == buffer]
            self._outputs.append((buffer, columns, [rows.at[asked[column]] for column in columns]))
        self._width, self._sizes = len(asked), rows.sizes
        names = ", ".join(f"b{number}" for number in range(len(rows.kinds)))
        body = "\n".join(f"    {line}" for line in lines) or "    pass"
        exec(f"def run({names}):\n{body}", space)  # written from numbers and names of our own alone
        self._run = space["run"]

    def __call__(self, count: int, write: Write) -> Float[np.ndarray, "points outputs"]:
        """Outputs at so many points; `write` puts the inputs' numbers where they are wanted."""
        buffers = [np.empty((size, count), dtype=kind) for kind, size in self._sizes.items()]
        for buffer, rows, values in self._constants:
            buffers[buffer][rows] = values
        write(buffers)
        with np.errstate(all="ignore"):
            self._run(*buffers)
        found = np.empty((count, self._width))
        for buffer, columns, rows in self._outputs:
            found[:, columns] = buffers[buffer].take(rows, 0).T
        return found


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
            found = doer(equation.primitive, equation.params, [np.dtype(int)] * len(given))(*given)
            self.of |= dict(zip(equation.outputs, map(np.asarray, several(found)), strict=True))
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
    """Where numbers are: a buffer for each type, in it a row of points for each number that is still needed.

    Args:
        kinds: number -> its type.

    Attributes: at says in which row each number is; kinds are those of the buffers.
    """

    def __init__(self, kinds: Sequence[Any]):
        self._kind_of, self.kinds = kinds, list(dict.fromkeys(kinds))
        self.at: dict[int, int] = {}
        self._busy: list[list[bool]] = [[] for _ in self.kinds]

    @property
    def sizes(self) -> dict[Any, int]:
        """Rows of each buffer."""
        return {kind: len(busy) for kind, busy in zip(self.kinds, self._busy, strict=True)}

    def buffer(self, slot: int) -> int:
        """Which one holds a number."""
        return self.kinds.index(self._kind_of[slot])

    def of_each_buffer(self, slots: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Numbers by buffer."""
        for buffer in range(len(self.kinds)):
            own = [slot for slot in slots if self.buffer(slot) == buffer]
            if own:
                yield buffer, own

    def take(self, buffer: int, slots: Sequence[int]) -> slice:
        """Rows side by side for these."""
        busy, first, length = self._busy[buffer], 0, 0
        for row, taken in enumerate(busy):
            first, length = (row + 1, 0) if taken else (first, length + 1)
            if length == len(slots):
                break
        busy += [False] * (first + len(slots) - len(busy))
        busy[first : first + len(slots)] = [True] * len(slots)
        self.at |= {slot: first + place for place, slot in enumerate(slots)}
        return slice(first, first + len(slots))

    def give_back(self, slots: Sequence[int]) -> None:
        """Rows that nobody reads any more."""
        for slot in slots:
            self._busy[self.buffer(slot)][self.at[slot]] = False

    def lines(self, place: int, batch: list[Step], space: dict[str, Any]) -> list[str]:
        """One batch as lines of Python."""
        return self._whole(place, batch[0], space) if batch[0].shapes is not None else [self._line(place, batch, space)]

    def _line(self, place: int, batch: list[Step], space: dict[str, Any]) -> str:
        orders = [batch, *(sorted(batch, key=lambda s, i=i: self.at[s.inputs[i]]) for i in range(len(batch[0].inputs)))]
        batch = max(orders, key=lambda order: sum(_are_even(rows) for rows in self._read(order)))
        first, columns = batch[0], self._read(batch)
        read = [
            self._shown(f"i{place}_{number}", slot, rows, space)
            for number, (slot, rows) in enumerate(zip(first.inputs, columns, strict=True))
        ]
        target = self._target([step.outputs[0] for step in batch])
        kinds = [self._kind_of[slot] for slot in first.inputs]
        does = doer(first.equation.primitive, first.equation.params, kinds, 1, alike=True)
        does = space[f"f{place}"] = _power if does is np.power else does
        if isinstance(does, np.ufunc) or does is _power:
            return f"f{place}({', '.join(read)}, out={target})"
        return f"{target} = f{place}({', '.join(read)})"

    def _whole(self, place: int, step: Step, space: dict[str, Any]) -> list[str]:
        """An equation of whole arrays, which lie in rows side by side or are copied there."""
        read, kinds, start = list[str](), list[Any](), 0
        for number, shape in enumerate(step.shapes or ()):
            own = step.inputs[start : start + math.prod(shape)]
            rows, start = [self.at[slot] for slot in own], start + len(own)
            kinds.append(self._kind_of[own[0]])
            spread = len(rows) > 1 and rows[0] == rows[-1]  # one number throughout an array is a row for each place
            shown = self._shown(f"i{place}_{number}", own[0], rows, space, copied=spread)
            read.append(f"{shown}.reshape({(*shape, -1)})")
        space[f"f{place}"] = behind(step.equation.primitive, step.equation.params, kinds, 1)
        found = f"f{place}({', '.join(read)})"
        lines, made = [f"r = {found if step.equation.primitive.multiple_results else f'[{found}]'}"], step.outputs
        space["join"] = np.concatenate
        for kind in dict.fromkeys(self._kind_of[slot] for slot in made):  # a loop counts and computes
            own = self._target([slot for slot in made if self._kind_of[slot] == kind])
            space[f"k{place}_{kind}"] = kind
            lines.append(f"{own} = join([x.reshape((-1, x.shape[-1])) for x in r if x.dtype == k{place}_{kind}])")
        return lines

    def _target(self, slots: Sequence[int]) -> str:
        buffer = self.buffer(slots[0])
        rows = self.take(buffer, slots)
        return f"b{buffer}[{_even(list(range(rows.start, rows.stop)))}]"

    def _shown(self, index: str, slot: int, rows: list[int], space: dict[str, Any], *, copied: bool = False) -> str:
        """Rows of the buffer of a number, copied only where they lie in no even steps, or where that is asked for."""
        if _are_even(rows) and not copied:
            return f"b{self.buffer(slot)}[{_even(rows)}]"
        space[index] = np.array(rows)
        return f"b{self.buffer(slot)}.take({index}, 0)"

    def _read(self, batch: Sequence[Step]) -> list[list[int]]:
        """Rows of each argument."""
        return [list(rows) for rows in zip(*([self.at[slot] for slot in step.inputs] for step in batch), strict=True)]


def _power(base: np.ndarray, exponent: np.ndarray, out: np.ndarray) -> None:
    """As NumPy does it where one exponent is for all: a square root is not a power to the last bit."""
    np.power(base, exponent, out=out)
    for number, same in ROOTS.items():
        asked = exponent == number
        if asked.any():
            same(base, out=out, where=asked)


def _are_even(rows: Sequence[int]) -> bool:
    """Whether they lie in even steps, so that nothing is copied."""
    steps = {b - a for a, b in itertools.pairwise(rows)}
    return len(steps) < 2 and all(step >= 0 for step in steps)


def _even(rows: Sequence[int]) -> str:
    """Index of rows in even steps; of one row for all, itself."""
    if rows[0] == rows[-1]:
        return str(rows[0])
    step = rows[1] - rows[0]
    return f"{rows[0]}:{rows[-1] + 1}" + (f":{step}" if step > 1 else "")
