"""The ends of every legal range: which there are, a batch that visits each, and what is wrong with what comes out."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from codesign.fields import get_path, replace, walk
from codesign.interpreting import interpreted

FAR = 1e30  # stands for a range without end: beyond anything physical, its square still a number
FEW, MANY = 128, 1024  # rows of one batch: one of two sizes, so that few traces serve all


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


def probe(ask: Callable[..., dict[str, Any]]) -> Callable[..., tuple[dict, dict]]:
    """(tree, [rows] of each leaf) -> numbers by name, and slopes of all of them by each leaf.

    The slopes are those of sum log(1 + number) over the numbers that are finite: one that is not a number anywhere
    shows. Traced once a structure and run by NumPy.
    """

    def one(tree: Any, leaves: dict[str, Any]) -> tuple[dict, dict]:
        def told(leaves: dict[str, Any]) -> tuple[Any, dict]:
            numbers = {name: jnp.asarray(value) for name, value in ask(replace(tree, leaves)).items()}
            logs = [jnp.log1p(jnp.abs(jnp.where(jnp.isfinite(x), x, 0.0))) for x in numbers.values()]
            return sum(map(jnp.sum, logs), jnp.asarray(0.0)), numbers

        (_, numbers), slopes = jax.value_and_grad(told, has_aux=True)(leaves)
        return numbers, slopes

    def together(tree: Any, leaves: dict[str, Any]) -> tuple[dict, dict]:
        return jax.vmap(lambda leaves: one(tree, leaves))(leaves)

    return interpreted(together)


class Visit(NamedTuple):
    """A row of the tree of that name, with what came out; the row '' stands for the tree as it is."""

    name: str
    row: Row
    numbers: dict[str, Any]
    slopes: dict[str, Any]

    def __str__(self) -> str:
        at = f" {self.row.leaf} = {self.row.value:g}" if self.row.leaf else ""
        return f"{self.name}{at}"

    def broken(self) -> set[str]:
        """Rules of the plan that refuse it."""
        start = "violations."
        return {name.removeprefix(start) for name, x in self.numbers.items() if name.startswith(start) and x > 0}


def visits(probing: Callable[..., Any], trees: dict[str, Any], path: str = "") -> Iterator[Visit]:
    """Every end of every leaf of every tree; trees of one structure and equal tables share batches."""
    alike: dict[Any, list[str]] = {}
    for name, tree in trees.items():
        if next(walk(tree), None):
            alike.setdefault((jax.tree.structure(tree), _tables(tree)), []).append(name)
    for names in alike.values():
        starts = {name: {leaf: float(value) for leaf, _, value in walk(trees[name])} for name in names}
        todo = [(name, row) for name in names for row in (Row("", 0.0), *rows_of(trees[name], path))]
        size = FEW if len(todo) < MANY else MANY
        for begin in range(0, len(todo), size):
            yield from _batch(probing, trees[names[0]], todo[begin : begin + size], starts, size)


def _tables(tree: Any) -> tuple[bytes, ...]:
    """Numbers without a legal range of their own: measured tables."""
    ranged = {id(value) for _, _, value in walk(tree)}
    return tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree) if id(leaf) not in ranged)


def _batch(
    probing: Callable[..., Any], tree: Any, todo: list[tuple[str, Row]], starts: dict[str, dict[str, float]], size: int
) -> Iterator[Visit]:
    points = [starts[name] | ({row.leaf: row.value} if row.leaf else {}) for name, row in todo]
    points += [points[0]] * (size - len(points))
    found = probing(tree, {leaf: jnp.asarray([point[leaf] for point in points]) for leaf in points[0]})
    numbers, slopes = ({key: np.asarray(value) for key, value in part.items()} for part in found)
    for index, (name, row) in enumerate(todo):
        yield Visit(name, row, *({key: value[index] for key, value in part.items()} for part in (numbers, slopes)))


def faults(visited: Iterable[Visit]) -> list[str]:
    """All that is wrong, a line each."""
    return [f"{visit}: {wrong}" for visit in visited if (wrong := fault(visit))]


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
