"""What the plan alone decides of a row program: tables that all who ask for some of its rows share."""

from collections import OrderedDict
from collections.abc import Mapping

import jax
import numpy as np

from ..scenario import Scenario
from .distinct import Fields, PlanTable
from .program import Equation, kept
from .rows import RowProgram
from .tables import Table, literal, tabulate

MOST_ROWS = 1 << 16  # of a table (memory: 0.5 MB); what has more distinct values is computed for every point
MOST_SCENARIOS = 64  # of which tables are kept


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
                reached: Fields = frozenset().union(*(self.fields[slot] for slot in equation.inputs))
                if not reached or self.plans.count(reached) <= MOST_ROWS:
                    self.fields |= dict.fromkeys(equation.outputs, reached)
                    self._tabled.append(equation)
        rest = [equation for equation in program.equations if equation.outputs[0] not in self.fields]
        needed = {slot for equation in rest for slot in equation.inputs} | set(program.outputs)
        self._read = sorted(needed.intersection(self.fields))
        self._kept: OrderedDict[int, tuple[Scenario, dict[int, Table]]] = OrderedDict()

    def of(self, scenario: Scenario) -> dict[int, Table]:
        """Table of each slot that other equations or an output need; those of the last scenarios asked for are kept."""
        return kept(self._kept, id(scenario), lambda: (scenario, self._of(scenario)), MOST_SCENARIOS)[1]

    def _of(self, scenario: Scenario) -> dict[int, Table]:
        program = self._program
        tables = {slot: literal(value) for slot, value in program.known.items()}
        for slot, leaf in zip(self._leaves, jax.tree.leaves(scenario), strict=True):
            tables[slot] = literal(np.asarray(leaf, dtype=program.kinds[slot]))
        for number, slot in enumerate(self._given):
            tables[slot] = Table(frozenset([number]), self.plans.column(number))
        for equation in self._tabled:
            found = tabulate(equation, [tables[slot] for slot in equation.inputs], self.plans, MOST_ROWS)
            assert found is not None
            tables |= dict(zip(equation.outputs, found, strict=True))
        return {slot: tables[slot] for slot in self._read}
