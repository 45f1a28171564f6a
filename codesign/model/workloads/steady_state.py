"""Continuous batching in its steady state: how many steps carry prompts, how many tokens, how long a prompt waits.

Numbers of the plan and of the requests alone: hardware decides how long a step takes, not what is in it. Symbols: b
sequences decode together, each for L steps; a prompt has I tokens to compute, a step takes at most c of them.

    x = b / L                              prompts that come in a step: one for each sequence that ends
    rho = x I / c                          share of the prompt tokens' room that is used; below 1 or they pile up
    p = rho + (1 - r) (P1 e(1) + P2 e(n))  share of steps that carry prompt tokens
    q = x I / p                            prompt tokens in one of those, on average
    m = p - (1 - p) (k + w) / L            share of a sequence's own decode steps that carry prompt tokens

One prompt comes in P1 = x exp(-x) of the steps, several in P2 = 1 - exp(-x) - P1, then n of them on average. Behind
others a prompt begins in the rest of their last chunk, so room is lost only at the end of those who leave nobody
behind: e, what their last chunk leaves empty. Whoever comes finds work left over with probability r = (rho - P1 - P2) /
(1 - P1 - P2), 0 where all fit into one step: that of a queue in discrete time.

A prompt that meets nobody takes k = E[ceil(I / c)] steps. It waits w more, as in a queue with work x I a step and the
second moment of I (Pollaczek and Khinchine), but who waits does not decode, and sends nobody after him: with n waiting
1 - rho becomes 1 - rho (1 - n / b). At the mean n = x w that is a quadratic equation,

    w = 2 W / (1 - rho + sqrt((1 - rho)^2 + 4 rho W / L)) (b - 1) / b,    W = rho (I / c) (1 + v^2) / 2

where the last factor is because nobody waits for himself. x (k + w) requests are no decodes yet, and in steps without
prompts there are none: those decode b + x (k + w) sequences, which makes m less than p.

Kernels work in tiles, so that a step at the mean q may be much shorter than the mean of steps with c tokens and with
rests. Where prompts are longer than a chunk, the steps that are priced are therefore whole chunks (tokens = c), and one
with q tokens counts as q / c of them and 1 - q / c of a step without prompts; else tokens = q.

Assumes: prompts come independently of each other, and their lengths are lognormal with coefficient of variation v
unless they are known; sums of several are lognormal.
"""

import functools
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.fields import Module, quantity
from ...core.smooth import at_least, at_most, ceil, floor
from .kinds import Kinds

__all__ = [
    "FULLEST", "LEVELS", "SOME_IDLE", "GroupPrompts", "Lockstep", "Rhythm", "RoomTaken", "SteadyState", "chunks",
    "chunks_lost", "fitting", "length_nodes", "mixed_share", "room_wait_s", "steady_state", "whole_chunks",
]  # fmt: skip


# Clients of a closed loop that stay in step: what their prompts make each other wait.
#
# Each client sends its next request when it has its answer. All start at once, and where lengths are alike they end
# together and come again together. Of C requests that are open at a time, one waits for so many prompts of others:
#
#     a = ((n - 1) + burst_ratio (C - 1)) / 2,  at most C - 1
#
# with n = cohort_prompts (at most C) where lengths are alike, 1 where they vary. burst_ratio is the share of a run
# that is still as at its start: 1 / rounds where each client sends so many requests, else as the engine was measured.
# Those a prompts are not met again between tokens.
#
# Of clients that have no place, queued_ratio of them for each that has one, each waits for the whole service S of
# those before it: by Little's law (C q / C) S = queued_ratio S more to the first token.


class Lockstep(Module):
    """See the module. Without an engine that was measured nobody is in step, and `steady_state` says who waits.

    `client_overhead_s` is the time of a host that serves its clients one by one, for each other request that is open;
    `handover_s` what a prompt's cache takes from one pool to another beside its way over the link.
    """

    burst_ratio: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share of a run that is as at its start")
    cohort_prompts: Float[Array, "*b"] = quantity(low=1.0, high=1e6, default=1.0, doc="that come together")
    rounds: Float[Array, "*b"] = quantity(
        high=1e9, default=0.0, doc="requests of a client; 0 as the engine was measured"
    )
    client_overhead_s: Float[Array, "*b"] = quantity(default=0.0, doc="the host's, for each other request")
    queued_ratio: Float[Array, "*b"] = quantity(high=1e6, default=0.0, doc="clients without a place, for each with one")
    handover_s: Float[Array, "*b"] = quantity(default=0.0, doc="of a prompt's cache to the pool that decodes")

    def start_share(self) -> Array:
        """Share of a run that is still as at its start."""
        finite = self.rounds > 0
        return jnp.where(finite, jnp.minimum(1 / jnp.where(finite, self.rounds, 1.0), 1.0), self.burst_ratio)

    def prompts_before(self, requests: Array, varied: Array) -> Array:
        """Prompts of others that one waits for.

        Args:
            requests: open at a time, from 1 on.
            varied: whether their lengths vary.
        """
        others = at_least(requests - 1, 0.0)
        alike = jnp.minimum(self.cohort_prompts, at_least(requests, 1.0)) - 1
        return jnp.minimum((jnp.where(varied, 0.0, alike) + self.start_share() * others) / 2, others)

    def later_s(self, requests: Array, service_s: Array) -> Array:
        """Seconds by which a first token is later for the host that serves others, and for want of a place.

        Args:
            requests: open at a time, from 1 on.
            service_s: of a request that has a place, from its admission to its end.
        """
        others = at_least(requests * (1 + self.queued_ratio) - 1, 0.0)
        return self.client_overhead_s * others + self.queued_ratio * service_s


# Clients of a closed loop who wait for room in the key-value cache: how many fit, and how long the others wait.
#
# A request holds room from when it is admitted to its end: its own prompt at once, its answer token by token. An
# engine that takes room back where it lacks some (preemption) fills it with requests as large as they are on average;
# one that promises the whole answer before it begins (no eviction) fills it with requests as large as they become:
#
#     R = room / own tokens,      own = I + L / 2 + half a block where room is taken back, I + L + half a block else
#
# What requests share (a prefix that is in the cache once) is no room of theirs: it is taken from the room once, I is
# what is left. Of C clients B = min(C, R) are served at a time. With S the seconds of a request from its admission to
# its end among B of them, Little's law for those who are served and for all says
#
#     rate = B / S = C / (W + S),      W = (C / B - 1) S
#
# W is before the first token, and between tokens an engine has B sequences, not C.
#
# Assumes: an engine whose room is full keeps it full; what is computed again after a preemption is little beside S.
# Who is taken back waits between tokens: a simulated engine that takes room back has first tokens 15 to 40 % sooner
# and 15 % more between tokens than this says, and whole requests within 6 %; one that promises is within 12 and 5 %.
# Source: Little's law; room promised or taken back, as engines document it [kwon2023].


class RoomTaken(NamedTuple):
    """Bytes of a device that a cache may fill, what is in it once for all, and what a request of its own holds.

    mean_bytes: on average over its stay; whole_bytes: at its end.
    """

    room_bytes: np.ndarray
    shared_bytes: np.ndarray
    mean_bytes: np.ndarray
    whole_bytes: np.ndarray


def fitting(held: RoomTaken, promised: np.ndarray) -> np.ndarray:
    """Requests that a device has room for at once; none is negative.

    Args:
        held: what there is and what a request takes.
        promised: whether an engine promises the whole answer before it begins one.
    """
    own = np.where(promised, held.whole_bytes, held.mean_bytes)
    return np.maximum(held.room_bytes - held.shared_bytes, 0.0) / own


def room_wait_s(clients: np.ndarray, served: np.ndarray, service_s: np.ndarray) -> np.ndarray:
    """Seconds that a client waits for room: (C / B - 1) S."""
    return np.maximum(clients / served - 1, 0.0) * service_s


NODES = 16  # quantiles that stand for the lengths of prompts
LEVELS = tuple(NormalDist().inv_cdf((node + 0.5) / NODES) for node in range(NODES))
FEW = 1e-3  # arrivals in a step below which a series stands for what would cancel
FULLEST = 1 - 1e-6  # of the room for prompts; what is fuller is refused by a rule of the plan
SOME_IDLE = 1e-9  # least share of steps without prompts: a power of zero has no slope


class SteadyState(NamedTuple):
    """See the module.

    Arrivals x, load rho; share p of steps with prompts, and m of a sequence's own; tokens of a step as it is priced,
    and how many such steps one with prompts counts as; steps k of a prompt that meets nobody, how many such steps one
    of those counts as, and steps w that it waits.
    """

    arrivals: Array
    load: Array
    share: Array
    met: Array
    tokens: Array
    counted: Array
    own_steps: Array
    own_counted: Array
    waiting_steps: Array


class Rhythm(NamedTuple):
    """Rhythm of steps: the steady state of one attention group, and the share of steps in which any has prompts."""

    state: SteadyState
    decodes: Array  # of one attention group in one step
    steps: Array  # in which a sequence decodes its answer
    mixed: Array
    met: Array  # the same share among the steps that a sequence decodes in
    shared_tokens: Array  # prompt tokens of a mixed step, mean over the groups that step together


class GroupPrompts(NamedTuple):
    """Prompts that attention groups that step together bring each other, where each decodes so many sequences.

    others: share of steps in which one of the others has prompts; `tokens` of them that such a step takes; alike:
    prompt tokens of a step, mean over the groups, for each of one's own; idle: share of its steps without prompts.
    """

    others: Array
    tokens: Array
    alike: Array
    idle: Array


def length_nodes(mean: Array, cv: Array) -> Array:
    """Equally likely lengths with the given mean, along a last axis [..., nodes]."""
    varied = cv > 0
    spread = jnp.where(varied, jnp.sqrt(jnp.log1p(jnp.where(varied, cv * cv, 1.0))), 0.0)
    drawn = jnp.exp(spread[..., None] * np.array(LEVELS))
    return mean[..., None] * NODES * drawn / drawn.sum(-1, keepdims=True)


def _mean_of(function: Callable[[Array], Array], mean: Array, cv: Array, kinds: Kinds) -> Array:
    """Mean of a function of lengths [..., n], lognormal ones where no kinds are known."""
    mean = jnp.asarray(mean)
    if kinds:
        lengths, shares, _ = np.array(kinds).T
        return (shares * function(mean[..., None] * lengths)).sum(-1)
    return function(length_nodes(mean, jnp.asarray(cv))).sum(-1) / NODES


def chunks(mean: Array, cv: Array, chunk: Array, kinds: Kinds = ()) -> Array:
    """Mean number of chunks that a length is cut into."""
    size = jnp.asarray(chunk)[..., None]
    return _mean_of(lambda length: at_least(ceil(length / size), 1.0), mean, cv, kinds)


def whole_chunks(mean: Array, cv: Array, chunk: Array, kinds: Kinds = ()) -> Array:
    """Mean number of whole chunks in a length."""
    size = jnp.asarray(chunk)[..., None]
    return _mean_of(lambda length: floor(length / size), mean, cv, kinds)


def chunks_lost(mean: Array, cv: Array, chunk: Array, kinds: Kinds = ()) -> Array:
    """Room of the last chunk that a length leaves empty, in chunks."""
    return at_least(chunks(mean, cv, chunk, kinds) - mean / chunk, 0.0)


def mixed_share(
    arrivals: Array,
    none: Array,
    alone: Array,
    load: Array,
    tokens: Array,
    cv: Array,
    chunk: Array,
    lost_by: Callable[[Array, Array, Array], Array] = chunks_lost,
    lost_alone: Array | None = None,
) -> Array:
    """Share of steps that carry prompt tokens: at least the load, at most all.

    Args:
        arrivals: prompts that come in a step, on average.
        none, alone: shares of steps in which nobody comes, and one alone.
        load, tokens, cv, chunk: as in `steady_state`.
        lost_by: as `chunks_lost`, of lengths along a first axis.
        lost_alone: the same of one prompt, where its lengths are known.
    """
    several = at_least(1 - none - alone, 0.0)
    some = arrivals > FEW
    count = jnp.where(some, (arrivals - alone) / jnp.where(some, several, 1.0), 2 + arrivals / 3)
    spread = jnp.sqrt(at_least((cv * cv + 1 - 2 / count) / count, 1e-12))
    if lost_alone is None:
        means, spreads = (jnp.stack(jnp.broadcast_arrays(*pair)) for pair in ((tokens, count * tokens), (cv, spread)))
        lost = (jnp.stack(jnp.broadcast_arrays(alone, several)) * lost_by(means, spreads, chunk)).sum(0)
    else:
        lost = alone * lost_alone + several * lost_by(count * tokens, spread, chunk)
    left = at_most(at_least(load - alone - several, 0.0) / at_least(none, 1e-12), 1.0)
    return at_most(load + (1 - left) * lost, 1.0)


@functools.partial(jax.jit, static_argnames="kinds")  # traced once for all who ask
def steady_state(
    decodes: Array, steps: Array, tokens: Array, cv: Array, chunk: Array, kinds: Kinds = ()
) -> SteadyState:
    """Steady state of steps: how many carry prompts, how many tokens, how long a prompt waits.

    Args:
        decodes: sequences that one step decodes.
        steps: in which one of them decodes its answer.
        tokens: of a prompt that are computed.
        cv: coefficient of variation of prompts.
        chunk: prompt tokens that a step takes at most.
        kinds: lengths of prompts as they are; () where they are lognormal.
    """
    arrivals = decodes / steps
    load = arrivals * tokens / chunk
    served = at_most(load, FULLEST)
    nobody = jnp.exp(-arrivals)
    alone = chunks_lost(tokens, cv, chunk, kinds) if kinds else None
    share = mixed_share(arrivals, nobody, arrivals * nobody, served, tokens, cv, chunk, lost_alone=alone)
    work, slack = served * tokens / chunk * (1 + cv * cv) / 2, 1 - served
    waiting = 2 * work / (slack + jnp.sqrt(slack**2 + 4 * served * work / steps)) * (decodes - 1) / decodes
    own = chunks(tokens, cv, chunk, kinds)
    met = at_least(share - (1 - share) * (own + waiting) / steps, 0.0)
    mean = arrivals * tokens / share
    long = tokens > chunk
    counted = jnp.where(long, at_most(mean / chunk, 1.0), 1.0)
    own_counted = jnp.where(long, at_most(tokens / own / chunk, 1.0), 1.0)
    return SteadyState(arrivals, load, share, met, jnp.where(long, chunk, mean), counted, own, own_counted, waiting)
