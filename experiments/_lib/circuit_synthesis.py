"""All-reduce schedules on circuits found by dynamic programming: which digits, in which order, when circuits are set.

A schedule of n members is a way to write n as a product of factors. In the round of a factor f every member exchanges
with f - 1 partners: it scatters (keeps one part of f, and gathers it again later in the mirrored round), or exchanges
whole (all f end with the sum at once, one round in place of two). Circuits are set for a block of factors at a time and
stand while the block lasts, divided among all of its partners, whole lanes each. On the way back the circuits of the
innermost block still stand. Scattering comes first, exchanging last: what was exchanged whole has nothing to gather.

`best` is exact in this class: a block costs the same whatever came before but for the share of the buffer that is left.
`carried_out` makes rounds of a schedule for `circuit_schedule.Rack`, which knows no formula.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .circuit_schedule import Message, Round, cliques, digits, factorisations

__all__ = [
    "Circuits",
    "RadixBlock",
    "Schedule",
    "best",
    "bound_s",
    "carried_out",
    "divide_and_conquer",
    "every",
    "seconds",
]


class RadixBlock(NamedTuple):
    """Factors whose circuits are set together, and whether each of them is exchanged whole."""

    factors: tuple[int, ...]
    whole: bool

    def partners(self) -> int:
        """Circuits of a member."""
        return sum(factor - 1 for factor in self.factors)

    def product(self) -> int:
        """By how much it divides a group."""
        return math.prod(self.factors)


Schedule = tuple[RadixBlock, ...]


@dataclass(frozen=True)
class Circuits:
    """A rack: seconds of a message and of setting circuits, a member's rate, lanes that it divides into."""

    alpha_s: float = 0.7e-6
    setup_s: float = 3.7e-6
    bytes_per_s: float = 300e9
    lanes: int = 16

    def loss(self, partners: int) -> float:
        """A message's channel time over its time alone on the whole channel; infinite where lanes are too few."""
        return self.lanes / (self.lanes // partners) if partners <= self.lanes else math.inf


def _block_s(block: RadixBlock, left: float, rack: Circuits, last: bool) -> float:
    """There and back; circuits of the last block still stand on the way back."""
    times = 1 if block.whole or last else 2
    spent, loss = times * rack.setup_s, rack.loss(block.partners())
    for factor in block.factors:
        if block.whole:
            spent += rack.alpha_s + left * loss / rack.bytes_per_s
        else:
            left /= factor
            spent += 2 * (rack.alpha_s + left * loss / rack.bytes_per_s)
    return spent


def seconds(schedule: Schedule, nbytes: float, rack: Circuits) -> float:
    """Of an all-reduce of `nbytes`."""
    spent, left = 0.0, float(nbytes)
    for index, block in enumerate(schedule):
        spent += _block_s(block, left, rack, index == len(schedule) - 1)
        left /= 1 if block.whole else block.product()
    return spent


@functools.cache
def _orders(product: int) -> tuple[tuple[int, ...], ...]:
    """Every ordered way to write a number as factors of at least 2."""
    if product == 1:
        return ((),)
    return tuple(
        (first, *rest) for first in range(2, product + 1) if product % first == 0 for rest in _orders(product // first)
    )


def _blocks(size: int, whole: bool) -> Iterator[RadixBlock]:
    """Every block that divides a group; of one exchanged whole the order says nothing."""
    for product in range(2, size + 1):
        if size % product == 0:
            ways = factorisations(product) if whole else _orders(product)
            yield from (RadixBlock(tuple(factors), whole) for factors in ways)


def best(size: int, nbytes: float, rack: Circuits) -> tuple[float, Schedule]:
    """The quickest schedule of the class and its seconds, by dynamic programming over what is left of the group."""

    @functools.cache
    def rest(left: int, share: float, whole_only: bool) -> tuple[float, Schedule]:
        """Of `left` members that still have to meet, with `share` bytes; after one whole exchange all are."""
        found: tuple[float, Schedule] = (math.inf, ()) if left > 1 else (0.0, ())
        for whole in (True,) if whole_only else (False, True):
            for block in _blocks(left, whole):
                after = left // block.product()
                own = _block_s(block, share, rack, last=after == 1)
                spent, tail = rest(after, share if whole else share / block.product(), whole)
                if own + spent < found[0]:
                    found = (own + spent, (block, *tail))
        return found

    return rest(size, float(nbytes), False)


def every(size: int) -> Iterator[Schedule]:
    """All schedules of the class, one by one, for small groups."""
    if size == 1:
        yield ()
        return
    for whole in (False, True):
        for block in _blocks(size, whole):
            for rest in every(size // block.product()):
                if not whole or all(each.whole for each in rest):
                    yield (block, *rest)


def divide_and_conquer(size: int, rack: Circuits, nbytes: float) -> tuple[float, Schedule]:
    """Greedy: the factor whose own two rounds, circuits with them, cost least for what they divide the group by."""
    schedule, left, share = [], size, float(nbytes)
    while left > 1:
        choices = [RadixBlock((factor,), False) for factor in range(2, left + 1) if left % factor == 0]
        block = min(choices, key=lambda one: _block_s(one, share, rack, last=False) / math.log(one.product()))
        schedule.append(block)
        left, share = left // block.product(), share / block.product()
    return seconds(tuple(schedule), nbytes, rack), tuple(schedule)


def bound_s(size: int, nbytes: float, rack: Circuits) -> float:
    """What no schedule whatever beats: circuits set once; rounds enough for all to hear of all; all but a part sent
    twice by every member."""
    rounds = math.ceil(math.log(size) / math.log(rack.lanes + 1) - 1e-12)
    return rack.setup_s + rounds * rack.alpha_s + 2 * (size - 1) / size * nbytes / rack.bytes_per_s


def carried_out(schedule: Schedule, size: int) -> list[tuple[Round, set[tuple[int, int]]]]:
    """Rounds, each with the circuits of its block: members, chunks and sums, made of digits alone."""
    factors = [factor for block in schedule for factor in block.factors]
    name = digits(factors)
    there, back = [], []
    alive = np.ones((size, size), dtype=bool)
    place = 0
    for block in schedule:
        places = range(place, place + len(block.factors))
        circuits = {pair for each in places for pair in cliques(factors, each)}
        for each in places:
            if block.whole:
                there.append((
                    [Message(a, b, np.flatnonzero(alive[a]), True) for a, b in cliques(factors, each)], circuits
                ))  # fmt: skip
                continue
            kept = alive & (name[:, each][:, None] == name[:, each][None, :])
            ahead, behind = [], []
            for a, b in cliques(factors, each):
                theirs = np.flatnonzero(alive[a] & (name[:, each] == name[b, each]))
                ahead.append(Message(a, b, theirs, True))
                behind.append(Message(a, b, np.flatnonzero(kept[a]), False))
            there.append((ahead, circuits))
            back.append((behind, circuits))
            alive = kept
        place += len(block.factors)
    return there + back[::-1]
