"""A single-stage switch domain: every pair of endpoints is one switch apart (NVLink + NVSwitch, PCIe switch...)."""

from jaxtyping import Array, Float

from ....core.fields import integer, quantity
from ....core.jax_typed import arrays
from ...hardware import Link
from .base import AbstractFabric, Group


class SwitchDomain(AbstractFabric):
    """`endpoints` devices on one non-blocking switch stage, any pattern at full rate.

    Assumes: enough parallel switches to carry every endpoint at its full bandwidth.
    """

    endpoints: Float[Array, "*b"] = integer(low=1.0)
    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(
        low=1.0, doc="payload per direction per endpoint", usual=(7.7e9, 3.6e12)
    )
    latency_s: Float[Array, "*b"] = quantity(doc="one message from endpoint to endpoint", usual=(5e-7, 1e-5))
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(4.4e-11, 8.8e-11))
    usd_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0, usual=(6.6e-10, 8e-9))
    static_w_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0, usual=(8.8e-11, 1e-10))
    fixed_usd: Float[Array, "*b"] = quantity(default=0.0, usual=(1500.0, 5700.0))

    def link(self, group: Group) -> Link:
        """One link for every group."""
        return Link(self.latency_s, 1 / self.bandwidth_bytes_per_s, self.energy_j_per_byte)

    def reach(self) -> Array:
        """All endpoints of the domain."""
        return self.endpoints

    def capex_usd(self) -> Array:
        """Switch ports and cables of one endpoint."""
        return self.fixed_usd + self.bandwidth_bytes_per_s * self.usd_per_bytes_per_s

    def static_power_w(self) -> Array:
        """Switch port and SerDes of one endpoint."""
        return self.bandwidth_bytes_per_s * self.static_w_per_bytes_per_s

    @classmethod
    def example(cls) -> "SwitchDomain":
        """Eight devices."""
        return cls(*arrays(8.0, 450e9, 1e-6, 1e-11, 4e-9, 1e-10, 50.0))
