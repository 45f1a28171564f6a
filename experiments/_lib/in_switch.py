"""Collectives of an in-switch accelerator, packet by packet: an event simulation that knows no closed form.

One of several equal switches is simulated with all its members. Every packet that crosses a link is an event: read
requests down, read responses up, writes down, write responses up. Each direction of a link serves its queues in turn:
those of the accelerator, and one of ordinary packets where there are any. An instruction names the members that
contribute and those that receive; several are worked on wave by wave, in turn. The packets carry whole numbers, so
what arrives at the members can be checked.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Clock",
    "Instruction",
    "SwitchOutcome",
    "SwitchedAccelerator",
    "SwitchedChannel",
    "instructions",
    "simulate",
]


@dataclass(frozen=True)
class SwitchedAccelerator:
    """An in-switch accelerator and its links. Bytes and rates are those of one member over all switches together.

    `bubble_s` is the time a link idles after each data packet, `jitter_s` the most that a member's response is late
    (uniform), `table_bytes` the buffer for one member in one switch, divided into `waves` entries, `others_ratio` the
    load of ordinary data packets on every link, as a share of its rate.
    """

    members: int = 8
    switches: int = 4
    link_bytes_per_s: float = 450e9
    latency_s: float = 250e-9
    payload_bytes: float = 128
    header_bytes: float = 16
    request_bytes: float = 16
    response_bytes: float = 16
    table_bytes: float = 65536
    waves: int = 16
    response_s: float = 89e-9
    arithmetic_s: float = 20e-9
    bubble_s: float = 0.0
    jitter_s: float = 0.0
    synchronised: bool = True
    others_ratio: float = 0.0


@dataclass(frozen=True)
class Instruction:
    """Bytes that some members contribute and some receive: the sum of what is contributed."""

    nbytes: float
    sources: tuple[int, ...]
    destinations: tuple[int, ...]


def instructions(operation: str, nbytes: float, members: int) -> list[Instruction]:
    """A collective by bitmasks: sizes as in `codesign` (of a reduce-scatter the input, of an all-gather the result)."""
    everyone = tuple(range(members))
    others = [tuple(one for one in everyone if one != member) for member in everyone]
    if operation == "all_reduce":
        return [Instruction(nbytes, everyone, everyone)]
    if operation == "reduce":
        return [Instruction(nbytes, everyone, (0,))]
    if operation == "broadcast":
        return [Instruction(nbytes, (0,), others[0])]
    if operation == "reduce_scatter":
        return [Instruction(nbytes / members, everyone, (member,)) for member in everyone]
    return [Instruction(nbytes / members, (member,), others[member]) for member in everyone]  # all_gather


@dataclass
class SwitchOutcome:
    """What happened: when it was over, what one member's link carried, what was summed and what was right.

    `right` says that every member has what it should, and nothing else; `sums` and `expected` are of an all-reduce.
    """

    seconds: float
    up_bytes: float
    down_bytes: float
    sums: list[list[int]]
    expected: list[int]
    most_outstanding_bytes: float
    right: bool = True


@dataclass
class SwitchedChannel:
    """One direction of a link: its queues served in turn, one packet at a time.

    Packets of others arrive evenly, of `others_bytes` each, one every `others_s` (infinite: none), in the third queue.
    """

    clock: "Clock"
    bytes_per_s: float
    latency_s: float
    others_bytes: float = 0.0
    others_s: float = math.inf
    queues: tuple[deque, deque] = field(default_factory=lambda: (deque(), deque()))
    busy: bool = False
    turn: int = 0
    carried_bytes: float = 0.0
    others_served: int = 0

    def send(self, queue: int, nbytes: float, idle_s: float, arrive: Callable[..., None], *what: Any) -> None:
        """Put a packet into a queue; `arrive(*what)` is called when its last byte is at the other end."""
        self.queues[queue].append((nbytes, idle_s, arrive, what))
        if not self.busy:
            self._serve()

    def _waits(self, queue: int) -> bool:
        if queue < 2:
            return bool(self.queues[queue])
        return self.others_served < math.floor(self.clock.now / self.others_s)

    def _serve(self) -> None:
        if not (self.queues[0] or self.queues[1]):
            self._pass_time()
            return
        queue = next(each % 3 for each in range(self.turn, self.turn + 3) if self._waits(each % 3))
        self.busy, self.turn = True, (queue + 1) % 3
        if queue == 2:
            self.others_served += 1
            self.clock.after(self.others_bytes / self.bytes_per_s, self._serve)
            return
        nbytes, idle_s, arrive, what = self.queues[queue].popleft()
        self.carried_bytes += nbytes
        over = nbytes / self.bytes_per_s
        self.clock.after(over + self.latency_s, arrive, *what)
        self.clock.after(over + idle_s, self._serve)

    def _pass_time(self) -> None:
        """Nothing of ours waits: others have the link, so that what came meanwhile is gone when ours comes."""
        self.busy = False
        if self.others_s < math.inf and self.others_bytes / self.bytes_per_s < self.others_s:
            self.others_served = max(self.others_served, math.floor(self.clock.now / self.others_s))


class Clock:
    """Events in the order of their time, then of their making."""

    def __init__(self) -> None:
        self.now, self._made, self._events = 0.0, 0, []

    def after(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        """Call `what` that much later."""
        self._made += 1
        heapq.heappush(self._events, (self.now + seconds, self._made, what, arguments))

    def run(self) -> None:
        """Until nothing is left to happen."""
        while self._events:
            self.now, _, what, arguments = heapq.heappop(self._events)
            what(*arguments)


class _Switch:
    """The wave controller, its tables and its members."""

    def __init__(self, work: list[Instruction], design: SwitchedAccelerator, seed: int) -> None:
        self.design, self.clock, self.random = design, Clock(), random.Random(seed)
        self.work = work
        rate = design.link_bytes_per_s / design.switches
        packet, share = design.payload_bytes + design.header_bytes, design.others_ratio
        others = (packet, packet / rate / share) if share else (0.0, math.inf)
        self.up, self.down = (
            [SwitchedChannel(self.clock, rate, design.latency_s, *others) for _ in range(design.members)]
            for _ in range(2)
        )
        cut = [_cut(one.nbytes / design.switches, design.payload_bytes) for one in work]
        self.packets = [nbytes for packets in cut for nbytes in packets]
        self.owner = [index for index, packets in enumerate(cut) for _ in packets]
        self.values = [[self.random.randrange(1 << 40) for _ in self.packets] for _ in self.up]
        self.result = [[-1] * len(self.packets) for _ in self.up]
        self.entry_bytes = design.table_bytes / design.waves
        self.waves = self._waves([len(packets) for packets in cut])
        self.arrived = [0] * len(self.waves)
        self.sums = [0] * len(self.packets)
        self.next_wave, self.free = 0, [design.waves] * design.members
        self.unwritten = sum(len(one.destinations) * len(packets) for one, packets in zip(work, cut, strict=True))
        self.most_outstanding = 0.0
        self.outstanding = [0.0] * design.members
        self.ended_s = 0.0

    def _waves(self, counts: list[int]) -> list[list[int]]:
        """Packets by wave, as many as an entry holds, of each instruction in turn."""
        per_wave = max(1, int(self.entry_bytes // self.design.payload_bytes))
        by_instruction, first = [], 0
        for count in counts:
            numbers = list(range(first, first + count))
            by_instruction.append([numbers[at : at + per_wave] for at in range(0, count, per_wave)])
            first += count
        deepest = max(len(waves) for waves in by_instruction)
        return [waves[turn] for turn in range(deepest) for waves in by_instruction if turn < len(waves)]

    def of(self, wave: int) -> Instruction:
        """The instruction that a wave belongs to."""
        return self.work[self.owner[self.waves[wave][0]]]

    def issue(self) -> None:
        """Ask for the next waves while all that contribute have free entries."""
        while self.next_wave < len(self.waves) and all(self.free[one] for one in self.of(self.next_wave).sources):
            wave = self.next_wave
            self.next_wave = wave + 1
            nbytes = sum(self.packets[packet] for packet in self.waves[wave])
            for member in self.of(wave).sources:
                self.free[member] -= 1
                self.outstanding[member] += nbytes
            self.most_outstanding = max(self.most_outstanding, *self.outstanding)
            for packet in self.waves[wave]:
                for member in self.of(wave).sources:
                    self.down[member].send(0, self.design.request_bytes, 0.0, self.asked, member, wave, packet)

    def asked(self, member: int, wave: int, packet: int) -> None:
        """A read request is at the member, which answers from its memory."""
        late = self.random.uniform(0.0, self.design.jitter_s) if self.design.jitter_s else 0.0
        self.clock.after(self.design.response_s + late, self.answer, member, wave, packet)

    def answer(self, member: int, wave: int, packet: int) -> None:
        nbytes = self.packets[packet] + self.design.header_bytes
        self.up[member].send(0, nbytes, self.design.bubble_s, self.received, member, wave, packet)

    def received(self, member: int, wave: int, packet: int) -> None:
        """Data is in the table; a complete wave goes through the adders, if there is a sum, and frees its entries."""
        self.sums[packet] += self.values[member][packet]
        self.arrived[wave] += 1
        sources = self.of(wave).sources
        if self.arrived[wave] == len(self.waves[wave]) * len(sources):
            for each in sources:
                self.free[each] += 1
                self.outstanding[each] -= sum(self.packets[one] for one in self.waves[wave])
            self.clock.after(self.design.arithmetic_s if len(sources) > 1 else 0.0, self.write, wave)
            self.issue()

    def write(self, wave: int) -> None:
        for packet in self.waves[wave]:
            for member in self.of(wave).destinations:
                nbytes = self.packets[packet] + self.design.header_bytes
                self.down[member].send(1, nbytes, self.design.bubble_s, self.written, member, packet)

    def written(self, member: int, packet: int) -> None:
        self.result[member][packet] = self.sums[packet]
        self.up[member].send(1, self.design.response_bytes, 0.0, self.acknowledged)

    def acknowledged(self) -> None:
        """The last write response: the members are told."""
        self.unwritten -= 1
        if self.unwritten == 0:
            self.ended_s = self.clock.now + (self.design.latency_s if self.design.synchronised else 0.0)

    def run(self) -> SwitchOutcome:
        self.clock.after(self.design.latency_s if self.design.synchronised else 0.0, self.issue)
        self.clock.run()
        expected = [sum(self.values[one][packet] for one in self.work[owner].sources)
                    for packet, owner in enumerate(self.owner)]  # fmt: skip
        right = all(
            self.result[member][packet] == (expected[packet] if member in self.work[owner].destinations else -1)
            for member in range(self.design.members)
            for packet, owner in enumerate(self.owner)
        )
        up, down = (max(channel.carried_bytes for channel in one) for one in (self.up, self.down))
        scale = self.design.switches
        most = self.most_outstanding
        return SwitchOutcome(self.ended_s, up * scale, down * scale, self.result, expected, most, right)


def _cut(nbytes: float, payload_bytes: float) -> list[float]:
    """Payloads of the packets of a message: full ones, then what is left."""
    full = int(nbytes // payload_bytes)
    left = nbytes - full * payload_bytes
    return [payload_bytes] * full + ([left] if left > 1e-9 else [])


def simulate(
    nbytes: float, design: SwitchedAccelerator | None = None, seed: int = 0, operation: str = "all_reduce"
) -> SwitchOutcome:
    """A collective of `nbytes` by the in-switch accelerator.

    Args:
        nbytes: buffer of one member, as it goes over the wire (quantised, with scale factors).
        design: the switches and links; those of the published simulator by default.
        seed: of the members' numbers and of their lateness.
        operation: see `instructions`.

    Returns:
        Seconds from the moment all members are ready to the last one's release, and what was carried and summed.
    """
    design = design or SwitchedAccelerator()
    return _Switch(instructions(operation, nbytes, design.members), design, seed).run()
