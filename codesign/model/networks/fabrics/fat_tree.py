"""A scale-out fat tree: a network card per device, leaf switches, and a core that may be oversubscribed."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.fields import integer, quantity
from ....core.jax_typed import asarray
from ...hardware import Link
from .base import AbstractFabric, Group, everywhere


class FatTree(AbstractFabric):
    """Leaves of `leaf_endpoints` devices under a core with `blocking` times less bandwidth than the leaves offer.

    A group that spans one leaf sees its card; a wider one also sees the blocking factor and two more hops.

    Assumes: static even load (a rail-optimised tree has blocking 1 for rail-local traffic: give it larger leaves).
    """

    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(
        low=1.0, doc="payload per direction per endpoint", usual=(6e9, 4e11)
    )
    latency_s: Float[Array, "*b"] = quantity(doc="one message under one leaf", usual=(1.3e-6, 2e-5))
    hop_latency_s: Float[Array, "*b"] = quantity(default=0.0, doc="each further switch", usual=(1.5e-7, 2e-7))
    leaf_endpoints: Float[Array, "*b"] = integer(low=1.0, default=256.0)
    blocking: Float[Array, "*b"] = quantity(low=1.0, high=64.0, default=1.0)
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(4.4e-11, 1.8e-10))
    usd_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0, usual=(8.9e-8, 1.2e-7))
    static_w_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0, usual=(1.5e-9, 2.6e-9))
    fixed_usd: Float[Array, "*b"] = quantity(default=0.0, usual=(1500.0, 5700.0))

    def link(self, group: Group) -> Link:
        """Full rate inside a leaf, divided by the blocking factor beyond."""
        beyond = group.size * group.stride > self.leaf_endpoints
        slowdown = jnp.where(beyond, self.blocking, 1.0)
        latency = self.latency_s + jnp.where(beyond, 2 * self.hop_latency_s, 0.0)
        return Link(latency, slowdown / self.bandwidth_bytes_per_s, self.energy_j_per_byte)

    def reach(self) -> Array:
        """Unlimited reach: this is the outermost fabric."""
        return everywhere()

    def capex_usd(self) -> Array:
        """Card, switch ports and cables of one endpoint; a blocking core is cheaper in proportion to what it lacks."""
        core = 0.5 * (1 + 1 / self.blocking)
        return self.fixed_usd + self.bandwidth_bytes_per_s * self.usd_per_bytes_per_s * core

    def static_power_w(self) -> Array:
        """Card, switch port and optics of one endpoint."""
        return self.bandwidth_bytes_per_s * self.static_w_per_bytes_per_s

    @classmethod
    def example(cls) -> "FatTree":
        """Leaves of 32 ports, half as wide above."""
        return cls(
            asarray(50e9),
            asarray(5e-6),
            asarray(1e-6),
            leaf_endpoints=asarray(32.0),
            blocking=asarray(2.0),
            energy_j_per_byte=asarray(1e-11),
            usd_per_bytes_per_s=asarray(4e-9),
            static_w_per_bytes_per_s=asarray(1e-10),
            fixed_usd=asarray(50.0),
        )
