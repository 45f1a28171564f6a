"""Trees and chains: latency logarithmic in the group, or hidden behind chunks that follow each other."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from ....core.cost import Cost
from ....core.smooth import at_least, ceil
from ...hardware import Link
from ..fabrics import Group
from .base import AbstractCollective, among_many


def height(group: Group) -> Array:
    """Rounds in which one member reaches all when the informed double: ceil(log2 n)."""
    return ceil(jnp.log2(at_least(group.size, 1.0)))


def pipelined_s(ahead: Array, alpha_s: Array, wire_s: Array) -> Array:
    """Least time of a buffer cut into k >= 1 chunks that pass `ahead` + k steps: (ahead + k)(alpha + wire / k).

    k = sqrt(ahead wire / alpha) over real k, or one chunk where that is less: one expression on each side of the
    point where both have the same value and slope.
    """
    passed = ahead * wire_s
    many = passed > alpha_s
    root = jnp.sqrt(jnp.where(many & (alpha_s > 0), alpha_s * passed, 1.0))  # the slope of a root at zero is infinite
    chunked = jnp.where(alpha_s > 0, 2 * root, 0.0)
    return ahead * alpha_s + wire_s + jnp.where(many, chunked, alpha_s + passed)


def one_way(nbytes: Array, group: Group, link: Link, seconds: Array) -> Cost:
    """`seconds`, and the energy of every member but one sending the buffer once; nothing for a group of one."""
    sent = among_many(group, link, 0.0 * group.size, (group.size - 1) / group.size * nbytes)
    return Cost(jnp.where((group.size > 1) & (nbytes > 0), seconds, 0.0), sent.energy_j)


class BinomialTree(AbstractCollective):
    """ceil(log2 n)(alpha + nbytes beta): a broadcast to twice as many each round, or backwards a reduce.

    Source: [thakur2005].
    """

    operation: ClassVar[str] = "broadcast"

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Whole buffers, stored and forwarded."""
        return one_way(nbytes, group, link, height(group) * (link.alpha_s + nbytes * link.beta_s_per_byte))


class PipelinedChain(AbstractCollective):
    """min over k >= 1 of (n - 2 + k)(alpha + nbytes beta / k): a broadcast or a reduce along a chain, in k chunks.

    Source: [sanders2009], section on the linear pipeline.
    """

    operation: ClassVar[str] = "broadcast"

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Closed form at the best chunk count."""
        ahead = at_least(group.size - 2, 0.0)
        return one_way(nbytes, group, link, pipelined_s(ahead, link.alpha_s, nbytes * link.beta_s_per_byte))


class ScatterAllGather(AbstractCollective):
    """(ceil(log2 n) + n - 1) alpha + 2 (n-1)/n nbytes beta: a broadcast of large buffers, or backwards a reduce.

    Scattered down a binomial tree, then gathered round a ring.

    Source: [thakur2005], attributed to van de Geijn.
    """

    operation: ClassVar[str] = "broadcast"

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Cost of the scatter and the all-gather."""
        n = group.size
        seconds = (height(group) + n - 1) * link.alpha_s + 2 * (n - 1) / n * nbytes * link.beta_s_per_byte
        return one_way(nbytes, group, link, seconds)


class ChainAllReduce(AbstractCollective):
    """A reduce along a chain, then a broadcast back, each in its best number of chunks.

    Source: [sanders2009].
    """

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Twice the chain."""
        return PipelinedChain().cost(nbytes, group, link) * 2.0


class TreeAllReduce(AbstractCollective):
    """2 ceil(log2 n)(alpha + nbytes beta): a reduce, then a broadcast, stored and forwarded.

    Source: [thakur2005]; the tree of [lumorph].
    """

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Twice the tree."""
        return BinomialTree().cost(nbytes, group, link) * 2.0


class RecursiveDoublingAllReduce(AbstractCollective):
    """ceil(log2 n)(alpha + nbytes beta), one more where n is no power of two: whole buffers with ever farther partners.

    The members beyond the largest power of two hand their buffers in before and get the sum after.

    Source: [thakur2005].
    """

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Whole buffers each round."""
        n, rounds = at_least(group.size, 1.0), height(group)
        uneven = 2**rounds - n > 0.5  # members are whole; less than half of one is rounding noise
        rounds = rounds + jnp.where(uneven, 1.0, 0.0)
        cost = among_many(group, link, rounds, rounds * nbytes, new_partners=rounds)
        inside = jnp.where(uneven, 2 ** (rounds - 2), n)  # floor power of two
        exchanged = inside * jnp.log2(inside) + 2 * (n - inside)
        busy = (group.size > 1) & (nbytes > 0)
        return Cost(cost.time_s, jnp.where(busy, exchanged / n * nbytes * link.energy_j_per_byte, 0.0))


class DoubleBinaryTreeAllReduce(AbstractCollective):
    """min over k >= 1 of 2 (h - 1 + k)(alpha + nbytes beta / k), h = ceil(log2 n): two complementary trees, pipelined.

    With more than one chunk 2 (sqrt((h-1) alpha) + sqrt(nbytes beta))^2. Each tree carries half of the buffer, up and
    then down.

    Assumes: each member is a leaf of one tree and an inner node of the other, sending to two children at once; all
    rounds as long as a full one (the first and the last carry half of it; with two members all do).
    Source: [sanders2009].
    """

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Closed form at the best chunk count."""
        ahead = at_least(height(group) - 1, 0.0)
        return one_way(nbytes, group, link, pipelined_s(ahead, link.alpha_s, nbytes * link.beta_s_per_byte)) * 2.0
