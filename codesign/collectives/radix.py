"""Radix-r algorithms: few rounds, each with r - 1 partners at once (recursive doubling is r = 2)."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..cost import Cost
from ..fabrics import Group
from ..fields import quantity
from ..hardware import Link
from ..smooth import at_least, ceil, floor, ratio
from .base import AbstractCollective


def splitting_loss(partners: Array, lanes: Array) -> Array:
    """chi: what is lost where a channel of whole lanes serves several partners at once.

    lanes / (partners * floor(lanes / partners)), 1 where any share can be had (lanes = 0).
    """
    each = at_least(floor(lanes / partners), 1.0)
    return at_least(ratio(lanes, partners * each, otherwise=1.0), 1.0)


def one_phase(nbytes: Array, group: Group, link: Link, radix: Array, charged_ratio: Array) -> Cost:
    """An all-gather (or, backwards, a reduce-scatter) of `nbytes` in ceil(log_r n) rounds.

    In round i each member holds r^i chunks and exchanges them with r - 1 partners; what is left to gather after
    j = floor(log_r n) such rounds, n - r^j chunks, takes one more round with fewer partners.
    """
    size = at_least(group.size, 1.0)
    full = floor(jnp.log(size) / jnp.log(radix))
    held = radix**full
    left = at_least(size - held, 0.0)
    another = left > 0.5  # members are whole; less than half of one is rounding noise
    rounds = full + jnp.where(another, 1.0, 0.0)
    partners = at_least(ceil(size / held) - 1, 1.0)
    chunks = (held - 1) * splitting_loss(radix - 1, link.lanes) + left * splitting_loss(partners, link.lanes)
    setup = rounds * (link.alpha_s + charged_ratio * link.reconfiguration_s)
    busy = (group.size > 1) & (nbytes > 0)
    seconds = setup + chunks / size * nbytes * link.beta_s_per_byte
    joules = (size - 1) / size * nbytes * link.energy_j_per_byte
    return Cost(jnp.where(busy, seconds, 0.0), jnp.where(busy, joules, 0.0))


class RadixAllGather(AbstractCollective):
    """k (alpha + s delta) + (1 - 1/n) chi nbytes beta with k = ceil(log_r n) rounds; a reduce-scatter runs backwards.

    delta is the link's reconfiguration time, charged in the share s = `charged_ratio` of the rounds; chi the loss of
    dividing the link among r - 1 partners (`splitting_loss`).

    Assumes: any r - 1 partners can be served at once (r - 1 <= lanes); wavelengths of an uneven last round are
    divided as its messages ask. Not log-convex in the radix or the lanes, which are counted whole.
    Source: [lumorph]; [bruck1997] for sizes that are no power of r.
    """

    radix: Float[Array, "*b"] = quantity(low=2.0, default=2.0)
    charged_ratio: Float[Array, "*b"] = quantity(high=1.0, default=1.0, doc="share of rounds that set new circuits")

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """All rounds of one phase."""
        return one_phase(nbytes, group, link, self.radix, self.charged_ratio)


class RadixAllReduce(AbstractCollective):
    """2 k (alpha + s delta) + 2 (1 - 1/n) chi nbytes beta: reduce-scatter, then all-gather, each in k rounds.

    `charged_ratio` s is 1 as published, (2k - 1) / 2k where the first round of the all-gather keeps the circuits of
    the last reduce-scatter, and 0 on circuits that stand for the whole job (a product of r-cliques with ports of
    their own). On a packet switch delta is 0 and r = 2 is recursive halving and doubling.

    Assumes: as `RadixAllGather`; the reduction hides behind the wire.
    Source: [lumorph], LUMORPH-2 and LUMORPH-4; [thakur2005] for r = 2.
    """

    radix: Float[Array, "*b"] = quantity(low=2.0, default=2.0)
    charged_ratio: Float[Array, "*b"] = quantity(high=1.0, default=1.0, doc="share of rounds that set new circuits")

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Both phases."""
        return one_phase(nbytes, group, link, self.radix, self.charged_ratio) * 2.0
