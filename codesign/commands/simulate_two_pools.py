"""`codesign simulate --replicas P,D`: prefill and decode replicas under one stream, beside their closed form."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.errors import ConfigError
from ..model.metrics.simulated import batch_of, engine_of
from ..model.scenario import Scenario
from ..model.workloads.goodput import AbstractOpenServing
from ..simulation.fleet import ONE_QUEUE, TwoPoolsServed, simulate_two_pools
from ..simulation.serving import Requests
from ..simulation.serving.serve import Report
from .simulate import FULLEST, Pools, pools_of
from .simulate_forms import form_numbers

__all__ = ["TwoPoolFleet", "replicas_of", "routers_of", "two_pool_fleet"]

NEARLY = 0.99  # of what a full batch sustains, where no rate is said


def replicas_of(text: str | None, most: int, *, two_pools: bool) -> tuple[int, ...]:
    """Replicas of `8`, or of prefill and decode pool of `4,8`; none where nothing is said.

    Raises:
        ConfigError: no whole numbers, too many, or not as many as there are pools.
    """
    if text is None:
        return ()
    try:
        result = tuple(int(one) for one in text.split(","))
    except ValueError:
        raise ConfigError(f"simulate: --replicas {text!r} is no whole number, nor two as in 4,8") from None
    if not all(1 <= one <= most for one in result):
        raise ConfigError(f"simulate: --replicas {text} is outside [1, {most}]")
    if len(result) != 1 + two_pools:
        expected = (
            "prefill and decode replicas, as in 4,8" if two_pools else "one number of replicas: prompts have no pool"
        )
        raise ConfigError(f"simulate: --replicas {text}: write {expected}")
    return result


def routers_of(text: str) -> tuple[str, str]:
    """Routers before prefill and decode pool of `one_queue,round_robin`; one name is of both.

    Raises:
        ConfigError: more than two names, or one queue before decodes.
    """
    first, comma, second = text.partition(",")
    if "," in second:
        raise ConfigError(f"--router {text}: write one router, or those of prefill and decode pool")
    result = first, second if comma else first
    if result[1] == ONE_QUEUE:
        raise ConfigError(f"--router {text}: {ONE_QUEUE} is of prompts; write {ONE_QUEUE},round_robin")
    return result


@dataclasses.dataclass(frozen=True)
class TwoPoolFleet:
    """Engines of both pools, replicas of each, accelerators of one, and requests a second where none are said."""

    pools: Pools
    replicas: tuple[int, int]
    devices: tuple[float, float]
    rate: float

    def with_store(
        self, store: Callable[..., Any], size: str, scenario: Scenario, requests: Requests
    ) -> "TwoPoolFleet":
        """With a prefix cache of so many bytes in the host memory of each prefill replica."""
        pool = scenario.cluster.prefill
        assert pool is not None
        prefill = store(scenario, self.pools.prefill, requests, size, pool.cluster, scenario.layout.prefill)
        return dataclasses.replace(self, pools=dataclasses.replace(self.pools, prefill=prefill))

    def simulated(self, requests: Requests, routers: tuple[str, str], seed: int, report: Report) -> TwoPoolsServed:
        """Requests one by one."""
        pools = self.pools
        return simulate_two_pools(
            pools.prefill, pools.decode, requests, lambda prompts: pools.token_s * prompts, replicas=self.replicas,
            routers=routers, drain_s=pools.drain_s, seed=seed, report=report,
        )  # fmt: skip

    def closed_form(self, requests: Requests) -> tuple[dict[str, float], float]:
        """Times by name, and how busy the pool is that is busier."""
        result = dataclasses.replace(self.pools, counts=self.replicas).closed_form(requests)
        return form_numbers(result), max(float(result.load), float(result.fill))


def two_pool_fleet(scenario: Scenario, closed: dict[str, float], counts: Sequence[int], seed: int) -> TwoPoolFleet:
    """A fleet of a design's engines, as many as it has itself where nothing is said."""
    engine, groups = engine_of(scenario)
    decode = dataclasses.replace(engine, seed=seed, sequences=batch_of(scenario))
    pools = pools_of(scenario, decode, groups)
    designed = pools.counts
    replicas = (counts[0], counts[1]) if len(counts) == 2 else designed
    scale = min(replicas[0] / designed[0], replicas[1] / designed[1])
    full = 1.0 if isinstance(scenario.workload, AbstractOpenServing) else NEARLY * FULLEST
    layout = scenario.layout
    devices = float(layout.plan.prefill_devices) / designed[0], float(layout.devices) / designed[1]
    return TwoPoolFleet(pools, replicas, devices, scale * full * closed["requests_per_s"])


def untrusted_pools(load: float, routers: tuple[str, str], trusted: float, requests: Requests) -> list[str]:
    """Lines that say where the closed form of two pools is not to be trusted."""
    assert requests.arrivals is not None
    result: list[str] = []
    names = " and ".join(dict.fromkeys(routers))
    if routers != (ONE_QUEUE, "round_robin"):
        result.append(
            f"the closed form has one queue of prompts and deals decodes by turns: of {names} trust the"
            " simulation for times to a first token"
        )
    gaps = np.diff(requests.arrivals)
    if load > trusted:
        result.append(
            f"closed form's 99th percentile of first tokens: not checked for two pools at a load of {load:.2g} and gaps"
            f" that vary by {float(gaps.std() / gaps.mean()):.2g}: believe the simulation"
        )
    return result
