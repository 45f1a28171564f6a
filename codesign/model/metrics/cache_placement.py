"""Share of a served model's cache in the pool behind an accelerator's own memory.

    by the memory        `placement.kv_cache`: shares of its tiers
    by the plan          `plan.pool_kv_cache`: that share in the pool, the rest near
    by the room          `NearFirst`: the pool takes what does not fit near, s = max(0, 1 - (usable - others) / cache)

Beginnings of prompts that are found (`workload.cached_ratio`) are kept `workload.distinct_prefixes` times, not once a
request, where that is known. Where they lie in a pool (`placement.shared_prefixes`), decodes attend them there and a
prompt brings what it finds once, beside the layers of the step in which it begins; what it computes is written through.

A share that follows from room is a number of the plan where no capacity is searched: times are log-convex as with a
share that is given. Where one is, 1 - room / cache is none of the functions that `curvature` proves; a search says so.

Assumes: room as with the batch full; answers, hundreds of times shorter a step than prompts, are written through in no
time.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ...core.errors import ConfigError
from ...core.jax_typed import asarray
from ...core.smooth import at_least, at_most, maximum
from ...jaxprs.evaluator import interpreted
from ..hardware.memory import NearFirst, TieredMemory
from ..hardware.memory_pool import SharedPool
from ..networks.fabrics import Group
from ..scenario import Scenario
from ..workloads import Layout
from ..workloads.continuous import AbstractContinuousServing, ContinuousServing
from ..workloads.goodput import GoodputServing, ServingAtRate
from ..workloads.prefixes import PrefixCaching, PrefixHits
from .footprint import cache_room, memory_by_class, per_tier

__all__ = [
    "OWN", "PRICED", "NumbersOfHits", "cache_on_tiers", "has_prefix_cache", "hits_of", "placed",
    "with_cache_placed",
]  # fmt: skip


# Room for prefixes that a design leaves in its memories, and what prefix caches find there.
#
#     hbm      what weights, activations and running sequences leave of the first memory, their prompts counted as room:
#              they are found too                                                           one cache an attention group
#     pool     the share `pool_ratio` of what is left of the other tiers of `TieredMemory` one cache of all who share it
#     host     the share `host_ratio` of what is left of the host's memory, over its link   one cache with hbm
#     store    `store_bytes`, over the outermost network                                    one cache of all replicas
#
# A block goes from a tier into the next when it is the longest unused, so that caches of one group are one of their
# rooms together; what replicas share has copies of what they have themselves. With h the share found in so much room,
# tier after tier finds the largest h up to it less that of the tier before.
# What prompts compute is written through to every tier that has room, the other way of the links that bring.
#
# The share is no log-convex function of capacities (`workloads.prefix_reuse`). Where no capacity and no size of the
# store is searched, it is a number of the plan, and times are log-convex as with a share that is given. Where one is,
# the rules of `curvature` do not see log-convexity, and a search proves nothing.
#
# Assumes: room as with the batch full and nothing found; what replicas of one pool bring at a time is bounded by its
# ports, of the store by the network of each device.


HBM, POOL, HOST, STORE = "hbm", "pool", "host", "store"
PRICED = (ContinuousServing, ServingAtRate, GoodputServing)
OWN = (HBM, HOST)
"""Tiers of one cache, whatever memory an accelerator has."""


@dataclasses.dataclass(frozen=True)
class _Tier:
    """Tokens of one cache, over how many caches requests are spread, seconds and joules of a device for a token."""

    name: str
    tokens: Array
    caches: Array
    token_s: Array
    token_j: Array
    joins: bool  # the other tiers of a group, as one cache


def with_prefix_hits(scenario: Scenario) -> Scenario:
    """The scenario with what its prefix caches find in place of how they are described; others as they are.

    Raises:
        ConfigError: prompts that have a pool of their own, runs and bounds whose room depends on a schedule.
    """
    work = scenario.workload
    if not isinstance(work, AbstractContinuousServing) or not isinstance(work.prefix_cache, PrefixCaching):
        return scenario
    if not isinstance(work, PRICED):
        raise ConfigError(
            f"workload.prefix_cache: {type(work).__name__} is not priced with one; choose workload=continuous, at_rate"
            " or goodput, or give workload.cached_ratio"
        )
    caching = work.prefix_cache
    bare = dataclasses.replace(work, prefix_cache=None)
    tiers = _tiers(dataclasses.replace(scenario, workload=bare), bare, caching)
    return dataclasses.replace(scenario, workload=dataclasses.replace(work, prefix_cache=_found(tiers, bare, caching)))


def has_prefix_cache(scenario: Scenario) -> bool:
    """True if hits of this design follow from the room of its caches."""
    work = scenario.workload
    return isinstance(work, AbstractContinuousServing) and work.prefix_cache is not None


class NumbersOfHits(NamedTuple):
    """`PrefixHits` of one design as numbers."""

    share: float
    fetch_s: float
    tiers: dict[str, float]
    room_tokens: dict[str, float]


def hits_of(scenario: Scenario) -> NumbersOfHits:
    """Hits of the prefix caches of one design, as numbers.

    Raises:
        ConfigError: a design without.
    """
    result = _traced_hits(scenario)
    tiers, rooms = ({name: float(each) for name, each in one.items()} for one in (result.tiers, result.room_tokens))
    return NumbersOfHits(float(result.share), float(result.fetch_s), tiers, rooms)


@interpreted
def _traced_hits(scenario: Scenario) -> PrefixHits:
    work = with_prefix_hits(scenario).workload
    hits = work.prefix_hits() if isinstance(work, AbstractContinuousServing) else None
    if hits is None:
        raise ConfigError(f"{type(work).__name__} has no workload.prefix_cache")
    return hits


def _found(tiers: list[_Tier], work: AbstractContinuousServing, caching: PrefixCaching) -> PrefixHits:
    prompt, answer = work.prompt_tokens(), work.output_tokens
    reached, in_tier, seconds, joules = (asarray(0.0) for _ in range(4))
    shares: dict[str, Array] = {}
    for tier in tiers:
        in_tier = in_tier + tier.tokens if tier.joins else in_tier
        result = caching.reuse.found(in_tier if tier.joins else tier.tokens, tier.caches, prompt, answer)
        share = jnp.maximum(reached, result)
        shares[tier.name] = share - reached
        seconds = seconds + shares[tier.name] * prompt * tier.token_s
        joules = joules + shares[tier.name] * prompt * tier.token_j
        reached = share
    cv, keys = caching.reuse.computed(reached, tiers[0].caches, prompt, work.input_cv)
    write_s, write_j = (
        sum((jnp.where(tier.tokens > 0, getattr(tier, name), 0.0) for tier in tiers), asarray(0.0))
        for name in ("token_s", "token_j")
    )
    rooms = {tier.name: tier.tokens for tier in tiers}
    return PrefixHits(reached, cv, keys, seconds, joules, shares, rooms, write_s, write_j)


def _tiers(scenario: Scenario, work: AbstractContinuousServing, caching: PrefixCaching) -> list[_Tier]:
    """Nearest first."""
    cluster, layout = scenario.cluster, work.laid_out(scenario.layout)
    plan, used = layout.plan, memory_by_class(scenario, layout)
    memory, host = cluster.accelerator.hbm, cluster.host
    token, batch = work.kv_bytes_per_token(layout), work.rhythm(layout).decodes * plan.pp
    answers = batch * 0.5 * (work.output_tokens * (1 + work.output_cv**2) + work.block_tokens)
    caches = layout.dp * plan.attention_dp
    group = plan.tp / plan.attention_dp * plan.cp * plan.pp  # devices of a cache
    near, near_ratio, others = cache_room(scenario, layout, used), work.kept_near(layout), list[_Tier]()
    if isinstance(memory, TieredMemory):
        stored = {name.split("/")[1]: nbytes for name, nbytes in used.items() if name.startswith("hbm/")}
        held, near_ratio = memory.stored(stored), memory.shares("kv_cache").get(memory.near, asarray(0.0))
        near = memory.tiers[memory.near].usable_bytes() - held[memory.near] + near_ratio * stored["kv_cache"]
        for name, tier in memory.tiers.items():
            if name != memory.near:
                shared = isinstance(tier, SharedPool)
                together = at_most(at_least(tier.sharers / group, 1.0), caches) if shared else asarray(1.0)
                left = at_least(tier.usable_bytes() - held[name], 0.0)
                others.append(_Tier(
                    POOL if len(memory.tiers) == 2 else name, together * caching.pool_ratio * left / token,
                    caches / together, token / tier.bandwidth(), token * tier.energy(), joins=not shared,
                ))  # fmt: skip
    free = 0.0 * token
    tiers = [_Tier(HBM, at_least(near / token - near_ratio * answers, 0.0), caches, free, free, joins=True), *others]
    spare = at_least(host.memory.usable_bytes() - per_tier(used)["ddr"], 0.0)
    tiers.append(_Tier(
        HOST, caching.host_ratio * spare / token, caches, token * host.link.beta_s_per_byte,
        token * (host.link.energy_j_per_byte + host.memory.energy()), joins=True,
    ))  # fmt: skip
    spread = token * group
    link = cluster.network[cluster.levels[-1]].fabric.link(Group(asarray(2.0)))
    limited = caching.store_bytes_per_s > 0
    alone = jnp.where(limited, 1 / jnp.where(limited, caching.store_bytes_per_s, 1.0), 0.0) * spread * caches
    tiers.append(_Tier(
        STORE, caching.store_bytes / spread, 1.0 + 0.0 * caches, maximum(token * link.beta_s_per_byte, alone),
        token * link.energy_j_per_byte, joins=False,
    ))  # fmt: skip
    return tiers


CACHE, PREFIXES, ATTENDED = "kv_cache", "shared_prefixes", "attended"
ROUNDING = 1e-9  # of the room near, so that a tier filled to its brim is not over it by rounding


def placed(scenario: Scenario) -> Scenario:
    """The scenario with its cache on memory tiers, and what its prefix caches find there."""
    return with_prefix_hits(with_cache_placed(scenario))


def with_cache_placed(scenario: Scenario) -> Scenario:
    """The scenario with numbers in place of rules on where its cache lies; others as they are.

    Raises:
        ConfigError: a plan that puts a share of the cache in a pool that the accelerator has not.
    """
    memory, chosen = scenario.cluster.accelerator.hbm, getattr(scenario.plan, "pool_kv_cache", None)
    if not isinstance(memory, TieredMemory):
        if chosen is not None:
            raise ConfigError(
                "plan.pool_kv_cache places a share of the cache in a pool behind the accelerator's own memory, and"
                f" {scenario.cluster.accelerator.name} has none here: choose memory=hbm_and_photonic_pool, or leave it"
                " out"
            )
        return scenario
    if chosen is not None:
        memory = memory.placing(CACHE, {memory.near: 1 - chosen, memory.pool(): chosen})
    elif isinstance(rule := memory.placement.get(CACHE), NearFirst):
        memory = memory.placing(CACHE, _near_first(scenario, memory, rule))
    work = scenario.workload
    if (
        isinstance(work, AbstractContinuousServing)
        and work.distinct_prefixes is not None
        and PREFIXES in memory.placement
    ):
        layout = work.laid_out(scenario.layout)
        memory, work = _attended_there(memory, work), _with_beginnings(memory, work, layout)
    if memory is scenario.cluster.accelerator.hbm:
        return scenario
    accelerator = dataclasses.replace(scenario.cluster.accelerator, hbm=memory)
    cluster = dataclasses.replace(scenario.cluster, accelerator=accelerator)
    return dataclasses.replace(scenario, cluster=cluster, workload=work)


def cache_on_tiers(scenario: Scenario) -> Array | None:
    """Bytes of cache for which a memory of several tiers has room, placed as it is; None of a memory of one kind."""
    memory = scenario.cluster.accelerator.hbm
    if not isinstance(memory, TieredMemory):
        return None
    used = memory_by_class(scenario)
    stored = {name.split("/")[1]: nbytes for name, nbytes in used.items() if name.startswith("hbm/")}
    stored.pop(CACHE, None)
    held = memory.stored(stored)
    room = {name: at_least(tier.usable_bytes() - held[name], 0.0) for name, tier in memory.tiers.items()}
    rule = memory.placement.get(CACHE)
    if getattr(scenario.plan, "pool_kv_cache", None) is None and isinstance(rule, NearFirst):
        return room[memory.near] + room[rule.then]
    shares = with_cache_placed(scenario).cluster.accelerator.hbm
    assert isinstance(shares, TieredMemory)
    parts = [room[name] / at_least(share, ROUNDING) for name, share in shares.shares(CACHE).items()]
    return functools.reduce(jnp.minimum, parts)


def _near_first(scenario: Scenario, memory: TieredMemory, rule: NearFirst) -> dict[str, Array]:
    used = memory_by_class(scenario)
    stored = {name.split("/")[1]: nbytes for name, nbytes in used.items() if name.startswith("hbm/")}
    if CACHE not in stored:  # of a job that keeps none
        return {memory.near: asarray(1.0)}
    cache = stored.pop(CACHE)
    others = memory.stored(stored)[memory.near]
    room = (memory.tiers[memory.near].usable_bytes() - others) * (1 - ROUNDING)
    far = at_most(at_least(1 - room / at_least(cache, 1.0), 0.0), 1.0)
    return {memory.near: 1 - far, rule.then: far}


def _attended_there(memory: TieredMemory, work: AbstractContinuousServing) -> TieredMemory:
    """The memory with shares of what a decode attends: its own part where caches lie, beginnings where they do."""
    begun = at_most(work.found_ratio() * work.prompt_tokens() / work.context(), 1.0)
    shares = {name: (1 - begun) * share for name, share in memory.shares(CACHE).items()}
    for name, share in memory.shares(PREFIXES).items():
        shares[name] = shares.get(name, 0.0) + begun * share
    return memory.placing(ATTENDED, shares)


def _with_beginnings(
    memory: TieredMemory, work: AbstractContinuousServing, layout: Layout
) -> AbstractContinuousServing:
    """The workload whose prompts bring what they find from where it lies, and write through what they compute."""
    if work.prefix_cache is not None:
        return work
    token, share = work.kv_bytes_per_token(layout), work.found_ratio()
    away = [(name, part) for name, part in memory.shares(PREFIXES).items() if name != memory.near]
    token_s = sum((part * token / memory.tiers[name].bandwidth() for name, part in away), 0.0 * token)
    token_j = sum((part * token * memory.tiers[name].energy() for name, part in away), 0.0 * token)
    result, prompt = share * work.prompt_tokens(), work.prompt_tokens()
    hits = PrefixHits(
        share, work.computed_cv(), work.attended() / prompt, result * token_s, result * token_j,
        {name: part * share for name, part in away}, {}, token_s, token_j,
    )  # fmt: skip
    return dataclasses.replace(work, prefix_cache=hits, cached_ratio=0.0 * work.cached_ratio)
