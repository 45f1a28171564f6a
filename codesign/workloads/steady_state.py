"""Continuous batching in its steady state: how many steps carry prompts, how many tokens, how long a prompt waits.

Numbers of the plan and of the requests alone: hardware decides how long a step takes, not what is in it. Symbols: b
sequences decode together, each for L steps; a prompt has I tokens to compute, a step takes at most c of them.

    x = b / L                             prompts that come in a step: one for each sequence that ends
    rho = x I / c                         share of the prompt tokens' room that is used; below 1 or they pile up
    p = rho + g (1 - rho) (k - J / c)     share of steps that carry prompt tokens
    q = x I / p                           prompt tokens in one of those

g = 1 - exp(-x) of the steps see somebody come, with J = I x / g tokens together, which alone take k = E[ceil(J / c)]
steps. Behind others a prompt begins in the rest of their last chunk; room is lost only where it leaves nobody behind,
which is the case for the share 1 - rho: so p c = rho c + g (1 - rho) (k c - J). Waiting is that of a queue with work
x I a step and the second moment of I (Pollaczek and Khinchine), in steps:

    w = rho (I / c) (1 + v^2) / (2 (1 - rho)) (b - 1) / b

with the last factor because in a closed loop nobody waits for himself.

Assumes: prompts come independently of each other, and their lengths are lognormal with coefficient of variation v.
"""

from statistics import NormalDist
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ..smooth import at_least, at_most, ceil

NODES = 16  # quantiles that stand for the lengths of prompts
LEVELS = tuple(NormalDist().inv_cdf((node + 0.5) / NODES) for node in range(NODES))
FULLEST = 1 - 1e-6  # of the room for prompts; what is fuller is refused by a rule of the plan


class SteadyState(NamedTuple):
    """See the module: arrivals x, load rho, share p, tokens q, own steps of a prompt, steps that it waits."""

    arrivals: Array
    load: Array
    share: Array
    tokens: Array
    own_steps: Array
    waiting_steps: Array


def length_nodes(mean: Array, cv: Array) -> list[Array]:
    """Equally likely lengths with the given mean."""
    varied = cv > 0
    spread = jnp.where(varied, jnp.sqrt(jnp.log1p(jnp.where(varied, cv * cv, 1.0))), 0.0)
    drawn = [jnp.exp(spread * level) for level in LEVELS]
    total = drawn[0]
    for one in drawn[1:]:
        total = total + one
    return [mean * NODES * one / total for one in drawn]


def chunks(mean: Array, cv: Array, chunk: Array) -> Array:
    """Mean number of chunks that a length is cut into."""
    total = jnp.zeros_like(mean)
    for length in length_nodes(mean, cv):
        total = total + at_least(ceil(length / chunk), 1.0)
    return total / NODES


def steady_state(decodes: Array, steps: Array, tokens: Array, cv: Array, chunk: Array) -> SteadyState:
    """What steps carry.

    Args:
        decodes: sequences that one step decodes.
        steps: in which one of them decodes its answer.
        tokens: of a prompt that are computed.
        cv: coefficient of variation of prompts.
        chunk: prompt tokens that a step takes at most.
    """
    arrivals = decodes / steps
    load = arrivals * tokens / chunk
    served = at_most(load, FULLEST)
    seen = -jnp.expm1(-arrivals)
    together = tokens * arrivals / seen
    lost = at_least(chunks(together, cv, chunk) - together / chunk, 0.0)
    share = at_most(served + seen * (1 - served) * lost, 1.0)
    alone = at_least((decodes - 1) / decodes, 0.0)
    waiting = served * tokens / chunk * (1 + cv * cv) / (2 * (1 - served)) * alone
    return SteadyState(arrivals, load, share, arrivals * tokens / share, chunks(tokens, cv, chunk), waiting)
