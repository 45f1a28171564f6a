"""Latency where requests come at a rate: the wait for a place, the time to a first token, the time between tokens."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...core.smooth import bounded, lower, upper
from .mean_step import Demand, EngineStep, Times, prompt_steps
from .quantiles import (
    MixtureComponent,
    Percentiles,
    QuantileBrackets,
    gamma_quantiles,
    moments,
    normal_quantiles,
    tail_quantiles,
)

__all__ = [
    "EVEN", "Crowds", "SlotWait", "TokenTimes", "alone", "beside_by_kinds", "binned", "carried_by_kinds",
    "crowds_at", "first_token", "others", "place_wait", "token_times",
]  # fmt: skip


# Prompt tokens that a step carries, and those that arrive in it, for known lengths of prompts (`kinds`).
#
# A prompt of I tokens makes floor(I / c) steps of a whole chunk c and one of the rest. Others come beside it: of the
# short, of the long or of neither, split at the mean length. A gamma distribution, which is what stands for them
# where lengths are lognormal, would put many steps between those with a short prompt and those with a long one: there
# are none.


EDGES = np.array([0.0, 0.2, 0.4, 0.6, 0.75, 0.86, 0.94, 0.98, 1.0])  # shares of steps, apart for what crowds are few of

HALFWAY = 0.25
"""Power of a ratio of variances that takes deviations half of the way: fitted, one constant, by hand on simulated
conditions of one seed; `benchmarks/two_kinds.py` has others."""


def _two(kinds: Array) -> tuple[Array, Array]:
    """Lengths over the mean and shares of the short and of the long."""
    long = kinds[:, 0] > 1
    shares = jnp.stack([(kinds[:, 1] * part).sum() for part in (~long, long)])
    sums = jnp.stack([(kinds[:, 0] * kinds[:, 1] * part).sum() for part in (~long, long)])
    return sums / upper(shares, 1e-12), shares


def carried_by_kinds(demand: Demand, kinds: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Prompt tokens of steps that carry any, and how likely each is.

    In long steps more come, so that steps that carry many follow each other: `variance` is that of such a recursion.
    Neither it nor what independent prompts give is right; deviations are taken halfway, in the logarithm.
    """
    lengths = demand.computed * kinds[:, 0]
    whole = upper(jnp.floor(lengths / demand.chunk - 1e-9), 0.0)
    own = jnp.concatenate([lengths - whole * demand.chunk, jnp.broadcast_to(demand.chunk, lengths.shape)])
    weight = jnp.concatenate([kinds[:, 1], kinds[:, 1] * whole])
    weight = weight / weight.sum()
    more = upper(mean / (own * weight).sum() - 1, 0.0)  # others in the step, of whom some find no room
    sizes, shares = _two(kinds)
    come = more * shares
    none = jnp.exp(-come)
    beside = jnp.stack([0.0 * more, *(demand.computed * sizes * come / upper(1 - none, 1e-12))])
    likely = jnp.stack([none[0] * none[1], (1 - none[0]) * none[1], 1 - none[1]])
    carried = lower(own[:, None] + beside, demand.chunk).ravel()
    result, often = binned(carried, (weight[:, None] * likely).ravel())
    own = (often * (result - (often * result).sum()) ** 2).sum()
    wider = upper(variance / upper(own, 1e-9 * mean**2), 1.0) ** HALFWAY
    result = bounded(mean + wider * (result - (often * result).sum()), 0.02 * mean, demand.chunk)
    return result, often


def binned(values: Array, weight: Array) -> tuple[Array, Array]:
    """Means of ranges of a distribution between the shares `EDGES`, and how likely each is."""
    order = jnp.argsort(values)
    values, weight = values[order], weight[order]
    ends = jnp.cumsum(weight)
    begins = ends - weight
    low, high = EDGES[:-1, None], EDGES[1:, None]
    within = upper(lower(ends, high) - upper(begins, low), 0.0)
    return within @ values / within.sum(1), within.sum(1) / within.sum()


def beside_by_kinds(demand: Demand, kinds: Array, nobody: Array, mean: Array) -> tuple[Array, Array]:
    """Tokens of others who come in a step: of nobody, of short prompts, of long ones as well; how likely each is.

    Args:
        demand: who comes.
        kinds: lengths of prompts.
        nobody: how likely that is.
        mean: number of others.
    """
    sizes, shares = _two(kinds)
    share = upper(-jnp.log(bounded(nobody, 1e-300, 1.0)), 1e-12)  # clumps of so many in the mean
    no_long = jnp.exp(-share * shares[1])
    size = mean / share
    short = share * shares[0] * size * sizes[0]
    long = share * shares[1] * size * sizes[1] / upper(1 - no_long, 1e-12) + short
    alone = short / upper(1 - jnp.exp(-share * shares[0]), 1e-12)
    tokens = demand.input_tokens * jnp.stack([0.0 * alone, alone, long])
    return tokens, jnp.stack([nobody, upper(no_long - nobody, 0.0), 1 - no_long])


# Requests that come in clumps: how many others are near, where the gaps between arrivals vary.
#
# Around an arrival of a renewal process come, within a time t to either side, lambda t requests as of any stream, and
#
#     e(t) = (a^2 - 1) / 2 (1 - exp(-(lambda t / x)^b))        a the variation of gaps; its limit is exact (Smith)
#
# more: none where a = 1. So requests come as if in clumps, of 1 + e on average, that know nothing of each other. x
# and b follow the renewal function of gamma-distributed gaps, within 0.05 of the limit for a from 0.5 to 5 and lambda
# t from 0.005 to 8.
#
# Source: [smith1958], the limit; x and b fitted to sums of incomplete gamma functions, not to any simulation.


LEAST = 1e-12
EVEN = 0.1  # variation of gaps below which they count as this
SCALE, SCALES = 0.224, 0.045  # of x, by a^2
SHAPE, SHAPES = 0.17, 0.56  # of b, by 1 / a


def others(arrival_cv: Array, mean: Array) -> Array:
    """Expected number of arrivals beyond `mean` within a time to one side of an arrival."""
    cv = upper(arrival_cv, EVEN)
    log = jnp.log(upper(mean, LEAST) / (SCALE + SCALES * cv * cv)) * (SHAPE + SHAPES / cv)
    result = 0.5 * (cv * cv - 1) * -jnp.expm1(-jnp.exp(lower(log, 5.0)))
    return upper(result, -0.9 * lower(mean, 1.0))


def alone(mean: Array, more: Array) -> Array:
    """Probability that nobody has come in a time before an arrival, `mean` of any stream and `more` in its clump."""
    return jnp.exp(-mean / (1 + more)) / (1 + more)


# The wait for a place in a batch, where requests come at a rate and an engine has c places.
#
# A request takes a place from its own prompt steps to its last token, H = k + L steps. With n places taken, and for
# each that is given back another one taken, a step takes s(n): what n decodes take, and the prompts of n / H
# requests. So places are given back at a rate n / (H s(n)), and from c on at c / (H s(c)) whoever waits. A
# birth-and-death process has
#
#     p(n) = p(0) prod_(j <= n) lambda H s(j) / j,    rho = lambda H s(c) / c < 1
#     P(wait) = p(c) / (1 - rho) / (p(0) + ... + p(c - 1) + p(c) / (1 - rho))
#
# as long as n < c whatever the lengths of answers are (processor sharing), and who waits does so for a time that is
# exponential with mean (H s(c) / c) / (1 - rho) (a^2 + v^2) / 2, a the variation of gaps, v that of steps of an
# answer. With s affine between c / 2 and c, p is a negative binomial distribution; the sum is an integral over
# numbers that lie the closer the nearer to c. Gaps that vary more than a Poisson stream's come as if in clumps of z,
# each of which takes a place of z (Hayward): c / z and lambda / z stand for c and lambda.
#
# Assumes: prompts that share an engine's time with decodes as these do among themselves.
# Source: processor sharing [kelly1979], clumps [fredericks1980], the two variations [kingman1961]; held against
# `simulation.serving`; nothing is fitted.


WAIT_POINTS, WAIT_WEIGHTS = np.polynomial.legendre.leggauss(16)

BELOW = 0.5 * (WAIT_POINTS + 1)  # square roots of how far numbers are from c, over c

PARTS = WAIT_WEIGHTS * BELOW  # of the integral

FARTHEST = 80.0  # of logarithms of probabilities that are told apart: still a number in single precision
LEAST_LEFT = 1e-4  # of the places: beyond it nobody's wait has an end
LEAST_GROWTH = 1e-6  # of a step, from no place taken to all


class SlotWait(NamedTuple):
    """Probability that all places are taken, mean of the wait where they are, and `load` of all: too much at 1."""

    late: Array
    seconds: Array
    load: Array

    @property
    def mean(self) -> Array:
        """Mean wait of all requests, seconds."""
        return self.late * self.seconds

    @property
    def variance(self) -> Array:
        """Variance of the wait of all requests, which is exponential or none."""
        return self.late * (2 - self.late) * self.seconds**2


def place_wait(times: Times, demand: Demand, at: EngineStep) -> SlotWait:
    """Wait for a place of one engine, whose mean step is `at`."""
    most, steps = demand.most, demand.steps + prompt_steps(demand)
    tokens = lower(demand.rate * at.mean * demand.computed / at.share, demand.chunk)
    prompts = demand.computed / tokens  # steps that a request fills with prompt tokens
    places, carried = jnp.stack([most, 0.5 * most]), jnp.stack([jnp.zeros_like(tokens), tokens])
    each = jax.vmap(jax.vmap(times.step_s, (0, None, None, None)), (None, None, 0, None))
    plain, mixed = each(places, demand.context, carried, demand.keys)
    full, half = plain + places / steps * prompts * (mixed - plain)  # each that ends is followed by another
    grows = 2 * (full - half)  # from no place to all, were it as between half of them and all
    grows = bounded(grows, LEAST_GROWTH * full, full)
    load = demand.rate * steps * full / most
    left = upper(1 - load, LEAST_LEFT)
    clump = 1 + others(demand.arrival_cv, most)
    fewer = _all_over(most / clump, demand.rate * steps * grows / most, full / grows - 1)
    late = 1 / (1 + left * fewer)
    varied = demand.arrival_cv**2 + (demand.output_cv * demand.steps / steps) ** 2
    return SlotWait(late, steps * full / most / left * 0.5 * varied, load)


def _all_over(places: Array, ratio: Array, start: Array) -> Array:
    """Probability of fewer than all places over that of just all.

    Args:
        places: c.
        ratio: lambda H times what one more lengthens a step by.
        start: a step with no place taken over how much longer one with all is.
    """
    rising, number = start * places + 1, -places * BELOW**2 - 0.5  # from c down; the middle of a number is the number
    often = jnp.log(ratio * (rising + places) / (places + 1))
    first, second = _falls(jnp.stack([rising + places, places + 1])[:, None], number)
    over = number * often + first - second
    return places * (PARTS * jnp.exp(lower(over, FARTHEST))).sum()


def _falls(value: Array, by: Array) -> Array:
    """Logarithm of gamma(value + by) / (gamma(value) value^by), plus `by`; from 0.5 on (Stirling)."""
    after = value + by
    return (after - 0.5) * jnp.log1p(by / value) + _rest(after) - _rest(value)


def _rest(value: Array) -> Array:
    return (1 / 12 - 1 / (360 * value**2)) / value


# The time to a first token where requests come at a rate: what is left of the step that runs, wait, own steps.
#
#     wait     rho (I / c) ((1 + v^2) / 2 + e) / (1 - rho) steps, v the variation of prompts, e how many more come
#              close to each other than of a Poisson stream (`clumps`); rho of the requests wait (with clumps more), for
#              a time that is exponential
#
#     place    as in `place_wait`, before the rest
#
# Who comes in a step shares the next one with whoever else comes in it; of a clump those in front are served first.


CROWDS = ((0.3, 0.6), (0.8, 0.3), (0.965, 0.1))  # quantile of prompt tokens in a step, its probability
LEVELS = normal_quantiles(level for level, _ in CROWDS)
STEEPEST = 0.95  # elasticity of a step's length beyond which spells of many would not end
LEAST_LATE = 1e-3  # share of requests that wait: of fewer no percentile tells, and their wait would have no scale
FEW, MANY = (0.8, -0.5), (0.2, 2.0)  # of counts: probability, and standard deviations from their mean


class Crowds(NamedTuple):
    """Mixed steps by how many prompt tokens they carry: seconds, and how likely each is."""

    seconds: Array
    likely: Array


def crowds_at(times: Times, demand: Demand, at: EngineStep, decodes: Array) -> Crowds:
    """Seconds of steps with prompts, of which few carry the mean.

    In a step of T seconds come compound Poisson tokens, which lengthen the next one by g each: their variance is
    lambda T I^2 (1 + 2 e + v^2) / (1 - (g lambda I)^2), that of a first-order recursion. Their quantiles are those of
    a gamma distribution with that and the mean of a mixed step, at most a chunk.
    """
    tokens = lower(demand.rate * at.mean * demand.computed / at.share, demand.chunk)
    lengthens = lower((at.mixed - at.plain) / tokens * demand.rate * demand.computed, STEEPEST)
    come = demand.rate * at.mean
    clumped = upper(1 + 2 * others(demand.arrival_cv, 0.5 * come), 0.0) + demand.input_cv**2
    varies = come * demand.computed**2 * clumped / (1 - lengthens**2)
    square = (varies + (come * demand.computed) ** 2) / at.share
    shape = upper(tokens**2 / upper(square - tokens**2, 1e-9 * tokens**2), 0.05)
    if demand.prompts is not None:
        carried, likely = carried_by_kinds(demand, demand.prompts, tokens, square - tokens**2)
        seconds = jax.vmap(times.step_s, (None, None, 0, None))(decodes, demand.context, carried, demand.keys)
        return Crowds(seconds, likely)
    likely = jnp.array([weight for _, weight in CROWDS])
    drawn = upper(1 - 1 / (9 * shape) + LEVELS / (3 * jnp.sqrt(shape)), 0.02) ** 3
    carried = lower(tokens * drawn / (drawn * likely).sum(), demand.chunk)
    seconds = jax.vmap(times.step_s, (None, None, 0, None))(decodes, demand.context, carried, demand.keys)
    return Crowds(seconds, likely)


class ArrivalSteps(NamedTuple):
    """Steps that run when somebody comes, none first: seconds, and how likely each is."""

    seconds: Array
    likely: Array


def _met(demand: Demand, at: EngineStep, crowds: Crowds, decodes: Array) -> ArrivalSteps:
    """Steps that a request finds running: one that comes in a clump finds another, and its prompt, more often."""
    idle = alone(decodes, others(demand.arrival_cv, decodes))
    before = 0.5 * at.plain * (1 - idle)
    later, sooner = others(demand.arrival_cv, demand.rate * jnp.stack([before + at.mixed, before]))
    close = upper(later - sooner, 0.0)
    usual = at.share * at.mixed / at.mean
    mixed = usual + (1 - usual) * close / (1 + close)
    plain = upper(1 - mixed, 0.0) * (1 - idle)
    by_length = crowds.likely * crowds.seconds / (crowds.likely * crowds.seconds).sum()
    shares = jnp.concatenate([jnp.zeros(1), plain[None], mixed * by_length])
    busy = plain + mixed
    shares = jnp.concatenate([(1 - busy)[None], shares[1:]])
    return ArrivalSteps(jnp.concatenate([jnp.zeros(1), at.plain[None], crowds.seconds]), shares)


class CoArrivals(NamedTuple):
    """Others that come in the step that somebody comes in: tokens, how likely; those of a clump who are in front."""

    tokens: Array
    likely: Array
    ahead: Array


def _beside(demand: Demand, seconds: Array) -> CoArrivals:
    """Nobody, few or many; [number of these, steps]."""
    usual = demand.rate * seconds
    more = others(demand.arrival_cv, 0.5 * usual)
    nobody = jnp.exp(-usual / (1 + more)) / (1 + more) ** 2
    some = upper(1 - nobody, 1e-12)
    mean = (usual + 2 * more) / some
    square = (usual * (1 + 2 * upper(more, 0.0)) + 2 * more * (1 + more) + (usual + 2 * more) ** 2) / some
    spread = jnp.sqrt(upper(square - mean**2, 0.0) + 1e-12)
    clump = upper(more, 0.0) / upper(usual + 2 * upper(more, 0.0), 1e-12)
    if demand.prompts is not None:
        tokens, likely = beside_by_kinds(demand, demand.prompts, nobody, mean * some)
        return CoArrivals(tokens, likely, clump)
    counts = [jnp.zeros_like(mean), *(upper(mean + way * spread, 0.0) for _, way in (FEW, MANY))]
    likely = [nobody, *(part * (1 - nobody) for part, _ in (FEW, MANY))]
    return CoArrivals(demand.input_tokens * jnp.stack(counts), jnp.stack(likely), clump)


def first_token(
    times: Times,
    demand: Demand,
    at: EngineStep,
    crowds: Crowds,
    places: SlotWait,
    found: QuantileBrackets | None = None,
) -> tuple[Percentiles, Array, QuantileBrackets]:
    """Mean and percentiles, variance, and where percentiles were found.

    Who waits for a place waits for prompts as long as others on average.

    Args:
        times: of steps.
        demand: what comes.
        at: the mean step.
        crowds: steps with prompts.
        places: how often all are taken.
        found: see `tail_quantiles`.
    """
    decodes = at.decodes
    full = at.full
    size = demand.input_tokens / demand.chunk
    more = others(demand.arrival_cv, demand.rate * size * full / (1 - at.load))
    wait = size * (at.load * (1 + demand.input_cv**2) / 2 + more) / (1 - at.load) * full
    late = bounded((at.load + more) / (1 + more), 1e-9, 1.0)  # who comes in clumps finds somebody more often
    met = _met(demand, at, crowds, decodes)
    beside = _beside(demand, met.seconds)
    counted = (met.likely * (beside.likely * beside.tokens).sum(0) * beside.ahead).sum() / demand.chunk * full
    own_part = at.share * at.mixed**2 / (2 * at.mean)  # of the step that runs, its prompts
    wait = upper(wait - own_part - lower(counted, size * full * more), 0.0)
    drawn, common = demand.prompt_lengths()
    length = (demand.input_tokens * drawn)[:, None, None]
    tokens = beside.tokens
    ahead = tokens * beside.ahead
    whole = jnp.floor((length + ahead) / demand.chunk - 1e-9)
    rest = length + ahead - whole * demand.chunk
    shared = lower(rest + jnp.where(length > demand.chunk, 0.0, tokens - ahead), demand.chunk)
    keys = upper(length - 0.5 * shared, 0.5 * length)
    each = jnp.vectorize(times.step_s)
    own = each(decodes, demand.context, shared, keys)
    own = own + whole * each(decodes, demand.context, demand.chunk, 0.5 * lower(whole * demand.chunk, length))
    weight = common[:, None, None] * beside.likely * met.likely
    left = jnp.broadcast_to(met.seconds, own.shape)
    mean = (weight * (own + 0.5 * left)).sum() + wait + places.mean
    behind = wait / late
    if demand.prompts is not None:
        late = jnp.broadcast_to(_late_behind(met, late), own.shape).ravel()
        behind = wait / upper(weight.ravel() @ late, LEAST_LATE)
    result = MixtureComponent(own.ravel(), left.ravel(), weight.ravel(), late, behind)
    waits = result._replace(late=jnp.asarray(1.0), seconds=places.seconds + wait)
    waits = waits.gathered(own[0].size)
    parts = result.likely(1 - places.late), waits.likely(places.late)
    told, found = tail_quantiles(*parts, found=found)
    return Percentiles(mean, *told), moments(*parts)[1], found


def _late_behind(met: ArrivalSteps, late: Array) -> Array:
    """Probability of waiting further, by the step met: behind the fullest steps, since others leave nothing over."""
    longer = jnp.cumsum(met.likely[::-1])[::-1] - met.likely
    return bounded((late - longer) / upper(met.likely, 1e-12), 0.0, 1.0)


# Time between tokens where requests come at a rate: its mean, and how it varies between requests.
#
# A sequence of L steps, f0 seconds each without prompts, is held up by the prompts that come meanwhile, each by the
# seconds S that it lengthens steps by; while it is held up more come. So its time is a delay cycle [conway1967], with
# w = lambda E[S] the share of time that goes to prompts, f0 = s (1 - w) of a mean step s, and W the work that waits
# when it starts: what came during the step that gave its own first token.
#
#     mean       s + E[W] / (1 - w) / L
#     variance   s lambda E[S^2] / (1 - w)^2 / L + (Var W / (1 - w)^2 + E[W] lambda E[S^2] / (1 - w)^3) / L^2
#
# both averaged over lengths. Prompts too short to lengthen a step alone do so in crowds: then the variance is that of
# steps which carry few or many. To it comes that of what is decoded beside: a number n of sequences and the cache
# that they read, in spells that last as long as answers do, times z = 1 / (1 - e) as there are more of them when
# steps are longer (e the elasticity of a step's length). With R(u) the share of these that is still there after a
# time u,
#
#     over a time t    2 / t^2 integral_0^t (t - u) R(u) du,    R(u) = E[(z L - u)+] / (z E[L])
#
# Assumes: lengths lognormal and independent of each other; no step longer than one with a full chunk.


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
        most = upper(self.most_s - self.mean_s, 0.0)
        return Percentiles(self.mean_s, *lower(free, beside + most))


class Delays(NamedTuple):
    """Seconds that prompts lengthen steps by: share of time, variance a second, and what one starts behind."""

    share: Array
    varies: Array
    waiting: Array
    waiting_varies: Array


def token_times(
    times: Times, demand: Demand, at: EngineStep, crowds: Crowds, slope: Array, places: SlotWait
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
    full_met = lower(places.late * demand.most / upper(at.decodes, 1e-12), 1.0)
    own_place = full_met / demand.most
    near, around, after = others(demand.arrival_cv, jnp.stack([0.5 * at.decodes, at.decodes, demand.rate * at.mixed]))
    clumps = upper(1 + 2 * near, 0.0)
    longer = 1 / (1 - lower(slope * at.decodes / at.mean, STEEPEST))
    lengths, likely = _answers(demand)
    steps = upper(demand.steps * lengths, 1.0)
    held = upper((crowds.likely * crowds.seconds).sum() - at.plain, at.mixed - at.plain)
    mean = at.mean + at.share * (
        held - (at.mixed - at.plain)
    )  # a full step is longer by more than an empty one shorter
    mean = mean - own_place * at.share * held
    most = upper(at.full, at.mixed)
    work = _work(times, demand, at, crowds, at.share * (1 - own_place) * held / mean, mean, clumps)
    delays = 1 / (1 - work.share)
    starts = lower(work.waiting * delays / steps, upper(most - mean, 0.0))
    start = (likely * starts).sum()
    own = work.waiting_varies * delays**2 + work.waiting * work.varies * delays**3
    met = mean * work.varies * delays**2 / steps + own / steps**2 + (starts - start) ** 2
    start = start + upper(around - after, 0.0) * (at.mixed - at.plain) / demand.steps
    crowd = _beside_tokens(times, demand, at, slope, (lengths, likely), longer) * longer * clumps
    crowd = crowd * (1 - full_met)
    tpot = mean + slope * lower(longer * clumps, upper(demand.most - at.decodes, 0.0)) + start
    return TokenTimes(tpot, (likely * met).sum() + crowd, crowd, at.plain, most)


def _work(
    times: Times, demand: Demand, at: EngineStep, crowds: Crowds, share: Array, mean: Array, clumps: Array
) -> Delays:
    """Delays by prompts: the variance is the larger of that of prompts and that of crowded steps."""
    share = lower(share, BUSIEST)
    each = jnp.vectorize(times.step_s)
    drawn, likely = demand.prompt_lengths()
    tokens = demand.computed * drawn
    keys = demand.input_tokens * drawn
    whole = upper(jnp.floor(tokens / demand.chunk - 1e-9), 0.0)
    rest = tokens - whole * demand.chunk
    last = each(at.decodes, demand.context, rest, upper(keys - 0.5 * rest, 0.5 * keys))
    before = each(at.decodes, demand.context, demand.chunk, keys - rest - 0.5 * whole * demand.chunk)
    alone = upper(last - at.plain + whole * (before - at.plain), 0.0) + 1e-12 * mean
    square = (likely * alone**2).sum() / (likely * alone).sum() ** 2
    more = crowds.seconds - at.plain
    of_steps = upper(at.share * (crowds.likely * more**2).sum() - (share * mean) ** 2, 0.0) / mean
    varies = upper(share**2 / upper(demand.rate, 1e-30) * square * clumps, of_steps)
    by_prompts = crowds.likely * upper(more, 1e-12 * mean)  # of long steps more requests have their first token
    by_prompts = by_prompts / by_prompts.sum()
    step = (by_prompts * crowds.seconds).sum()
    spread = (by_prompts * (crowds.seconds - step) ** 2).sum()
    close = share / upper(demand.rate, 1e-30) * upper(others(demand.arrival_cv, demand.rate * step), 0.0)
    return Delays(share, varies, share * step + close, varies * step + share**2 * spread)


def _answers(demand: Demand) -> tuple[Array, Array]:
    """Lengths of answers over their mean, and how likely each is."""
    if demand.answers is not None:
        return demand.answers[..., 0], demand.answers[..., 1]
    spread = jnp.sqrt(jnp.log1p(upper(demand.output_cv**2, 1e-9)))
    return jnp.exp(spread * NODES - 0.5 * spread**2), jnp.asarray(LIKELY)


def _beside_tokens(
    times: Times, demand: Demand, at: EngineStep, slope: Array, answers: tuple[Array, Array], longer: Array
) -> Array:
    """Variance of a request's mean step by what decodes beside it, were these as many as come by chance alone."""
    ones = jnp.ones_like(demand.context)

    def reading(context: Array) -> Array:
        return times.step_s(at.decodes, context, jnp.zeros_like(context), demand.keys)

    by_context = jax.jvp(reading, (demand.context,), (ones,))[1] / upper(at.decodes, 1e-9)
    skewed = 1 + demand.output_cv**2  # who is found decoding is so much longer than the mean, and halfway through
    age, age_square = 0.5 * demand.output_tokens * skewed, demand.output_tokens**2 * skewed**3 / 3
    mean = demand.input_tokens + age
    square = demand.input_tokens**2 * (1 + demand.input_cv**2) + 2 * demand.input_tokens * age + age_square
    each = slope**2 + by_context**2 * upper(square - mean**2, 0.0)
    lengths, likely = answers
    own, stay = lengths[:, None], longer * lengths[None]
    until = lower(own, stay)
    there = own * stay * until - 0.5 * (own + stay) * until**2 + until**3 / 3
    kept = 2 / lengths**2 * (there * likely).sum(1) / (likely * longer * lengths).sum()
    return each * at.decodes * (likely * kept).sum()
