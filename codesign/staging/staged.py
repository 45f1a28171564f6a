"""A program cut in two: tables of what few variables reach, and the rest, for every point.

Most of a model does not see most variables. Each equation is computed once for each distinct combination of the
variables that reach it, as long as there are few of them; what is left for every point is some hundred operations.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .distinct import PlanTable
from .program import Equation, Program, written_out
from .tables import Table, literal, tabulate


class Staged(NamedTuple):
    """tables: slot -> table of what the rest or the reader needs; rest: equations of every point."""

    tables: dict[int, Table]
    rest: list[Equation]
    outputs: tuple[int, ...]
    shapes: list[tuple[int, ...]]
    kinds: list[Any]


def stage(program: Program, plans: PlanTable, given: Mapping[int, Table], most: int) -> Staged:
    """Tabulate what can be.

    Args:
        program: of which the outputs are wanted.
        plans: distinct values of the variables, and which combinations there are.
        given: input -> its values; inputs that are not given have others at every point.
        most: rows of a table.
    """
    program = written_out(program)
    tables = {slot: literal(value) for slot, value in program.known.items()} | dict(given)
    last = {slot: place for place, equation in enumerate(program.equations) for slot in equation.inputs}
    read, rest = set(program.outputs), []
    for place, equation in enumerate(program.equations):
        inputs = [tables[slot] for slot in equation.inputs if slot in tables]
        found = tabulate(equation, inputs, plans, most) if len(inputs) == len(equation.inputs) else None
        if found is None:
            rest.append(equation)
            read.update(equation.inputs)
        else:
            tables |= dict(zip(equation.outputs, found, strict=True))
        for slot in equation.inputs:
            if last[slot] == place and slot not in read:
                tables.pop(slot, None)
    kept = {slot: tables[slot] for slot in sorted(read) if slot in tables}
    return Staged(kept, rest, program.outputs, program.shapes, program.kinds)


def leaves_as_tables(slots: Sequence[int], leaves: Sequence[Any]) -> dict[int, Table]:
    """Numbers of a scenario, which are the same at every point."""
    return {slot: literal(np.asarray(leaf, dtype=float)) for slot, leaf in zip(slots, leaves, strict=True)}
