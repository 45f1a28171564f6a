"""Replica sizing: the fewest engines of one pool, or of each of two, that meet an SLO at a rate.

With two pools the times to a first token follow from the prefill engines alone and those between tokens from the
decoding ones (`workloads.pools_apart`: a queue, the way of a cache that is the same for any number, a decode engine's
share of the rate), and neither grows with more of its pool. So the fewest of each, found by halving, are the fewest
accelerators of both together.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ..config.load_checks import at_rate
from ..core.errors import ConfigError
from ..core.fields import replace
from ..model.scenario import Scenario
from ..model.workloads.daily_load import replicas_by_hour
from ..model.workloads.under_load import ENGINE, AbstractGoodputServing
from ..search.results import numbers_of

__all__ = ["QUIET", "Size", "replica_devices", "served", "sized", "sizes"]

QUIET = 1e-6  # requests/s of an hour in which nobody asks
MOST = 2**14  # replicas of a pool


class Size(NamedTuple):
    """Accelerators that decode (or do all), and those for prompts."""

    decode: float
    prefill: float = 0.0

    @property
    def accelerators(self) -> float:
        """Accelerators of both pools together."""
        return self.decode + self.prefill


def replica_devices(scenario: Scenario) -> Size:
    """Accelerators that serve on their own: of replicas that share experts all; and of an prefill engine."""
    plan = scenario.plan
    engine = float(plan.prefill_tp * plan.prefill_pp * plan.prefill_ep) if float(plan.prefill_devices) > 0 else 0.0
    return Size(float(plan.tp * plan.cp * plan.pp * plan.ep), engine)


def sized(scenario: Scenario, size: Size) -> Scenario:
    """Copy of the design on so many accelerators."""
    path = "cluster.device_count" if scenario.plan.device_count is None else "plan.device_count"
    return replace(
        scenario, {path: jnp.asarray(float(size.decode)), "plan.prefill_devices": jnp.asarray(float(size.prefill))}
    )


def served(scenario: Scenario, rate: float, size: Size) -> dict[str, float]:
    """Metrics at a rate on so many accelerators, of a design under an SLO."""
    work = scenario.workload
    assert isinstance(work, AbstractGoodputServing)
    return numbers_of(sized(dataclasses.replace(scenario, workload=at_rate(work, max(rate, QUIET))), size))


def sizes(scenario: Scenario, rates: np.ndarray) -> list[Size]:
    """The fewest accelerators that meet the SLO, hour by hour.

    Raises:
        ConfigError: an SLO that no number of replicas keeps.
    """
    one = replica_devices(scenario)
    if not one.prefill:
        good_for = float(numbers_of(sized(scenario, one))["requests_per_s"])
        return [Size(count * one.decode) for count in replicas_by_hour(rates, good_for).replicas]
    known = {rate: _of_two(scenario, rate, one) for rate in np.unique(rates).tolist()}
    return [known[rate] for rate in rates.tolist()]


def _of_two(scenario: Scenario, rate: float, one: Size) -> Size:
    """The fewest of both pools at a rate: decodes first, since who finds no place there has a late first token."""
    work = scenario.workload
    assert isinstance(work, AbstractGoodputServing)
    agreed, share = work.slo, f"p{100 * work.slo.attainment:.0f}"

    def kept(size: Size, name: str, part: str, limit: float) -> bool:
        result = served(scenario, rate, size)
        return result[f"usage.{ENGINE}.{part}"] < 1 and result[f"{name}_{share}_s"] <= limit

    decode = one.decode * _fewest(
        lambda count: kept(Size(count * one.decode, one.prefill), "tpot", "decodes", float(agreed.tpot_s)),
        f"workload.slo.tpot_s = {float(agreed.tpot_s):g}",
    )
    prefill = one.prefill * _fewest(
        lambda count: kept(Size(decode, count * one.prefill), "ttft", "prompts", float(agreed.ttft_s)),
        f"workload.slo.ttft_s = {float(agreed.ttft_s):g}",
    )
    return Size(decode, prefill)


def _fewest(keeps: Callable[[int], bool], limit: str) -> int:
    """The least number that keeps a limit, which every larger one keeps too."""
    high = 1
    while not keeps(high):
        high *= 2
        if high > MOST:
            raise ConfigError(f"{limit} s is kept by no {MOST:,} replicas of the pool: allow more or take another plan")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high
