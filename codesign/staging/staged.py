"""A program cut in two: tables of what few variables reach, and the rest, for every point.

Most of a model does not see most variables. Each equation is computed once for each distinct combination of the
variables that reach it, as long as there are few of them; what is left for every point is some hundred operations.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..jaxprs.program import Equation, Program, kept
from .again import apart, asked_of, written_once
from .distinct import PlanTable
from .tables import Table, literal, tabulate, told_apart

MOST_EARLY = 2  # grids of which tables are kept for other limits
MOST_BYTES = 64 << 20  # of them
_early: OrderedDict[Any, tuple[Program, dict[int, Table], dict[int, Equation]]] = OrderedDict()


class Staged(NamedTuple):
    """tables: slot -> table of what the rest or the reader needs; rest: equations of every point."""

    tables: dict[int, Table]
    rest: list[Equation]
    outputs: tuple[int, ...]
    shapes: list[tuple[int, ...]]
    kinds: list[Any]


def stage(
    program: Program, plans: PlanTable, given: Mapping[int, Table], most: int, others: Collection[int] = ()
) -> Staged:
    """Tabulate what can be.

    Args:
        program: of which the outputs are wanted.
        plans: distinct values of the variables, and which combinations there are.
        given: input -> its values; inputs that are not given have others at every point.
        most: rows of a table.
        others: slots of known numbers that may be others the next time, such as limits; what they do not reach is kept.
    """
    program = written_once(program)
    late, numbers = apart(program, others)
    equations = list(enumerate(program.equations))
    after = [(place, equation) for place, equation in equations if equation.outputs[0] in late]
    read = {*program.outputs, *(slot for _, equation in after for slot in equation.inputs)}

    def early() -> tuple[Program, dict[int, Table], dict[int, Equation]]:
        before = [(place, equation) for place, equation in equations if equation.outputs[0] not in late]
        tables = {slot: literal(value) for slot, value in program.known.items() if slot not in late} | dict(given)
        return program, *_tabulated(before, tables, plans, most, read)

    if others:
        key = (asked_of(program), numbers, plans.told_apart, told_apart(given), most)
        _, tables, rest = kept(_early, key, early, MOST_EARLY)
        if sum(table.values.nbytes for table in tables.values()) > MOST_BYTES:
            _early.pop(key)
    else:
        _, tables, rest = early()
    tables = tables | {slot: literal(value) for slot, value in program.known.items() if slot in late}
    tables, more = _tabulated(
        after, tables, plans, most, set(program.outputs).union(*(e.inputs for e in rest.values()))
    )
    rest = rest | more
    left = [rest[place] for place in sorted(rest)]
    wanted = set(program.outputs).union(*(equation.inputs for equation in left))
    kept_tables = {slot: tables[slot] for slot in sorted(wanted) if slot in tables}
    return Staged(kept_tables, left, program.outputs, program.shapes, program.kinds)


def _tabulated(
    equations: Sequence[tuple[int, Equation]],
    tables: dict[int, Table],
    plans: PlanTable,
    most: int,
    wanted: Collection[int],
) -> tuple[dict[int, Table], dict[int, Equation]]:
    """(tables that are wanted or that the rest reads, place -> equation of the rest)."""
    last = {slot: place for place, equation in equations for slot in equation.inputs}
    read, rest = set(wanted), dict[int, Equation]()
    with np.errstate(all="ignore"):
        for place, equation in equations:
            inputs = [tables[slot] for slot in equation.inputs if slot in tables]
            result = tabulate(equation, inputs, plans, most) if len(inputs) == len(equation.inputs) else None
            if result is None:
                rest[place] = equation
                read.update(equation.inputs)
            else:
                for slot, table in zip(equation.outputs, result, strict=True):
                    tables[slot] = table
            for slot in equation.inputs:
                if last[slot] == place and slot not in read:
                    tables.pop(slot, None)
    return {slot: table for slot, table in tables.items() if slot in read}, rest


def leaves_as_tables(slots: Sequence[int], leaves: Sequence[Any]) -> dict[int, Table]:
    """Numbers of a scenario, which are the same at every point."""
    return {slot: literal(np.asarray(leaf, dtype=float)) for slot, leaf in zip(slots, leaves, strict=True)}
