"""A staged program over all plans and all levels of the hardware, block by block.

Inside a block every number has one axis for each hardware variable and one for the plans, of length 1 where it does not
change: what a few levels of two variables decide is computed once for them, not for every point. NumPy runs fastest
along a long last axis: that of the plans, or, where a block has few of them, of plans and last variables together.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from ..jaxprs.identities import largest, without_identities
from ..jaxprs.program import Equation, Program
from ..model.scenario import Scenario
from .lanes import by_lanes, in_turn
from .model import Model
from .running import Running
from .staged import leaves_as_tables, stage
from .tables import Fields, PlanTable, Table

# Memory layout of a block's numbers: the axes that they have, and how many of these are one long axis.


ONCE, ROW, NUMBER = (
    1000.0,
    15.0,
    0.35,
)  # nanoseconds: of a call of NumPy, of each row that it does, of each number in it
"""Measured on an AMD EPYC with additions of doubles; only their ratios matter."""


def reached(equations: Sequence[Equation], given: Mapping[int, Fields]) -> dict[int, Fields]:
    """Slot -> variables that reach it, of all that the equations read or make."""
    fields = dict(given)
    for equation in equations:
        fields |= dict.fromkeys(equation.outputs, frozenset[int]().union(*(fields[slot] for slot in equation.inputs)))
    return fields


class BlockAxes:
    """Axes of a block: one for each of the first variables, and one for the plans and the others together.

    Args:
        sizes: levels of each variable in a block.
        plans: of a block.
        apart: how many variables have an axis of their own.
    """

    def __init__(self, sizes: Sequence[int], plans: int, apart: int):
        self.sizes, self.apart = tuple(sizes), apart
        self.length = plans
        for size in self.sizes[apart:]:
            self.length *= size

    def shape(self, of_plans: bool, variables: Fields) -> tuple[int, ...]:
        """Shape of a number that these reach: 1 along what does not change it."""
        front = [size if number in variables else 1 for number, size in enumerate(self.sizes[: self.apart])]
        together = of_plans or any(number >= self.apart for number in variables)
        return (*front, self.length if together else 1)

    def seconds(self, operations: Mapping[tuple[bool, Fields], float]) -> float:
        """Estimate the time of operations on numbers so reached, seconds.

        Args:
            operations: (whether any plan field reaches it, variables that do) -> how many, and of arrays each number.
        """
        total = 0.0
        for (of_plans, variables), count in operations.items():
            shape, rows = self.shape(of_plans, variables), 1
            row = max(shape[-1], shape[-2] if len(shape) > 1 and shape[-1] == 1 else 1)
            for size in shape:
                rows *= size
            total += count * (ONCE + rows / row * ROW + rows * NUMBER)
        return total * 1e-9


def best_layout(sizes: Sequence[int], plans: int, operations: Mapping[tuple[bool, Fields], float]) -> BlockAxes:
    """The one in which the operations take least."""
    layouts = [BlockAxes(sizes, plans, apart) for apart in range(len(sizes) + 1)]
    return min(layouts, key=lambda layout: layout.seconds(operations))


# Shorter programs for plans of one kind: of which the same numbers are zero, one, true or false at every level.
#
# A block of a grid has few plans where the hardware has many levels. A plan without pipeline stages sends nothing
# between them, one inside a node nothing outside: what is multiplied by these zeros, and the choices that these
# truths make, are half to three quarters of a model's operations.


UNKNOWN, ZERO, ONE = 0, 1, 2  # what is known of a number: zero is false, one is true
MOST = 64  # kinds that programs are made for
WORTH = 1 << 19  # points of a kind, at least: making a program takes as long as a hundred thousand of them


class PlanKind(NamedTuple):
    """program: of numbers that are not known; inputs: places of its inputs among those of the whole program."""

    program: Program
    inputs: tuple[int, ...]


def codes_of(values: np.ndarray) -> Int[np.ndarray, " rows"]:
    """Known value of each row of [rows, levels]: zero, one or unknown."""
    least, most = values.min(axis=1), values.max(axis=1)
    return np.select([(least == 0) & (most == 0), (least == 1) & (most == 1)], [ZERO, ONE], UNKNOWN).astype(np.int8)


class PlanKinds:
    """Kind of each run of plans.

    Args:
        program: numbers alone, of which the inputs are known or not.
        sizes: input -> what its numbers never exceed, in either direction.
        known: place of an input -> [plans] what is known of it; not asked where there are few points.
        plans: how many there are.
        tall: plans of a run; what is known of all of them is known of the run.
        levels: of the hardware, of which each plan has so many points.
    """

    def __init__(
        self,
        program: Program,
        sizes: Mapping[int, float],
        codes_of: Callable[[int], Int[np.ndarray, " plans"]],
        plans: int,
        tall: int,
        levels: int,
    ):
        self._program, self._sizes, self._tall = program, sizes, tall
        first = np.arange(0, plans, tall)
        alike = np.full((len(program.inputs), len(first)), UNKNOWN, dtype=np.int8)
        for index in range(len(alike) if plans * levels >= WORTH else 0):
            codes = codes_of(index)
            least, most = np.minimum.reduceat(codes, first), np.maximum.reduceat(codes, first)
            alike[index] = np.where(least == most, least, UNKNOWN)
        self._codes, of_run = np.unique(alike, axis=1, return_inverse=True)
        runs = np.bincount(of_run, minlength=self._codes.shape[1])
        order = np.argsort(-runs, kind="stable")[:MOST]
        worth = order[(runs[order] * tall * levels >= WORTH) & self._codes[:, order].any(axis=0)]
        self._of_run = np.where(np.isin(of_run, worth), of_run, -1)

    def of(self, plan: Int[np.ndarray, " plans"]) -> int:
        """The number of the kind of these plans; -1 where they have no program of their own."""
        runs = np.unique(plan // self._tall)
        return int(self._of_run[runs[0]]) if len(runs) == 1 else -1

    def written(self, kind: int) -> PlanKind:
        """The program of a kind."""
        full, codes = self._program, self._codes[:, kind].tolist()
        given = dict(zip(full.inputs, codes, strict=True))
        truths = {
            slot: np.asarray(code == ONE, dtype=full.kinds[slot]) for slot, code in given.items() if code != UNKNOWN
        }
        left = tuple(slot for slot, code in given.items() if code == UNKNOWN)
        short = without_identities(full._replace(constants={**full.constants, **truths}, inputs=left), self._sizes)
        short = short._replace(equations=in_turn(short))
        read = {*short.outputs, *(slot for equation in short.equations for slot in equation.inputs)}
        places = tuple(index for index, slot in enumerate(full.inputs) if slot in read and slot in left)
        return PlanKind(short._replace(inputs=tuple(full.inputs[position] for position in places)), places)


MOST_ROWS = 1 << 18  # of a table (memory: 2 MB): what has more distinct values is computed block by block


class Blocks:
    """Outputs of a program at any block of a grid.

    Args:
        model: whose inputs the program has.
        program: numbers that are asked for, of the model's inputs.
        scenario: what is varied.
        plans: field -> its value in each plan.
        levels: values of each hardware variable, in the model's order.
        block: points of a block, at most.

    Attributes: wide and tall are the levels and plans of a block, cut so that operations on a point take least.
    """

    def __init__(
        self,
        model: Model,
        program: Program,
        scenario: Scenario,
        plans: dict[str, np.ndarray],
        levels: Sequence[np.ndarray],
        block: int,
    ):
        self.shape = tuple(map(len, levels))
        self._table = PlanTable(plans, dict(zip(model.variables, levels, strict=True)))
        self._listed = len(plans)
        given = leaves_as_tables(program.inputs[: model.leaves], jax.tree.leaves(scenario))
        for number, slot in enumerate(program.inputs[model.leaves :]):
            given[slot] = Table(frozenset([number]), self._table.column(number))
        others = [slot for slot in program.constants if slot >= len(model.program.shapes)]  # of what is asked
        staged = stage(program, self._table, given, MOST_ROWS, others)
        plan_parts = {self._plan_part(table) for table in staged.tables.values()}
        self._rows = {fields: self._table.rows_of(fields) for fields in plan_parts}
        count = len(next(iter(plans.values()), [0]))
        fixed = {slot: np.asarray(table.values[0]) for slot, table in staged.tables.items() if not table.fields}
        moving = tuple(slot for slot in staged.tables if slot not in fixed)
        rest = Program(staged.rest, fixed, moving, staged.outputs, staged.shapes, staged.kinds)
        sizes = {slot: largest(staged.tables[slot].values) for slot in moving}
        self._scalarized, parts = by_lanes(rest, sizes)
        lanes = {slot: parts.get(slot, [(slot, ())]) for slot in moving}
        self._inputs = [(input_number, index) for input_number, slot in enumerate(moving) for _, index in lanes[slot]]
        self._fields = {part: staged.tables[slot].fields for slot in moving for part, _ in lanes[slot]}
        sort, operations = self._sorts(self._scalarized), Counter[tuple[bool, Fields]]()
        for slot in (
            *self._scalarized.inputs,
            *(slot for equation in self._scalarized.equations for slot in equation.outputs),
        ):
            operations[sort[slot]] += max(1, math.prod(self._scalarized.shapes[slot]))
        self.tall, self.wide, self._layout = min(self._cuts(block, count, operations), key=lambda cut: cut[0])[1:]
        self._apart = self._layout.apart
        self._spread = [self._spread_out(staged.tables.pop(slot)) for slot in moving]  # so that none is held twice
        self._last: dict[int, tuple[Any, np.ndarray]] = {}  # table -> for which block, what was given
        self._ready = {-1: (self._running(self._scalarized), self._inputs)}
        self._kinds = PlanKinds(
            self._scalarized, {part: sizes[slot] for slot in moving for part, _ in lanes[slot]},
            self._input_codes, count, self.tall, math.prod(self.shape),
        )  # fmt: skip

    def _sorts(self, program: Program) -> dict[int, tuple[bool, Fields]]:
        """Slot -> whether the plan reaches it, and which hardware variables do."""
        reach = reached(program.equations, self._fields | dict.fromkeys(program.constants, frozenset[int]()))
        return {slot: self._parts(each) for slot, each in reach.items()}

    def _running(self, program: Program) -> Running:
        """A program of numbers made ready to run in this layout."""
        alike = {slot: (program.shapes[slot], each) for slot, each in self._sorts(program).items()}
        constants, lead = dict(program.constants), self._apart + 1
        return Running(program.equations, program.inputs, program.outputs, constants, program.kinds, lead, alike)

    def _input_codes(self, number: int) -> Int[np.ndarray, " plans"]:
        """Known value of one input in each plan, whatever the level; unknown for arrays that are not written out."""
        position, index = self._inputs[number]
        part, values = self._spread[position]
        if values.ndim - len(self.shape) - 1 > len(index):
            return np.full(len(self._rows[part]), UNKNOWN, dtype=np.int8)
        of_plans = np.moveaxis(values[index], self._apart, 0)
        return codes_of(of_plans.reshape(len(of_plans), -1))[self._rows[part]]

    @property
    def operations(self) -> int:
        """Number of the program's operations that are done block by block."""
        return len(self._scalarized.equations)

    def operations_at(self, plan: Int[np.ndarray, " plans"]) -> int:
        """Number of operations at every point of these plans, of which all may have equal zeros, ones and choices."""
        return self._ready_for(plan)[0].operations

    def _cuts(
        self, block: int, count: int, operations: Mapping[tuple[bool, Fields], float]
    ) -> Iterator[tuple[float, int, int, BlockAxes]]:
        """(seconds of a point, plans, levels, layout) of blocks of few levels and many plans, and the other way round.

        The fewer blocks a variable's levels come in, the less often is done what it has no part in.
        """
        plans = {min(count, block) >> halved or 1 for halved in range(block.bit_length())}
        for wide in sorted({_wide(self.shape, max(1, block // each)) for each in plans}):
            self.wide, tall = wide, max(1, min(block // wide, count))
            span = self._span()
            columns, left = divmod(span, wide)
            layout = best_layout(self._sizes(0, wide), tall, operations)
            seconds = columns * layout.seconds(operations)
            if left:
                seconds += BlockAxes(self._sizes(span - left, left), tall, layout.apart).seconds(operations)
            yield seconds / (tall * span), tall, wide, layout

    def _parts(self, fields: Fields) -> tuple[bool, Fields]:
        """(True if any plan field is among them, numbers of the hardware variables that are)."""
        variables = frozenset(field - self._listed for field in fields if field >= self._listed)
        return len(variables) < len(fields), variables

    def _plan_part(self, table: Table) -> Fields:
        return frozenset(field for field in table.fields if field < self._listed)

    def _spread_out(self, table: Table) -> tuple[Fields, np.ndarray]:
        """(plan fields that reach it, [own axes, levels apart, combinations of plan fields, levels with the plans])."""
        part = self._plan_part(table)
        sizes = [size if self._listed + number in table.fields else 1 for number, size in enumerate(self.shape)]
        values = table.values.reshape(-1, *sizes, *table.values.shape[1:])
        levels, value_axes = list(range(1, 1 + len(sizes))), range(1 + len(sizes), values.ndim)
        order = (*value_axes, *levels[: self._apart], 0, *levels[self._apart :])
        return part, np.ascontiguousarray(values.transpose(order))

    def __call__(
        self, plan: Int[np.ndarray, " plans"], first: int, count: int
    ) -> list[Float[np.ndarray, "plans levels"]]:
        """Outputs at some plans and at levels `first` to `first + count`, which are whole ranges of the last variables.

        Levels are numbered with the last variable running fastest.
        """
        ranges, apart = self._ranges(first, count), self._apart
        sizes = [stop - start for start, stop in ranges]
        together = (len(plan), *sizes[apart:])
        plan_key = plan.tobytes()
        run, inputs = self._ready_for(plan)
        given = [self._given(number, plan, plan_key, ranges)[index] for number, index in inputs]
        full_shape = (*sizes[:apart], *together)
        answers: list[np.ndarray] = []
        for result in run(*given):
            spread = result.reshape(*result.shape[:-1], *(together if result.shape[-1] > 1 else [1] * len(together)))
            answers.append(np.moveaxis(np.broadcast_to(spread, full_shape), apart, 0).reshape(len(plan), count))
        return answers

    def _ready_for(self, plan: np.ndarray) -> tuple[Running, list[tuple[int, tuple[int, ...]]]]:
        """Program to run for these plans, and which numbers of which tables it is given."""
        kind = self._kinds.of(plan)
        if kind not in self._ready:
            program, places = self._kinds.written(kind)
            self._ready[kind] = self._running(program), [self._inputs[index] for index in places]
        return self._ready[kind]

    def _given(self, number: int, plan: np.ndarray, plan_key: bytes, ranges: Sequence[tuple[int, int]]) -> np.ndarray:
        """Values of a table for a block; the last answer again where other variables have moved on."""
        (part, values), apart = self._spread[number], self._apart
        leading = values.ndim - len(ranges) - 1
        levels = (*values.shape[leading : leading + apart], *values.shape[leading + apart + 1 :])
        cut = [ends if size > 1 else (0, 1) for ends, size in zip(ranges, levels, strict=True)]
        together = (len(plan), *(stop - start for start, stop in ranges[apart:]))
        key, cached = (plan_key, tuple(cut), together), self._last.get(number)
        if cached is not None and cached[0] == key:
            return cached[1]
        places = [slice(*ends) for ends in cut]
        values = values[(*[slice(None)] * leading, *places[:apart], slice(None), *places[apart:])]
        if part:
            values = values.take(self._rows[part][plan], axis=leading + apart)
        front, behind = values.shape[: leading + apart], values.shape[leading + apart :]
        if behind != together and max(behind) > 1:
            values = np.broadcast_to(values, (*front, *together))
        values = values.reshape(*front, -1)
        self._last[number] = (key, values)
        return values

    def levels(self) -> Iterator[tuple[int, int]]:
        """(first, count) of the levels of each block: the last one of a variable's range may have fewer."""
        return map(self.levels_of, range(self.columns))

    @property
    def columns(self) -> int:
        """Blocks that the levels of some plans come in."""
        span = self._span()
        return math.prod(self.shape) // span * -(-span // self.wide)

    def levels_of(self, column: int) -> tuple[int, int]:
        """(first, count) of the levels of one of these blocks."""
        span = self._span()
        before, within = divmod(column, -(-span // self.wide))
        start = within * self.wide
        return before * span + start, min(self.wide, span - start)

    def column_of(self, level: Int[np.ndarray, " levels"]) -> Int[np.ndarray, " levels"]:
        """The block that each level stands in."""
        span = self._span()
        return level // span * -(-span // self.wide) + level % span // self.wide

    def _span(self) -> int:
        """Levels of whole variables that blocks never reach across."""
        inner = 1
        for size in reversed(self.shape):
            inner *= size
            if inner > self.wide:
                break
        return inner

    def _sizes(self, first: int, count: int) -> list[int]:
        """Number of levels of each variable."""
        return [stop - start for start, stop in self._ranges(first, count)]

    def _ranges(self, first: int, count: int) -> list[tuple[int, int]]:
        """[start, stop) of the levels of each variable."""
        ranges: list[tuple[int, int]] = []
        for size in reversed(self.shape):
            first, start = divmod(first, size)
            length = min(count, size)
            ranges.append((start, start + length))
            count //= length
        return ranges[::-1]


def _wide(shape: Sequence[int], most: int) -> int:
    """Levels of a block, at most `most`: all of the last variables, and an even part of the one before these."""
    count = 1
    for size in reversed(shape):
        if count * size > most:
            parts = -(-size // (most // count))
            return count * -(-size // parts)
        count *= size
    return count
