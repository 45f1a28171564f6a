"""Memory tiers: how much, how fast, how dear."""

import abc

from jaxtyping import Array, Float

from ...core.examples import by_default
from ...core.fields import quantity
from ...core.jax_typed import arrays
from ...core.module import Module
from ...core.pretty import as_text


class AbstractMemory(Module):
    """Memory as a device sees it: capacity, bandwidth, energy and price. All per accelerator.

    `data` names a class of data (weights, kv_cache, activations, optimizer, tables...) where a memory keeps different
    classes in different places; a memory that does not, ignores it.
    """

    __repr__ = as_text

    @classmethod
    def example(cls) -> "AbstractMemory":
        """A small one with plain numbers, which contracts price; classes without defaults bring their own."""
        return by_default(cls)

    @abc.abstractmethod
    def usable_bytes(self) -> Array:
        """Bytes a job may fill."""

    @abc.abstractmethod
    def bandwidth(self, data: str = "") -> Array:
        """Payload bytes per second, reads and writes together."""

    @abc.abstractmethod
    def energy(self, data: str = "") -> Array:
        """Joules per byte moved."""

    @abc.abstractmethod
    def price_usd(self) -> Array:
        """Purchase price of the memory of one accelerator."""

    @abc.abstractmethod
    def static_power_w(self) -> Array:
        """Power drawn whether or not anything moves."""

    @abc.abstractmethod
    def peak_power_w(self) -> Array:
        """Power to provide for when everything moves at its full rate, the static power included."""

    @abc.abstractmethod
    def added_bytes(self, nbytes: Array, data: str = "") -> Array:
        """Bytes whose time a transfer of `nbytes` costs beyond its own, as small transfers are slow."""

    @abc.abstractmethod
    def edge_bytes_per_s(self) -> dict[str, Array]:
        """Technology -> bytes per second that cross the edge of the accelerator's die to reach this memory."""

    @abc.abstractmethod
    def limits(self, stored: dict[str, Array]) -> dict[str, Array]:
        """Constraint -> used share, beyond the total capacity; `stored` is class of data -> bytes."""

    def beyond_s_per_byte(self) -> Array | None:
        """Seconds a byte to memory that outlives the device: a pool, a tier on its own card; None: there is none."""
        return None

    def kept_ratio(self, data: str, holders: Array, replicas: Array) -> Array:
        """Share of a class of data that counts as one device's own where `replicas`, each of so many devices, hold the
        same: all of it, unless the memory keeps one copy for several."""
        del data, holders
        return 1.0 + 0.0 * replicas

    def remarks(self) -> tuple[str, ...]:
        """Remarks that a reader should know about these numbers; asked outside `jit`."""
        return ()


class MemoryTier(AbstractMemory):
    """One kind of memory attached to one accelerator.

    A transfer takes latency_s + (nbytes + half_bytes) / bandwidth: `half_bytes` is the size that reaches half of the
    bandwidth, so the utilisation is nbytes / (nbytes + half_bytes).

    Assumes: latency and ramp are paid once per kernel and hide behind its arithmetic as the transfer does.
    """

    capacity_bytes: Float[Array, "*b"] = quantity(doc="bytes per accelerator", usual=(1.6e10, 3.2e13))
    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, usual=(1.2e10, 2.7e13))
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(3.1e-11, 4e-10))
    usd_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(1e-10, 1.8e-8))
    static_w_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(1.8e-11, 7.3e-11))
    reserved_bytes: Float[Array, "*b"] = quantity(
        default=0.0, doc="context, buffers, fragmentation: not for the job", usual=(3e9, 5.2e10)
    )
    latency_s: Float[Array, "*b"] = quantity(default=0.0, doc="first byte of a transfer", usual=(1e-7, 7e-5))
    half_bytes: Float[Array, "*b"] = quantity(default=0.0, doc="transfer that reaches half of the bandwidth")

    def usable_bytes(self) -> Array:
        """Capacity less what is reserved."""
        return self.capacity_bytes - self.reserved_bytes

    def bandwidth(self, data: str = "") -> Array:
        """Payload bytes per second."""
        return self.bandwidth_bytes_per_s

    def energy(self, data: str = "") -> Array:
        """Joules per byte moved."""
        return self.energy_j_per_byte

    def price_usd(self) -> Array:
        """Capacity times price."""
        return self.capacity_bytes * self.usd_per_byte

    def static_power_w(self) -> Array:
        """Refresh and interface power."""
        return self.capacity_bytes * self.static_w_per_byte

    def peak_power_w(self) -> Array:
        """Full bandwidth and static power."""
        return self.bandwidth_bytes_per_s * self.energy_j_per_byte + self.static_power_w()

    def added_bytes(self, nbytes: Array, data: str = "") -> Array:
        """The ramp, and what the latency could have carried."""
        return self.half_bytes + self.latency_s * self.bandwidth_bytes_per_s

    def edge_bytes_per_s(self) -> dict[str, Array]:
        """All of it, by the interface of stacked memory."""
        return {"hbm": self.bandwidth_bytes_per_s}

    def limits(self, stored: dict[str, Array]) -> dict[str, Array]:
        """None beyond the capacity."""
        return {}

    @classmethod
    def example(cls) -> "MemoryTier":
        """A stack of near memory."""
        return cls(*arrays(80e9, 3.35e12, 4e-11, 1.2e-8, 2e-11, 4e9, 5e-7, 2e6))
