"""Phases of one operation on two network levels at once."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.cost import Cost
from ....core.fields import quantity
from ....core.module import Module
from ....core.smooth import TINY, at_least, at_most
from ...hardware.kernels_base import p_norm

SUMS = "all_reduce"


class Pipelined(Module):
    """T = (inside^p + outside^p)^(1/p) + hop_s h(n) (s + (1 - s) z / (1 + z)), z = (nbytes / (N g) / switch_bytes)^2.

    A library cuts a message into pieces, and while one piece crosses between domains another moves inside of one: for
    long messages the slower phase sets the pace, and phases alike slow each other down (both move data through the
    same processors and memory). Pieces pass members one after the other. For g members inside each of N domains

        h = N (g - 1)                                             gathers and scatters: a ring
        h = 2 min(N (g - 1), (g - 1) + tree_hops log2(N))         sums: twice round a ring, or up and down a tree

    hops; those of a ring between domains are in the outer level's own time. Short pieces go by a protocol that waits
    for nothing and takes the share s = short_ratio of a hop. Nothing is added where either level has one member.

    Assumes: a tree as fast as a ring where bandwidth decides, so sums may take longer than this where a library
    hesitates between them; rings for gathers and scatters of any size, which is all that NCCL has for several devices a
    node: their hops grow with the members, milliseconds for thousands of them. Both are extrapolations beyond the 80
    members that hop_s was fitted on. Log-convex in both phases and in hop_s; not in tree_hops (the smaller of two).
    Source: which algorithm does what, and what its steps count [nccl_tuning]; constants from `conf/collective`.
    """

    norm: Float[Array, "*b"] = quantity(low=1.0, high=20.0, default=3.0)
    hop_s: Float[Array, "*b"] = quantity(default=7e-6, usual=(6e-6, 1e-5), doc="past one member of a domain")
    tree_hops: Float[Array, "*b"] = quantity(low=1.0, high=100.0, default=6.0, doc="as long as a tree's one level")
    short_ratio: Float[Array, "*b"] = quantity(high=1.0, default=0.13, doc="of a hop, that a short piece takes")
    switch_bytes: Float[Array, "*b"] = quantity(low=1.0, default=1e5, doc="of a member's piece: short below")

    def hops(self, operation: str, members: Array, domains: Array) -> Array:
        """Members that a piece passes one after the other."""
        ring = domains * (members - 1)
        if operation != SUMS:
            return ring
        return 2 * at_most(ring, members - 1 + self.tree_hops * jnp.log2(at_least(domains, 1.0)))

    def cost(self, operation: str, inside: Cost, outside: Cost, members: Array, domains: Array, nbytes: Array) -> Cost:
        """Cost of both phases together.

        Args:
            operation: of `OPERATIONS`.
            inside: of one domain, with the whole buffer.
            outside: between members that are alike, each with its share.
            members: of a domain that take part.
            domains: that take part.
            nbytes: of the whole buffer.
        """
        both = (members > 1) & (domains > 1) & (nbytes > 0)
        phases = p_norm(self.norm, inside.time_s + TINY, outside.time_s + TINY)
        large = jnp.minimum(jnp.where(both, nbytes, 1.0) / (members * domains) / self.switch_bytes, 1e6) ** 2
        share = self.short_ratio + (1 - self.short_ratio) * large / (1 + large)
        together = phases + self.hop_s * self.hops(operation, members, domains) * share
        alone = inside + outside
        return Cost(jnp.where(both, together, alone.time_s), alone.energy_j, alone.engine_s)
