"""Rows and slopes at any plans and coordinates: what the plan alone decides is looked up, the rest is run by NumPy.

The rest is written once with its slopes, each along one coordinate through what that coordinate reaches.
"""

import functools
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..jaxprs.program import Program, cached, written_out
from ..model.scenario import Scenario
from .again import likeness_of_equations
from .derivatives import Slopes
from .packing import SHARED, Packs, packed_once, packing_of
from .program_cache import equations_as_plain
from .rows import RowProgram
from .running import Running
from .staged import stage
from .tables import Fields, PlanTable, PlanTables, Table, literal

MOST_SCENARIOS = 64  # of which tables are kept
MOST_PREPARED = 16  # programs that are kept ready to run, for whoever asks the same of the same model
WORKERS = min(2, os.cpu_count() or 1)
PASS, PART = 2048, 512  # points of one pass, and of a program at a time: arrays of them stay in a cache
FEWER = 8  # times fewer rows than points has a table of values that points share
MOST_PLANS = 1 << 18  # whose rows are kept where nothing but the plan decides them (memory: some 20 MB)


_prepared: OrderedDict[Any, Any] = OrderedDict()


class RowValues(NamedTuple):
    """Rows of the hard model, largest violation of a rule, rows of the reading below and their slopes."""

    exact: Float[np.ndarray, "points rows"]
    broken: Float[np.ndarray, " points"]
    below: Float[np.ndarray, "points rows"]
    slopes: Float[np.ndarray, "points rows variables"]


# Tables of a scenario side by side, so that what a point reads of them is gathered in few calls.


TableKey = tuple[Fields, str]
"""Fields that a number depends on, and its type."""


class PackedTables(NamedTuple):
    """Tables side by side: of each set of fields one matrix, of which a point reads one row.

    matrices: of one type each, [combinations, numbers]; places: of each table its matrix, columns [first, last), shape.
    """

    matrices: dict[TableKey, np.ndarray]
    places: list[tuple[TableKey, int, int, tuple[int, ...]]]

    @classmethod
    def of(cls, tables: Sequence[Table]) -> "PackedTables":
        """Pack these tables."""
        columns: dict[TableKey, list[np.ndarray]] = {}
        widths: dict[TableKey, int] = {}
        places: list[tuple[TableKey, int, int, tuple[int, ...]]] = []
        for table in tables:
            flat = np.asarray(table.values).reshape(len(table.values), -1)
            key = (table.fields, flat.dtype.str)
            first = widths.get(key, 0)
            widths[key] = first + flat.shape[1]
            columns.setdefault(key, []).append(flat)
            places.append((key, first, widths[key], table.values.shape[1:]))
        return cls({key: np.concatenate(parts, axis=1) for key, parts in columns.items()}, places)

    def at(self, codes: Int[np.ndarray, "points fields"], plans: PlanTable) -> list[np.ndarray]:
        """The numbers of each table at these points; one for all where no field reaches it."""
        rows: dict[TableKey, np.ndarray] = {}
        for key, matrix in self.matrices.items():
            order = sorted(key[0])
            sizes = [len(plans.values[i]) for i in order]
            rows[key] = matrix[np.ravel_multi_index(codes[:, order].T, sizes)].T if order else matrix.T
        return [
            rows[key][first:last].reshape(*shape, -1) if shape else rows[key][first]
            for key, first, last, shape in self.places
        ]


class LookUp:
    """Puts what tables have for many points where a program wants it.

    Args:
        packed: the tables.
        wanted: of each table, in turn, (which buffer, first row, rows) its numbers go to; then of other numbers.
        plans: whose codes points are given by.
    """

    def __init__(self, packed: PackedTables, wanted: Sequence[tuple[int, int, int]], plans: PlanTable):
        columns: dict[tuple[TableKey, int], list[int]] = {}
        rows: dict[tuple[TableKey, int], list[int]] = {}
        self._shared: dict[int, np.ndarray] = {}
        for (key, start, stop, _), (buffer, row, count) in zip(packed.places, wanted, strict=False):
            if buffer == SHARED:
                self._shared[row] = np.ascontiguousarray(packed.matrices[key][0, start:stop])
                continue
            columns.setdefault((key, buffer), []).extend(range(start, stop))
            rows.setdefault((key, buffer), []).extend(range(row, row + count))
        self._others = [(buffer, row) for buffer, row, _ in wanted[len(packed.places) :]]
        self._steps = np.zeros((len(plans.fields), len(rows)))
        self._parts: list[tuple[int, slice | np.ndarray, np.ndarray, bool]] = []
        for number, ((key, buffer), rows_read) in enumerate(rows.items()):
            step = 1
            for field in sorted(key[0], reverse=True):
                self._steps[field, number] = step
                step *= len(plans.values[field])
            matrix = np.ascontiguousarray(packed.matrices[key][:, columns[key, buffer]].T)
            side_by_side = rows_read == list(range(rows_read[0], rows_read[0] + len(rows_read)))
            target = slice(rows_read[0], rows_read[0] + len(rows_read)) if side_by_side else np.array(rows_read)
            self._parts.append((buffer, target, matrix, bool(key[0])))

    def run(
        self, packs: Packs, codes: Int[np.ndarray, "points fields"], others: Float[np.ndarray, "points numbers"]
    ) -> Float[np.ndarray, "points outputs"]:
        """Outputs of a program at these points, so many at a time that a cache holds what waits."""
        count = len(codes)
        parts = [slice(first, min(first + PART, count)) for first in range(0, count, PART)]
        result = [
            packs(p.stop - p.start, functools.partial(self._write, codes[p], others[p].T), self._shared) for p in parts
        ]
        return result[0] if len(result) == 1 else np.concatenate(result)

    def _write(self, codes: np.ndarray, others: np.ndarray, buffers: Sequence[np.ndarray]) -> None:
        for (buffer, row), column in zip(self._others, others, strict=True):
            buffers[buffer][row] = column
        row = (codes.astype(float) @ self._steps).astype(np.intp).T  # whole numbers far below 2^53
        for number, (buffer, index, matrix, varies) in enumerate(self._parts):
            target = buffers[buffer]
            if not varies:
                target[index] = matrix
            elif isinstance(index, slice) and matrix.dtype == target.dtype:
                matrix.take(row[number], 1, target[index], "clip")
            else:
                target[index] = matrix.take(row[number], 1)


class PlanCache:
    """Outputs that the plan alone decides, at plans that were asked for before: a search comes back to most of them."""

    def __init__(self) -> None:
        self._codes, self._values = np.empty(0, dtype=np.int64), np.empty((0, 0))

    def at(
        self, codes: Int[np.ndarray, " points"], compute: Callable[[np.ndarray], np.ndarray]
    ) -> Float[np.ndarray, "points outputs"]:
        """Values at these plans.

        Args:
            codes: one whole number a plan.
            compute: of the values at points of `codes` by their places.
        """
        requested, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        missing = ~np.isin(requested, self._codes, assume_unique=True)
        if missing.any():
            if len(self._codes) + missing.sum() > MOST_PLANS:
                self._codes, missing = self._codes[:0], np.ones_like(missing)
            values = compute(first[missing])
            old = self._values if len(self._codes) else values[:0]
            joined = np.concatenate([self._codes, requested[missing]])
            order = np.argsort(joined)
            self._codes, self._values = joined[order], np.concatenate([old, values])[order]
        return self._values[np.searchsorted(self._codes, requested)][inverse]


class Points:
    """A row program for plans whose fields have known values.

    Args:
        rows: what is asked for.
        values: plan field -> every value that it may have.
        slopes: whether the reading below and its slopes are asked for.
        tables: of a row program that has these rows; its own if none are given.
    """

    def __init__(
        self,
        rows: RowProgram,
        values: Mapping[str, np.ndarray],
        *,
        slopes: bool = True,
        tables: PlanTables | None = None,
    ):
        self.rows, self.slopes = rows, slopes
        self.tables = tables or PlanTables(rows, values)
        self.plans, program = self.tables.plans, rows.program
        self._u = program.inputs[rows.leaves + len(rows.fields) :]
        sizes = tuple(map(len, self.plans.values))
        key = (likeness_of_equations(program), rows.leaves, rows.fields, rows.varied, sizes, slopes)
        self._read, self._written_with_slopes, self._ready = cached(_prepared, key, self._prepare, MOST_PREPARED)[1:]
        self._width = len(rows.names) + 1 + slopes * len(rows.names) * (1 + len(self._u))
        self._lookups: OrderedDict[int, tuple[Scenario, tuple[LookUp, PlanCache]]] = OrderedDict()
        self._by_plan = not slopes and not self._u and math.prod(sizes) < 2**62  # whose number is a whole one
        self._steps = (
            np.cumprod((1, *sizes[:-1]), dtype=np.int64)[: len(sizes)] if self._by_plan else np.empty(0, np.int64)
        )

    def _prepare(self) -> tuple[Program, list[int], Callable[[], Program], Callable[[], Packs]]:
        """(the program, slots of tables that are read, what is left with slopes, the same made ready to run)."""
        program, fields, along = self.rows.program, self.tables.fields, self._u if self.slopes else None
        rest = [equation for equation in program.equations if equation.outputs[0] not in fields]
        needed = {slot for equation in rest for slot in equation.inputs} | set(program.outputs)
        read = sorted(needed.intersection(fields), key=lambda slot: (sorted(fields[slot]), slot))
        cut = program._replace(equations=rest, constants={}, inputs=(*read, *self._u))
        varied = self.rows.varied.intersection(equation.outputs[0] for equation in rest)
        written_with_slopes = functools.cache(lambda: _written(cut, along, varied))

        alike = [number for number, slot in enumerate(read) if not fields[slot]]

        def identity() -> list[Any]:
            return [equations_as_plain(cut), along, sorted(varied), alike]

        def ready() -> Packs:
            return Packs(packed_once(lambda: packing_of(written_with_slopes(), alike), identity))

        return program, read, written_with_slopes, functools.cache(ready)

    def _look_up(self, scenario: Scenario) -> tuple[LookUp, PlanCache]:
        """Look-up that puts numbers of a scenario's tables into packs; those of the last ones asked for are kept."""

        def make() -> tuple[Scenario, tuple[LookUp, PlanCache]]:
            tables = self.tables.of(scenario)
            packed = PackedTables.of([tables[slot] for slot in self._read])
            return scenario, (LookUp(packed, self._ready().wanted, self.plans), PlanCache())

        return cached(self._lookups, id(scenario), make, MOST_SCENARIOS)[1]

    def __call__(
        self,
        scenario: Scenario,
        rows: Float[np.ndarray, "points fields"],
        u: Float[np.ndarray, "points variables"],
        sharpness: Float[np.ndarray, " points"],
    ) -> RowValues:
        """Evaluate the model at these plans and coordinates."""
        looked_up, cache = self._look_up(scenario)
        codes, ready = _codes(self.plans, rows), self._ready()
        numbers = np.concatenate([u, sharpness[:, None]], axis=1)

        def run(places: np.ndarray) -> np.ndarray:
            def of(part: slice) -> np.ndarray:
                return looked_up.run(ready, codes[places[part]], numbers[places[part]])

            return self._in_parts(len(places), of)

        if not self._by_plan or len(rows) == 0:
            return self._row_values(run(np.arange(len(rows))))
        return self._row_values(cache.at(codes @ self._steps, run))

    def sharing(
        self, scenario: Scenario, rows: Float[np.ndarray, "points fields"], u: Float[np.ndarray, "points variables"]
    ) -> RowValues:
        """Evaluate many points that have few values of each variable: what few values reach is looked up too."""
        assert not self.slopes
        coordinates = dict(zip(self.rows.variables, u.T, strict=True))
        table = PlanTable({}, dict(zip(self.plans.fields, self.plans.values, strict=True)) | coordinates)
        first = len(self.plans.fields)
        tables = self.tables.of(scenario)
        given, full = {slot: tables[slot] for slot in self._read}, self._written_with_slopes()
        for number, slot in enumerate(full.inputs[len(self._read) : -1], start=first):
            given[slot] = Table(frozenset([number]), table.column(number))
        given[full.inputs[-1]] = literal(np.ones(()))
        staged = stage(full, table, given, len(rows) // FEWER)
        rest = Running(staged.rest, list(staged.tables), staged.outputs, {}, staged.kinds, lead=1)
        packed, codes = PackedTables.of(list(staged.tables.values())), _codes(table, np.concatenate([rows, u], axis=1))

        def run(part: slice) -> np.ndarray:
            return self._columns(len(rows[part]), rest(*packed.at(codes[part], table)))

        return self._row_values(self._in_parts(len(rows), run))

    def _in_parts(self, count: int, run: Callable[[slice], np.ndarray]) -> Float[np.ndarray, "points outputs"]:
        """Run a program at all points, part by part."""
        starts = range(0, count, PASS)
        if count == 0:
            return np.empty((0, self._width))
        if len(starts) < 2:
            return run(slice(0, count))
        with ThreadPoolExecutor(WORKERS) as pool:
            return np.concatenate(list(pool.map(run, [slice(first, first + PASS) for first in starts])))

    def _row_values(self, columns: Float[np.ndarray, "points outputs"]) -> RowValues:
        """Name the columns of a program's outputs."""
        count, width, names = len(columns), len(self._u), len(self.rows.names)
        if not self.slopes:
            return RowValues(columns[:, :-1], columns[:, -1], columns[:, :0], np.empty((count, 0, width)))
        exact, broken, below, slopes = np.split(columns, np.cumsum([names, 1, names]), axis=1)
        return RowValues(exact, broken[:, 0], below, slopes.reshape(count, names, width))

    def _columns(self, count: int, results: Sequence[Any]) -> np.ndarray:
        columns = np.empty((count, self._width))
        for number, column in enumerate(results):
            columns[:, number] = column
        return columns


def _written(cut: Program, along: Sequence[int] | None, varied: frozenset[int]) -> Program:
    """(what is read, coordinates, sharpness) -> exact rows, violation, rows below, slopes by row and coordinate.

    What is known is read too: another limit is another number, not another program.

    Args:
        cut: (what is read, coordinates) -> rows, violation; the equations that are left.
        along: coordinates along which slopes are asked for, of the reading below; None: rows and violation alone.
        varied: first outputs of equations in which the reading below takes a mean for a maximum.
    """
    draft, rest = Slopes(cut, cut.inputs), cut.equations
    sharpness, rows = draft.given(), cut.outputs[:-1]
    draft.equations += rest
    outputs = list(cut.outputs)
    if along is not None:
        below = draft.below(rest, varied, sharpness)
        one, zero = draft.constant(1.0), draft.constant(0.0)
        moved = [draft.slopes(rest, {slot: one}, below, varied, sharpness) for slot in along]
        outputs += [below.get(row, row) for row in rows]
        outputs += [slopes.get(row, zero) for row in rows for slopes in moved]
    return written_out(draft.done(outputs))


def _codes(plans: PlanTable, rows: Float[np.ndarray, "points fields"]) -> Int[np.ndarray, "points fields"]:
    """Places of the fields' values."""
    codes = np.empty(rows.shape, dtype=np.int64)
    for number, (name, values) in enumerate(zip(plans.fields, plans.values, strict=True)):
        index = np.searchsorted(values, rows[:, number]).clip(0, len(values) - 1)
        assert (values[index] == rows[:, number]).all(), f"{name} has a value it does not list"
        codes[:, number] = index
    return codes
