"""Collectives through memory that all members address: write one's own, wait for the others, read what one needs."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.cost import Cost
from ....core.fields import quantity
from ....core.jax_typed import arrays, asarray
from ....core.smooth import at_most, maximum
from ...hardware import Channel, Link, ThreeStagePath, infiniband, pcie
from ..fabrics import Group
from .base import AbstractCollective, Tuned
from .ring import Send

__all__ = ["SharedMemoryAllGather", "SharedMemoryAllReduce", "SharedMemoryAllToAll", "SharedMemoryReduceScatter"]


# Messages from host to host through PCIe, a network card and back, packet by packet.


class HostPath(AbstractCollective):
    """A send over a `ThreeStagePath` whose wire is the link: its rate, shared or not, and its latency.

        t = launch + max(library, path)
        path = alpha + t0 + read + n1 (a1 + beta + a3) + (n - n1) max(a1, beta, a3) + ramp n^2 / (n^2 + nr^2)

    `path.start_s` is what comes on top of the link's own latency; of `path.wire` only the size of a packet counts.
    `inner` is the send of a library between such hosts as it was measured (`Tuned`): its launch, in software, comes
    before the first byte moves and is added; while bytes move, the library's own transfer and the path go on together,
    and the slower lasts. Adding all of the path would count the wire twice: a measured 33.5 MB between ten nodes takes
    1,401 us, of which this gives 1,389 and the sum of both 2,061.

    Assumes: one message at a time; the launch as it was measured, between hosts whose read and first packet (0.4 us of
    39) are in it. Log-convex in the link and in the rates of both hosts' PCIe where `inner` is.
    Source: [pcie_interference] sections 3.2 and 4.1, as `ThreeStagePath`.
    """

    operation: ClassVar[str] = "send"

    path: ThreeStagePath
    inner: AbstractCollective = Send()

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """One message to the next member; nothing for a group of one or no bytes."""
        busy = (group.size > 1) & (nbytes > 0)
        wire = Channel(1 / link.beta_s_per_byte, unit_bytes=self.path.wire.packet_bytes())
        seconds = link.alpha_s + dataclasses.replace(self.path, wire=wire).time_s(nbytes)
        library = self.inner if isinstance(self.inner, Tuned) else Tuned(self.inner)
        moving = dataclasses.replace(library, launch_s=0.0 * library.launch_s).cost(nbytes, group, link)
        taken = library.launch_s + maximum(seconds, moving.time_s)
        return Cost(jnp.where(busy, taken, 0.0), moving.energy_j)

    @classmethod
    def example(cls) -> "HostPath":
        """From card to card."""
        return cls(ThreeStagePath(pcie(5), infiniband("NDR"), pcie(5), *arrays(0.0, 4e-7, 220.0, 8e-7)))


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
    memory_s = group.size * (written + read) / memory_bytes_per_s
    seconds = TRIPS * exchanges * link.alpha_s + maximum(wire, memory_s) + link.beta_s_per_byte * first
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
