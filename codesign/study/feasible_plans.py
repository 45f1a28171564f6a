"""Which plans are legal: no rule of the workload is broken on the scenario's devices."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from ..core.fields import replace
from ..jaxprs.evaluator import crossed, interpreted
from ..model.scenario import Scenario

__all__ = ["Rules", "violations"]

PART = 1 << 20  # combinations of plan values looked at at once


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
    """Which plans of listed values are legal on a scenario; traced once a structure, run by NumPy."""

    def __init__(self, listed: dict[str, np.ndarray], scenario: Scenario):
        self.listed, self.scenario = listed, scenario

    def __call__(self, columns: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, int]]:
        """(legal, plan by plan; rule -> plans that break it)."""
        count = len(next(iter(columns.values()))) if columns else 1
        columns = columns or as_it_stands(self.scenario)
        found = _of_plans(self.scenario, {name: np.asarray(column, dtype=float) for name, column in columns.items()})
        return _legal(found, (count,))

    def of_all(self) -> tuple[np.ndarray, dict[str, int]]:
        """(legal, rule -> plans that break it) of all combinations of listed values, the last field changing fastest.

        A rule is looked at once for each combination of the fields that it depends on.
        """
        names, sizes = list(self.listed), [len(values) for values in self.listed.values()]
        split, parts, refused = 0, list[np.ndarray](), dict[str, int]()
        while math.prod(sizes[split:]) > PART and split < len(sizes) - 1:
            split += 1
        for first in itertools.product(*(self.listed[name] for name in names[:split])):
            values = {name: np.array([value]) for name, value in zip(names[:split], first, strict=True)}
            values |= {name: self.listed[name] for name in names[split:]}
            shape = tuple(len(column) for column in values.values())
            legal, broken = _legal(_of_values(self.scenario, values), shape)
            parts.append(legal.reshape(-1))
            refused = {rule: refused.get(rule, 0) + count for rule, count in broken.items()}
        return np.concatenate(parts), refused


def _legal(found: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[np.ndarray, dict[str, int]]:
    """(whether no rule is broken, rule -> plans that break it)."""
    legal, refused = np.ones(shape, dtype=bool), dict[str, int]()
    for rule, value in found.items():
        broken = ~(np.asarray(value) <= 0)  # NaN is no plan that can run
        legal &= ~broken
        refused[rule] = int(np.broadcast_to(broken, shape).sum())
    return legal, refused
