"""One message from host to host: PCIe to the card, the wire, PCIe from the card, as a pipeline of packets."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.errors import ConfigError, suggestion
from ...core.fields import as_leaves, quantity
from ...core.module import Module
from ...core.smooth import at_most, maximum
from .protocols import AbstractProtocol, infiniband, pcie

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


class Copied(Module):
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


def measured_path(test: str, generation: int = 3, network: str = "EDR") -> ThreeStagePath | Copied:
    """The path of `ib_write`, `ib_send`, `ib_read` or `osu_latency`, on other rates than the measured ones if asked.

    Args:
        test: name of the benchmark.
        generation: of PCIe x16 on both sides.
        network: an InfiniBand rate by name.

    Raises:
        ConfigError: no such test.
    """
    if test == "osu_latency":
        return Copied(_measured("ib_write", generation, network), **as_leaves(MPI))
    if test not in MEASURED:
        raise ConfigError(f"test {test!r} was not measured{suggestion(test, (*MEASURED, 'osu_latency'))}")
    return _measured(test, generation, network)


def _measured(test: str, generation: int, network: str) -> ThreeStagePath:
    return ThreeStagePath(pcie(generation), infiniband(network), pcie(generation), **as_leaves(MEASURED[test]))


class Windowed(Module):
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
