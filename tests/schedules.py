"""Collective operations carried out: who sends what to whom in which round, on real arrays.

Independent of the closed forms: a schedule moves numbers between members, and what it costs is counted while it runs
(rounds, the largest number of elements a member sends in each round, changes of partner). Sums and gathered buffers
are checked against numpy.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Wire:
    """Counts what is sent. A round ends with `tick`; all sends of a round are at the same time."""

    size: int
    rounds: int = 0
    elements: float = 0.0  # over the rounds, of the member that sends most in each
    streams: float = 0.0  # the same, but a member's largest message times its partners (equal shares of its channel)
    partners: list[int] = field(default_factory=list)  # most partners of any member, per round
    sent: np.ndarray | None = None  # in all, by member
    _now: dict = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))

    def __post_init__(self):
        self.sent = np.zeros(self.size)

    def send(self, source: int, target: int, values: np.ndarray) -> np.ndarray:
        assert source != target
        self._now[source][target] += values.size
        self.sent[source] += values.size
        return values.copy()

    def tick(self):
        if not self._now:
            return
        self.rounds += 1
        self.elements += max(sum(out.values()) for out in self._now.values())
        self.streams += max(max(out.values()) * len(out) for out in self._now.values())
        self.partners.append(max(len(out) for out in self._now.values()))
        self._now.clear()

    def seconds(self, alpha: float, seconds_per_element: float) -> float:
        """Under the alpha-beta model, rounds one after the other."""
        return self.rounds * alpha + self.elements * seconds_per_element


def inputs(size: int, elements: int, seed: int = 0) -> np.ndarray:
    """[size, elements] whole numbers, so that sums are exact in any order."""
    return np.random.default_rng(seed).integers(-1000, 1000, (size, elements)).astype(float)


def chunked(buffers: np.ndarray) -> list[list[np.ndarray]]:
    """[size, elements] -> member -> chunk; the elements must divide."""
    size, elements = buffers.shape
    assert elements % size == 0
    return [list(np.split(row.copy(), size)) for row in buffers]


def ring_reduce_scatter(wire: Wire, chunks: list[list[np.ndarray]], ring: list[int]) -> dict[int, int]:
    """After it, member -> index of the chunk of which it holds the sum."""
    n = len(ring)
    for step in range(n - 1):
        inbox = []
        for place, member in enumerate(ring):
            index = (place - step) % n
            inbox.append(
                (ring[(place + 1) % n], index, wire.send(member, ring[(place + 1) % n], chunks[member][index]))
            )
        for target, index, values in inbox:
            chunks[target][index] = chunks[target][index] + values
        wire.tick()
    return {member: (place + 1) % n for place, member in enumerate(ring)}


def ring_all_gather(wire: Wire, chunks: list[list[np.ndarray]], ring: list[int], owner: dict[int, int]):
    """From each member's own chunk (owner: member -> chunk) to all chunks everywhere."""
    n = len(ring)
    for step in range(n - 1):
        inbox = []
        for place, member in enumerate(ring):
            index = (owner[member] - step) % n
            inbox.append(
                (ring[(place + 1) % n], index, wire.send(member, ring[(place + 1) % n], chunks[member][index]))
            )
        for target, index, values in inbox:
            chunks[target][index] = values
        wire.tick()


def ring_all_reduce(size: int, elements: int) -> tuple[Wire, np.ndarray, np.ndarray]:
    """(wire, result [size, elements], expected [elements])."""
    buffers, wire = inputs(size, elements), Wire(size)
    chunks, ring = chunked(buffers), list(range(size))
    ring_all_gather(wire, chunks, ring, ring_reduce_scatter(wire, chunks, ring))
    return wire, np.array([np.concatenate(c) for c in chunks]), buffers.sum(axis=0)


def pairwise_all_to_all(size: int, elements: int) -> tuple[Wire, np.ndarray, np.ndarray]:
    """Block b of member a ends as block a of member b; round k pairs a with a + k."""
    buffers, wire = inputs(size, elements), Wire(size)
    blocks = chunked(buffers)
    result = [[blocks[a][b] if a == b else None for b in range(size)] for a in range(size)]
    for shift in range(1, size):
        for a in range(size):
            b = (a + shift) % size
            result[b][a] = wire.send(a, b, blocks[a][b])
        wire.tick()
    expected = np.array([np.concatenate([blocks[a][b] for a in range(size)]) for b in range(size)])
    return wire, np.array([np.concatenate(row) for row in result]), expected


def digits(rank: int, factors: list[int]) -> list[int]:
    """Mixed-radix digits, least significant first."""
    out = []
    for factor in factors:
        out.append(rank % factor)
        rank //= factor
    return out


def mixed_radix_all_reduce(factors: list[int], elements: int) -> tuple[Wire, np.ndarray, np.ndarray]:
    """Reduce-scatter over the digits from the last to the first, then all-gather from the first to the last.

    In the round of digit i the members that differ in it alone form a clique; each keeps, of the chunks it still has
    to do with, those whose digit i is its own, and sends the others to whoever they belong to.
    """
    size = int(np.prod(factors))
    buffers, wire = inputs(size, elements), Wire(size)
    chunks = chunked(buffers)
    name = [digits(rank, factors) for rank in range(size)]
    rank_of = {tuple(d): rank for rank, d in enumerate(name)}
    alive = [set(range(size)) for _ in range(size)]  # chunks each member still sums up

    def clique(rank: int, place: int) -> list[int]:
        return [rank_of[(*name[rank][:place], d, *name[rank][place + 1 :])] for d in range(factors[place])]

    for place in reversed(range(len(factors))):
        inbox = []
        for rank in range(size):
            for peer in clique(rank, place):
                if peer == rank:
                    continue
                theirs = sorted(c for c in alive[rank] if name[c][place] == name[peer][place])
                inbox.append((peer, theirs, wire.send(rank, peer, np.concatenate([chunks[rank][c] for c in theirs]))))
        for peer, theirs, values in inbox:
            for index, part in zip(theirs, np.split(values, len(theirs)), strict=True):
                chunks[peer][index] = chunks[peer][index] + part
        for rank in range(size):
            alive[rank] = {c for c in alive[rank] if name[c][place] == name[rank][place]}
        wire.tick()
    assert all(held == {rank} for rank, held in enumerate(alive))
    for place in range(len(factors)):
        inbox = []
        for rank in range(size):
            mine = sorted(alive[rank])
            values = np.concatenate([chunks[rank][c] for c in mine])
            inbox += [(p, mine, wire.send(rank, p, values)) for p in clique(rank, place) if p != rank]
        for peer, theirs, values in inbox:
            for index, part in zip(theirs, np.split(values, len(theirs)), strict=True):
                chunks[peer][index] = part
            alive[peer] |= set(theirs)
        wire.tick()
    return wire, np.array([np.concatenate(c) for c in chunks]), buffers.sum(axis=0)


def bruck_all_gather(size: int, radix: int, elements: int) -> tuple[Wire, np.ndarray, np.ndarray]:
    """All-gather of any number of members: with h chunks held, fetch the next h from each of r - 1 members ahead."""
    whole = inputs(1, elements)[0]
    wire = Wire(size)
    parts = np.split(whole, size)
    held = [{rank: parts[rank]} for rank in range(size)]
    have = 1
    while have < size:
        inbox = []
        for rank in range(size):
            for step in range(1, radix):
                wanted = range(step * have, min((step + 1) * have, size))
                source = (rank + step * have) % size
                if len(wanted) == 0:
                    continue
                names = [(rank + offset) % size for offset in wanted]
                inbox.append((rank, names, wire.send(source, rank, np.concatenate([held[source][c] for c in names]))))
        for rank, names, values in inbox:
            held[rank] |= dict(zip(names, np.split(values, len(names)), strict=True))
        wire.tick()
        have = min(have * radix, size)
    return wire, np.array([np.concatenate([h[c] for c in range(size)]) for h in held]), whole


def pipelined_double_tree_seconds(height: float, chunks: int, nbytes: float, alpha: float, beta: float) -> float:
    """2 (h - 1 + k) steps of one chunk each: up two complementary trees, then down."""
    return 2 * (height - 1 + chunks) * (alpha + nbytes * beta / chunks)


@dataclass
class Levels:
    """Counts of each level of a nested group, innermost first."""

    wires: list[Wire]


def nested_all_reduce(sizes: list[int], elements: int) -> tuple[Levels, np.ndarray, np.ndarray]:
    """Reduce-scatter inside every level on the way out, all-reduce at the outermost, all-gather on the way in.

    Ranks count from the inside out: rank = i0 + sizes[0] * (i1 + sizes[1] * i2).
    """
    total = int(np.prod(sizes))
    buffers = inputs(total, elements)
    wires = [Wire(total) for _ in sizes]
    shard = dict.fromkeys(range(total), (0, elements))
    data = {rank: buffers[rank].copy() for rank in range(total)}
    path: list[dict[int, tuple[int, int]]] = []

    def rings(level: int) -> list[list[int]]:
        stride = int(np.prod(sizes[:level]))
        firsts = [r for r in range(total) if (r // stride) % sizes[level] == 0]
        return [[first + stride * i for i in range(sizes[level])] for first in firsts]

    def in_step(wire: Wire, level: int, run) -> None:
        """All rings of a level at once: each on counters of its own, rounds counted once."""
        counts = []
        for ring in rings(level):
            mine = Wire(total)
            run(mine, ring)
            counts.append(mine)
        wire.rounds += max(c.rounds for c in counts)
        wire.elements += max(c.elements for c in counts)
        wire.sent += sum(c.sent for c in counts)

    def scatter(wire: Wire, ring: list[int]) -> None:
        low, high = shard[ring[0]]
        views = {r: list(np.split(data[r][low:high], len(ring))) for r in ring}
        owner = ring_reduce_scatter(wire, views, ring)
        for r in ring:
            width = (high - low) // len(ring)
            start = low + owner[r] * width
            data[r][start : start + width] = views[r][owner[r]]
            shard[r] = (start, start + width)

    def gather(wire: Wire, ring: list[int], before: dict[int, tuple[int, int]]) -> None:
        low, high = before[ring[0]]
        width = (high - low) // len(ring)
        views = {r: list(np.split(data[r][low:high].copy(), len(ring))) for r in ring}
        owner = {r: (shard[r][0] - low) // width for r in ring}
        ring_all_gather(wire, views, ring, owner)
        for r in ring:
            data[r][low:high] = np.concatenate(views[r])

    for level in range(len(sizes)):
        path.append(dict(shard))
        in_step(wires[level], level, scatter)
    for level in reversed(range(len(sizes))):
        before = path[level]
        in_step(wires[level], level, lambda wire, ring, before=before: gather(wire, ring, before))
        shard.update(before)
    return Levels(wires), np.array([data[r] for r in range(total)]), buffers.sum(axis=0)


def nested_all_gather(sizes: list[int], elements: int) -> tuple[Levels, np.ndarray, np.ndarray]:
    """Members with one place inside gather their shards outside first, then everything inside (elements gathered)."""
    total = int(np.prod(sizes))
    whole = inputs(1, elements)[0]
    parts = np.split(whole, total)
    held = [{rank: parts[rank]} for rank in range(total)]
    wires = [Wire(total) for _ in sizes]
    for level in reversed(range(len(sizes))):
        stride = int(np.prod(sizes[:level]))
        counts = []
        for first in [r for r in range(total) if (r // stride) % sizes[level] == 0]:
            ring = [first + stride * i for i in range(sizes[level])]
            mine, bundles = Wire(total), [dict(held[r]) for r in ring]
            for step in range(len(ring) - 1):
                for index, member in enumerate(ring):
                    bundle = bundles[(index - step) % len(ring)]
                    target = ring[(index + 1) % len(ring)]
                    values = mine.send(member, target, np.concatenate(list(bundle.values())))
                    held[target] |= dict(zip(bundle, np.split(values, len(bundle)), strict=True))
                mine.tick()
            counts.append(mine)
        wires[level].rounds += max(c.rounds for c in counts)
        wires[level].elements += max(c.elements for c in counts)
        wires[level].sent += sum(c.sent for c in counts)
    return Levels(wires), np.array([np.concatenate([h[r] for r in range(total)]) for h in held]), whole


def direct_all_to_all_volumes(sizes: list[int], elements: int) -> list[float]:
    """Elements a member sends to members first met on each level, innermost first, when every block goes directly."""
    total = int(np.prod(sizes))
    block, volumes = elements / total, [0.0] * len(sizes)
    for other in range(1, total):
        level, span = 0, sizes[0]
        while other >= span:
            level += 1
            span *= sizes[level]
        volumes[level] += block
    return volumes
