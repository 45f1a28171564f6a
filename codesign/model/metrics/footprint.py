"""Memory footprint by tier and class of data."""

import math
from collections.abc import Mapping
from statistics import NormalDist

import jax.numpy as jnp
from jaxtyping import Array

from ...core.errors import ConfigError
from ...core.jax_typed import asarray
from ...core.smooth import floor, used_share
from ..networks.fabrics import Group
from ..scenario import Cluster, Scenario
from ..workloads import AbstractServing, Layout
from ..workloads.continuous import AbstractContinuousServing
from ..workloads.engine_memory import CacheBudget, EngineMemory

__all__ = [
    "PREDICTED", "SPREAD", "cache_budget", "cache_room", "cache_tokens", "chance_that_fits", "engine_limits",
    "factor", "interval_bytes", "memory_by_class", "memory_limits", "memory_moments", "per_tier",
    "predicted_bytes", "stretch",
]  # fmt: skip


# Chance that a design fits its memory: what is counted exactly, and what is off by a factor.
#
# Weights, gradients, optimizer states and caches are counted; activations, working sets and captured graphs are
# predicted, with a factor exp(s z) between measured and predicted, z standard normal. With E bytes counted, A
# predicted and C usable
#
#     P(fits) = Phi(log((C - E) / A) / s)        fits with chance p:  E + A exp(s Phi^-1(p)) <= C
#
# so that a chance is one more constraint of the same form: the used share at a quantile of the error.
#
# Assumes: s = `SPREAD`; one factor for all that is predicted on a device. Source: [assumption]; no table of measured
# memory is fitted on, activations are meant to be right to 20 % at worst.


SPREAD = 0.15
"""Standard deviation of log(measured / predicted) of bytes that are not counted."""
PREDICTED = ("activations", "working", "graphs", "kept")
"""Classes of data whose bytes are predicted; all others are counted."""
NORMAL = NormalDist()


def predicted_bytes(used: Mapping[str, Array], tier: str) -> tuple[Array | float, Array | float]:
    """Bytes of a tier that are counted, and that are predicted.

    Args:
        used: `tier/class` -> bytes of a device.
        tier: whose.
    """
    classes = {name.partition("/")[2]: nbytes for name, nbytes in used.items() if name.startswith(f"{tier}/")}
    counted = [nbytes for name, nbytes in classes.items() if name not in PREDICTED]
    guessed = [nbytes for name, nbytes in classes.items() if name in PREDICTED]
    return sum(counted[1:], counted[0]) if counted else 0.0, sum(guessed[1:], guessed[0]) if guessed else 0.0


def factor(chance: float) -> float:
    """By how much predicted bytes are larger than predicted with this chance at most."""
    return math.exp(SPREAD * NORMAL.inv_cdf(chance))


def stretch(used: Mapping[str, Array], tier: str, chance: float) -> Array | float:
    """All bytes of a tier at the quantile of the error over all that are predicted."""
    counted, guessed = predicted_bytes(used, tier)
    return (counted + factor(chance) * guessed) / (counted + guessed)


def chance_that_fits(counted: float, predicted: float, usable: float) -> float:
    """Chance that all of it fits."""
    if predicted <= 0 or counted >= usable:
        return 1.0 if counted <= usable and predicted <= 0 else 0.0
    return NORMAL.cdf(math.log((usable - counted) / predicted) / SPREAD)


def interval_bytes(predicted: float, share: float = 0.9) -> tuple[float, float]:
    """Ends of the interval of predicted bytes that holds this share of what is measured."""
    return predicted * factor((1 - share) / 2), predicted * factor((1 + share) / 2)


def memory_by_class(scenario: Scenario, layout: Layout | None = None) -> dict[str, Array]:
    """Bytes per device as `tier/class`: an offloaded share x leaves (1 - x) of the class, or its buffer, behind.

    Near memory holds (1 - x) all + x buffer, far memory x all; each of the stage that holds most there. Of what near
    memory keeps once for several replicas (`AbstractMemory.kept_ratio`), each device has its part.
    """
    layout = scenario.workload.laid_out(scenario.layout) if layout is None else layout
    used: dict[str, Array] = {}
    most = scenario.workload.afar_bytes(layout)
    for name, (total, buffer) in scenario.workload.footprint(layout).items():
        used[f"hbm/{name}"] = _near(scenario, layout, name, total, buffer)
        afar = layout.plan.offloaded(name)
        if afar is not None:
            used[f"ddr/{name}"] = afar * most.get(name, total)
    return used


def cache_budget(scenario: Scenario, layout: Layout, used: dict[str, Array] | None = None) -> CacheBudget | None:
    """Cache budget of an engine's share of the first memory; None without an engine or a single capacity.

    Args:
        scenario: what is served on what.
        layout: laid out.
        used: see `memory_by_class`.
    """
    work, capacity = scenario.workload, getattr(scenario.cluster.accelerator.hbm, "capacity_bytes", None)
    if not isinstance(work, AbstractServing) or capacity is None:
        return None
    used = memory_by_class(scenario, layout) if used is None else used
    near = {name.split("/")[1]: nbytes for name, nbytes in used.items() if name.startswith("hbm/")}
    return work.engine_memory.budget(capacity, layout.plan, near)


def cache_room(scenario: Scenario, layout: Layout, used: dict[str, Array] | None = None) -> Array:
    """Bytes of the first memory that a cache may fill: what the rest leaves of the device, and of the engine's share.

    Args:
        scenario: what serves.
        layout: laid out.
        used: see `memory_by_class`.
    """
    used = memory_by_class(scenario, layout) if used is None else used
    beside = [nbytes for name, nbytes in used.items() if name.startswith("hbm/") and name != "hbm/kv_cache"]
    free = scenario.cluster.accelerator.hbm.usable_bytes() - sum(beside[1:], beside[0])
    if not getattr(scenario.workload, "engine_memory", EngineMemory()).utilisation:
        return free
    result = cache_budget(scenario, layout, used)
    return free if result is None else jnp.minimum(free, result.room_bytes)


def cache_tokens(scenario: Scenario, layout: Layout, room: Array) -> Array:
    """Tokens that an attention group has room for, in whole blocks.

    Raises:
        ConfigError: a workload without blocks.
    """
    work = scenario.workload
    if not isinstance(work, AbstractContinuousServing):
        raise ConfigError(f"{type(work).__name__} keeps no cache in blocks")
    return floor(room / (work.kv_bytes_per_token(layout) * work.block_tokens)) * work.block_tokens


def memory_moments(scenario: Scenario, layout: Layout) -> dict[str, dict[str, Array]]:
    """Moment -> class -> bytes of a device's first memory, what is offloaded aside."""
    moments = scenario.workload.memory_moments(layout)
    return {
        moment: {name: _near(scenario, layout, name, *each) for name, each in parts.items()}
        for moment, parts in moments.items()
    }


def _near(scenario: Scenario, layout: Layout, name: str, total: Array, buffer: Array) -> Array:
    """Bytes of a class in the first memory."""
    afar = layout.plan.offloaded(name)
    share = 0.0 if afar is None else afar
    near = scenario.cluster.accelerator.hbm.kept_ratio(name, layout.devices / layout.dp, layout.dp)
    return (1 - share) * near * total + share * buffer


def engine_limits(scenario: Scenario, layout: Layout, used: dict[str, Array]) -> dict[str, Array]:
    """Used share of what an engine takes of the first memory; nothing where the design chooses its share."""
    work = scenario.workload
    if not isinstance(work, AbstractServing) or not work.engine_memory.utilisation:
        return {}
    result = cache_budget(scenario, layout, used)
    return {} if result is None else {"engine": used_share(result.used_bytes, result.budget_bytes)}


def per_tier(used: dict[str, Array]) -> dict[str, Array]:
    """Summed over classes."""
    tiers: dict[str, Array] = {}
    for name, nbytes in used.items():
        tier = name.split("/")[0]
        tiers[tier] = tiers.get(tier, 0.0) + nbytes
    tiers.setdefault("ddr", 0.0 * tiers["hbm"])  # of a family that leaves everything near
    return tiers


def memory_limits(cluster: Cluster, used: dict[str, Array]) -> dict[str, Array]:
    """Used share of what bounds the accelerator's memory beyond its capacity: tiers, placement, the die's edge."""
    accelerator = cluster.accelerator
    near = {name.split("/")[1]: nbytes for name, nbytes in used.items() if name.startswith("hbm/")}
    limits = dict(accelerator.hbm.limits(near))
    if accelerator.shoreline is not None:
        link = cluster.network[cluster.levels[0]].fabric.link(Group(asarray(2.0)))
        rates = accelerator.hbm.edge_bytes_per_s() | {"scale_up": 1 / link.beta_s_per_byte}
        limits["shoreline"] = accelerator.shoreline.used_share(rates, accelerator.dies())
    return limits
