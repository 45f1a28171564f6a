"""Radix-r algorithms: few rounds, each with r - 1 partners at once (recursive doubling is r = 2).

On circuits a round's partners must be pointed at first, and the channel is divided among them (`Division`).
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.cost import Cost
from ....core.errors import ConfigError, suggestion
from ....core.fields import integer, quantity, static
from ....core.jax_typed import asarray, ones_like
from ....core.smooth import at_least, ceil, floor, ratio
from ...hardware import Link
from ..fabrics import Group
from .base import AbstractCollective

SPLITTINGS = ("lanes", "ideal", "equal")


def known_splitting(name: str) -> str:
    """The name, if it is one.

    Raises:
        ConfigError: it is not.
    """
    if name not in SPLITTINGS:
        raise ConfigError(f"splitting = {name!r} is not one of {', '.join(SPLITTINGS)}{suggestion(name, SPLITTINGS)}")
    return name


class Division(NamedTuple):
    """A channel divided among partners served at once.

    loss: chi, bytes of channel time per byte sent. waves: how many times in a row the channel must be divided because
    a division has too few lanes for all partners.
    """

    loss: Array
    waves: Array


def divide(partners: Array, lanes: Array, splitting: str) -> Division:
    """Division of a channel of whole lanes among several partners served at once.

        lanes   W / (p floor(W / p)), any share where W = 0; more partners than lanes are served in ceil(p / W) waves
        ideal   1: B / p for each
        equal   (p + 1) / p: B / (p + 1) for each as if one part were one's own; a single partner takes all

    Source: [lumorph] section 4 for what is divided; it prints no loss.
    """
    one = ones_like(partners * lanes)
    if splitting == "ideal":
        return Division(one, one)
    if splitting == "equal":
        return Division(jnp.where(partners > 1, (partners + 1) / partners, 1.0) * one, one)
    each = at_least(floor(lanes / partners), 1.0)
    waves = jnp.where(lanes > 0, at_least(ceil(ratio(partners * each, lanes)), 1.0), 1.0)
    return Division(at_least(ratio(waves * lanes, partners * each, otherwise=1.0), 1.0), waves)


class Phase(NamedTuple):
    """An all-gather or reduce-scatter in rounds: how many there are, and the share of the buffer on the wire."""

    rounds: Array
    share: Array


def gathering(size: Array, radix: Array, lanes: Array, splitting: str) -> Phase:
    """An all-gather (or, backwards, a reduce-scatter) in ceil(log_r n) rounds.

    In round i each member holds r^i chunks and exchanges them with r - 1 partners; what is left to gather after
    j = floor(log_r n) such rounds, n - r^j chunks, takes one more round with fewer partners.
    """
    full, left, partners = _digits(size, radix)
    another = jnp.where(left > 0.5, 1.0, 0.0)  # members are whole; less than half of one is rounding noise
    many, few = divide(radix - 1, lanes, splitting), divide(partners, lanes, splitting)
    chunks = (radix**full - 1) * many.loss + left * few.loss
    return Phase(full * many.waves + another * few.waves, chunks / size)


def forwarding(size: Array, radix: Array, lanes: Array, splitting: str) -> Phase:
    """An all-to-all in ceil(log_r n) rounds, in each of which all blocks with a digit to travel travel it.

    That is (r - 1) / r of the buffer in a round, and (n - r^j) / n in the last.
    """
    full, left, partners = _digits(size, radix)
    another = jnp.where(left > 0.5, 1.0, 0.0)
    many, few = divide(radix - 1, lanes, splitting), divide(partners, lanes, splitting)
    share = full * (radix - 1) / radix * many.loss + left / size * few.loss
    return Phase(full * many.waves + another * few.waves, share)


def _digits(size: Array, radix: Array) -> tuple[Array, Array, Array]:
    """Whole digits to base r, chunks beyond r^digits, partners in the round that fetches those."""
    full = floor(jnp.log(size) / jnp.log(radix))
    held = radix**full
    return full, at_least(size - held, 0.0), at_least(ceil(size / held) - 1, 1.0)


def in_rounds(phase: Phase, pointed: Array, nbytes: Array, group: Group, link: Link, sent: Array) -> Cost:
    """rounds alpha + pointed delta + share nbytes beta; nothing for a group of one or no bytes.

    Args:
        phase: rounds and share of the buffer on the wire.
        pointed: rounds that set new circuits.
        nbytes, group, link: as everywhere.
        sent: share of the buffer that a member sends, for the energy.
    """
    busy = (group.size > 1) & (nbytes > 0)
    seconds = phase.rounds * link.alpha_s + pointed * link.reconfiguration_s
    seconds = seconds + phase.share * nbytes * link.beta_s_per_byte
    return Cost(jnp.where(busy, seconds, 0.0), jnp.where(busy, sent * nbytes * link.energy_j_per_byte, 0.0))


class RadixAllGather(AbstractCollective):
    """k (alpha + s delta) + (1 - 1/n) chi nbytes beta with k = ceil(log_r n) rounds; a reduce-scatter runs backwards.

    delta is the link's reconfiguration time, charged in the share s = `charged_ratio` of the rounds; chi the loss of
    dividing the link among r - 1 partners (`divide`), in the last round among those it has.

    Assumes: wavelengths of an uneven last round are divided as its messages ask. Not log-convex in the radix or the
    lanes, which are counted whole.
    Source: [lumorph]; [bruck1997] for sizes that are no power of r.
    """

    operation: ClassVar[str] = "all_gather"

    radix: Float[Array, "*b"] = integer(low=2.0, high=1e6, default=2.0)
    charged_ratio: Float[Array, "*b"] = quantity(high=1.0, default=1.0, doc="share of rounds that set new circuits")
    splitting: str = static(default="lanes", converter=known_splitting)

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """All rounds of one phase."""
        size = at_least(group.size, 1.0)
        phase = gathering(size, self.radix, link.lanes, self.splitting)
        return in_rounds(phase, self.charged_ratio * phase.rounds, nbytes, group, link, (size - 1) / size)

    @classmethod
    def example(cls) -> "RadixAllGather":
        """With plain numbers."""
        return cls(radix=asarray(3.0))


class RadixAllReduce(AbstractCollective):
    """2 k alpha + (2 s k - found) delta + 2 (1 - 1/n) chi nbytes beta: reduce-scatter, then all-gather, k rounds each.

    Every round is charged as published (s = 1, found = 0). `found` rounds find their circuits standing: 1 where the
    first round of the all-gather keeps those of the last of the reduce-scatter, 2 where the first round of all also
    finds its own, set while the accelerators still compute or left by the same operation before. On a packet switch
    delta is 0 and r = 2 is recursive halving and doubling.

    Assumes: as `RadixAllGather`; the reduction hides behind the wire.
    Source: [lumorph], LUMORPH-2 and LUMORPH-4; [thakur2005] for r = 2.
    """

    radix: Float[Array, "*b"] = integer(low=2.0, high=1e6, default=2.0)
    charged_ratio: Float[Array, "*b"] = quantity(high=1.0, default=1.0, doc="share of rounds that set new circuits")
    found: Float[Array, "*b"] = quantity(high=2.0, default=0.0, doc="rounds whose circuits stand already")
    splitting: str = static(default="lanes", converter=known_splitting)

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Cost of both phases."""
        size = at_least(group.size, 1.0)
        half = gathering(size, self.radix, link.lanes, self.splitting)
        both = Phase(2 * half.rounds, 2 * half.share)
        pointed = at_least(self.charged_ratio * both.rounds - self.found, 0.0)
        return in_rounds(both, pointed, nbytes, group, link, 2 * (size - 1) / size)

    @classmethod
    def example(cls) -> "RadixAllReduce":
        """With plain numbers."""
        return cls(radix=asarray(4.0))


class RadixAllToAll(AbstractCollective):
    """k (alpha + s delta) + sum_i (1 - 1/f_i) chi nbytes beta: blocks travel digit by digit, forwarded on the way.

    Few rounds for more bytes than the pairwise exchange: k rounds instead of n - 1, each with (r - 1) / r of the
    buffer. The best where messages are small or circuits slow to set.

    Assumes: n = r^j q with whole q; the volume is an upper bound for other sizes.
    Source: [bruck1997].
    """

    operation: ClassVar[str] = "all_to_all"

    radix: Float[Array, "*b"] = integer(low=2.0, high=1e6, default=2.0)
    charged_ratio: Float[Array, "*b"] = quantity(high=1.0, default=1.0, doc="share of rounds that set new circuits")
    splitting: str = static(default="lanes", converter=known_splitting)

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """All rounds."""
        size = at_least(group.size, 1.0)
        phase = forwarding(size, self.radix, link.lanes, self.splitting)
        sent = forwarding(size, self.radix, link.lanes, "ideal").share
        return in_rounds(phase, self.charged_ratio * phase.rounds, nbytes, group, link, sent)

    @classmethod
    def example(cls) -> "RadixAllToAll":
        """With plain numbers."""
        return cls(radix=asarray(4.0), splitting="equal")
