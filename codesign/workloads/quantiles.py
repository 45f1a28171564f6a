"""Means and percentiles: of a gamma distribution above a floor, and of a sum that is drawn from few numbers.

Fixed numbers of rounds on all points at once; the last one carries the derivatives (implicit function theorem).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array

from ..smooth import TINY

__all__ = ["SHARES", "Percentiles", "above", "lognormal", "spread_about", "tail_quantiles", "tailed"]

SHARES = (0.5, 0.9, 0.99)
NORMAL = (0.0, 1.2815515655446004, 2.3263478740408408)  # quantiles of a normal distribution at these shares
ROUNDS = 10
PROMPTS = 128  # equally likely quantiles of prompts
SOME = ([(node + 0.5) / 5 * 0.95 for node in range(5)], [0.95 / 5] * 5)  # few, and those that percentiles rest on
RARE = ([0.965, 0.985, 0.9965], [0.03, 0.013, 0.007])


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
    drawn = jnp.exp(spread * ndtri((jnp.arange(PROMPTS) + 0.5) / PROMPTS))
    return drawn / drawn.mean()


def tailed(cv: Array) -> tuple[Array, Array]:
    """Lengths over their mean and how likely each is, with more of the long ones."""
    spread = jnp.sqrt(jnp.log1p(jnp.maximum(cv * cv, TINY)))
    likely = jnp.array(SOME[1] + RARE[1])
    drawn = jnp.exp(spread * ndtri(jnp.array(SOME[0] + RARE[0])))
    return drawn / (drawn * likely).sum(), likely


def tail_quantiles(base: Array, spread: Array, weight: Array, wait: Array, late: Array) -> tuple[Array, ...]:
    """The percentiles of `SHARES` of a sum of three.

    Args:
        base: numbers, one of which is drawn with probability `weight`.
        spread: of a time that is equally likely anywhere from 0 to this, one for each base.
        weight: sums to 1.
        wait: mean of a time that is exponential with probability `late` and else none.
    """
    scale = jnp.maximum(wait / jnp.maximum(late, 1e-9), 1e-12)
    drawn = _Sum(base, jnp.maximum(spread, 1e-3 * scale + 1e-9), weight, late, scale)
    found = jax.vmap(_quantile, (0, None))(1 - jnp.asarray(SHARES), drawn)
    return found[0], found[1], found[2]


class _Sum(NamedTuple):
    """What is drawn from: bases, spreads, how likely each is, how likely the wait is, and its mean if there is one."""

    base: Array
    spread: Array
    weight: Array
    late: Array
    scale: Array

    def beyond(self, value: Array) -> tuple[Array, Array]:
        """Probability of more than a value, and its slope."""
        past = value - self.base
        within = jnp.clip(past, 0.0, self.spread)
        share = self.weight / self.spread
        waits = -jnp.expm1(-within / self.scale) * jnp.exp(-jnp.maximum(past - self.spread, 0.0) / self.scale)
        tail = (share * (self.spread - within + self.late * self.scale * waits)).sum()
        inside = jnp.where((past > 0) & (past < self.spread), 1 - self.late, 0.0)
        return tail, -(share * (inside + self.late * waits)).sum()


def _quantile(left: Array, drawn: _Sum) -> Array:
    """By Newton's method on the logarithm of the tail, within ends that close in; half of the digits suffice there."""
    unit = jax.lax.stop_gradient((drawn.base + drawn.spread + drawn.scale).max())  # fewer digits have less of a range
    drawn = drawn._replace(base=drawn.base / unit, spread=drawn.spread / unit, scale=drawn.scale / unit)
    fixed = jax.lax.stop_gradient(drawn)
    rough, few = jax.tree.map(lambda value: value.astype(jnp.float32), (fixed, left))

    def body(_: Any, found: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        low, high, at = found
        tail, slope = rough.beyond(at)
        low, high = jnp.where(tail > few, at, low), jnp.where(tail > few, high, at)
        tail = jnp.maximum(tail, 1e-30)
        jump = at - jnp.log(tail / few) * tail / jnp.where(slope < 0, slope, -1e-30)
        return low, high, jnp.where((jump > low) & (jump < high), jump, 0.5 * (low + high))

    most = jnp.log(jnp.maximum(rough.late / few, 1.0)) * rough.scale
    low, high = rough.base.min(), (rough.base + rough.spread).max() + most
    *_, found = jax.lax.fori_loop(0, ROUNDS, body, (low, high * 1.0001, 0.5 * (low + high)))
    found = jax.lax.stop_gradient(found.astype(drawn.base.dtype))
    tail, slope = fixed.beyond(found)
    falls = slope < 0
    slope = jnp.where(falls, slope, -1.0)
    closer = found - jnp.where(falls, jnp.clip((tail - left) / slope, -0.1 * found, 0.1 * found), 0.0)
    closer = jax.lax.stop_gradient(closer)
    slope = jax.lax.stop_gradient(fixed.beyond(closer)[1])
    falls = slope < 0
    gap = (drawn.beyond(closer)[0] - left) / jnp.where(falls, slope, -1.0)
    return unit * (closer - jnp.where(falls, jnp.clip(gap, -0.1 * closer, 0.1 * closer), 0.0))
