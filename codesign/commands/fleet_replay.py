"""Replay of a chosen fleet: each pool's part of its class's requests, served one by one, beside the closed form."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..config.load_checks import at_rate
from ..core.fields import replace
from ..model.metrics.simulated import batch_of, drawn_requests, engine_of
from ..model.scenario import Scenario
from ..model.workloads.under_load import AbstractGoodputServing
from ..search.results import numbers_of
from ..simulation.fleet import Agreed, simulate_fleet
from ..simulation.serving import arrivals
from .fleet_classes import FleetClass
from .simulate import host_seconds

__all__ = ["ChosenPool", "ReplayedPool", "kept_load", "replay"]

ROUTER = "round_robin"
TRUSTED_LOAD = 0.8
UNDER_WAY = 10.0  # times as many requests as are under way at once, at least: a fleet that starts empty fills up first


class ChosenPool(NamedTuple):
    """A pool of the fleet: its class, kind, one replica as a scenario, replicas and requests/s of all of them."""

    request_class: FleetClass
    kind: str
    scenario: Scenario
    replicas: int
    rate: float


@dataclasses.dataclass(frozen=True)
class ReplayedPool:
    """Times at the percentile of the class's limits, closed form and simulated, and the share that kept both limits."""

    request_class: FleetClass
    kind: str
    requests: int
    ttft_closed_s: float
    ttft_simulated_s: float
    tpot_closed_s: float
    tpot_simulated_s: float
    attainment: float
    ttft_kept: float
    tpot_kept: float
    load: float

    @property
    def meets(self) -> bool:
        """True if each limit is kept by the agreed share of the requests."""
        return min(self.ttft_kept, self.tpot_kept) >= self.request_class.attainment

    def told(self) -> dict[str, Any]:
        """Numbers by name."""
        own = {name: getattr(self, name) for name in REPLAYED}
        doubt = ""
        if self.load > TRUSTED_LOAD:
            doubt = (
                f"{self.request_class.name} on {self.kind}: engines are {self.load:.0%} busy, where queues are longer"
                " than closed forms are held against simulations for: believe the simulation"
            )
        return {
            "class": self.request_class.name, "kind": self.kind, **own, "agreed": self.request_class.attainment,
            "meets": self.meets, "doubt": doubt,
        }  # fmt: skip


REPLAYED = (
    "requests", "ttft_closed_s", "ttft_simulated_s", "tpot_closed_s", "tpot_simulated_s", "attainment", "ttft_kept",
    "tpot_kept", "load",
)  # fmt: skip


LOWER, MOST_LOWER = 0.93, 10  # of a rate that does not keep the limits in a replay, and how often it is lowered


def kept_load(pool: ChosenPool, requests: int, seed: int) -> float:
    """Share of a pool's requests/s, below 1, at which a replay keeps the limits; 0: at none that is tried."""
    share = 1.0
    for _ in range(MOST_LOWER):
        share *= LOWER
        if _replayed(pool._replace(rate=share * pool.rate), requests, seed).meets:
            return share
    return 0.0


def replay(pools: Sequence[ChosenPool], requests: int, seed: int) -> list[ReplayedPool]:
    """Serve so many requests on each pool, dealt to its engines by turns; more where answers are long."""
    return [_replayed(pool, requests, seed + place) for place, pool in enumerate(pools)]


def _replayed(pool: ChosenPool, count: int, seed: int) -> ReplayedPool:
    one, replicas = pool.request_class, pool.replicas
    devices = float(pool.scenario.layout.devices) * replicas
    path = "cluster.device_count" if pool.scenario.plan.device_count is None else "plan.device_count"
    whole = replace(pool.scenario, {path: devices})
    work = whole.workload
    assert isinstance(work, AbstractGoodputServing)
    loaded = dataclasses.replace(whole, workload=at_rate(work, pool.rate))
    closed = numbers_of(loaded)
    host = host_seconds(loaded, closed)
    count = max(count, round(UNDER_WAY * pool.rate * closed["e2e_s"]))
    engine, engines = engine_of(loaded)
    engine = dataclasses.replace(engine, seed=seed, sequences=batch_of(loaded))
    rng = np.random.default_rng(seed)
    asked = drawn_requests(loaded, count, rng)
    came = np.sort(np.concatenate([
        arrivals(rng, pool.rate / engines, one.cv, -(-count // round(engines))) for _ in range(round(engines))
    ]))[:count] if one.cv != 1.0 else arrivals(rng, pool.rate, 1.0, count)  # fmt: skip
    asked = dataclasses.replace(asked, arrivals=came * ((count - 1) / (pool.rate * np.ptp(came))))
    found = simulate_fleet(engine, asked, ROUTER, replicas=round(engines), seed=seed)
    found = dataclasses.replace(found, came=found.came - host)
    chosen = np.arange(int(0.2 * count), count)
    steps = np.maximum(asked.outputs[chosen] - 1, 1)
    ttft, tpot = (found.first - found.came)[chosen], (found.last - found.first)[chosen] / steps
    share, point = 100 * one.attainment, f"p{100 * one.attainment:.0f}"
    return ReplayedPool(
        one, pool.kind, count, closed[f"ttft_{point}_s"], float(np.percentile(ttft, share)),
        closed[f"tpot_{point}_s"], float(np.percentile(tpot, share)),
        found.attainment(Agreed(one.ttft_s, one.tpot_s)), float((ttft <= one.ttft_s).mean()),
        float((tpot <= one.tpot_s).mean()),
        max(closed["prefill_utilisation"], closed["slot_utilisation"]),
    )  # fmt: skip
