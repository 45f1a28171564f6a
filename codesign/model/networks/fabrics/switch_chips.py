"""A single-stage switch domain of counted chips: their ports bound how many endpoints share it, and are bought."""

from jaxtyping import Array, Float

from ....core.fields import Module, integer, quantity
from ....core.jax_typed import arrays, asarray
from ....core.smooth import maximum, used_share
from ...hardware import Link
from .base import AbstractFabric, Group

# A single-stage switch domain: every pair of endpoints is one switch apart (NVLink + NVSwitch, PCIe switch...).


class SwitchDomain(AbstractFabric):
    """`endpoints` devices on one non-blocking switch stage, any pattern at full rate.

    Assumes: enough parallel switches to carry every endpoint at its full bandwidth.
    """

    endpoints: Float[Array, "*b"] = integer(low=1.0)
    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(
        low=1.0, doc="payload per direction per endpoint", usual=(7.7e9, 3.6e12)
    )
    latency_s: Float[Array, "*b"] = quantity(doc="one message from endpoint to endpoint", usual=(5e-7, 1e-5))
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(4.4e-11, 8.8e-11))
    usd_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0, usual=(6.6e-10, 8e-9))
    static_w_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0, usual=(8.8e-11, 1e-10))
    fixed_usd: Float[Array, "*b"] = quantity(default=0.0, usual=(1500.0, 5700.0))

    def link(self, group: Group) -> Link:
        """One link for every group."""
        return Link(self.latency_s, 1 / self.bandwidth_bytes_per_s, self.energy_j_per_byte)

    def reach(self) -> Array:
        """All endpoints of the domain."""
        return self.endpoints

    def capex_usd(self) -> Array:
        """Switch ports and cables of one endpoint."""
        return self.fixed_usd + self.bandwidth_bytes_per_s * self.usd_per_bytes_per_s

    def static_power_w(self) -> Array:
        """Switch port and SerDes of one endpoint."""
        return self.bandwidth_bytes_per_s * self.static_w_per_bytes_per_s

    @classmethod
    def example(cls) -> "SwitchDomain":
        """Eight devices."""
        return cls(*arrays(8.0, 450e9, 1e-6, 1e-11, 4e-9, 1e-10, 50.0))


class PacketFormat(Module):
    """Packets of a link whose rate is counted raw, behind switches that forward only so many a second.

        wire bytes per payload byte = max(payload + header + frame, slot) / payload

    A chip that forwards R packets a second at a rate of C bytes a second spends C / R on the shortest: `slot_bytes`.

    Assumes: full packets; retries and credits cost nothing.
    Source: [ieee_802_3], frame check, preamble and gap.
    """

    payload_bytes: Float[Array, "*b"] = quantity(low=16.0, high=16384.0, default=256.0, doc="of a packet")
    header_bytes: Float[Array, "*b"] = quantity(default=46.0, doc="what addresses a packet: Ethernet, IP, UDP")
    frame_bytes: Float[Array, "*b"] = quantity(default=24.0, doc="frame check, preamble, gap between frames")
    slot_bytes: Float[Array, "*b"] = quantity(default=84.0, doc="the least that a packet takes of the rate")

    def wire_ratio(self) -> Array:
        """Bytes on the wire for each byte of payload."""
        packet = self.payload_bytes + self.header_bytes + self.frame_bytes
        return maximum(packet, self.slot_bytes) / self.payload_bytes


class SwitchChips(AbstractFabric):
    """`endpoints` devices on `switches` parallel chips, each endpoint with an equal share of its rate on every chip.

        ports of all chips   endpoints B <= switches ports b
        a port each          switches b <= B
        price                fixed + B usd + (switches / endpoints) usd a chip

    with B an endpoint's rate and b a port's. Together they bound the endpoints by the ports of one chip: a larger
    domain takes chips with more ports, or another stage (`FatTree`, `FoldedClos`). Rates are of payload, or raw where
    `packets` say what of them is payload.

    Assumes: any pattern at full rate. Log-convex in rates, numbers of chips and ports, prices; endpoints are counts.
    Source: [nvidia_h100_whitepaper], four NVSwitch for eight accelerators.
    """

    endpoints: Float[Array, "*b"] = integer(low=1.0)
    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(
        low=1.0, doc="per direction per endpoint", usual=(7.7e9, 3.6e12)
    )
    latency_s: Float[Array, "*b"] = quantity(doc="one message from endpoint to endpoint", usual=(4e-7, 1e-5))
    switches: Float[Array, "*b"] = quantity(low=1.0, default=4.0, doc="chips in parallel")
    ports: Float[Array, "*b"] = quantity(low=1.0, default=64.0, doc="of one chip")
    port_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, default=25e9, doc="of one port, per direction")
    usd_per_switch: Float[Array, "*b"] = quantity(default=0.0, usual=(2000.0, 2000.0))
    switch_w: Float[Array, "*b"] = quantity(default=0.0)
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(4.4e-11, 8.8e-11))
    usd_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0, usual=(6.6e-10, 8e-9))
    static_w_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0, usual=(8.8e-11, 1e-10))
    fixed_usd: Float[Array, "*b"] = quantity(default=0.0, usual=(1500.0, 5700.0))
    packets: PacketFormat | None = None

    def link(self, group: Group) -> Link:
        """One link for every group; bytes of headers take time and energy as payload does."""
        del group
        sent = 1.0 if self.packets is None else self.packets.wire_ratio()
        return Link(self.latency_s, sent / self.bandwidth_bytes_per_s, sent * self.energy_j_per_byte)

    def reach(self) -> Array:
        """All endpoints of the domain."""
        return self.endpoints

    def capex_usd(self) -> Array:
        """Board and wires of one endpoint, and its share of the chips."""
        wires = self.bandwidth_bytes_per_s * self.usd_per_bytes_per_s
        return self.fixed_usd + wires + self.switches * self.usd_per_switch / self.endpoints

    def static_power_w(self) -> Array:
        """Ports and SerDes of one endpoint, and its share of the chips."""
        bandwidth_w = self.bandwidth_bytes_per_s * self.static_w_per_bytes_per_s
        return bandwidth_w + self.switches * self.switch_w / self.endpoints

    def limits(self) -> dict[str, Array]:
        """Used share of the ports, and whether every chip has one for each endpoint."""
        room = self.switches * self.ports * self.port_bytes_per_s
        return {
            "switch_ports": used_share(self.endpoints * self.bandwidth_bytes_per_s, room),
            "switch_links": self.switches * self.port_bytes_per_s / self.bandwidth_bytes_per_s,
        }

    @classmethod
    def example(cls) -> "SwitchChips":
        """Eight devices."""
        return cls(
            asarray(8.0),
            asarray(450e9),
            asarray(1e-6),
            usd_per_switch=asarray(2000.0),
            switch_w=asarray(10.0),
            energy_j_per_byte=asarray(1e-11),
            usd_per_bytes_per_s=asarray(4e-9),
            static_w_per_bytes_per_s=asarray(1e-10),
            fixed_usd=asarray(50.0),
            packets=PacketFormat(),
        )
