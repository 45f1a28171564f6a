"""The edge of the die as a resource that memory stacks, links and photonic ports compete for."""

from jaxtyping import Array, Float

from ...core.fields import quantities, quantity
from ...core.jax_typed import asarray
from ...core.module import Module
from ...core.smooth import used_share


class Shoreline(Module):
    """`edge_mm` of edge of each die, and the bandwidth that a millimetre of each technology carries.

    used = sum over technologies of bandwidth / density. HBM is counted by its PHY: bandwidth of a stack over the
    millimetres of its PHY. A technology without a density needs no edge (memory of the host).

    Log-convex in bandwidths, densities and edge: a posynomial over a monomial.
    Source: [ding2025pfa] section 3.4, the beachfront argument.
    """

    edge_mm: Float[Array, "*b"] = quantity(low=1e-3, doc="die edge that may carry signals", usual=(72.0, 72.0))
    bytes_per_s_per_mm: dict[str, Float[Array, "*b"]] = quantities(low=1.0, usual=(6e10, 5e11))

    def used_mm(self, bytes_per_s: dict[str, Array]) -> Array:
        """Millimetres that these bandwidths take."""
        total = asarray(0.0)
        for technology, rate in bytes_per_s.items():
            if technology in self.bytes_per_s_per_mm:
                total = total + rate / self.bytes_per_s_per_mm[technology]
        return total

    def used_share(self, bytes_per_s: dict[str, Array], dies: Array | float = 1.0) -> Array:
        """Part of the edge of so many dies that is taken; a design can be built up to one."""
        return used_share(self.used_mm(bytes_per_s), dies * self.edge_mm)
