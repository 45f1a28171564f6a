"""Measured runs as scenarios: the overrides of a row, as on the command line, and what `evaluate` says of them.

    codesign evaluate accelerator=h100_sxm model=llama31_70b workload=at_rate framework=vllm plan.tp=4 ...

Rows that differ in numbers alone are one composed scenario with other numbers in their places, priced together.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ...config import scenario_from_config
from ...core import fields
from ...model.metrics import Metrics, cache_room, cache_tokens, evaluate
from ...model.scenario import Scenario
from ...model.workloads.continuous import AbstractContinuousServing
from .batches import anonymous, batches, grouped, vectorised

__all__ = ["RUNS", "PricedRun", "command", "predicted"]

RUNS = "runs"
"""A metric beside those of `evaluate`: 1 where the design fits and keeps the rules of its workload, else 0."""
ROUNDING = 1e-9
OF_MEMORY = {"peak_memory_bytes", "fits", "cache_room_bytes", "cache_tokens"}


class PricedRun(NamedTuple):
    """Choices of a row: options and words, which make a structure, and numbers by their dotted path."""

    chosen: tuple[str, ...]
    numbers: dict[str, float]

    def overrides(self) -> list[str]:
        """Overrides of the run as given on the command line."""
        return [*self.chosen, *(f"{path}={value:.17g}" for path, value in self.numbers.items())]


def command(run: PricedRun) -> str:
    """The command that prints what is predicted of a run."""
    return " ".join(["codesign evaluate", *run.overrides()])


def predicted(runs: Sequence[PricedRun], metrics: Sequence[str], *, named: bool = False) -> dict[str, np.ndarray]:
    """Metric -> what the model says of each run, in SI units; NaN where its workload has no such metric.

    Args:
        runs: what is priced.
        metrics: of `evaluate`; times and rates alone unless `named`.
        named: keep the names of devices and models: joules and dollars are then known, and each is a program.

    Raises:
        ConfigError: a run that cannot be composed.
    """
    composed: dict[tuple[str, ...], Scenario] = {}
    scenarios = list[Scenario]()
    for run in runs:
        if run.chosen not in composed:
            composed[run.chosen] = scenario_from_config(*run.overrides())
        scenario = fields.replace(composed[run.chosen], dict(run.numbers))
        scenarios.append(scenario if named else _unnamed(scenario))
    result = grouped(batches(scenarios), _told(tuple(metrics)))
    return dict(zip(metrics, result, strict=True))


def _unnamed(one: Scenario) -> Scenario:
    """Copy with the same numbers under no names, so that rows of all devices and models are few programs."""
    work: Any = one.workload
    cluster, precision = anonymous(one.cluster, work.precision)
    return replace(
        one, cluster=cluster, workload=replace(work, precision=precision, model=replace(work.model, name=""))
    )


def memory_of(one: Scenario, found: Metrics) -> dict[str, Any]:
    """Metrics of memory: room for a cache and peak of a device, tokens of an engine, 1 where everything fits."""
    near = [nbytes for name, nbytes in found.memory_bytes.items() if name.startswith("hbm/")]
    shares = [share for name, share in found.usage.items() if name in ("hbm", "hbm.engine", "ddr")]
    fits = jnp.stack([jnp.asarray(share <= 1 + ROUNDING) for share in shares]).all()
    told = {"peak_memory_bytes": sum(near[1:], near[0]), "fits": jnp.where(fits, 1.0, 0.0)}
    if "hbm/kv_cache" in found.memory_bytes:
        layout = one.workload.laid_out(one.layout)
        room = cache_room(one, layout, found.memory_bytes)
        told["cache_room_bytes"] = room
        if isinstance(one.workload, AbstractContinuousServing):
            told["cache_tokens"] = cache_tokens(one, layout, room)
    return told


def _told(metrics: tuple[str, ...]) -> Callable[[Scenario], tuple[np.ndarray, ...]]:
    """Vectorised function from stacked scenarios to these metrics."""
    if metrics not in _programs:

        def told(one: Scenario) -> tuple[Any, ...]:
            result = evaluate(one)
            most = [*result.usage.values(), *(1 + value for value in result.violations.values())]
            runs = jnp.stack([jnp.asarray(value <= 1 + ROUNDING) for value in most]).all()
            result.extra[RUNS] = jnp.where(runs, 1.0, 0.0)
            if OF_MEMORY & set(metrics):
                result.extra.update(memory_of(one, result))
            return tuple(result.extra.get(name, getattr(result, name, jnp.asarray(jnp.nan))) for name in metrics)

        _programs[metrics] = vectorised(told)
    return _programs[metrics]


_programs: dict[tuple[str, ...], Callable[[Scenario], tuple[np.ndarray, ...]]] = {}
