"""The wait for a place in a batch, where requests come at a rate and an engine has c places.

A request takes a place from its own prompt steps to its last token, H = k + L steps. With n places taken, and for each
that is given back another one taken, a step takes s(n): what n decodes take, and the prompts of n / H requests. So
places are given back at a rate n / (H s(n)), and from c on at c / (H s(c)) whoever waits. A birth-and-death process has

    p(n) = p(0) prod_(j <= n) lambda H s(j) / j,    rho = lambda H s(c) / c < 1
    P(wait) = p(c) / (1 - rho) / (p(0) + ... + p(c - 1) + p(c) / (1 - rho))

as long as n < c whatever the lengths of answers are (processor sharing), and who waits does so for a time that is
exponential with mean (H s(c) / c) / (1 - rho) (a^2 + v^2) / 2, a the variation of gaps, v that of steps of an answer.
With s affine between c / 2 and c, p is a negative binomial distribution; the sum is an integral over numbers that lie
the closer the nearer to c. Gaps that vary more than a Poisson stream's come as if in clumps of z, each of which
takes a place of z (Hayward): c / z and lambda / z stand for c and lambda.

Assumes: prompts that share an engine's time with decodes as these do among themselves.
Source: processor sharing [kelly1979], clumps [fredericks1980], the two variations [kingman1961]; held against
`simulation.serving`; nothing is fitted.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .arriving_load import Demand, Times
from .clumps import others
from .mean_step import EngineStep, prompt_steps

__all__ = ["PlaceWait", "place_wait"]

POINTS, WEIGHTS = np.polynomial.legendre.leggauss(16)
BELOW = 0.5 * (POINTS + 1)  # square roots of how far numbers are from c, over c
PARTS = WEIGHTS * BELOW  # of the integral
FARTHEST = 80.0  # of logarithms of probabilities that are told apart: still a number in single precision
LEAST_LEFT = 1e-4  # of the places: beyond it nobody's wait has an end
LEAST_GROWTH = 1e-6  # of a step, from no place taken to all


class PlaceWait(NamedTuple):
    """Probability that all places are taken, mean of the wait where they are, and `load` of all: too much at 1."""

    late: Array
    seconds: Array
    load: Array

    @property
    def mean(self) -> Array:
        """Mean wait of all requests, seconds."""
        return self.late * self.seconds

    @property
    def variance(self) -> Array:
        """Variance of the wait of all requests, which is exponential or none."""
        return self.late * (2 - self.late) * self.seconds**2


def place_wait(times: Times, demand: Demand, at: EngineStep) -> PlaceWait:
    """Wait for a place of one engine, whose mean step is `at`."""
    most, steps = demand.most, demand.steps + prompt_steps(demand)
    tokens = jnp.minimum(demand.rate * at.mean * demand.computed / at.share, demand.chunk)
    prompts = demand.computed / tokens  # steps that a request fills with prompt tokens
    places, carried = jnp.stack([most, 0.5 * most]), jnp.stack([jnp.zeros_like(tokens), tokens])
    each = jax.vmap(jax.vmap(times.step_s, (0, None, None, None)), (None, None, 0, None))
    plain, mixed = each(places, demand.context, carried, demand.keys)
    full, half = plain + places / steps * prompts * (mixed - plain)  # each that ends is followed by another
    grows = 2 * (full - half)  # from no place to all, were it as between half of them and all
    grows = jnp.clip(grows, LEAST_GROWTH * full, full)
    load = demand.rate * steps * full / most
    left = jnp.maximum(1 - load, LEAST_LEFT)
    clump = 1 + others(demand.arrival_cv, most)
    fewer = _all_over(most / clump, demand.rate * steps * grows / most, full / grows - 1)
    late = 1 / (1 + left * fewer)
    varied = demand.arrival_cv**2 + (demand.output_cv * demand.steps / steps) ** 2
    return PlaceWait(late, steps * full / most / left * 0.5 * varied, load)


def _all_over(places: Array, ratio: Array, start: Array) -> Array:
    """Probability of fewer than all places over that of just all.

    Args:
        places: c.
        ratio: lambda H times what one more lengthens a step by.
        start: a step with no place taken over how much longer one with all is.
    """
    rising, number = start * places + 1, -places * BELOW**2 - 0.5  # from c down; the middle of a number is the number
    often = jnp.log(ratio * (rising + places) / (places + 1))
    first, second = _falls(jnp.stack([rising + places, places + 1])[:, None], number)
    over = number * often + first - second
    return places * (PARTS * jnp.exp(jnp.minimum(over, FARTHEST))).sum()


def _falls(value: Array, by: Array) -> Array:
    """Logarithm of gamma(value + by) / (gamma(value) value^by), plus `by`; from 0.5 on (Stirling)."""
    after = value + by
    return (after - 0.5) * jnp.log1p(by / value) + _rest(after) - _rest(value)


def _rest(value: Array) -> Array:
    return (1 / 12 - 1 / (360 * value**2)) / value
