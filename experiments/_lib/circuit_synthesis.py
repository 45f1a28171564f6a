"""Schedules of an all-reduce on circuits, beside those that the package finds: all of them, a greedy one, a bound.

`best_schedule` of `codesign.model.networks.collectives` is exact in the class that `every` lists. `carried_out` makes
rounds of a schedule for `circuit_schedule.Rack`, which knows no formula.
"""

import math
from collections.abc import Iterator

import numpy as np

from codesign.model.networks.collectives import Circuits, RadixBlock, Schedule, block_s, radix_blocks, schedule_s

from .circuit_schedule import Message, Round, cliques, digits

__all__ = ["bound_s", "carried_out", "divide_and_conquer", "every"]


def every(size: int) -> Iterator[Schedule]:
    """All schedules of the class, one by one, for small groups."""
    if size == 1:
        yield ()
        return
    for whole in (False, True):
        for block in radix_blocks(size, whole):
            for rest in every(size // block.product()):
                if not whole or all(each.whole for each in rest):
                    yield (block, *rest)


def divide_and_conquer(size: int, rack: Circuits, nbytes: float) -> tuple[float, Schedule]:
    """Greedy: the factor whose own two rounds, circuits with them, cost least for what they divide the group by."""
    schedule, left, share = [], size, float(nbytes)
    while left > 1:
        choices = [RadixBlock((factor,), False) for factor in range(2, left + 1) if left % factor == 0]
        block = min(choices, key=lambda one: block_s(one, share, rack, False) / math.log(one.product()))
        schedule.append(block)
        left, share = left // block.product(), share / block.product()
    return schedule_s(tuple(schedule), nbytes, rack), tuple(schedule)


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
