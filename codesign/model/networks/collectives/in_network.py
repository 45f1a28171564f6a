"""Collectives inside the switches: by an accelerator in each switch, or by the members' own multicast instructions."""

import abc
import dataclasses
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.cost import Cost
from ....core.errors import ConfigError
from ....core.fields import Module, integer, quantity
from ....core.jax_typed import asarray, zeros_like
from ....core.smooth import at_least, at_most, maximum, used_share
from ...hardware import Link
from ..fabrics import Group
from .base import AbstractCollective


class SwitchMemory(Module):
    """Buffer memory of a switch chip: area per byte, room and price.

    Assumes: buffers only; adders, tables and control of the accelerator are not counted.
    """

    mm2_per_byte: Float[Array, "*b"] = quantity(doc="static memory with its periphery")
    room_mm2: Float[Array, "*b"] = quantity(doc="what a switch chip has for it")
    usd_per_mm2: Float[Array, "*b"] = quantity(default=0.0, usual=(1.0, 1.0))


class SwitchTraffic(NamedTuple):
    """Traffic of an operation at the accelerators in the switches.

    wire_s of the busiest direction of a link; `read` from one member through its table; `piece` of it that goes to the
    same members; whether it is `added`.
    """

    wire_s: Array
    read: Array
    piece: Array
    added: bool = True


class SecondsPerByte(NamedTuple):
    """Seconds of a link for each byte of payload: its packet, the request ahead of it, the acknowledgement after."""

    data: Array
    request: Array
    acknowledgement: Array


class InNetworkAllReduce(AbstractCollective):
    """Accelerators in S switches fetch the members' buffers wave by wave, add them and write the sums back.

        t = (1 + y) alpha + sums + max(fill + trip + wire, nbytes / C trip + wire w / buffer + min(nbytes, C) h)

        trip = alpha + response       a request goes down, its data comes up
        fill = min(nbytes, S w) h     the first wave of w bytes; h = beta (payload + header) / payload
        wire = nbytes (beta (payload + header + max(request, acknowledgement)) / payload + bubble / (S payload))
        C = S buffer                  what may be under way; the second term is Little's law for the waves in it

    alpha is one trip through a switch, up and down: y for the synchronisation before and after (the members tell the
    switch, the switch tells the members), one for requests and data, one for writes and their acknowledgements. The
    link's rate is the raw one, headers included. Every member sends nbytes and receives nbytes, however large the
    group. Log-convex in the link, the times and the packet's overheads, not in the buffer, which a short message does
    not fill (list its sizes).

    Each switch holds a buffer for every endpoint and one for the sums, whose area is bounded and paid by `memory`.

    Assumes: buffers spread evenly over the switches; arithmetic at line rate; members in step. Within 4 % of a packet
    by packet simulation (`experiments/_lib/in_switch.py`), but for acknowledgements several times larger than
    requests (5 % around 1 MiB) and a single wave that does not divide the message (up to one trip more than this says).
    Source: [scin] sections 3 and 4, constants of its simulator as defaults.
    """

    payload_bytes: Float[Array, "*b"] = quantity(low=1.0, default=128.0, doc="of a full packet")
    header_bytes: Float[Array, "*b"] = quantity(default=16.0, doc="of a data packet")
    request_bytes: Float[Array, "*b"] = quantity(default=16.0, doc="a read request, one per packet")
    acknowledgement_bytes: Float[Array, "*b"] = quantity(default=16.0, doc="a write response, one per packet")
    switches: Float[Array, "*b"] = integer(low=1.0, default=4.0, doc="in parallel, each with a share of the link")
    wave_bytes: Float[Array, "*b"] = quantity(low=1.0, default=4096.0, doc="fetched and summed at once in one switch")
    buffer_bytes: Float[Array, "*b"] = quantity(low=1.0, default=65536.0, doc="per switch and member, whole waves")
    response_s: Float[Array, "*b"] = quantity(default=89e-9, doc="of a member to a read request", usual=(1.6e-8, 9e-8))
    arithmetic_cycles: Float[Array, "*b"] = quantity(default=20.0, doc="latency of the adders")
    bubble_cycles: Float[Array, "*b"] = quantity(default=0.0, doc="idle after each data packet")
    clock_hz: Float[Array, "*b"] = quantity(low=1.0, default=1e9, usual=(2.5e8, 2e9))
    synchronised: Float[Array, "*b"] = quantity(high=1.0, default=1.0, doc="0 leaves the synchronisation out")
    memory: SwitchMemory | None = None

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Closed form above; nothing for a group of one."""
        return self.run(SwitchTraffic(nbytes * self.seconds_per_byte(link), nbytes, nbytes), nbytes, group, link)

    def run(self, traffic: SwitchTraffic, sent_bytes: Array, group: Group, link: Link) -> Cost:
        """Closed form above for the traffic of any operation, of which a member sends `sent_bytes`."""
        busy = (group.size > 1) & (sent_bytes > 0)
        trip, room = link.alpha_s + self.response_s, self.switches * self.buffer_bytes
        data = link.beta_s_per_byte * (1 + self.header_bytes / self.payload_bytes)
        fill = at_most(traffic.piece, self.switches * self.wave_bytes) * data
        flowing = fill + trip + traffic.wire_s
        stalled = traffic.read / room * trip + traffic.wire_s * self.wave_bytes / self.buffer_bytes
        stalled = stalled + at_most(traffic.read, room) * data
        sums = self.arithmetic_cycles / self.clock_hz if traffic.added else 0.0
        seconds = (1 + self.synchronised) * link.alpha_s + sums + maximum(flowing, stalled)
        return Cost(jnp.where(busy, seconds, 0.0), jnp.where(busy, sent_bytes * link.energy_j_per_byte, 0.0))

    def each_way(self, link: Link) -> SecondsPerByte:
        """Seconds per payload byte of a link, in either direction; an idle gap follows each data packet."""
        beta, idle_s = link.beta_s_per_byte, self.bubble_cycles / self.clock_hz / self.switches
        data = beta * (self.payload_bytes + self.header_bytes) + idle_s
        small = (beta * self.request_bytes, beta * self.acknowledgement_bytes)
        return SecondsPerByte(*(seconds / self.payload_bytes for seconds in (data, *small)))

    def seconds_per_byte(self, link: Link) -> Array:
        """Inverse payload rate of a link that carries data both ways, each with the small packets of the other."""
        each = self.each_way(link)
        return each.data + maximum(each.request, each.acknowledgement)

    def capex_usd(self, endpoints: Array) -> Array:
        """Silicon of the buffers of all switches, over the endpoints."""
        if self.memory is None:
            return zeros_like(endpoints)
        return self.switches * self._memory_mm2(self.memory, endpoints) * self.memory.usd_per_mm2 / endpoints

    def limits(self, endpoints: Array) -> dict[str, Array]:
        """Used share of the room that a switch has for buffers, and of a buffer that holds whole waves."""
        if self.memory is None:
            return {}
        area = self._memory_mm2(self.memory, endpoints)
        return {"switch_memory": used_share(area, self.memory.room_mm2), "wave": self.wave_bytes / self.buffer_bytes}

    def _memory_mm2(self, memory: SwitchMemory, endpoints: Array) -> Array:
        """Buffer area of one switch, mm²."""
        return (endpoints + 1) * self.buffer_bytes * memory.mm2_per_byte

    @classmethod
    def example(cls) -> "InNetworkAllReduce":
        """With plain numbers."""
        return cls(wave_bytes=asarray(32768.0))


class AbstractSwitchCollective(AbstractCollective):
    """Another operation of the accelerators in the switches whose all-reduce stands beside it in `Collectives`.

    Instructions name who contributes and who receives by two bitmasks. `sums` says whether contributions are added, so
    that they may be rounded as those of the all-reduce are. `accelerator` is that of the all-reduce: `Collectives` puts
    it in place.

    Source: [scin] section 3.4: other primitives are combinations of Source and Destination.
    """

    sums: ClassVar[bool] = True

    accelerator: InNetworkAllReduce | None = None

    @abc.abstractmethod
    def traffic(self, nbytes: Array, group: Group, each: SecondsPerByte) -> SwitchTraffic:
        """Traffic of the operation over links, tables and adders."""

    @abc.abstractmethod
    def sent_bytes(self, nbytes: Array, group: Group) -> Array:
        """Payload that a member sends, averaged over the group."""

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Closed form of `InNetworkAllReduce` with this operation's traffic."""
        accelerator = self.accelerator
        if accelerator is None:
            name = type(self).__name__
            raise ConfigError(f"{name} lacks accelerator, an InNetworkAllReduce: name one as all_reduce beside it")
        traffic = self.traffic(nbytes, group, accelerator.each_way(link))
        return accelerator.run(traffic, self.sent_bytes(nbytes, group), group, link)

    def by(self, accelerator: InNetworkAllReduce) -> "AbstractSwitchCollective":
        """The operation on that accelerator."""
        return dataclasses.replace(self, accelerator=accelerator)


class InNetworkReduceScatter(AbstractSwitchCollective):
    """A reduce for each member, in turn wave by wave: all send everything, each receives the n-th part, summed.

        wire = nbytes max(data + acknowledgement / n, request + data / n)

    Assumes: tables that hold a wave for each member.
    Source: [scin] section 3.4: reduce-scatter as a composition of reduces.
    """

    operation: ClassVar[str] = "reduce_scatter"

    def traffic(self, nbytes: Array, group: Group, each: SecondsPerByte) -> SwitchTraffic:
        """Up everything, down a part."""
        n = group.size
        wire = nbytes * maximum(each.data + each.acknowledgement / n, each.request + each.data / n)
        return SwitchTraffic(wire, nbytes, nbytes / n)

    def sent_bytes(self, nbytes: Array, group: Group) -> Array:
        """All bytes of the operation, the member's own part included."""
        del group
        return nbytes

    @classmethod
    def example(cls) -> "InNetworkReduceScatter":
        """On the published accelerator."""
        return cls(InNetworkAllReduce.example())


class InNetworkAllGather(AbstractSwitchCollective):
    """A broadcast from each member to the others, in turn wave by wave: all send their part and receive the others'.

        wire = nbytes / n max((n-1) data + request, data + (n-1) acknowledgement)

    Assumes: instructions so short that reads of all members are under way together; nothing passes the adders.
    Source: [scin] section 3.4.
    """

    operation: ClassVar[str] = "all_gather"
    sums: ClassVar[bool] = False

    def traffic(self, nbytes: Array, group: Group, each: SecondsPerByte) -> SwitchTraffic:
        """Up a part, down the rest."""
        part, others = nbytes / group.size, at_least(group.size - 1, 0.0)
        wire = part * maximum(others * each.data + each.request, each.data + others * each.acknowledgement)
        return SwitchTraffic(wire, part, part, added=False)

    def sent_bytes(self, nbytes: Array, group: Group) -> Array:
        """One's own part, once."""
        return nbytes / group.size

    @classmethod
    def example(cls) -> "InNetworkAllGather":
        """On the published accelerator."""
        return cls(InNetworkAllReduce.example())


class InNetworkReduce(AbstractSwitchCollective):
    """All contribute, one receives: its link carries data both ways, so it takes as long as an all-reduce.

    Source: [scin] section 3.4.
    """

    operation: ClassVar[str] = "reduce"

    def traffic(self, nbytes: Array, group: Group, each: SecondsPerByte) -> SwitchTraffic:
        """Traffic of the receiver's link, the busiest."""
        del group
        return SwitchTraffic(nbytes * (each.data + maximum(each.request, each.acknowledgement)), nbytes, nbytes)

    def sent_bytes(self, nbytes: Array, group: Group) -> Array:
        """All bytes of the operation."""
        del group
        return nbytes

    @classmethod
    def example(cls) -> "InNetworkReduce":
        """On the published accelerator."""
        return cls(InNetworkAllReduce.example())


class InNetworkBroadcast(AbstractSwitchCollective):
    """One contributes, the others receive: no link carries data both ways.

    Source: [scin] section 3.4.
    """

    operation: ClassVar[str] = "broadcast"
    sums: ClassVar[bool] = False

    def traffic(self, nbytes: Array, group: Group, each: SecondsPerByte) -> SwitchTraffic:
        """Up at one member, down at the others."""
        del group
        return SwitchTraffic(nbytes * each.data, nbytes, nbytes, added=False)

    def sent_bytes(self, nbytes: Array, group: Group) -> Array:
        """The buffer of the one that sends, over all members."""
        return nbytes / group.size

    @classmethod
    def example(cls) -> "InNetworkBroadcast":
        """On the published accelerator."""
        return cls(InNetworkAllReduce.example())


class MulticastAllReduce(AbstractCollective):
    """Members load sums that the switch forms on the way, each its part, and store them to all by multicast (NVLS).

        t = 6 alpha + response + arithmetic + nbytes (1 + 1/n) beta / payload_ratio

    alpha is one trip through the switch: synchronisation before and after, a load (request to all members, sum back to
    the one that asked) and a store (to all, acknowledged). Each member's link carries its whole buffer and the n-th
    part that it asked for, both ways.

    Assumes: loads in flight fill the wire; the switch's ports have the speed-up that multicast needs.
    Source: [klenk2020]; the message flow and the packets as [scin] section 2.2 describes them.
    """

    payload_ratio: Float[Array, "*b"] = quantity(low=1e-3, high=1.0, default=0.8, doc="payload per byte of link rate")
    response_s: Float[Array, "*b"] = quantity(default=89e-9, doc="of a member to a read request", usual=(1.6e-8, 9e-8))
    arithmetic_s: Float[Array, "*b"] = quantity(
        default=20e-9, doc="latency of the adders in the ports", usual=(2e-8, 2e-8)
    )

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Closed form above; nothing for a group of one."""
        busy = (group.size > 1) & (nbytes > 0)
        sent = nbytes * (1 + 1 / group.size)
        seconds = 6 * link.alpha_s + self.response_s + self.arithmetic_s
        seconds = seconds + sent * link.beta_s_per_byte / self.payload_ratio
        return Cost(jnp.where(busy, seconds, 0.0), jnp.where(busy, sent * link.energy_j_per_byte, 0.0))
