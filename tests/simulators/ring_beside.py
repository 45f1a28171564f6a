"""A ring collective carried out among bursts of other traffic: every queue a step passes, first come first served.

Each of n accelerators has a link into the switch and one out of it, of one rate; a message is passed on from its first
byte (cut-through) and stands in both queues. Others send bursts of one size at random moments from every accelerator to
a random other one, or, a share of them, to the network card, which takes them without delay and brings as many. A
member sends the message of a step once it has that of the step before and its own last one is on its way.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from codesign.core.errors import ConfigError

BURST, SEND, DELIVER = 0, 1, 2


@dataclass(frozen=True)
class RingBeside:
    """What is simulated, in bytes, bytes per second and seconds; `load` is the others' share of each link's rate."""

    members: int = 8
    link_bytes_per_s: float = 450e9
    latency_s: float = 1e-6
    message_bytes: float = 1e6
    steps: int = 14
    burst_bytes: float = 1e6
    load: float = 0.3
    beyond: float = 0.2

    def __post_init__(self) -> None:
        """Some members, steps and bytes, and a load that the links carry.

        Raises:
            ConfigError: naming what is none.
        """
        if self.members < 2 or self.steps < 1 or not self.message_bytes > 0 or not self.burst_bytes > 0:
            raise ConfigError(f"{self.members} members, {self.steps} steps: at least 2 and 1, of some bytes")
        if not 0 <= self.load < 1 or not 0 <= self.beyond <= 1:
            raise ConfigError(f"load = {self.load}, beyond = {self.beyond}: no such traffic")


def simulate_ring(ring: RingBeside, runs: int = 50, seed: int = 0) -> np.ndarray:
    """[runs] seconds of the collective, each begun at a moment of its own among the others' traffic."""
    rng = np.random.default_rng(seed)
    return np.array([_once(ring, rng)[0] for _ in range(runs)])


def send_times(ring: RingBeside, seed: int = 0) -> np.ndarray:
    """[steps, members] seconds at which each message begins to leave its member, in the first run."""
    return _once(ring, np.random.default_rng(seed))[1]


def _once(ring: RingBeside, rng: np.random.Generator) -> tuple[float, np.ndarray]:
    """Seconds of one collective after the queues have filled, and when each message begins to leave its member."""
    size, service = ring.members, ring.burst_bytes / ring.link_bytes_per_s
    alone = ring.steps * (ring.latency_s + ring.message_bytes / ring.link_bytes_per_s)
    begin = 40 * service / (1 - ring.load) ** 2
    rate = ring.load / service
    heap: list[tuple[float, int, int, int, int]] = []  # moment, order, what, accelerator, step (-1: a burst)
    count = 0

    def push(moment: float, what: int, who: int, step: int) -> None:
        nonlocal count
        count += 1
        heapq.heappush(heap, (moment, count, what, who, step))

    for who in range(size):
        if rate:
            push(rng.exponential(1 / rate), BURST, who, -1)
        push(begin, SEND, who, 0)
    into, out = np.zeros(size), np.zeros(size)  # when each link is free again
    received = np.full((ring.steps + 1, size), np.inf)
    begun = np.full((ring.steps, size), np.inf)  # when each message begins to leave
    left = np.full(size, begin)  # when a member's last message was all on its way
    sent = np.zeros(size, dtype=int)  # messages of each member
    received[0] = begin
    last = begin
    while heap:
        now, _, what, who, step = heapq.heappop(heap)
        if what == BURST:
            start = max(now, into[who])
            into[who] = start + service
            target = int(rng.integers(0, size - 1))
            if rng.random() < ring.beyond:  # it leaves; as much comes in
                push(now + service * rng.random(), DELIVER, int(rng.integers(0, size)), -1)
            else:
                push(start, DELIVER, target + (target >= who), -1)
            if now < begin + 1000 * alone + 1000 * service and sent.min() < ring.steps:
                push(now + rng.exponential(1 / rate), BURST, who, -1)
        elif what == SEND:
            begun[step, who] = start = max(now, into[who])
            into[who] = left[who] = start + ring.message_bytes / ring.link_bytes_per_s
            sent[who] = step + 1
            push(start, DELIVER, (who + 1) % size, step)
            if step + 1 < ring.steps and np.isfinite(received[step + 1, who]):  # it came before this one was sent
                push(max(received[step + 1, who], left[who]), SEND, who, step + 1)
        else:
            took = service if step < 0 else ring.message_bytes / ring.link_bytes_per_s
            start = max(now, out[who])
            out[who] = start + took
            if step < 0:
                continue
            received[step + 1, who] = start + took + ring.latency_s
            last = max(last, received[step + 1, who])
            if step + 1 < ring.steps:
                if sent[who] > step:
                    push(max(received[step + 1, who], left[who]), SEND, who, step + 1)
            elif np.isfinite(received[ring.steps]).all():
                break
    return last - begin, begun
