"""A HyperX: routers in a grid, all of a row and all of a column joined directly."""

from typing import ClassVar

from jaxtyping import Array, Float

from codesign.core import maximum, quantity
from codesign.model.hardware import Link
from codesign.model.networks.fabrics import AbstractFabric, Group


class HyperX(AbstractFabric):
    """A grid of `rows` x `columns` routers with `terminals` devices each; two hops between any routers.

    beta = max(1, terminals / rows, terminals / columns) / bandwidth: under uniform traffic half of what a router's
    terminals send crosses the middle of its row, over half of its links there, each as wide as a terminal's port.

    Assumes: minimal routing, traffic spread evenly.
    """

    whole: ClassVar[tuple[str, ...]] = ("rows", "columns", "terminals")

    rows: Float[Array, "*b"] = quantity(low=1.0)
    columns: Float[Array, "*b"] = quantity(low=1.0)
    terminals: Float[Array, "*b"] = quantity(low=1.0)
    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0)
    latency_s: Float[Array, "*b"] = quantity(doc="of one router and its wire")
    usd_per_endpoint: Float[Array, "*b"] = quantity(default=0.0)

    def link(self, group: Group) -> Link:
        """Three routers on the way, and a share of the middle."""
        del group
        crowded = maximum(self.terminals / self.rows, self.terminals / self.columns)
        return Link(3 * self.latency_s, maximum(1.0, crowded) / self.bandwidth_bytes_per_s)

    def reach(self) -> Array:
        """All devices of the grid."""
        return self.rows * self.columns * self.terminals

    def capex_usd(self) -> Array:
        """Price per device."""
        return self.usd_per_endpoint

    def static_power_w(self) -> Array:
        """None is counted."""
        return 0.0 * self.rows

    @classmethod
    def example(cls) -> "HyperX":
        """Four by four routers of eight terminals."""
        return cls(4.0, 4.0, 8.0, 450e9, 1e-6, 300.0)
