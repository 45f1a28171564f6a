"""Elementary operations whose arguments have their axes of points behind their own: slices then lie side by side.

Each does what `numpy_primitives` does with the axes in front, to the last bit; what NumPy is slow at in that order is
done in a way of its own.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .numpy_primitives import ELEMENTWISE, FLOATING, SETTLED, SHAPED, by_jax, doer


def _place(find: Callable[..., Any], best: Callable[..., Any]) -> Callable[..., Any]:
    """Index of the least or largest along an axis: the first that equals it, as a search would turn the array."""

    def run(lead: int, x: Any, axes: Any, index_dtype: Any) -> Any:
        axis = int(axes[0])
        result = best(x, axis)
        if x.dtype.kind == "f" and np.isnan(result).any():
            return find(x, axis).astype(index_dtype)[()]
        place, missed = np.zeros(result.shape, dtype=index_dtype), np.ones(result.shape, dtype=bool)
        for each in np.moveaxis(x, axis, 0)[:-1]:
            missed &= each != result
            place += missed
        return place

    return run


def _gather(
    lead: int, x: Any, indices: Any, dimension_numbers: Any, slice_sizes: Any, mode: Any, fill_value: Any, **_: Any
) -> Any:
    """Slices of x at places, as XLA defines it: where each number is in memory is counted, then all are taken."""
    own, batch = x.shape[: x.ndim - lead], indices.shape[: indices.ndim - lead - 1]
    d, rank = dimension_numbers, len(batch) + len(dimension_numbers.offset_dims)
    of_batch, offsets = [axis for axis in range(rank) if axis not in d.offset_dims], iter(d.offset_dims)
    fills = mode is None or "FILL" in str(mode)
    alone, inside, at = (1,) * lead, np.ones((1,) * (rank + lead), dtype=bool), np.zeros((), dtype=np.int64)

    def along(values: Any, axes: Sequence[int], behind: tuple[int, ...] = alone) -> Any:
        shape = [1] * rank
        for axis, size in zip(axes, values.shape, strict=False):
            shape[axis] = size
        return values.reshape(*shape, *behind)

    for axis, (size, length) in enumerate(zip(own, slice_sizes, strict=True)):
        place: Any = np.zeros((1,) * (rank + lead), dtype=np.int64)
        if axis in d.start_index_map:
            start = indices[(*([slice(None)] * len(batch)), d.start_index_map.index(axis))].astype(np.int64)
            start = along(start, of_batch, start.shape[len(batch) :])
            place = np.minimum(np.maximum(start, 0), size - length)
            inside = inside & (start == place) if fills else inside
        if axis in d.operand_batching_dims:
            number = d.start_indices_batching_dims[d.operand_batching_dims.index(axis)]
            place = along(np.arange(size), [of_batch[number]])
        elif axis not in d.collapsed_slice_dims:
            place = place + along(np.arange(length), [int(next(offsets))])
        at = at * size + place
    for axis, size in enumerate(x.shape[len(own) :]):
        at = at * size + np.arange(size).reshape([size if a == axis else 1 for a in range(lead)])
    result = np.ascontiguousarray(x).reshape(-1).take(at)
    if fills:
        none = np.nan if fill_value is None and np.issubdtype(x.dtype, np.floating) else fill_value
        if none is not None and not inside.all():
            result = np.where(inside, result, np.asarray(none, dtype=x.dtype))
    return result


def _broadcast(lead: int, x: Any, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    """Axis i of x becomes axis `broadcast_dimensions[i]` of the result."""
    own, points = x.shape[: x.ndim - lead], x.shape[x.ndim - lead :]
    spread = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, own, strict=True):
        spread[axis] = size
    result = x.reshape(*spread, *points)
    return result if tuple(spread) == tuple(shape) else np.broadcast_to(result, (*shape, *points))


def _slice(lead: int, x: Any, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    return x[tuple(map(slice, start_indices, limit_indices, strides or [None] * (x.ndim - lead)))]


def _reduced(does: np.ufunc) -> Callable[..., Any]:
    return lambda lead, x, axes, **_: does.reduce(x, tuple(axes))


BEHIND: dict[str, Callable[..., Any]] = {
    "gather": _gather,
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "reshape": lambda lead, x, new_sizes, **_: x.reshape(*new_sizes, *x.shape[x.ndim - lead :]),
    "squeeze": lambda lead, x, dimensions: np.squeeze(x, tuple(dimensions)),
    "expand_dims": lambda lead, x, dimensions: np.expand_dims(x, tuple(dimensions)),
    "reduce_sum": _reduced(np.add),
    "reduce_prod": _reduced(np.multiply),
    "reduce_max": _reduced(np.maximum),
    "reduce_min": _reduced(np.minimum),
    "argmin": _place(np.argmin, np.min),
    "argmax": _place(np.argmax, np.max),
}
"""Primitive -> (axes behind, arguments, settings) -> the same as with those axes in front."""


def behind(primitive: Any, params: dict[str, Any], kinds: Sequence[Any], lead: int) -> Callable[..., Any]:
    """`doer` for arguments that have their axes of points behind their own: slices of arrays then lie side by side."""
    name = primitive.name
    if name in ("stack", "concatenate"):
        axis = int(params["axis" if name == "stack" else "dimension"])
        join = np.stack if name == "stack" else np.concatenate
        return lambda *parts: join(_alike_behind(lead, parts), axis)
    if name in BEHIND and not (name == "broadcast_in_dim" and len(kinds) > 1):
        return functools.partial(BEHIND[name], lead, **params)
    if name in SHAPED and name not in ("convert_element_type", "round"):
        return _turned(doer(primitive, params, kinds, lead), lead)
    if name in ELEMENTWISE or name in SETTLED or name in FLOATING or name in SHAPED or name == "select_n":
        plain = doer(primitive, params, kinds, lead, alike=True)
        through_jax = isinstance(plain, functools.partial) and plain.func is by_jax
        return _turned(plain, lead) if through_jax else plain
    return _turned(doer(primitive, params, kinds, lead), lead)


def _alike_behind(lead: int, parts: Sequence[Any]) -> Sequence[Any]:
    ends = {part.shape[part.ndim - lead :] for part in parts}
    if len(ends) == 1:
        return parts
    shape = max(ends) if lead == 1 else np.broadcast_shapes(*ends)
    return [
        part
        if part.shape[part.ndim - lead :] == shape
        else np.broadcast_to(part, (*part.shape[: part.ndim - lead], *shape))
        for part in parts
    ]


def _turned(does: Callable[..., Any], lead: int) -> Callable[..., Any]:
    """Run a function on arrays whose axes of points stand behind, turned to the front as views."""

    def front(x: Any) -> Any:
        own = x.ndim - lead
        return x.transpose((*range(own, x.ndim), *range(own))) if own else x

    def back(x: Any) -> Any:
        return x.transpose((*range(lead, x.ndim), *range(lead))) if x.ndim > lead else x

    def run(*inputs: Any) -> Any:
        result = does(*map(front, inputs))
        return [back(each) for each in result] if isinstance(result, list) else back(result)

    return run
