"""The mean step of an engine whose requests come at a rate: decodes, prompts and its length agree with each other.

At lambda requests/s the sequences n that are decoded follow from Little's law, n = lambda L s(n), where s is the mean
step at n. In a long step more come than in a short one, so that steps with prompts, a share p of all, follow each
other: p is that of `steady_state` with what comes in steps of both lengths. s and p are found together, by a fixed
number of rounds of Newton's method, so that many points are one program; derivatives are those of the solution
(implicit function theorem), so that no round is differentiated.
"""

import functools
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import Module, quantity
from ...core.jax_typed import traced_for_all
from ...core.matrix_slopes import MovingLeaves, matrix
from ...core.smooth import TINY, bounded, lower, upper
from .quantiles import tailed
from .steady_state import FULLEST, LEVELS, mixed_share

__all__ = [
    "Demand", "EngineStep", "HostOverlap", "LongerContexts", "RooflineTimes", "StepFixedPoint", "TableTimes", "Times",
    "engine_step", "prompt_steps", "settled_step",
]  # fmt: skip


# Demand on an engine in an open loop, and the step times of that engine, traced.


@runtime_checkable
class Times(Protocol):
    """Seconds of one step."""

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """Sequences with a mean context, and prompt tokens with mean keys."""
        ...


class RooflineTimes(Module):
    """Traced counterpart of `simulation.serving.RooflineSteps`."""

    fixed_s: Float[Array, "*b"] = quantity()
    weights_s: Float[Array, "*b"] = quantity()
    token_s: Float[Array, "*b"] = quantity()
    read_s: Float[Array, "*b"] = quantity()
    pair_s: Float[Array, "*b"] = quantity()

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """See the class."""
        linear = self.fixed_s + upper(self.weights_s, self.token_s * (decodes + prompt_tokens))
        return linear + self.read_s * decodes * context + self.pair_s * prompt_tokens * keys


class TableTimes(Module):
    """Traced counterpart of `simulation.serving.TabulatedSteps`: bilinear between listed numbers."""

    decodes: Float[Array, " n"]
    tokens: Float[Array, " c"]
    linear: Float[Array, "n c"]
    context: Float[Array, " n"]
    pair_s: Float[Array, ""]

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """See the class."""
        rows = jax.vmap(lambda row: jnp.interp(prompt_tokens, self.tokens, row))(self.linear)
        reading = decodes * context * jnp.interp(decodes, self.decodes, self.context)
        return jnp.interp(decodes, self.decodes, rows) + reading + self.pair_s * prompt_tokens * keys


class HostOverlap(Module):
    """Steps whose engine prepares one beside the one before: the longer of both times."""

    device: Times
    host_s: Float[Array, "*b"] = quantity()
    host_sequence_s: Float[Array, "*b"] = quantity(default=0.0)

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """See the class."""
        own = self.host_s + self.host_sequence_s * decodes
        return upper(self.device.step_s(decodes, context, prompt_tokens, keys), own)


class LongerContexts(Module):
    """Steps that read more than a demand says: of answers that it counts in steps, of prompts that a cache holds."""

    times: Times
    context: Float[Array, "*b"] = quantity(doc="tokens more of each decode")
    keys: Float[Array, "*b"] = quantity(doc="keys more of each prompt token")

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """See the class."""
        return self.times.step_s(decodes, context + self.context, prompt_tokens, keys + self.keys)


class Demand(Module):
    """Requests of one engine: their rate (1/s), variation of gaps, lengths, and the tokens that a step takes at most.

    prompts, answers: lengths over their mean and shares, as `kinds` has them; without, lengths are lognormal.
    """

    rate: Float[Array, "*b"] = quantity()
    input_tokens: Float[Array, "*b"] = quantity(low=1.0)
    output_tokens: Float[Array, "*b"] = quantity(low=2.0)
    chunk: Float[Array, "*b"] = quantity(low=1.0)
    input_cv: Float[Array, "*b"] = quantity(default=0.0)
    output_cv: Float[Array, "*b"] = quantity(default=0.0)
    arrival_cv: Float[Array, "*b"] = quantity(default=1.0)
    most: Float[Array, "*b"] = quantity(low=1.0, default=1e4, doc="sequences that can decode together")
    elsewhere: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share of prompts that others compute")
    prompts: Float[Array, "*b kinds 3"] | None = eqx.field(default=None)
    answers: Float[Array, "*b kinds 3"] | None = eqx.field(default=None)

    def at(self, rate: Array) -> "Demand":
        """Copy at another rate."""
        return eqx.tree_at(lambda one: one.rate, self, rate)

    @property
    def computed(self) -> Array:
        """Tokens of a prompt that this engine computes; next to nothing where others do."""
        return self.input_tokens * upper(1 - self.elsewhere, 1e-9)

    def prompt_lengths(self) -> tuple[Array, Array]:
        """Over their mean, and how likely each is."""
        return tailed(self.input_cv) if self.prompts is None else (self.prompts[..., 0], self.prompts[..., 1])

    @property
    def steps(self) -> Array:
        """Decode steps of an answer."""
        return self.output_tokens - 1

    @property
    def context(self) -> Array:
        """Mean context of a decode."""
        return self.input_tokens + 0.5 * self.output_tokens * (1 + self.output_cv**2)

    @property
    def keys(self) -> Array:
        """Mean keys of a prompt token."""
        return 0.5 * self.input_tokens * (1 + self.input_cv**2)


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


def _carried(demand: Demand, step: Array, share: Array) -> Array:
    """Prompt tokens of a step that carries some."""
    return lower(demand.rate * step * demand.computed / share, demand.chunk)


def _steps(times: Times, demand: Demand, decodes: Array, tokens: Array) -> Array:
    """Seconds of a step without prompts, of one with so many of their tokens, and of one with a whole chunk."""
    carried = jnp.stack([jnp.zeros_like(tokens), tokens, demand.chunk])
    return jax.vmap(times.step_s, (None, None, 0, None))(decodes, demand.context, carried, demand.keys)


@traced_for_all
def engine_step(times: Times, demand: Demand, step: Array, share: Array, decodes: Array) -> EngineStep:
    """Steps that take `step` seconds on average, and of which a `share` carries prompts."""
    return _engine_step(demand, share, decodes, _steps(times, demand, decodes, _carried(demand, step, share)))


def _engine_step(demand: Demand, share: Array, decodes: Array, seconds: Array) -> EngineStep:
    """Numbers of steps without, with some and with a whole chunk of prompt tokens."""
    plain, mixed, full = seconds
    asked = demand.rate * demand.computed / demand.chunk * full
    busy = lower(asked, FULLEST)
    return EngineStep((1 - share) * plain + share * mixed, plain, mixed, share, busy, decodes, asked, full)


def _decodes(demand: Demand, step: Array) -> Array:
    """Sequences that decode together, by Little's law."""
    return lower(demand.rate * demand.steps * step, demand.most)


@traced_for_all
def _told(demand: Demand, step: Array, share: Array, plain: Array, mixed: Array) -> Array:
    """Share of steps with prompts where steps are such."""
    arrivals = demand.rate * step
    load = lower(arrivals * demand.computed / demand.chunk, FULLEST)
    come = demand.rate * jnp.stack([plain, mixed])
    nobody = jnp.stack([1 - share, share]) * jnp.exp(-come)
    none, alone = nobody.sum(), (nobody * come).sum()
    own = None if demand.prompts is None else _lost_by(demand.computed * demand.prompts[..., 0], demand)
    return mixed_share(arrivals, none, alone, load, demand.computed, demand.input_cv, demand.chunk, _lost, own)


def _told_along(demand: Demand, *where: Array) -> tuple[Array, Array]:
    """`_told`, and its slopes along the step, the share and both kinds of step."""
    return matrix(lambda at: _told(demand, *at), jnp.stack(where))


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
    left = upper(jnp.ceil(parts - 1e-6), 1.0) - parts
    return upper((demand.prompts[..., 1] * left).sum(), 0.0)


def _lost(mean: Array, cv: Array, chunk: Array) -> Array:
    """Lost part of the last chunk as in `chunks_lost`, with slopes that take the number of chunks as constant."""
    parts, spread = (jax.lax.stop_gradient(each) for each in (mean / chunk, cv))
    drawn = jnp.exp(jnp.sqrt(jnp.log1p(spread * spread + TINY))[..., None] * jnp.asarray(LEVELS))
    count = upper(jnp.ceil(parts[..., None] * drawn / drawn.mean(-1, keepdims=True) - 1e-6), 1.0).mean(-1)
    return upper(count - mean / chunk, 0.0)


class _LinearisedStep(NamedTuple):
    """An engine step and the share told where it is assumed, and the slopes of its length and of that share.

    by_*: (length, share told) along the step assumed, decodes following; along the share assumed; along decodes alone.
    """

    at: EngineStep
    told: Array
    by_step: tuple[Array, Array]
    by_share: tuple[Array, Array]
    by_decodes: tuple[Array, Array]

    def missed(self, step: Array) -> tuple[Array, Array]:
        """Zero where both agree: mean over assumed length of a step less one, share told less that assumed."""
        return self.at.mean / step - 1, self.told - self.at.share

    def closer(self, step: Array, missed: tuple[Array, Array]) -> tuple[Array, Array]:
        """A step of Newton's method on both: relative in the length, whole in the share."""
        a, c = self.by_step[0] - self.at.mean / step, self.by_step[1] * step
        b, d = self.by_share[0] / step, self.by_share[1] - 1
        (first, second), size = missed, a * d - b * c
        size = jnp.where(jnp.abs(size) > 1e-12, size, jnp.inf)
        return -(d * first - b * second) / size, -(a * second - c * first) / size

    def slope(self) -> Array:
        """Seconds by which one more decode lengthens the mean step, shares of steps following."""
        follows = self.by_decodes[1] / upper(1 - self.by_share[1], 0.05)
        return self.by_decodes[0] + self.by_share[0] * follows


def _judged(demand: Demand, step: Array, share: Array, seconds: Array, along: tuple[Array, Array]) -> _LinearisedStep:
    """Answers that are asked of a step and a share, from seconds and their slopes along decodes and tokens."""
    (plain, mixed, _), (plains, mixes, _) = seconds, jnp.stack(along, axis=-1)
    decodes, more = jax.jvp(lambda step: _decodes(demand, step), (step,), (jnp.ones_like(step),))
    _, (longer, fewer) = matrix(lambda at: _carried(demand, at[0], at[1]), jnp.stack([step, share]))
    told, (by_step, by_share, by_plain, by_mixed) = _told_along(demand, step, share, plain, mixed)

    def both(plains: Array, mixes: Array) -> tuple[Array, Array]:
        return (1 - share) * plains + share * mixes, by_plain * plains + by_mixed * mixes

    first = both(plains[0] * more, mixes[0] * more + mixes[1] * longer)
    second = both(plains[1] * fewer, mixes[1] * fewer)
    return _LinearisedStep(
        _engine_step(demand, share, decodes, seconds), told, (first[0], first[1] + by_step),
        (second[0] + mixed - plain, second[1] + by_share), both(plains[0], mixes[0]),
    )  # fmt: skip


def _seconds(times: Times, demand: Demand, step: Array, share: Array) -> tuple[Array, tuple[Array, Array]]:
    """`_steps` of a step and a share, and their slopes along decodes and tokens."""
    at = jnp.stack([_decodes(demand, step), _carried(demand, step, share)])
    seconds, slopes = matrix(lambda at: _steps(times, demand, at[0], at[1]), at)
    return seconds, (slopes[:, 0], slopes[:, 1])


def _around(times: Times, demand: Demand, step: Array, share: Array) -> _LinearisedStep:
    """Answers that are asked of a pair of a step and a share, each part of it evaluated once."""
    return _judged(demand, step, share, *_seconds(times, demand, step, share))


class StepFixedPoint(NamedTuple):
    """The step at which all agrees, how one more decode lengthens it, and whether length and share are free to move.

    step, share: as they are assumed; `free`: 1, or 0 where a bound holds them.
    """

    step: Array
    share: Array
    at: EngineStep
    slope: Array
    free: tuple[Array, Array]


@jax.custom_jvp
def settled_step(times: Times, demand: Demand, found: StepFixedPoint | None = None) -> StepFixedPoint:
    """The least mean step at which all agrees, with the derivatives of the solution.

    Rounds of Newton's method in the step alone, then in both; the last round says what is there. None of them where
    `found` is that of an earlier evaluation of these numbers.
    """
    if found is not None:
        return found
    none = jnp.zeros_like(demand.most)
    decodes, tokens = (jnp.stack(jnp.broadcast_arrays(none, most)) for most in (demand.most, demand.chunk))
    ends = jax.vmap(times.step_s, (0, None, 0, None))(decodes, demand.context, tokens, demand.keys)
    start, most = 0.9 * ends[0], 1.1 * ends[1]

    def alone(_: Any, found: tuple[Array, Array]) -> tuple[Array, Array]:
        step, share = found

        def at(step: Array) -> EngineStep:
            return engine_step(times, demand, step, share, _decodes(demand, step))

        here, slopes = jax.jvp(at, (step,), (jnp.ones_like(step),))
        ratio, grows = here.mean / step, slopes.mean
        way = jnp.where(grows < ratio, (ratio - 1) / jnp.where(grows < ratio, ratio - grows, 1.0), jnp.inf)
        told = _told(demand, step, share, here.plain, here.mixed)
        return bounded(step * jnp.exp(bounded(way, -FURTHEST, FURTHEST)), start, most), 0.5 * (share + told)

    def together(
        _: Any, found: tuple[tuple[Array, Array], StepFixedPoint]
    ) -> tuple[tuple[Array, Array], StepFixedPoint]:
        step, share = found[0]
        around = _around(times, demand, step, share)
        way = around.closer(step, around.missed(step))
        longer, more = step * (1 + bounded(way[0], -0.3, 0.3)), share + bounded(way[1], -0.3, 0.3)
        free = (longer > start) & (longer < most), (more > 1e-12) & (more < 1)
        moves = tuple(jnp.where(one, jnp.ones_like(way), 0.0) for one, way in zip(free, way, strict=True))
        told = StepFixedPoint(step, share, around.at, around.slope(), (moves[0], moves[1]))
        return (bounded(longer, start, most), bounded(more, 1e-12, 1.0)), told

    load = lower(demand.rate * start * demand.computed / demand.chunk, FULLEST)
    result = jax.lax.fori_loop(0, ROUNDS, alone, (start, load))
    nothing = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), jax.eval_shape(together, None, (result, ()))[1])
    return jax.lax.fori_loop(0, TOGETHER + 1, together, (result, nothing))[1]


@functools.partial(settled_step.defjvp, symbolic_zeros=True)
def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[StepFixedPoint, StepFixedPoint]:
    """Implicit function theorem: what agrees no longer where the arguments move, and how far that moves the rest."""
    result, known = settled_step(*primals), primals[:2]
    moving, none = MovingLeaves(known, tangents[:2]), jnp.zeros_like(result.step)

    def missed(at: Array) -> tuple[Array, Array]:
        times, demand = moving.tree(at)
        here = engine_step(times, demand, result.step, result.share, _decodes(demand, result.step))
        return here.mean / result.step, _told(demand, result.step, result.share, here.plain, here.mixed)

    def told(at: Array, step: Array, share: Array) -> tuple[EngineStep, Array]:
        times, demand = moving.tree(at)
        around = _around(times, demand, step, share)
        return around.at, around.slope()

    ways = _around(known[0], known[1], result.step, result.share).closer(
        result.step, jax.jvp(missed, (moving.at,), (moving.way,))[1]
    )
    along = result.step * ways[0] * result.free[0], ways[1] * result.free[1]
    at, slope = jax.jvp(told, (moving.at, result.step, result.share), (moving.way, *along))[1]
    return result, StepFixedPoint(*along, at, slope, (none, none))
