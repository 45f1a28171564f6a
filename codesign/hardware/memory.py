"""Memory tiers: how much, how fast, how dear."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from ..fields import quantity, switch
from ..smooth import maximum
from .link import Link


class AbstractMemory(eqx.Module):
    """What a device sees of a memory: capacity, bandwidth, energy and price. All per accelerator."""

    @abc.abstractmethod
    def usable_bytes(self) -> Array:
        """Bytes a job may fill."""

    @abc.abstractmethod
    def bandwidth(self) -> Array:
        """Payload bytes per second, reads and writes together."""

    @abc.abstractmethod
    def energy(self) -> Array:
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


class MemoryTier(AbstractMemory):
    """One kind of memory attached to one accelerator."""

    capacity_bytes: Float[Array, "*b"] = quantity(doc="bytes per accelerator")
    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0)
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0)
    usd_per_byte: Float[Array, "*b"] = quantity(default=0.0)
    static_w_per_byte: Float[Array, "*b"] = quantity(default=0.0)
    reserved_bytes: Float[Array, "*b"] = quantity(default=0.0, doc="context, buffers, fragmentation: not for the job")

    def usable_bytes(self) -> Array:
        """Capacity less what is reserved."""
        return self.capacity_bytes - self.reserved_bytes

    def bandwidth(self) -> Array:
        """Payload bytes per second."""
        return self.bandwidth_bytes_per_s

    def energy(self) -> Array:
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


class CachedPool(AbstractMemory):
    """HBM as a write-through cache of a pooled DDR tier behind a port.

    1/bandwidth = hit/cache + (1 - hit) max(1/pool, 1/port): a transfer is served by the cache with probability
    `hit_ratio` and otherwise by the slower of the pool's share and the port. Where the cache sits in the pool's
    appliance (`remote_cache` 1) the port bounds hits too. The whole pool's share is usable.

    Assumes: the hit ratio is given (a model of it comes with the workload, so the cache's capacity buys nothing yet
    and is no design variable), misses and hits do not overlap. Log-convex in every bandwidth, not in the hit ratio
    (1 - hit).
    Source: [ding2025pfa] section 4, with the port bound added.
    """

    cache: MemoryTier
    pool: MemoryTier
    port: Link
    hit_ratio: Float[Array, "*b"] = quantity(low=0.0, high=1.0)
    remote_cache: Float[Array, "*b"] = switch(default=0.0, doc="the cache is behind the port as well")

    def usable_bytes(self) -> Array:
        """The pool's share of one accelerator."""
        return self.pool.usable_bytes()

    def bandwidth(self) -> Array:
        """Harmonic mean of hit and miss bandwidth."""
        hit = maximum(1 / self.cache.bandwidth_bytes_per_s, self.remote_cache * self.port.beta_s_per_byte)
        miss = maximum(1 / self.pool.bandwidth_bytes_per_s, self.port.beta_s_per_byte)
        return 1 / (self.hit_ratio * hit + (1 - self.hit_ratio) * miss)

    def energy(self) -> Array:
        """Every byte touches the cache, a miss also the pool; the port carries misses, or all where it must."""
        miss = 1 - self.hit_ratio
        carried = self.remote_cache + (1 - self.remote_cache) * miss
        return self.cache.energy_j_per_byte + miss * self.pool.energy_j_per_byte + carried * self.port.energy_j_per_byte

    def price_usd(self) -> Array:
        """Cache and pool."""
        return self.cache.price_usd() + self.pool.price_usd()

    def static_power_w(self) -> Array:
        """Cache and pool."""
        return self.cache.static_power_w() + self.pool.static_power_w()

    def peak_power_w(self) -> Array:
        """Cache and pool both at full rate, what the pool moves going through the port.

        A bound that stays a posynomial, where energy times the harmonic mean of the bandwidths would not.
        """
        through_port = self.pool.bandwidth_bytes_per_s + self.remote_cache * self.cache.bandwidth_bytes_per_s
        return self.cache.peak_power_w() + self.pool.peak_power_w() + through_port * self.port.energy_j_per_byte
