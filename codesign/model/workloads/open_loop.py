"""An engine whose requests come when they come: means and percentiles in closed form, differentiable.

The mean step s at n decodes is that of `mean_step`, the time to a first token that of `first_token`, the time between
tokens that of `token_times`.

Where all places are taken who comes waits as in `place_wait`, before the first token.

Assumes: load below stability; means and variances of lengths alone.
Source: closed form of this package, held against `simulation.serving`; the wait [kingman1961].
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ...core.jax_typed import traced_for_all
from ...core.smooth import lower
from .latency import SlotWait, crowds_at, first_token, place_wait, token_times
from .mean_step import Demand, EngineStep, RooflineTimes, StepFixedPoint, TableTimes, Times, prompt_steps, settled_step
from .quantiles import Percentiles, QuantileBrackets, gamma_quantiles, lognormal_quantiles

__all__ = [
    "Demand", "EngineStep", "LoopFixedPoint", "OpenLoop", "Percentiles", "RooflineTimes", "TableTimes", "Times",
    "open_loop",
]  # fmt: skip


class LoopFixedPoint(NamedTuple):
    """Solutions that an evaluation has found by rounds; one at the same numbers, for slopes, needs no rounds then."""

    settled: StepFixedPoint
    first: QuantileBrackets


class OpenLoop(NamedTuple):
    """Latencies of requests of an open loop; `decodes` together; `load` of prompts, `fill` of places: too much at 1."""

    ttft_s: Percentiles
    tpot_s: Percentiles
    e2e_s: Percentiles
    tpot_variance: Array
    decodes: Array
    hybrid_step_share: Array
    load: Array
    fill: Array
    step_s: Array
    places: SlotWait
    solved: Any = None

    def later(self, seconds: Array | float) -> "OpenLoop":
        """Copy in which every request takes so much longer to its first token."""
        ttft, e2e = (Percentiles(*(value + seconds for value in values)) for values in (self.ttft_s, self.e2e_s))
        return self._replace(ttft_s=ttft, e2e_s=e2e)

    def accepting(self, tokens: Array | float) -> "OpenLoop":
        """Copy in which each step brings so many tokens: answers were counted in steps."""
        return self._replace(tpot_s=Percentiles(*(value / tokens for value in self.tpot_s)))

    def noticing(self, steps: Array | float) -> "OpenLoop":
        """Copy in which a busy engine sees new requests so many steps later."""
        return self.later(steps * self.step_s * (1 - jnp.exp(-self.decodes)))


@traced_for_all
def open_loop(times: Times, demand: Demand, solved: LoopFixedPoint | None = None) -> OpenLoop:
    """Means and percentiles of one engine.

    Args:
        times: of its steps.
        demand: who asks.
        solved: of an earlier evaluation of these numbers.
    """
    settled = settled_step(times, demand, None if solved is None else solved.settled)
    at, slope = settled.at, settled.slope
    step, decodes = at.mean, at.decodes
    crowds = crowds_at(times, demand, at, decodes)
    places = place_wait(times, demand, at)
    tokens = token_times(times, demand, at, crowds, slope, places)
    tpot, variance = tokens.mean_s, tokens.variance
    ttft, varies, first = first_token(times, demand, at, crowds, places, None if solved is None else solved.first)
    both = whole(demand, ttft.mean, tpot, (varies, variance, places.variance))
    fill = demand.rate * (demand.steps + prompt_steps(demand)) * step / demand.most
    told = tokens.percentiles()
    return OpenLoop(
        ttft, told, both, variance, decodes, at.share, at.asked, fill, step, places, LoopFixedPoint(settled, first)
    )


def whole(demand: Demand, begins: Array, tpot: Array, variances: tuple[Array, Array, Array]) -> Percentiles:
    """First token and answer together, with the variances of lengths, of both times and no covariance.

    A gamma distribution for the share of the variance that waits for places have (exponential, were there nothing
    else), lognormal for the rest.

    Args:
        demand: of the requests.
        begins: mean seconds of all that happens once, whatever the answer's length.
        tpot: mean seconds of a token.
        variances: of what happens once, of the time between tokens, of the wait for a place.
    """
    first, between, waits = variances
    answer = demand.output_cv**2 * demand.output_tokens**2 * tpot**2 + demand.steps**2 * between
    mean, varies = begins + demand.steps * tpot, answer + first + 1e-12 * tpot**2
    share = lower(waits / varies, 1.0)
    sums, waiting = lognormal_quantiles(mean, varies), gamma_quantiles(0.0 * mean, mean, varies)
    return Percentiles(mean, *(sums + share * (waiting - sums)))
