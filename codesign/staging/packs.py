"""Equations of one kind done together: for few points a program costs its calls of NumPy, not their numbers.

Arrays are written out number by number (`lanes`). Of the equations that could be done next those of one kind are done
as one operation on [equations, points], until none is left: the 4,300 equations of a study's rows and slopes are some
250 operations. Each equation does what it does by itself, to the same arguments.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..by_numpy import doer
from .lanes import EACH, by_lanes
from .program import Equation, Program, key_of

PASSED_ON = ("stop_gradient", "copy")
ROOTS = {0.5: np.sqrt, 2.0: np.square, -1.0: np.reciprocal}
"""Exponent -> what NumPy takes for a power with it."""
Write = Callable[[Sequence[np.ndarray]], None]


class Packs:
    """A program made ready to run at few points.

    Args:
        program: of primitives alone; after `by_lanes` each of its equations makes one number (see `packs_of`).
        parts: input of the program that was written out -> its numbers' slots and places, as of `by_lanes`.
        asked: inputs as they were before.

    Attributes: wanted says of each input before, in turn, (which buffer, first row, rows) its numbers are written to.
    """

    def __init__(self, program: Program, parts: dict[int, list[tuple[int, tuple[int, ...]]]], asked: Sequence[int]):
        batches, rows = list(_in_batches(program)), _Rows(program)
        last = {slot: place for place, batch in enumerate(batches) for equation in batch for slot in equation.inputs}
        last |= dict.fromkeys(program.outputs, len(batches))
        self.operations = len(batches)
        self._constants = []
        for buffer, slots in rows.of_each_buffer([slot for slot in program.known if slot in last]):
            values = np.array([program.known[slot] for slot in slots])[:, None]
            self._constants.append((buffer, rows.take(buffer, slots), values))
        for buffer, slots in rows.of_each_buffer(program.inputs):
            rows.take(buffer, slots)
        numbers = [[part for part, _ in parts[slot]] if slot in parts else [slot] for slot in asked]
        self.wanted = [(rows.buffer(own[0]), rows.at[own[0]], len(own)) for own in numbers]
        space: dict[str, Any] = {"where": np.where}
        lines = []
        for place, batch in enumerate(batches):
            lines.append(rows.line(place, batch, space))
            done = {slot for equation in batch for slot in (*equation.inputs, *equation.outputs)}
            rows.give_back([slot for slot in done if last.get(slot, place) <= place])
        columns = [
            [column for column, slot in enumerate(program.outputs) if rows.buffer(slot) == buffer]
            for buffer in range(len(rows.kinds))
        ]
        self._outputs = [
            (buffer, own, [rows.at[program.outputs[column]] for column in own]) for buffer, own in enumerate(columns)
        ]
        self._width, self._sizes = len(program.outputs), rows.sizes
        names = ", ".join(f"b{number}" for number in range(len(rows.kinds)))
        body = "\n".join(lines) or "    pass"
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


def packs_of(program: Program) -> Packs | None:
    """A program of primitives alone as packs; None where some of its equations are not done number by number."""
    written, parts = by_lanes(program, dict.fromkeys(program.inputs, math.inf))
    written = _without_copies(written)
    slots = {slot for equation in written.equations for slot in (*equation.inputs, *equation.outputs)}
    plain = all(written.shapes[slot] == () for slot in slots.union(written.inputs, written.outputs))
    if not plain or any(equation.name not in EACH or len(equation.outputs) > 1 for equation in written.equations):
        return None
    return Packs(written, parts, program.inputs)


def _without_copies(program: Program) -> Program:
    same: dict[int, int] = {}
    kept = []
    for equation in program.equations:
        inputs = tuple(same.get(slot, slot) for slot in equation.inputs)
        if equation.name in PASSED_ON:
            same[equation.outputs[0]] = inputs[0]
        else:
            kept.append(equation._replace(inputs=inputs))
    return program._replace(equations=kept, outputs=tuple(same.get(slot, slot) for slot in program.outputs))


def _in_batches(program: Program) -> Iterator[list[Equation]]:
    """Equations of one kind that can be done at once, those first that the longest chain waits for."""
    equations, maker = program.equations, {}
    for number, equation in enumerate(equations):
        maker |= dict.fromkeys(equation.outputs, number)
    needs = [{maker[slot] for slot in equation.inputs if slot in maker} for equation in equations]
    users, length = defaultdict(list), [1] * len(equations)
    for number in reversed(range(len(equations))):
        length[number] += max((length[user] for user in users[number]), default=0)
        for need in needs[number]:
            users[need].append(number)
    kinds = [
        (key_of(equation, ()), tuple(program.kinds[slot] for slot in (*equation.inputs, *equation.outputs)))
        for equation in equations
    ]
    missing, ready = [len(need) for need in needs], defaultdict(list)

    def add(number: int) -> None:
        ready[kinds[number]].append(number)

    for number, count in enumerate(missing):
        if count == 0:
            add(number)
    while ready:
        chosen = max(ready, key=lambda kind: max(length[number] for number in ready[kind]))
        batch = ready.pop(chosen)
        yield [equations[number] for number in batch]
        for number in batch:
            for user in users[number]:
                missing[user] -= 1
                if missing[user] == 0:
                    add(user)


class _Rows:
    """Where numbers are: a buffer for each type, in it a row of points for each number that is still needed.

    at: slot -> its row.
    """

    def __init__(self, program: Program):
        slots = [*program.inputs, *program.known, *(slot for e in program.equations for slot in e.outputs)]
        self._program = program
        self.kinds = list(dict.fromkeys(program.kinds[slot] for slot in slots))
        self.at: dict[int, int] = {}
        self._busy: list[list[bool]] = [[] for _ in self.kinds]

    @property
    def sizes(self) -> dict[Any, int]:
        """Rows of each buffer."""
        return {kind: len(busy) for kind, busy in zip(self.kinds, self._busy, strict=True)}

    def buffer(self, slot: int) -> int:
        """Which one holds a slot."""
        return self.kinds.index(self._program.kinds[slot])

    def of_each_buffer(self, slots: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Slots by buffer."""
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

    def line(self, place: int, batch: list[Equation], space: dict[str, Any]) -> str:
        """One batch as a line of Python."""
        orders = [batch, *(sorted(batch, key=lambda e, i=i: self.at[e.inputs[i]]) for i in range(len(batch[0].inputs)))]
        batch = max(orders, key=lambda order: sum(self._is_seen(each) for each in self._read(order)))
        first, kinds = batch[0], [self._program.kinds[slot] for slot in batch[0].inputs]
        read = []
        for number, rows in enumerate(self._read(batch)):
            buffer, index = f"b{self.buffer(first.inputs[number])}", f"i{place}_{number}"
            if self._is_seen(rows):
                read.append(f"{buffer}[{_seen(rows)}]")
            else:
                space[index] = np.array(rows)
                read.append(f"{buffer}.take({index}, 0)")
        made = self.buffer(first.outputs[0])
        rows = self.take(made, [equation.outputs[0] for equation in batch])
        target = f"b{made}[{_seen(list(range(rows.start, rows.stop)))}]"
        does = doer(first.primitive, first.params, kinds, 1, alike=True)
        does = space[f"f{place}"] = _power if does is np.power else does
        if isinstance(does, np.ufunc) or does is _power:
            return f"    f{place}({', '.join(read)}, out={target})"
        return f"    {target} = f{place}({', '.join(read)})"

    def _read(self, batch: Sequence[Equation]) -> list[list[int]]:
        """Rows of each argument."""
        return [list(rows) for rows in zip(*([self.at[slot] for slot in e.inputs] for e in batch), strict=True)]

    @staticmethod
    def _is_seen(rows: Sequence[int]) -> bool:
        """Whether they lie in even steps, so that nothing is copied."""
        steps = {b - a for a, b in itertools.pairwise(rows)}
        return len(steps) < 2 and all(step >= 0 for step in steps)


def _power(base: np.ndarray, exponent: np.ndarray, out: np.ndarray) -> None:
    """As NumPy does it where one exponent is for all: a square root is not a power to the last bit."""
    np.power(base, exponent, out)
    for number, same in ROOTS.items():
        asked = exponent == number
        if asked.any():
            same(base, out=out, where=asked)


def _seen(rows: Sequence[int]) -> str:
    """Index of rows in even steps; of one row for all, itself."""
    if rows[0] == rows[-1]:
        return str(rows[0])
    step = rows[1] - rows[0]
    return f"{rows[0]}:{rows[-1] + 1}" + (f":{step}" if step > 1 else "")
