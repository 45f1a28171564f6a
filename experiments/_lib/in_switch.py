"""The in-switch accelerator of an all-reduce, packet by packet: an event simulation that knows no closed form.

One of several equal switches is simulated with all its members. Every packet that crosses a link is an event: read
requests down, read responses up, writes down, write responses up. Each direction of a link serves two queues in turn.
The packets carry whole numbers, so the sum that arrives at the members can be checked.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Clock", "SwitchOutcome", "SwitchedAccelerator", "SwitchedChannel", "simulate"]


@dataclass(frozen=True)
class SwitchedAccelerator:
    """An in-switch accelerator and its links. Bytes and rates are those of one member over all switches together.

    `bubble_s` is the time a link idles after each data packet, `jitter_s` the most that a member's response is late
    (uniform), `table_bytes` the buffer for one member in one switch, divided into `waves` entries.
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


@dataclass
class SwitchOutcome:
    """What happened: when it was over, what one member's link carried, what was summed and what was right."""

    seconds: float
    up_bytes: float
    down_bytes: float
    sums: list[list[int]]
    expected: list[int]
    most_outstanding_bytes: float


@dataclass
class SwitchedChannel:
    """One direction of a link: two queues served in turn, one packet at a time."""

    clock: "Clock"
    bytes_per_s: float
    latency_s: float
    queues: tuple[deque, deque] = field(default_factory=lambda: (deque(), deque()))
    busy: bool = False
    turn: int = 0
    carried_bytes: float = 0.0

    def send(self, queue: int, nbytes: float, idle_s: float, arrive: Callable[..., None], *what: Any) -> None:
        """Put a packet into a queue; `arrive(*what)` is called when its last byte is at the other end."""
        self.queues[queue].append((nbytes, idle_s, arrive, what))
        if not self.busy:
            self._serve()

    def _serve(self) -> None:
        waiting = self.turn if self.queues[self.turn] else 1 - self.turn
        if not self.queues[waiting]:
            self.busy = False
            return
        nbytes, idle_s, arrive, what = self.queues[waiting].popleft()
        self.busy, self.turn = True, 1 - waiting
        self.carried_bytes += nbytes
        over = nbytes / self.bytes_per_s
        self.clock.after(over + self.latency_s, arrive, *what)
        self.clock.after(over + idle_s, self._serve)


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

    def __init__(self, nbytes: float, design: SwitchedAccelerator, seed: int) -> None:
        self.design, self.clock, self.random = design, Clock(), random.Random(seed)
        rate = design.link_bytes_per_s / design.switches
        self.up = [SwitchedChannel(self.clock, rate, design.latency_s) for _ in range(design.members)]
        self.down = [SwitchedChannel(self.clock, rate, design.latency_s) for _ in range(design.members)]
        self.packets = _cut(nbytes / design.switches, design.payload_bytes)
        self.values = [[self.random.randrange(1 << 40) for _ in self.packets] for _ in self.up]
        self.result = [[-1] * len(self.packets) for _ in self.up]
        self.entry_bytes = design.table_bytes / design.waves
        self.waves = self._waves()
        self.arrived = [0] * len(self.waves)
        self.sums = [0] * len(self.packets)
        self.next_wave, self.free = 0, design.waves
        self.unwritten = len(self.packets) * design.members
        self.most_outstanding = self.outstanding = 0.0
        self.ended_s = 0.0

    def _waves(self) -> list[list[int]]:
        """Packets by wave: as many as an entry holds."""
        per_wave = max(1, int(self.entry_bytes // self.design.payload_bytes))
        numbers = list(range(len(self.packets)))
        return [numbers[at : at + per_wave] for at in range(0, len(numbers), per_wave)]

    def issue(self) -> None:
        """Ask all members for the next waves while there are free entries."""
        while self.free and self.next_wave < len(self.waves):
            wave = self.next_wave
            self.next_wave, self.free = wave + 1, self.free - 1
            self.outstanding += sum(self.packets[packet] for packet in self.waves[wave])
            self.most_outstanding = max(self.most_outstanding, self.outstanding)
            for packet in self.waves[wave]:
                for member, channel in enumerate(self.down):
                    channel.send(0, self.design.request_bytes, 0.0, self.asked, member, wave, packet)

    def asked(self, member: int, wave: int, packet: int) -> None:
        """A read request is at the member, which answers from its memory."""
        late = self.random.uniform(0.0, self.design.jitter_s) if self.design.jitter_s else 0.0
        self.clock.after(self.design.response_s + late, self.answer, member, wave, packet)

    def answer(self, member: int, wave: int, packet: int) -> None:
        nbytes = self.packets[packet] + self.design.header_bytes
        self.up[member].send(0, nbytes, self.design.bubble_s, self.received, member, wave, packet)

    def received(self, member: int, wave: int, packet: int) -> None:
        """Data is in the table; a complete wave goes through the adders and frees its entry."""
        self.sums[packet] += self.values[member][packet]
        self.arrived[wave] += 1
        if self.arrived[wave] == len(self.waves[wave]) * self.design.members:
            self.free += 1
            self.outstanding -= sum(self.packets[each] for each in self.waves[wave])
            self.clock.after(self.design.arithmetic_s, self.write, wave)
            self.issue()

    def write(self, wave: int) -> None:
        for packet in self.waves[wave]:
            for member, channel in enumerate(self.down):
                nbytes = self.packets[packet] + self.design.header_bytes
                channel.send(1, nbytes, self.design.bubble_s, self.written, member, packet)

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
        expected = [sum(column) for column in zip(*self.values, strict=True)]
        up, down = self.up[0].carried_bytes, self.down[0].carried_bytes
        scale = self.design.switches
        return SwitchOutcome(self.ended_s, up * scale, down * scale, self.result, expected, self.most_outstanding)


def _cut(nbytes: float, payload_bytes: float) -> list[float]:
    """Payloads of the packets of a message: full ones, then what is left."""
    full = int(nbytes // payload_bytes)
    left = nbytes - full * payload_bytes
    return [payload_bytes] * full + ([left] if left > 1e-9 else [])


def simulate(nbytes: float, design: SwitchedAccelerator | None = None, seed: int = 0) -> SwitchOutcome:
    """An all-reduce of `nbytes` by the in-switch accelerator.

    Args:
        nbytes: buffer of one member, as it goes over the wire (quantised, with scale factors).
        design: the switches and links; those of the published simulator by default.
        seed: of the members' numbers and of their lateness.

    Returns:
        Seconds from the moment all members are ready to the last one's release, and what was carried and summed.
    """
    return _Switch(nbytes, design or SwitchedAccelerator(), seed).run()
