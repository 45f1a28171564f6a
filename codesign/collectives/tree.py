"""Tree algorithms: latency logarithmic in the group."""

import jax.numpy as jnp
from jaxtyping import Array

from ..cost import Cost
from ..fabrics import Group
from ..hardware import Link
from ..smooth import at_least
from .base import AbstractCollective, among_many


class DoubleBinaryTreeAllReduce(AbstractCollective):
    """2 (sqrt((h-1) alpha) + sqrt(nbytes beta))^2, h = log2 n: two complementary trees, pipelined in the best chunks.

    The chunk count k is optimised in closed form over real k: min_k 2 (h-1+k)(alpha + nbytes beta / k).

    Assumes: each member is a leaf of one tree and an inner node of the other; h at least 1.
    Source: [sanders2009].
    """

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Closed form at the best chunk count."""
        height = jnp.log2(at_least(group.size, 2.0))
        fill = (height - 1) * link.alpha_s
        wire = nbytes * link.beta_s_per_byte
        busy = (group.size > 1) & (nbytes > 0)
        piped = fill * wire > 0  # the slope of a root at zero is infinite: keep away from it
        cross = jnp.where(piped, jnp.sqrt(jnp.where(piped, fill * wire, 1.0)), 0.0)
        seconds = 2 * (fill + wire + 2 * cross)
        sent = among_many(group, link, jnp.asarray(0.0), 2 * (group.size - 1) / group.size * nbytes)
        return Cost(jnp.where(busy, seconds, 0.0), sent.energy_j)
