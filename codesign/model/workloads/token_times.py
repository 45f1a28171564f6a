"""Time between tokens where requests come at a rate: its mean, and how it varies between requests.

A sequence of L steps, f0 seconds each without prompts, is held up by the prompts that come meanwhile, each by the
seconds S that it lengthens steps by; while it is held up more come. So its time is a delay cycle [conway1967], with
w = lambda E[S] the share of time that goes to prompts, f0 = s (1 - w) of a mean step s, and W the work that waits
when it starts: what came during the step that gave its own first token.

    mean       s + E[W] / (1 - w) / L
    variance   s lambda E[S^2] / (1 - w)^2 / L + (Var W / (1 - w)^2 + E[W] lambda E[S^2] / (1 - w)^3) / L^2

both averaged over lengths. Prompts too short to lengthen a step alone do so in crowds: then the variance is that of
steps which carry few or many. To it comes that of what is decoded beside: a number n of sequences and the cache that
they read, in spells that last as long as answers do, times z = 1 / (1 - e) as there are more of them when steps are
longer (e the elasticity of a step's length). With R(u) the share of these that is still there after a time u,

    over a time t    2 / t^2 integral_0^t (t - u) R(u) du,    R(u) = E[(z L - u)+] / (z E[L])

Assumes: lengths lognormal and independent of each other; no step longer than one with a full chunk.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .arriving_load import Demand, Times
from .clumps import others
from .first_token import STEEPEST, Crowds
from .mean_step import EngineStep
from .place_wait import PlaceWait
from .quantiles import Percentiles, gamma_quantiles

__all__ = ["TokenTimes", "token_times"]

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(7)  # of lengths, whose powers and inverses have exact means
LIKELY = WEIGHTS / WEIGHTS.sum()
BUSIEST = 0.95  # share of time that goes to prompts beyond which delays would not end


class TokenTimes(NamedTuple):
    """Between requests: mean and variance; `plain_s` at least, `most_s` at most but for the part `crowd` of it."""

    mean_s: Array
    variance: Array
    crowd: Array
    plain_s: Array
    most_s: Array

    def percentiles(self) -> Percentiles:
        """Percentiles of a gamma distribution above the plain step, at most those of steps with full chunks."""
        free = gamma_quantiles(self.plain_s, self.mean_s, self.variance)
        beside = gamma_quantiles(self.plain_s, self.mean_s, self.crowd)
        most = jnp.maximum(self.most_s - self.mean_s, 0.0)
        return Percentiles(self.mean_s, *jnp.minimum(free, beside + most))


class Delays(NamedTuple):
    """Seconds that prompts lengthen steps by: share of time, variance a second, and what one starts behind."""

    share: Array
    varies: Array
    waiting: Array
    waiting_varies: Array


def token_times(
    times: Times, demand: Demand, at: EngineStep, crowds: Crowds, slope: Array, places: PlaceWait
) -> TokenTimes:
    """
    Args:
        times: of steps.
        demand: what comes.
        at: the mean step.
        crowds: steps with prompts.
        slope: seconds that one more decode lengthens the mean step by.
        places: how often all are taken: then no prompt takes a sequence's own place, and nobody more is beside it.
    """
    full_met = jnp.minimum(places.late * demand.most / jnp.maximum(at.decodes, 1e-12), 1.0)
    own_place = full_met / demand.most
    near, around, after = others(demand.arrival_cv, jnp.stack([0.5 * at.decodes, at.decodes, demand.rate * at.mixed]))
    clumps = jnp.maximum(1 + 2 * near, 0.0)
    longer = 1 / (1 - jnp.minimum(slope * at.decodes / at.mean, STEEPEST))
    lengths, likely = _answers(demand)
    steps = jnp.maximum(demand.steps * lengths, 1.0)
    held = jnp.maximum((crowds.likely * crowds.seconds).sum() - at.plain, at.mixed - at.plain)
    mean = at.mean + at.share * (
        held - (at.mixed - at.plain)
    )  # a full step is longer by more than an empty one shorter
    mean = mean - own_place * at.share * held
    most = jnp.maximum(at.full, at.mixed)
    work = _work(times, demand, at, crowds, at.share * (1 - own_place) * held / mean, mean, clumps)
    delays = 1 / (1 - work.share)
    starts = jnp.minimum(work.waiting * delays / steps, jnp.maximum(most - mean, 0.0))
    start = (likely * starts).sum()
    own = work.waiting_varies * delays**2 + work.waiting * work.varies * delays**3
    met = mean * work.varies * delays**2 / steps + own / steps**2 + (starts - start) ** 2
    start = start + jnp.maximum(around - after, 0.0) * (at.mixed - at.plain) / demand.steps
    crowd = _beside(times, demand, at, slope, (lengths, likely), longer) * longer * clumps
    crowd = crowd * (1 - full_met)
    tpot = mean + slope * jnp.minimum(longer * clumps, jnp.maximum(demand.most - at.decodes, 0.0)) + start
    return TokenTimes(tpot, (likely * met).sum() + crowd, crowd, at.plain, most)


def _work(
    times: Times, demand: Demand, at: EngineStep, crowds: Crowds, share: Array, mean: Array, clumps: Array
) -> Delays:
    """Delays by prompts: the variance is the larger of that of prompts and that of crowded steps."""
    share = jnp.minimum(share, BUSIEST)
    each = jnp.vectorize(times.step_s)
    drawn, likely = demand.prompt_lengths()
    tokens = demand.computed * drawn
    keys = demand.input_tokens * drawn
    whole = jnp.maximum(jnp.floor(tokens / demand.chunk - 1e-9), 0.0)
    rest = tokens - whole * demand.chunk
    last = each(at.decodes, demand.context, rest, jnp.maximum(keys - 0.5 * rest, 0.5 * keys))
    before = each(at.decodes, demand.context, demand.chunk, keys - rest - 0.5 * whole * demand.chunk)
    alone = jnp.maximum(last - at.plain + whole * (before - at.plain), 0.0) + 1e-12 * mean
    square = (likely * alone**2).sum() / (likely * alone).sum() ** 2
    more = crowds.seconds - at.plain
    of_steps = jnp.maximum(at.share * (crowds.likely * more**2).sum() - (share * mean) ** 2, 0.0) / mean
    varies = jnp.maximum(share**2 / jnp.maximum(demand.rate, 1e-30) * square * clumps, of_steps)
    by_prompts = crowds.likely * jnp.maximum(more, 1e-12 * mean)  # of long steps more requests have their first token
    by_prompts = by_prompts / by_prompts.sum()
    step = (by_prompts * crowds.seconds).sum()
    spread = (by_prompts * (crowds.seconds - step) ** 2).sum()
    close = share / jnp.maximum(demand.rate, 1e-30) * jnp.maximum(others(demand.arrival_cv, demand.rate * step), 0.0)
    return Delays(share, varies, share * step + close, varies * step + share**2 * spread)


def _answers(demand: Demand) -> tuple[Array, Array]:
    """Lengths of answers over their mean, and how likely each is."""
    if demand.answers is not None:
        return demand.answers[..., 0], demand.answers[..., 1]
    spread = jnp.sqrt(jnp.log1p(jnp.maximum(demand.output_cv**2, 1e-9)))
    return jnp.exp(spread * NODES - 0.5 * spread**2), jnp.asarray(LIKELY)


def _beside(
    times: Times, demand: Demand, at: EngineStep, slope: Array, answers: tuple[Array, Array], longer: Array
) -> Array:
    """Variance of a request's mean step by what decodes beside it, were these as many as come by chance alone."""
    ones = jnp.ones_like(demand.context)

    def reading(context: Array) -> Array:
        return times.step_s(at.decodes, context, jnp.zeros_like(context), demand.keys)

    by_context = jax.jvp(reading, (demand.context,), (ones,))[1] / jnp.maximum(at.decodes, 1e-9)
    skewed = 1 + demand.output_cv**2  # who is found decoding is so much longer than the mean, and halfway through
    age, age_square = 0.5 * demand.output_tokens * skewed, demand.output_tokens**2 * skewed**3 / 3
    mean = demand.input_tokens + age
    square = demand.input_tokens**2 * (1 + demand.input_cv**2) + 2 * demand.input_tokens * age + age_square
    each = slope**2 + by_context**2 * jnp.maximum(square - mean**2, 0.0)
    lengths, likely = answers
    own, stay = lengths[:, None], longer * lengths[None]
    until = jnp.minimum(own, stay)
    there = own * stay * until - 0.5 * (own + stay) * until**2 + until**3 / 3
    kept = 2 / lengths**2 * (there * likely).sum(1) / (likely * longer * lengths).sum()
    return each * at.decodes * (likely * kept).sum()
