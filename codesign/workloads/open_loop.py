"""An engine whose requests come when they come: means and percentiles in closed form, differentiable.

Given the rate lambda of one engine, the sequences n that it decodes follow from Little's law, n = lambda L s(n), where
s is the mean step at n, with the shares of `steady_state` at x = lambda s arrivals a step. The solution is found by
bisection and a step of Newton's method, which carries its derivatives (implicit function theorem).

    slope    e = n s'(n) / s(n): how steps lengthen with n; the number decoding varies by z = 1 / (1 - e) times its
             mean, as that of a processor shared at a rate that falls with its load
    TPOT     s + z s'(n): whoever decodes finds himself, and those that came in spells of many
    TTFT     residual of the step that runs + wait of a queue of prompts + own steps
    wait     rho (I / c) (a^2 + v^2) / (2 (1 - rho)) steps, a and v the variation of gaps between arrivals and of
             prompts (Kingman); rho of the requests wait (with bursts more), for a time that is exponential

Percentiles of TTFT are those of the wait and of prompts of 128 lengths; of TPOT those of a gamma distribution above f0,
with the variance of n over a sequence's own life (2 / e of that at one time, where what was there is replaced at the
rate at which one leaves) and of the mixed steps that it meets.

Assumes: load below stability; no waiting for places in the cache; means and variances of lengths alone.
Source: closed form of this package, held against `simulation.serving`; the wait [kingman1961].
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from ..errors import ConfigError
from ..fields import quantity
from ..smooth import TINY
from .steady_state import FULLEST, LEVELS, mixed_share

__all__ = [
    "Demand", "EngineStep", "OpenLoop", "Percentiles", "RooflineTimes", "Spell", "TableTimes", "Times", "above",
    "balance", "check_stable", "lognormal", "open_loop", "solved", "step_at", "tail_quantile",
]  # fmt: skip

ROUNDS = 60  # of bisection, then Newton's last step
PROMPTS = 128  # equally likely quantiles of prompts
SOME = ([(node + 0.5) / 20 * 0.95 for node in range(20)], [0.0475] * 20)  # fewer, and those that percentiles rest on
RARE = ([0.96, 0.975, 0.985, 0.9925, 0.9975], [0.02, 0.01, 0.01, 0.005, 0.005])
CROWDS = ((0.25, 0.5), (0.65, 0.3), (0.9, 0.15), (0.985, 0.05))  # quantile of prompt tokens in a step, its probability
RESIDUALS = jnp.array([0.125, 0.375, 0.625, 0.875])  # shares of a step that may be left of it
SETTLING = 8  # of shares and lengths of mixed steps
STEEPEST = 0.95  # elasticity of a step's length beyond which spells of many would not end


@runtime_checkable
class Times(Protocol):
    """Seconds of one step."""

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """Sequences with a mean context, and prompt tokens with mean keys."""
        ...


class RooflineTimes(eqx.Module):
    """As `simulation.serving.RooflineSteps`, traced."""

    fixed_s: Float[Array, "*b"] = quantity()
    weights_s: Float[Array, "*b"] = quantity()
    token_s: Float[Array, "*b"] = quantity()
    read_s: Float[Array, "*b"] = quantity()
    pair_s: Float[Array, "*b"] = quantity()

    def step_s(self, decodes: Array, context: Array, prompt_tokens: Array, keys: Array) -> Array:
        """See the class."""
        linear = self.fixed_s + jnp.maximum(self.weights_s, self.token_s * (decodes + prompt_tokens))
        return linear + self.read_s * decodes * context + self.pair_s * prompt_tokens * keys


class TableTimes(eqx.Module):
    """As `simulation.serving.TabulatedSteps`, traced: bilinear between listed numbers."""

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


class Demand(eqx.Module):
    """Who asks: requests a second of one engine, the variation of their gaps, lengths, tokens a step takes at most."""

    rate: Float[Array, "*b"] = quantity()
    input_tokens: Float[Array, "*b"] = quantity(low=1.0)
    output_tokens: Float[Array, "*b"] = quantity(low=2.0)
    chunk: Float[Array, "*b"] = quantity(low=1.0)
    input_cv: Float[Array, "*b"] = quantity(default=0.0)
    output_cv: Float[Array, "*b"] = quantity(default=0.0)
    gap_cv: Float[Array, "*b"] = quantity(default=1.0)
    most: Float[Array, "*b"] = quantity(low=1.0, default=1e4, doc="sequences that can decode together")
    elsewhere: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share of prompts that others compute")

    @property
    def computed(self) -> Array:
        """Tokens of a prompt that this engine computes; next to nothing where others do."""
        return self.input_tokens * jnp.maximum(1 - self.elsewhere, 1e-9)

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


class EngineStep(NamedTuple):
    """At so many decodes: mean step, those without and with prompts, share of the latter, load of prompts."""

    mean: Array
    plain: Array
    mixed: Array
    share: Array
    load: Array


def step_at(times: Times, demand: Demand, decodes: Array, step: Array) -> EngineStep:
    """What steps are where they take `step` seconds on average.

    In a long step more come than in a short one, so that mixed steps follow each other: shares and lengths are
    iterated.
    """
    arrivals = demand.rate * step
    load = jnp.minimum(arrivals * demand.computed / demand.chunk, FULLEST)
    plain = times.step_s(decodes, demand.context, jnp.asarray(0.0), demand.keys)

    def settle(_: Any, found: tuple[Array, Array]) -> tuple[Array, Array]:
        share, mixed = found
        come = [demand.rate * seconds for seconds in (plain, mixed)]
        none = (1 - share) * jnp.exp(-come[0]) + share * jnp.exp(-come[1])
        alone = (1 - share) * come[0] * jnp.exp(-come[0]) + share * come[1] * jnp.exp(-come[1])
        told = mixed_share(arrivals, none, alone, load, demand.computed, demand.input_cv, demand.chunk, _lost)
        share = 0.5 * (share + told)
        tokens = jnp.minimum(arrivals * demand.computed / share, demand.chunk)
        return share, times.step_s(decodes, demand.context, tokens, demand.keys)

    share, mixed = jax.lax.fori_loop(0, SETTLING, settle, (load, plain))
    full = times.step_s(decodes, demand.context, demand.chunk, demand.keys)
    busy = jnp.minimum(demand.rate * demand.computed / demand.chunk * full, FULLEST)
    return EngineStep((1 - share) * plain + share * mixed, plain, mixed, share, busy)


def _lost(mean: Array, cv: Array, chunk: Array) -> Array:
    """As `chunks_lost`, of arrays: less to compile."""
    drawn = jnp.exp(jnp.sqrt(jnp.log1p(cv * cv + TINY)) * jnp.asarray(LEVELS))
    parts = mean * drawn / drawn.mean() / chunk
    return jnp.maximum((jnp.maximum(jnp.ceil(parts - 1e-6), 1.0) - parts).mean(), 0.0)


def balance(times: Times, demand: Demand, step: Array) -> Array:
    """Zero where steps take as long as what comes in them makes them; positive while they are too short."""
    decodes = jnp.minimum(demand.rate * demand.steps * step, demand.most)
    return step_at(times, demand, decodes, step).mean / step - 1


def solved(times: Times, demand: Demand) -> Array:
    """Mean seconds of a step: the least at which the balance holds, with the derivatives of that solution."""
    fixed = jax.lax.stop_gradient((times, demand))
    low = 0.9 * fixed[0].step_s(jnp.asarray(0.0), demand.context, jnp.asarray(0.0), demand.keys)
    high = 1.1 * fixed[0].step_s(fixed[1].most, fixed[1].context, fixed[1].chunk, fixed[1].keys)

    def body(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = jnp.sqrt(ends[0] * ends[1])
        short = balance(*fixed, middle) > 0
        return jnp.where(short, middle, ends[0]), jnp.where(short, ends[1], middle)

    low, high = jax.lax.fori_loop(0, ROUNDS, body, (jax.lax.stop_gradient(low), high))
    found = jax.lax.stop_gradient(jnp.sqrt(low * high))
    slope = jax.lax.stop_gradient(jax.grad(lambda step: balance(*fixed, step))(found))
    return found - balance(times, demand, found) / slope


class Percentiles(NamedTuple):
    """Mean, and the value that so many of a hundred stay below."""

    mean: Array
    p50: Array
    p90: Array
    p99: Array


class OpenLoop(NamedTuple):
    """What requests of an open loop see; `decodes` together, `load` of prompts and `fill` of decodes, below 1."""

    ttft_s: Percentiles
    tpot_s: Percentiles
    e2e_s: Array
    tpot_variance: Array
    decodes: Array
    mixed_ratio: Array
    load: Array
    fill: Array


def open_loop(times: Times, demand: Demand) -> OpenLoop:
    """Means and percentiles of one engine."""
    step = solved(times, demand)
    decodes = demand.rate * demand.steps * step
    at = step_at(times, demand, decodes, step)
    crowds = _crowds(times, demand, at, decodes)
    slope = jax.jvp(lambda n: step_at(times, demand, n, step).mean, (decodes,), (jnp.ones_like(decodes),))[1]
    burst = 1 / (1 - jnp.minimum(slope * decodes / step, STEEPEST)) * (1 + demand.gap_cv**2) / 2
    spell = Spell(*_spell(demand, at))
    tpot = step + slope * burst + spell.start_s
    variance = _tpot_variance(demand, at, crowds, slope, decodes * burst, spell.length)
    ttft = _ttft(times, demand, at, crowds, decodes, step)
    return OpenLoop(
        ttft, above(at.plain, tpot, variance), ttft.mean + demand.steps * tpot, variance, decodes, at.share, at.load,
        decodes / demand.most,
    )  # fmt: skip


class Spell(NamedTuple):
    """Mixed steps in a row: what those who start behind one add to a step, and how many steps count as one."""

    start_s: Array
    length: Array


def _spell(demand: Demand, at: EngineStep) -> tuple[Array, Array]:
    """Mixed and plain steps as a chain of two states, entered at the end of a mixed step."""
    begins = 1 - jnp.exp(-demand.rate * at.plain)
    forgets = jnp.clip(begins / at.share, 1e-6, 1.0)
    next_one = jnp.maximum(1 - jnp.exp(-demand.rate * at.mixed), at.load)
    seen = (1 - (1 - forgets) ** demand.steps) / forgets / demand.steps
    return jnp.maximum(next_one - at.share, 0.0) * (at.mixed - at.plain) * seen, 2 / forgets - 1


class Crowds(NamedTuple):
    """Mixed steps by how many prompt tokens they carry: seconds, and how likely each is."""

    seconds: Array
    likely: Array


def _crowds(times: Times, demand: Demand, at: EngineStep, decodes: Array) -> Crowds:
    """What steps with prompts take, of which few carry the mean.

    In a step of T seconds come compound Poisson tokens, which lengthen the next one by g each: their variance is
    lambda T E[I^2] / (1 - (g lambda I)^2), that of a first-order recursion. Their quantiles are those of a gamma
    distribution with that and the mean of a mixed step, at most a chunk.
    """
    tokens = jnp.minimum(demand.rate * at.mean * demand.computed / at.share, demand.chunk)
    lengthens = jnp.minimum((at.mixed - at.plain) / tokens * demand.rate * demand.computed, STEEPEST)
    varies = demand.rate * at.mean * demand.computed**2 * (1 + demand.input_cv**2) / (1 - lengthens**2)
    square = (varies + (demand.rate * at.mean * demand.computed) ** 2) / at.share
    shape = jnp.maximum(tokens**2 / jnp.maximum(square - tokens**2, 1e-9 * tokens**2), 0.05)
    levels = ndtri(jnp.array([level for level, _ in CROWDS]))
    likely = jnp.array([weight for _, weight in CROWDS])
    drawn = jnp.maximum(1 - 1 / (9 * shape) + levels / (3 * jnp.sqrt(shape)), 0.02) ** 3
    carried = jnp.minimum(tokens * drawn / (drawn * likely).sum(), demand.chunk)
    seconds = jax.vmap(times.step_s, (None, None, 0, None))(decodes, demand.context, carried, demand.keys)
    return Crowds(seconds, likely)


def _tpot_variance(demand: Demand, at: EngineStep, crowds: Crowds, slope: Array, varies: Array, spell: Array) -> Array:
    """Between requests: of the number decoding, and of the mixed steps met, which come in spells."""
    crowd = 2 * jnp.exp(-1.0) * slope**2 * varies
    shorter = (1 + demand.output_cv**2) / demand.steps  # mean of 1 / L, lognormal
    within = (crowds.likely * (crowds.seconds - (crowds.likely * crowds.seconds).sum()) ** 2).sum()
    met = at.share * ((1 - at.share) * (at.mixed - at.plain) ** 2 + within) * spell * shorter
    most = jnp.maximum((at.mean - at.plain) * (at.mixed - at.mean), 1e-30)  # of a mean of steps between the two
    return crowd + met * most / jnp.maximum(met + most, 1e-30)


def above(floor: Array, mean: Array, variance: Array) -> Percentiles:
    """Of a gamma distribution above a floor (Wilson and Hilferty)."""
    extra = jnp.maximum(mean - floor, 1e-12)
    shape = jnp.maximum(extra**2 / jnp.maximum(variance, 1e-30), 0.05)
    levels = [ndtri(jnp.asarray(share)) for share in (0.5, 0.9, 0.99)]
    cubes = [1 - 1 / (9 * shape) + level / (3 * jnp.sqrt(shape)) for level in levels]
    return Percentiles(mean, *(floor + extra * jnp.maximum(cube, 0.0) ** 3 for cube in cubes))


def _ttft(times: Times, demand: Demand, at: EngineStep, crowds: Crowds, decodes: Array, step: Array) -> Percentiles:
    """Residual of the step that runs, wait and own steps, of prompts of all lengths.

    In a long step more come, and share the next one.
    """
    full = times.step_s(decodes, demand.context, demand.chunk, demand.keys)
    varied = (demand.gap_cv**2 + demand.input_cv**2) / 2
    wait = at.load * demand.input_tokens / demand.chunk * varied / (1 - at.load) * full
    late = at.load ** (2 / (1 + demand.gap_cv**2))  # who comes in bursts finds somebody more often
    busy = 1 - jnp.exp(-decodes) * (1 - at.share)
    wait = jnp.maximum(wait - at.share * at.mixed**2 / (2 * step), 0.0)  # its own part of the step that runs
    met, likely, left = _met(at, crowds, busy)
    alone = jnp.exp(-demand.rate * met)
    several = demand.rate * met / jnp.maximum(1 - alone, 1e-12)  # who came beside, where anybody did
    beside = jnp.concatenate([jnp.zeros_like(met), several * demand.input_tokens])
    likely, left = jnp.concatenate([likely * alone, likely * (1 - alone)]), jnp.concatenate([left, left])
    drawn, common = tailed(demand.input_cv)
    length = demand.input_tokens * drawn
    whole = jnp.floor(length / demand.chunk - 1e-9)
    rest = length - whole * demand.chunk
    shared = jnp.minimum(rest[:, None] + jnp.where(whole[:, None] > 0, 0.0, beside), demand.chunk)
    keys = jnp.maximum(length[:, None] - 0.5 * shared, 0.5 * length[:, None])
    last = jax.vmap(jax.vmap(times.step_s, (None, None, 0, 0)), (None, None, 0, 0))(
        decodes, demand.context, shared, keys
    )
    chunks = jax.vmap(times.step_s, (None, None, None, 0))(
        decodes, demand.context, demand.chunk, 0.5 * whole * demand.chunk
    )
    own = ((whole * chunks)[:, None] + last)[:, :, None] + left
    weight = jnp.broadcast_to(common[:, None, None] * likely[:, None] / left.shape[1], own.shape)
    points = [tail_quantile(own.ravel(), weight.ravel(), wait, late, share) for share in (0.5, 0.9, 0.99)]
    return Percentiles((own * weight).sum() + wait, *points)


def _met(at: EngineStep, crowds: Crowds, busy: Array) -> tuple[Array, Array, Array]:
    """Steps that run when somebody comes, none first: seconds, how likely each is, and what is left of it."""
    seconds = jnp.concatenate([jnp.zeros(1), at.plain[None], crowds.seconds])
    weight = jnp.concatenate([jnp.zeros(1), (1 - at.share)[None], at.share * crowds.likely]) * seconds
    likely = busy * weight / weight.sum()
    return seconds, likely.at[0].set(1 - busy), seconds[:, None] * RESIDUALS


def lognormal(cv: Array) -> Array:
    """Equally likely lengths over their mean."""
    varied = cv > 0
    spread = jnp.where(varied, jnp.sqrt(jnp.log1p(jnp.where(varied, cv * cv, 1.0))), 0.0)
    drawn = jnp.exp(spread * ndtri((jnp.arange(PROMPTS) + 0.5) / PROMPTS))
    return drawn / drawn.mean()


def tailed(cv: Array) -> tuple[Array, Array]:
    """Lengths over their mean and how likely each is, with more of the long ones."""
    spread = jnp.sqrt(jnp.log1p(jnp.maximum(cv * cv, TINY)))
    likely = jnp.array(SOME[1] + RARE[1])
    drawn = jnp.exp(spread * ndtri(jnp.array(SOME[0] + RARE[0])))
    return drawn / (drawn * likely).sum(), likely


def tail_quantile(base: Array, weight: Array, wait: Array, late: Array, share: float) -> Array:
    """Of bases that are so likely plus a wait that is exponential with probability `late` and else none."""
    scale = jnp.maximum(wait / jnp.maximum(late, 1e-9), 1e-12)

    def beyond(value: Array, base: Array, weight: Array, late: Array, scale: Array) -> Array:
        extra = jnp.maximum(value - base, 0.0)
        return (weight * jnp.where(value < base, 1.0, late * jnp.exp(-extra / scale))).sum()

    fixed = jax.lax.stop_gradient((base, weight, late, scale))

    def body(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        more = beyond(middle, *fixed) > 1 - share
        return jnp.where(more, middle, ends[0]), jnp.where(more, ends[1], middle)

    low, high = jax.lax.fori_loop(0, ROUNDS, body, (fixed[0].min() * 0, fixed[0].max() + 20 * fixed[3]))
    found = jax.lax.stop_gradient(0.5 * (low + high))
    slope = jax.lax.stop_gradient(jax.grad(beyond)(found, *fixed))
    smooth = jnp.where(
        slope < 0,
        (beyond(found, base, weight, late, scale) - beyond(found, *fixed)) / jnp.where(slope < 0, slope, -1.0),
        0.0,
    )
    return found - smooth


def check_stable(found: OpenLoop, demand: Demand) -> None:
    """Refuse a rate at which prompts or decodes pile up.

    Raises:
        ConfigError: by how much, and what would help.
    """
    load, fill = float(found.load), float(found.fill)
    if load >= FULLEST:
        raise ConfigError(
            f"{float(demand.rate):.4g} requests/s of one engine fill more than every step with prompts: take fewer, or"
            f" more prompt tokens a step than plan.chunk = {float(demand.chunk):g}"
        )
    if fill >= 1:
        raise ConfigError(
            f"{float(demand.rate):.4g} requests/s of one engine need {float(found.decodes):.4g} sequences together"
            f" ({fill - 1:+.1%} beyond the {float(demand.most):g} that have room): take fewer, or more memory"
        )
