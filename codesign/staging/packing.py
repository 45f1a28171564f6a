"""Batches of equations that are done together, and where their numbers lie: what `packs` runs, in plain numbers.

Arrays are written out number by number (`lanes`). Of the equations that could be done next those of one kind are done
as one operation on [equations, points], until none is left: the 4,300 equations of a study's rows and slopes are some
250 operations. Each equation does what it does by itself, to the same arguments.
"""

import base64
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..core.rowwise import ROWWISE
from ..jaxprs.evaluator import behind, doer
from ..jaxprs.identities import PASSED_ON
from ..jaxprs.numpy_primitives import several
from ..jaxprs.program import Equation, Program, key_of
from .again import fingerprint
from .lanes import EACH, MOVED, by_lanes
from .program_cache import NotCacheable, as_text, does_the_same, kinds_as_plain, kinds_from_plain, made_once

MOST = 1024  # numbers of an array that is written out
SHARED = -1  # in the place of a buffer: an array that is the same at all points, and is read whole


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
    input, in turn, (which buffer, first row, rows) its numbers are written to; outputs: (buffer, row) of each. An array
    that all points share has no rows: its buffer is `SHARED`, its row which of them it is.
    """

    kinds: tuple[Any, ...]
    sizes: tuple[int, ...]
    constants: list[tuple[int, int, np.ndarray]]
    wanted: list[tuple[int, int, int]]
    batches: list[PackedBatch]
    outputs: list[tuple[int, int]]


def packing_of(program: Program, alike: Collection[int] = ()) -> Packing:
    """Pack a program of primitives alone.

    Args:
        program: of any shapes.
        alike: places of inputs that are the same at all points.
    """
    written, parts = by_lanes(program, dict.fromkeys(program.inputs, math.inf), MOST)
    numbers = _Numbers(written)
    steps, rows = list(_in_batches(numbers.steps)), _Rows(numbers.kinds)
    last = {slot: index for index, batch in enumerate(steps) for step in batch for slot in step.inputs}
    slots = [int(numbers.of[slot]) for slot in written.outputs]
    last |= dict.fromkeys(slots, len(steps))
    given = [[p for p, _ in parts[slot]] if slot in parts else numbers.of[slot].ravel() for slot in program.inputs]
    given = [tuple(map(int, group)) for group in given]
    constant_groups = [tuple(map(int, numbers.of[slot].ravel())) for slot in written.constants]
    rows.shared = _shared(numbers.steps, [*(given[position] for position in alike), *constant_groups], slots)
    apart = {number for group in rows.shared for number in group}
    constants = [
        (buffer, rows.take(buffer, group), np.array([numbers.constants[slot] for slot in group]))
        for buffer, group in rows.of_each_buffer(
            [slot for slot in numbers.constants if slot in last and slot not in apart]
        )
    ]
    constants += [
        (SHARED, shared_row, np.array([numbers.constants[slot] for slot in group]))
        for group, shared_row in rows.shared.items()
        if group[0] in numbers.constants
    ]
    for buffer, group in rows.of_each_buffer([slot for each in given for slot in each if slot not in apart]):
        rows.take(buffer, group)
    wanted = [
        (SHARED, rows.shared[group], len(group))
        if group in rows.shared
        else (rows.buffer[group[0]], rows.at[group[0]], len(group))
        for group in given
    ]
    batches: list[PackedBatch] = []
    for index, batch in enumerate(steps):
        batches.append(rows.placed(batch))
        done = {slot for step in batch for slot in (*step.inputs, *step.outputs)} - apart
        rows.give_back([slot for slot in done if last.get(slot, index) <= index])
    outputs = [(rows.buffer[slot], rows.at[slot]) for slot in slots]
    return Packing(tuple(rows.kinds), rows.sizes, constants, wanted, batches, outputs)


def _shared(
    steps: Sequence[Step], arrays: Sequence[tuple[int, ...]], outputs: Sequence[int]
) -> dict[tuple[int, ...], int]:
    """Numbers of an array that every point shares -> which of them it is, of those that are read whole wherever."""
    of = {number: slots for slots in arrays for number in slots}
    wholes, numbers = {*arrays}, set(outputs)
    for step in steps:
        reads_all = step.equation.name == "dot_general" or step.equation.name in ROWWISE
        numbers.update(*(slots for slots in _arguments(step) if not (reads_all and slots in wholes)))
    apart = {of[number] for number in numbers.intersection(of)}
    return {slots: index for index, slots in enumerate(sorted(wholes - apart))}


def _arguments(step: Step) -> Iterator[tuple[int, ...]]:
    """Numbers of each argument."""
    first = 0
    for shape in step.shapes or [()] * len(step.inputs):
        yield step.inputs[first : first + math.prod(shape)]
        first += math.prod(shape)


class _Numbers:
    """A program by numbers: what only puts them elsewhere is no step, but says where they are.

    of: slot -> its numbers, an array of its shape; known: number -> its value; kinds: number -> its type.
    """

    def __init__(self, program: Program):
        self._program, self.kinds = program, list(program.kinds)
        self.of: dict[int, np.ndarray] = {}
        self.constants: dict[int, Any] = {}
        self.steps: list[Step] = []
        for slot in program.inputs:
            self._new(slot)
        for slot, value in program.constants.items():
            if slot not in self.of:
                self.constants |= dict(zip(self._new(slot), np.asarray(value).ravel(), strict=True))
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

    Attributes: at says in which row each number is, buffer which buffer holds it; kinds are those of the buffers;
    shared has the arrays that have no rows.
    """

    def __init__(self, kinds: Sequence[Any]):
        self._kind_of, self.kinds = kinds, list(dict.fromkeys(kinds))
        buffer_of = {kind: number for number, kind in enumerate(self.kinds)}
        self.buffer = [buffer_of[kind] for kind in kinds]
        self.at: dict[int, int] = {}
        self.shared: dict[tuple[int, ...], int] = {}
        self._busy: list[list[bool]] = [[] for _ in self.kinds]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each buffer."""
        return tuple(map(len, self._busy))

    def of_each_buffer(self, slots: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Numbers by buffer."""
        for buffer in range(len(self.kinds)):
            in_buffer = [slot for slot in slots if self.buffer[slot] == buffer]
            if in_buffer:
                yield buffer, in_buffer

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
            return self._array_batch(steps[0], steps[0].shapes)
        count = len(steps[0].inputs)
        orders = [steps, *(sorted(steps, key=lambda s, i=i: self.at[s.inputs[i]]) for i in range(count))]
        steps = max(orders, key=lambda order: sum(are_even(rows) for rows in self._read(order)))
        first, columns = steps[0], self._read(steps)
        reads = tuple((self.buffer[slot], rows) for slot, rows in zip(first.inputs, columns, strict=True))
        kinds = tuple(self._kind_of[slot] for slot in first.inputs)
        return PackedBatch(first.equation, kinds, reads, (self._target([step.outputs[0] for step in steps]),), None)

    def _array_batch(self, step: Step, shapes: tuple[tuple[int, ...], ...]) -> PackedBatch:
        """An equation of whole arrays."""
        reads, kinds = list[tuple[int, tuple[int, ...]]](), list[Any]()
        for slots in _arguments(step):
            kinds.append(self._kind_of[slots[0]])
            shared_row = self.shared.get(slots)
            reads.append(
                (self.buffer[slots[0]], tuple(self.at[slot] for slot in slots))
                if shared_row is None
                else (SHARED, (shared_row,))
            )
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


# Equations of one kind done together: for few points a program costs its calls of NumPy, not their numbers.
#
# How they are put together is said in plain numbers (`packing`); here it becomes one Python function of calls.


ROOTS = {0.5: np.sqrt, 2.0: np.square, -1.0: np.reciprocal}
"""Exponent -> what NumPy takes for a power with it."""
Write = Callable[[Sequence[np.ndarray]], None]


class Packs:
    """A program made ready to run at few points.

    Args:
        packing: of the program.

    Attributes: wanted says of each input, in turn, (which buffer, first row, rows) its numbers are written to.
    """

    def __init__(self, packing: Packing):
        self.wanted, self.operations = packing.wanted, len(packing.batches)
        self._sizes = list(zip(packing.kinds, packing.sizes, strict=True))
        self._constants = [
            (buffer, slice(first, first + len(values)), values[:, None])
            for buffer, first, values in packing.constants
            if buffer != SHARED
        ]
        self._shared = {row: values for buffer, row, values in packing.constants if buffer == SHARED}
        space: dict[str, Any] = {}
        lines = [line for index, batch in enumerate(packing.batches) for line in _lines(index, batch, packing, space)]
        self._outputs: list[tuple[int, list[int], list[int]]] = []
        for number in range(len(packing.kinds)):
            columns = [column for column, (buffer, _) in enumerate(packing.outputs) if buffer == number]
            self._outputs.append((number, columns, [packing.outputs[column][1] for column in columns]))
        self._width = len(packing.outputs)
        names = ", ".join(["shared", *(f"b{number}" for number in range(len(packing.kinds)))])
        body = "\n".join(f"    {line}" for line in lines) or "    pass"
        exec(f"def run({names}):\n{body}", space)  # written from numbers and names of our own alone
        self._run = space["run"]

    def __call__(
        self, count: int, write: Write, shared: Mapping[int, np.ndarray] | None = None
    ) -> Float[np.ndarray, "points outputs"]:
        """Outputs at so many points.

        Args:
            count: of points.
            write: puts the inputs' numbers where they are wanted.
            shared: number of an array that is an input -> what all points have in it.
        """
        buffers = [np.empty((size, count), dtype=kind) for kind, size in self._sizes]
        for buffer, rows, values in self._constants:
            buffers[buffer][rows] = values
        write(buffers)
        with np.errstate(all="ignore"):
            self._run({**self._shared, **(shared or {})}, *buffers)
        result = np.empty((count, self._width))
        for buffer, columns, rows in self._outputs:
            result[:, columns] = buffers[buffer].take(rows, 0).T
        return result


def _lines(number: int, batch: PackedBatch, packing: Packing, space: dict[str, Any]) -> list[str]:
    """One batch as lines of Python."""
    return _array_lines(number, batch, packing, space) if batch.shapes is not None else [_line(number, batch, space)]


def _line(number: int, batch: PackedBatch, space: dict[str, Any]) -> str:
    read = [_shown(f"i{number}_{n}", buffer, rows, space) for n, (buffer, rows) in enumerate(batch.reads)]
    (target,) = map(_target, batch.writes)
    does = doer(batch.does.primitive, batch.does.params, batch.kinds, 1, alike=True)
    does = space[f"f{number}"] = _power if does is np.power else does
    if isinstance(does, np.ufunc) or does is _power:
        return f"f{number}({', '.join(read)}, out={target})"
    return f"{target} = f{number}({', '.join(read)})"


def _array_lines(batch_number: int, batch: PackedBatch, packing: Packing, space: dict[str, Any]) -> list[str]:
    """An equation of whole arrays, which lie in rows side by side or are copied there."""
    read: list[str] = []
    for number, ((buffer, rows), shape) in enumerate(zip(batch.reads, batch.shapes or (), strict=True)):
        if buffer == SHARED:
            read.append(f"shared[{rows[0]}].reshape({(*shape, 1)})")
            continue
        spread = len(rows) > 1 and rows[0] == rows[-1]  # one number throughout an array is a row for each place
        shown = _shown(f"i{batch_number}_{number}", buffer, rows, space, copied=spread)
        read.append(f"{shown}.reshape({(*shape, -1)})")
    primitive = batch.does.primitive
    space[f"f{batch_number}"] = behind(primitive, batch.does.params, batch.kinds, 1)
    result = f"f{batch_number}({', '.join(read)})"
    lines = [f"r = {result if primitive.multiple_results else f'[{result}]'}"]
    space["join"] = np.concatenate
    for write in batch.writes:
        kind = f"k{write[0]}"
        space[kind] = packing.kinds[write[0]]
        lines.append(f"{_target(write)} = join([x.reshape((-1, x.shape[-1])) for x in r if x.dtype == {kind}])")
    return lines


def _target(write: tuple[int, int, int]) -> str:
    buffer, first, count = write
    return f"b{buffer}[{_even(list(range(first, first + count)))}]"


def _shown(index: str, buffer: int, rows: Sequence[int], space: dict[str, Any], *, copied: bool = False) -> str:
    """Rows of a buffer, copied only where they lie in no even steps, or where that is asked for."""
    if are_even(rows) and not copied:
        return f"b{buffer}[{_even(rows)}]"
    space[index] = np.array(rows)
    return f"b{buffer}.take({index}, 0)"


def _power(base: np.ndarray, exponent: np.ndarray, out: np.ndarray) -> None:
    """Powers as NumPy computes them for one common exponent: a square root is not a power to the last bit."""
    np.power(base, exponent, out=out)
    for number, same in ROOTS.items():
        equal = exponent == number
        if equal.any():
            same(base, out=out, where=equal)


def _even(rows: Sequence[int]) -> str:
    """Index of rows in even steps; of one row for all, itself."""
    if rows[0] == rows[-1]:
        return str(rows[0])
    step = rows[1] - rows[0]
    end = rows[-1] + (1 if step > 0 else -1)
    return f"{rows[0]}:{end if end >= 0 else ''}" + (f":{step}" if step != 1 else "")


# Packed programs as JSON: the next process neither derives slopes nor puts equations together.
#
# A text is found under what the packed program was made of, equation by equation, and is read as numbers, names of
# primitives and their settings; Python is written from those anew (`packs`). It is kept only where it comes back as
# it was.


MAX_TEXTS = 256  # texts (disk: 0.2 MB each), more than all experiments have


def packed_once(make: Callable[[], Packing], identity: Callable[[], Iterable[Any]]) -> Packing:
    """Return the packing that `make` gives, read from disk where an earlier process had it made of the same.

    Args:
        make: packs a program.
        identity: lists and words that no other program has.
    """
    return made_once("packs", identity, make, packing_as_plain, packing_from_plain, MAX_TEXTS)


def packing_as_plain(packing: Packing) -> Any:
    """A packing as lists and words.

    Raises:
        CannotBeKept: where they would not give back the same one.
    """
    plain_kinds, kinds = kinds_as_plain([batch.does for batch in packing.batches])
    plain = {
        "types": [kind.str for kind in packing.kinds], "sizes": packing.sizes, "kinds": plain_kinds,
        "constants": [[buffer, first, each.dtype.str, as_text(each)] for buffer, first, each in packing.constants],
        "wanted": as_text(np.array(packing.wanted)), "outputs": as_text(np.array(packing.outputs)),
        "batches": [_batch(kind, batch) for kind, batch in zip(kinds, packing.batches, strict=True)],
    }  # fmt: skip
    if not _same(packing_from_plain(plain), packing):
        raise NotCacheable("another packing comes back")
    return plain


def packing_from_plain(plain: Any) -> Packing:
    """The packing that `packing_as_plain` told.

    Raises:
        CannotBeKept: it is none.
    """
    try:
        kinds = kinds_from_plain(plain["kinds"])
        constants = [
            (int(buffer), int(first), np.frombuffer(base64.b64decode(text), dtype=kind))
            for buffer, first, kind, text in plain["constants"]
        ]
        return Packing(
            tuple(np.dtype(kind) for kind in plain["types"]), tuple(map(int, plain["sizes"])), constants,
            list(zip(*[iter(_numbers(plain["wanted"]))] * 3, strict=True)),
            [
                PackedBatch(
                    kinds[kind], tuple(np.dtype(name) for name in types),
                    tuple((int(buffer), tuple(_numbers(rows))) for buffer, rows in reads),
                    tuple((int(buffer), int(first), int(count)) for buffer, first, count in writes),
                    None if shapes is None else tuple(tuple(map(int, shape)) for shape in shapes),
                )
                for kind, types, reads, writes, shapes in plain["batches"]
            ],
            list(zip(*[iter(_numbers(plain["outputs"]))] * 2, strict=True)),
        )  # fmt: skip
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError) as error:
        raise NotCacheable("no packing") from error


def _batch(kind: int, batch: PackedBatch) -> list[Any]:
    reads = [[buffer, as_text(rows)] for buffer, rows in batch.reads]
    return [kind, [dtype.str for dtype in batch.kinds], reads, batch.writes, batch.shapes]


def _numbers(text: str) -> Sequence[int]:
    return np.frombuffer(base64.b64decode(text), dtype=int).tolist()


def _same(one: Packing, other: Packing) -> bool:
    """True if two packings are the same, batch by batch."""
    bare = [
        each._replace(constants=[], batches=[batch._replace(does=None) for batch in each.batches])
        for each in (one, other)
    ]
    return (
        bare[0] == bare[1]
        and [(buffer, first, fingerprint(values)) for buffer, first, values in one.constants]
        == [(buffer, first, fingerprint(values)) for buffer, first, values in other.constants]
        and all(does_the_same(a.does, b.does) for a, b in zip(one.batches, other.batches, strict=True))
    )
