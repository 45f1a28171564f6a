"""Any fabric of a node, or between nodes, behind queues in which bursts of other traffic stand."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.fields import integer, quantity, static
from ....core.jax_typed import arrays, asarray
from ....core.smooth import at_most, maximum
from ...hardware import Link
from .base import AbstractWrappedFabric, Group
from .contended import slowdown
from .interference import head_of_line_ratio, wait_s
from .switch_chips import SwitchDomain

LATER_OF_TWO = 1.5
"""Mean of the longer of two exponential waits of mean 1: a step of a ring begins when its neighbour's message has come
and its own last one is on its way, whichever is later. Source: derived."""


SPREAD_OF_TWO = 1.25
"""Variance of the longer of two exponential waits over that of one. Source: derived."""

MESSAGE_BYTES = 4096.0
"""Message size of others' transfers, one of which is sent before our turn. Source: [pcie_interference] section 4.2."""


LONGEST = 1e100
"""Seconds, and factors, above which a wait is not told apart from any longer one: their squares are numbers."""


class QueuedNode(AbstractWrappedFabric):
    """`inner` in or between nodes of `accelerators` and `cards`, whose queues others' bursts of R bytes fill too.

    Each accelerator also offers `background_bytes_per_s` = G of others, of which the share p leaves the node. A message
    waits for what stands in front of it, and moves at the rate that is left; r and c are the seconds per byte of an
    accelerator's link and of its share of the cards:

        inside    u = G max(r, p c)    alpha + w [q(u, R max(r, p c)) + q(G r, R r)]                    beta / (1 - u)
        between   v = G p c            alpha + w [q(u, R max(r, p c)) + 2 q(v, R c m / A) + q(G r, R r)] beta / (1 - v)

    with q the wait of an M/D/1 queue, whose customers are whole bursts, and w = 1.5 in groups of more than two. A full
    card holds up what means to stay (p c > r), as in `interference`. How much leaves the node is as of the plan's own
    traffic where it is not given.

    A burst is what others send without a pause. By default they share fairly, a message of theirs for one of ours
    (`MESSAGE_BYTES`): the mean time of a message is then the one at the rate that is left, however long their transfers
    are. Where a queue serves whole transfers first come first served, their size is `burst_bytes`.

    With `buffer_messages` b the buffers in front of a switch's outputs are finite: a queue of mixed destinations
    reaches 1 - (sqrt(2) - 1) / (1 + b / 4) of its rate, r is that much longer. With `port_bytes_per_s` the switch hands
    a card's traffic over through ports that may be slower than the cards: c = max(c, A / port).

    Both levels read the rates of one another (`Group.beside`); a fabric that is asked alone knows its own only.

    Assumes: others offer the same whatever becomes of it (Poisson bursts, destinations uniform); buffers hold them;
    queues between nodes as in the cards. Against rings of eight carried out burst by burst (`tests/simulators`):
    -4 to +23 % up to 0.8 of the rate, of four -3 to +27 % up to 0.6; too late in few long messages (+71 % at 0.8).
    Log-convex in all rates and in the background.
    Source: [pcie_interference] section 4.2 for the queues, ports and buffers (`CoupledNode`); bursts as customers: a
    batch of packets at once; fair sharing: the mean of an M/G/1 queue that serves all alike does not know their sizes
    [kleinrock1976].
    """

    sees_others: ClassVar[bool] = True

    background_bytes_per_s: Float[Array, "*b"] = quantity(
        high=1e13, default=0.0, doc="of others, offered by each accelerator"
    )
    beyond_ratio: Float[Array, "*b"] | None = quantity(
        high=1.0, default=None, doc="share of it that leaves its node; not given: as of the plan's traffic"
    )
    burst_bytes: Float[Array, "*b"] = quantity(
        default=MESSAGE_BYTES, doc="of others, ahead of ours without a pause", usual=(4e3, 5e7)
    )
    accelerators: Float[Array, "*b"] = integer(low=1.0, high=1e4, default=8.0)
    cards: Float[Array, "*b"] = integer(low=1.0, high=1e4, default=1.0, doc="network cards of a node")
    between: bool = static(default=False)
    port_bytes_per_s: Float[Array, "*b"] | None = quantity(
        low=1.0, default=None, doc="between a node's switch and its cards, all together; not given: no limit"
    )
    buffer_messages: Float[Array, "*b"] | None = quantity(
        low=1.0, default=None, doc="in front of each output of a switch; not given: as many as there are"
    )

    def link(self, group: Group) -> Link:
        """The inner link, late by the waits, at what is left of its rate."""
        link = self.inner.link(group)
        beta = link.beta_s_per_byte * slowdown(self.taken_ratio(group))
        return dataclasses.replace(link, alpha_s=link.alpha_s + self.wait(group)[0], beta_s_per_byte=beta)

    def wait(self, group: Group) -> tuple[Array, Array]:
        """Mean and variance of what a message waits for others in the queues on its way; in rings, of the later of two.

        Of an M/D/1 queue the variance is W^2 + u s^2 / (3 (1 - u)); of the later of two exponential waits 1.25 times
        that of one.
        """
        inside, card, beyond = self._rates(group)
        burst, others = self.burst_bytes, self.background_bytes_per_s
        held = maximum(inside, beyond * card)  # seconds a byte keeps an accelerator's own queue
        queues = [(others * held, burst * held, 1.0), (others * inside, burst * inside, 1.0)]
        if self.between:
            queues.append((others * beyond * card, burst * card * self.cards / self.accelerators, 2.0))
        mean = spread = asarray(0.0)
        for used, service, times in queues:
            one = wait_s(used, service)
            mean = mean + times * one
            late, slow = (
                at_most(one, LONGEST),
                at_most(slowdown(used), LONGEST),
            )  # squares of a saturated queue's overflow
            spread = spread + times * (late * late + used * service * service * slow / 3)
        ring = group.size > 2
        return mean * jnp.where(ring, LATER_OF_TWO, 1.0), spread * jnp.where(ring, SPREAD_OF_TWO, 1.0)

    def _rates(self, group: Group) -> tuple[Array, Array, Array]:
        """Seconds per byte of an accelerator's link and of its share of the cards; the share that leaves the node."""
        link, seen = self.inner.link(group), group.beside
        inside = seen.inside_s_per_byte if self.between else link.beta_s_per_byte
        card = link.beta_s_per_byte if self.between else seen.beyond_s_per_byte
        if self.buffer_messages is not None:
            inside = inside / head_of_line_ratio(self.buffer_messages)
        if self.port_bytes_per_s is not None:
            card = maximum(card, self.accelerators / self.port_bytes_per_s)
        return inside, card, seen.beyond_ratio if self.beyond_ratio is None else self.beyond_ratio

    def taken_ratio(self, group: Group) -> Array:
        """u inside, v between."""
        inside, card, beyond = self._rates(group)
        return self.background_bytes_per_s * (beyond * card if self.between else maximum(inside, beyond * card))

    @classmethod
    def example(cls) -> "QueuedNode":
        """A switched node of eight."""
        return cls(SwitchDomain.example(), *arrays(45e9, 0.2, 1e6, 8.0, 8.0))
