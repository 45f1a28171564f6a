"""Plans that are equal in everything the model computes: of each such class one plan stands for all.

Sequence parallelism of one rank, expert parallelism of a dense model and the degrees of a pool without devices change
nothing. Which choices these are is not declared anywhere: it is read off the traced program. What the plan alone
decides is tabulated; two plans whose entries are equal, bit for bit, in every table that the rest of the program reads
have equal metrics at any hardware.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int, UInt8

from ..jaxprs.program import Equation, Program
from ..model.scenario import Scenario
from ..study.design_space import DesignSpace
from .model import Answers, model_of
from .staged import StagedProgram, leaves_as_tables, stage
from .tables import Fields, PlanTable, Table

__all__ = ["classes_of_plans", "distinct_plans"]

MOST_ROWS = 1 << 18  # of a table: with more, what it is made of is compared instead, which tells more plans apart
MOST_PLANS = 1 << 18  # more are not compared: each counts
MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9))  # odd: of a word's bits none is lost
MANY, LOOKS = 1 << 12, 48  # plans from which on some are compared first; so many along each field


def distinct_plans(
    scenarios: Sequence[Scenario],
    space: DesignSpace,
    plans: Mapping[str, np.ndarray],
    free: Mapping[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """The first plan of each class of plans that are equal in every metric, at any hardware of the space.

    Args:
        scenarios: in each of which they must be equal.
        space: whose variables may have any value.
        plans: field -> its value in each legal plan.
        free: field -> values; plans are equal if they are so with each combination of these.

    Time: that of the tables, 0.1 s for 20,000 plans. Where plans are many, some that differ in one field are compared
    first; where no two of them are equal, and beyond `MOST_PLANS`, every plan counts.
    """
    count = len(next(iter(plans.values()), np.zeros(0)))
    if count < 2:
        return dict(plans)
    free = dict(free or {})
    model = model_of(scenarios[0], space, (*plans, *free))
    program = model.program_of(_compared)
    first = _first_of_unread(program, model.leaves, plans)
    plans, count = {name: column[first] for name, column in plans.items()}, len(first)
    if count < 2 or count > MOST_PLANS:
        return dict(plans)
    if count * math.prod(len(values) for values in free.values()) > MANY:
        some = _neighbours(plans)
        few = {name: column[some] for name, column in plans.items()}
        ends = {name: np.asarray(values)[[0, -1]] for name, values in free.items()}  # fewer tell fewer plans apart
        if len(some) == len(np.unique(classes_of_plans(program, model.leaves, scenarios, few, ends))):
            return dict(plans)
    classes = classes_of_plans(program, model.leaves, scenarios, plans, free)
    first = np.sort(np.unique(classes, return_index=True)[1])
    return {name: column[first] for name, column in plans.items()}


def _first_of_unread(program: Program, leaves: int, plans: Mapping[str, np.ndarray]) -> Int[np.ndarray, " some"]:
    """Numbers of the first of those plans that differ in fields alone which the program does not read."""
    count = len(next(iter(plans.values())))
    read = {slot for equation in program.equations for slot in equation.inputs} | {*program.outputs}
    slots = program.inputs[leaves : leaves + len(plans)]
    columns = [column for slot, column in zip(slots, plans.values(), strict=True) if slot in read]
    if len(columns) == len(plans):
        return np.arange(count)
    classes = _Classes(count)
    for column in columns:
        classes.tell_apart(np.unique(column, return_inverse=True)[1].reshape(-1))
        if classes.all_differ:
            return np.arange(count)
    return np.sort(np.unique(classes.classes, return_index=True)[1])


def _neighbours(plans: Mapping[str, np.ndarray]) -> Int[np.ndarray, " some"]:
    """Numbers of some plans: of each field, random ones with all that differ from them in this field alone."""
    rng, result = np.random.default_rng(0), list[np.ndarray]()
    codes = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in plans.values()]
    for field in range(len(codes)):
        key = np.zeros(len(codes[0]), dtype=np.int64)
        for code in (*codes[:field], *codes[field + 1 :]):
            key = key * (int(code.max()) + 1) + code
        result.append(np.flatnonzero(np.isin(key, key[rng.integers(0, len(key), LOOKS)])))
    return np.unique(np.concatenate(result))


def _compared(answers: Answers) -> list[Any]:
    """All results of a design except violations of rules: all plans here keep them."""
    return jax.tree.leaves((replace(answers.metrics, violations={}), answers.reserves))


def classes_of_plans(
    program: Program,
    leaves: int,
    scenarios: Sequence[Scenario],
    plans: Mapping[str, np.ndarray],
    free: Mapping[str, np.ndarray] | None = None,
) -> Int[np.ndarray, " plans"]:
    """Equal numbers for plans that no output of a program tells apart, whatever its other inputs are.

    Args:
        program: of the scenario's leaves, the plan fields in the order of `plans` and `free`, and other numbers.
        leaves: how many of its inputs are the scenario's.
        scenarios, plans, free: see `distinct_plans`.
    """
    table = PlanTable(plans, free)
    slots = program.inputs[leaves : leaves + len(table.fields)]
    columns = {slot: Table(frozenset([i]), table.column(i)) for i, slot in enumerate(slots)}
    keys = _Classes(len(next(iter(plans.values()))))
    for scenario in scenarios:
        given = leaves_as_tables(program.inputs[:leaves], jax.tree.leaves(scenario)) | columns
        staged = stage(program, table, given, MOST_ROWS)
        for entries, read in _compared_entries(staged, table, frozenset(range(len(plans)))):
            keys.tell_apart(entries if read is None else np.where(read, entries + 1, 0))
            if keys.all_differ:
                return keys.classes
    return keys.classes


class _Classes:
    """Numbers of classes that only become more as plans are told apart."""

    def __init__(self, count: int):
        self.classes = np.zeros(count, dtype=np.int64)
        self._classes, self._more, self._most = 1, np.zeros(count, dtype=np.int64), 1

    def tell_apart(self, entries: Int[np.ndarray, " plans"]) -> None:
        """Plans with other entries are of other classes. Several entries are taken together: sorting takes the time."""
        most = int(entries.max()) + 1
        if self._most * most * len(self.classes) >= 1 << 62:
            self._settle()
        self._more, self._most = self._more * most + entries, self._most * most
        if self._most >= len(self.classes):
            self._settle()

    def _settle(self) -> None:
        self.classes = np.unique(self.classes * self._most + self._more, return_inverse=True)[1].reshape(-1)
        self._classes, self._more, self._most = int(self.classes.max()) + 1, np.zeros_like(self.classes), 1

    @property
    def all_differ(self) -> bool:
        """True if no two plans are of one class any more."""
        if self._most > 1 and len(self.classes) > 1:
            self._settle()
        return self._classes == len(self.classes)


def _compared_entries(
    staged: StagedProgram, plans: PlanTable, listed: Fields
) -> Iterator[tuple[Int[np.ndarray, " plans"], Bool[np.ndarray, " plans"] | None]]:
    """(numbers that differ where tables do, plans for which these are read; None: for all), of all tables.

    Tables that depend on the same fields and are read for the same plans are taken together.
    """
    read = _read_for(staged, plans, listed)
    together: dict[tuple[Fields, int], list[np.ndarray]] = {}
    for slot, (fields, values) in staged.tables.items():
        listed_fields = fields & listed
        if listed_fields and slot in read:
            rows = np.ascontiguousarray(values).reshape(plans.count(listed_fields), -1)
            key = (listed_fields, id(read[slot]))
            together.setdefault(key, []).append(rows.view(np.uint8).reshape(len(rows), -1))
    masks = {id(mask): mask for mask in read.values()}
    for (fields, mask), rows in sorted(together.items(), key=lambda item: -plans.count(item[0][0])):
        joined = np.ascontiguousarray(np.concatenate(rows, axis=1))
        yield numbered(joined)[plans.rows_of(fields)], masks[mask]


def numbered(rows: UInt8[np.ndarray, "rows bytes"]) -> Int[np.ndarray, " rows"]:
    """Equal numbers for equal rows.

    Rows are sorted by a hash of eight bytes; where two that differ have the same hash, by all their bytes.
    """
    width = -(-rows.shape[1] // 8) * 8
    words = np.ascontiguousarray(np.pad(rows, ((0, 0), (0, width - rows.shape[1])))).view(np.uint64)
    total = np.zeros(len(rows), dtype=np.uint64)
    for column in words.T:  # each is mixed: floats that are powers of two differ in few bits, all of them high ones
        total = (total ^ column) * MIX[0]
        total ^= total >> np.uint64(32)
        total *= MIX[1]
        total ^= total >> np.uint64(29)
    _, first, result = np.unique(total, return_index=True, return_inverse=True)
    result = result.reshape(-1)
    if (words == words[first[result]]).all():
        return result
    items = rows.view(np.dtype((np.void, rows.shape[1]))).reshape(len(rows))
    return np.unique(items, return_inverse=True)[1].reshape(-1)


def _read_for(staged: StagedProgram, plans: PlanTable, listed: Fields) -> dict[int, Bool[np.ndarray, " plans"] | None]:
    """Slot -> the plans for which anything that is wanted depends on it; None: all of them.

    A choice that the plan makes leaves what is not chosen unread: the times of a pool without devices.
    """
    read: dict[int, Bool[np.ndarray, " plans"] | None] = dict.fromkeys(staged.outputs)
    made: dict[bytes, np.ndarray] = {}

    def add(slot: int, mask: np.ndarray | None) -> None:
        before = read.get(slot, False)
        if mask is None or before is None:
            read[slot] = None
        elif before is False:
            read[slot] = mask
        elif before is not mask:
            both = before | mask
            read[slot] = None if both.all() else made.setdefault(both.tobytes(), both)

    for equation in reversed(staged.rest):
        masks = [read[slot] for slot in equation.outputs if slot in read]
        if not masks:
            continue
        mask = masks[0] if len(masks) == 1 else None
        chosen = _choice(equation, staged, plans, listed)
        for index, slot in enumerate(equation.inputs):
            if chosen is None or index == 0:
                add(slot, mask)
            else:
                here = (chosen == index - 1) if mask is None else (chosen == index - 1) & mask
                if here.any():
                    add(slot, made.setdefault(here.tobytes(), here))
    return read


def _choice(
    equation: Equation, staged: StagedProgram, plans: PlanTable, listed: Fields
) -> Int[np.ndarray, " plans"] | None:
    """Branch of each plan at this equation, if it is a choice that the listed fields alone make; None otherwise."""
    if equation.name != "select_n" or equation.inputs[0] not in staged.tables:
        return None
    fields, values = staged.tables[equation.inputs[0]]
    if not fields or not fields <= listed:
        return None
    rows = values.reshape(len(values), -1).astype(np.int64)
    if (rows != rows[:, :1]).any():
        return None
    return rows[:, 0][plans.rows_of(fields)]
