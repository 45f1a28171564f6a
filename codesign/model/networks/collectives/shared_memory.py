"""Collectives through memory that all members address: write one's own, wait for the others, read what one needs."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.cost import Cost
from ....core.fields import quantity
from ....core.jax_typed import asarray
from ....core.smooth import at_most, maximum
from ...hardware import Link
from ..fabrics import Group
from .base import AbstractCollective

__all__ = ["SharedMemoryAllGather", "SharedMemoryAllReduce", "SharedMemoryAllToAll", "SharedMemoryReduceScatter"]

TRIPS = 3.0
"""Trips through the switch of one exchange over the memory, which lies half a trip away: data there and its
acknowledgement, 1; a flag there and its reading, 1; request and data back, 1. Source: derived."""


def through_memory(
    exchanges: float, written: Array, read: Array, first: Array, memory_bytes_per_s: Array, group: Group, link: Link
) -> Cost:
    """`exchanges` over the memory, one after the other, in pieces that overlap.

        t = 3 exchanges alpha + max(beta max(written, read), n (written + read) / memory) + beta first

    The first piece is written before anything can be read. Energy: a byte crosses one cable to the memory or from it,
    half of what a link counts from member to member.
    """
    busy = (group.size > 1) & (written + read > 0)
    wire = link.beta_s_per_byte * maximum(written, read)
    kept = group.size * (written + read) / memory_bytes_per_s
    seconds = TRIPS * exchanges * link.alpha_s + maximum(wire, kept) + link.beta_s_per_byte * first
    return Cost(jnp.where(busy, seconds, 0.0), jnp.where(busy, 0.5 * (written + read) * link.energy_j_per_byte, 0.0))


class SharedMemoryAllReduce(AbstractCollective):
    """Each writes its buffer, reads and sums its part of all others', writes the sum, reads the other sums.

        t = 6 alpha + max(2 (n-1)/n nbytes beta, (3 n - 2) nbytes / memory) + min(nbytes, piece) beta

    As many bytes as a ring, in six trips whatever the group.

    Assumes: full-duplex ports; sums hidden behind the wire; pieces small beside the buffer hide waits for flags. Up to
    9 % later than carried out (`tests/simulators`), where the trips of the second exchange hide behind the first.
    Log-convex in the link and in the memory's rate, not in the piece.
    Source: [ding2025pfa] section 3.4, which names the idea; the schedule is ours.
    """

    piece_bytes: Float[Array, "*b"] = quantity(low=1.0, default=1e6, doc="written before its flag is set")
    memory_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, default=1e18, doc="of the memory, for all members")

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Two exchanges."""
        n = group.size
        first = at_most(nbytes, self.piece_bytes)
        return through_memory(2.0, nbytes, 2 * (n - 1) / n * nbytes, first, self.memory_bytes_per_s, group, link)

    @classmethod
    def example(cls) -> "SharedMemoryAllReduce":
        """Example in front of an appliance's memory."""
        return cls(memory_bytes_per_s=asarray(2e13))


class SharedMemoryAllGather(AbstractCollective):
    """Each writes its part and reads those of the others: 3 alpha + (n-1)/n nbytes beta + min(nbytes / n, piece) beta.

    Assumes: as `SharedMemoryAllReduce`.
    Source: [ding2025pfa] section 3.4, which names the idea; the schedule is ours.
    """

    operation: ClassVar[str] = "all_gather"

    piece_bytes: Float[Array, "*b"] = quantity(low=1.0, default=1e6, doc="written before its flag is set")
    memory_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, default=1e18, doc="of the memory, for all members")

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """One exchange."""
        n = group.size
        part = nbytes / n
        first = at_most(part, self.piece_bytes)
        return through_memory(1.0, part, (n - 1) * part, first, self.memory_bytes_per_s, group, link)

    @classmethod
    def example(cls) -> "SharedMemoryAllGather":
        """Example in front of an appliance's memory."""
        return cls(memory_bytes_per_s=asarray(2e13))


class SharedMemoryAllToAll(AbstractCollective):
    """Each writes what is for others and reads what is for itself: 3 alpha + (n-1)/n nbytes beta + the first piece.

    Assumes: as `SharedMemoryAllReduce`; equal blocks.
    Source: [ding2025pfa] section 3.4, which names the idea; the schedule is ours.
    """

    operation: ClassVar[str] = "all_to_all"

    piece_bytes: Float[Array, "*b"] = quantity(low=1.0, default=1e6, doc="written before its flag is set")
    memory_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, default=1e18, doc="of the memory, for all members")

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """One exchange."""
        n = group.size
        sent = (n - 1) / n * nbytes
        first = (n - 1) / n * at_most(nbytes, self.piece_bytes)
        return through_memory(1.0, sent, sent, first, self.memory_bytes_per_s, group, link)

    @classmethod
    def example(cls) -> "SharedMemoryAllToAll":
        """Example in front of an appliance's memory."""
        return cls(memory_bytes_per_s=asarray(2e13))


class SharedMemoryReduceScatter(AbstractCollective):
    """The first half of `SharedMemoryAllReduce`: as `SharedMemoryAllToAll`, summed on arrival.

    Source: [ding2025pfa] section 3.4, which names the idea; the schedule is ours.
    """

    operation: ClassVar[str] = "reduce_scatter"

    piece_bytes: Float[Array, "*b"] = quantity(low=1.0, default=1e6, doc="written before its flag is set")
    memory_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, default=1e18, doc="of the memory, for all members")

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """One exchange."""
        return SharedMemoryAllToAll(self.piece_bytes, self.memory_bytes_per_s).cost(nbytes, group, link)

    @classmethod
    def example(cls) -> "SharedMemoryReduceScatter":
        """Example in front of an appliance's memory."""
        return cls(memory_bytes_per_s=asarray(2e13))
