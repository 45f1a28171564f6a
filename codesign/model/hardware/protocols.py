"""Link protocols: payload rate and time of one message, from the parameters of the wires.

    seconds per byte = 8 * (wire bytes per payload byte) / (lanes * bits per second * encoding)

A protocol prices one direction of one link; what crosses it is payload. All are log-convex in every number.
"""

import abc

from jaxtyping import Array, Float

from ...core.fields import as_leaves, integer, quantity
from ...core.module import Module


class AbstractProtocol(Module):
    """One direction of a link under load."""

    @abc.abstractmethod
    def wire_bytes_per_s(self) -> Array:
        """Raw rate before any overhead: what cables and switch ports are paid by."""

    @abc.abstractmethod
    def seconds_per_byte(self) -> Array:
        """Inverse payload rate."""

    @abc.abstractmethod
    def packet_bytes(self) -> Array:
        """Payload of the unit that a switch must hold before it can pass it on."""

    @abc.abstractmethod
    def hop_latency_s(self) -> Array:
        """Time of the first byte over the link and the port behind it."""

    @abc.abstractmethod
    def joules_per_byte(self) -> Array:
        """Energy of a payload byte."""

    def message_latency_s(self) -> Array:
        """Time of one message of one packet: the hop, and the packet at the payload rate."""
        return self.hop_latency_s() + self.packet_bytes() * self.seconds_per_byte()


class Channel(AbstractProtocol):
    """A link of which payload rate and latency are known as such."""

    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, doc="payload per direction", usual=(1.6e10, 9e11))
    latency_s: Float[Array, "*b"] = quantity(default=0.0, usual=(1.5e-7, 1e-6))
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(2.2e-11, 4.4e-11))
    unit_bytes: Float[Array, "*b"] = quantity(low=1.0, default=256.0, doc="payload of a packet")

    def wire_bytes_per_s(self) -> Array:
        """The payload rate."""
        return self.bandwidth_bytes_per_s

    def seconds_per_byte(self) -> Array:
        """Inverse of the payload rate."""
        return 1 / self.bandwidth_bytes_per_s

    def packet_bytes(self) -> Array:
        """Payload of a packet, as given."""
        return self.unit_bytes

    def hop_latency_s(self) -> Array:
        """Latency of a hop, as given."""
        return self.latency_s

    def joules_per_byte(self) -> Array:
        """Energy of a payload byte, as given."""
        return self.energy_j_per_byte


class Pcie(AbstractProtocol):
    """PCIe with packets of `max_payload_bytes`, each with a header and a share of an acknowledgement.

        wire bytes per payload byte = 1 + (TLP overhead + DLLP / TLPs per DLLP) / MPS

    Generations 3 to 5 are 8, 16 and 32 GT/s at 128b/130b. Generation 6 is 64 GT/s in flits of 256 bytes of which 236
    are for packets (encoding 236/256); its flits carry the acknowledgements (`dllp_bytes` 0), and with full flits the
    header is that of the packet alone.

    Assumes: requests one way only, packets of full size, credits that suffice.
    Source: [pcie_interference] section 3.2, equation 1.
    """

    transfers_per_s: Float[Array, "*b"] = quantity(
        low=1.0, doc="bits per second on a lane, before encoding", usual=(2.5e9, 1.28e11, "PCIe 1.0 to 7.0")
    )
    lanes: Float[Array, "*b"] = integer(low=1.0, high=32.0, default=16.0)
    encoding_ratio: Float[Array, "*b"] = quantity(low=0.5, high=1.0, default=128 / 130)
    max_payload_bytes: Float[Array, "*b"] = quantity(low=64.0, high=4096.0, default=128.0)
    tlp_overhead_bytes: Float[Array, "*b"] = quantity(default=24.0, doc="header, sequence number, CRCs, framing")
    dllp_bytes: Float[Array, "*b"] = quantity(default=8.0, doc="an acknowledgement")
    tlps_per_dllp: Float[Array, "*b"] = quantity(low=1.0, default=3.0, doc="packets acknowledged at once")
    latency_s: Float[Array, "*b"] = quantity(default=0.15e-6, doc="a switch, cut-through", usual=(1.5e-7, 1e-6))
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(2.2e-11, 4.4e-11))

    def wire_bytes_per_s(self) -> Array:
        """lanes x transfers x encoding."""
        return self.lanes * self.transfers_per_s * self.encoding_ratio / 8

    def seconds_per_byte(self) -> Array:
        """Headers and acknowledgements included."""
        overhead = self.tlp_overhead_bytes + self.dllp_bytes / self.tlps_per_dllp
        return (1 + overhead / self.max_payload_bytes) / self.wire_bytes_per_s()

    def packet_bytes(self) -> Array:
        """The maximum payload."""
        return self.max_payload_bytes

    def hop_latency_s(self) -> Array:
        """Latency of a hop, as given."""
        return self.latency_s

    def joules_per_byte(self) -> Array:
        """Energy of a payload byte, as given."""
        return self.energy_j_per_byte


class Packets(AbstractProtocol):
    """InfiniBand or Ethernet (RoCE): packets of `payload_bytes` behind headers of `header_bytes`.

    The data rate is that of the standard's name (EDR 100, HDR 200, NDR 400, XDR 800 Gb/s), after line encoding and
    forward error correction. The payload is counted without headers: an MTU of 4096 bytes that includes 60 of header
    is 4036.

    Source: [pcie_interference] sections 3.1 and 4.1.
    """

    bits_per_s: Float[Array, "*b"] = quantity(low=1.0, doc="data rate of the port", usual=(1e11, 4e11))
    payload_bytes: Float[Array, "*b"] = quantity(low=64.0, high=16384.0, default=4036.0)
    header_bytes: Float[Array, "*b"] = quantity(default=60.0)
    latency_s: Float[Array, "*b"] = quantity(default=0.2e-6, doc="a switch and a cable", usual=(1.5e-7, 1e-6))
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(2.2e-11, 4.4e-11))

    def wire_bytes_per_s(self) -> Array:
        """The data rate."""
        return self.bits_per_s / 8

    def seconds_per_byte(self) -> Array:
        """Headers included."""
        return (1 + self.header_bytes / self.payload_bytes) / self.wire_bytes_per_s()

    def packet_bytes(self) -> Array:
        """The payload of a packet."""
        return self.payload_bytes

    def hop_latency_s(self) -> Array:
        """Latency of a hop, as given."""
        return self.latency_s

    def joules_per_byte(self) -> Array:
        """Energy of a payload byte, as given."""
        return self.energy_j_per_byte


class LoadStore(AbstractProtocol):
    """A memory-semantic link (NVLink, UALink, Infinity Fabric, CXL): every payload packet is answered.

        wire bytes per payload byte = 1 + (header + reply) / payload

    where the replies of the traffic that comes the other way share this direction: with both directions in use, which
    is what collectives do, each carries its own packets and the other's replies.

    Assumes: the same payload both ways; single writes of `payload_bytes`.
    Source: the packet of [foley2017] (16-byte flits, up to 256 bytes of data).
    """

    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(
        low=1.0, doc="raw, per direction, all lanes", usual=(1.6e10, 9e11)
    )
    payload_bytes: Float[Array, "*b"] = quantity(low=16.0, high=4096.0, default=256.0)
    header_bytes: Float[Array, "*b"] = quantity(default=16.0)
    reply_bytes: Float[Array, "*b"] = quantity(default=16.0)
    latency_s: Float[Array, "*b"] = quantity(default=0.3e-6, usual=(1.5e-7, 1e-6))
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(2.2e-11, 4.4e-11))

    def wire_bytes_per_s(self) -> Array:
        """The raw rate."""
        return self.bandwidth_bytes_per_s

    def seconds_per_byte(self) -> Array:
        """Header and reply included."""
        return (1 + (self.header_bytes + self.reply_bytes) / self.payload_bytes) / self.bandwidth_bytes_per_s

    def packet_bytes(self) -> Array:
        """The payload of a packet."""
        return self.payload_bytes

    def hop_latency_s(self) -> Array:
        """Latency of a hop, as given."""
        return self.latency_s

    def joules_per_byte(self) -> Array:
        """Energy of a payload byte, as given."""
        return self.energy_j_per_byte


PCIE = {
    3: dict(transfers_per_s=8e9),
    4: dict(transfers_per_s=16e9),
    5: dict(transfers_per_s=32e9),
    6: dict(transfers_per_s=64e9, encoding_ratio=236 / 256, tlp_overhead_bytes=16.0, dllp_bytes=0.0),
}
"""Generation -> what differs from the third. Source: [pcie_cem]; generation 6: flits of 256 bytes, 236 of packets."""

INFINIBAND = {"EDR": 100e9, "HDR": 200e9, "NDR": 400e9, "XDR": 800e9}
"""Data rate of a port of four lanes, bits per second. Source: [nvidia_hdr], [nvidia_ndr], [nvidia_xdr]."""


def pcie(generation: int, **changes: float) -> Pcie:
    """PCIe x16 of a generation, with changes such as `max_payload_bytes=256`."""
    return Pcie(**as_leaves(PCIE[generation] | changes))


def infiniband(name: str, **changes: float) -> Packets:
    """An InfiniBand port by the name of its rate."""
    return Packets(**as_leaves({"bits_per_s": INFINIBAND[name]} | changes))


LOAD_STORE = {
    "NVLink 3": dict(bandwidth_bytes_per_s=300e9),
    "NVLink 4": dict(bandwidth_bytes_per_s=450e9),
    "NVLink 5": dict(bandwidth_bytes_per_s=900e9),
    "Infinity Fabric": dict(bandwidth_bytes_per_s=64e9, payload_bytes=128.0),
    "UALink 200": dict(bandwidth_bytes_per_s=100e9),
    "CXL 2": dict(bandwidth_bytes_per_s=63e9, payload_bytes=64.0, header_bytes=20.0),
}
"""Raw rate per direction of a device (NVLink), a link (Infinity Fabric), four lanes (UALink) or x16 (CXL on Gen5).

Rates: [nvidia_a100_datasheet], [nvidia_h100_datasheet], [nvidia_gb200_page], [amd_mi300x_datasheet], [pcie_cem]; sizes
of packets other than NVLink's are assumptions: a cache line or two, one flit slot of header. CXL adds 4 bytes a flit.
"""


def load_store(name: str, **changes: float) -> LoadStore:
    """A memory-semantic link by name."""
    return LoadStore(**as_leaves(LOAD_STORE[name] | changes))
