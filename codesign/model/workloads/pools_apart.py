"""Prompts on engines of their own, decodes on others: means and percentiles in closed form, differentiable.

    TTFT   T + W, T the seconds of a prompt alone, W its wait for x engines that fill their steps (`disaggregated`)
    TPOT   as in `open_loop` without prompts at lambda / y, and the way of the cache to the decode engine, its wait for
           a place there (`place_wait`) and half a step that runs, once an answer: (bytes / bandwidth + W + f0 / 2)
           E[1 / L]

Gaps between those that leave x engines vary by 1 + (1 - rho^2) (a^2 - 1) + rho^2 / sqrt(x) (v^2 - 1), and by a y-th of
it where they come to y engines by turns.

Assumes: decodes by turns over the y engines, who come out of one step not together; links that hold nobody up.
Source: [sakasegawa1977], gaps [whitt1983]; two pools [zhong2024]; held against `simulation.serving.simulate_apart`.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...core.jax_typed import traced_for_all
from .disaggregated import PrefillStepTimes, waits_of
from .latency import EVEN
from .open_loop import Demand, LoopFixedPoint, OpenLoop, Percentiles, Times, open_loop, whole
from .quantiles import MixtureComponent, QuantileBrackets, above, lognormal, moments, tail_quantiles
from .steady_state import FULLEST

__all__ = ["decodes_of", "pools_apart", "prompt_s"]


def prompt_s(times: Times, demand: Demand) -> Array:
    """Seconds of prompts of equally likely lengths, alone on an engine: whole chunks and the rest."""
    return _seconds(times, demand, demand.input_tokens * lognormal(demand.input_cv))


def _seconds(times: Times, demand: Demand, length: Array) -> Array:
    """Seconds of prompts of these lengths."""
    none, chunk = jnp.asarray(0.0), demand.chunk
    whole = jnp.floor(length / chunk - 1e-9)
    rest = length - whole * chunk
    chunks = jax.vmap(times.step_s, (None, None, None, 0))(none, none, chunk, 0.5 * whole * chunk)
    last = jax.vmap(times.step_s, (None, None, 0, 0))(none, none, rest, whole * chunk + 0.5 * rest)
    return whole * chunks + last


@traced_for_all
def pools_apart(
    prefill: Times,
    decode: Times,
    demand: Demand,
    engines: tuple[Array, Array],
    transfer_s: Array,
    seen: float | Array = 0.5,
    solved: tuple[LoopFixedPoint, QuantileBrackets] | None = None,
) -> OpenLoop:
    """Latencies where `demand.rate` is that of both pools together; `load` of the engines or of their links.

    Args:
        prefill, decode: steps of an engine of each pool.
        demand: of all engines together; `most` of one decode engine.
        engines: how many there are in each pool.
        transfer_s: seconds that the cache of a mean prompt is under way.
        seen: steps that run before the one that it joins; one more where the engine decides a step ahead.
        solved: of an earlier evaluation of these numbers.
    """
    seconds, weight, begins, spread = _prompts(prefill, demand)
    steps = _filling(prefill, demand, (weight * seconds).sum())
    varies = (weight * (seconds / steps.alone_s - 1) ** 2).sum()  # by deviations: never below 0 by rounding
    found_s = waits_of(steps, demand.rate, engines[0], demand.arrival_cv, varies)
    asked, load = found_s.load, jnp.minimum(found_s.load, FULLEST)
    queue = MixtureComponent(begins, spread + 2 * found_s.gate_s, weight, found_s.late, found_s.queue_s)
    leave = 1 + (1 - load**2) * (demand.arrival_cv**2 - 1) + load**2 / jnp.sqrt(engines[0]) * (varies - 1)
    alone = dataclasses.replace(
        decodes_of(demand, engines[1]), arrival_cv=jnp.sqrt(jnp.maximum(leave / engines[1], EVEN**2))
    )
    decoding, prompts = solved or (None, None)
    result = open_loop(decode, alone, decoding)
    joins = transfer_s + seen * result.tpot_s.mean * (1 - jnp.exp(-result.decodes))
    places, varied = result.places, 1 + demand.output_cv**2
    shorter = varied / demand.steps
    waits = joins + places.mean
    tpot = result.tpot_s.mean + waits * shorter
    floor = decode.step_s(result.decodes, demand.context, jnp.asarray(0.0), demand.keys)
    square = places.late * 2 * places.seconds**2 - places.mean**2
    between = above(floor, tpot, result.tpot_variance + (waits**2 * demand.output_cv**2 + square * varied) * shorter**2)
    told, prompts = tail_quantiles(queue, found=prompts)
    ttft = Percentiles(steps.alone_s + found_s.mean, *told)
    variances = moments(queue)[1] + square, result.tpot_variance, square
    return result._replace(
        ttft_s=ttft, tpot_s=between, e2e_s=whole(demand, ttft.mean + waits, result.tpot_s.mean, variances),
        hybrid_step_share=jnp.zeros_like(asked), load=jnp.maximum(asked, demand.rate * transfer_s / engines[0]),
        solved=(result.solved, prompts),
    )  # fmt: skip


def _filling(times: Times, demand: Demand, alone_s: Array) -> PrefillStepTimes:
    """Steps of an engine that fills them."""
    none, share, length = jnp.asarray(0.0), jnp.ones(1), lognormal(demand.input_cv)
    if demand.prompts is not None:
        length, share = demand.prompts[:, 0], demand.prompts[:, 1]
    tokens, share = demand.input_tokens * length, jnp.broadcast_to(share, length.shape)
    parts, share = tokens / demand.chunk, share / jnp.broadcast_to(share, length.shape).sum()
    steps = jax.vmap(times.step_s, (None, None, None, 0))(none, none, demand.chunk, 0.5 * tokens)
    filled = (share * parts * steps).sum()
    room = jnp.maximum(demand.chunk / demand.input_tokens, 1.0)
    rests = (share * (jnp.abs(parts - jnp.round(parts)) > 1e-6)).sum()
    return PrefillStepTimes(alone_s, filled, filled / (share * parts).sum(), room, rests)


def _prompts(times: Times, demand: Demand) -> tuple[Array, Array, Array, Array]:
    """Seconds of prompts, how likely each is, and the range of seconds that it stands for: its begin, its length."""
    if demand.prompts is None:
        seconds = prompt_s(times, demand)
        return seconds, jnp.ones(len(seconds)) / len(seconds), *_filled(seconds)
    length, share, spread = demand.prompts.T
    wide = jnp.minimum(jnp.sqrt(3.0) * spread, 0.999 * length)  # what is equally likely over a range deviates so
    seconds, low, high = (
        _seconds(times, demand, demand.input_tokens * at) for at in (length, length - wide, length + wide)
    )
    return seconds, share, low, jnp.maximum(high - low, 0.0)


def _filled(seconds: Array) -> tuple[Array, Array]:
    """Equally likely seconds, rising, as ranges that leave no gap between them: where each begins, how long it is."""
    middle = 0.5 * (seconds[1:] + seconds[:-1])
    edges = jnp.concatenate([2 * seconds[:1] - middle[:1], middle, 2 * seconds[-1:] - middle[-1:]])
    return edges[:-1], jnp.maximum(edges[1:] - edges[:-1], 0.0)


def decodes_of(demand: Demand, engines: Array) -> Demand:
    """Demand on one decode engine: contexts as they are, prompts of next to nothing."""
    return Demand(
        rate=demand.rate / engines, input_tokens=demand.input_tokens, output_tokens=demand.output_tokens,
        chunk=demand.chunk, input_cv=demand.input_cv, output_cv=demand.output_cv,
        arrival_cv=demand.arrival_cv, most=demand.most, elsewhere=1.0,
        prompts=demand.prompts, answers=demand.answers,
    )  # fmt: skip
