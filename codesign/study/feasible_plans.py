"""Legality of plans: a legal plan breaks no rule of the workload on the scenario's devices."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array

from ..core.fields import replace
from ..jaxprs.evaluator import crossed, interpreted
from ..model.scenario import Scenario

__all__ = ["Rules", "violations"]

PART = 1 << 20  # combinations of plan values looked at at once
MOST_SUMMED = 1 << 24  # combinations over which a field is summed out while legal plans are counted
MOST_COUNTED = 2.0**62  # combinations of values whose count is a whole number
JOINED = 4  # times as many combinations as may be legal are joined before rules drop some
Fields = tuple[int, ...]


class TooManyPlans(Exception):
    """More legal combinations than are listed one by one."""


def as_it_stands(scenario: Scenario) -> dict[str, np.ndarray]:
    """One plan, the scenario's own, by the first of its fields: what stands for the plans where no field is listed."""
    name, value = next(iter(scenario.plan.told().items()))
    return {name: np.full(1, float(value))}


def violations(scenario: Scenario, point: dict[str, Array]) -> dict[str, Array]:
    """Rule -> above zero where a plan breaks it.

    Args:
        scenario: on whose devices.
        point: plan field -> its value; other fields keep the scenario's.
    """
    candidate = replace(scenario, {f"plan.{name}": value for name, value in point.items()})
    return candidate.workload.violations(candidate.layout)


_of_plans = interpreted(jax.vmap(violations, in_axes=(None, 0)), always=True)
_of_values = crossed(violations)


class Rules:
    """Legality test of plans of listed values on a scenario; traced once a structure, run by NumPy."""

    def __init__(self, listed: dict[str, np.ndarray], scenario: Scenario):
        self.listed, self.scenario = listed, scenario

    def __call__(self, columns: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, int]]:
        """(legal, plan by plan; rule -> plans that break it)."""
        count = len(next(iter(columns.values()))) if columns else 1
        columns = columns or as_it_stands(self.scenario)
        result = _of_plans(self.scenario, {name: np.asarray(column, dtype=float) for name, column in columns.items()})
        return _legal(result, (count,))

    @property
    def read(self) -> list[np.ndarray]:
        """Numbers of the scenario that decide which plans are legal: neither prices nor rates of the hardware."""
        return _of_values.read(self.scenario, self.listed)

    @functools.cached_property
    def tables(self) -> "LegalTables":
        """Values that occur in legal plans, and what the rules say of combinations of these.

        A rule is looked at once for each combination of the fields that it depends on, those with few combinations
        first: a value that one rule refuses everywhere is not looked at again.
        """
        names, values = list(self.listed), list(self.listed.values())
        possible_values = [np.arange(len(each)) for each in values]
        groups, rules_of_all = self._by_fields()
        left, tables = dict(groups), list[tuple[Fields, list[np.ndarray], np.ndarray]]()
        while left and all(map(len, possible_values)):
            fields = min(left, key=lambda each: math.prod(len(possible_values[field]) for field in each))
            rules = left.pop(fields)
            some = {name: each[places] for name, each, places in zip(names, values, possible_values, strict=True)}
            result = self._of_fields(some, fields, rules, [rules_of_all.index(rule) for rule in rules])
            legal = _legal(result, tuple(len(possible_values[field]) for field in fields))[0]
            tables.append((fields, [possible_values[field] for field in fields], legal))
            possible_values, tables = _pruned(possible_values, tables)
        if left:
            return LegalTables([each[:0] for each in possible_values], [])
        return LegalTables(possible_values, [(fields, legal) for fields, _, legal in tables])

    def of_all(self, most: int) -> tuple[np.ndarray, dict[str, int]]:
        """(numbers of the legal combinations of the listed values, rule -> combinations that break it if none is).

        The last field changes fastest where combinations are numbered. Fields are joined rule by rule, so that time
        and memory follow the legal combinations, not all of them.

        Raises:
            TooManyPlans: more than so many combinations keep the rules.
        """
        sizes, tables = [len(values) for values in self.listed.values()], self.tables
        numbers = _joined(tables, sizes, most)
        return numbers, {} if len(numbers) else self.refused

    @property
    def refused(self) -> dict[str, int]:
        """Rule -> combinations of the listed values that break it."""
        sizes, refused = [len(values) for values in self.listed.values()], dict[str, int]()
        groups, names = self._by_fields()
        for fields, rules in groups.items():
            result = self._of_fields(self.listed, fields, rules, [names.index(rule) for rule in rules])
            shape = tuple(sizes[field] for field in fields)
            share = math.prod(sizes) // math.prod(shape)
            refused |= {rule: count * share for rule, count in _legal(result, shape)[1].items()}
        return {rule: refused[rule] for rule in names}

    def _by_fields(self) -> tuple[dict[Fields, list[str]], list[str]]:
        """(places of the fields that rules depend on -> these rules, all rules in their order).

        Shapes of what two values of each field give show it.
        """
        few = {name: np.resize(values, 2) for name, values in self.listed.items()}
        groups: dict[Fields, list[str]] = {}
        results = _of_values(self.scenario, few)
        for rule, result in results.items():
            lengths = np.shape(result) or (1,) * len(few)
            groups.setdefault(tuple(index for index, length in enumerate(lengths) if length > 1), []).append(rule)
        return groups, list(results)

    def _of_fields(
        self, listed: Mapping[str, np.ndarray], fields: Fields, rules: Sequence[str], value_counts: Sequence[int]
    ) -> dict[str, np.ndarray]:
        """By how much these rules, at these places, are broken: an axis for each field, others have any value."""
        names = list(listed)
        values = {name: np.asarray(each[: None if index in fields else 1], dtype=float)
                  for index, (name, each) in enumerate(listed.items())}  # fmt: skip
        shape, parts = tuple(len(values[names[field]]) for field in fields), list[dict[str, np.ndarray]]()
        first = names[fields[0]] if fields else ""
        step = max(PART * shape[0] // math.prod(shape), 1) if fields else 1
        for start in range(0, shape[0] if fields else 1, step):
            some = values | ({first: values[first][start : start + step]} if fields else {})
            result = _of_values(self.scenario, some, value_counts)
            size = tuple(len(some[names[field]]) for field in fields)
            full_shape = _spread(size, fields, len(names))
            parts.append({rule: np.broadcast_to(np.asarray(result[rule]), full_shape).reshape(size) for rule in rules})
        return {rule: np.concatenate([part[rule] for part in parts]) if fields else parts[0][rule] for rule in rules}


def _spread(size: tuple[int, ...], fields: Fields, count: int) -> tuple[int, ...]:
    """Lengths of all axes: those of these fields, 1 of the others."""
    lengths = dict(zip(fields, size, strict=True))
    return tuple(lengths.get(index, 1) for index in range(count))


def _pruned(
    possible_values: list[np.ndarray], tables: list[tuple[Fields, list[np.ndarray], np.ndarray]]
) -> tuple[list[np.ndarray], list[tuple[Fields, list[np.ndarray], np.ndarray]]]:
    """Values that each table has a legal combination with, and the tables of these alone."""
    while True:
        before = [len(each) for each in possible_values]
        for number, (fields, places, legal) in enumerate(tables):
            stays = [np.isin(has, possible_values[field]) for field, has in zip(fields, places, strict=True)]
            if not all(each.all() for each in stays):
                legal = legal[np.ix_(*stays)]
                places = [has[each] for has, each in zip(places, stays, strict=True)]
                tables[number] = fields, places, legal
            for axis, field in enumerate(fields):
                others = tuple(each for each in range(legal.ndim) if each != axis)
                possible_values[field] = np.intersect1d(possible_values[field], places[axis][legal.any(axis=others)])
            if not fields and not legal.all():
                possible_values = [each[:0] for each in possible_values]
        if [len(each) for each in possible_values] == before:
            return possible_values, tables


class LegalTables(NamedTuple):
    """Values that occur in legal plans, as far as single rules tell, and the rules over them.

    possible_values: of each field, places of its values; rules: (fields, whether values of these keep a rule together).
    """

    possible_values: list[np.ndarray]
    rules: list[tuple[Fields, np.ndarray]]

    def completions(self, order: Sequence[int]) -> "list[list[tuple[Fields, np.ndarray]]]":
        """For each number of fields that are set, in this order, factors whose product counts the legal plans left.

        Fields are summed out from the last: so no combination of all of them is written down.

        Raises:
            TooManyPlans: a factor would be too large, or a count no whole number of 64 bits.
        """
        if math.prod(float(len(each)) for each in self.possible_values) > MOST_COUNTED:
            raise TooManyPlans
        factors = [(fields, legal.astype(np.int64)) for fields, legal in self.rules]
        result = [factors]
        for field in reversed(order):
            mine = [each for each in factors if field in each[0]]
            factors = [each for each in factors if field not in each[0]]
            fields = tuple(sorted({field}.union(*(each[0] for each in mine))))
            if math.prod(len(self.possible_values[each]) for each in fields) > MOST_SUMMED:
                raise TooManyPlans
            product = np.ones([len(self.possible_values[each]) for each in fields], dtype=np.int64)
            for has, table in mine:
                product = product * table.reshape([table.shape[has.index(f)] if f in has else 1 for f in fields])
            summed = product.sum(axis=fields.index(field))
            factors = [*factors, (tuple(each for each in fields if each != field), summed)]
            result.append(factors)
        return result[::-1]

    def order(self, first: Sequence[int] = ()) -> list[int]:
        """All fields, these first, the others so that summing them out from the last makes small tables."""
        sizes, left = [len(each) for each in self.possible_values], [set(fields) for fields, _ in self.rules]
        result = list[int]()
        while len(result) + len(first) < len(sizes):
            joined = {
                field: {field}.union(*(each for each in left if field in each))
                for field in range(len(sizes)) if field not in result and field not in first
            }  # fmt: skip
            field = min(joined, key=lambda each: math.prod(sizes[other] for other in joined[each]))
            left = [each for each in left if field not in each] + [joined[field] - {field}]
            result.append(field)
        return [*first, *result[::-1]]

    @property
    def total(self) -> int:
        """Legal plans, exactly.

        Raises:
            TooManyPlans: too many to be counted.
        """
        if not all(map(len, self.possible_values)):
            return 0
        return math.prod(int(table) for _, table in self.completions(self.order())[0])

    def possible(self, field: int) -> np.ndarray:
        """Places of the values of a field that some legal plan has.

        Raises:
            TooManyPlans: too many to be counted.
        """
        if not all(map(len, self.possible_values)):
            return self.possible_values[field][:0]
        there = np.ones(len(self.possible_values[field]), dtype=bool)
        for _, table in self.completions(self.order([field]))[1]:
            there &= table > 0
        return self.possible_values[field][there]


def _joined(tables: LegalTables, sizes: Sequence[int], most: int) -> np.ndarray:
    """Numbers of the combinations that every table allows: fields are joined in an order that keeps them few."""
    all_sizes, sizes, parts = sizes, [len(each) for each in tables.possible_values], tables.rules
    if not all(sizes):
        return np.zeros(0, dtype=np.int64)
    places: dict[int, np.ndarray] = {}
    count, left = 1, list(parts)

    def join(field: int) -> None:
        nonlocal count
        if count * sizes[field] > JOINED * most:
            raise TooManyPlans
        for other, column in places.items():
            places[other] = np.repeat(column, sizes[field])
        places[field] = np.tile(np.arange(sizes[field], dtype=np.int32), count)
        count *= sizes[field]

    def keep() -> None:
        nonlocal count
        for entry in [each for each in left if set(each[0]) <= set(places)]:
            left.remove(entry)
            fields, legal = entry
            there = legal[tuple(places[field] for field in fields)] if fields else np.broadcast_to(legal, (count,))
            for field, column in places.items():
                places[field] = column[there]
            count = int(np.count_nonzero(there))

    while left:
        fields, _ = min(left, key=lambda each: math.prod(sizes[field] for field in each[0] if field not in places))
        for field in sorted(set(fields) - set(places), key=lambda field: sizes[field]):
            join(field)
            keep()
        keep()
    for field in range(len(sizes)):
        if field not in places:
            join(field)
    if count > most:
        raise TooManyPlans
    numbers = np.zeros(count, dtype=np.int64)
    for field, size in enumerate(all_sizes):
        numbers = numbers * size + tables.possible_values[field][places[field]]
    return np.sort(numbers)


def _legal(results: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[np.ndarray, dict[str, int]]:
    """(whether no rule is broken, rule -> plans that break it)."""
    legal, refused = np.ones(shape, dtype=bool), dict[str, int]()
    for rule, value in results.items():
        broken = ~(np.asarray(value) <= 0)  # NaN is no plan that can run
        legal &= ~broken
        refused[rule] = int(np.broadcast_to(broken, shape).sum())
    return legal, refused
