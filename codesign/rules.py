"""Which plans are legal: no rule of the workload is broken on the scenario's devices, and no choice without effect."""

import jax
import numpy as np
from jaxtyping import Array

from .fields import replace
from .interpreting import interpreted
from .scenario import Scenario

__all__ = ["Rules"]

PART = 1 << 17  # combinations of plan values looked at at once


def as_it_stands(scenario: Scenario) -> dict[str, np.ndarray]:
    """One plan, the scenario's own, by the first of its fields: what stands for the plans where no field is listed."""
    name, value = next(iter(scenario.plan.told().items()))
    return {name: np.full(1, float(value))}


class Rules:
    """Which plans of listed values are legal on a scenario; traced once, run by NumPy."""

    def __init__(self, listed: dict[str, np.ndarray], scenario: Scenario):
        self.listed, self.scenario = listed, scenario

        def one(point: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
            candidate = replace(scenario, {f"plan.{name}": value for name, value in point.items()})
            layout = candidate.layout
            without = candidate.plan.without_effect(layout) | candidate.workload.without_effect(layout)
            return candidate.workload.violations(layout), without

        self._one = interpreted(jax.vmap(one), always=True)

    def __call__(self, columns: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, int]]:
        """(legal and not pointless, plan by plan; rule -> plans that break it)."""
        count = len(next(iter(columns.values()))) if columns else 1
        columns = columns or as_it_stands(self.scenario)
        violations, without = self._one({name: np.asarray(column, dtype=float) for name, column in columns.items()})
        broken = {rule: np.broadcast_to(np.asarray(value) > 0, (count,)) for rule, value in violations.items()}
        legal = ~np.any(list(broken.values()), axis=0) if broken else np.ones(count, dtype=bool)
        for name, repeated in without.items():
            if name in self.listed:
                legal &= ~(np.asarray(repeated, dtype=bool) & (columns[name] > self.listed[name].min()))
        return legal, {rule: int(value.sum()) for rule, value in broken.items()}
