"""A large function at many points by NumPy: traced once a structure, at one point, and never compiled.

Compiling a scenario costs ten to forty seconds, tracing it one; a validation asks each structure a few thousand times.
"""

import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ...staging import Running, flatten, kept, running

__all__ = ["at_many"]

MOST_KEPT = 64  # traces
_traces: OrderedDict[Any, tuple[Any, Any]] = OrderedDict()


def at_many(function: Callable[..., Any], in_axes: Sequence[int | None] = (0,)) -> Callable[..., Any]:
    """`jax.vmap` of a function of trees of numbers; what comes out are arrays of NumPy.

    Args:
        function: pure.
        in_axes: of each argument 0 where every number has an axis of points in front, None where all points share it.
    """
    traced = jax.jit(function)

    def run(*arguments: Any) -> Any:
        structures, arrays, columns, points = [], [], [], 1
        for argument, axis in zip(arguments, in_axes, strict=True):
            leaves, structure = jax.tree.flatten(argument)
            own = [np.asarray(leaf)[None] if axis is None else np.asarray(leaf) for leaf in leaves]
            structures.append(structure)
            arrays += own
            columns += map(_behind, own)
            points = max([points, *map(len, own)])
        shapes = tuple((array.dtype, array.shape[1:]) for array in arrays)
        told, out = kept(
            _traces, (traced, tuple(structures), shapes), lambda: _trace(traced, structures, arrays), MOST_KEPT
        )
        result = [np.moveaxis(array, -1, 0) for array in _ready(told)(*columns)]
        whole = [np.broadcast_to(array, (points, *array.shape[1:])) for array in result]
        return jax.tree.unflatten(out, whole)

    return run


def _trace(traced: Any, structures: Sequence[Any], arrays: Sequence[np.ndarray]) -> tuple[Any, Any]:
    """(trace at the first point, structure of what comes out)."""
    leaves = iter(arrays)
    one = [jax.tree.unflatten(each, [next(leaves)[0] for _ in range(each.num_leaves)]) for each in structures]
    trace = traced.trace(*one)
    return trace.jaxpr, jax.tree.structure(trace.out_info)


def _behind(array: np.ndarray) -> np.ndarray:
    """Points behind; one for all of them where they are alike, so that what sees no other number is computed once."""
    same = len(array) and (array == array[:1]).all()
    return np.moveaxis(array[:1] if same else array, 0, -1)


@functools.cache
def _ready(traced: Any) -> Running:
    return running(flatten(traced))
