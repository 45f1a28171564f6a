"""Legality of plans: a legal plan breaks no rule of the workload on the scenario's devices."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from ..core.fields import replace
from ..jaxprs.evaluator import crossed, interpreted
from ..model.scenario import Scenario

__all__ = ["Rules", "violations"]

PART = 1 << 20  # combinations of plan values looked at at once
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

    def of_all(self, most: int) -> tuple[np.ndarray, dict[str, int]]:
        """(numbers of the legal combinations of the listed values, rule -> combinations that break it).

        The last field changes fastest where combinations are numbered. A rule is looked at once for each combination of
        the fields that it depends on, and fields are joined rule by rule, so that time and memory follow the legal
        combinations, not all of them.

        Raises:
            TooManyPlans: more than so many combinations keep the rules.
        """
        sizes = [len(values) for values in self.listed.values()]
        parts, refused, total = list[tuple[Fields, np.ndarray]](), dict[str, int](), math.prod(sizes)
        groups, names = self._by_fields()
        for fields, rules in groups.items():
            result = self._of_fields(fields, rules, [names.index(rule) for rule in rules])
            shape = tuple(sizes[field] for field in fields)
            legal, broken = _legal(result, shape)
            share = total // math.prod(shape)
            refused |= {rule: count * share for rule, count in broken.items()}
            parts.append((fields, legal))
        return _joined(parts, sizes, most), {rule: refused[rule] for rule in names}

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

    def _of_fields(self, fields: Fields, rules: Sequence[str], value_counts: Sequence[int]) -> dict[str, np.ndarray]:
        """By how much these rules, at these places, are broken: an axis for each field, others have any value."""
        names = list(self.listed)
        values = {name: np.asarray(each[: None if index in fields else 1], dtype=float)
                  for index, (name, each) in enumerate(self.listed.items())}  # fmt: skip
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


def _joined(parts: Sequence[tuple[Fields, np.ndarray]], sizes: Sequence[int], most: int) -> np.ndarray:
    """Numbers of the combinations that every table allows: fields are joined in an order that keeps them few."""
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
    for field, size in enumerate(sizes):
        numbers = numbers * size + places[field]
    return np.sort(numbers)


def _legal(results: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[np.ndarray, dict[str, int]]:
    """(whether no rule is broken, rule -> plans that break it)."""
    legal, refused = np.ones(shape, dtype=bool), dict[str, int]()
    for rule, value in results.items():
        broken = ~(np.asarray(value) <= 0)  # NaN is no plan that can run
        legal &= ~broken
        refused[rule] = int(np.broadcast_to(broken, shape).sum())
    return legal, refused
