"""Designs that serve continuous batches as engines that are simulated, and a benchmark's run on one."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...core.fields import replace
from ...core.jax_typed import asarray
from ...jaxprs.evaluator import interpreted
from ...simulation.serving import Engine, Requests, Served, arrivals, lengths, simulate_run
from ..scenario import Scenario
from ..workloads.continuous import AbstractContinuousServing, ContinuousServing
from ..workloads.kinds import Kinds, drawn_from
from ..workloads.lockstep import Lockstep
from ..workloads.prompt_pool import AbstractPromptPool
from .cache_placement import cache_on_tiers
from .evaluation import evaluate
from .footprint import cache_room
from .step_times import tabulated_steps

__all__ = ["HOST", "batch_of", "drawn_requests", "engine_of", "engines_of", "finite_run", "has_two_pools", "host_s"]

HOST = ("request_overhead_s", "prompt_token_s", "expert_overhead_s", "expert_launch_s")
"""Fields of a workload that a first token comes later by, for the host."""
UNBOUNDED = 10**9  # tokens of a step whose prompts alone are bounded


def has_two_pools(scenario: Scenario) -> bool:
    """True if prompts of this design have accelerators of their own."""
    return isinstance(scenario.workload, AbstractPromptPool) and float(scenario.plan.prefill_devices) > 0


def engine_of(scenario: Scenario) -> tuple[Engine, float]:
    """One attention group of one part of a pipeline as an engine, and how many of them there are."""
    work, layout = scenario.workload, scenario.layout
    assert isinstance(work, AbstractContinuousServing)
    plan, size = layout.plan, float(work.block_tokens)
    blocks = float(_room(scenario)) / (float(plan.pp) * size)
    chunk, ahead, stages = round(float(plan.token_budget)), work.async_scheduling, float(plan.pp)
    times: Any = tabulated_steps(scenario, prompts=not has_two_pools(scenario), host=not ahead)
    return Engine(
        times, budget=UNBOUNDED, chunk=chunk,
        blocks=max(math.floor(blocks), 1), block_tokens=round(size), prefix_cache=float(work.cached_ratio) > 0,
        async_scheduling=ahead, host_s=stages * float(work.step_overhead_s) if ahead else 0.0,
        host_sequence_s=stages * float(work.sequence_overhead_s) if ahead else 0.0,
        accepted=float(work.accepted_tokens), verified=round(float(work.verified_tokens)),
    ), engines_of(scenario)  # fmt: skip


@interpreted
def _room(scenario: Scenario) -> Any:
    """Tokens that the cache of one attention group has room for, near and in the second tier, idle ones aside."""
    work, layout = scenario.workload, scenario.layout
    assert isinstance(work, AbstractContinuousServing)
    free = cache_on_tiers(scenario)
    free = cache_room(scenario, layout) if free is None else free
    token = work.kv_bytes_per_token(layout)
    near, afar = free / (token * work.kept_near(layout)), scenario.plan.offload_kv_cache * token
    beyond = scenario.cluster.host.memory.usable_bytes() / jnp.where(afar > 0, afar, 1.0)
    awake = dataclasses.replace(work, idle_sessions=0.0 * work.idle_sessions)
    idle = work.held_tokens(layout) - awake.held_tokens(layout)
    return jnp.where(afar > 0, jnp.minimum(near, beyond), near) - idle


def engines_of(scenario: Scenario) -> float:
    """Engines of a design: attention groups of all replicas and stages."""
    layout = scenario.layout
    return float(layout.dp * layout.plan.attention_dp * layout.plan.pp)


def batch_of(scenario: Scenario) -> int:
    """Sequences that an engine has at most under way: those that it decodes by the plan, as `codesign export` says."""
    work = scenario.workload
    assert isinstance(work, AbstractContinuousServing)
    return max(round(float(work.rhythm(scenario.layout).decodes)), 1)


def host_s(scenario: Scenario) -> float:
    """Seconds that the host adds to a first token: the closed form's, for no simulation knows them."""
    bare = replace(scenario, {f"workload.{name}": asarray(0.0) for name in HOST})
    if isinstance(bare.workload, ContinuousServing):  # what is simulated knows who is in step
        served = Lockstep(client_overhead_s=bare.workload.clients.client_overhead_s)
        bare = dataclasses.replace(bare, workload=dataclasses.replace(bare.workload, clients=Lockstep()))
        scenario = replace(scenario, {"workload.clients": served})
    return float(_first_tokens(scenario) - _first_tokens(bare))


@interpreted
def _first_tokens(scenario: Scenario) -> Any:
    """Seconds to a first token."""
    return evaluate(scenario).extra["ttft_s"]


def drawn_requests(scenario: Scenario, count: int, rng: np.random.Generator) -> Requests:
    """Lengths and shared prefixes of so many requests of a design's workload, without arrivals."""
    work = scenario.workload
    assert isinstance(work, AbstractContinuousServing)
    prompts = _lengths(rng, work.input_lengths, float(work.prompt_tokens()), float(work.input_cv), count, 1)
    outputs = _lengths(rng, work.output_lengths, float(work.output_tokens), float(work.output_cv), count, 2)
    shared = round(float(work.cached_ratio * work.prompt_tokens()))
    prefixes = np.zeros(0, int)
    if shared:  # those who lost their cache share none
        some = work.retained_share < 1
        prefixes = np.where(rng.random(count) < float(work.retained_share), 0, -1) if some else np.zeros(count, int)
    return Requests(prompts, outputs, None, prefixes, shared)


def _lengths(rng: np.random.Generator, kinds: Kinds, mean: float, cv: float, count: int, least: int) -> np.ndarray:
    """Token counts of simulated requests: drawn from the trace that the design was found for, or lognormal."""
    return drawn_from(kinds, rng, mean, count, least) if kinds else lengths(rng, mean, cv, count, least=least)


def finite_run(
    scenario: Scenario, count: int, *, clients: float = math.inf, rate: float = 0.0, cv: float = 1.0, seed: int = 0
) -> Served:
    """A benchmark's run of so many requests on a design, from an idle engine to the last answer.

    Requests are dealt to the engines by turns; times are those of one of them, `rate` is that of all.

    Args:
        scenario: its workload serves continuous batches.
        count: requests in all.
        clients: of a closed loop, each with one request at a time.
        rate: requests a second of an open loop; infinite for all at once, 0 for a closed loop.
        cv: variation of the gaps between arrivals.
        seed: of lengths and arrivals.

    Raises:
        ConfigError: weights leave no room for a cache, or a request does not fit.
    """
    engine, group = engine_of(scenario)
    own = max(math.ceil(count / group), 1)
    engine = dataclasses.replace(engine, seed=seed, sequences=engine.sequences if rate == 0 else batch_of(scenario))
    rng = np.random.default_rng(seed)
    asked = drawn_requests(scenario, own, rng)
    if rate > 0:
        came = arrivals(rng, rate / group, cv, own) if math.isfinite(rate) else np.zeros(own)
        if own > 1 and math.isfinite(rate):  # by chance they come faster or slower than asked
            came = came * ((own - 1) / (rate / group * np.ptp(came)))
        asked = dataclasses.replace(asked, arrivals=came)
    open_at_once = own if not math.isfinite(clients) else max(math.ceil(clients / group), 1)
    result = simulate_run(engine, asked, None if rate > 0 else open_at_once)
    return dataclasses.replace(result.later(host_s(scenario)), rate=result.rate * group)
