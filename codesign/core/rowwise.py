"""Row-wise functions as primitives of JAX, so that evaluation by NumPy computes equal rows once.

The last axis of the first argument is a row, that of the second its label; other arguments are the same for all rows. A
traced program has one equation for such a function. Compiled and differentiated, it is replaced by its own operations.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from .jax_typed import jvp, make_jaxpr

ROW_ARGUMENTS = 2  # arguments that differ from row to row
ROWWISE: dict[str, tuple[Any, Callable[..., Array]]] = {}
"""Name of each such primitive, as their modules are imported -> itself, and its function."""


def rowwise(function: Callable[..., Array]) -> Callable[..., Array]:
    """Wrap `function` of ([*b, row], [*c, label], ...) -> [*b], which treats each row by itself, as one primitive."""
    primitive: Any = Primitive(function.__name__)

    @functools.lru_cache(maxsize=256)
    def traced(*shapes: Any) -> Any:
        return make_jaxpr(function)(*shapes).out_avals[0]

    def slopes(values: Sequence[Any], along: Sequence[Any]) -> Any:
        moving = [index for index, slope in enumerate(along) if not isinstance(slope, ad.Zero)]

        def of_moving(*some: Any) -> Any:
            given = dict(enumerate(values)) | dict(zip(moving, some, strict=True))
            return function(*given.values())

        return jvp(of_moving, tuple(values[index] for index in moving), tuple(along[index] for index in moving))

    def batch(values: Sequence[Any], axes: Sequence[Any]) -> tuple[Any, int]:
        if any(axis is not None for axis in axes[ROW_ARGUMENTS:]):
            return jax.vmap(function, in_axes=tuple(axes))(*values), 0
        ranks = [jnp.ndim(value) - (axis is not None) for value, axis in zip(values, axes, strict=True)]
        rows = [
            _batched_first(value, axis, max(ranks[:ROW_ARGUMENTS]))
            for value, axis in zip(values[:ROW_ARGUMENTS], axes, strict=False)
        ]
        return primitive.bind(*rows, *values[ROW_ARGUMENTS:]), 0

    primitive.def_impl(function)
    primitive.def_abstract_eval(lambda *avals: traced(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals)))
    ad.primitive_jvps[primitive] = slopes
    batching.primitive_batchers[primitive] = batch
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))
    ROWWISE[function.__name__] = primitive, function

    @functools.wraps(function)
    def bound(*arguments: Any) -> Array:
        return primitive.bind(*map(jnp.asarray, arguments))

    return bound


def _batched_first(value: Any, axis: int | None, rank: int) -> Any:
    """Move the axis of a batch to the front, with axes of one place behind it up to a rank."""
    if axis is None:
        return value
    first = jnp.moveaxis(value, axis, 0)
    return first.reshape(first.shape[0], *[1] * (rank + 1 - first.ndim), *first.shape[1:])
