"""What depends on the plan alone, computed once for each distinct combination of the plan fields that reach it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..interpreting import ELEMENTWISE, FLOATING
from .distinct import Fields, PlanTable
from .program import Equation, flatten

NOTHING: Fields = frozenset()


class Table(NamedTuple):
    """A number (or array) of the plan: one row for each distinct combination of `fields`."""

    fields: Fields
    values: np.ndarray  # [combinations, *shape]


def literal(value: Any) -> Table:
    """What no plan changes."""
    return Table(NOTHING, np.asarray(value)[None])


def tabulate(equation: Equation, inputs: Sequence[Table], plans: PlanTable, most: int) -> list[Table] | None:
    """The outputs of an equation whose inputs are tables; None where these would be longer than `most`."""
    fields: Fields = NOTHING.union(*(table.fields for table in inputs))
    if fields and plans.count(fields) > most:
        return None
    rows = [table.values if table.fields == fields else _spread(table, fields, plans) for table in inputs]
    with np.errstate(all="ignore"):
        found = _run(equation, rows)
    count = len(plans.distinct(fields)) if fields else 1
    return [Table(fields, np.broadcast_to(each, (count, *each.shape[1:]))) for each in found]


def _spread(table: Table, fields: Fields, plans: PlanTable) -> np.ndarray:
    """Rows of a table for more fields; one row for all where it depends on none."""
    return table.values if not table.fields else table.values[plans.project(fields, table.fields)]


def _run(equation: Equation, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """One equation over inputs with a leading axis of combinations (of length 1 where all are alike)."""
    if equation.inner is not None:
        return _run_inner(equation.inner, inputs)
    result = _doer(equation)(*inputs)
    return [np.asarray(each) for each in (result if isinstance(result, list) else [result])]


def _run_inner(closed: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    program = flatten(closed)
    slots: dict[int, np.ndarray] = {slot: value[None] for slot, value in program.known.items()}
    slots |= dict(zip(program.inputs, inputs, strict=True))
    for equation in program.equations:
        found = _run(equation, [slots[i] for i in equation.inputs])
        slots |= dict(zip(equation.outputs, found, strict=True))
    return [slots[i] for i in program.outputs]


def _axes(axes: Sequence[Any]) -> tuple[int, ...]:
    return tuple(axis + 1 for axis in axes)


def _alike(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same parts with equally many rows."""
    count = max(len(part) for part in parts)
    return [np.broadcast_to(part, (count, *part.shape[1:])) for part in parts]


def _broadcast(x: np.ndarray, shape: Sequence[Any], broadcast_dimensions: Sequence[Any], **_: Any) -> np.ndarray:
    spread = [len(x), *([1] * len(shape))]
    for axis, size in zip(broadcast_dimensions, x.shape[1:], strict=True):
        spread[axis + 1] = size
    return np.broadcast_to(x.reshape(spread), (len(x), *shape))


def _select(which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    extra = cases[0].ndim - which.ndim
    which = which.reshape(*which.shape, *([1] * extra))
    result = cases[0]
    for number, case in enumerate(cases[1:], start=1):
        result = np.where(which == number, case, result)
    return result


SHAPED: dict[str, Callable[..., Any]] = {
    "convert_element_type": lambda x, new_dtype, **_: x.astype(new_dtype),
    "squeeze": lambda x, dimensions: np.squeeze(x, _axes(dimensions)) if dimensions else x,
    "expand_dims": lambda x, dimensions: np.expand_dims(x, _axes(dimensions)),
    "reshape": lambda x, new_sizes, **_: x.reshape(len(x), *new_sizes),
    "transpose": lambda x, permutation: np.transpose(x, (0, *_axes(permutation))),
    "rev": lambda x, dimensions: np.flip(x, _axes(dimensions)),
    "stack": lambda *parts, axis: np.stack(_alike(parts), axis + 1),
    "concatenate": lambda *parts, dimension: np.concatenate(_alike(parts), dimension + 1),
    "split": lambda x, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis + 1),
    "reduce_sum": lambda x, axes, **_: np.sum(x, _axes(axes)),
    "reduce_prod": lambda x, axes, **_: np.prod(x, _axes(axes)),
    "reduce_max": lambda x, axes, **_: np.max(x, _axes(axes)),
    "reduce_min": lambda x, axes, **_: np.min(x, _axes(axes)),
    "reduce_and": lambda x, axes, **_: np.all(x, _axes(axes)),
    "reduce_or": lambda x, axes, **_: np.any(x, _axes(axes)),
    "cumsum": lambda x, axis, reverse, **_: (
        np.flip(np.cumsum(np.flip(x, axis + 1), axis + 1), axis + 1) if reverse else np.cumsum(x, axis + 1)
    ),
    "square": lambda x: x * x,
    "log1p": lambda x, **_: np.log1p(x),
    "expm1": lambda x, **_: np.expm1(x),
    "exp2": lambda x, **_: np.exp2(x),
    "slice": lambda x, start_indices, limit_indices, strides: x[
        (slice(None), *map(slice, start_indices, limit_indices, strides or [None] * (x.ndim - 1)))
    ],
    "broadcast_in_dim": _broadcast,
}
"""Primitive -> the same by NumPy along a leading axis more. All others are done by JAX itself."""


def _doer(equation: Equation) -> Callable[..., Any]:
    """What does one equation on rows."""
    name, params = equation.name, equation.params
    if name in ELEMENTWISE:
        return lambda *x: ELEMENTWISE[name](*_ranked(x))
    if name in FLOATING:
        return lambda *x: _by_kind(equation, *_ranked(x))
    if name == "select_n":
        return _select
    if name in SHAPED and not (name == "broadcast_in_dim" and len(equation.inputs) > 1):
        return lambda *x: SHAPED[name](*x, **params)
    return lambda *x: _by_jax(equation, *x)


def _ranked(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Scalars beside arrays get their axes."""
    rank = max(x.ndim for x in inputs)
    return [x.reshape(*x.shape, *([1] * (rank - x.ndim))) for x in inputs]


def _by_kind(equation: Equation, *inputs: np.ndarray) -> Any:
    if all(np.issubdtype(x.dtype, np.floating) for x in inputs):
        return FLOATING[equation.name](*inputs, **equation.params)
    return _by_jax(equation, *inputs)


def _by_jax(equation: Equation, *inputs: np.ndarray) -> Any:
    """All rows as one batch."""
    if not inputs:
        result = equation.primitive.bind(**equation.params)
        return [np.asarray(each)[None] for each in (result if equation.primitive.multiple_results else [result])]
    mapped = jax.vmap(lambda *row: equation.primitive.bind(*row, **equation.params))
    result = mapped(*map(jnp.asarray, _alike(inputs)))
    return [np.asarray(each) for each in result] if equation.primitive.multiple_results else np.asarray(result)
