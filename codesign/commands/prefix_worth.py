"""Worth of room for prefixes: what a terabyte more of each tier would bring, at the margin, beside its price.

A terabyte over all devices raises the requests a second that the cluster serves by some share; that share of the
cluster's price is what it is worth, whatever the memory itself costs. Where the rate is given it shortens first tokens.

Assumes: slopes at the design's own room, by differences of `STEP`; a terabyte beyond the working set is worth nothing.
"""

from typing import Any, NamedTuple

from jaxtyping import Array

from ..core.fields import as_leaf, get_path, replace
from ..model.hardware.memory_pool import SharedPool
from ..model.hardware.memory_tiers import TieredMemory
from ..model.metrics.prefix_room import hits_of
from ..model.scenario import Scenario
from ..report.labels import money
from ..search.results import numbers_of

__all__ = ["PrefixWorth", "prefix_text", "prefix_worth"]

STEP = 1e-3  # of a capacity
LEAST_S = 1e-6  # of a first token a terabyte, below which nothing is said
TB = 1e12
NAMES = {"hbm": "HBM", "host": "host memory", "pool": "pool", "store": "store"}


class PrefixWorth(NamedTuple):
    """A terabyte more of a tier: share of prompts more that is found, of requests more, seconds less, dollars."""

    found: float
    requests: float
    ttft_s: float
    usd: float
    price_usd: float


def prefix_worth(scenario: Scenario, numbers: dict[str, float]) -> dict[str, PrefixWorth]:
    """Worth by tier.

    Args:
        scenario: a design with `workload.prefix_cache`.
        numbers: its metrics.
    """
    result: dict[str, PrefixWorth] = {}
    for tier, (path, each, price) in _capacities(scenario).items():
        own = float(get_path(scenario, path))
        more = STEP * (own or each)
        there = numbers_of(replace(scenario, {path: as_leaf(own + more)}))
        by = each / more  # of a terabyte

        def change(name: str, there: dict[str, float] = there, by: float = by) -> float:
            return (there[name] - numbers[name]) * by

        share = change("requests_per_s") / numbers["requests_per_s"]
        result[tier] = PrefixWorth(
            change("prefix_hit_rate"), share, -change("ttft_s"), share * numbers["capex_usd"], price
        )
    return result


def _capacities(scenario: Scenario) -> dict[str, tuple[str, float, float]]:
    """Tier -> path of its capacity, what of it a terabyte over all devices is, dollars of a terabyte."""
    devices = float(scenario.layout.devices)
    memory, host, prefix = scenario.cluster.accelerator.hbm, scenario.cluster.host.memory, "cluster.accelerator.hbm"
    result: dict[str, tuple[str, float, float]] = {}

    def add(tier: str, path: str, part: Any, sharers: float = 1.0) -> None:
        price = getattr(part, "usd_per_byte", None)
        if getattr(part, "capacity_bytes", None) is not None:
            result[tier] = path, TB / devices * sharers, 0.0 if price is None else TB * float(price)

    if isinstance(memory, TieredMemory):
        for name, tier in memory.tiers.items():
            known = "hbm" if name == memory.near else "pool" if len(memory.tiers) == 2 else name
            if isinstance(tier, SharedPool):
                add(known, f"{prefix}.tiers.{name}.tier.capacity_bytes", tier.tier, float(tier.sharers))
            else:
                add(known, f"{prefix}.tiers.{name}.capacity_bytes", tier)
    else:
        add("hbm", f"{prefix}.capacity_bytes", memory)
    add("host", "cluster.host.memory.capacity_bytes", host)
    work: Any = scenario.workload
    if float(work.prefix_cache.store_bytes) > 0:
        result["store"] = "workload.prefix_cache.store_bytes", TB, 0.0
    return result


def prefix_text(scenario: Scenario, worth: dict[str, PrefixWorth]) -> list[str]:
    """Lines: what is found where in how much room, and what a terabyte more would be worth."""
    hits = hits_of(scenario)
    parts = [
        f"{share:.1%} in {NAMES.get(tier, tier)} ({_tokens(hits.room_tokens[tier])} tokens)"
        for tier, share in hits.tiers.items()
        if hits.room_tokens[tier] > 0
    ]
    lines = [f"prefix caches find {hits.share:.1%} of prompt tokens: {', '.join(parts) or 'no room is left'}"]
    for tier, one in worth.items():
        told = []
        if one.requests > 0:
            told.append(f"{one.requests:+.2g} of the requests/s, worth {money(one.usd)}")
        if one.ttft_s > LEAST_S:
            told.append(f"TTFT {1e3 * one.ttft_s:.3g} ms shorter")
        what = " and ".join(told) or "worth nothing: all that comes back is found, or finds no time to save"
        price = f" (its price: {money(one.price_usd)})" if one.price_usd else ""
        lines.append(f"a TB more of {NAMES.get(tier, tier)} over all devices{price}, at the margin: {what}")
    return lines


def _tokens(count: Array | float) -> str:
    value = float(count)
    return f"{value / 1e6:.3g} M" if value >= 1e6 else f"{value / 1e3:.3g} k"
