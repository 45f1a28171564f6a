"""Collectives by the schedules that a search finds for circuits, one for each number of members."""

import abc
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ....core.cost import Cost
from ....core.errors import ConfigError
from ....core.fields import static
from ....core.jax_typed import asarray
from ....core.smooth import at_least
from ...hardware import Link
from ..fabrics import Group
from .base import AbstractCollective
from .radix import RadixAllGather, RadixAllReduce, divide

# All-reduce schedules on circuits found by dynamic programming: which digits, in which order, when circuits are set.
#
# A schedule of n members is a way to write n as a product of factors. In the round of a factor f every member
# exchanges with f - 1 partners: it scatters (keeps one part of f, and gathers it again later in the mirrored round),
# or exchanges whole (all f end with the sum at once, one round in place of two). Circuits are set for a block of
# factors at a time and stand while the block lasts, divided among all of its partners, whole lanes each. On the way
# back the circuits of the innermost block still stand. Scattering comes first, exchanging last: what was exchanged
# whole has nothing to gather. One way (`both_ways` false) is a reduce-scatter, or backwards an all-gather: scattering
# alone.
#
# `best_schedule` is exact in this class: a block costs the same whatever came before but for the share of the buffer
# that is left. `tests/test_circuit_synthesis.py` compares it with all schedules, one by one, and carries them out in
# rounds.


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


class Rounds(NamedTuple):
    """A block carried out: messages one after the other, settings of circuits, shares of the buffer.

    `share` is of one message to one partner, `sent` of all that a member sends.
    """

    messages: int
    settings: int
    share: float
    sent: float


def rounds_of(block: RadixBlock, left: float, *, last: bool, both_ways: bool = True) -> Rounds:
    """There and back, of what is `left` of the buffer; circuits of the last block still stand on the way back."""
    passes = 2 if both_ways and not block.whole else 1
    settings = 1 if block.whole or last or not both_ways else 2
    share = sent = 0.0
    for factor in block.factors:
        left /= 1 if block.whole else factor
        share, sent = share + passes * left, sent + passes * (factor - 1) * left
    return Rounds(passes * len(block.factors), settings, share, sent)


def block_s(block: RadixBlock, left: float, rack: Circuits, last: bool, both_ways: bool = True) -> float:
    """Seconds of a block of which `left` bytes are left."""
    of = rounds_of(block, left, last=last, both_ways=both_ways)
    loss = rack.loss(block.partners())
    return of.settings * rack.setup_s + of.messages * rack.alpha_s + of.share * loss / rack.bytes_per_s


def schedule_s(schedule: Schedule, nbytes: float, rack: Circuits, both_ways: bool = True) -> float:
    """Seconds of an all-reduce of `nbytes`, or of half of it."""
    spent, left = 0.0, float(nbytes)
    for index, block in enumerate(schedule):
        spent += block_s(block, left, rack, index == len(schedule) - 1, both_ways)
        left /= 1 if block.whole else block.product()
    return spent


@functools.cache
def _factors(size: int, largest: int = 0) -> tuple[tuple[int, ...], ...]:
    """Every way to write a number as a product of factors of at least 2, largest factors first."""
    if size == 1:
        return ((),)
    return tuple(
        (factor, *rest)
        for factor in range(min(size, largest or size), 1, -1)
        if size % factor == 0
        for rest in _factors(size // factor, factor)
    )


@functools.cache
def _orders(product: int) -> tuple[tuple[int, ...], ...]:
    """Every ordered way to write a number as factors of at least 2."""
    if product == 1:
        return ((),)
    return tuple(
        (first, *rest) for first in range(2, product + 1) if product % first == 0 for rest in _orders(product // first)
    )


def radix_blocks(size: int, final: bool) -> Iterator[RadixBlock]:
    """Every block that divides a group; of one exchanged whole the order says nothing."""
    for product in range(2, size + 1):
        if size % product == 0:
            ways = _factors(product) if final else _orders(product)
            yield from (RadixBlock(tuple(factors), final) for factors in ways)


def best_schedule(size: int, nbytes: float, rack: Circuits, both_ways: bool = True) -> tuple[float, Schedule]:
    """The quickest schedule of the class and its seconds, by dynamic programming over what is left of the group."""

    @functools.cache
    def rest(left: int, share: float, whole_only: bool) -> tuple[float, Schedule]:
        """Seconds of `left` members that still have to meet, with `share` bytes; after one whole exchange all have."""
        result: tuple[float, Schedule] = (math.inf, ()) if left > 1 else (0.0, ())
        for whole in (True,) if whole_only else (False, True)[: 1 + both_ways]:
            for block in radix_blocks(left, whole):
                after = left // block.product()
                this_s = block_s(block, share, rack, after == 1, both_ways)
                spent, tail = rest(after, share if whole else share / block.product(), whole)
                if this_s + spent < result[0]:
                    result = (this_s + spent, (block, *tail))
        return result

    return rest(size, float(nbytes), False)


MOST_MEMBERS = 256
"""Members up to which schedules are found: a rack of the document, in a tenth of a second."""


class ScheduleTable(NamedTuple):
    """Blocks of the schedule of each number of members, [members, blocks]; no messages where there is no schedule.

    `wire` is the share of the buffer that takes a member's whole channel, `sent` what it sends: circuits of a block
    that are not in use keep their lanes.
    """

    partners: np.ndarray
    messages: np.ndarray
    settings: np.ndarray
    wire: np.ndarray
    sent: np.ndarray


@functools.lru_cache(maxsize=64)
def schedule_table(nbytes: float, rack: Circuits, both_ways: bool) -> ScheduleTable:
    """The quickest schedules for `nbytes` on a rack, of 0 to `MOST_MEMBERS` members."""
    result = [best_schedule(size, nbytes, rack, both_ways)[1] if size > 1 else () for size in range(MOST_MEMBERS + 1)]
    shape = (MOST_MEMBERS + 1, max(map(len, result)))
    table = ScheduleTable(np.ones(shape), *(np.zeros(shape) for _ in range(4)))
    for size, schedule in enumerate(result):
        left = 1.0
        for index, block in enumerate(schedule):
            of = rounds_of(block, left, last=index == len(schedule) - 1, both_ways=both_ways)
            table.partners[size, index] = block.partners()
            table.messages[size, index], table.settings[size, index] = of.messages, of.settings
            table.wire[size, index], table.sent[size, index] = block.partners() * of.share, of.sent
            left /= 1 if block.whole else block.product()
    return table


class AbstractSynthesised(AbstractCollective):
    """A collective by the schedule that is quickest for `for_bytes` on a rack of these numbers, exact in its class.

        sum over blocks of circuits   w (messages alpha + settings delta) + wire chi nbytes beta

    with what the link's own lanes lose (chi) and the waves w they need for a block's partners. The schedule is that of
    the rack and size it was found for, whatever the link and the message: a fixed schedule is log-convex in the link,
    and one that follows every message would not be. `Fastest` takes the best of several, message by message, `Chosen`
    one by the plan. Numbers of members without a schedule (a prime factor beyond the lanes, more than `MOST_MEMBERS`)
    take recursive quartering.

    Source: closed form of this package over the class of schedules that is searched; objective with reconfiguration
    [lumorph] section 4.
    """

    for_bytes: float = static(default=65536.0, converter=float)
    alpha_s: float = static(default=0.7e-6, converter=float)
    setup_s: float = static(default=3.7e-6, converter=float)
    bytes_per_s: float = static(default=300e9, converter=float)
    lanes: int = static(default=16, converter=int)

    both_ways: ClassVar[bool]

    def __check_init__(self) -> None:
        """A rack and a message that there can be."""
        for name in ("for_bytes", "alpha_s", "setup_s", "bytes_per_s", "lanes"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ConfigError(f"{name} = {value:g} of {type(self).__name__} is not positive and finite")

    @abc.abstractmethod
    def fallback(self) -> AbstractCollective:
        """Algorithm for other numbers of members."""

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """The schedule of this number of members."""
        rack = Circuits(self.alpha_s, self.setup_s, self.bytes_per_s, self.lanes)
        table = schedule_table(self.for_bytes, rack, self.both_ways)
        here = jnp.abs(group.size[..., None] - np.arange(MOST_MEMBERS + 1)) < 0.5

        def blocks(column: np.ndarray) -> list[Array]:
            return [jnp.sum(jnp.where(here, column[:, index], 0.0), axis=-1) for index in range(column.shape[1])]

        seconds = sent = total = 0.0 * (group.size * nbytes)
        for partners, messages, settings, wire, each in zip(*map(blocks, table), strict=True):
            division = divide(at_least(partners, 1.0), link.lanes, "lanes")
            seconds = seconds + division.waves * (messages * link.alpha_s + settings * link.reconfiguration_s)
            seconds = seconds + wire * division.loss * nbytes * link.beta_s_per_byte
            sent, total = sent + each, total + messages
        busy = (group.size > 1) & (nbytes > 0)
        other = self.fallback().cost(nbytes, group, link)
        nonzero = total > 0
        joules = jnp.where(busy, sent * nbytes * link.energy_j_per_byte, 0.0)
        return Cost(
            jnp.where(nonzero, jnp.where(busy, seconds, 0.0), other.time_s), jnp.where(nonzero, joules, other.energy_j)
        )


class SynthesisedAllReduce(AbstractSynthesised):
    """An all-reduce by the schedule that is quickest for `for_bytes`."""

    both_ways: ClassVar[bool] = True

    def fallback(self) -> AbstractCollective:
        """Algorithm for other numbers of members."""
        return RadixAllReduce(radix=asarray(4.0))


class SynthesisedAllGather(AbstractSynthesised):
    """An all-gather by the schedule that is quickest for `for_bytes`; a reduce-scatter runs backwards."""

    operation: ClassVar[str] = "all_gather"
    both_ways: ClassVar[bool] = False

    def fallback(self) -> AbstractCollective:
        """Algorithm for other numbers of members."""
        return RadixAllGather(radix=asarray(4.0))
