"""What engines under load must keep, said in the words of the configuration: rates and agreements."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ..fields import as_leaf
from ..objective import feasible
from ..results import numbers_of
from ..scenario import Scenario
from ..workloads.goodput import FOREVER_S, HELPS, Agreement, below_the_floor, over_the_rate
from ..workloads.under_load import ENGINE, AbstractOpenServing, GoodputServing, ServingAtRate

__all__ = ["check_load"]

QUIET = 1e-6  # requests/s at which nobody meets anybody


def check_load(scenario: Scenario, numbers: Mapping[str, float]) -> None:
    """Refuse a rate that the engines of a design do not sustain, and an agreement that they keep at no rate.

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
    if isinstance(work, ServingAtRate):
        raise ConfigError(_too_many(scenario, work, over))
    assert isinstance(work, GoodputServing)
    raise ConfigError(_too_tight(scenario, work))


def _too_many(scenario: Scenario, work: ServingAtRate, over: Mapping[str, float]) -> str:
    """A rate beside what is sustained."""
    forever = Agreement(as_leaf(FOREVER_S), as_leaf(FOREVER_S))
    kept = numbers_of(dataclasses.replace(scenario, workload=_as(work, GoodputServing, agreement=forever)))
    rate, plan = float(work.arrivals_per_s), scenario.plan
    if "prompts" in over:
        why = f"prompts would fill {over['prompts']:.4g} of every step of plan.chunk = {float(plan.chunk):g} tokens"
        helps = "a larger plan.chunk"
    else:
        why = f"decodes would take {over['decodes']:.4g} of the slots of plan.micro_batch = {float(plan.micro_batch):g}"
        helps = "a larger plan.micro_batch"
    return over_the_rate(f"workload.arrivals_per_s = {rate:.4g}", rate, kept["requests_per_s"], why, helps)


def _too_tight(scenario: Scenario, work: GoodputServing) -> str:
    """An agreement beside what a request sees that is alone."""
    quiet = _as(work, ServingAtRate, arrivals_per_s=as_leaf(QUIET))
    alone, agreed = numbers_of(dataclasses.replace(scenario, workload=quiet)), work.agreement
    floors = {name: alone[f"{name.removesuffix('_s')}_p{100 * agreed.share:.0f}_s"] for name in HELPS}
    worst = max(HELPS, key=lambda name: floors[name] / float(getattr(agreed, name)))
    limit = float(getattr(agreed, worst))
    return below_the_floor(f"workload.agreement.{worst}", limit, floors[worst], agreed.share)


def _as(work: AbstractOpenServing, kind: type[AbstractOpenServing], **own: object) -> AbstractOpenServing:
    """The same requests and engine, asked otherwise."""
    common = {field.name: getattr(work, field.name) for field in dataclasses.fields(AbstractOpenServing)}
    make: Any = kind
    return make(**common, **own)
