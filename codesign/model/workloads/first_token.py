"""The time to a first token where requests come at a rate: what is left of the step that runs, wait, own steps.

    wait     rho (I / c) ((1 + v^2) / 2 + e) / (1 - rho) steps, v the variation of prompts, e how many more come
             close to each other than of a Poisson stream (`clumps`); rho of the requests wait (with clumps more), for
             a time that is exponential

    place    as in `place_wait`, before the rest

Who comes in a step shares the next one with whoever else comes in it; of a clump those in front are served first.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .arriving_load import Demand, Times
from .clumps import alone, others
from .crowds import beside_by_kinds, carried_by_kinds
from .mean_step import EngineStep
from .place_wait import PlaceWait
from .quantiles import Percentiles, Summed, moments, normal_quantiles, tail_quantiles

__all__ = ["STEEPEST", "Crowds", "crowds_at", "first_token"]

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
    tokens = jnp.minimum(demand.rate * at.mean * demand.computed / at.share, demand.chunk)
    lengthens = jnp.minimum((at.mixed - at.plain) / tokens * demand.rate * demand.computed, STEEPEST)
    come = demand.rate * at.mean
    clumped = jnp.maximum(1 + 2 * others(demand.arrival_cv, 0.5 * come), 0.0) + demand.input_cv**2
    varies = come * demand.computed**2 * clumped / (1 - lengthens**2)
    square = (varies + (come * demand.computed) ** 2) / at.share
    shape = jnp.maximum(tokens**2 / jnp.maximum(square - tokens**2, 1e-9 * tokens**2), 0.05)
    if demand.prompts is not None:
        carried, likely = carried_by_kinds(demand, demand.prompts, tokens, square - tokens**2)
        seconds = jax.vmap(times.step_s, (None, None, 0, None))(decodes, demand.context, carried, demand.keys)
        return Crowds(seconds, likely)
    likely = jnp.array([weight for _, weight in CROWDS])
    drawn = jnp.maximum(1 - 1 / (9 * shape) + LEVELS / (3 * jnp.sqrt(shape)), 0.02) ** 3
    carried = jnp.minimum(tokens * drawn / (drawn * likely).sum(), demand.chunk)
    seconds = jax.vmap(times.step_s, (None, None, 0, None))(decodes, demand.context, carried, demand.keys)
    return Crowds(seconds, likely)


class Met(NamedTuple):
    """Steps that run when somebody comes, none first: seconds, and how likely each is."""

    seconds: Array
    likely: Array


def _met(demand: Demand, at: EngineStep, crowds: Crowds, decodes: Array) -> Met:
    """Steps that a request finds running: one that comes in a clump finds another, and its prompt, more often."""
    idle = alone(decodes, others(demand.arrival_cv, decodes))
    before = 0.5 * at.plain * (1 - idle)
    later, sooner = others(demand.arrival_cv, demand.rate * jnp.stack([before + at.mixed, before]))
    close = jnp.maximum(later - sooner, 0.0)
    usual = at.share * at.mixed / at.mean
    mixed = usual + (1 - usual) * close / (1 + close)
    plain = jnp.maximum(1 - mixed, 0.0) * (1 - idle)
    by_length = crowds.likely * crowds.seconds / (crowds.likely * crowds.seconds).sum()
    shares = jnp.concatenate([jnp.zeros(1), plain[None], mixed * by_length])
    busy = plain + mixed
    shares = jnp.concatenate([(1 - busy)[None], shares[1:]])
    return Met(jnp.concatenate([jnp.zeros(1), at.plain[None], crowds.seconds]), shares)


class BesideIt(NamedTuple):
    """Others that come in the step that somebody comes in: tokens, how likely; those of a clump who are in front."""

    tokens: Array
    likely: Array
    ahead: Array


def _beside(demand: Demand, seconds: Array) -> BesideIt:
    """Nobody, few or many; [number of these, steps]."""
    usual = demand.rate * seconds
    more = others(demand.arrival_cv, 0.5 * usual)
    nobody = jnp.exp(-usual / (1 + more)) / (1 + more) ** 2
    some = jnp.maximum(1 - nobody, 1e-12)
    mean = (usual + 2 * more) / some
    square = (usual * (1 + 2 * jnp.maximum(more, 0.0)) + 2 * more * (1 + more) + (usual + 2 * more) ** 2) / some
    spread = jnp.sqrt(jnp.maximum(square - mean**2, 0.0) + 1e-12)
    clump = jnp.maximum(more, 0.0) / jnp.maximum(usual + 2 * jnp.maximum(more, 0.0), 1e-12)
    if demand.prompts is not None:
        tokens, likely = beside_by_kinds(demand, demand.prompts, nobody, mean * some)
        return BesideIt(tokens, likely, clump)
    counts = [jnp.zeros_like(mean), *(jnp.maximum(mean + way * spread, 0.0) for _, way in (FEW, MANY))]
    likely = [nobody, *(part * (1 - nobody) for part, _ in (FEW, MANY))]
    return BesideIt(demand.input_tokens * jnp.stack(counts), jnp.stack(likely), clump)


def first_token(
    times: Times, demand: Demand, at: EngineStep, crowds: Crowds, decodes: Array, places: PlaceWait
) -> tuple[Percentiles, Array]:
    """Mean and percentiles, and variance; who waits for a place waits for prompts as long as others on average."""
    full = at.full
    size = demand.input_tokens / demand.chunk
    more = others(demand.arrival_cv, demand.rate * size * full / (1 - at.load))
    wait = size * (at.load * (1 + demand.input_cv**2) / 2 + more) / (1 - at.load) * full
    late = jnp.clip((at.load + more) / (1 + more), 1e-9, 1.0)  # who comes in clumps finds somebody more often
    met = _met(demand, at, crowds, decodes)
    beside = _beside(demand, met.seconds)
    counted = (met.likely * (beside.likely * beside.tokens).sum(0) * beside.ahead).sum() / demand.chunk * full
    own_part = at.share * at.mixed**2 / (2 * at.mean)  # of the step that runs, its prompts
    wait = jnp.maximum(wait - own_part - jnp.minimum(counted, size * full * more), 0.0)
    drawn, common = demand.prompt_lengths()
    length = (demand.input_tokens * drawn)[:, None, None]
    tokens = beside.tokens
    ahead = tokens * beside.ahead
    whole = jnp.floor((length + ahead) / demand.chunk - 1e-9)
    rest = length + ahead - whole * demand.chunk
    shared = jnp.minimum(rest + jnp.where(length > demand.chunk, 0.0, tokens - ahead), demand.chunk)
    keys = jnp.maximum(length - 0.5 * shared, 0.5 * length)
    each = jnp.vectorize(times.step_s)
    own = each(decodes, demand.context, shared, keys)
    own = own + whole * each(decodes, demand.context, demand.chunk, 0.5 * jnp.minimum(whole * demand.chunk, length))
    weight = common[:, None, None] * beside.likely * met.likely
    left = jnp.broadcast_to(met.seconds, own.shape)
    mean = (weight * (own + 0.5 * left)).sum() + wait + places.mean
    behind = wait / late
    if demand.prompts is not None:
        late = jnp.broadcast_to(_late_behind(met, late), own.shape).ravel()
        behind = wait / jnp.maximum(weight.ravel() @ late, LEAST_LATE)
    result = Summed(own.ravel(), left.ravel(), weight.ravel(), late, behind)
    waits = result._replace(late=jnp.asarray(1.0), seconds=places.seconds + wait)
    waits = waits.gathered(own[0].size)
    parts = result.likely(1 - places.late), waits.likely(places.late)
    return Percentiles(mean, *tail_quantiles(*parts)), moments(*parts)[1]


def _late_behind(met: Met, late: Array) -> Array:
    """Probability of waiting further, by the step met: behind the fullest steps, since others leave nothing over."""
    longer = jnp.cumsum(met.likely[::-1])[::-1] - met.likely
    return jnp.clip((late - longer) / jnp.maximum(met.likely, 1e-12), 0.0, 1.0)
