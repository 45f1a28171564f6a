"""What no scheduler beats at a rate: a geometric programme for the mean step, and for the rate of a closed loop.

A step takes t0 + max(tw, tc (b + q)) + kd K + kp P: convex in the tokens b and q that it carries, linear in the context
K that is read and the pairs P that are computed. An engine that never stands still carries b = lambda L s and
q = lambda I s in a mean step of s seconds; one that does carries more. So by Jensen's inequality the mean step is at
least the least solution of

    s >= t0 + max(tw, tc lambda (L + I) s) + (kd lambda L K + kp lambda I A) s

which is s* = max((t0 + tw) / (1 - r), t0 / (1 - r - tc lambda (L + I))), r = lambda (kd L K + kp I A): infinite where
the arithmetic of a second takes longer than one. 1 / (1 - r) is log-convex where r is, so that s* is log-convex in
hardware. A token is decoded in a step of that many decodes, lambda L s*, or of more, and perhaps of no prompts: it
takes at least f(lambda L s*, 0). In a closed loop with C requests lambda (T + L TPOT) <= C (Little's law), T the own
steps of a prompt, has a largest lambda.

Assumes: steps with many decodes read no shorter contexts, so that tokens see the mean step without prompts at least.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from codesign.model.workloads.open_loop import Demand, RooflineTimes

__all__ = ["Least", "least_times", "most_requests_s"]

HALVINGS = 60


class Least(NamedTuple):
    """Seconds of a mean step, between tokens, and to a first token."""

    step_s: Array
    tpot_s: Array
    ttft_s: Array


def least_times(times: RooflineTimes, demand: Demand, context: Array | None = None) -> Least:
    """Bounds at the rate of a demand; infinite where it is more than arithmetic allows.

    Args:
        times: of a step.
        demand: who asks.
        context: mean over decoded tokens, where it is known better than by the moments of a demand.
    """
    tokens, context = demand.steps + demand.computed, demand.context if context is None else context
    read = times.read_s * demand.steps * context
    linear = demand.rate * (read + times.pair_s * demand.computed * demand.keys)
    by_arithmetic = linear + times.token_s * demand.rate * tokens

    def over(seconds: Array, share: Array) -> Array:
        fits = share < 1
        return jnp.where(fits, seconds / jnp.where(fits, 1 - share, 1.0), jnp.inf)

    step = jnp.maximum(over(times.fixed_s + times.weights_s, linear), over(times.fixed_s, by_arithmetic))
    whole = jnp.maximum(demand.computed / demand.chunk, 1.0)  # a step at least, and as many as chunks
    own = whole * times.fixed_s + jnp.maximum(whole * times.weights_s, times.token_s * demand.computed)
    decodes = demand.rate * demand.steps * step
    plain = times.fixed_s + jnp.maximum(times.weights_s, times.token_s * decodes) + times.read_s * decodes * context
    return Least(step, plain, own + times.pair_s * demand.computed * demand.keys)


def most_requests_s(times: RooflineTimes, demand: Demand, concurrency: Array, context: Array | None = None) -> Array:
    """Requests/s that no engine exceeds with so many under way, with derivatives of that solution."""

    def under_way(times: RooflineTimes, demand: Demand, log_rate: Array) -> Array:
        least = least_times(times, _at(demand, jnp.exp(log_rate)), context)
        return jnp.exp(log_rate) * (least.ttft_s + demand.steps * least.tpot_s)

    fixed = jax.lax.stop_gradient((times, demand))
    least = least_times(fixed[0], _at(fixed[1], jnp.asarray(0.0)), context)
    high = jnp.log(concurrency / (least.ttft_s + demand.steps * least.tpot_s))

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        more = under_way(*fixed, middle) > concurrency
        return jnp.where(more, ends[0], middle), jnp.where(more, middle, ends[1])

    low, _ = jax.lax.fori_loop(0, HALVINGS, halve, jax.lax.stop_gradient((high - 60.0, high)))
    result = jax.lax.stop_gradient(low)
    slope = jax.lax.stop_gradient(jax.grad(lambda log_rate: jnp.log(under_way(*fixed, log_rate)))(result))
    return jnp.exp(result - jnp.log(under_way(times, demand, result) / concurrency) / slope)


def _at(demand: Demand, rate: Array) -> Demand:
    """The same who ask at another rate."""
    return Demand(
        rate=rate, input_tokens=demand.input_tokens, output_tokens=demand.output_tokens, chunk=demand.chunk,
        input_cv=demand.input_cv, output_cv=demand.output_cv, arrival_cv=demand.arrival_cv, most=demand.most,
        elsewhere=demand.elsewhere, prompts=demand.prompts, answers=demand.answers,
    )  # fmt: skip
