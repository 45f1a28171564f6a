"""Energy of a byte on its way: adapters and switches of the path, averaged over where the partners sit."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.fields import Module, integer, quantity
from ....core.smooth import at_least, ceil, floor, ratio
from .base import Group

PATHS = ("tray", "rack", "inter_rack", "offload")


class PathShares(NamedTuple):
    """Shares of a group's traffic that stay in the tray, stay in the rack, and leave the rack; they sum to one."""

    tray: Array
    rack: Array
    inter_rack: Array


class PathEnergy(Module):
    """Energy per byte of each class of path in a Clos network of trays and racks.

    A path costs its two adapters and its switches; inside a tray one figure stands for the whole path. `offload` is the
    path to memory that is no accelerator's own.

    Assumes: groups start at a tray's first device, racks hold whole trays, and a group's stride divides a tray or is a
    multiple of it (others are read as with the fewest members a tray may hold). Linear in every energy, hence
    log-convex.
    Source: [ding2025pfa] section 4.2.
    """

    adapter_j_per_byte: Float[Array, "*b"] = quantity()
    switch_j_per_byte: Float[Array, "*b"] = quantity()
    tray_j_per_byte: Float[Array, "*b"] = quantity()
    offload_j_per_byte: Float[Array, "*b"] = quantity()
    rack_switches: Float[Array, "*b"] = quantity(default=1.0, doc="on a path between trays of one rack")
    inter_rack_switches: Float[Array, "*b"] = quantity(default=3.0, doc="on a path between racks")
    tray_devices: Float[Array, "*b"] = integer(low=1.0, default=8.0)
    rack_devices: Float[Array, "*b"] = quantity(low=1.0, default=64.0)

    def through(self, switches: Array) -> Array:
        """Joules per byte of a path with two adapters and this many switches."""
        return 2 * self.adapter_j_per_byte + switches * self.switch_j_per_byte

    def j_per_byte(self) -> dict[str, Array]:
        """Joules per byte of each class of path."""
        return {
            "tray": self.tray_j_per_byte,
            "rack": self.through(self.rack_switches),
            "inter_rack": self.through(self.inter_rack_switches),
            "offload": self.offload_j_per_byte,
        }

    def to_any_peer(self, group: Group) -> PathShares:
        """Traffic spread evenly over all ordered pairs of members (all-to-all; an average over all routes).

        Trays of m members, of which floor(n / m) are full and one holds the r that are left, hold
        floor(n / m) m (m - 1) + r (r - 1) of the n (n - 1) pairs; racks likewise.
        """
        tray, rack = self._members(group)
        pairs = group.size * (group.size - 1)
        inside = ratio(_pairs_within(tray, group.size), pairs, otherwise=1.0)
        near = ratio(_pairs_within(rack, group.size), pairs, otherwise=1.0)
        return PathShares(inside, near - inside, 1 - near)

    def to_next(self, group: Group, *, closed: bool = True) -> PathShares:
        """Traffic from each member to the next one: n hops round a ring, n - 1 along a chain that is not `closed`.

        k trays (or racks), the last perhaps not full, are left k times round the ring where there are several, once
        less along a chain.
        """
        tray, rack = self._members(group)
        hops = group.size - (0.0 if closed else 1.0)

        def crossed(members: Array) -> Array:
            places = ceil(group.size / members)
            return jnp.where(places > 1, places - (0.0 if closed else 1.0), 0.0)

        beyond = ratio(crossed(rack), hops)
        between = ratio(crossed(tray) - crossed(rack), hops)
        return PathShares(1 - between - beyond, between, beyond)

    def mean_j_per_byte(self, shares: PathShares) -> Array:
        """Energy per byte averaged over where the traffic goes."""
        each = self.j_per_byte()
        return shares.tray * each["tray"] + shares.rack * each["rack"] + shares.inter_rack * each["inter_rack"]

    def _members(self, group: Group) -> tuple[Array, Array]:
        """Members in the first one's tray, and in its rack."""
        tray = group.split(self.tray_devices)[0].size
        return tray, at_least(group.split(self.rack_devices)[0].size, tray)


def _pairs_within(members: Array, size: Array) -> Array:
    """Ordered pairs of a group of `size` that lie in one place, `members` of it in each but the last."""
    full = floor(size / members)
    left = size - full * members
    return full * members * (members - 1) + left * at_least(left - 1, 0.0)
