"""All-reduce on few bits: what it saves on the wire, what its codec takes, what it does to a language model."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.cost import Cost
from ....core.fields import quantity, switch
from ....core.jax_typed import asarray, where
from ....core.smooth import at_least
from ...hardware import Link
from ..fabrics import Group
from .base import AbstractCollective
from .in_network import InNetworkAllReduce

__all__ = [
    "BLOCK_POWER", "NOISE_POWER", "PERPLEXITY_FACTOR", "PERPLEXITY_SCALE", "Quantised", "log_perplexity_penalty",
    "requantisation",
]  # fmt: skip

PERPLEXITY_SCALE, BLOCK_POWER, NOISE_POWER = 0.0434, 1.18, 0.828
"""Fitted on table 1 of [scin], LLaMA-2-7B on WikiText-2 (`experiments/scin_quantisation` fits them again)."""

PERPLEXITY_FACTOR = 2.306
"""Error factor of the law, up and down: 95 % of new measurements. Source: derived, residuals of the same 20 cells of
table 1 (0.369 in the logarithm, 17 degrees of freedom, Student's t) with the spread of the three constants."""

STATED_BITS, STATED_BLOCK = (4.0, 8.0), (32.0, 512.0)
"""Bits and elements of a block that table 1 of [scin] has measured; nothing is known beyond."""


def requantisation(size: Array) -> Array:
    """Variance of a ring's error over that of one sum in the network: (n+1)/4 for independent partial sums.

    A member's quantised buffer errs by q. In the network n buffers and their sum are quantised: n q + n q. A ring
    quantises partial sums of 1, 2, ... n-1 members and the total: n (n+1)/2 q.

    Source: derived; [scin] section 3.4 counts the steps.
    """
    return (size + 1) / 4


def log_perplexity_penalty(bits: Array, block_elements: Array, error_ratio: Array) -> Array:
    """Increase of ln(perplexity) when every tensor-parallel all-reduce is quantised.

        0.0434 (M (Bq/64)^1.18 (7 / (2^(b-1) - 1))^2)^0.828

    with b bits, blocks of Bq elements that share a scale factor, and M the error's variance over that of a single
    quantisation in the network (`requantisation`). Outlier channels make the error grow with the block.

    Assumes: 4 to 8 bits, blocks of 32 to 512, a 7B decoder with outlier channels; within a factor `PERPLEXITY_FACTOR`.
    Not log-convex in the bits: list them (`search=integer`).
    Source: [scin] table 1, fitted: R^2 0.98 in the logarithm of the increase.
    """
    steps = 7 / (2 ** (bits - 1) - 1)
    noise = error_ratio * (block_elements / 64) ** BLOCK_POWER * steps**2
    return PERPLEXITY_SCALE * noise**NOISE_POWER


class Quantised(AbstractCollective):
    """Any all-reduce on blocks of few-bit numbers with a scale factor each.

        t = inner(nbytes ratio) + codec,    ratio = (bits / 8 + scale / block) / element

    8 bits, blocks of 64 and 2-byte elements: 33/64, 1.94 times fewer bytes. The size of an element is that of what is
    summed (`Group.element_bytes`). Numbers that have no more than `bits`, or may not be rounded, go by `plain`, or
    unchanged by `inner` where that is not given. `codec_s` is paid once, `codec_s_per_byte` for every byte that a
    member encodes or decodes: its buffer and the result where the sum is formed in the network, its part of each round
    more (`each_round`) on a ring.

    Assumes: elements of the inner algorithm may be cut anywhere. Log-convex in the link, the codec and the size of a
    block, not in the bits.
    Source: [scin] section 3.4; what its table 1 measured bounds bits and blocks.
    """

    inner: AbstractCollective
    plain: AbstractCollective | None = None
    bits: Float[Array, "*b"] = quantity(low=STATED_BITS[0], high=STATED_BITS[1], default=8.0)
    block_elements: Float[Array, "*b"] = quantity(
        low=STATED_BLOCK[0], high=STATED_BLOCK[1], default=64.0, doc="that share a scale factor"
    )
    scale_bytes: Float[Array, "*b"] = quantity(default=2.0, doc="of a scale factor")
    codec_s: Float[Array, "*b"] = quantity(default=0.0)
    codec_s_per_byte: Float[Array, "*b"] = quantity(default=0.0, doc="to encode or to decode")
    codec_j_per_byte: Float[Array, "*b"] = quantity(default=0.0)
    each_round: Float[Array, "*b"] = switch(default=0.0, doc="1 where partial sums are quantised again, as on a ring")

    def shrinks(self, group: Group) -> Array:
        """True where the group's numbers have more bits than these."""
        return self.bits < 8 * group.element_bytes

    def wire_ratio(self, group: Group | None = None) -> Array:
        """Bytes sent over bytes meant; of 2-byte numbers unless a group says otherwise."""
        element = asarray(2.0) if group is None else at_least(group.element_bytes, 0.5)
        ratio = (self.bits / 8 + self.scale_bytes / self.block_elements) / element
        return ratio if group is None else jnp.where(self.shrinks(group), ratio, 1.0)

    def coded_bytes(self, nbytes: Array, group: Group) -> Array:
        """Bytes that a member encodes and decodes, as they are before quantisation.

        On a ring n parts are encoded (each once a round, its own sum last) and 2 (n-1) decoded, of nbytes / n each.
        """
        rounds = 3 - 2 / group.size
        return nbytes * jnp.where(self.shrinks(group), 2 + (rounds - 2) * self.each_round, 0.0)

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """The inner algorithm on fewer bytes, and the codec; the plain one where nothing is to be rounded."""
        coded = jnp.where((group.size > 1) & (nbytes > 0), self.coded_bytes(nbytes, group), 0.0)
        once = jnp.where(coded > 0, self.codec_s, 0.0)
        codec = Cost(once + coded * self.codec_s_per_byte, coded * self.codec_j_per_byte)
        rounded = codec + self.inner.cost(nbytes * self.wire_ratio(group), group, link)
        if self.plain is None:
            return rounded
        exact, shrinks = self.plain.cost(nbytes, group, link), self.shrinks(group)
        return where(shrinks, rounded, exact)

    def capex_usd(self, endpoints: Array) -> Array:
        """Price of the inner algorithm's hardware."""
        return self.inner.capex_usd(endpoints)

    def limits(self, endpoints: Array) -> dict[str, Array]:
        """Used shares of the inner algorithm's limits."""
        return self.inner.limits(endpoints)

    def may_round(self) -> bool:
        """True: this algorithm rounds what is sent."""
        return True

    def log_perplexity_penalty(self, group: Group) -> Array:
        """Increase of ln(perplexity) of a 7B language model that sums all its partial results like this."""
        ratio = 1 + self.each_round * (requantisation(group.size) - 1)
        penalty = log_perplexity_penalty(self.bits, self.block_elements, ratio)
        return jnp.where((group.size > 1) & self.shrinks(group), penalty, 0.0)

    @classmethod
    def example(cls) -> "Quantised":
        """An example: an all-reduce inside the switches."""
        return cls(InNetworkAllReduce(asarray(4224.0)), codec_s=asarray(1e-6), codec_s_per_byte=asarray(1e-13))
