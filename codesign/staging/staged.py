"""A program cut in two: tables of what few variables reach, and the rest, for every point.

Most of a model does not see most variables. Each equation is computed once for each distinct combination of the
variables that reach it, as long as there are few of them; what is left for every point is some hundred operations.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ..core.free_memory import keep_memory
from ..jaxprs.evaluator import behind
from ..jaxprs.partial_evaluation import folded
from ..jaxprs.program import Equation, Program, cached, reduced
from ..model.scenario import Scenario
from .again import apart, program_key, written_once
from .model import Model
from .rows import RowProgram
from .tables import NOTHING, Fields, PlanTable, Table, fingerprint, literal, tabulate

BEYOND = 1e30  # what no field of a plan exceeds


def fields_without_rules(rows: RowProgram, scenario: Scenario) -> tuple[str, ...]:
    """Plan fields that no rule of the plan depends on in a scenario: each value is legal wherever another is."""
    program = reduced(rows.program._replace(outputs=rows.program.outputs[-1:]))
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(scenario)]
    given = dict(zip(rows.program.inputs[: rows.leaves], leaves, strict=True))
    left = folded(program._replace(inputs=rows.program.inputs), given, dict.fromkeys(rows.program.inputs, BEYOND))
    read = {*left.outputs, *(slot for equation in left.equations for slot in equation.inputs)}
    slots = rows.program.inputs[rows.leaves : rows.leaves + len(rows.fields)]
    return tuple(name for name, slot in zip(rows.fields, slots, strict=True) if slot not in read)


MOST_EARLY = 2  # grids of which tables are kept for other limits
MOST_BYTES = 64 << 20  # of them
_early: OrderedDict[Any, tuple[Program, dict[int, Table], dict[int, Equation]]] = OrderedDict()


class StagedProgram(NamedTuple):
    """tables: slot -> table of what the rest or the reader needs; rest: equations of every point."""

    tables: dict[int, Table]
    rest: list[Equation]
    outputs: tuple[int, ...]
    shapes: list[tuple[int, ...]]
    kinds: list[Any]


def stage(
    program: Program, plans: PlanTable, given: Mapping[int, Table], most: int, others: Collection[int] = ()
) -> StagedProgram:
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
    after = [(index, equation) for index, equation in equations if equation.outputs[0] in late]
    read = {*program.outputs, *(slot for _, equation in after for slot in equation.inputs)}

    def early() -> tuple[Program, dict[int, Table], dict[int, Equation]]:
        before = [(index, equation) for index, equation in equations if equation.outputs[0] not in late]
        tables = {slot: literal(value) for slot, value in program.constants.items() if slot not in late} | dict(given)
        return program, *_tabulated(before, tables, plans, most, read)

    if others:
        key = (program_key(program), numbers, plans.fingerprint, fingerprint(given), most)
        _, tables, rest = cached(_early, key, early, MOST_EARLY)
        if sum(table.values.nbytes for table in tables.values()) > MOST_BYTES:
            _early.pop(key)
    else:
        _, tables, rest = early()
    tables = tables | {slot: literal(value) for slot, value in program.constants.items() if slot in late}
    tables, more = _tabulated(
        after, tables, plans, most, set(program.outputs).union(*(e.inputs for e in rest.values()))
    )
    rest = rest | more
    left = [rest[index] for index in sorted(rest)]
    wanted = set(program.outputs).union(*(equation.inputs for equation in left))
    tables_read = {slot: tables[slot] for slot in sorted(wanted) if slot in tables}
    return StagedProgram(tables_read, left, program.outputs, program.shapes, program.kinds)


def _tabulated(
    equations: Sequence[tuple[int, Equation]],
    tables: dict[int, Table],
    plans: PlanTable,
    most: int,
    wanted: Collection[int],
) -> tuple[dict[int, Table], dict[int, Equation]]:
    """(tables that are wanted or that the rest reads, place -> equation of the rest)."""
    last = {slot: index for index, equation in equations for slot in equation.inputs}
    read, rest = set(wanted), dict[int, Equation]()
    with np.errstate(all="ignore"):
        for index, equation in equations:
            inputs = [tables[slot] for slot in equation.inputs if slot in tables]
            result = tabulate(equation, inputs, plans, most) if len(inputs) == len(equation.inputs) else None
            if result is None:
                rest[index] = equation
                read.update(equation.inputs)
            else:
                for slot, table in zip(equation.outputs, result, strict=True):
                    tables[slot] = table
            for slot in equation.inputs:
                if last[slot] == index and slot not in read:
                    tables.pop(slot, None)
    return {slot: table for slot, table in tables.items() if slot in read}, rest


def leaves_as_tables(slots: Sequence[int], leaves: Sequence[Any]) -> dict[int, Table]:
    """Numbers of a scenario, which are the same at every point."""
    return {slot: literal(np.asarray(leaf, dtype=float)) for slot, leaf in zip(slots, leaves, strict=True)}


# A program over every plan at one point of the hardware, which is given anew at each call.
#
# What the plan alone decides is tabulated once. What the hardware decides too is computed once for each distinct
# combination of the plan fields that reach it, not once a plan: most of a model sees few fields, so that a new point
# of the hardware costs a tenth of pricing all plans at it.


MOST_ROWS = 1 << 18  # of a table (memory: 2 MB)
NEARLY_ALL = 0.5  # share of all plans above which distinct combinations are not worth a look-up
Step = tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], bool, tuple[int, ...]]


class EveryPlan:
    """Outputs of a program at every plan.

    Args:
        model: whose inputs the program has.
        program: numbers that are asked for, of the model's inputs.
        scenario: what is varied.
        plans: field -> its value in each plan; at least one field.
    """

    def __init__(self, model: Model, program: Program, scenario: Scenario, plans: Mapping[str, np.ndarray]):
        keep_memory()
        self.table, self.count = PlanTable(plans), len(next(iter(plans.values())))
        self._fields = model.fields
        given = leaves_as_tables(program.inputs[: model.leaves], jax.tree.leaves(scenario))
        of_plans = program.inputs[model.leaves : model.leaves + len(model.fields)]
        given |= {slot: Table(frozenset([at]), self.table.column(at)) for at, slot in enumerate(of_plans)}
        staged = stage(program, self.table, given, MOST_ROWS)
        self._kinds, self._inputs = staged.kinds, program.inputs[model.leaves + len(model.fields) :]
        self._reach: dict[int, Fields | None] = {slot: table.fields for slot, table in staged.tables.items()}
        self._reach |= dict.fromkeys(self._inputs, NOTHING)
        self._tables = {slot: np.ascontiguousarray(np.moveaxis(t.values, 0, -1)) for slot, t in staged.tables.items()}
        self._spreads: dict[tuple[int, Fields | None], int] = {}
        self._next = max((*self._reach, *(s for e in staged.rest for s in e.outputs)), default=0) + 1
        self._steps: list[Step] = []
        for equation in staged.rest:
            reached = self._together(equation.inputs)
            inputs = tuple(self._spread(slot, reached) for slot in equation.inputs)
            call = behind(equation.primitive, equation.params, [self._kinds[slot] for slot in equation.inputs], 1)
            self._reach |= dict.fromkeys(equation.outputs, reached)
            self._steps.append((call, inputs, equation.outputs, equation.primitive.multiple_results, ()))
        self._outputs = tuple(self._spread(slot, None) for slot in staged.outputs)
        self._steps = _letting_go(self._steps, {*self._outputs, *self._tables})

    @property
    def operations(self) -> int:
        """At each call, look-ups among them."""
        return len(self._steps)

    def __call__(self, values: Sequence[float]) -> list[Float[np.ndarray, " plans"]]:
        """Outputs at these values of the hardware variables, in the model's order."""
        slots: dict[int, Any] = dict(self._tables)
        slots |= {
            slot: np.asarray([value], self._kinds[slot]) for slot, value in zip(self._inputs, values, strict=True)
        }
        with np.errstate(all="ignore"):
            for call, inputs, outputs, several, gone in self._steps:
                result = call(*[slots[slot] for slot in inputs])
                slots |= zip(outputs, result, strict=True) if several else ((outputs[0], result),)
                for slot in gone:
                    del slots[slot]
        return [np.broadcast_to(slots[slot], (self.count,)) for slot in self._outputs]

    def _together(self, slots: Sequence[int]) -> Fields | None:
        """Plan fields that reach any of these; None where they tell nearly all plans apart."""
        reached: Fields = NOTHING
        for slot in slots:
            fields = self._reach[slot]
            if fields is None:
                return None
            reached |= fields
        return None if reached and self.table.count(reached) > NEARLY_ALL * self.count else reached

    def _spread(self, slot: int, onto: Fields | None) -> int:
        """A slot with the rows of more fields; numbers that are the same for all plans go with any."""
        fields = self._reach[slot]
        if fields is None or fields in (onto, NOTHING):
            return slot
        if (slot, onto) in self._spreads:
            return self._spreads[slot, onto]
        places = self.table.rows_of(fields) if onto is None else self.table.project(onto, fields)
        made = self._next
        self._next += 1
        self._spreads[slot, onto], self._reach[made] = made, onto
        if slot in self._tables:
            self._tables[made] = self._tables[slot][..., places]
        else:
            self._steps.append((_looked_up(places), (slot,), (made,), False, ()))
        return made


def _looked_up(places: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    def look_up(values: np.ndarray) -> np.ndarray:
        return values if values.shape[-1] == 1 else values[..., places]

    return look_up


def _letting_go(steps: Sequence[Step], outputs_wanted: set[int]) -> list[Step]:
    """Steps that each know which numbers nobody reads after them: their memory is used again."""
    last = {slot: at for at, step in enumerate(steps) for slot in (*step[1], *step[2])}
    gone: dict[int, list[int]] = {}
    for slot, at in last.items():
        if slot not in outputs_wanted:
            gone.setdefault(at, []).append(slot)
    return [(*step[:4], tuple(gone.get(at, ()))) for at, step in enumerate(steps)]
