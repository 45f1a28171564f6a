"""Any fabric, shared with traffic that is not ours."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.fields import quantity
from ....core.jax_typed import asarray
from ....core.smooth import maximum, operation
from ...hardware import Link
from .base import AbstractWrappedFabric, Group
from .folded_clos import FatTree
from .switch_chips import SwitchDomain

CALM_RATIO = 0.95
"""Share of the rate up to which the law is exact. Beyond it a fluid model says nothing but 'congested'."""


@operation
def slowdown(background_ratio: Array) -> Array:
    """1 / (1 - u) where others take the share u < 0.95 of the rate; beyond, the power law that touches it there.

    u^19 has the value and the slope of 1 / (1 - u) at 0.95 and is straight in logarithms, so the whole is finite,
    rising and log-convex for every u >= 0.
    """
    calm = background_ratio < CALM_RATIO
    share = jnp.where(calm, background_ratio, 0.0)
    beyond = jnp.where(calm, 1.0, background_ratio / CALM_RATIO)
    power = CALM_RATIO / (1 - CALM_RATIO)
    return jnp.where(calm, 1 / (1 - share), beyond**power / (1 - CALM_RATIO))


class Contended(AbstractWrappedFabric):
    """`inner`, shared with others: with strangers who take a part of its rate, and with the plan's other traffic.

    `background_bytes_per_s` of each endpoint's rate belong to storage, checkpoints, other tenants on the same card:
    t = nbytes / (B - background). The plan's own traffic under way at the same time (`Group.beside`) moves in
    proportion to the group's bytes that meet it, so that both are done together:

        beta = max((1 + others' bytes per own byte) / (B - background), head_of_line_share * others' time elsewhere)

    for these, and 1 / (B - background) for the rest. The second term is head-of-line blocking: messages for a full
    network card stand in front of messages for the neighbour. `head_of_line_share` is 1 where all destinations share
    one queue, 0 where each has its own (virtual channels).

    Assumes: a fluid; traffic of a phase spread evenly over it; strangers served first; waits neglected beside a
    collective's time (`interference` has them). A prediction where background < 0.95 B; beyond that a finite, rising,
    log-convex continuation (`slowdown`), so that a search sees which way out.
    Source: [pcie_interference] section 4.2.3 for the blocking; the maximum is the carried load of `interference`: past
    the card's limit C of one accelerator, C (1 - p) / p inside.
    """

    sees_others: ClassVar[bool] = True

    background_bytes_per_s: Float[Array, "*b"] = quantity(
        high=1e13, default=0.0, doc="per direction per endpoint", usual=(1e10, 1e10)
    )
    head_of_line_share: Float[Array, "*b"] = quantity(high=1.0, default=1.0, doc="0: a virtual channel per destination")

    def link(self, group: Group) -> Link:
        """The inner link at what the others leave of its rate."""
        link, beside = self.inner.link(group), group.beside
        background = self.background_bytes_per_s + group.background_bytes_per_s
        alone = link.beta_s_per_byte * slowdown(background * link.beta_s_per_byte)
        meeting = maximum(alone * (1 + beside.here_ratio), self.head_of_line_share * beside.elsewhere_s_per_byte)
        shared = alone * (1 - beside.met_ratio) + meeting * beside.met_ratio
        return dataclasses.replace(link, beta_s_per_byte=shared)

    def taken_ratio(self, group: Group) -> Array:
        """Rate of other tenants' traffic over the inner link's rate."""
        background = self.background_bytes_per_s + group.background_bytes_per_s
        return background * self.inner.link(group).beta_s_per_byte

    @classmethod
    def example(cls) -> "Contended":
        """A tree with somebody else on it."""
        return cls(FatTree.example(), background_bytes_per_s=asarray(20e9))


# Any fabric whose ports serve our packets and others' in turn.


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
