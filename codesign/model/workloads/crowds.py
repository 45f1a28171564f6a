"""Prompt tokens that a step carries, and those that arrive in it, for known lengths of prompts (`kinds`).

A prompt of I tokens makes floor(I / c) steps of a whole chunk c and one of the rest. Others come beside it: of the
short, of the long or of neither, split at the mean length. A gamma distribution, which is what stands for them where
lengths are lognormal, would put many steps between those with a short prompt and those with a long one: there are none.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .arriving_load import Demand

__all__ = ["beside_by_kinds", "carried_by_kinds"]

EDGES = np.array([0.0, 0.2, 0.4, 0.6, 0.75, 0.86, 0.94, 0.98, 1.0])  # shares of steps, apart for what crowds are few of

HALFWAY = 0.25
"""Power of a ratio of variances that takes deviations half of the way: fitted, one constant, by hand on simulated
conditions of one seed; `benchmarks/two_kinds.py` has others."""


def _two(kinds: Array) -> tuple[Array, Array]:
    """Lengths over the mean and shares of the short and of the long."""
    long = kinds[:, 0] > 1
    shares = jnp.stack([(kinds[:, 1] * part).sum() for part in (~long, long)])
    sums = jnp.stack([(kinds[:, 0] * kinds[:, 1] * part).sum() for part in (~long, long)])
    return sums / jnp.maximum(shares, 1e-12), shares


def carried_by_kinds(demand: Demand, kinds: Array, mean: Array, variance: Array) -> tuple[Array, Array]:
    """Prompt tokens of steps that carry any, and how likely each is.

    In long steps more come, so that steps that carry many follow each other: `variance` is that of such a recursion.
    Neither it nor what independent prompts give is right; deviations are taken halfway, in the logarithm.
    """
    lengths = demand.computed * kinds[:, 0]
    whole = jnp.maximum(jnp.floor(lengths / demand.chunk - 1e-9), 0.0)
    own = jnp.concatenate([lengths - whole * demand.chunk, jnp.broadcast_to(demand.chunk, lengths.shape)])
    weight = jnp.concatenate([kinds[:, 1], kinds[:, 1] * whole])
    weight = weight / weight.sum()
    more = jnp.maximum(mean / (own * weight).sum() - 1, 0.0)  # others in the step, of whom some find no room
    sizes, shares = _two(kinds)
    come = more * shares
    none = jnp.exp(-come)
    beside = jnp.stack([0.0 * more, *(demand.computed * sizes * come / jnp.maximum(1 - none, 1e-12))])
    likely = jnp.stack([none[0] * none[1], (1 - none[0]) * none[1], 1 - none[1]])
    carried = jnp.minimum(own[:, None] + beside, demand.chunk).ravel()
    result, often = binned(carried, (weight[:, None] * likely).ravel())
    own = (often * (result - (often * result).sum()) ** 2).sum()
    wider = jnp.maximum(variance / jnp.maximum(own, 1e-9 * mean**2), 1.0) ** HALFWAY
    result = jnp.clip(mean + wider * (result - (often * result).sum()), 0.02 * mean, demand.chunk)
    return result, often


def binned(values: Array, weight: Array) -> tuple[Array, Array]:
    """Means of ranges of a distribution between the shares `EDGES`, and how likely each is."""
    order = jnp.argsort(values)
    values, weight = values[order], weight[order]
    ends = jnp.cumsum(weight)
    begins = ends - weight
    low, high = EDGES[:-1, None], EDGES[1:, None]
    within = jnp.maximum(jnp.minimum(ends, high) - jnp.maximum(begins, low), 0.0)
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
    share = jnp.maximum(-jnp.log(jnp.clip(nobody, 1e-300, 1.0)), 1e-12)  # clumps of so many in the mean
    no_long = jnp.exp(-share * shares[1])
    size = mean / share
    short = share * shares[0] * size * sizes[0]
    long = share * shares[1] * size * sizes[1] / jnp.maximum(1 - no_long, 1e-12) + short
    alone = short / jnp.maximum(1 - jnp.exp(-share * shares[0]), 1e-12)
    tokens = demand.input_tokens * jnp.stack([0.0 * alone, alone, long])
    return tokens, jnp.stack([nobody, jnp.maximum(no_long - nobody, 0.0), 1 - no_long])
