"""What depends on the plan alone, computed once for each distinct combination of the plan fields that reach it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..by_numpy import doer
from .distinct import Fields, PlanTable
from .program import Equation, inside

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
    result = doer(equation.primitive, equation.params, [x.dtype for x in inputs], lead=1)(*inputs)
    return [np.asarray(each) for each in (result if isinstance(result, list) else [result])]


def _run_inner(closed: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    program = inside(closed)
    slots: dict[int, np.ndarray] = {slot: value[None] for slot, value in program.known.items()}
    slots |= dict(zip(program.inputs, inputs, strict=True))
    for equation in program.equations:
        found = _run(equation, [slots[i] for i in equation.inputs])
        slots |= dict(zip(equation.outputs, found, strict=True))
    return [slots[i] for i in program.outputs]
