"""Collectives by the schedules that `synthesis` finds for circuits, one for each number of members."""

import abc
import functools
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
from .synthesis import Circuits, best_schedule, rounds_of

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

    Source: closed form of this package over the class of schedules of `synthesis`; objective with reconfiguration
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
        known = total > 0
        joules = jnp.where(busy, sent * nbytes * link.energy_j_per_byte, 0.0)
        return Cost(
            jnp.where(known, jnp.where(busy, seconds, 0.0), other.time_s), jnp.where(known, joules, other.energy_j)
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
