"""A large function at many points by NumPy: traced once a structure, at one point, and never compiled.

Compiling a scenario costs ten to forty seconds, tracing it one; a validation asks each structure a few thousand times.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ...staging import Running, flatten, running

__all__ = ["at_many"]


def at_many(function: Callable[..., Any], in_axes: Sequence[int | None] = (0,)) -> Callable[..., Any]:
    """`jax.vmap` of a function of trees of numbers; what comes out are arrays of NumPy.

    Args:
        function: pure.
        in_axes: of each argument 0 where every number has an axis of points in front, None where all points share it.
    """
    traced = jax.jit(function)

    def run(*arguments: Any) -> Any:
        one, columns, points = [], [], 1
        for argument, axis in zip(arguments, in_axes, strict=True):
            leaves, structure = jax.tree.flatten(argument)
            arrays = [np.asarray(leaf)[None] if axis is None else np.asarray(leaf) for leaf in leaves]
            one.append(jax.tree.unflatten(structure, [array[0] for array in arrays]))
            columns += map(_behind, arrays)
            points = max([points, *map(len, arrays)])
        trace = traced.trace(*one)
        result = [np.moveaxis(array, -1, 0) for array in _ready(trace.jaxpr)(*columns)]
        whole = [np.broadcast_to(array, (points, *array.shape[1:])) for array in result]
        return jax.tree.unflatten(jax.tree.structure(trace.out_info), whole)

    return run


def _behind(array: np.ndarray) -> np.ndarray:
    """Points behind; one for all of them where they are alike, so that what sees no other number is computed once."""
    same = len(array) and (array == array[:1]).all()
    return np.moveaxis(array[:1] if same else array, 0, -1)


@functools.cache
def _ready(traced: Any) -> Running:
    return running(flatten(traced))
