"""All-reduce by recursive halving, then doubling."""

import jax.numpy as jnp
from jaxtyping import Array

from codesign.core import Cost
from codesign.model.hardware import Link
from codesign.model.networks.collectives import AbstractCollective, among_many
from codesign.model.networks.fabrics import Group


class HalvingDoublingAllReduce(AbstractCollective):
    """2 log2 n alpha + 2 (n-1)/n nbytes beta.

    Assumes: a power of two of members. Source: [thakur2005].
    """

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Halve the vector and the distance in each round, then back."""
        n = group.size
        return among_many(group, link, 2 * jnp.log2(n), 2 * (n - 1) / n * nbytes)
