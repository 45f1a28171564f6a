"""The ends of every legal range: which there are, a batch that visits each, and what is wrong with what comes out."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from program_slopes import prepared, with_slopes

from codesign.core.fields import get_path, replace, walk
from codesign.jaxprs.program import cached
from codesign.staging import flatten

FAR = 1e30  # stands for a range without end: beyond anything physical, its square still a number
MANY = 1024  # rows of one batch
MOST_KEPT = 1  # program; each holds some 50 MB, and options of one structure follow each other


class Row(NamedTuple):
    """One leaf at one end of its range (or at zero, or at one)."""

    leaf: str
    value: float


def ends_of(metadata: dict[str, Any]) -> tuple[float, ...]:
    """Zero, one and both ends of a legal range, those that are legal."""
    low, high = metadata["low"], min(metadata["high"], FAR)
    return tuple(sorted({low, high, *(value for value in (0.0, 1.0) if low <= value <= high)}))


def rows_of(tree: Any, path: str = "") -> list[Row]:
    """Every end of every leaf below `path`."""
    below = [
        (leaf, metadata)
        for leaf, metadata, _ in walk(tree)
        if not path or leaf == path or leaf[: len(path) + 1] == f"{path}."
    ]
    return [Row(leaf, end) for leaf, metadata in below for end in ends_of(metadata)]


def field_of(tree: Any, leaf: str) -> str:
    """`Class.field` that a leaf belongs to."""
    keys = leaf.split(".")
    for cut in range(len(keys) - 1, -1, -1):
        node = get_path(tree, ".".join(keys[:cut])) if cut else tree
        if is_dataclass(node):
            return f"{type(node).__name__}.{keys[cut]}"
    raise AssertionError(leaf)


Probing = Callable[[Any, dict[str, np.ndarray]], tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]


def probe(ask: Callable[..., dict[str, Any]]) -> Probing:
    """(tree, values [rows] of each leaf) -> numbers [rows] by name, and slopes [rows] of all of them by each leaf.

    The slopes are those of sum log(1 + number) over the numbers that are finite: one that is not a number anywhere
    shows. Traced once a structure and run by NumPy.
    """

    def told(tree: Any, leaves: dict[str, Any]) -> tuple[Any, dict]:
        numbers = {name: jnp.asarray(value) for name, value in ask(replace(tree, leaves)).items()}
        logs = [jnp.log1p(jnp.abs(jnp.where(jnp.isfinite(x), x, 0.0))) for x in numbers.values()]
        return sum(map(jnp.sum, logs), jnp.asarray(0.0)), numbers

    ready: OrderedDict[Any, Any] = OrderedDict()

    def made(tree: Any, leaves: list[str]) -> Any:
        once = jax.jit(lambda *given: told(*given))  # JAX keeps a trace for as long as its function lives
        trace = once.trace(tree, dict.fromkeys(leaves, jnp.asarray(0.0)))
        program = flatten(trace.jaxpr)
        program = with_slopes(program, program.inputs[-len(leaves) :])
        return program, prepared(program), list(trace.out_info[1])

    def run(tree: Any, columns: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        names, own = sorted(columns), [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
        key = (jax.tree.structure(tree), *names, *((leaf.shape, leaf.dtype) for leaf in own))
        program, runs, numbers = cached(ready, key, lambda: made(tree, names), MOST_KEPT)
        inputs = [*(leaf[None] for leaf in own), *(columns[name] for name in names)]
        rows = len(columns[names[0]])
        slots = runs(dict(zip(program.inputs, inputs, strict=True)))
        result = [np.broadcast_to(slots[slot], (rows, *program.shapes[slot])) for slot in program.outputs[1:]]
        split = len(numbers)
        return dict(zip(numbers, result[:split], strict=True)), dict(zip(names, result[split:], strict=True))

    return run


class Batch(NamedTuple):
    """What came out of many rows; `suspect`: where a number is negative or no finite number, or a slope none."""

    numbers: dict[str, np.ndarray]
    slopes: dict[str, np.ndarray]
    suspect: np.ndarray


class Visit(NamedTuple):
    """A row of the tree of that name, with what came out; the row '' stands for the tree as it is."""

    name: str
    row: Row
    batch: Batch
    place: int

    @property
    def numbers(self) -> dict[str, Any]:
        return {name: values[self.place] for name, values in self.batch.numbers.items()}

    @property
    def slopes(self) -> dict[str, Any]:
        return {leaf: values[self.place] for leaf, values in self.batch.slopes.items()}

    def __str__(self) -> str:
        at = f" {self.row.leaf} = {self.row.value:g}" if self.row.leaf else ""
        return f"{self.name}{at}"

    def broken(self) -> set[str]:
        """Rules of the plan that refuse it."""
        start = "violations."
        return {name.removeprefix(start) for name, x in self.numbers.items() if name.startswith(start) and x > 0}


def visits(probing: Probing, trees: dict[str, Any], path: str = "") -> Iterator[Visit]:
    """Every end of every leaf of every tree; trees of one structure and equal tables share batches."""
    alike: dict[Any, dict[Any, list[str]]] = {}
    for name, tree in trees.items():
        if next(walk(tree), None):
            alike.setdefault(jax.tree.structure(tree), {}).setdefault(_tables(tree), []).append(name)
    for names in (some for by_tables in alike.values() for some in by_tables.values()):
        starts = {name: {leaf: float(value) for leaf, _, value in walk(trees[name])} for name in names}
        todo = [(name, row) for name in names for row in (Row("", 0.0), *rows_of(trees[name], path))]
        for begin in range(0, len(todo), MANY):
            yield from _batch(probing, trees[names[0]], todo[begin : begin + MANY], starts)


def _tables(tree: Any) -> tuple[bytes, ...]:
    """Numbers without a legal range of their own: measured tables."""
    ranged = {id(value) for _, _, value in walk(tree)}
    return tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree) if id(leaf) not in ranged)


def _batch(
    probing: Probing, tree: Any, todo: list[tuple[str, Row]], starts: dict[str, dict[str, float]]
) -> Iterator[Visit]:
    columns = {leaf: np.array([starts[name][leaf] for name, _ in todo]) for leaf in starts[todo[0][0]]}
    for index, (_, row) in enumerate(todo):
        if row.leaf:
            columns[row.leaf][index] = row.value
    numbers, slopes = probing(tree, columns)
    suspect = np.zeros(len(todo), bool)
    for value in (*numbers.values(), *slopes.values()):
        suspect |= ~np.isfinite(value.reshape(len(todo), -1)).all(axis=1)
    for value in numbers.values():
        suspect |= (value.reshape(len(todo), -1) < 0).any(axis=1)
    batch = Batch(numbers, slopes, suspect)
    return (Visit(name, row, batch, index) for index, (name, row) in enumerate(todo))


def faults(visited: Iterable[Visit]) -> list[str]:
    """All that is wrong, a line each."""
    return [f"{visit}: {wrong}" for visit in visited if visit.batch.suspect[visit.place] and (wrong := fault(visit))]


def fault(visit: Visit) -> str:
    """Numbers must be finite and not negative, used shares may be infinite, rules that are broken excuse the rest."""
    broken, wrong = visit.broken(), []
    for name, value in visit.numbers.items():
        share, rule = name.startswith("usage."), name.startswith("violations.")
        if np.isnan(value).any() or not (share or np.isfinite(value).all()):
            wrong.append(f"{name} {np.max(value):g}")
        elif (value < 0).any() and not rule and not broken:
            wrong.append(f"{name} {np.min(value):g}")
    wrong += [f"slope by {leaf} {slope:g}" for leaf, slope in visit.slopes.items() if not np.isfinite(slope)]
    return f"{len(wrong)} wrong: {', '.join(wrong[:4])}" if wrong else ""
