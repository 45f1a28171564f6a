"""Ring algorithms: bandwidth-optimal, latency linear in the group."""

from typing import ClassVar

from jaxtyping import Array

from ....core.cost import Cost
from ...hardware import Link
from ..fabrics import Group
from .base import AbstractCollective, among_many


class RingAllReduce(AbstractCollective):
    """2 (n-1) alpha + 2 (n-1)/n nbytes beta.

    Assumes: full-duplex links, n equal chunks, reduction hidden behind the wire.
    Source: [patarasuk2009].
    """

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Reduce-scatter then all-gather round the ring."""
        n = group.size
        return among_many(group, link, 2 * (n - 1), 2 * (n - 1) / n * nbytes)


class RingAllGather(AbstractCollective):
    """(n-1) alpha + (n-1)/n nbytes beta; a reduce-scatter is the same run backwards.

    Source: [patarasuk2009].
    """

    operation: ClassVar[str] = "all_gather"

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """n - 1 rounds of one chunk each."""
        n = group.size
        return among_many(group, link, n - 1, (n - 1) / n * nbytes)


class PairwiseAllToAll(AbstractCollective):
    """(n-1) exchanges of nbytes / n with each other member; on circuits, each must be set first.

    Assumes: a fabric on which any permutation runs at full rate.
    """

    operation: ClassVar[str] = "all_to_all"

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """n - 1 rounds of one block each."""
        n = group.size
        return among_many(group, link, n - 1, (n - 1) / n * nbytes, new_partners=n - 1)


class Send(AbstractCollective):
    """One message to a neighbour: alpha + nbytes beta."""

    operation: ClassVar[str] = "send"

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """One message."""
        return among_many(group, link, 1.0 + 0 * group.size, nbytes)
