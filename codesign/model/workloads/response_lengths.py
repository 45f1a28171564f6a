"""Batch of responses on a limited number of slots: how many are under way when, from the first token to the last.

Lengths are lognormal and cut at a maximum, as a rollout engine cuts them. They are read at few nodes, more of them in
the tail, since the longest of a batch decide when it ends. With n responses of mean length mu and variation c on B
slots of a replica, x = n / B, time counted in decode steps:

    x <= 1      all begin at once: after s steps a share S(s) = P(L > s) is under way
    x >> 1      slots stay full for K steps, then each has the rest of a response left (renewal theory):
                p(s) = E[(L - s)+] / mu,   K = mu (x - (1 + c^2) / 2)
    between     w S + (1 - w) p with w = exp(-2 (x - 1) / (1 + c^2)), and K by which no work is lost:
                K = mu (x - w - (1 - w) (1 + c^2) / 2), never negative

A slot that is free takes the next response of a queue that all replicas share. Of B slots that end independently some
is under way with probability 1 - (1 - p)^B, on any of R replicas with 1 - (1 - p)^(B R): whoever waits for all waits
for that one. All of it follows from plan and lengths; hardware decides how long steps take.

Assumes: the mix between regimes (w) is interpolation; replicas run in step with each other.
Source: residual life [asmussen2003] chapter V; held against an event simulation in `tests/test_rl_post_training.py`.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...core.smooth import TINY, at_least, at_most, ratio
from .quantiles import normal_quantiles

__all__ = ["LEVELS", "DrainingBatch", "ResponseLengths", "cut_lengths", "drained"]

BODY, TAIL = 48, 15  # nodes: equally likely ones, then each half as likely as the one before
IN_TAIL = 0.04  # share of responses that the latter stand for
LEVELS = 6  # batches at which steps are priced: from all slots to one, in equal ratios
BEFORE, POINTS, TRIED = 16, 12, 64  # batches before this one, places in a batch, lengths of one that are tried
SURE = 1 - 1e-12  # no probability of a logarithm is larger


def _nodes() -> tuple[np.ndarray, np.ndarray]:
    """(levels of a standard normal distribution, how likely each is)."""
    halves = IN_TAIL * 0.5 ** np.arange(1, TAIL + 1)
    halves[-1] *= 2  # all that is left
    weight = np.concatenate([np.full(BODY, (1 - IN_TAIL) / BODY), halves])
    return normal_quantiles(np.cumsum(weight) - 0.5 * weight), weight


NODES, WEIGHTS = _nodes()


class ResponseLengths(NamedTuple):
    """Lengths that rise, and how likely each is."""

    tokens: Array
    weight: Array

    def mean(self) -> Array:
        """E[L]."""
        return (self.weight * self.tokens).sum()

    def square(self) -> Array:
        """E[L^2]."""
        return (self.weight * self.tokens**2).sum()

    def longer(self, than: Array) -> Array:
        """P(L > t), each node spread to the middle of its neighbours."""
        middle = 0.5 * (self.tokens[1:] + self.tokens[:-1])
        low = jnp.concatenate([2 * self.tokens[:1] - middle[:1], middle])
        high = jnp.concatenate([middle, self.tokens[-1:]])
        width = at_least(high - low, 1e-6 * at_least(high, TINY))
        return jnp.clip((high - than[..., None]) / width, 0.0, 1.0) @ self.weight

    def cv(self) -> Array:
        """Standard deviation over mean."""
        spread = at_least(self.square() / self.mean() ** 2 - 1, 0.0)
        varied = spread > TINY
        return jnp.where(varied, jnp.sqrt(jnp.where(varied, spread, 1.0)), 0.0)


def cut_lengths(mean: Array, cv: Array, most: Array) -> ResponseLengths:
    """Lognormal lengths of a mean and variation, those above `most` cut there."""
    varied = cv > 0
    spread = jnp.where(varied, jnp.sqrt(jnp.log1p(jnp.where(varied, cv * cv, 1.0))), 0.0)
    weight = jnp.asarray(WEIGHTS)
    drawn = jnp.exp(spread * jnp.asarray(NODES))
    return ResponseLengths(at_most(mean * drawn / (weight * drawn).sum(), most), weight)


class DrainingBatch(NamedTuple):
    """Decode steps of a batch on one replica, by how many sequences they carry.

    batch, steps, context: of each level, the first with all slots that are used: sequences of a step, how many such
    steps there are until no more are left than may be, on any replica, mean context. held: tokens in the caches of a
    replica at the fullest moment.
    """

    batch: Array
    steps: Array
    context: Array
    held: Array


def drained(
    lengths: ResponseLengths, prompt: Array, count: Array, slots: Array, replicas: Array, stale: Array | float = 0.0
) -> DrainingBatch:
    """Steps in which a replica's `count` responses to prompts of `prompt` tokens are decoded on `slots` slots.

    Args:
        lengths: of the responses.
        prompt: tokens before each.
        count: responses of a replica that a batch completes.
        slots: responses that a replica decodes together, at most.
        replicas: that share one queue.
        stale: responses that may be under way when a batch is complete, over `count`.
    """
    tokens, weight, mean = lengths.tokens, lengths.weight, lengths.mean()
    varied = 1 + lengths.cv() ** 2
    left = stale * count
    rounds = (count + left) / slots
    fresh = jnp.where(rounds <= 1, 1.0, jnp.exp(-2 * at_least(rounds - 1, 0.0) / varied))
    full = mean * at_least(rounds - fresh - (1 - fresh) * varied / 2, 0.0) * jnp.where(rounds > 1, 1.0, 0.0)
    used = at_most(count + left, slots)

    begins = jnp.concatenate([jnp.zeros(1), tokens[:-1]])
    lasts, middle = tokens - begins, 0.5 * (tokens + begins)
    longer = jnp.cumsum(weight[::-1])[::-1]  # share that is longer than `begins`
    over = at_least(tokens - middle[:, None], 0.0) @ weight  # E[(L - s)+]
    squares = at_least(tokens**2 - middle[:, None] ** 2, 0.0) @ weight
    young, rest = fresh * longer, (1 - fresh) * over / mean
    active = at_most(young + rest, SURE)
    decoded = ratio(young * middle + rest * 0.5 * ratio(squares, over), young + rest)

    idle_chance = jnp.log1p(-active)
    here, anywhere = 1 - jnp.exp(used * idle_chance), 1 - jnp.exp(used * replicas * idle_chance)
    batch = at_least(used * active / at_least(here, TINY), 1.0)
    steps = lasts * anywhere * _before(used * active, left)
    again = jnp.where(left > 0, count * mean / (slots * full + steps @ batch), 1.0)

    level = at_least(used, 1.0) ** jnp.linspace(1.0, 0.0, LEVELS)
    settled = jnp.zeros(LEVELS).at[0].set(1.0) * full
    mean_context = 0.5 * lengths.square() / mean
    on_level, tokens_held = _leveled(batch, steps, decoded, level)
    on_level, tokens_held = on_level + settled, tokens_held + settled * slots * mean_context

    flow_s, flow_active, flow_decoded = _flowing(lengths, at_least(stale, TINY))
    flow_used = at_most(at_least(count * flow_active, 1.0), at_least(used, 1.0))
    flow, flow_held = _leveled(flow_used, flow_s * count * flow_active / flow_used, flow_decoded, level)
    flows = jnp.where(left > 0, fresh, 0.0)
    on_level = flows * flow + (1 - flows) * again * on_level
    tokens_held = flows * flow_held + (1 - flows) * again * tokens_held
    context = prompt + ratio(tokens_held, on_level * level, mean_context)
    most = jnp.maximum(
        (used * active * (prompt + decoded)).max(), jnp.where(full > 0, slots, 0.0) * (prompt + mean_context)
    )
    flow_most = (count * flow_active * (prompt + flow_decoded)).max()
    return DrainingBatch(level, on_level, context, flows * flow_most + (1 - flows) * most)


def _leveled(batch: Array, steps: Array, decoded: Array, level: Array) -> tuple[Array, Array]:
    """(steps on each level, tokens that their sequences have decoded, summed): between two levels in proportion."""
    gaps = at_least(level[:-1] - level[1:], TINY)
    above = jnp.clip((batch[:, None] - level[1:]) / gaps, 0.0, 1.0)  # of each level but the last: 1 from it upwards
    share = jnp.concatenate([above, jnp.ones_like(batch)[:, None]], 1)
    share = at_least(share - jnp.concatenate([jnp.zeros_like(batch)[:, None], above], 1), 0.0)
    return steps @ share, (steps * decoded) @ share * level


def _flowing(lengths: ResponseLengths, stale: Array) -> tuple[Array, Array, Array]:
    """(steps, responses under way over those of a batch, tokens decoded of each) at places in a batch of a pipeline.

    Every batch begins all of its responses at once, and ends when `stale` batches of responses are under way.
    """
    before = jnp.arange(1, BEFORE + 1.0)
    tried = lengths.mean() * jnp.geomspace(1e-2, 1.0, TRIED) * at_least(lengths.tokens[-1] / lengths.mean(), 1.0)
    result = lengths.longer(tried[:, None] * before).sum(1)
    beyond = at_least(lengths.tokens - (BEFORE + 0.5) * tried[:, None], 0.0) @ lengths.weight / tried
    result = result + beyond
    crossed = jnp.clip(ratio(result[:-1] - stale, result[:-1] - result[1:], 0.0), 0.0, 1.0)
    crossed = jnp.where(result[:-1] > stale, jnp.where(result[1:] >= stale, 1.0, crossed), 0.0)
    period = tried[0] * at_most(result[0] / stale, 1.0) + ((tried[1:] - tried[:-1]) * crossed).sum()
    age = period * ((jnp.arange(POINTS) + 0.5) / POINTS)[:, None] + period * jnp.arange(BEFORE + 1.0)
    active = lengths.longer(age)
    last = at_least(lengths.tokens - age[:, -1:] - 0.5 * period, 0.0) @ lengths.weight / period
    under_way = active.sum(1) + last
    decoded = ((active * age).sum(1) + last * age[:, -1]) / at_least(under_way, TINY)
    scale = lengths.mean() / (period * under_way.mean())  # tokens of a batch, where few places round them
    return jnp.ones(POINTS) * (period * scale / POINTS), under_way, decoded


def _before(active: Array, left: Array | float) -> Array:
    """Share of each interval in which more than `left` are under way, of a number that falls from one to the next."""
    middle = 0.5 * (active[:-1] + active[1:])
    begins, ends = jnp.concatenate([active[:1], middle]), jnp.concatenate([middle, jnp.zeros(1)])
    return jnp.clip(ratio(begins - left, begins - ends, 1.0), 0.0, 1.0)
