"""A rack of photonic circuits: any pair of endpoints at full rate, once a switch has been set."""

from jaxtyping import Array, Float

from ..fields import quantity
from ..hardware import Link
from .base import AbstractFabric, Group


class OpticalCircuit(AbstractFabric):
    """`endpoints` devices joined by wavelength circuits that a mesh of interferometers points anywhere.

    The bandwidth is that of all `wavelengths` of one endpoint together; they may be divided among partners in whole
    wavelengths. Changing partners takes `reconfiguration_s`, which the algorithms charge per round (`Link`).

    Assumes: enough waveguides between tiles that no request is refused; circuits of rings, trees and neighbours are
    set once for the whole job. Log-convex in everything but the number of wavelengths, which are counted whole.
    Source: [lumorph]: alpha 0.7 us, reconfiguration 3.7 us, 16 wavelengths, 300 GB/s per direction.
    """

    endpoints: Float[Array, "*b"] = quantity(low=1.0)
    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, doc="payload per direction per endpoint")
    latency_s: Float[Array, "*b"] = quantity(doc="one message over a standing circuit")
    reconfiguration_s: Float[Array, "*b"] = quantity(doc="to set a circuit to another partner")
    wavelengths: Float[Array, "*b"] = quantity(default=0.0, doc="0: bandwidth may be divided at will")
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0)
    usd_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0)
    static_w_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0, doc="lasers, which never idle")
    fixed_usd: Float[Array, "*b"] = quantity(default=0.0)

    def link(self, group: Group) -> Link:
        """The same circuit for every group."""
        return Link(
            self.latency_s,
            1 / self.bandwidth_bytes_per_s,
            self.energy_j_per_byte,
            self.reconfiguration_s,
            self.wavelengths,
        )

    def reach(self) -> Array:
        """All endpoints of the rack."""
        return self.endpoints

    def capex_usd(self) -> Array:
        """Transmitters, receivers, lasers and switch mesh of one endpoint."""
        return self.fixed_usd + self.bandwidth_bytes_per_s * self.usd_per_bytes_per_s

    def static_power_w(self) -> Array:
        """Lasers and tuning of one endpoint."""
        return self.bandwidth_bytes_per_s * self.static_w_per_bytes_per_s
