"""Tables of the part of a row program that the plan alone decides: all who ask for some of its rows share them."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from ..jaxprs.program import Equation, Program, kept
from ..model.scenario import Scenario
from .again import apart, asked_of
from .distinct import Fields, PlanTable
from .rows import RowProgram
from .tables import Table, literal, tabulate, tabulate_all

MOST_ROWS = 1 << 16  # of a table (memory: 0.5 MB); what has more distinct values is computed for every point
MOST_SCENARIOS = 64  # of which tables are kept
MOST_EARLY = 4  # scenarios of which tables are kept for other limits
_early: OrderedDict[Any, tuple[Program, Scenario, dict[int, Table]]] = OrderedDict()


class PlanTables:
    """Equations of the plan alone that have few distinct values, tabulated.

    Args:
        rows: the row program.
        values: plan field -> every value that it may have.

    Attributes: fields has every slot that is known from the plan, with the plan fields that reach it.
    """

    def __init__(self, rows: RowProgram, values: Mapping[str, np.ndarray]):
        self.plans = PlanTable({}, {name: values[name] for name in rows.fields})
        self._program = program = rows.program
        self._leaves = program.inputs[: rows.leaves]
        self._given = program.inputs[rows.leaves : rows.leaves + len(rows.fields)]
        self.fields: dict[int, Fields] = dict.fromkeys((*program.known, *self._leaves), frozenset())
        self.fields |= {slot: frozenset([number]) for number, slot in enumerate(self._given)}
        self._tabled: list[Equation] = []
        for equation in program.equations:
            if all(slot in self.fields for slot in equation.inputs):
                reached: Fields = frozenset[int]().union(*(self.fields[slot] for slot in equation.inputs))
                if not reached or self.plans.count(reached) <= MOST_ROWS:
                    self.fields |= dict.fromkeys(equation.outputs, reached)
                    self._tabled.append(equation)
        rest = [equation for equation in program.equations if equation.outputs[0] not in self.fields]
        needed = {slot for equation in rest for slot in equation.inputs} | set(program.outputs)
        self._read = sorted(needed.intersection(self.fields))
        self._late, self._numbers = apart(program, rows.asked)
        late = [equation for equation in self._tabled if equation.outputs[0] in self._late]
        self._waiting = needed.union(*(equation.inputs for equation in late)) - self._late
        self._kept: OrderedDict[int, tuple[Scenario, dict[int, Table]]] = OrderedDict()

    def of(self, scenario: Scenario) -> dict[int, Table]:
        """Table of each slot that other equations or an output need; those of the last scenarios asked for are kept."""
        return kept(self._kept, id(scenario), lambda: (scenario, self._of(scenario)), MOST_SCENARIOS)[1]

    def _of(self, scenario: Scenario) -> dict[int, Table]:
        """Compute the tables; what does not see the numbers that are asked is kept for other such numbers."""
        program, values = self._program, tuple(column.tobytes() for column in self.plans.values)
        key = (asked_of(program), self.plans.fields, values, self._numbers, id(scenario))
        early = kept(_early, key, lambda: (program, scenario, self._without(scenario)), MOST_EARLY)[2]
        tables = early | {slot: literal(value) for slot, value in program.known.items() if slot in self._late}
        self._tabulate(tables)
        return {slot: tables[slot] for slot in self._read}

    def _without(self, scenario: Scenario) -> dict[int, Table]:
        """Tables that others wait for, of what no number reaches that is asked."""
        program = self._program
        tables = {slot: literal(value) for slot, value in program.known.items() if slot not in self._late}
        for slot, leaf in zip(self._leaves, jax.tree.leaves(scenario), strict=True):
            tables[slot] = literal(np.asarray(leaf, dtype=program.kinds[slot]))
        for number, slot in enumerate(self._given):
            tables[slot] = Table(frozenset([number]), self.plans.column(number))
        early = [equation for equation in self._tabled if equation.outputs[0] not in self._late]
        part = program._replace(equations=early, outputs=tuple(sorted(self._waiting.intersection(self.fields))))
        tables, _ = tabulate_all(part, tables, self.plans, MOST_ROWS, lambda _: False)
        return {slot: table for slot, table in tables.items() if slot in self._waiting}

    def _tabulate(self, tables: dict[int, Table]) -> None:
        """Add the tables that follow from numbers that are asked."""
        for equation in self._tabled:
            if equation.outputs[0] in self._late:
                result = tabulate(equation, [tables[slot] for slot in equation.inputs], self.plans, MOST_ROWS)
                assert result is not None
                tables |= dict(zip(equation.outputs, result, strict=True))
