"""An engine whose requests come when they come: means and percentiles in closed form, differentiable.

The mean step s at n decodes is that of `mean_step`, the time to a first token that of `first_token`.

    slope    e = n s'(n) / s(n): how steps lengthen with n; the number decoding varies by z = 1 / (1 - e) times its
             mean, as that of a processor shared at a rate that falls with its load
    TPOT     s + z s'(n): whoever decodes finds himself, and those that came in spells of many

Percentiles of TPOT are those of a gamma distribution above f0, with the variance of n over a sequence's own life (2 / e
of that at one time, where what was there is replaced at the rate at which one leaves) and of the mixed steps that it
meets.

Assumes: load below stability; no waiting for places in the cache; means and variances of lengths alone.
Source: closed form of this package, held against `simulation.serving`; the wait [kingman1961].
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from .arriving_load import Demand, RooflineTimes, TableTimes, Times
from .clumps import others
from .first_token import STEEPEST, Crowds, crowds_at, first_token
from .mean_step import EngineStep, agreed, slope
from .quantiles import NORMAL, Percentiles, above, spread_about

__all__ = [
    "Demand", "EngineStep", "OpenLoop", "Percentiles", "RooflineTimes", "Spell", "TableTimes", "Times", "open_loop",
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
    longer = slope(times, demand, step, at)
    spell, near = Spell(*_spell(demand, at)), others(demand.gap_cv, 0.5 * decodes)
    burst = 1 / (1 - jnp.minimum(longer * decodes / step, STEEPEST)) * (1 + 2 * near)
    later = jnp.maximum(others(demand.gap_cv, decodes) - others(demand.gap_cv, demand.rate * at.mixed), 0.0)
    tpot = step + longer * burst + spell.start_s + later * (at.mixed - at.plain) / demand.steps
    clumps = jnp.maximum(1 + 2 * near, 0.0)
    variance = _tpot_variance(demand, at, crowds, longer, decodes * burst, spell.length * clumps)
    ttft = first_token(times, demand, at, crowds, decodes)
    return OpenLoop(
        ttft, above(at.plain, tpot, variance), whole(demand, ttft, tpot, variance), variance, decodes, at.share,
        at.asked, demand.rate * demand.steps * step / demand.most, step,
    )  # fmt: skip


def whole(demand: Demand, ttft: Percentiles, tpot: Array, variance: Array) -> Percentiles:
    """First token and answer together: lognormal, with the variances of lengths, of both times and no covariance."""
    first = (ttft.p90 - ttft.p50) / NORMAL[1]
    answer = demand.output_cv**2 * demand.output_tokens**2 * tpot**2 + demand.steps**2 * variance
    return spread_about(ttft.mean + demand.steps * tpot, answer + first**2 + 1e-12 * tpot**2)


class Spell(NamedTuple):
    """Mixed steps in a row: what those who start behind one add to a step, and how many steps count as one."""

    start_s: Array
    length: Array


def _spell(demand: Demand, at: EngineStep) -> tuple[Array, Array]:
    """Mixed and plain steps as a chain of two states, entered at the end of a mixed step."""
    begins = 1 - jnp.exp(-demand.rate * at.plain)
    forgets = jnp.clip(begins / at.share, 1e-6, 1.0)
    next_one = jnp.maximum(1 - jnp.exp(-demand.rate * at.mixed), at.load)
    seen = (1 - (1 - forgets) ** demand.steps) / forgets / demand.steps
    return jnp.maximum(next_one - at.share, 0.0) * (at.mixed - at.plain) * seen, 2 / forgets - 1


def _tpot_variance(demand: Demand, at: EngineStep, crowds: Crowds, slope: Array, varies: Array, spell: Array) -> Array:
    """Between requests: of the number decoding, and of the mixed steps met, which come in spells."""
    crowd = 2 * jnp.exp(-1.0) * slope**2 * varies
    shorter = (1 + demand.output_cv**2) / demand.steps  # mean of 1 / L, lognormal
    within = (crowds.likely * (crowds.seconds - (crowds.likely * crowds.seconds).sum()) ** 2).sum()
    met = at.share * ((1 - at.share) * (at.mixed - at.plain) ** 2 + within) * spell * shorter
    most = jnp.maximum((at.mean - at.plain) * (at.mixed - at.mean), 1e-30)  # of a mean of steps between the two
    return crowd + met * most / jnp.maximum(met + most, 1e-30)
