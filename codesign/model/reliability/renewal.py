"""Cost of failures and checkpoints: how much longer a job takes that begins again from its last checkpoint.

With failures at a rate r, work w between checkpoints of c seconds, and R seconds until work begins again, each able to
fail once more, a stretch of w takes on average

    exp(r R) (exp(r (w + c)) - 1) / r

so that time grows by exp(r R) times `growth(r (w + c))` times (w + c) / w. It is least where
w / M = 1 - exp(-(w + c) / M), M = 1 / r; there it is exp(r R) times `least_growth(r c)`. To first order
w = sqrt(2 c M) and 1 + sqrt(2 c / M) + R / M.

Log-convex in r, R, c and w together: (exp(x) - 1) / r is a series of products of powers with positive factors; and in
r, R, c where w is the best, as least over w of what is convex in the logarithms together.

Assumes: failures come at a constant rate, whatever has happened before; those during a checkpoint lose the stretch.
Source: [daly2006] equation 16; [young1974].
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.smooth import TINY, operation

LEAST = 1e-16  # of a checkpoint's time over the time between failures
HOPELESS = 60.0  # of an exponent: a job that takes e^60 times as long, and all beyond, never ends
STEPS = 6  # of Newton's method from above, where each squares the error: 4e-16 over the whole range after five


@operation
def growth(x: Any) -> Float[Array, "..."]:
    """(exp(x) - 1) / x, 1 at 0: its logarithm is convex in that of x; constant beyond x = 60."""
    some = jnp.clip(x, TINY, HOPELESS)
    return jnp.expm1(some) / some


@operation
def least_growth(a: Any) -> Float[Array, "..."]:
    """By how much checkpoints and work done twice lengthen a job at the best interval: y >= 1, 1 / y + log y = 1 + a.

    a is the time of a checkpoint over the mean time between failures. Newton's method for z = log y on
    exp(-z) + z - 1 = a from above, where the left side is convex and rising; one step more carries the slope. Constant
    below a = 1e-16, where it is 1 to eight digits and its slope grows without end, and beyond 60.
    """
    wanted = jnp.clip(a, LEAST, HOPELESS)
    z = jax.lax.stop_gradient(wanted + jnp.sqrt(2 * wanted))
    for _ in range(STEPS):
        z = z - jax.lax.stop_gradient((_excess(z) - wanted) / -jnp.expm1(-z))
    z = jax.lax.stop_gradient(z)
    return jnp.exp(z + (wanted - jax.lax.stop_gradient(wanted)) / -jnp.expm1(-z))


def _excess(z: Any, numbers: Any = jnp) -> Any:
    """exp(-z) - 1 + z, without what cancels where z is small."""
    small = z * z * (0.5 - z * (1 / 6 - z * (1 / 24 - z * (1 / 120 - z / 720))))
    return numbers.where(z < 0.02, small, numbers.expm1(-z) + z)


def best_growth(a: float) -> float:
    """`least_growth` of one number, without arrays."""
    wanted = min(max(a, LEAST), HOPELESS)
    z = wanted + math.sqrt(2 * wanted)
    for _ in range(STEPS):
        z -= (float(_excess(z, np)) - wanted) / -math.expm1(-z)
    return math.exp(z)


def best_interval_s(rate_hz: Array | float, checkpoint_s: Array | float) -> Array:
    """Seconds of work between checkpoints for which a job takes least: M (1 - 1 / y), y = `least_growth`.

    At the optimum exp(-(w + c) / M) = 1 - w / M, and the time has grown by exp((w + c) / M) = y.
    """
    return (1 - 1 / least_growth(rate_hz * checkpoint_s)) / rate_hz


def young_interval_s(rate_hz: Array | float, checkpoint_s: Array | float) -> Array | float:
    """Best interval to first order, sqrt(2 c M), for checkpoints that are short beside the time between failures."""
    return (2 * checkpoint_s / rate_hz) ** 0.5
