"""PCIe switches in boxes, and boxes joined by PCIe cables."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.fields import integer, quantity
from ....core.jax_typed import arrays, asarray
from ....core.smooth import at_most, maximum
from ...hardware import Link
from .base import AbstractFabric, Group


class PcieTree(AbstractFabric):
    """A tree of PCIe links: endpoints under a switch, switches in a box, boxes under independent crossings.

    Every link has the payload rate

        lanes * transfers_per_s / 8 * encoding * MPS / (MPS + TLP overhead + DLLP / TLPs per DLLP)

    and the path follows from how far the group spans (size * stride):

        one switch   its own link
        one box      also the switch's uplinks, shared by the groups that interleave under the switch
        beyond       also the crossings between boxes, shared by the groups that interleave in the box; one member
                     drives at most `crossings_per_endpoint` of them

    so a ring over neighbouring devices (stride 1) sees all crossings and a group of stride 8 an eighth of them.

    Assumes: neighbour traffic, of which a group sends one stream over a boundary; balanced use of parallel links;
    requests and completions one way only. Log-convex in every rate and size of packet.
    Source: [pcie_interference] section 3.2 for the payload rate (DLLPs included); the crossings are read into the
    topologies of [fabrex].
    """

    endpoints: Float[Array, "*b"] = integer(low=1.0)
    latency_s: Float[Array, "*b"] = quantity(doc="one message under one switch", usual=(1e-6, 1e-5))
    transfers_per_s: Float[Array, "*b"] = quantity(
        low=1.0, doc="bits per second on a lane, before encoding", usual=(2.5e9, 1.28e11, "PCIe 1.0 to 7.0")
    )
    hop_latency_s: Float[Array, "*b"] = quantity(default=0.0, doc="each further switch", usual=(1.5e-7, 2e-7))
    lanes: Float[Array, "*b"] = integer(low=1.0, high=16.0, default=16.0)
    encoding_ratio: Float[Array, "*b"] = quantity(low=0.5, high=1.0, default=128 / 130)
    max_payload_bytes: Float[Array, "*b"] = quantity(low=64.0, high=4096.0, default=128.0)
    tlp_overhead_bytes: Float[Array, "*b"] = quantity(default=24.0, doc="header, sequence number, CRCs, framing")
    dllp_bytes: Float[Array, "*b"] = quantity(default=8.0, doc="an acknowledgement")
    tlps_per_dllp: Float[Array, "*b"] = quantity(low=1.0, default=3.0, doc="packets acknowledged at once")
    switch_endpoints: Float[Array, "*b"] = integer(low=1.0, default=2.0)
    switch_uplinks: Float[Array, "*b"] = quantity(low=1.0, default=1.0)
    box_endpoints: Float[Array, "*b"] = integer(low=1.0, default=8.0)
    crossings: Float[Array, "*b"] = quantity(low=1.0, default=1.0, doc="independent links between two boxes")
    crossings_per_endpoint: Float[Array, "*b"] = quantity(
        low=1.0, default=1.0, doc="1: a member's own port; more where a mesh inside the box leads to the others' ports"
    )
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(4.4e-11, 8.8e-11))
    static_w: Float[Array, "*b"] = quantity(default=0.0, usual=(25.0, 90.0))
    fixed_usd: Float[Array, "*b"] = quantity(default=0.0, usual=(1500.0, 5700.0))

    def seconds_per_byte(self) -> Array:
        """Inverse payload rate of one link."""
        per_payload = 1 + (self.tlp_overhead_bytes + self.dllp_bytes / self.tlps_per_dllp) / self.max_payload_bytes
        return 8 * per_payload / (self.lanes * self.transfers_per_s * self.encoding_ratio)

    def link(self, group: Group) -> Link:
        """The slowest stretch of the group's path, and a latency that counts switches."""
        port_beta, span = self.seconds_per_byte(), group.size * group.stride
        up = at_most(group.stride, self.switch_endpoints) / self.switch_uplinks
        over = at_most(group.stride, self.box_endpoints) / self.crossings
        in_box = port_beta * maximum(1.0, up)
        beyond = port_beta * maximum(1 / self.crossings_per_endpoint, over)
        one_switch, one_box = span <= self.switch_endpoints, span <= self.box_endpoints
        hops = jnp.where(one_switch, 0.0, jnp.where(one_box, 2.0, 4.0))
        return Link(
            self.latency_s + hops * self.hop_latency_s,
            jnp.where(one_switch, port_beta, jnp.where(one_box, in_box, beyond)),
            self.energy_j_per_byte,
        )

    def reach(self) -> Array:
        """All endpoints of the tree."""
        return self.endpoints

    def capex_usd(self) -> Array:
        """Adapter, cables and the switches' share of one endpoint."""
        return self.fixed_usd

    def static_power_w(self) -> Array:
        """Adapter and the switches' share of one endpoint."""
        return self.static_w

    @classmethod
    def example(cls) -> "PcieTree":
        """Sixteen devices."""
        return cls(
            *arrays(16.0, 1e-6, 16e9, 1e-7), crossings=asarray(3.0), crossings_per_endpoint=asarray(2.0),
            fixed_usd=asarray(900.0),
        )  # fmt: skip
