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
from ..simulation.fleet import simulate_fleet
from ..simulation.serving import Engine, arrivals
from .fleet_classes import FleetClass
from .simulate import host_seconds

__all__ = ["ChosenPool", "ReplayedPool", "kept_load", "replay"]

ROUTER = "round_robin"
TRUSTED_LOAD = 0.8
WARM = 0.2  # of the requests, which are not measured
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
    priced, share = _Priced.of(pool), 1.0
    for _ in range(MOST_LOWER):
        share *= LOWER
        ttft, tpot = priced.served(pool.request_class, share * pool.rate, requests, seed)
        if min(_share(ttft, pool.request_class.ttft_s), _share(tpot, pool.request_class.tpot_s)) >= (
            pool.request_class.attainment
        ):
            return share
    return 0.0


def replay(pools: Sequence[ChosenPool], requests: int, seed: int) -> list[ReplayedPool]:
    """Serve so many requests on each pool, dealt to its engines by turns; more where answers are long."""
    return [_replayed(pool, requests, seed) for pool in pools]


def _share(times: np.ndarray, limit: float) -> float:
    return float((times <= limit).mean())


class _Priced(NamedTuple):
    """A pool whatever its requests/s: an engine, how many there are, the host's part of a first token.

    closed: the closed form's numbers at the pool's own requests/s.
    """

    loaded: Scenario
    closed: dict[str, float]
    host_s: float
    engine: Engine
    engines: int

    @classmethod
    def of(cls, pool: ChosenPool) -> "_Priced":
        """Price a pool."""
        path = "cluster.device_count" if pool.scenario.plan.device_count is None else "plan.device_count"
        whole = replace(pool.scenario, {path: float(pool.scenario.layout.devices) * pool.replicas})
        work = whole.workload
        assert isinstance(work, AbstractGoodputServing)
        loaded = dataclasses.replace(whole, workload=at_rate(work, pool.rate))
        closed = numbers_of(loaded)
        engine, engines = engine_of(loaded)
        engine = dataclasses.replace(engine, sequences=batch_of(loaded))
        return cls(loaded, closed, host_seconds(loaded, closed), engine, round(engines))

    def requests(self, rate: float, least: int) -> int:
        """Requests of a replay: `least`, or more where many are under way at once."""
        return max(least, round(UNDER_WAY * rate * self.closed["e2e_s"]))

    def served(self, one: FleetClass, rate: float, least: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Times to a first token and between tokens of the requests after the warm-up, at so many requests/s."""
        rng, count = np.random.default_rng(seed), self.requests(rate, least)
        asked = drawn_requests(self.loaded, count, rng)
        if one.cv == 1.0:
            came = arrivals(rng, rate, 1.0, count)
        else:  # the class's variation is that of the gaps at an engine, as in the closed form
            each = -(-count // self.engines)
            parts = [arrivals(rng, rate / self.engines, one.cv, each) for _ in range(self.engines)]
            came = np.sort(np.concatenate(parts))[:count]
        asked = dataclasses.replace(asked, arrivals=came * ((count - 1) / (rate * np.ptp(came))))
        engine = dataclasses.replace(self.engine, seed=seed)
        result = simulate_fleet(engine, asked, ROUTER, replicas=self.engines, seed=seed)
        own = slice(int(WARM * count), None)
        first, last, came = result.first[own], result.last[own], result.came[own] - self.host_s
        return first - came, (last - first) / np.maximum(asked.outputs[own] - 1, 1)


def _replayed(pool: ChosenPool, least: int, seed: int) -> ReplayedPool:
    one, priced = pool.request_class, _Priced.of(pool)
    ttft, tpot = priced.served(one, pool.rate, least, seed)
    closed, point = priced.closed, f"p{100 * one.attainment:.0f}"
    return ReplayedPool(
        one, pool.kind, priced.requests(pool.rate, least), closed[f"ttft_{point}_s"],
        float(np.percentile(ttft, 100 * one.attainment)), closed[f"tpot_{point}_s"],
        float(np.percentile(tpot, 100 * one.attainment)),
        float(((ttft <= one.ttft_s) & (tpot <= one.tpot_s)).mean()), _share(ttft, one.ttft_s), _share(tpot, one.tpot_s),
        max(closed["prefill_utilisation"], closed["slot_utilisation"]),
    )  # fmt: skip
