"""Means and percentiles: of a gamma distribution above a floor, and of a sum that is drawn from few numbers.

Fixed numbers of rounds on all points at once; the last one carries the derivatives (implicit function theorem).
"""

from collections.abc import Iterable
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..smooth import TINY

__all__ = [
    "SHARES",
    "Percentiles",
    "above",
    "lognormal",
    "normal_quantiles",
    "spread_about",
    "tail_quantiles",
    "tailed",
]

SHARES = (0.5, 0.9, 0.99)
NORMAL = (0.0, 1.2815515655446004, 2.3263478740408408)  # quantiles of a normal distribution at these shares
ROUNDS = 10
WIDEST = 600.0  # of a sum's range over its mean wait: further off nobody waits that a double could tell
PROMPTS = 128  # equally likely quantiles of prompts
SOME = ([(node + 0.5) / 5 * 0.95 for node in range(5)], [0.95 / 5] * 5)  # few, and those that percentiles rest on
RARE = ([0.965, 0.985, 0.9965], [0.03, 0.013, 0.007])


def normal_quantiles(shares: Iterable[float]) -> np.ndarray:
    """What so much of a standard normal distribution stays below: numbers that no program has to compute again."""
    return np.array([NormalDist().inv_cdf(share) for share in shares])


EVEN = normal_quantiles((prompt + 0.5) / PROMPTS for prompt in range(PROMPTS))
TAILED = normal_quantiles(SOME[0] + RARE[0])


class Percentiles(NamedTuple):
    """Mean, and the value that so many of a hundred stay below."""

    mean: Array
    p50: Array
    p90: Array
    p99: Array


def above(floor: Array, mean: Array, variance: Array) -> Percentiles:
    """Of a gamma distribution above a floor (Wilson and Hilferty)."""
    extra = jnp.maximum(mean - floor, 1e-12)
    shape = jnp.maximum(extra**2 / jnp.maximum(variance, 1e-30), 0.05)
    cubes = [1 - 1 / (9 * shape) + level / (3 * jnp.sqrt(shape)) for level in NORMAL]
    return Percentiles(mean, *(floor + extra * jnp.maximum(cube, 0.0) ** 3 for cube in cubes))


def spread_about(mean: Array, variance: Array) -> Percentiles:
    """Of a lognormal distribution."""
    log = jnp.log1p(variance / mean**2)
    return Percentiles(mean, *(mean * jnp.exp(jnp.sqrt(log) * level - 0.5 * log) for level in NORMAL))


def lognormal(cv: Array) -> Array:
    """Equally likely lengths over their mean."""
    varied = cv > 0
    spread = jnp.where(varied, jnp.sqrt(jnp.log1p(jnp.where(varied, cv * cv, 1.0))), 0.0)
    drawn = jnp.exp(spread * EVEN)
    return drawn / drawn.mean()


def tailed(cv: Array) -> tuple[Array, Array]:
    """Lengths over their mean and how likely each is, with more of the long ones."""
    spread = jnp.sqrt(jnp.log1p(jnp.maximum(cv * cv, TINY)))
    likely = jnp.array(SOME[1] + RARE[1])
    drawn = jnp.exp(spread * TAILED)
    return drawn / (drawn * likely).sum(), likely


def tail_quantiles(base: Array, spread: Array, weight: Array, wait: Array, late: Array) -> tuple[Array, ...]:
    """The percentiles of `SHARES` of a sum of three.

    Args:
        base: numbers, one of which is drawn with probability `weight`.
        spread: of a time that is equally likely anywhere from 0 to this, one for each base.
        weight: sums to 1.
        wait: mean of a time that is exponential with probability `late` and else none; where it is no more than
            1 / `WIDEST` of the range of the rest, that.
        late: one number, or one for each base.
    """
    range_ = jax.lax.stop_gradient((base + spread).max() - base.min())
    often = late if late.ndim == 0 else weight @ late
    scale = jnp.maximum(wait / jnp.maximum(often, 1e-9), range_ / WIDEST + 1e-12)
    drawn = _Sum(base, jnp.maximum(spread, 1e-3 * scale + 1e-9), weight, late, scale)
    found = _quantiles(drawn)
    return found[0], found[1], found[2]


class _Sum(NamedTuple):
    """What is drawn from: bases, spreads, how likely each is, how likely the wait is, and its mean if there is one."""

    base: Array
    spread: Array
    weight: Array
    late: Array
    scale: Array

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance."""
        middle = self.base + 0.5 * self.spread
        mean = self.weight @ middle
        varies = self.weight @ ((middle - mean) ** 2 + self.spread**2 / 12)
        late = (self.weight * self.late).sum()
        return mean + late * self.scale, varies + late * (2 - late) * self.scale**2


class _Often(NamedTuple):
    """A `_Sum` that is asked for its tail often: exponentials of bases and of ends are taken once.

    With v the value, b a base, e its end, u the scale: the wait's share of the tail is min(1, exp(e / u) exp(-v / u))
    less the same of b.
    """

    drawn: _Sum
    origin: Array
    begins: Array
    ends: Array

    @classmethod
    def of(cls, drawn: _Sum) -> "_Often":
        """With no exponential beyond half of `WIDEST` and what spreads add to it."""
        end = drawn.base + drawn.spread
        origin = 0.5 * (drawn.base.min() + end.max())
        powers = (jnp.exp((each - origin) / drawn.scale) for each in (drawn.base, end))
        return cls(drawn, origin, *powers)

    def beyond(self, value: Array) -> tuple[Array, Array]:
        """Probability of more than a value, and its slope."""
        base, spread, weight, late, scale = self.drawn
        share, past = weight / spread, value - base
        passed = jnp.exp((self.origin - value) / scale)
        waits = (share * late) @ (jnp.minimum(self.ends * passed, 1.0) - jnp.minimum(self.begins * passed, 1.0))
        within = share @ jnp.clip(past, 0.0, spread)
        inside = (share * (1 - late)) @ jnp.where((past > 0) & (past < spread), 1.0, 0.0)
        return weight.sum() - within + scale * waits, -(inside + waits)


def _quantiles(drawn: _Sum) -> Array:
    """By Newton's method on the logarithm of the tail, within ends that close in; what one asks tells all."""
    unit = jax.lax.stop_gradient((drawn.base + drawn.spread + drawn.scale).max())
    drawn = drawn._replace(base=drawn.base / unit, spread=drawn.spread / unit, scale=drawn.scale / unit)
    often, left = _Often.of(drawn), 1 - jnp.asarray(SHARES)
    held = jax.lax.stop_gradient(often)
    fixed, beyond = held.drawn, jax.vmap(held.beyond)

    def body(_: Any, found: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        low, high, at = found
        tail, slope = beyond(at)
        more = tail > left[:, None]
        low = jnp.maximum(low, jnp.where(more, at, -jnp.inf).max(1))
        high = jnp.minimum(high, jnp.where(more, jnp.inf, at).min(1))
        tail = jnp.maximum(tail, 1e-30)
        jump = at - jnp.log(tail / left) * tail / jnp.where(slope < 0, slope, -1e-30)
        return low, high, jnp.where((jump >= low) & (jump <= high), jump, 0.5 * (low + high))

    most = jnp.log(jnp.maximum(fixed.late.max() / left, 1.0)) * fixed.scale
    low, high = fixed.base.min() * jnp.ones_like(left), 1.0001 * ((fixed.base + fixed.spread).max() + most)
    guess = jnp.stack(above(low[0], *fixed.moments())[1:])
    found = jax.lax.fori_loop(0, ROUNDS, body, (low, high, jnp.clip(guess, low, high)))
    low, high, found = jax.lax.stop_gradient(found)
    slope = jax.lax.stop_gradient(beyond(found)[1])
    falls = slope < 0
    gap = (jax.vmap(often.beyond)(found)[0] - left) / jnp.where(falls, slope, -1.0)
    last = jax.lax.stop_gradient(gap)
    last = gap - last + jnp.clip(last, found - high, found - low)  # no further than the ends, with all derivatives
    return unit * (found - jnp.where(falls, last, 0.0))
