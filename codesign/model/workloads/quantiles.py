"""Means and percentiles: of a gamma distribution above a floor, and of a sum that is drawn from few numbers.

Fixed numbers of rounds on all points at once; the last one carries the derivatives (implicit function theorem).
"""

import functools
from collections.abc import Iterable
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...core.smooth import TINY, bounded, lower, upper

__all__ = [
    "SHARES",
    "MixtureComponent",
    "Percentiles",
    "QuantileBrackets",
    "above",
    "gamma_quantiles",
    "lognormal",
    "lognormal_quantiles",
    "moments",
    "normal_quantiles",
    "tail_quantiles",
    "tailed",
]

SHARES = (0.5, 0.9, 0.99)
NORMAL = (0.0, 1.2815515655446004, 2.3263478740408408)  # quantiles of a normal distribution at these shares
ROUNDS, AMONG_FEW = 6, 8  # among all numbers; before, among few that stand for them
MOST_TOGETHER = 16  # numbers that one stands for
WIDEST = 600.0  # of a sum's range over its mean wait: further off nobody waits that a double could tell
PROMPTS = 128  # equally likely quantiles of prompts
SOME = ([(node + 0.5) / 5 * 0.95 for node in range(5)], [0.95 / 5] * 5)  # few, and those that percentiles rest on
RARE = ([0.965, 0.985, 0.9965], [0.03, 0.013, 0.007])


def normal_quantiles(shares: Iterable[float]) -> np.ndarray:
    """Quantiles of a standard normal distribution at these shares: numbers that no program has to compute again."""
    return np.array([NormalDist().inv_cdf(share) for share in shares])


EVEN = normal_quantiles((prompt + 0.5) / PROMPTS for prompt in range(PROMPTS))
TAILED = normal_quantiles(SOME[0] + RARE[0])


class Percentiles(NamedTuple):
    """Mean, and the value that so many of a hundred stay below."""

    mean: Array
    p50: Array
    p90: Array
    p99: Array


def gamma_quantiles(floor: Array, mean: Array, variance: Array) -> Array:
    """The percentiles of `SHARES`, along a first axis, of a gamma distribution above a floor (Wilson and Hilferty)."""
    extra = upper(mean - floor, 1e-12)
    shape = upper(extra**2 / upper(variance, 1e-30), 0.05)
    cubes = 1 - 1 / (9 * shape) + _levels(shape) / (3 * jnp.sqrt(shape))
    return floor + extra * upper(cubes, 0.0) ** 3


def lognormal_quantiles(mean: Array, variance: Array) -> Array:
    """The percentiles of `SHARES`, along a first axis, of a lognormal distribution."""
    log = jnp.log1p(variance / mean**2)
    return mean * jnp.exp(jnp.sqrt(log) * _levels(log) - 0.5 * log)


def _levels(beside: Array) -> np.ndarray:
    """Quantiles of a normal distribution at `SHARES`, along an axis in front of those of `beside`."""
    return np.reshape(NORMAL, (-1, *(1,) * jnp.ndim(beside)))


def above(floor: Array, mean: Array, variance: Array) -> Percentiles:
    """Mean and percentiles of a gamma distribution above a floor."""
    return Percentiles(mean, *gamma_quantiles(floor, mean, variance))


def lognormal(cv: Array) -> Array:
    """Equally likely lengths over their mean."""
    varied = cv > 0
    spread = jnp.where(varied, jnp.sqrt(jnp.log1p(jnp.where(varied, cv * cv, 1.0))), 0.0)
    drawn = jnp.exp(spread * EVEN)
    return drawn / drawn.mean()


def tailed(cv: Array) -> tuple[Array, Array]:
    """Lengths over their mean and how likely each is, with more of the long ones."""
    spread = jnp.sqrt(jnp.log1p(upper(cv * cv, TINY)))
    likely = jnp.array(SOME[1] + RARE[1])
    drawn = jnp.exp(spread * TAILED)
    return drawn / (drawn * likely).sum(), likely


class MixtureComponent(NamedTuple):
    """Component of a mixture distribution: a sum of three terms.

    base: numbers, one of which is drawn with probability `weight`, which sum to 1 over all parts.
    spread: of a time that is equally likely anywhere from 0 to this, one for each base.
    late: probability of a time besides that is exponential; one number, or one for each base.
    seconds: mean of that time where there is one; of no less than 1 / `WIDEST` of the range of the rest.
    """

    base: Array
    spread: Array
    weight: Array
    late: Array
    seconds: Array

    def likely(self, share: Array) -> "MixtureComponent":
        """Copy with so large a share of the probability."""
        return self._replace(weight=share * self.weight)

    def range(self) -> Array:
        """From the least of two terms to the most."""
        return (self.base + self.spread).max() - self.base.min()

    def numbered(self) -> "MixtureComponent":
        """With no time that is too short to divide by."""
        seconds = upper(self.seconds, jax.lax.stop_gradient(self.range()) / WIDEST + 1e-12)
        return self._replace(spread=upper(self.spread, 1e-3 * seconds + 1e-9), seconds=seconds)

    def over(self, unit: Array) -> "MixtureComponent":
        """Copy in another unit."""
        return MixtureComponent(self.base / unit, self.spread / unit, self.weight, self.late, self.seconds / unit)

    def gathered(self, each: int) -> "MixtureComponent":
        """One base for so many that follow each other, with mean and variance of what it stands for."""
        base, spread, weight = (value.reshape(-1, each) for value in self[:3])
        likely = upper(weight.sum(1), TINY)
        shares = weight / likely[:, None]
        middle = base + 0.5 * spread
        mean = (shares * middle).sum(1)
        varies = (shares * ((middle - mean[:, None]) ** 2 + spread**2 / 12)).sum(1)
        width = lower(jnp.sqrt(12 * varies + TINY), 2 * mean)  # nothing begins below none
        late = jnp.broadcast_to(self.late, self.base.shape).reshape(-1, each)
        return MixtureComponent(mean - 0.5 * width, width, likely, (shares * late).sum(1), self.seconds)

    def moments(self) -> tuple[Array, Array]:
        """Its shares of the mean and of the mean square."""
        middle = self.base + 0.5 * self.spread
        late = self.late * self.seconds
        square = middle**2 + self.spread**2 / 12 + 2 * late * (middle + self.seconds)
        return self.weight @ (middle + late), self.weight @ square


def tail_quantiles(
    *parts: MixtureComponent, found: "QuantileBrackets | None" = None
) -> tuple[tuple[Array, ...], "QuantileBrackets"]:
    """The percentiles of `SHARES` of what is drawn from one of these parts, and where they were found.

    Args:
        parts: of a mixture.
        found: the same of an evaluation at these very numbers, in place of a search; of no influence on slopes.
    """
    result, found = _quantiles(tuple(part.numbered() for part in parts), found)
    return (result[0], result[1], result[2]), found


class _CachedTail(NamedTuple):
    """The tail of a `MixtureComponent` at many points: shares a second, exponentials of bases and of ends, taken once.

    With v the value, b a base, e its end, u the scale: the wait's share of the tail is min(1, exp(e / u) exp(-v / u))
    less the same of b.
    """

    drawn: MixtureComponent
    origin: Array
    share: Array
    waiting: Array
    begins: Array
    ends: Array

    @classmethod
    def of(cls, drawn: MixtureComponent) -> "_CachedTail":
        """With no exponential beyond half of `WIDEST` and what spreads add to it."""
        end = drawn.base + drawn.spread
        origin = 0.5 * (drawn.base.min() + end.max())
        powers = (jnp.exp((each - origin) / drawn.seconds) for each in (drawn.base, end))
        share = drawn.weight / drawn.spread
        return cls(drawn, origin, share, share * drawn.late, *powers)

    def beyond(self, value: Array) -> tuple[Array, Array]:
        """Probability of more than a value, and its slope."""
        past, scale = value - self.drawn.base, self.drawn.seconds
        passed = jnp.exp((self.origin - value) / scale)
        waits = self.waiting @ (lower(self.ends * passed, 1.0) - lower(self.begins * passed, 1.0))
        within = self.share @ bounded(past, 0.0, self.drawn.spread)
        inside = (self.share - self.waiting) @ jnp.where((past > 0) & (past < self.drawn.spread), 1.0, 0.0)
        return self.drawn.weight.sum() - within + scale * waits, -(inside + waits)


def _beyond(often: tuple[_CachedTail, ...], value: Array) -> tuple[Array, Array]:
    """Tail of all parts beyond a value, and its slope."""
    tails, slopes = zip(*(one.beyond(value) for one in often), strict=True)
    return sum(tails, jnp.asarray(0.0)), sum(slopes, jnp.asarray(0.0))


class QuantileBrackets(NamedTuple):
    """Quantiles of parts that are sought: where they are at least and at most, and where they are next asked for."""

    low: Array
    high: Array
    at: Array

    def closer(self, often: tuple[_CachedTail, ...], rounds: int) -> "QuantileBrackets":
        """After rounds of Newton's method on the logarithm of the tail; what one asks tells all."""
        left = 1 - jnp.asarray(SHARES)
        beyond = jax.vmap(lambda value: _beyond(often, value))

        def body(_: Any, found: QuantileBrackets) -> QuantileBrackets:
            low, high, at = found
            tail, slope = beyond(at)
            more = tail > left[:, None]
            low = jnp.maximum(low, jnp.where(more, at, -jnp.inf).max(1))
            high = jnp.minimum(high, jnp.where(more, jnp.inf, at).min(1))
            tail = jnp.maximum(tail, 1e-30)
            jump = at - jnp.log(tail / left) * tail / jnp.where(slope < 0, slope, -1e-30)
            return QuantileBrackets(low, high, jnp.where((jump >= low) & (jump <= high), jump, 0.5 * (low + high)))

        return jax.lax.fori_loop(0, rounds, body, self)


def _quantiles(parts: tuple[MixtureComponent, ...], sought: QuantileBrackets | None) -> tuple[Array, QuantileBrackets]:
    """Quantiles by a last round with all derivatives, from where they are, which is found without any."""
    farthest, longest, least = (
        jax.lax.stop_gradient(functools.reduce(pick, [told(part) for part in parts]))
        for pick, told in (
            (upper, lambda part: (part.base + part.spread).max()),
            (upper, lambda part: part.seconds),
            (lower, lambda part: part.base.min()),
        )
    )
    unit, left = farthest + longest, 1 - jnp.asarray(SHARES)
    often = tuple(_CachedTail.of(part.over(unit)) for part in parts)
    if sought is None:
        sought = _search(jax.lax.stop_gradient(often), least / unit, farthest / unit, longest / unit)
    result = sought.at
    tail, slope = jax.vmap(lambda value: _beyond(often, value))(result)
    slope = jax.lax.stop_gradient(slope)
    falls = slope < 0
    gap = (tail - left) / jnp.where(falls, slope, -1.0)
    last = jax.lax.stop_gradient(gap)
    # no further than the ends, with all derivatives
    last = gap - last + bounded(last, result - sought.high, result - sought.low)
    return unit * (result - jnp.where(falls, last, 0.0)), sought


def _search(often: tuple[_CachedTail, ...], least: Array, farthest: Array, longest: Array) -> QuantileBrackets:
    """Quantiles of few numbers that stand for many, then of all, within ends that close in.

    Args:
        often: parts.
        least, farthest: of all but the waits.
        longest: mean of a wait.
    """
    left = 1 - jnp.asarray(SHARES)
    late = sum(((one.drawn.weight * one.drawn.late).sum() for one in often), jnp.asarray(0.0))
    most = jnp.log(jnp.maximum(late / left, 1.0)) * longest
    ends = least * jnp.ones_like(left), 1.0001 * (farthest + most)
    guess = gamma_quantiles(ends[0][0], *moments(*(one.drawn for one in often)))
    few = tuple(_CachedTail.of(one.drawn.gathered(_together(one.drawn.base.size))) for one in often)
    guess = QuantileBrackets(*ends, jnp.clip(guess, *ends)).closer(few, AMONG_FEW).at
    return QuantileBrackets(*ends, jnp.clip(guess, *ends)).closer(often, ROUNDS)


def _together(count: int) -> int:
    """Number of values that one value stands for at first: the largest divisor of `count` up to `MOST_TOGETHER`."""
    return max(each for each in range(1, MOST_TOGETHER + 1) if count % each == 0)


def moments(*parts: MixtureComponent) -> tuple[Array, Array]:
    """Mean and variance of what is drawn from one of these parts."""
    means, squares = zip(*(part.moments() for part in parts), strict=True)
    mean = sum(means, jnp.asarray(0.0))
    return mean, upper(sum(squares, jnp.asarray(0.0)) - mean**2, 0.0)
