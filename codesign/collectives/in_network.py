"""All-reduce inside the switches: each member sends its buffer once and receives the sum."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..cost import Cost
from ..fabrics import Group
from ..fields import quantity
from ..hardware import Link
from ..smooth import at_most, maximum
from .base import AbstractCollective


class InNetworkAllReduce(AbstractCollective):
    """Switches fetch the members' buffers wave by wave, add them and write the sum back.

        t = 3 alpha + response + arithmetic + min(nbytes, S wave) header beta + max(wire, stalled)
        wire = nbytes beta / payload,   stalled = nbytes (alpha + response) / (S buffer) + wire / waves

    alpha is one trip through a switch (up and down): one for the synchronisation, one for the read request and its
    data to meet, one to deliver; the first wave fills the pipeline; the rest flows at the payload rate unless the S
    switches' buffers are too small for the round trip (Little's law), when requests stall.

    The link's rate may be given raw: then `payload_ratio` says what requests, responses and headers leave of it, and
    `header_ratio` the bytes on the wire for one byte of data. Every member sends nbytes and receives nbytes, however
    large the group. Log-convex in the link, the switch's times and its buffer.

    Assumes: buffers spread evenly over the switches; arithmetic at line rate; members in step.
    Source: [scin] sections 3 and 4, constants of its simulator as defaults.
    """

    payload_ratio: Float[Array, "*b"] = quantity(low=1e-3, high=1.0, default=1.0, doc="payload per byte of link rate")
    header_ratio: Float[Array, "*b"] = quantity(low=1.0, high=4.0, default=1.0, doc="bytes on the wire per byte")
    switches: Float[Array, "*b"] = quantity(low=1.0, default=4.0, doc="in parallel, each with a share of the link")
    wave_bytes: Float[Array, "*b"] = quantity(low=1.0, default=4096.0)
    waves: Float[Array, "*b"] = quantity(low=1.0, default=16.0, doc="outstanding per switch")
    buffer_bytes: Float[Array, "*b"] = quantity(low=1.0, default=65536.0, doc="per switch and member")
    response_s: Float[Array, "*b"] = quantity(default=89e-9, doc="of a member to a read request")
    arithmetic_s: Float[Array, "*b"] = quantity(default=20e-9, doc="latency of the adders")

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Closed form above; nothing for a group of one."""
        busy = (group.size > 1) & (nbytes > 0)
        fill = at_most(nbytes, self.switches * self.wave_bytes) * self.header_ratio * link.beta_s_per_byte
        wire = nbytes * link.beta_s_per_byte / self.payload_ratio
        round_trip = nbytes * (link.alpha_s + self.response_s) / (self.switches * self.buffer_bytes)
        flow = maximum(wire, round_trip + wire / self.waves)
        seconds = 3 * link.alpha_s + self.response_s + self.arithmetic_s + fill + flow
        return Cost(jnp.where(busy, seconds, 0.0), jnp.where(busy, nbytes * link.energy_j_per_byte, 0.0))
