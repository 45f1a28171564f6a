"""Links: a channel between two devices, link protocols with their payload rate, and one message from host to host."""

import abc

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.errors import ConfigError, suggestion
from ...core.fields import Module, as_leaves, integer, quantity
from ...core.smooth import at_most, maximum

# Link protocols: payload rate and time of one message, from the parameters of the wires.
#
#     seconds per byte = 8 * (wire bytes per payload byte) / (lanes * bits per second * encoding)
#
# A protocol prices one direction of one link; what crosses it is payload. All are log-convex in every number.


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


# One message from host to host: PCIe to the card, the wire, PCIe from the card, as a pipeline of packets.


MEASURED = {
    "ib_write": dict(start_s=1.0899e-6, read_s=377.2e-9, inline_bytes=220.0, ramp_s=801.0e-9, ramp_bytes=16861.0),
    "ib_send": dict(start_s=1.1699e-6, read_s=356.5e-9, inline_bytes=236.0, ramp_s=571.9e-9, ramp_bytes=12821.0),
    "ib_read": dict(start_s=1.9464e-6, ramp_s=528.0e-9, ramp_bytes=12557.0),
}
"""Constants of one message between two hosts with ConnectX-5 on EDR and PCIe Gen3.

Source: fitted to table 2 of [pcie_interference] by experiments/intranode_pcie: mean errors 0.9, 0.5 and 1.1 %.
"""

MPI = dict(start_s=425.2e-9, cached_s_per_byte=206.83e-12, uncached_s_per_byte=45.91e-12, handshake_s=2.01e-6)
"""Times and rates that MPI adds to a write. Source: as `MEASURED`, osu_latency: mean error 3.7 %."""


class ThreeStagePath(Module):
    """T(n) = t0 + read [n > inline] + n1 (a1 + a2 + a3) + (n - n1) max(a1, a2, a3) + ramp n^2 / (n^2 + nr^2)

    with n1 = min(n, payload of one wire packet) and a the seconds per byte of each stage: the first packet is stored
    and forwarded by every stage, the others follow at the bottleneck's rate. Messages above `inline_bytes` are fetched
    by the card after the command instead of coming with it, which costs a read over PCIe (`read_s`). The last term is
    what a long message waits for credits and completions; its form is empirical.

    Assumes: one message at a time. Log-convex in all rates, not in the packet's size (n - n1).
    Source: [pcie_interference] sections 3.2 and 4.1; the pipeline in place of its stage by stage equation, and the
    constants, are fitted to its table 2 (experiments/intranode_pcie).
    """

    near: AbstractProtocol
    wire: AbstractProtocol
    far: AbstractProtocol
    start_s: Float[Array, "*b"] = quantity(doc="software, doorbell, card, switch and completion")
    read_s: Float[Array, "*b"] = quantity(default=0.0, doc="fetch of a message that is not inline")
    inline_bytes: Float[Array, "*b"] = quantity(default=0.0)
    ramp_s: Float[Array, "*b"] = quantity(default=0.0)
    ramp_bytes: Float[Array, "*b"] = quantity(low=1.0, default=16384.0)

    def stages_s_per_byte(self) -> tuple[Array, Array, Array]:
        """Seconds per byte of the three stages."""
        return self.near.seconds_per_byte(), self.wire.seconds_per_byte(), self.far.seconds_per_byte()

    def pipeline_s(self, nbytes: Array) -> Array:
        """Time on the wires alone."""
        first = at_most(nbytes, self.wire.packet_bytes())
        near, wire, far = self.stages_s_per_byte()
        return first * (near + wire + far) + (nbytes - first) * maximum(near, wire, far)

    def time_s(self, nbytes: Array) -> Array:
        """One way, from the call to the last byte in the other host's memory."""
        read = jnp.where(nbytes > self.inline_bytes, self.read_s, 0.0)
        squared = (nbytes / self.ramp_bytes) ** 2
        return self.start_s + read + self.pipeline_s(nbytes) + self.ramp_s * squared / (1 + squared)

    def bandwidth_bytes_per_s(self) -> Array:
        """Rate of an endless message."""
        return 1 / maximum(*self.stages_s_per_byte())


class BufferedCopy(Module):
    """A path under a library that copies short messages through buffers: one rate in the cache, one beyond.

    Up to `eager_bytes` a message costs `start_s`, `cached_s_per_byte` for its first `cached_bytes` and
    `uncached_s_per_byte` for the rest on top of the path; longer ones are sent in place after a handshake.

    Source: the difference of osu_latency and ib_write in table 2 of [pcie_interference].
    """

    path: ThreeStagePath
    start_s: Float[Array, "*b"] = quantity(default=0.0)
    cached_s_per_byte: Float[Array, "*b"] = quantity(default=0.0)
    cached_bytes: Float[Array, "*b"] = quantity(default=16384.0)
    uncached_s_per_byte: Float[Array, "*b"] = quantity(default=0.0)
    eager_bytes: Float[Array, "*b"] = quantity(default=200e3)
    handshake_s: Float[Array, "*b"] = quantity(default=0.0)

    def time_s(self, nbytes: Array) -> Array:
        """One way, library included."""
        cached = at_most(nbytes, self.cached_bytes)
        copy = cached * self.cached_s_per_byte + (nbytes - cached) * self.uncached_s_per_byte
        extra = jnp.where(nbytes > self.eager_bytes, self.handshake_s, copy)
        return self.path.time_s(nbytes) + self.start_s + extra


def measured_path(test: str, generation: int = 3, network: str = "EDR") -> ThreeStagePath | BufferedCopy:
    """The path of `ib_write`, `ib_send`, `ib_read` or `osu_latency`, on other rates than the measured ones if asked.

    Args:
        test: name of the benchmark.
        generation: of PCIe x16 on both sides.
        network: an InfiniBand rate by name.

    Raises:
        ConfigError: no such test.
    """
    if test == "osu_latency":
        return BufferedCopy(_measured("ib_write", generation, network), **as_leaves(MPI))
    if test not in MEASURED:
        raise ConfigError(f"test {test!r} was not measured{suggestion(test, (*MEASURED, 'osu_latency'))}")
    return _measured(test, generation, network)


def _measured(test: str, generation: int, network: str) -> ThreeStagePath:
    return ThreeStagePath(pcie(generation), infiniband(network), pcie(generation), **as_leaves(MEASURED[test]))


class WindowedThroughput(Module):
    """Throughput with many messages in flight: n / (t0^q + (n / B)^q)^(1/q), which is not n over the latency.

    Short messages are issued every `interval_s`, long ones fill the wire at `bandwidth_bytes_per_s`.

    Source: fitted to table 1 of [pcie_interference], whose unit GiB/s can only be GB/s.
    """

    interval_s: Float[Array, "*b"] = quantity(low=1e-12)
    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0)
    sharpness: Float[Array, "*b"] = quantity(low=1.0, high=50.0, default=6.0)

    def bytes_per_s(self, nbytes: Array) -> Array:
        """Throughput of messages of one size."""
        longs = self.sharpness * jnp.log(nbytes / self.bandwidth_bytes_per_s)
        shorts = self.sharpness * jnp.log(self.interval_s)
        return nbytes / jnp.exp(jnp.logaddexp(longs, shorts) / self.sharpness)


# A channel between two devices.


class Link(Module):
    """A point-to-point channel under the alpha-beta (Hockney) model: t = alpha_s + beta_s_per_byte * nbytes.

    Bandwidth is payload, per direction, per endpoint; energy counts a byte once from sender to receiver.

    A channel that is a circuit must be pointed at a new partner before it carries a byte: an algorithm that changes
    partners pays `reconfiguration_s` for it (0 on packet switches), one that keeps them does not. `lanes` is into how
    many equal parts the channel can be divided among partners served at once (0: any share).
    """

    alpha_s: Float[Array, "*b"] = quantity(usual=(5e-7, 1e-5))
    beta_s_per_byte: Float[Array, "*b"] = quantity(low=1e-18, usual=(2e-13, 4e-11), doc="1 / payload bytes per second")
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(1e-11, 8.8e-11))
    reconfiguration_s: Float[Array, "*b"] = quantity(default=0.0, doc="to point the channel at another partner")
    lanes: Float[Array, "*b"] = quantity(default=0.0, doc="equal parts of the channel, 0 for any share")
