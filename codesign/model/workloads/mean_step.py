"""The mean step of an engine whose requests come at a rate: decodes, prompts and its length agree with each other.

At lambda requests/s the sequences n that are decoded follow from Little's law, n = lambda L s(n), where s is the mean
step at n. In a long step more come than in a short one, so that steps with prompts, a share p of all, follow each
other: p is that of `steady_state` with what comes in steps of both lengths. s and p are found together, by a fixed
number of rounds of Newton's method, so that many points are one program; the last one carries the derivatives of the
solution (implicit function theorem).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...core.jax_typed import traced_for_all
from ...core.smooth import TINY
from .arriving_load import Demand, Times
from .steady_state import FULLEST, LEVELS, mixed_share

__all__ = ["EngineStep", "agreed", "engine_step", "prompt_steps", "slope"]

ROUNDS = 14  # of Newton's method in the step alone, shares following
TOGETHER = 2  # of it in both
FURTHEST = 0.7  # that one of them goes, in the logarithm


class EngineStep(NamedTuple):
    """At so many decodes: mean step, those without and with prompts, share of the latter, load of prompts.

    `asked` is the load that there would be, `load` at most what steps have room for; `full` a step with a whole chunk.
    """

    mean: Array
    plain: Array
    mixed: Array
    share: Array
    load: Array
    decodes: Array
    asked: Array
    full: Array


@traced_for_all
def engine_step(times: Times, demand: Demand, step: Array, share: Array, decodes: Array) -> EngineStep:
    """Steps that take `step` seconds on average, and of which a `share` carries prompts."""
    tokens = jnp.minimum(demand.rate * step * demand.computed / share, demand.chunk)
    carried = jnp.stack([jnp.zeros_like(tokens), tokens, demand.chunk])
    plain, mixed, full = jax.vmap(times.step_s, (None, None, 0, None))(decodes, demand.context, carried, demand.keys)
    asked = demand.rate * demand.computed / demand.chunk * full
    busy = jnp.minimum(asked, FULLEST)
    return EngineStep((1 - share) * plain + share * mixed, plain, mixed, share, busy, decodes, asked, full)


def _decodes(demand: Demand, step: Array) -> Array:
    """Sequences that decode together, by Little's law."""
    return jnp.minimum(demand.rate * demand.steps * step, demand.most)


@traced_for_all
def _told(demand: Demand, step: Array, at: EngineStep) -> Array:
    """Share of steps with prompts where steps are such."""
    arrivals = demand.rate * step
    load = jnp.minimum(arrivals * demand.computed / demand.chunk, FULLEST)
    come = demand.rate * jnp.stack([at.plain, at.mixed])
    nobody = jnp.stack([1 - at.share, at.share]) * jnp.exp(-come)
    none, alone = nobody.sum(), (nobody * come).sum()
    own = None if demand.prompts is None else _lost_by(demand.computed * demand.prompts[..., 0], demand)
    return mixed_share(arrivals, none, alone, load, demand.computed, demand.input_cv, demand.chunk, _lost, own)


def prompt_steps(demand: Demand) -> Array:
    """Steps that compute a prompt's tokens; none where others do."""
    lost = _lost(demand.computed, demand.input_cv, demand.chunk)
    if demand.prompts is not None:
        lost = _lost_by(demand.computed * demand.prompts[..., 0], demand)
    return (1 - demand.elsewhere) * (demand.computed / demand.chunk + lost)


def _lost_by(lengths: Array, demand: Demand) -> Array:
    """Room of the last chunk that known prompts leave empty, in chunks."""
    assert demand.prompts is not None
    parts = lengths / demand.chunk
    left = jnp.maximum(jnp.ceil(parts - 1e-6), 1.0) - parts
    return jnp.maximum((demand.prompts[..., 1] * left).sum(), 0.0)


def _lost(mean: Array, cv: Array, chunk: Array) -> Array:
    """Lost part of the last chunk as in `chunks_lost`, with slopes that take the number of chunks as constant."""
    drawn = jnp.exp(jnp.sqrt(jnp.log1p(cv * cv + TINY))[..., None] * jnp.asarray(LEVELS))
    parts = (mean / chunk)[..., None] * drawn / drawn.mean(-1, keepdims=True)
    return jnp.maximum((jnp.maximum(jnp.ceil(parts - 1e-6), 1.0) - parts).mean(-1), 0.0)


@traced_for_all
def _missed(times: Times, demand: Demand, step: Array, share: Array) -> tuple[Array, Array]:
    """Zero where both agree: mean over assumed length of a step less one, share told less that assumed."""
    at = engine_step(times, demand, step, share, _decodes(demand, step))
    return at.mean / step - 1, _told(demand, step, at) - share


def agreed(times: Times, demand: Demand) -> EngineStep:
    """Steps at the least length at which all agrees, with the derivatives of that solution."""
    fixed = jax.lax.stop_gradient((times, demand))
    none = jnp.zeros_like(demand.most)
    decodes, tokens = (jnp.stack(jnp.broadcast_arrays(none, most)) for most in (fixed[1].most, fixed[1].chunk))
    ends = jax.vmap(fixed[0].step_s, (0, None, 0, None))(decodes, fixed[1].context, tokens, fixed[1].keys)
    start, most = 0.9 * ends[0], 1.1 * ends[1]

    def body(_: Any, found: tuple[Array, Array]) -> tuple[Array, Array]:
        step, share = found

        def at(step: Array) -> EngineStep:
            return engine_step(*fixed, step, share, _decodes(fixed[1], step))

        here, slopes = jax.jvp(at, (step,), (jnp.ones_like(step),))
        ratio, grows = here.mean / step, slopes.mean
        way = jnp.where(grows < ratio, (ratio - 1) / jnp.where(grows < ratio, ratio - grows, 1.0), jnp.inf)
        told = _told(fixed[1], step, here)
        return jnp.clip(step * jnp.exp(jnp.clip(way, -FURTHEST, FURTHEST)), start, most), 0.5 * (share + told)

    load = jnp.minimum(fixed[1].rate * start * fixed[1].computed / fixed[1].chunk, FULLEST)
    step, share = jax.lax.fori_loop(0, ROUNDS, body, jax.lax.stop_gradient((start, load)))
    for round_ in range(TOGETHER):
        step, share = jax.lax.stop_gradient((step, share))
        last = round_ == TOGETHER - 1
        way = _together(times if last else fixed[0], demand if last else fixed[1], step, share)
        step = jnp.clip(step * (1 + jnp.clip(way[0], -0.3, 0.3)), start, most)
        share = jnp.clip(share + jnp.clip(way[1], -0.3, 0.3), 1e-12, 1.0)
    return engine_step(times, demand, step, share, _decodes(demand, step))


def _together(times: Times, demand: Demand, step: Array, share: Array) -> tuple[Array, Array]:
    """A step of Newton's method on both: relative in the length, whole in the share; slopes are held."""

    def missed(log_step: Array, share: Array) -> tuple[Array, Array]:
        return _missed(times, demand, step * jnp.exp(log_step), share)

    (first, second), (by_length, by_share) = _along_each(missed, jnp.zeros_like(step), share)
    a, c, b, d = jax.lax.stop_gradient((*by_length, *by_share))
    size = a * d - b * c
    size = jnp.where(jnp.abs(size) > 1e-12, size, jnp.inf)
    return -(d * first - b * second) / size, -(a * second - c * first) / size


def _along_each(
    function: Callable[[Array, Array], tuple[Array, Array]], *at: Array
) -> tuple[tuple[Array, Array], tuple[tuple[Array, Array], tuple[Array, Array]]]:
    """Two values of two numbers, and their slopes along the one and along the other, in one pass."""
    ways = tuple(jnp.eye(2))
    values, (first, second) = jax.vmap(lambda *way: jax.jvp(function, at, way), out_axes=(None, 0))(*ways)
    return values, ((first[0], second[0]), (first[1], second[1]))


def slope(times: Times, demand: Demand, step: Array, at: EngineStep) -> Array:
    """Seconds by which one more decode lengthens the mean step, shares of steps following."""

    def around(decodes: Array, share: Array) -> tuple[Array, Array]:
        here = engine_step(times, demand, step, share, decodes)
        return here.mean, _told(demand, step, here)

    _, (by_decodes, by_share) = _along_each(around, at.decodes, at.share)
    follows = by_decodes[1] / jnp.maximum(1 - by_share[1], 0.05)
    return by_decodes[0] + by_share[0] * follows
