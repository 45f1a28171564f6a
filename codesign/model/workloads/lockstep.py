"""Clients of a closed loop that stay in step: what their prompts make each other wait.

Each client sends its next request when it has its answer. All start at once, and where lengths are alike they end
together and come again together. Of C requests that are open at a time, one waits for so many prompts of others:

    a = ((n - 1) + burst_ratio (C - 1)) / 2,  at most C - 1

with n = cohort_prompts (at most C) where lengths are alike, 1 where they vary. burst_ratio is the share of a run that
is still as at its start: 1 / rounds where each client sends so many requests, else as the engine was measured. Those a
prompts are not met again between tokens.

Of clients that have no place, queued_ratio of them for each that has one, each waits for the whole service S of those
before it: by Little's law (C q / C) S = queued_ratio S more to the first token.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.module import Module
from ...core.smooth import at_least

__all__ = ["Lockstep"]


class Lockstep(Module):
    """See the module. Without an engine that was measured nobody is in step, and `steady_state` says who waits.

    `client_overhead_s` is the time of a host that serves its clients one by one, for each other request that is open.
    """

    burst_ratio: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share of a run that is as at its start")
    cohort_prompts: Float[Array, "*b"] = quantity(low=1.0, high=1e6, default=1.0, doc="that come together")
    rounds: Float[Array, "*b"] = quantity(
        high=1e9, default=0.0, doc="requests of a client; 0 as the engine was measured"
    )
    client_overhead_s: Float[Array, "*b"] = quantity(default=0.0, doc="the host's, for each other request")
    queued_ratio: Float[Array, "*b"] = quantity(high=1e6, default=0.0, doc="clients without a place, for each with one")

    def prompts_before(self, requests: Array, varied: Array) -> Array:
        """Prompts of others that one waits for.

        Args:
            requests: open at a time, from 1 on.
            varied: whether their lengths vary.
        """
        others = at_least(requests - 1, 0.0)
        alike = jnp.minimum(self.cohort_prompts, at_least(requests, 1.0)) - 1
        finite = self.rounds > 0
        burst = jnp.where(finite, jnp.minimum(1 / jnp.where(finite, self.rounds, 1.0), 1.0), self.burst_ratio)
        return jnp.minimum((jnp.where(varied, 0.0, alike) + burst * others) / 2, others)

    def later_s(self, requests: Array, service_s: Array) -> Array:
        """Seconds by which a first token is later for the host that serves others, and for want of a place.

        Args:
            requests: open at a time, from 1 on.
            service_s: of a request that has a place, from its admission to its end.
        """
        others = at_least(requests * (1 + self.queued_ratio) - 1, 0.0)
        return self.client_overhead_s * others + self.queued_ratio * service_s
