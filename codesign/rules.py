"""Which plans are legal: no rule of the workload is broken on the scenario's devices, and no choice without effect."""

import jax
import numpy as np
from jaxtyping import Array

from .fields import replace
from .interpreting import interpreted
from .scenario import Scenario

PREFILL = ("prefill_tp", "prefill_pp", "prefill_ep", "prefill_load")  # of a pool that may be left out
PART = 1 << 17  # combinations of plan values looked at at once


class Rules:
    """Which plans of listed values are legal on a scenario; traced once, run by NumPy."""

    def __init__(self, listed: dict[str, np.ndarray], scenario: Scenario):
        self.listed, self.scenario = listed, scenario

        def one(point: dict[str, Array]) -> tuple[dict[str, Array], Array]:
            candidate = replace(scenario, {f"plan.{name}": value for name, value in point.items()})
            layout = candidate.layout
            return candidate.workload.violations(layout), layout.dp

        self._one = interpreted(jax.vmap(one), always=True)

    def __call__(self, columns: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, int]]:
        """(legal and not pointless, plan by plan; rule -> plans that break it)."""
        count = len(next(iter(columns.values()))) if columns else 1
        columns = columns or {"tp": np.full(count, float(self.scenario.plan.tp))}
        violations, dp = self._one({name: np.asarray(column, dtype=float) for name, column in columns.items()})
        broken = {rule: np.broadcast_to(np.asarray(value) > 0, (count,)) for rule, value in violations.items()}
        legal = ~np.any(list(broken.values()), axis=0) if broken else np.ones(count, dtype=bool)
        legal &= ~self._pointless(columns, np.broadcast_to(np.asarray(dp), (count,)))
        return legal, {rule: int(value.sum()) for rule, value in broken.items()}

    def _pointless(self, columns: dict[str, np.ndarray], dp: np.ndarray) -> np.ndarray:
        def column(name: str) -> np.ndarray:
            return columns.get(name, np.full_like(dp, float(getattr(self.scenario.plan, name))))

        listed, repeated = self.listed, np.zeros(len(dp), dtype=bool)
        if 0.0 in listed.get("sequence_parallel", ()):
            repeated |= (column("sequence_parallel") > 0) & (column("tp") <= 1)
        if 0.0 in listed.get("zero", ()):
            repeated |= (column("zero") > 0) & (dp * column("cp") <= 1)
        if 0.0 in listed.get("prefill_devices", ()):
            for name in (field for field in listed if field in PREFILL):
                repeated |= (column("prefill_devices") <= 0) & (column(name) > listed[name].min())
        return repeated
