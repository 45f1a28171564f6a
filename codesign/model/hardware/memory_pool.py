"""Memory behind a port: a pool of one's own with a cache in front, and a pool that several accelerators share."""

import abc

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import Module, quantity, static, switch
from ...core.jax_typed import arrays, asarray, broadcast_shapes, fori_loop, linspace, zeros
from ...core.smooth import at_least, at_most, floor, maximum
from .link import Link
from .memory import AbstractMemory, MemoryTier

# Hit ratios: which share of accesses a cache answers.


POINTS, STEPS = 512, 60  # of the integral over ranks, of the bisection


class AbstractHits(Module):
    """A model of the hit ratio.

    Assumes: not log-convex in the cache's capacity (a bounded share), whatever the model.
    """

    @abc.abstractmethod
    def ratio(self, cache_bytes: Array) -> Array:
        """Share of the bytes asked for that a cache of this capacity answers."""


class WorkingSet(AbstractHits):
    """min(1, capacity / working set): data used equally often, as much of it pinned as fits.

    Weights and the key-value cache of a static batch are read once per step, so that a cache with replacement would
    hold none of them when it cannot hold all; a pinned share is what a runtime would choose.
    """

    working_set_bytes: Float[Array, "*b"] = quantity(low=1.0)

    def ratio(self, cache_bytes: Array) -> Array:
        """Capacity over working set, at most one."""
        return at_most(cache_bytes / self.working_set_bytes, 1.0)


class ZipfLru(AbstractHits):
    """Least-recently-used cache under independent accesses to items of popularity rank^-exponent.

    With the characteristic time T of the cache, in accesses, sum_k (1 - exp(-p_k T)) = items that fit, and the hit
    ratio is sum_k p_k (1 - exp(-p_k T)). Sums over ranks are integrals on a logarithmic grid.

    Assumes: independent references, equal item sizes; error below a point for a hundred items and more.
    Source: [che2002]; shown to be exact for large caches by [fricker2012].
    """

    exponent: Float[Array, "*b"] = quantity(low=0.0, high=3.0)
    items: Float[Array, "*b"] = quantity(low=2.0)
    item_bytes: Float[Array, "*b"] = quantity(low=1.0)

    def ratio(self, cache_bytes: Array) -> Array:
        """Hits over accesses; one where everything fits."""
        fits = cache_bytes / self.item_bytes
        share, width = zipf_popularity(self.exponent, self.items)
        room = at_most(fits, 0.999 * self.items)
        time = characteristic_time(share, width, room)
        hits = jnp.sum(width * share * -jnp.expm1(-share * time[..., None]), axis=-1)
        return jnp.where(fits >= self.items, 1.0, at_most(hits, 1.0))


def zipf_popularity(exponent: Array, items: Array) -> tuple[Array, Array]:
    """(popularity, number of items) at the grid's ranks; popularities sum to one over all items."""
    edges = jnp.exp(linspace(0.0, 1.0, POINTS + 1) * jnp.log(items[..., None] + 1)) - 0.5
    rank, width = jnp.sqrt(edges[..., 1:] * edges[..., :-1]), jnp.diff(edges, axis=-1)
    weight = rank ** -exponent[..., None]
    return weight / jnp.sum(width * weight, axis=-1, keepdims=True), width


def characteristic_time(share: Array, width: Array, room: Array, passing: Array | None = None) -> Array:
    """Accesses T within which what is wanted again is still there: items wanted within T fill the room.

    Bisection in log T, then one Newton step that carries the derivatives (of the fixed point).

    Args:
        share, width: popularity of items, and how many have it.
        room: items that fit.
        passing: items' room that each access brings and nobody wants again; none without.
    """
    stop = jax.lax.stop_gradient
    fixed_share, fixed_width, wanted = (stop(leaf) for leaf in (share, width, room))
    brought = None if passing is None else stop(passing)
    shapes = [share.shape[:-1]] if passing is None else [share.shape[:-1], passing.shape]

    def held(log_time: Array, p: Array, w: Array, more: Array | None) -> Array:
        result = jnp.sum(w * -jnp.expm1(-p * jnp.exp(log_time)[..., None]), axis=-1)
        return result if more is None else result + more * jnp.exp(log_time)

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        few = held(middle, fixed_share, fixed_width, brought) < wanted
        return jnp.where(few, middle, low), jnp.where(few, high, middle)

    start = zeros(broadcast_shapes(wanted.shape, *shapes))
    low, high = fori_loop(0, STEPS, halve, (start - 10.0, start + 70.0))
    log_time: Array = stop(0.5 * (low + high))
    time = jnp.exp(log_time)[..., None]
    slope = jnp.sum(fixed_width * fixed_share * time * jnp.exp(-fixed_share * time), axis=-1)
    slope = slope if brought is None else slope + brought * time[..., 0]
    return jnp.exp(log_time - (held(log_time, share, width, passing) - room) / slope)


class CachedPool(AbstractMemory):
    """HBM as a write-through cache of a pooled DDR tier behind a port.

    1/bandwidth = hit/cache + (1 - hit) max(1/pool, 1/port): a transfer is served by the cache with probability
    `hit_ratio` and otherwise by the slower of the pool's share and the port. Where the cache sits in the pool's
    appliance (`remote_cache` 1) the port bounds hits too. The whole pool's share is usable.

    The hit ratio is given, or `hits` answers it from the cache's capacity.

    Assumes: misses and hits do not overlap, unless the pool is read ahead (`prefetch` is the share of the misses' time
    that hides behind the hits). Log-convex in every bandwidth, not in the hit ratio (1 - hit).
    Source: [ding2025pfa] section 4, with the port bound added.
    """

    cache: MemoryTier
    pool: MemoryTier
    port: Link
    hit_ratio: Float[Array, "*b"] | None = quantity(low=0.0, high=1.0, default=None)
    remote_cache: Float[Array, "*b"] = switch(default=0.0, doc="the cache is behind the port as well")
    hits: AbstractHits | None = None
    prefetch: Float[Array, "*b"] = quantity(high=1.0, default=0.0, doc="share of the misses' time that is hidden")
    usd_per_port_bytes_per_s: Float[Array, "*b"] = quantity(
        default=0.0, doc="of the port, by its rate", usual=(4e-9, 4e-9)
    )

    def __check_init__(self) -> None:
        """A number or a model, not both."""
        if (self.hit_ratio is None) == (self.hits is None):
            raise ConfigError("needs exactly one of hit_ratio (a number) and hits (a model of it)")

    def hit(self) -> Array:
        """The share of bytes that the cache answers."""
        if self.hits is not None:
            return self.hits.ratio(at_least(self.cache.usable_bytes(), 0.0))
        assert self.hit_ratio is not None
        return self.hit_ratio

    def beyond_s_per_byte(self) -> Array:
        """To the pool, through the port."""
        return maximum(1 / self.pool.bandwidth_bytes_per_s, self.port.beta_s_per_byte)

    def usable_bytes(self) -> Array:
        """The pool's share of one accelerator."""
        return self.pool.usable_bytes()

    def installed_bytes(self) -> Array:
        """The pool's share and the cache in front of it."""
        return self.pool.installed_bytes() + self.cache.installed_bytes()

    def bandwidth(self, data: str = "") -> Array:
        """Harmonic mean of hit and miss bandwidth, less what reading ahead hides."""
        hit = maximum(1 / self.cache.bandwidth_bytes_per_s, self.remote_cache * self.port.beta_s_per_byte)
        miss = maximum(1 / self.pool.bandwidth_bytes_per_s, self.port.beta_s_per_byte)
        hits, misses = self.hit() * hit, (1 - self.hit()) * miss
        return 1 / maximum(hits + (1 - self.prefetch) * misses, misses)

    def energy(self, data: str = "") -> Array:
        """Every byte touches the cache, a miss also the pool; the port carries misses, or all where it must."""
        miss = 1 - self.hit()
        carried = self.remote_cache + (1 - self.remote_cache) * miss
        return self.cache.energy_j_per_byte + miss * self.pool.energy_j_per_byte + carried * self.port.energy_j_per_byte

    def price_usd(self) -> Array:
        """Cache, pool and port."""
        port = self.usd_per_port_bytes_per_s / self.port.beta_s_per_byte
        return self.cache.price_usd() + self.pool.price_usd() + port

    def static_power_w(self) -> Array:
        """Cache and pool."""
        return self.cache.static_power_w() + self.pool.static_power_w()

    def peak_power_w(self) -> Array:
        """Cache and pool both at full rate, what the pool moves going through the port.

        A bound that stays a posynomial, where energy times the harmonic mean of the bandwidths would not.
        """
        through_port = self.pool.bandwidth_bytes_per_s + self.remote_cache * self.cache.bandwidth_bytes_per_s
        return self.cache.peak_power_w() + self.pool.peak_power_w() + through_port * self.port.energy_j_per_byte

    def added_bytes(self, nbytes: Array, data: str = "") -> Array:
        """The cache's ramp and, for the share that misses, the pool's and the port's latency."""
        beyond = self.pool.added_bytes(nbytes) + self.port.alpha_s / self.port.beta_s_per_byte
        return self.cache.added_bytes(nbytes) + (1 - self.hit()) * beyond

    def edge_bytes_per_s(self) -> dict[str, Array]:
        """The port, and the cache where it sits at the accelerator."""
        near = (1 - self.remote_cache) * self.cache.bandwidth_bytes_per_s
        return {"hbm": near, "pool": 1 / self.port.beta_s_per_byte}

    def limits(self, stored: dict[str, Array]) -> dict[str, Array]:
        """None beyond the capacity."""
        return {}

    @classmethod
    def example(cls) -> "CachedPool":
        """Near memory before a larger one."""
        cache, pool = MemoryTier.example(), MemoryTier(*arrays(1e12, 3e11, 1e-10, 3e-9))
        return cls(cache, pool, Link(*arrays(1e-6, 1 / 9e11, 5e-11)), hit_ratio=asarray(0.75), prefetch=asarray(0.5))


class SharedPool(AbstractMemory):
    """One memory behind ports that `sharers` accelerators fill and read together.

    Time per byte = max(c / tier bandwidth, beta / ports of the accelerator, c beta / ports of the pool), where
    c = 1 + (sharers - 1) activity accelerators pull at the same time on average. `port_bound` 0 leaves the ports out,
    as the document does when it gives one accelerator 26.8 TB/s through ports of 0.9 TB/s.

    Of the classes of data in `one_copy`, such as the weights of a model that is served, the pool holds one copy for all
    replicas of which accelerators share it: each counts its part of that. They read it as often as before.

    Assumes: fair sharing at the mean number of active accelerators, which is never faster than the mean over their
    number; an accelerator's data lie in its own equal part; where the pool gives an accelerator less than its
    ports carry, their latency is longer by as much. Log-convex in bandwidths, ports and energies.
    Source: [ding2025pfa] sections 3.3 and 6.1, with the port bound added.
    """

    tier: MemoryTier
    port: Link
    ports: Float[Array, "*b"] = quantity(low=1.0, doc="of the pool")
    sharers: Float[Array, "*b"] = quantity(low=1.0, doc="accelerators on the pool")
    ports_per_accelerator: Float[Array, "*b"] = quantity(low=1.0, default=1.0)
    activity: Float[Array, "*b"] = quantity(high=1.0, default=1.0, doc="share of its time that another one pulls")
    port_bound: Float[Array, "*b"] = switch(default=1.0, doc="0: bandwidth of the tier, whatever the ports carry")
    usd_per_port: Float[Array, "*b"] = quantity(default=0.0, usual=(3600.0, 3600.0))
    one_copy: tuple[str, ...] = static(default=(), converter=tuple)

    def kept_ratio(self, data: str, holders: Array, replicas: Array) -> Array:
        """One over the replicas on this pool, for what is kept once."""
        on_pool = at_most(at_least(floor(self.sharers / holders), 1.0), replicas)
        return 1 / on_pool if data in self.one_copy else 1.0 + 0.0 * replicas

    def beyond_s_per_byte(self) -> Array:
        """To the pool, while all others write too."""
        beta = self.port.beta_s_per_byte
        ports = maximum(beta / self.ports_per_accelerator, self.sharers * beta / self.ports)
        return maximum(self.sharers / self.tier.bandwidth(), ports)

    def usable_bytes(self) -> Array:
        """An equal part of the pool."""
        return self.tier.usable_bytes() / self.sharers

    def installed_bytes(self) -> Array:
        """An equal part of the pool."""
        return self.tier.installed_bytes() / self.sharers

    def active(self) -> Array:
        """Accelerators that pull at the same time, this one included."""
        return 1 + (self.sharers - 1) * self.activity

    def ports_bytes_per_s(self) -> Array:
        """Bandwidth that the ports let through to one accelerator, bytes/s."""
        beta = self.port.beta_s_per_byte
        return 1 / maximum(beta / self.ports_per_accelerator, self.active() * beta / self.ports)

    def port_load(self) -> Array:
        """The tier's share of one accelerator over what the ports carry; above one they are the limit."""
        return self.tier.bandwidth() / self.active() / self.ports_bytes_per_s()

    def bandwidth(self, data: str = "") -> Array:
        """The slower of the tier's share and the ports."""
        return 1 / maximum(self.active() / self.tier.bandwidth(), self.port_bound / self.ports_bytes_per_s())

    def remarks(self) -> tuple[str, ...]:
        """A bandwidth that the ports cannot carry is said aloud where it is used."""
        load = float(self.port_load())
        if load <= 1 or float(self.port_bound) >= 1:
            return ()
        carried, demanded = float(self.ports_bytes_per_s()), float(self.tier.bandwidth() / self.active())
        return (
            f"port_bound = {float(self.port_bound):g}: the pool gives an accelerator {demanded / 1e12:.3g} TB/s, its"
            f" ports carry {carried / 1e12:.3g} TB/s ({load:.2f} times too much)",
        )

    def energy(self, data: str = "") -> Array:
        """Memory and port."""
        return self.tier.energy() + self.port.energy_j_per_byte

    def price_usd(self) -> Array:
        """A part of the pool and its own ports."""
        return self.tier.price_usd() / self.sharers + self.ports_per_accelerator * self.usd_per_port

    def static_power_w(self) -> Array:
        """A part of the pool."""
        return self.tier.static_power_w() / self.sharers

    def peak_power_w(self) -> Array:
        """A part of the pool at full rate and its own ports lit."""
        through = self.ports_per_accelerator / self.port.beta_s_per_byte
        return self.tier.peak_power_w() / self.sharers + through * self.port.energy_j_per_byte

    def added_bytes(self, nbytes: Array, data: str = "") -> Array:
        """The tier's ramp and latency, and the latency of the accelerator's ports at their rate."""
        ports = self.ports_per_accelerator / self.port.beta_s_per_byte
        rate = jnp.where(self.port_bound > 0, ports, self.tier.bandwidth() / self.active())
        return self.tier.added_bytes(nbytes) + self.port.alpha_s * rate

    def edge_bytes_per_s(self) -> dict[str, Array]:
        """The accelerator's ports."""
        return {"pool": self.ports_per_accelerator / self.port.beta_s_per_byte}

    def limits(self, stored: dict[str, Array]) -> dict[str, Array]:
        """None beyond the capacity."""
        return {}

    @classmethod
    def example(cls) -> "SharedPool":
        """Eight accelerators at sixteen ports."""
        pool, port = MemoryTier(*arrays(3e13, 2.7e13, 1e-10, 3e-9)), Link(*arrays(1e-6, 1 / 9e11, 5e-11))
        return cls(pool, port, *arrays(16.0, 8.0, 2.0, 0.5, 1.0, 3600.0))
