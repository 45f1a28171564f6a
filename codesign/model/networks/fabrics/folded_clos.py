"""A folded Clos network (fat tree of equal switches): radix, tiers and how many switches that takes."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.fields import integer, quantity
from ....core.jax_typed import arrays, asarray
from ....core.smooth import at_least, at_most, ceil, used_share
from ...hardware import Link
from .base import AbstractFabric, Group, everywhere

# A scale-out fat tree: a network card per device, leaf switches, and a core that may be oversubscribed.


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


class FoldedClos(AbstractFabric):
    """Switches of `radix` ports in as few tiers as join the endpoints at full bisection, a card an endpoint.

    With k = radix / 2 and n = endpoints / rails in a plane:

        tiers                 L = least with 2 k^L >= n
        switches of a plane   (L - 1) m + ceil(m / 2), m = ceil(n / k) leaves;  n (2 L - 1) / radix where all are full
        cables of a plane     n L
        way of a group        t = least with k^t >= size stride / rails, at most L: 2 t - 1 switches, 2 t cables
        price, standing power card + ports bought an endpoint x port + L x cable, each in proportion to bandwidth

    `rails` are separate networks to which neighbouring devices are dealt in turn, one plane for each card of a node.
    Switches are bought whole. What a switch can carry bounds radix x bandwidth (`limits`): wide ports are few ports.

    Assumes: even load, routed over all ways (adaptively); a group starts where a subtree starts; traffic from rail to
    rail is passed on inside the node at no cost. Log-convex in all but endpoints, radix and rails, which are constants
    of a plan or listed values.
    Source: [leiserson1985], [alfares2008] for three tiers; [zhao2025insights] section 5.1 for rails (its planes).
    """

    radix: Float[Array, "*b"] = integer(low=4.0, high=4096.0, doc="ports of a switch")
    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(
        low=1.0, doc="payload per direction per endpoint, of a port", usual=(2.5e10, 4e11)
    )
    latency_s: Float[Array, "*b"] = quantity(doc="one message, without the switches", usual=(1.3e-6, 2e-5))
    switch_latency_s: Float[Array, "*b"] = quantity(default=0.0, doc="each switch on the way, with its cable")
    cable_energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, doc="each cable on the way, both ends")
    endpoints: Float[Array, "*b"] = integer(
        low=1.0, default=1.0, doc="room for; the outermost level joins at least all devices"
    )
    rails: Float[Array, "*b"] = integer(
        low=1.0, high=1024.0, default=1.0, doc="separate networks, devices dealt in turn"
    )
    switch_bytes_per_s: Float[Array, "*b"] = quantity(
        low=1.0, default=1e18, doc="what a switch carries, per direction, all ports"
    )
    card_usd_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0)
    port_usd_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0, doc="of a switch, without optics")
    cable_usd_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0, doc="with the optics at both ends")
    card_w_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0)
    port_w_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0)
    cable_w_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0)

    def tiers(self) -> Array:
        """L, the least that holds all endpoints."""
        return at_least(ceil(jnp.log(self._plane() / 2) / jnp.log(self.radix / 2)), 1.0)

    def switches(self) -> Array:
        """Switches of all rails."""
        leaves = ceil(2 * self._plane() / self.radix)
        return self.rails * ((self.tiers() - 1) * leaves + ceil(leaves / 2))

    def link(self, group: Group) -> Link:
        """Full rate for everyone; the way to the lowest switches that all members share."""
        span = at_least(group.size * group.stride / self.rails, 1.0)
        tier = at_most(at_least(ceil(jnp.log(span) / jnp.log(self.radix / 2)), 1.0), self.tiers())
        latency = self.latency_s + (2 * tier - 1) * self.switch_latency_s
        return Link(latency, 1 / self.bandwidth_bytes_per_s, 2 * tier * self.cable_energy_j_per_byte)

    def reach(self) -> Array:
        """All endpoints of all rails."""
        return self.endpoints

    def joining(self, devices: Array) -> "FoldedClos":
        """With room for so many devices at least."""
        return dataclasses.replace(self, endpoints=at_least(self.endpoints, devices))

    def capex_usd(self) -> Array:
        """Card, ports and cables of one endpoint, empty ports of its switches with them."""
        cables = self.tiers() * self.cable_usd_per_bytes_per_s
        each = self.card_usd_per_bytes_per_s + self._ports() * self.port_usd_per_bytes_per_s + cables
        return self.bandwidth_bytes_per_s * each

    def static_power_w(self) -> Array:
        """Card, switch ports and optics of one endpoint."""
        cables = self.tiers() * self.cable_w_per_bytes_per_s
        each = self.card_w_per_bytes_per_s + self._ports() * self.port_w_per_bytes_per_s + cables
        return self.bandwidth_bytes_per_s * each

    def limits(self) -> dict[str, Array]:
        """Used share of what one switch carries."""
        return {"switch": used_share(self.radix * self.bandwidth_bytes_per_s, self.switch_bytes_per_s)}

    def counts(self, devices: Array) -> dict[str, Array]:
        """Switches and cables of all instances, and the tiers of one."""
        instances, tiers = ceil(devices / self.endpoints), self.tiers()
        cables = instances * self.rails * self._plane() * tiers
        return {"switches": instances * self.switches(), "cables": cables, "tiers": tiers}

    def _plane(self) -> Array:
        """Endpoints of one rail."""
        return ceil(self.endpoints / self.rails)

    def _ports(self) -> Array:
        """Switch ports bought for one endpoint."""
        return self.switches() * self.radix / self.endpoints

    @classmethod
    def example(cls) -> "FoldedClos":
        """Three tiers of a rail."""
        return cls(*arrays(16.0, 50e9, 1e-6, 2e-7, 4e-11, 500.0, 2.0, 3e12, 2e-8, 1e-8, 2e-8, 5e-10, 2e-10, 3e-10))
