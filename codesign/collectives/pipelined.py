"""Phases of one operation on two network levels at once."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..cost import Cost
from ..fields import quantity
from ..hardware.kernels_base import p_norm
from ..smooth import TINY


class Pipelined(eqx.Module):
    """T = (inside^p + outside^p)^(1/p) + hop_s N (g - 1) for g members inside of each of N domains.

    A library cuts a message into pieces, and while one piece crosses between domains another moves inside of one: for
    long messages the slower phase sets the pace, and phases alike slow each other down (both move data through the
    same processors and memory). A piece passes every member of the ring, one hop each; hops between domains are in the
    outer level's own time. Nothing is added where either level has one member.

    Assumes: time in hops grows with the members of a ring, as measured for 20 to 80 of them; beyond, a library that
    has trees for short messages is faster. Log-convex in both phases.
    Source: constants from `conf/collective`.
    """

    norm: Float[Array, "*b"] = quantity(low=1.0, high=20.0, default=3.0)
    hop_s: Float[Array, "*b"] = quantity(default=7e-6, usual=(5e-6, 1e-5), doc="past one member of a domain")

    def cost(self, inside: Cost, outside: Cost, members: Array, domains: Array, nbytes: Array) -> Cost:
        """Cost of both phases together.

        Args:
            inside: of one domain, with the whole buffer.
            outside: between members that are alike, each with its share.
            members: of a domain that take part.
            domains: that take part.
            nbytes: of the whole buffer.
        """
        both = (members > 1) & (domains > 1) & (nbytes > 0)
        phases = p_norm(self.norm, inside.time_s + TINY, outside.time_s + TINY)
        together = phases + self.hop_s * domains * (members - 1)
        alone = inside + outside
        return Cost(jnp.where(both, together, alone.time_s), alone.energy_j, alone.engine_s)
