"""An engine whose requests come when they come: means and percentiles in closed form, differentiable.

The mean step s at n decodes is that of `mean_step`, the time to a first token that of `first_token`, the time between
tokens that of `token_times`.

Assumes: load below stability; no waiting for places in the cache; means and variances of lengths alone.
Source: closed form of this package, held against `simulation.serving`; the wait [kingman1961].
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from .arriving_load import Demand, RooflineTimes, TableTimes, Times
from .first_token import crowds_at, first_token
from .mean_step import EngineStep, agreed, slope
from .quantiles import NORMAL, Percentiles, spread_about
from .token_times import token_times

__all__ = [
    "Demand", "EngineStep", "OpenLoop", "Percentiles", "RooflineTimes", "TableTimes", "Times", "open_loop",
]  # fmt: skip


class OpenLoop(NamedTuple):
    """What requests of an open loop see; `decodes` together; `load` of prompts, `fill` of decodes: too much at 1."""

    ttft_s: Percentiles
    tpot_s: Percentiles
    e2e_s: Percentiles
    tpot_variance: Array
    decodes: Array
    mixed_ratio: Array
    load: Array
    fill: Array
    step_s: Array

    def later(self, seconds: Array | float) -> "OpenLoop":
        """The same where every request takes so much longer to its first token."""
        ttft, e2e = (Percentiles(*(value + seconds for value in values)) for values in (self.ttft_s, self.e2e_s))
        return self._replace(ttft_s=ttft, e2e_s=e2e)

    def accepting(self, tokens: Array | float) -> "OpenLoop":
        """The same where each step brings so many tokens: answers were counted in steps."""
        return self._replace(tpot_s=Percentiles(*(value / tokens for value in self.tpot_s)))

    def noticing(self, steps: Array | float) -> "OpenLoop":
        """The same where an engine that is busy sees who comes so many steps later."""
        return self.later(steps * self.step_s * (1 - jnp.exp(-self.decodes)))


def open_loop(times: Times, demand: Demand) -> OpenLoop:
    """Means and percentiles of one engine."""
    at = agreed(times, demand)
    step, decodes = at.mean, at.decodes
    crowds = crowds_at(times, demand, at, decodes)
    tokens = token_times(times, demand, at, crowds, slope(times, demand, step, at))
    tpot, variance = tokens.mean_s, tokens.variance
    ttft = first_token(times, demand, at, crowds, decodes)
    return OpenLoop(
        ttft, tokens.percentiles(), whole(demand, ttft, tpot, variance), variance, decodes, at.share,
        at.asked, demand.rate * demand.steps * step / demand.most, step,
    )  # fmt: skip


def whole(demand: Demand, ttft: Percentiles, tpot: Array, variance: Array) -> Percentiles:
    """First token and answer together: lognormal, with the variances of lengths, of both times and no covariance."""
    first = (ttft.p90 - ttft.p50) / NORMAL[1]
    answer = demand.output_cv**2 * demand.output_tokens**2 * tpot**2 + demand.steps**2 * variance
    return spread_about(ttft.mean + demand.steps * tpot, answer + first**2 + 1e-12 * tpot**2)
