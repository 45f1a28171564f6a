"""Requests that come in clumps: how many others are near, where the gaps between arrivals vary.

Around an arrival of a renewal process come, within a time t to either side, lambda t requests as of any stream, and

    e(t) = (a^2 - 1) / 2 (1 - exp(-(lambda t / x)^b))        a the variation of gaps; its limit is exact (Smith)

more: none where a = 1. So requests come as if in clumps, of 1 + e on average, that know nothing of each other. x and b
follow the renewal function of gamma-distributed gaps, within 0.05 of the limit for a from 0.5 to 5 and lambda t from
0.005 to 8.

Source: [smith1958], the limit; x and b fitted to sums of incomplete gamma functions, not to any simulation.
"""

import jax.numpy as jnp
from jaxtyping import Array

__all__ = ["EVEN", "alone", "others"]

LEAST = 1e-12
EVEN = 0.1  # variation of gaps below which they count as this
SCALE, SCALES = 0.224, 0.045  # of x, by a^2
SHAPE, SHAPES = 0.17, 0.56  # of b, by 1 / a


def others(arrival_cv: Array, mean: Array) -> Array:
    """Expected number of arrivals beyond `mean` within a time to one side of an arrival."""
    cv = jnp.maximum(arrival_cv, EVEN)
    log = jnp.log(jnp.maximum(mean, LEAST) / (SCALE + SCALES * cv * cv)) * (SHAPE + SHAPES / cv)
    result = 0.5 * (cv * cv - 1) * -jnp.expm1(-jnp.exp(jnp.minimum(log, 5.0)))
    return jnp.maximum(result, -0.9 * jnp.minimum(mean, 1.0))


def alone(mean: Array, more: Array) -> Array:
    """Probability that nobody has come in a time before an arrival, `mean` of any stream and `more` in its clump."""
    return jnp.exp(-mean / (1 + more)) / (1 + more)
