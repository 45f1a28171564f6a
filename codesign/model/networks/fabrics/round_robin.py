"""Any fabric whose ports serve our packets and others' in turn."""

import dataclasses

from jaxtyping import Array, Float

from ....core.fields import quantity
from ....core.jax_typed import asarray
from ...hardware import Link
from .base import AbstractWrappedFabric, Group
from .contended import slowdown
from .switch_chips import SwitchDomain


class RoundRobin(AbstractWrappedFabric):
    """`inner`, whose ports serve a queue of ours and one of ordinary packets in turn: neither starves the other.

        beta = beta_inner / (1 - others_ratio)

    Others take of every port what they offer, and never more than a half while ours wait: a packet for each of ours.
    Log-convex in the share and in the inner link.

    Assumes: packets of one size, spread evenly; small packets (requests, acknowledgements) have turns of their own, so
    that others who offer too much get a little less than a half (144 of 304 bytes in [scin]: 5 % more for ours than
    this says); latency as without others (a packet more at each port, 0.3 ns of 500).
    Source: [scin] section 3.2.
    """

    others_ratio: Float[Array, "*b"] = quantity(
        high=0.5, default=0.0, doc="of every port's rate, what ordinary packets take; a half where they offer more"
    )

    def link(self, group: Group) -> Link:
        """The inner link at the share that is left."""
        link = self.inner.link(group)
        return dataclasses.replace(link, beta_s_per_byte=link.beta_s_per_byte * slowdown(self.others_ratio))

    @classmethod
    def example(cls) -> "RoundRobin":
        """A switch that others fill by a quarter."""
        return cls(SwitchDomain.example(), asarray(0.25))
