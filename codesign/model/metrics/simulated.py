"""Designs that serve continuous batches as engines that are simulated, and a benchmark's run on one."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...core.errors import ConfigError
from ...core.fields import replace
from ...core.jax_typed import asarray
from ...core.smooth import at_least
from ...jaxprs.evaluator import interpreted
from ...simulation.serving import Engine, Requests, ServedTimes, TabulatedSteps, arrivals, lengths, simulate_run
from ..scenario import Scenario
from ..workloads.continuous import AbstractContinuousServing, ContinuousServing
from ..workloads.disaggregated import AbstractPromptPool
from ..workloads.kinds import Kinds, drawn_from
from ..workloads.mixed_step import MixedStep
from ..workloads.schedule import one_pass
from ..workloads.steady_state import Lockstep
from .cache_placement import cache_on_tiers, with_cache_placed
from .evaluation import evaluate
from .footprint import cache_room

__all__ = [
    "HOST", "batch_of", "drawn_requests", "engine_of", "engines_of", "finite_run", "has_two_pools", "host_s",
    "tabulated_steps",
]  # fmt: skip


# Seconds of an engine's steps on a design, over what they carry: what `simulation.serving` asks for.


LEVELS = 14  # numbers of decodes, and of prompt tokens, that are priced
NEAR = 8  # numbers of decodes on either side of the plan's that are priced one by one: tiles of kernels show there
LEAST = 32  # steps that are priced at once; more are in powers of two
MARGIN = 3.0  # a simulation may decode so many times the sequences of the plan


def step_s(
    scenario: Scenario,
    decodes: Array,
    context: Array,
    prompt_tokens: Array,
    keys: Array,
    shared: Array,
    *,
    mixed: bool,
    host: bool = True,
    alone: bool = False,
) -> Array:
    """One step of a pipeline's part, from the first stage to the last.

    Args:
        scenario: the design, its workload continuous batching.
        decodes: sequences of one attention group, each with `context` tokens.
        context: mean over the sequences.
        prompt_tokens: of the group; `shared` is the mean over all groups that step together.
        keys: mean over the prompt tokens.
        shared: see `prompt_tokens`.
        mixed: whether the step carries prompts at all.
        host: whether the engine's own time is part of it.
        alone: whether nothing is decoded in it (`decodes` is 0 then).
    """
    scenario = with_cache_placed(scenario)
    work, layout = scenario.workload, scenario.layout
    assert isinstance(work, AbstractContinuousServing)
    prompts = at_least(prompt_tokens / work.computed_tokens(), 1.0)
    step = MixedStep(
        work.model, work.precision, decodes, work.verified_tokens, context / layout.plan.cp,
        prompt_tokens / layout.plan.cp, prompts, keys + 0.5 * prompt_tokens / prompts, shared / layout.plan.cp,
        work.images_of(prompt_tokens / layout.plan.cp), work.drafted(),
    )  # fmt: skip
    first = shared / work.computed_tokens() if mixed else asarray(0.0)
    scored = layout.plan.attention_dp * (decodes * work.verified_tokens + first)
    ops = step.lower(layout, work.layers_per_stage(layout), scored, phase="mixed", mixed=mixed, decodes=not alone)
    ops.append(work.cache_in(layout, step, "mixed", prompts=mixed))
    costs = scenario.cluster.joining(layout.devices).price(ops, layout)
    done = one_pass(list(zip(ops, costs, strict=True)), "mixed", layout.plan, work.kernel_slowdown, work.launch_s)
    seconds = work.step_s(done, layout) if host else work.device_s(done, decodes, layout)
    return layout.plan.pp * seconds


@functools.cache
def _priced(mixed: bool, host: bool, alone: bool) -> Any:
    """`step_s` over lists of what is carried."""
    step = functools.partial(step_s, mixed=mixed, host=host, alone=alone)
    return interpreted(jax.vmap(step, in_axes=(None, 0, 0, 0, 0, 0)), always=True)


def _ask(scenario: Scenario, mixed: bool, host: bool, *columns: np.ndarray | float, alone: bool = False) -> np.ndarray:
    arrays = np.broadcast_arrays(*map(np.asarray, columns))
    count = len(arrays[0])
    more = (0, (1 << max(count - 1, LEAST - 1).bit_length()) - count)  # few lengths: each is a trace of its own
    result = _priced(mixed, host, alone)(scenario, *(np.pad(each, more, mode="edge") for each in arrays))
    return np.asarray(result, dtype=float)[:count]


def tabulated_steps(
    scenario: Scenario,
    *,
    prompts: bool = True,
    host: bool = True,
    alone: bool = False,
    alike: float | None = None,
) -> TabulatedSteps:
    """Steps of one attention group of one part of a pipeline, which others have prompts for as well or not, with the
    engine's own time or without. Steps that decode nothing are as long as those that decode one sequence, unless
    `alone`: then prompts have them for themselves.

    Contexts enter by their slope at the plan's mean, the keys of prompts by theirs. Where other groups step together
    with this one, a step in which it has no prompts is as long as theirs with the share of steps in which they have
    (`company`); `alike` is their mean prompt tokens over those of this one, where that does not say.

    Raises:
        ConfigError: feed-forward networks are apart, of which no engine is simulated.
    """
    if float(getattr(scenario.plan, "ffn_devices", 0.0)) > 0:
        raise ConfigError(
            f"plan.ffn_devices = {float(scenario.plan.ffn_devices):g}: engines whose feed-forward networks are apart"
            " are not simulated; allowed: plan.ffn_devices=0, or codesign evaluate"
        )
    work, layout = scenario.workload, scenario.layout
    assert isinstance(work, AbstractContinuousServing)
    rhythm, context, keys = work.rhythm(layout), float(work.context()), float(work.attended())
    batch, chunk = float(rhythm.decodes), float(layout.plan.token_budget)
    around = np.rint(batch) + np.arange(-NEAR, NEAR + 1)
    decodes = np.unique(np.concatenate([np.rint(np.geomspace(1, MARGIN * batch + 1, LEVELS)), around[around >= 1]]))
    carries = float(rhythm.state.tokens)
    tokens = np.unique([*np.rint(np.geomspace(1, max(chunk, 2), LEVELS)), np.floor(carries), np.ceil(carries + 1e-9)])
    company = work.company(layout, asarray(decodes))
    shared = np.asarray(company.alike) if alike is None else np.full(len(decodes), alike)
    short, long = (_ask(scenario, False, host, decodes, factor * context, 0.0, 0.0, 0.0) for factor in (0.5, 1.5))
    slope = np.maximum((long - short) / (decodes * context), 0.0)
    reading = slope * decodes * context
    plain = _ask(scenario, False, host, decodes, context, 0.0, 0.0, 0.0) - reading
    carried = np.repeat(decodes, len(tokens)), np.tile(tokens, len(decodes))
    together = np.repeat(shared, len(tokens)) * carried[1]
    near, far = (
        _ask(scenario, True, host, carried[0], context, carried[1], factor * keys, together) for factor in (1, 1.5)
    )
    usual_ones = (carried[1] >= 0.5 * carries) & (carried[1] <= 2 * carries)  # few tokens cost what a launch does
    pair = max(float(np.median(((far - near) / (0.5 * keys * carried[1]))[usual_ones])), 0.0)
    mixed = (near - pair * keys * carried[1]).reshape(len(decodes), len(tokens)) - reading[:, None]
    others = np.asarray(company.others) if prompts else np.zeros(len(decodes))
    theirs = np.asarray(company.tokens)
    middle: list[float] = [np.interp(each, tokens, row) for each, row in zip(theirs, mixed, strict=True)]
    usual = np.array(middle) + pair * keys * theirs
    linear = np.column_stack([(1 - others) * plain + others * usual, mixed])
    first = linear[:1].copy()
    if alone:
        prompts_alone = _ask(scenario, True, host, 0.0, context, tokens, keys, shared[0] * tokens, alone=True)
        first[0, 1:] = prompts_alone - pair * keys * tokens
    return TabulatedSteps(
        [0.0, *decodes.tolist()], [0.0, *tokens.tolist()], np.vstack([first, linear]),
        np.concatenate([slope[:1], slope]), pair,
    )  # fmt: skip


HOST = ("request_overhead_s", "prompt_token_s", "expert_overhead_s", "expert_launch_s", "admission_steps")
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
) -> ServedTimes:
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
    per_group = max(math.ceil(count / group), 1)
    engine = dataclasses.replace(engine, seed=seed, sequences=engine.sequences if rate == 0 else batch_of(scenario))
    rng = np.random.default_rng(seed)
    requests = drawn_requests(scenario, per_group, rng)
    if rate > 0:
        came = arrivals(rng, rate / group, cv, per_group) if math.isfinite(rate) else np.zeros(per_group)
        if per_group > 1 and math.isfinite(rate):  # by chance they come faster or slower than asked
            came = came * ((per_group - 1) / (rate / group * np.ptp(came)))
        requests = dataclasses.replace(requests, arrivals=came)
    open_at_once = per_group if not math.isfinite(clients) else max(math.ceil(clients / group), 1)
    result = simulate_run(engine, requests, None if rate > 0 else open_at_once)
    return dataclasses.replace(result.later(host_s(scenario)), rate=result.rate * group)
