"""Equations of one kind done together: for few points a program costs its calls of NumPy, not their numbers.

How they are put together is said in plain numbers (`packing`); here it becomes one Python function of calls.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..jaxprs.dispatch import behind, doer
from .packing import PackedBatch, Packing, are_even

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
            (buffer, slice(first, first + len(values)), values[:, None]) for buffer, first, values in packing.constants
        ]
        space: dict[str, Any] = {}
        lines = [line for index, batch in enumerate(packing.batches) for line in _lines(index, batch, packing, space)]
        self._outputs: list[tuple[int, list[int], list[int]]] = []
        for number in range(len(packing.kinds)):
            columns = [column for column, (buffer, _) in enumerate(packing.outputs) if buffer == number]
            self._outputs.append((number, columns, [packing.outputs[column][1] for column in columns]))
        self._width = len(packing.outputs)
        names = ", ".join(f"b{number}" for number in range(len(packing.kinds)))
        body = "\n".join(f"    {line}" for line in lines) or "    pass"
        exec(f"def run({names}):\n{body}", space)  # written from numbers and names of our own alone
        self._run = space["run"]

    def __call__(self, count: int, write: Write) -> Float[np.ndarray, "points outputs"]:
        """Outputs at so many points; `write` puts the inputs' numbers where they are wanted."""
        buffers = [np.empty((size, count), dtype=kind) for kind, size in self._sizes]
        for buffer, rows, values in self._constants:
            buffers[buffer][rows] = values
        write(buffers)
        with np.errstate(all="ignore"):
            self._run(*buffers)
        result = np.empty((count, self._width))
        for buffer, columns, rows in self._outputs:
            result[:, columns] = buffers[buffer].take(rows, 0).T
        return result


def _lines(place: int, batch: PackedBatch, packing: Packing, space: dict[str, Any]) -> list[str]:
    """One batch as lines of Python."""
    return _whole(place, batch, packing, space) if batch.shapes is not None else [_line(place, batch, space)]


def _line(place: int, batch: PackedBatch, space: dict[str, Any]) -> str:
    read = [_shown(f"i{place}_{n}", buffer, rows, space) for n, (buffer, rows) in enumerate(batch.reads)]
    (target,) = map(_target, batch.writes)
    does = doer(batch.does.primitive, batch.does.params, batch.kinds, 1, alike=True)
    does = space[f"f{place}"] = _power if does is np.power else does
    if isinstance(does, np.ufunc) or does is _power:
        return f"f{place}({', '.join(read)}, out={target})"
    return f"{target} = f{place}({', '.join(read)})"


def _whole(place: int, batch: PackedBatch, packing: Packing, space: dict[str, Any]) -> list[str]:
    """An equation of whole arrays, which lie in rows side by side or are copied there."""
    read: list[str] = []
    for number, ((buffer, rows), shape) in enumerate(zip(batch.reads, batch.shapes or (), strict=True)):
        spread = len(rows) > 1 and rows[0] == rows[-1]  # one number throughout an array is a row for each place
        shown = _shown(f"i{place}_{number}", buffer, rows, space, copied=spread)
        read.append(f"{shown}.reshape({(*shape, -1)})")
    primitive = batch.does.primitive
    space[f"f{place}"] = behind(primitive, batch.does.params, batch.kinds, 1)
    result = f"f{place}({', '.join(read)})"
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
        asked = exponent == number
        if asked.any():
            same(base, out=out, where=asked)


def _even(rows: Sequence[int]) -> str:
    """Index of rows in even steps; of one row for all, itself."""
    if rows[0] == rows[-1]:
        return str(rows[0])
    step = rows[1] - rows[0]
    end = rows[-1] + (1 if step > 0 else -1)
    return f"{rows[0]}:{end if end >= 0 else ''}" + (f":{step}" if step != 1 else "")
