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

import jax.numpy as jnp
from jaxtyping import Array

from ...core.errors import ConfigError
from ...core.jax_typed import asarray
from ...core.smooth import at_least, at_most
from ..hardware.memory_tiers import NearFirst, TieredMemory
from ..scenario import Scenario
from ..workloads import Layout
from ..workloads.continuous import AbstractContinuousServing
from ..workloads.prefixes import PrefixHits
from .footprint import memory_by_class
from .prefix_room import with_prefix_hits

__all__ = ["cache_on_tiers", "placed", "with_cache_placed"]

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
