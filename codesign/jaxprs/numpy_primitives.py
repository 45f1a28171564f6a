"""Elementary operations of traced programs, each as one call of NumPy on whole arrays.

An operation may be done for many points at once: its arguments then have `lead` axes more in front, each as long as
there are points along it, or 1 where all points along it are alike.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs,
    "max": np.maximum, "min": np.minimum, "pow": np.power, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "is_finite": np.isfinite, "square": np.square,
    "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "not": np.bitwise_not,
    "stop_gradient": lambda x: x, "copy": lambda x: x,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}  # fmt: skip
SETTLED: dict[str, Callable[..., Any]] = {
    "log1p": lambda x, **_: np.log1p(x),
    "expm1": lambda x, **_: np.expm1(x),
    "exp2": lambda x, **_: np.exp2(x),
    "tanh": lambda x, **_: np.tanh(x),
    "logistic": lambda x, **_: 1 / (1 + np.exp(-x)),
    "polynomial": lambda x, *terms, **_: functools.reduce(lambda sum_, term: sum_ * x + term, reversed(terms)),
}
"""Primitive -> NumPy function, for primitives whose parameters are about accuracy alone."""
FLOATING: dict[str, Callable[..., Any]] = {
    "div": lambda **_: np.divide,
    "integer_pow": lambda y, **_: {2: np.square, -1: np.reciprocal}.get(y, lambda x: np.power(x, float(y))),
}
"""Settings -> the same of those that mean something else between whole numbers."""


def _axes(lead: int, axes: Any) -> tuple[int, ...]:
    return tuple(int(axis) + lead for axis in axes)


def _alike(lead: int, parts: Sequence[Any]) -> list[Any]:
    """Broadcast parts to equally long axes in front."""
    if lead == 0:
        return list(parts)
    shape = np.broadcast_shapes(*(part.shape[:lead] for part in parts))
    return [np.broadcast_to(part, (*shape, *part.shape[lead:])) for part in parts]


def _broadcast(lead: int, x: Any, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    """Axis i of x becomes axis `broadcast_dimensions[i]` of the result."""
    front, trailing = np.shape(x)[:lead], np.shape(x)[lead:]
    spread = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, trailing, strict=True):
        spread[axis] = size
    return np.broadcast_to(np.reshape(x, (*front, *spread)), (*front, *shape))


def _slice(lead: int, x: Any, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    slices = map(slice, start_indices, limit_indices, strides or [None] * (x.ndim - lead))
    return x[(*([slice(None)] * lead), *slices)]


def _split(lead: int, x: Any, sizes: Any, axis: int) -> list[Any]:
    return np.split(x, np.cumsum(sizes)[:-1], axis + lead)


def _cumsum(lead: int, x: Any, axis: int, reverse: bool, **_: Any) -> Any:
    axis += lead
    return np.flip(np.cumsum(np.flip(x, axis), axis), axis) if reverse else np.cumsum(x, axis)


def _round(lead: int, x: Any, rounding_method: Any) -> Any:
    if int(rounding_method) == 1:  # halves to even; else away from zero
        return np.rint(x)
    truncated = np.trunc(x)
    return np.where(np.abs(x - truncated) == 0.5, truncated + np.copysign(1.0, x), np.rint(x))[()]


def _arg_extremum(find: Callable[..., Any]) -> Callable[..., Any]:
    """Index of the least or largest entry along one axis."""

    def run(lead: int, x: Any, axes: Any, index_dtype: Any) -> Any:
        return find(x, int(axes[0]) + lead).astype(index_dtype)[()]

    return run


def _iota(lead: int, dtype: Any, shape: Any, dimension: int, **_: Any) -> Any:
    broadcast_shape = [1] * len(shape)
    broadcast_shape[dimension] = shape[dimension]
    numbers = np.arange(shape[dimension], dtype=dtype).reshape(broadcast_shape)
    return np.broadcast_to(numbers, (*([1] * lead), *shape))


def _gather(
    lead: int, x: Any, indices: Any, dimension_numbers: Any, slice_sizes: Any, mode: Any, fill_value: Any, **_: Any
) -> Any:
    """Slices of x at places, as XLA defines it; axes of points are batches."""
    x, indices = _alike(lead, (np.asarray(x), np.asarray(indices)))
    d, shape, batch = dimension_numbers, x.shape[lead:], indices.shape[lead:-1]
    rank = len(batch) + len(d.offset_dims)
    of_batch = [lead + axis for axis in range(rank) if axis not in d.offset_dims]
    offsets = iter(d.offset_dims)
    inside, places = np.ones((), dtype=bool), []

    def along(values: Any, axes: Sequence[int]) -> Any:
        """Axes of `values` put at these of the result, those of points in front."""
        spread = [1] * (lead + rank)
        for axis, size in zip((*range(lead), *axes), values.shape, strict=True):
            spread[axis] = size
        return values.reshape(spread)

    for axis, (size, length) in enumerate(zip(shape, slice_sizes, strict=True)):
        index: Any = np.zeros((1,) * (lead + rank), dtype=np.int64)
        if axis in d.start_index_map:
            start = along(indices[..., d.start_index_map.index(axis)].astype(np.int64), of_batch)
            clipped = np.clip(start, 0, size - length)
            inside, index = inside & (start == clipped), clipped
        if axis in d.operand_batching_dims:
            number = d.start_indices_batching_dims[d.operand_batching_dims.index(axis)]
            index = np.arange(size).reshape([size if a == of_batch[number] else 1 for a in range(lead + rank)])
        elif axis not in d.collapsed_slice_dims:
            offset_axis = lead + next(offsets)
            index = index + np.arange(length).reshape([length if a == offset_axis else 1 for a in range(lead + rank)])
        places.append(index)
    points = [
        np.arange(size).reshape([size if a == axis else 1 for a in range(lead + rank)])
        for axis, size in enumerate(x.shape[:lead])
    ]
    result = x[(*points, *places)]
    if mode is None or "FILL" in str(mode):
        none = np.nan if fill_value is None and np.issubdtype(x.dtype, np.floating) else fill_value
        if none is not None and not inside.all():
            result = np.where(inside, result, np.asarray(none, dtype=x.dtype))
    return result[()]


def _dynamic_slice(lead: int, x: Any, *starts: Any, slice_sizes: Any) -> Any:
    """A slice of x that begins where it is told, moved inside where it would reach beyond the end."""
    x, *places = _alike(lead, (np.asarray(x), *map(np.asarray, starts)))
    rank, result = lead + len(slice_sizes), []
    for axis, (index, size, length) in enumerate(zip(places, x.shape[lead:], slice_sizes, strict=True)):
        first = np.clip(index.astype(np.int64), 0, size - length).reshape(*index.shape, *[1] * len(slice_sizes))
        result.append(first + np.arange(length).reshape([length if a == lead + axis else 1 for a in range(rank)]))
    points = [np.arange(size).reshape([size if a == axis else 1 for a in range(rank)])
              for axis, size in enumerate(x.shape[:lead])]  # fmt: skip
    return x[(*points, *result)][()]


def _pad(lead: int, x: Any, value: Any, padding_config: Any) -> Any:
    """x among copies of a number: so many before, behind and between; what lies outside is cut off."""
    front, trailing = np.broadcast_shapes(np.shape(x)[:lead], np.shape(value)[:lead]), np.shape(x)[lead:]
    into, retained, sizes = [slice(None)] * lead, [slice(None)] * lead, []
    for size, (low, high, between) in zip(trailing, padding_config, strict=True):
        step, length = between + 1, max(low + high + max(size + (size - 1) * between, 0), 0)
        first, end = max(-(low // step), 0), min(max((length - low + between) // step, 0), size)
        into.append(slice(low + first * step, low + first * step + max(end - first, 0) * step, step))
        retained.append(slice(first, max(end, first)))
        sizes.append(length)
    result = np.empty((*front, *sizes), dtype=x.dtype)
    result[...] = np.reshape(value, (*np.shape(value), *[1] * len(trailing)))
    result[tuple(into)] = np.asarray(x)[tuple(retained)]
    return result[()]


def _dot(lead: int, x: Any, y: Any, dimension_numbers: Any, **_: Any) -> Any:
    """Sums of products; one product of matrices where one side is the same at all points."""
    (of_x, of_y), (batch_x, batch_y) = dimension_numbers
    if not batch_x and math.prod(y.shape[:lead]) == 1:
        return np.tensordot(x, y.reshape(y.shape[lead:]), (_axes(lead, of_x), tuple(of_y)))[()]
    front, shared, also_shared = range(lead), _axes(lead, batch_x), _axes(lead, batch_y)
    summed, also_summed = _axes(lead, of_x), _axes(lead, of_y)
    rows = [axis for axis in range(lead, x.ndim) if axis not in (*shared, *summed)]
    cols = [axis for axis in range(lead, y.ndim) if axis not in (*also_shared, *also_summed)]
    left, right = x.transpose(*front, *shared, *rows, *summed), y.transpose(*front, *also_shared, *also_summed, *cols)
    outside, depth = lead + len(shared), math.prod(x.shape[axis] for axis in summed)
    free_shape = *(x.shape[axis] for axis in rows), *(y.shape[axis] for axis in cols)
    left = left.reshape(*left.shape[:outside], math.prod(free_shape[: len(rows)]), depth)
    right = right.reshape(*right.shape[:outside], depth, math.prod(free_shape[len(rows) :]))
    result = np.matmul(left, right)  # by a library of products, which einsum of two arrays does not use
    return result.reshape(*result.shape[:outside], *free_shape)[()]


SHAPED: dict[str, Callable[..., Any]] = {
    "dot_general": _dot,
    "convert_element_type": lambda lead, x, new_dtype, **_: np.asarray(x).astype(new_dtype)[()],
    "squeeze": lambda lead, x, dimensions: np.squeeze(x, _axes(lead, dimensions))[()] if dimensions else x,
    "expand_dims": lambda lead, x, dimensions: np.expand_dims(x, _axes(lead, dimensions)),
    "reshape": lambda lead, x, new_sizes, **_: np.reshape(x, (*np.shape(x)[:lead], *new_sizes)),
    "transpose": lambda lead, x, permutation: np.transpose(x, (*range(lead), *_axes(lead, permutation))),
    "rev": lambda lead, x, dimensions: np.flip(x, _axes(lead, dimensions)),
    "stack": lambda lead, *parts, axis: np.stack(_alike(lead, parts), axis + lead),
    "concatenate": lambda lead, *parts, dimension: np.concatenate(_alike(lead, parts), dimension + lead),
    "split": _split,
    "reduce_sum": lambda lead, x, axes, **_: np.sum(x, _axes(lead, axes)),
    "reduce_prod": lambda lead, x, axes, **_: np.prod(x, _axes(lead, axes)),
    "reduce_max": lambda lead, x, axes, **_: np.max(x, _axes(lead, axes)),
    "reduce_min": lambda lead, x, axes, **_: np.min(x, _axes(lead, axes)),
    "reduce_and": lambda lead, x, axes, **_: np.all(x, _axes(lead, axes)),
    "reduce_or": lambda lead, x, axes, **_: np.any(x, _axes(lead, axes)),
    "cumsum": _cumsum,
    "slice": _slice,
    "broadcast_in_dim": _broadcast,
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "pad": _pad,
    "round": _round,
    "argmin": _arg_extremum(np.argmin),
    "argmax": _arg_extremum(np.argmax),
    "iota": _iota,
}
"""Primitive -> (axes in front, arguments, settings) -> the same by NumPy. All others are done by JAX itself."""


def knows(primitive: Any) -> bool:
    """True if NumPy does it; others are run by JAX too, a hundred times slower, without need."""
    return primitive.name in {*ELEMENTWISE, *SETTLED, *FLOATING, *SHAPED, "select_n"}


def doer(
    primitive: Any, params: dict[str, Any], kinds: Sequence[Any], lead: int = 0, *, alike: bool = False
) -> Callable[..., Any]:
    """NumPy function for one elementary operation: it gives a list where the primitive has several results.

    Args:
        primitive: of JAX.
        params: its settings.
        kinds: types of its arguments' numbers.
        lead: axes of points in front of each argument's own.
        alike: all arguments are known to have equally many axes.
    """
    name, ranks = primitive.name, 0 if alike else lead
    if name in ELEMENTWISE:
        return _elementwise(name, ranks)
    if name in SETTLED:
        return SETTLED[name]
    if name in FLOATING and all(np.issubdtype(kind, np.floating) for kind in kinds):
        return _ranked(FLOATING[name](**params), ranks)
    if name == "select_n":
        return _selecting(bool(np.issubdtype(kinds[0], np.bool_)), ranks)
    if name in SHAPED and not (name == "broadcast_in_dim" and len(kinds) > 1):
        return functools.partial(SHAPED[name], lead, **params)
    bind = functools.partial(primitive.bind, **primitive.get_bind_params(params))
    return functools.partial(by_jax, bind, jax.vmap(bind), primitive.multiple_results, lead)


def several(output: Any) -> list[Any]:
    """Result of what `doer` made, as a list also where the primitive has one result."""
    return output if isinstance(output, list) else [output]


@functools.cache
def _elementwise(name: str, ranks: int) -> Callable[..., Any]:
    """Made once for each primitive: programs have thousands of these."""
    return _ranked(ELEMENTWISE[name], ranks)


@functools.cache
def _selecting(by_truth: bool, ranks: int) -> Callable[..., Any]:
    return _ranked(_chosen if by_truth else _numbered, ranks)


def _ranked(function: Callable[..., Any], lead: int) -> Callable[..., Any]:
    """Scalars of many points beside arrays of many points get axes behind; without points NumPy does that itself."""
    if lead == 0:
        return function

    def run(*inputs: Any, **settings: Any) -> Any:
        rank = inputs[0].ndim
        for x in inputs:
            if x.ndim != rank:
                break
        else:
            return function(*inputs, **settings)
        rank = max(x.ndim for x in inputs)
        return function(*(x.reshape(*x.shape, *([1] * (rank - x.ndim))) for x in inputs), **settings)

    return run


def _chosen(which: Any, no: Any, yes: Any, out: Any = None) -> Any:
    """`out`: one of the two, to be written over."""
    if out is None:
        return np.where(which, yes, no)
    if np.size(which) == 1:
        same = yes if which.item() else no
        if same is not out:
            np.copyto(out, same)
    elif out is yes:
        np.copyto(out, no, where=~which)
    else:
        np.copyto(out, yes, where=which)
    return out


def _numbered(which: Any, *cases: Any) -> Any:
    result = cases[0]
    for number, case in enumerate(cases[1:], start=1):
        result = np.where(which == number, case, result)
    return result


def by_jax(bind: Callable[..., Any], batched: Callable[..., Any], several: bool, lead: int, *inputs: Any) -> Any:
    """All points as one batch."""
    if lead == 0 or not inputs:
        result = bind(*inputs)
        shape: tuple[int, ...] = (1,) * lead
        parts = [np.reshape(np.asarray(x), (*shape, *np.shape(x)))[()] for x in (result if several else [result])]
        return parts if several else parts[0]
    alike = _alike(lead, inputs)
    shape = alike[0].shape[:lead]
    flat = [jnp.asarray(x.reshape(-1, *x.shape[lead:])) for x in alike]
    result = batched(*flat)
    parts = [np.asarray(x).reshape(*shape, *x.shape[1:]) for x in (result if several else [result])]
    return parts if several else parts[0]


# Elementary operations whose arguments have their axes of points behind their own: slices then lie side by side.
#
# Each does what `numpy_primitives` does with the axes in front, to the last bit; what NumPy is slow at in that order
# is done in a way of its own.


def _arg_extremum_behind(find: Callable[..., Any], best: Callable[..., Any]) -> Callable[..., Any]:
    """Index of the least or largest along an axis: the first that equals it, as a search would turn the array."""

    def run(lead: int, x: Any, axes: Any, index_dtype: Any) -> Any:
        axis = int(axes[0])
        result = best(x, axis)
        if x.dtype.kind == "f" and np.isnan(result).any():
            return find(x, axis).astype(index_dtype)[()]
        index, missed = np.zeros(result.shape, dtype=index_dtype), np.ones(result.shape, dtype=bool)
        for each in np.moveaxis(x, axis, 0)[:-1]:
            missed &= each != result
            index += missed
        return index

    return run


def _gather_behind(
    lead: int, x: Any, indices: Any, dimension_numbers: Any, slice_sizes: Any, mode: Any, fill_value: Any, **_: Any
) -> Any:
    """Slices of x at places, as XLA defines it: where each number is in memory is counted, then all are taken."""
    leading, batch = x.shape[: x.ndim - lead], indices.shape[: indices.ndim - lead - 1]
    d, rank = dimension_numbers, len(batch) + len(dimension_numbers.offset_dims)
    of_batch, offsets = [axis for axis in range(rank) if axis not in d.offset_dims], iter(d.offset_dims)
    fills = mode is None or "FILL" in str(mode)
    alone, inside, at = (1,) * lead, np.ones((1,) * (rank + lead), dtype=bool), np.zeros((), dtype=np.int64)

    def along(values: Any, axes: Sequence[int], behind: tuple[int, ...] = alone) -> Any:
        shape = [1] * rank
        for axis, size in zip(axes, values.shape, strict=False):
            shape[axis] = size
        return values.reshape(*shape, *behind)

    for axis, (size, length) in enumerate(zip(leading, slice_sizes, strict=True)):
        index: Any = np.zeros((1,) * (rank + lead), dtype=np.int64)
        if axis in d.start_index_map:
            start = indices[(*([slice(None)] * len(batch)), d.start_index_map.index(axis))].astype(np.int64)
            start = along(start, of_batch, start.shape[len(batch) :])
            index = np.minimum(np.maximum(start, 0), size - length)
            inside = inside & (start == index) if fills else inside
        if axis in d.operand_batching_dims:
            number = d.start_indices_batching_dims[d.operand_batching_dims.index(axis)]
            index = along(np.arange(size), [of_batch[number]])
        elif axis not in d.collapsed_slice_dims:
            index = index + along(np.arange(length), [int(next(offsets))])
        at = at * size + index
    for axis, size in enumerate(x.shape[len(leading) :]):
        at = at * size + np.arange(size).reshape([size if a == axis else 1 for a in range(lead)])
    result = np.ascontiguousarray(x).reshape(-1).take(at)
    if fills:
        none = np.nan if fill_value is None and np.issubdtype(x.dtype, np.floating) else fill_value
        if none is not None and not inside.all():
            result = np.where(inside, result, np.asarray(none, dtype=x.dtype))
    return result


def _broadcast_behind(lead: int, x: Any, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    """Axis i of x becomes axis `broadcast_dimensions[i]` of the result."""
    leading, points = x.shape[: x.ndim - lead], x.shape[x.ndim - lead :]
    spread = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, leading, strict=True):
        spread[axis] = size
    result = x.reshape(*spread, *points)
    return result if tuple(spread) == tuple(shape) else np.broadcast_to(result, (*shape, *points))


def _slice_behind(lead: int, x: Any, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    return x[tuple(map(slice, start_indices, limit_indices, strides or [None] * (x.ndim - lead)))]


def _dot_behind(lead: int, x: Any, y: Any, dimension_numbers: Any, **settings: Any) -> Any:
    """Sums of products over all points at once, where matrices are small: a library of products goes point by point."""
    (of_x, of_y), (batch_x, batch_y) = dimension_numbers
    rank_x, rank_y = x.ndim - lead, y.ndim - lead
    rows = [axis for axis in range(rank_x) if axis not in (*of_x, *batch_x)]
    cols = [rank_x + axis for axis in range(rank_y) if axis not in (*of_y, *batch_y)]
    alone = not batch_x and 1 in (math.prod(x.shape[rank_x:]), math.prod(y.shape[rank_y:]))
    sides = math.prod(x.shape[axis] for axis in rows), math.prod(y.shape[axis - rank_x] for axis in cols)
    if alone or min(sides) > FEW:
        return turned(functools.partial(_dot, lead, dimension_numbers=dimension_numbers, **settings), lead)(x, y)
    shared = dict(zip((*of_y, *batch_y), (*of_x, *batch_x), strict=True))
    letters = "".join(map(chr, range(ord("A"), ord("A") + rank_x + rank_y)))
    left, right = letters[:rank_x], "".join(letters[shared.get(axis, rank_x + axis)] for axis in range(rank_y))
    free = "".join(letters[axis] for axis in (*batch_x, *rows, *cols))
    return np.einsum(f"{left}...,{right}...->{free}...", x, y)


def _reduced(does: np.ufunc) -> Callable[..., Any]:
    return lambda lead, x, axes, **_: does.reduce(x, tuple(axes))


FEW = 8
"""Rows or columns of a product up to which sums over all points are quicker than a library's product at each."""
BEHIND: dict[str, Callable[..., Any]] = {
    "dot_general": _dot_behind,
    "gather": _gather_behind,
    "broadcast_in_dim": _broadcast_behind,
    "slice": _slice_behind,
    "reshape": lambda lead, x, new_sizes, **_: x.reshape(*new_sizes, *x.shape[x.ndim - lead :]),
    "squeeze": lambda lead, x, dimensions: np.squeeze(x, tuple(dimensions)),
    "expand_dims": lambda lead, x, dimensions: np.expand_dims(x, tuple(dimensions)),
    "reduce_sum": _reduced(np.add),
    "reduce_prod": _reduced(np.multiply),
    "reduce_max": _reduced(np.maximum),
    "reduce_min": _reduced(np.minimum),
    "argmin": _arg_extremum_behind(np.argmin, np.min),
    "argmax": _arg_extremum_behind(np.argmax, np.max),
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
        return turned(doer(primitive, params, kinds, lead), lead)
    if name in ELEMENTWISE or name in SETTLED or name in FLOATING or name in SHAPED or name == "select_n":
        plain = doer(primitive, params, kinds, lead, alike=True)
        through_jax = isinstance(plain, functools.partial) and plain.func is by_jax
        return turned(plain, lead) if through_jax else plain
    return turned(doer(primitive, params, kinds, lead), lead)


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


def turned(does: Callable[..., Any], lead: int) -> Callable[..., Any]:
    """Run a function on arrays whose axes of points stand behind, turned to the front as views."""

    def front(x: Any) -> Any:
        leading = x.ndim - lead
        return x.transpose((*range(leading, x.ndim), *range(leading))) if leading else x

    def back(x: Any) -> Any:
        return x.transpose((*range(lead, x.ndim), *range(lead))) if x.ndim > lead else x

    def run(*inputs: Any) -> Any:
        result = does(*map(front, inputs))
        return [back(each) for each in result] if isinstance(result, list) else back(result)

    return run
