"""Direct algorithms: everybody talks to everybody at once; one message time, whatever the group."""

from typing import ClassVar

from jaxtyping import Array, Float

from ....core.cost import Cost
from ....core.fields import quantity
from ....core.jax_typed import asarray
from ...hardware import Link
from ..fabrics import Group
from .base import AbstractCollective, among_many


class OneShotAllReduce(AbstractCollective):
    """alpha + (n-1) nbytes beta: each member sends its whole buffer to all others, which add for themselves.

    Assumes: a switch; one set of circuits for all partners where there are circuits.
    Source: [thakur2005], the all-to-all broadcast; the one-shot kernels of inference engines.
    """

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """One round of whole buffers."""
        n = group.size
        return among_many(group, link, 1.0 + 0 * n, (n - 1) * nbytes, new_partners=1.0)


class TwoShotAllReduce(AbstractCollective):
    """2 alpha + 2 (n-1)/n nbytes beta: each sums one part of the buffers and sends the sum to all others.

    Assumes: a switch; one set of circuits for both rounds where there are circuits.
    Source: [thakur2005], reduce-scatter and all-gather; the two-shot kernels of inference engines.
    """

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Two rounds of parts."""
        n = group.size
        return among_many(group, link, 2.0 + 0 * n, 2 * (n - 1) / n * nbytes, new_partners=1.0)


class DirectAllGather(AbstractCollective):
    """alpha + (n-1)/n nbytes beta; a reduce-scatter is the same run backwards.

    Assumes: as `TwoShotAllReduce`.
    Source: [thakur2005].
    """

    operation: ClassVar[str] = "all_gather"

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """One round of parts."""
        n = group.size
        return among_many(group, link, 1.0 + 0 * n, (n - 1) / n * nbytes, new_partners=1.0)


class DirectAllToAll(AbstractCollective):
    """alpha + imbalance (n-1)/n nbytes beta: all blocks at once.

    `imbalance_ratio` is what the busiest member sends or receives over the mean, 1 for equal blocks; tokens for
    experts are not equal (all-to-all-v). Energy is that of the mean.

    Assumes: as `TwoShotAllReduce`; a switch whose only bottlenecks are the members' own links.
    Source: [thakur2005] for equal blocks; the busiest link for unequal ones.
    """

    operation: ClassVar[str] = "all_to_all"

    imbalance_ratio: Float[Array, "*b"] = quantity(low=1.0, default=1.0)

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """One round, as long as the busiest link needs."""
        n = group.size
        mean = (n - 1) / n * nbytes
        busiest = among_many(group, link, 1.0 + 0 * n, mean * self.imbalance_ratio, new_partners=1.0)
        return Cost(busiest.time_s, busiest.energy_j / self.imbalance_ratio)

    @classmethod
    def example(cls) -> "DirectAllToAll":
        """With plain numbers."""
        return cls(imbalance_ratio=asarray(1.3))
