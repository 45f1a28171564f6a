"""Memory tiers: how much, how fast, how dear."""

import abc
import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ...core.errors import ConfigError, suggestion
from ...core.examples import by_default
from ...core.fields import Module, as_leaves, quantities, quantity, static
from ...core.jax_typed import arrays, asarray
from ...core.pretty import as_text
from ...core.smooth import at_least, maximum, used_share


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

    def installed_bytes(self) -> Array:
        """Bytes that are made for one accelerator, whatever of them a job may fill."""
        return getattr(self, "capacity_bytes", self.usable_bytes())

    def fits_in_parts(self) -> bool:
        """True where all `limits` together say that the total fits as well."""
        return False

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
        default=0.0, doc="context, buffers, fragmentation: not for the job", usual=(2.6e8, 5.2e10)
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


# Several memories of one accelerator, and which share of each class of data lies in which.


READ_OF = {"kv_cache": "attended"}
"""Class of data that is stored -> class that says where what is read of it lies, where that is another mix of tiers."""


def _tiers_of(placed: "Placement | NearFirst") -> list[str]:
    return [placed.then] if isinstance(placed, NearFirst) else list(placed.shares)


class Placement(Module):
    """Tier -> share of one class of data that lies there."""

    shares: dict[str, Float[Array, "*b"]] = quantities(high=1.0)

    def __check_init__(self) -> None:
        """Shares sum to one, where they are numbers already."""
        if any(isinstance(share, Tracer) or not hasattr(share, "dtype") for share in self.shares.values()):
            return
        total = np.asarray(sum(np.asarray(share, dtype=float) for share in self.shares.values()))
        if not np.allclose(total, 1.0, atol=1e-6):
            listed = ", ".join(f"{name} {float(np.mean(np.asarray(share))):g}" for name, share in self.shares.items())
            raise ConfigError(f"shares sum to {float(np.mean(total)):g}, not to 1 ({listed})")


class NearFirst(Module):
    """One class of data in the near tier as far as there is room, the rest in the tier `then`.

    How much that is follows from a design as a whole (`metrics.cache_placement`); until then all of it lies near.
    """

    then: str = static()


class TieredMemory(AbstractMemory):
    """Memories by name, the data placed on them by class; classes without a placement lie in the tier `near`.

    What decodes attend of a cache is where caches lie, unless `attended` has a placement of its own.

    A byte of a class takes tau_i = share_i / bandwidth_i in tier i. Read one after the other that is their sum, read
    side by side the longest; `prefetch` says how much of the others hides:
    max_i (prefetch tau_i + (1 - prefetch) sum_j tau_j).

    Shares are leaves of their own. A search that moves one alone must keep `limits()['placed.CLASS']` = 1 / (sum of the
    shares) at or below one; a sum above one keeps copies.

    Assumes: every byte of a class is as hot as any other. Log-convex in shares, bandwidths, energies and prices,
    and tier by tier in the capacities; `placed` is the exception. The used share of all capacities together is none,
    and limits nothing: sum_i held_i <= sum_i C_i where each held_i <= C_i.
    """

    tiers: dict[str, AbstractMemory]
    placement: dict[str, Placement | NearFirst]
    near: str = static()
    prefetch: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share of the other tiers' time that is hidden")

    def __check_init__(self) -> None:
        """Every tier that is named must exist and hold something."""
        for name in (self.near, *(tier for placed in self.placement.values() for tier in _tiers_of(placed))):
            if name not in self.tiers:
                raise ConfigError(f"memory tier {name!r} does not exist{suggestion(name, self.tiers)}")
        for name, tier in self.tiers.items():
            usable = tier.usable_bytes()
            if not isinstance(usable, Tracer) and float(jnp.min(usable)) <= 0:
                raise ConfigError(f"tiers.{name} has no capacity: {float(jnp.min(usable)):g} bytes are usable")

    def beyond_s_per_byte(self) -> Array | None:
        """To the first pool among the tiers, else to the first that is not `near`."""
        pools = [result for tier in self.tiers.values() if (result := tier.beyond_s_per_byte()) is not None]
        others = [1 / tier.bandwidth() for name, tier in self.tiers.items() if name != self.near]
        return (pools + others)[0] if pools or others else None

    def shares(self, data: str) -> dict[str, Array]:
        """Tier -> share of a class of data that lies there."""
        placed = self.placement.get(data)
        return placed.shares if isinstance(placed, Placement) else {self.near: asarray(1.0)}

    def moved(self, data: str) -> dict[str, Array]:
        """Tier -> share of what is moved of a class of data: where it lies, unless that has a placement of its own."""
        read_class = READ_OF.get(data)
        return self.shares(read_class if read_class in self.placement else data)

    def placing(self, data: str, shares: dict[str, Array]) -> "TieredMemory":
        """With a class of data placed so."""
        return dataclasses.replace(self, placement=self.placement | {data: Placement(shares)})

    def pool(self) -> str:
        """Name of the tier that takes what is not near: the first pool, else the first other tier.

        Raises:
            ConfigError: there is no other tier.
        """
        others = [name for name in self.tiers if name != self.near]
        pools = [name for name in others if self.tiers[name].beyond_s_per_byte() is not None]
        if not others:
            raise ConfigError(f"tiers has no tier beside {self.near!r}: add one, or leave out plan.pool_kv_cache")
        return (pools + others)[0]

    def kept_ratio(self, data: str, holders: Array, replicas: Array) -> Array:
        """Bytes kept over those of one replica: the tier that holds all of a class decides; each keeps the rest."""
        shares = list(self.shares(data))
        if len(shares) > 1:
            return 1.0 + 0.0 * replicas
        return self.tiers[shares[0]].kept_ratio(data, holders, replicas)

    def usable_bytes(self) -> Array:
        """All tiers together, none of them less than nothing; `limits` says whether each one's part fits."""
        return self._total(lambda tier: at_least(tier.usable_bytes(), 0.0))

    def installed_bytes(self) -> Array:
        """All tiers."""
        return self._total(lambda tier: tier.installed_bytes())

    def bandwidth(self, data: str = "") -> Array:
        """Bytes of this class per second."""
        taken = [share / self.tiers[name].bandwidth(data) for name, share in self.moved(data).items()]
        serial = sum(taken[1:], taken[0])
        hidden = [self.prefetch * each + (1 - self.prefetch) * serial for each in taken]
        longest = hidden[0]
        for each in hidden[1:]:
            longest = maximum(longest, each)
        return 1 / longest

    def energy(self, data: str = "") -> Array:
        """Joules per byte of this class."""
        parts = [share * self.tiers[name].energy(data) for name, share in self.moved(data).items()]
        return sum(parts[1:], parts[0])

    def price_usd(self) -> Array:
        """All tiers."""
        return self._total(lambda tier: tier.price_usd())

    def static_power_w(self) -> Array:
        """All tiers."""
        return self._total(lambda tier: tier.static_power_w())

    def peak_power_w(self) -> Array:
        """All tiers at full rate."""
        return self._total(lambda tier: tier.peak_power_w())

    def added_bytes(self, nbytes: Array, data: str = "") -> Array:
        """The ramps and latencies of the tiers, weighted by what comes from each."""
        parts = [share * self.tiers[name].added_bytes(nbytes, data) for name, share in self.moved(data).items()]
        return sum(parts[1:], parts[0])

    def edge_bytes_per_s(self) -> dict[str, Array]:
        """Bytes per second that all tiers send across the die's edge, by technology."""
        edges: dict[str, Array] = {}
        for tier in self.tiers.values():
            for technology, rate in tier.edge_bytes_per_s().items():
                edges[technology] = edges.get(technology, asarray(0.0)) + rate
        return edges

    def stored(self, stored: dict[str, Array]) -> dict[str, Array]:
        """Tier -> bytes that lie there."""
        held = dict.fromkeys(self.tiers, asarray(0.0))
        for data, nbytes in stored.items():
            for name, share in self.shares(data).items():
                held[name] = held[name] + share * nbytes
        return held

    def fits_in_parts(self) -> bool:
        """True: what fits tier by tier, every class placed whole, fits in all."""
        return True

    def limits(self, stored: dict[str, Array]) -> dict[str, Array]:
        """Used share of every tier, and 1 / (sum of the shares) of every class that is placed."""
        held = self.stored(stored)
        used = {name: used_share(held[name], tier.usable_bytes()) for name, tier in self.tiers.items()}
        for data, placed in self.placement.items():
            if data in READ_OF.values() or not isinstance(placed, Placement):
                continue
            shares = list(placed.shares.values())
            used[f"placed.{data}"] = used_share(1.0, sum(shares[1:], shares[0]))
        return used

    def _total(self, of: Callable[[AbstractMemory], Array]) -> Array:
        total = asarray(0.0)
        for tier in self.tiers.values():
            total = total + of(tier)
        return total

    @classmethod
    def example(cls) -> "TieredMemory":
        """Half of the cache of keys afar."""
        far = MemoryTier(*arrays(1e12, 3e11, 1e-10, 3e-9))
        halves = Placement(as_leaves({"near": 0.5, "far": 0.5}))
        return cls({"near": MemoryTier.example(), "far": far}, {"kv_cache": halves}, "near", prefetch=asarray(0.5))
