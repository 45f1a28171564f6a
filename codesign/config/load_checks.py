"""Checks of arrival rates and SLOs, with messages that name configuration keys."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..core.errors import ConfigError
from ..core.fields import as_leaf
from ..model.scenario import Scenario
from ..model.workloads.goodput import FOREVER_S, HELPS, SLO, below_the_floor, over_the_rate
from ..model.workloads.pools_under_load import AbstractPoolsUnderLoad, DisaggregatedAtRate, DisaggregatedGoodput
from ..model.workloads.under_load import (
    ENGINE,
    AbstractGoodputServing,
    AbstractOpenServing,
    AbstractServingAtRate,
    GoodputServing,
    ServingAtRate,
)
from ..search.results import numbers_of
from ..study.objective import feasible

__all__ = ["check_load"]

QUIET = 1e-6  # requests/s at which nobody meets anybody


def check_load(scenario: Scenario, numbers: Mapping[str, float]) -> None:
    """Refuse a rate that the engines of a design do not sustain, and an SLO that they keep at no rate.

    Args:
        scenario: of any workload.
        numbers: its metrics by name.

    Raises:
        ConfigError: by how much, and what would help.
    """
    over = {
        name: numbers[f"usage.{ENGINE}.{name}"]
        for name in ("prompts", "decodes", "ttft", "tpot")
        if not feasible(numbers.get(f"usage.{ENGINE}.{name}", 0.0) - 1)
    }
    if not over:
        return
    work = scenario.workload
    if isinstance(work, AbstractServingAtRate):
        raise ConfigError(_too_many(scenario, work, over))
    assert isinstance(work, AbstractGoodputServing)
    raise ConfigError(_too_tight(scenario, work))


def _too_many(scenario: Scenario, work: AbstractServingAtRate, over: Mapping[str, float]) -> str:
    """A rate beside what is sustained."""
    forever = SLO(as_leaf(FOREVER_S), as_leaf(FOREVER_S))
    kept = numbers_of(dataclasses.replace(scenario, workload=keeping(work, forever)))
    rate, plan = float(work.arrivals_per_s), scenario.plan
    apart = work.two_pools and float(plan.prefill_devices) > 0
    if apart and max(over, key=lambda name: over[name]) == "prompts":
        why = f"since the prefill engines, or their links, would be {over['prompts']:.4g} times as busy as they can"
        helps = "a larger plan.prefill_devices or plan.prefill_token_budget"
    elif "prompts" in over and not apart:
        size = float(plan.token_budget)
        why = f"since prefill would fill {over['prompts']:.4g} of every step of plan.token_budget = {size:g} tokens"
        helps = "a larger plan.token_budget"
    else:
        why = f"decodes would take {over['decodes']:.4g} of the slots of plan.micro_batch = {float(plan.micro_batch):g}"
        helps = "a larger plan.micro_batch"
    return over_the_rate(f"workload.arrivals_per_s = {rate:.4g}", rate, kept["requests_per_s"], why, helps)


def _too_tight(scenario: Scenario, work: AbstractGoodputServing) -> str:
    """An SLO beside what a request sees that is alone."""
    quiet = at_rate(work, QUIET)
    alone, agreed = numbers_of(dataclasses.replace(scenario, workload=quiet)), work.slo
    floors = {name: alone[f"{name.removesuffix('_s')}_p{100 * agreed.attainment:.0f}_s"] for name in HELPS}
    worst = max(HELPS, key=lambda name: floors[name] / float(getattr(agreed, name)))
    limit = float(getattr(agreed, worst))
    return below_the_floor(f"workload.slo.{worst}", limit, floors[worst], agreed.attainment)


def keeping(work: AbstractOpenServing, slo: SLO) -> AbstractOpenServing:
    """Goodput workload of the same requests and engines: the largest rate that meets an SLO."""
    two = isinstance(work, AbstractPoolsUnderLoad)
    return (DisaggregatedGoodput if two else GoodputServing)(**_common(work), slo=slo)


def at_rate(work: AbstractOpenServing, rate: float) -> AbstractOpenServing:
    """Workload of the same requests and engines at a given arrival rate."""
    two = isinstance(work, AbstractPoolsUnderLoad)
    return (DisaggregatedAtRate if two else ServingAtRate)(**_common(work), arrivals_per_s=as_leaf(rate))


def _common(work: AbstractOpenServing) -> dict[str, Any]:
    return {field.name: getattr(work, field.name) for field in dataclasses.fields(AbstractOpenServing)}
