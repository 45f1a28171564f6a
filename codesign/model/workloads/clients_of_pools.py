"""Two pools in a closed loop: clients that each send a request when they have the answer to the last."""

import equinox as eqx
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.module import Module
from ...core.smooth import at_least
from .goodput import Answering, most_at
from .lockstep import Lockstep
from .open_loop import OpenLoop
from .plan import Layout
from .pools_under_load import AbstractPoolsUnderLoad, TwoQueues
from .steady_state import FULLEST
from .under_load import Answered

__all__ = ["ClosedLoop", "DisaggregatedClients"]


class ClosedLoop(Module):
    """Clients with one request open each, and their host: Little's law says at which rate they send.

    Where prompts or decodes are full before, the other clients wait for them. All start at once: `start` says what
    share of a run is still so, when of the prompts before a pool of x engines half are computed before one's own.
    """

    concurrency: Float[Array, "*b"] = quantity(low=1.0)
    received_s: Float[Array, "*b"] = quantity(default=0.0)
    issued_s: Float[Array, "*b"] = quantity(default=0.0)
    start: Lockstep = eqx.field(default_factory=Lockstep)

    def host_s(self, seen: OpenLoop) -> Array:
        """Host seconds of a first token: launches are issued beside what accelerators do until then."""
        return self.received_s + at_least(self.issued_s - seen.ttft_s.mean, 0.0)

    def open_at(self, seen: OpenLoop, rate: Array) -> Array:
        """Requests that are open at a time."""
        return rate * (seen.e2e_s.mean + self.host_s(seen))

    def used(self, seen: OpenLoop, rate: Array) -> dict[str, Array]:
        """Used shares of the clients, of steps of prompts, and of places of decodes."""
        return {
            "clients": self.open_at(seen, rate) / self.concurrency, "prompts": seen.load / FULLEST,
            "decodes": seen.fill,
        }  # fmt: skip

    def answered(self, asked: Answering, most: Array) -> tuple[Array, OpenLoop]:
        """Requests/s, of at most so many, and what they see with their host."""
        result = most_at(asked, self, most)
        rate, seen = result.rate, result.seen
        waiting = at_least(self.concurrency - self.open_at(seen, rate), 0.0) / rate
        seen = seen.later(self.host_s(seen) + waiting)
        if not isinstance(asked, TwoQueues):
            return rate, seen
        engines, waited = asked.engines[0], at_least(result.seen.ttft_s.mean + waiting - asked.lone_s(), 0.0)
        burst = at_least(0.5 * (self.concurrency - 1) * asked.filled_s() / engines - waited, 0.0)
        others = at_least(rate * (result.seen.ttft_s.mean + waiting) / engines - 1, 0.0)
        return rate, seen.later(self.start.burst_ratio * burst + self.start.client_overhead_s * others)


class DisaggregatedClients(AbstractPoolsUnderLoad):
    """Colocated and disaggregated serving of `concurrency` clients, each with one request open (`AbstractOpenServing`).

    They see what requests see that arrive at their rate, evenly spaced: a client sends when it has its answer, so that
    no crowd comes while others wait (`arrival_cv` 0 by default). See `ClosedLoop`, with burst_ratio and
    client_overhead_s of `clients`.

    Assumes: two choices made on measured rows of two pools, gaps without variation and a host of each pool; without a
    pool nobody is in step, as `ContinuousServing` knows it (`Lockstep`), which is the form that was fitted there.
    Source: Little's law; held against an event simulation of clients (`tests/test_clients_of_pools.py`).
    """

    concurrency: Float[Array, "*b"] = quantity(low=1.0, high=1e9, default=64.0, doc="clients, each with one request")
    arrival_cv: Float[Array, "*b"] = quantity(high=10.0, default=0.0, doc="variation of gaps between requests")
    clients: Lockstep = eqx.field(default_factory=Lockstep)

    def answered(self, asked: Answering, most: Array) -> Answered:
        """At the rate of the clients."""
        received, issued = self.received_s(), self.issuing_s()
        if isinstance(asked, TwoQueues):  # the second host, which nothing is issued beside, is in what they see
            issued = issued + received
        loop = ClosedLoop(self.concurrency, received, issued, self.clients)
        rate, seen = loop.answered(asked, most)
        return Answered(rate, seen.later(-self.first_overhead_s()), {}, {})  # `_seen` adds it, as nothing would hide it

    def _seen(self, layout: Layout, seen: OpenLoop, requests: Array) -> dict[str, Array]:
        """Metrics by name; all clients have a request open, whoever waits."""
        return super()._seen(layout, seen, requests) | {"concurrency": self.concurrency}
