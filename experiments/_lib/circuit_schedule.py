"""Collective operations on circuits, carried out: who sends what to whom in which round, at what cost.

Independent of the closed forms of `radix` and `standing`: a schedule is a list of rounds, `Rack.run` moves the numbers,
sees which circuits stand and which must be set, and adds up the time. NumPy and whole numbers only.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

__all__ = [
    "Message", "Rack", "Round", "ScheduleOutcome", "all_reduce", "cliques", "digits", "factorisations",
    "ring_all_reduce", "rotations",
]  # fmt: skip


class Message(NamedTuple):
    """What one member sends another in a round: indices of chunks, added there or kept there."""

    source: int
    target: int
    chunks: np.ndarray
    adds: bool


Round = list[Message]


def factorisations(size: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as a product of factors of at least 2, largest factors first."""
    if size == 1:
        yield ()
    for factor in range(min(size, largest or size), 1, -1):
        if size % factor == 0:
            yield from ((factor, *rest) for rest in factorisations(size // factor, factor))


def digits(factors: Sequence[int]) -> np.ndarray:
    """[size, places] digits of every member's number in a mixed radix, least significant first."""
    ranks = np.arange(int(np.prod(factors)))
    strides = np.cumprod([1, *factors[:-1]])
    return ranks[:, None] // strides % np.asarray(factors)


def cliques(factors: Sequence[int], place: int) -> Iterator[tuple[int, int]]:
    """(member, partner) of all members that differ in one digit alone."""
    stride = int(np.prod(factors[:place]))
    name = digits(factors)[:, place]
    for rank in range(len(name)):
        for digit in range(factors[place]):
            if digit != name[rank]:
                yield rank, rank + (digit - int(name[rank])) * stride


def all_reduce(factors: Sequence[int], orders: Sequence[Sequence[int]] = ()) -> list[Round]:
    """Reduce-scatter, then all-gather, over the digits of a mixed radix.

    In the round of a digit the members that differ in it alone exchange: each keeps, of the chunks that it still has
    to do with, those whose digit is its own, and sends every other to the member it belongs to. The all-gather goes
    back the same way.

    Args:
        factors: of the group's size.
        orders: for each part of the buffer the order of places in the reduce-scatter. One part, from the last place
            to the first, unless given; several parts in rotated order use all places at once (SiPAC).

    Returns:
        2 len(factors) rounds; chunk `part * size + i` ends its reduce-scatter at member i.
    """
    size, name = int(np.prod(factors)), digits(factors)
    rounds: list[Round] = [[] for _ in range(2 * len(factors))]
    for part, order in enumerate(orders or [tuple(reversed(range(len(factors))))]):
        alive = np.ones((size, size), dtype=bool)  # [member, chunk]
        for step, index in enumerate(order):
            kept = alive & (name[:, index][:, None] == name[:, index][None, :])
            for source, target in cliques(factors, index):
                theirs = np.flatnonzero(alive[source] & (name[:, index] == name[target, index]))
                rounds[step].append(Message(source, target, part * size + theirs, adds=True))
                mine = np.flatnonzero(kept[source])
                rounds[-1 - step].append(Message(source, target, part * size + mine, adds=False))
            alive = kept
    return rounds


def rotations(count: int) -> list[tuple[int, ...]]:
    """Part j begins at place j and takes the others in turn."""
    return [tuple((first + step) % count for step in range(count)) for first in range(count)]


def ring_all_reduce(size: int) -> list[Round]:
    """Each chunk goes round once to be summed and once to be known."""
    rounds: list[Round] = []
    for step in range(2 * (size - 1)):
        chunks = [(rank - step) % size for rank in range(size)]
        rounds.append([Message(r, (r + 1) % size, np.array([c]), adds=step < size - 1) for r, c in enumerate(chunks)])
    return rounds


@dataclass
class ScheduleOutcome:
    """What a run took.

    Shares are of one member's buffer: `wire` the channel time, `sent` by each member. `pointed` counts the rounds that
    waited for circuits, `values` is what members hold at the end, [members, chunks].
    """

    seconds: float = 0.0
    rounds: int = 0
    pointed: int = 0
    wire: float = 0.0
    values: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    sent: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Rack:
    """The machine that carries a schedule out.

    Args:
        alpha_s, reconfiguration_s, bytes_per_s: of a circuit and a member's channel.
        lanes: equal parts of a channel; 0 where it divides at will.
        splitting: `lanes` (each partner a whole number of them), `ideal` (as its messages ask), `equal` (one part more
            than partners, unless there is one partner alone).
        standing: circuits per member that stand for the whole job and divide the channel; None: circuits follow the
            schedule, round by round.
        always: every round waits for its circuits, even for those that stand already (as published).
        server, fibers, fiber_bytes_per_s: members of a server, and what leaves it; 0 fibers: enough.
    """

    alpha_s: float
    reconfiguration_s: float
    bytes_per_s: float
    lanes: int = 0
    splitting: str = "lanes"
    standing: int | None = None
    always: bool = False
    server: int = 0
    fibers: float = 0.0
    fiber_bytes_per_s: float = 0.0

    def run(self, rounds: Sequence[Round], values: np.ndarray, nbytes: float, repeat: int = 1) -> ScheduleOutcome:
        """Carry out a schedule on `values` [members, chunks], chunks of equal size making up `nbytes` for each member.

        With `repeat` the same schedule runs several times on circuits as the run before left them.
        """
        size, chunks = map(int, values.shape)
        out = ScheduleOutcome(values=values.copy(), sent=np.zeros(size))
        circuits: set[tuple[int, int]] = set()
        for whole in itertools.chain.from_iterable([rounds] * repeat):
            before = out.values.copy()
            for part in self._waves(whole):
                wanted = {(m.source, m.target) for m in part}
                pointing = self.standing is None and (self.always or not wanted <= circuits)
                circuits = wanted if pointing else circuits
                for m in part:
                    new = before[m.source, m.chunks]
                    out.values[m.target, m.chunks] = out.values[m.target, m.chunks] + new if m.adds else new
                    out.sent[m.source] += len(m.chunks) / chunks
                busy = max(self._channel(part, chunks), self._leaving(part, chunks))
                out.wire += busy
                out.rounds += 1
                out.pointed += pointing
                waiting = self.reconfiguration_s if pointing else 0.0
                out.seconds += self.alpha_s + waiting + busy * nbytes / self.bytes_per_s
        return out

    def _waves(self, messages: Round) -> Iterator[Round]:
        """A round, or several where a member has more partners than lanes."""
        by_source: dict[int, Round] = defaultdict(list)
        for message in messages:
            by_source[message.source].append(message)
        most = self.lanes or max(map(len, by_source.values()))
        for first in range(0, max(map(len, by_source.values())), most):
            yield [m for own in by_source.values() for m in own[first : first + most]]

    def _channel(self, messages: Round, chunks: int) -> float:
        """Longest channel time of any member, in buffers."""
        by_source: dict[int, list[float]] = defaultdict(list)
        for message in messages:
            by_source[message.source].append(len(message.chunks) / chunks)
        return max(self._shared(parts) for parts in by_source.values())

    def _shared(self, parts: list[float]) -> float:
        """Channel time of messages sent at once, each over its share of the channel."""
        partners = self.standing or len(parts)
        if self.splitting == "lanes" and self.lanes:
            return max(parts) * self.lanes / (self.lanes // partners)
        if self.standing:
            return max(parts) * partners
        if self.splitting == "equal" and partners > 1:
            return max(parts) * (partners + 1)
        return sum(parts)

    def _leaving(self, messages: Round, chunks: int) -> float:
        """Longest time of any server's fibers, in buffers of a member's channel."""
        if not (self.server and self.fibers):
            return 0.0
        out: dict[int, float] = defaultdict(float)
        for m in messages:
            if m.source // self.server != m.target // self.server:
                out[m.source // self.server] += len(m.chunks) / chunks
        return max(out.values(), default=0.0) * self.bytes_per_s / (self.fibers * self.fiber_bytes_per_s)
