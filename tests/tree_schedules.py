"""Trees, chains, direct exchanges and multicast carried out: who sends what to whom in which round, on real arrays.

Independent of the closed forms, as `schedules`: numbers move, rounds and the busiest port of each round are counted.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from schedules import inputs


@dataclass
class Ports:
    """Counts what goes out of and into each member; a round lasts as long as its busiest port."""

    rounds: int = 0
    elements: float = 0.0
    sent: float = 0.0  # by all members together
    longest: float = 0.0  # elements of the busiest port in the longest round
    _now: dict = field(default_factory=lambda: defaultdict(float))

    def send(self, source, target, values: np.ndarray) -> np.ndarray:
        assert source != target
        self._now["out", source] += values.size
        self._now["in", target] += values.size
        self.sent += values.size
        return values.copy()

    def tick(self):
        if self._now:
            self.rounds += 1
            self.elements += max(self._now.values())
            self.longest = max(self.longest, *self._now.values())
            self._now.clear()

    def seconds(self, alpha: float, seconds_per_element: float) -> float:
        return self.rounds * alpha + self.elements * seconds_per_element


def binomial_broadcast(size: int, elements: int):
    """(ports, result [size, elements], expected): everyone who has it sends it on."""
    data, ports, have = inputs(1, elements)[0], Ports(), {0: None}
    have[0] = data.copy()
    while len(have) < size:
        ahead = len(have)
        for source in list(have):
            if source + ahead < size:
                have[source + ahead] = ports.send(source, source + ahead, have[source])
        ports.tick()
    return ports, np.array([have[rank] for rank in range(size)]), data


def binomial_reduce(size: int, elements: int):
    """(ports, result at the root, expected): the broadcast backwards."""
    buffers, ports = inputs(size, elements), Ports()
    held, span = buffers.copy(), 1
    while span < size:
        span *= 2
    while span > 1:
        span //= 2
        for source in range(span, min(2 * span, size)):
            held[source - span] += ports.send(source, source - span, held[source])
        ports.tick()
    return ports, held[0], buffers.sum(axis=0)


def chain(size: int, elements: int, chunks: int, *, add: bool):
    """(ports, result [size or 1, elements], expected): chunks follow each other from member 0 to the last.

    A reduce adds each member's own; its result is what the last one holds.
    """
    buffers, ports = inputs(size, elements), Ports()
    held = [list(np.split(row.copy(), chunks)) for row in buffers]
    for now in range(size - 2 + chunks):
        inbox = []
        for source in range(size - 1):
            chunk = now - source
            if 0 <= chunk < chunks:
                inbox.append((source + 1, chunk, ports.send(source, source + 1, held[source][chunk])))
        for target, chunk, values in inbox:
            held[target][chunk] = held[target][chunk] + values if add else values
        ports.tick()
    result = np.array([np.concatenate(row) for row in held])
    return (ports, result[-1], buffers.sum(axis=0)) if add else (ports, result, buffers[0])


def scatter_all_gather(size: int, elements: int):
    """(ports, result, expected): halves down a tree, then round a ring."""
    data, ports = inputs(1, elements)[0], Ports()
    parts = np.split(data, size)
    held: list[dict[int, np.ndarray]] = [dict(enumerate(parts)), *({} for _ in range(size - 1))]
    ranges = [(0, size)]
    while any(high - low > 1 for low, high in ranges):
        halves = []
        for low, high in ranges:
            middle = high - (high - low) // 2
            if high - low > 1:
                values = ports.send(low, middle, np.concatenate([held[low][i] for i in range(middle, high)]))
                held[middle] = dict(zip(range(middle, high), np.split(values, high - middle), strict=True))
                halves += [(low, middle), (middle, high)]
            else:
                halves.append((low, high))
        ranges = halves
        ports.tick()
    held = [{rank: held[rank][rank]} for rank in range(size)]
    for step in range(size - 1):
        inbox = []
        for rank in range(size):
            index, target = (rank - step) % size, (rank + 1) % size
            inbox.append((target, index, ports.send(rank, target, held[rank][index])))
        for target, index, values in inbox:
            held[target][index] = values
        ports.tick()
    return ports, np.array([np.concatenate([h[i] for i in range(size)]) for h in held]), data


def recursive_doubling(size: int, elements: int):
    """(ports, result [size, elements], expected): partners at distance 1, 2, 4...; the rest hand in first."""
    buffers, ports = inputs(size, elements), Ports()
    inside, held = 2 ** int(np.log2(size)), buffers.copy()
    for extra in range(inside, size):
        held[extra - inside] += ports.send(extra, extra - inside, held[extra])
    ports.tick()
    distance = 1
    while distance < inside:
        received = [ports.send(rank ^ distance, rank, held[rank ^ distance]) for rank in range(inside)]
        held[:inside] += np.array(received)
        ports.tick()
        distance *= 2
    for extra in range(inside, size):
        held[extra] = ports.send(extra - inside, extra, held[extra - inside])
    ports.tick()
    return ports, held, buffers.sum(axis=0)


def parents(size: int) -> list[int]:
    """Parent of each member in a binary tree with odd members as leaves; the root, member 0, has one child."""
    result = [-1]
    for rank in range(1, size):
        bit = rank & -rank
        up = (rank ^ bit) | (bit << 1)
        result.append(up if up < size else rank ^ bit)
    return result


def depths(parent: list[int]) -> list[int]:
    def depth(rank: int) -> int:
        return 0 if parent[rank] < 0 else 1 + depth(parent[rank])

    return [depth(rank) for rank in range(len(parent))]


def double_tree_all_reduce(size: int, elements: int, chunks: int):
    """(ports, result, expected): two trees, mirrored or shifted, each with half of the buffer in `chunks` chunks.

    All sums go up first, then all results come down.
    """
    buffers, ports = inputs(size, elements), Ports()
    plain = parents(size)
    rename = [size - 1 - rank if size % 2 == 0 else (rank + 1) % size for rank in range(size)]
    second = [-1] * size
    for rank in range(size):
        second[rename[rank]] = -1 if plain[rank] < 0 else rename[plain[rank]]
    trees = [(tree, depths(tree)) for tree in (plain, second)]
    held = [[np.split(half.copy(), chunks) for half in np.split(row, 2)] for row in buffers]
    deepest = max(max(depth) for _, depth in trees)
    for upwards in (True, False):
        for now in range(deepest - 1 + chunks):
            inbox = []
            for half, (tree, depth) in enumerate(trees):
                for rank in range(size):
                    chunk = now - (deepest - depth[rank]) if upwards else now - (depth[rank] - 1)
                    if tree[rank] < 0 or not 0 <= chunk < chunks:
                        continue
                    source, target = (rank, tree[rank]) if upwards else (tree[rank], rank)
                    inbox.append((target, half, chunk, ports.send(source, target, held[source][half][chunk])))
            for target, half, chunk, values in inbox:
                held[target][half][chunk] = held[target][half][chunk] + values if upwards else values
            ports.tick()
    return ports, np.array([np.concatenate([*row[0], *row[1]]) for row in held]), buffers.sum(axis=0)


def one_shot(size: int, elements: int):
    """(ports, result, expected): everything to everyone."""
    buffers, ports = inputs(size, elements), Ports()
    held = buffers.copy()
    for source in range(size):
        for target in range(size):
            if target != source:
                held[target] += ports.send(source, target, buffers[source])
    ports.tick()
    return ports, held, buffers.sum(axis=0)


def two_shot(size: int, elements: int):
    """(ports after the first round, ports, result, expected): part p is summed by member p and sent to all."""
    buffers, ports = inputs(size, elements), Ports()
    parts = [np.split(row, size) for row in buffers]
    sums = [parts[rank][rank].copy() for rank in range(size)]
    for source in range(size):
        for target in range(size):
            if target != source:
                sums[target] += ports.send(source, target, parts[source][target])
    ports.tick()
    half = Ports(ports.rounds, ports.elements, ports.sent)
    held = [[sums[rank] if rank == part else None for part in range(size)] for rank in range(size)]
    for source in range(size):
        for target in range(size):
            if target != source:
                held[target][source] = ports.send(source, target, sums[source])
    ports.tick()
    return half, ports, np.array([np.concatenate(row) for row in held]), buffers.sum(axis=0)


def uneven_all_to_all(size: int, seed: int = 0):
    """(ports, what each sends in all, imbalance): block sizes drawn at random, all blocks at once."""
    counts = np.random.default_rng(seed).integers(1, 50, (size, size))
    ports = Ports()
    received = [[None] * size for _ in range(size)]
    for source in range(size):
        for target in range(size):
            block = np.full(counts[source, target], 100 * source + target)
            received[target][source] = block if source == target else ports.send(source, target, block)
    ports.tick()
    assert all(set(received[t][s]) == {100 * s + t} for s in range(size) for t in range(size))
    others = counts * (1 - np.eye(size, dtype=int))
    mean = others.sum() / size
    busiest = max(others.sum(axis=0).max(), others.sum(axis=1).max())
    return ports, mean * size / (size - 1), busiest / mean


@dataclass
class Fabric:
    """A switch with a port for each member: trips one after the other, elements on a member's link each way."""

    trips: int = 0
    up: float = 0.0
    down: float = 0.0


def multicast_all_reduce(size: int, elements: int):
    """(fabric, result, expected): loads that the switch sums, stores that it copies; every hop is counted."""
    buffers, fabric = inputs(size, elements), Fabric()
    parts = [np.split(row, size) for row in buffers]
    fabric.trips += 1  # everyone tells everyone that its data is there
    fabric.trips += 2  # requests to all members; data to the switch, its sum to the one who asked
    fabric.up += sum(part.size for part in parts[0])
    sums = [np.sum([parts[rank][part] for rank in range(size)], axis=0) for part in range(size)]
    fabric.down += sums[0].size
    fabric.trips += 2  # the sum to the switch and to all members; their acknowledgements back
    fabric.up += sums[0].size
    fabric.down += sum(part.size for part in sums)
    fabric.trips += 1  # everyone tells everyone that it is done
    return fabric, np.tile(np.concatenate(sums), (size, 1)), buffers.sum(axis=0)


def quantised_ring(size: int, elements: int, bits: int, block: int):
    """(bytes a member sends, bytes before quantisation that it encodes and decodes): every message of a ring counted.

    Elements of 2 bytes, scale factors of 2 bytes; parts and blocks divide.
    """
    part = elements // size
    assert part % block == 0
    message = part * bits / 8 + part // block * 2
    sent = coded = 0.0
    for _ in range(size - 1):  # reduce-scatter: encode the partial sum, send, decode the neighbour's
        sent, coded = sent + message, coded + 2 * 2 * part
    coded += 2 * part  # the sum that a member owns
    for _ in range(size - 1):  # all-gather: pass on as received, decode
        sent, coded = sent + message, coded + 2 * part
    return sent, coded
