"""Tables of what depends on the plan alone, computed once for each combination of the plan fields that reach it."""

import hashlib
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from ..jaxprs.partial_evaluation import run_rows
from ..jaxprs.program import Equation, Program, cached
from ..model.scenario import Scenario
from .again import apart, program_key
from .rows import RowProgram

# Combinations of plan fields: distinct values of any set of fields over all legal plans.
#
# Most of the model sees few fields of a plan. What depends on the tensor- and pipeline-parallel degrees alone has a
# hundred values however many plans there are.


Fields = frozenset[int]
SPARSE = 64  # times more keys than rows: a sort then takes less time than a flag for each key


class PlanTable:
    """Legal plans by the fields that vary: listed combinations of some fields, times all values of others.

    Args:
        listed: field -> its value in each legal combination.
        free: field -> all its values; each of them is legal with every combination.
    """

    def __init__(self, listed: Mapping[str, np.ndarray], free: Mapping[str, np.ndarray] | None = None):
        free = free or {}
        self.fields: tuple[str, ...] = (*listed, *free)
        self.values: list[np.ndarray] = []
        codes: list[np.ndarray] = []
        for column in listed.values():
            given = np.asarray(column, dtype=float)
            self.values.append(np.unique(given))
            codes.append(np.searchsorted(self.values[-1], given))
        self._codes = np.stack(codes).T if codes else np.zeros((1, 0), dtype=int)  # columns are read
        self._listed = len(codes)
        self.values += [np.unique(np.asarray(column, dtype=float)) for column in free.values()]
        self.count = lru_cache(maxsize=None)(self._count)
        self.distinct = lru_cache(maxsize=None)(self._distinct)
        self.project = lru_cache(maxsize=None)(self._project)
        self.steps = lru_cache(maxsize=None)(self._steps)
        self.keys = lru_cache(maxsize=None)(self._keys)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for tables of the same fields, values and combinations."""
        digest = hashlib.sha256(repr((self.fields, self._listed, self._codes.shape)).encode())
        for array in (*self.values, self._codes):
            digest.update(repr((array.shape, array.dtype.str)).encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _count(self, fields: Fields) -> int:
        """Number of combinations of these fields."""
        inner = [i for i in fields if i >= self._listed]
        return len(self.keys(fields - set(inner))) * int(np.prod([len(self.values[i]) for i in inner], dtype=float))

    def column(self, field: int) -> Float[np.ndarray, " values"]:
        """The values of one field, in the order of `distinct({field})`."""
        return self.values[field][self.distinct(frozenset([field]))[:, 0]]

    def rows_of(self, fields: Fields) -> Int[np.ndarray, " listed"]:
        """For each listed combination, as it was given, its row among the distinct ones of these listed fields."""
        order = sorted(fields)
        return np.searchsorted(self.keys(fields), self._encoded(order, self._codes, order))

    def _keys(self, fields: Fields) -> Int[np.ndarray, " k"]:
        """Sorted distinct keys of listed fields."""
        order = sorted(fields)
        keys, most = self._encoded(order, self._codes, order), math.prod(self._sizes(order))
        if most > SPARSE * len(keys):
            return np.unique(keys)
        flags = np.zeros(most, dtype=bool)
        flags[keys] = True
        return np.flatnonzero(flags)

    def _sizes(self, order: Sequence[int]) -> list[int]:
        return [len(self.values[i]) for i in order]

    def _encoded(self, order: Sequence[int], codes: np.ndarray, at: Sequence[int]) -> Int[np.ndarray, " k"]:
        """One number for the codes of fields in this order, which are columns `at`."""
        key = np.zeros(len(codes), dtype=np.int64)
        for column, size in zip(at, self._sizes(order), strict=True):
            key *= size
            key += codes[:, column]
        return key

    def _decoded(self, order: Sequence[int], keys: np.ndarray) -> Int[np.ndarray, "k fields"]:
        places: list[np.ndarray] = []
        for size in reversed(self._sizes(order)):
            keys, index = np.divmod(keys, size)
            places.append(index)
        return np.stack(places[::-1]).T if places else np.zeros((len(keys), 0), dtype=np.int64)

    def _distinct(self, fields: Fields) -> Int[np.ndarray, "k fields"]:
        """Codes of the distinct combinations, fields in rising order; listed ones before free ones."""
        order = sorted(fields)
        inner = [i for i in order if i >= self._listed]
        outer = self.keys(frozenset(order) - set(inner))
        size = int(np.prod(self._sizes(inner), dtype=np.int64))
        keys = (outer[:, None] * size + np.arange(size)[None]).reshape(-1)
        return self._decoded(order, keys)

    def _project(self, fields: Fields, onto: Fields) -> Int[np.ndarray, " k"]:
        """For each combination of `fields` its row among those of the fewer fields `onto`."""
        order, fewer = sorted(fields), sorted(onto)
        listed = self._encoded(fewer, self.distinct(onto), range(len(fewer)))
        wanted = self._encoded(fewer, self.distinct(fields), [order.index(i) for i in fewer])
        most = math.prod(self._sizes(fewer))
        if most > SPARSE * len(wanted):
            return np.searchsorted(listed, wanted)
        rows = np.empty(most, dtype=np.int64)
        rows[listed] = np.arange(len(listed))
        return rows[wanted]

    def _steps(self, fields: Fields, field: int) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of rows that differ in one field only, by one step to its next value that is there: (lower, higher)."""
        order, codes = sorted(fields), self.distinct(fields)
        at = order.index(field)
        rest = [i for i in order if i != field]
        key = self._encoded(rest, codes, [order.index(i) for i in rest])
        sort = np.lexsort((codes[:, at], key))
        same = key[sort][1:] == key[sort][:-1]
        return sort[:-1][same], sort[1:][same]


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


def fingerprint(tables: Mapping[int, Table]) -> str:
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
        fields_of_output = made.get(equation.outputs[0])
        wanted.update(slot for slot in equation.inputs if fields_of_output is None or fields[slot] != fields_of_output)
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
    outputs = sorted(made & wanted)
    read = sorted({slot for equation in group for slot in equation.inputs} - made)
    last = {slot: index for index, equation in enumerate(group) for slot in equation.inputs} | dict.fromkeys(
        outputs, -1
    )
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
        return [np.broadcast_to(slots[slot], (length, *slots[slot].shape[1:])) for slot in outputs]

    size = max(CACHED // max(widest, 1), 64)
    parts = [slice(first, min(first + size, count)) for first in range(0, count, size)]
    if len(parts) == 1:
        return dict(zip(outputs, (Table(fields, each) for each in block(parts[0])), strict=True))
    first = block(parts[0])
    full = [np.empty((count, *each.shape[1:]), dtype=each.dtype) for each in first]

    def put(part: slice, results: list[np.ndarray]) -> None:
        for target, each in zip(full, results, strict=True):
            target[part] = each

    def fill(part: slice) -> None:
        put(part, block(part))

    put(parts[0], first)
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(fill, parts[1:]))
    return {slot: Table(fields, each) for slot, each in zip(outputs, full, strict=True)}


def _spread(table: Table, fields: Fields, plans: PlanTable) -> np.ndarray:
    """Rows of a table for more fields; one row for all where it depends on none."""
    return table.values if not table.fields else table.values[plans.project(fields, table.fields)]


# Tables of the part of a row program that the plan alone decides: all who ask for some of its rows share them.


MOST_ROWS = 1 << 16  # of a table (memory: 0.5 MB); what has more distinct values is computed for every point
FEW_ROWS = 1 << 15  # of one where the plan decides all: legal plans are computed once, most combinations never
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
        self._most = MOST_ROWS if rows.variables else FEW_ROWS
        self._leaves = program.inputs[: rows.leaves]
        self._given = program.inputs[rows.leaves : rows.leaves + len(rows.fields)]
        self.fields: dict[int, Fields] = dict.fromkeys((*program.constants, *self._leaves), frozenset())
        self.fields |= {slot: frozenset([number]) for number, slot in enumerate(self._given)}
        self._tabled: list[Equation] = []
        for equation in program.equations:
            if all(slot in self.fields for slot in equation.inputs):
                reached: Fields = frozenset[int]().union(*(self.fields[slot] for slot in equation.inputs))
                if not reached or self.plans.count(reached) <= self._most:
                    self.fields |= dict.fromkeys(equation.outputs, reached)
                    self._tabled.append(equation)
        rest = [equation for equation in program.equations if equation.outputs[0] not in self.fields]
        needed = {slot for equation in rest for slot in equation.inputs} | set(program.outputs)
        self._read = sorted(needed.intersection(self.fields))
        self._late, self._numbers = apart(program, rows.objective_constants)
        late = [equation for equation in self._tabled if equation.outputs[0] in self._late]
        self._waiting = needed.union(*(equation.inputs for equation in late)) - self._late
        self._tables: OrderedDict[int, tuple[Scenario, dict[int, Table]]] = OrderedDict()

    def of(self, scenario: Scenario) -> dict[int, Table]:
        """Table of each slot that other equations or an output need; those of the last scenarios asked for are kept."""
        return cached(self._tables, id(scenario), lambda: (scenario, self._of(scenario)), MOST_SCENARIOS)[1]

    def _of(self, scenario: Scenario) -> dict[int, Table]:
        """Compute the tables; what does not see the numbers that are asked is kept for other such numbers."""
        program, values = self._program, tuple(column.tobytes() for column in self.plans.values)
        same = tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(scenario))  # as in a case of factors of one
        key = (program_key(program), self.plans.fields, values, self._numbers, same)
        early = cached(_early, key, lambda: (program, scenario, self._without(scenario)), MOST_EARLY)[2]
        tables = early | {slot: literal(value) for slot, value in program.constants.items() if slot in self._late}
        self._tabulate(tables)
        return {slot: tables[slot] for slot in self._read}

    def _without(self, scenario: Scenario) -> dict[int, Table]:
        """Tables that others wait for, of what no number reaches that is asked."""
        program = self._program
        tables = {slot: literal(value) for slot, value in program.constants.items() if slot not in self._late}
        for slot, leaf in zip(self._leaves, jax.tree.leaves(scenario), strict=True):
            tables[slot] = literal(np.asarray(leaf, dtype=program.kinds[slot]))
        for number, slot in enumerate(self._given):
            tables[slot] = Table(frozenset([number]), self.plans.column(number))
        early = [equation for equation in self._tabled if equation.outputs[0] not in self._late]
        part = program._replace(equations=early, outputs=tuple(sorted(self._waiting.intersection(self.fields))))
        tables, _ = tabulate_all(part, tables, self.plans, self._most, lambda _: False)
        return {slot: table for slot, table in tables.items() if slot in self._waiting}

    def _tabulate(self, tables: dict[int, Table]) -> None:
        """Add the tables that follow from numbers that are asked."""
        for equation in self._tabled:
            if equation.outputs[0] in self._late:
                result = tabulate(equation, [tables[slot] for slot in equation.inputs], self.plans, self._most)
                assert result is not None
                tables |= dict(zip(equation.outputs, result, strict=True))
