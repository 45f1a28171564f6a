"""Tables of what depends on the plan alone, computed once for each combination of the plan fields that reach it."""

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ..jaxprs.dispatch import doer
from ..jaxprs.numpy_primitives import several
from ..jaxprs.program import Equation, Program, inside
from .distinct import Fields, PlanTable

NOTHING: Fields = frozenset()
CACHED = 1 << 19  # numbers of the widest array of a block of rows: a cache holds a few of them
WORKERS = min(2, os.cpu_count() or 1)


class Table(NamedTuple):
    """A number (or array) of the plan: one row for each distinct combination of `fields`."""

    fields: Fields
    values: np.ndarray  # [combinations, *shape]


def literal(value: Any) -> Table:
    """Table of a constant, which no plan changes."""
    return Table(NOTHING, np.asarray(value)[None])


def told_apart(tables: Mapping[int, Table]) -> str:
    """Equal for the same slots with the same numbers."""
    digest = hashlib.sha256()
    for slot, (fields, values) in sorted(tables.items()):
        digest.update(repr((slot, sorted(fields), values.shape, values.dtype.str)).encode() + values.tobytes())
    return digest.hexdigest()


def tabulate(equation: Equation, inputs: Sequence[Table], plans: PlanTable, most: int) -> list[Table] | None:
    """The outputs of an equation whose inputs are tables; None where these would be longer than `most`.

    Whoever has many of them keeps NumPy from warning of what is not finite.
    """
    reached = {table.fields for table in inputs if table.fields}
    fields: Fields = next(iter(reached)) if len(reached) == 1 else NOTHING.union(*reached)
    count = plans.count(fields) if fields else 1
    if count > most and fields:
        return None
    if len(reached) > 1:
        rows = [table.values if table.fields == fields else _spread(table, fields, plans) for table in inputs]
    else:  # what no field reaches has one row for all
        rows = [table.values for table in inputs]
    result = run_rows(equation, rows)
    return [
        Table(fields, each if len(each) == count else np.broadcast_to(each, (count, *each.shape[1:])))
        for each in result
    ]


def tabulate_all(
    program: Program, given: Mapping[int, Table], plans: PlanTable, most: int, left_out: Callable[[Equation], bool]
) -> tuple[dict[int, Table], set[int]]:
    """(tables of what follows from those given, but for what only tables of the same fields need, its slots).

    What has the same fields is done together, so many rows at a time that a cache holds what waits: a kernel's tiles
    are hundreds of numbers a row.

    Args:
        program: its equations.
        given: input -> table.
        plans: what the fields are of.
        most: rows of a table.
        left_out: equations that are not done.
    """
    fields = {slot: table.fields for slot, table in given.items()}
    groups: dict[Fields, list[Equation]] = {}
    for equation in program.equations:
        if all(slot in fields for slot in equation.inputs) and not left_out(equation):
            reached: Fields = NOTHING.union(*(fields[slot] for slot in equation.inputs))
            if not reached or plans.count(reached) <= most:
                fields |= dict.fromkeys(equation.outputs, reached)
                groups.setdefault(reached, []).append(equation)
    made = {slot: reached for reached, group in groups.items() for equation in group for slot in equation.outputs}
    wanted = set(program.outputs)
    for equation in program.equations:
        own = made.get(equation.outputs[0])
        wanted.update(slot for slot in equation.inputs if own is None or fields[slot] != own)
    tables = dict(given)
    for reached in sorted(groups, key=len):  # a table follows from tables of its own fields and of fewer
        tables |= _together(groups[reached], reached, tables, plans, program, wanted)
    return tables, set(made)


def _together(
    group: Sequence[Equation],
    fields: Fields,
    tables: Mapping[int, Table],
    plans: PlanTable,
    program: Program,
    wanted: set[int],
) -> dict[int, Table]:
    """Tables of the same fields that others want."""
    made = {slot for equation in group for slot in equation.outputs}
    asked = sorted(made & wanted)
    read = sorted({slot for equation in group for slot in equation.inputs} - made)
    last = {slot: index for index, equation in enumerate(group) for slot in equation.inputs} | dict.fromkeys(asked, -1)
    count = plans.count(fields) if fields else 1
    widest = max((math.prod(program.shapes[slot]) for slot in made), default=1)
    rows = {slot: plans.project(fields, tables[slot].fields) for slot in read if tables[slot].fields}

    def block(part: slice) -> list[np.ndarray]:
        slots = {slot: tables[slot].values[rows[slot][part]] if slot in rows else tables[slot].values for slot in read}
        with np.errstate(all="ignore"):
            for index, equation in enumerate(group):
                slots |= zip(
                    equation.outputs, run_rows(equation, [slots[slot] for slot in equation.inputs]), strict=True
                )
                for slot in {*equation.inputs, *equation.outputs}:
                    if last.get(slot, index) == index:
                        slots.pop(slot, None)
        length = part.stop - part.start
        return [np.broadcast_to(slots[slot], (length, *slots[slot].shape[1:])) for slot in asked]

    size = max(CACHED // max(widest, 1), 64)
    parts = [slice(first, min(first + size, count)) for first in range(0, count, size)]
    if len(parts) == 1:
        return dict(zip(asked, (Table(fields, each) for each in block(parts[0])), strict=True))
    first = block(parts[0])
    whole = [np.empty((count, *each.shape[1:]), dtype=each.dtype) for each in first]

    def put(part: slice, found: list[np.ndarray]) -> None:
        for target, each in zip(whole, found, strict=True):
            target[part] = each

    def fill(part: slice) -> None:
        put(part, block(part))

    put(parts[0], first)
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(fill, parts[1:]))
    return {slot: Table(fields, each) for slot, each in zip(asked, whole, strict=True)}


def _spread(table: Table, fields: Fields, plans: PlanTable) -> np.ndarray:
    """Rows of a table for more fields; one row for all where it depends on none."""
    return table.values if not table.fields else table.values[plans.project(fields, table.fields)]


def run_rows(equation: Equation, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """One equation over inputs with a leading axis of combinations (of length 1 where all are alike)."""
    if equation.inner is not None:
        return _run_inner(equation.inner, inputs)
    result = doer(equation.primitive, equation.params, [x.dtype for x in inputs], lead=1)(*inputs)
    return [np.asarray(each) for each in several(result)]


def _run_inner(closed: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    program = inside(closed)
    slots: dict[int, np.ndarray] = {slot: value[None] for slot, value in program.known.items()}
    slots |= dict(zip(program.inputs, inputs, strict=True))
    for equation in program.equations:
        result = run_rows(equation, [slots[i] for i in equation.inputs])
        slots |= dict(zip(equation.outputs, result, strict=True))
    return [slots[i] for i in program.outputs]
