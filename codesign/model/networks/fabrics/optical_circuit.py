"""A rack of photonic circuits: any pair of endpoints at full rate, once a switch has been set."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.fields import Usual, integer, quantity
from ....core.jax_typed import asarray
from ....core.smooth import at_least, maximum
from ...hardware import Link, OpticalSwitch
from .base import AbstractFabric, Group


def over_fibers(group: Group, seconds_per_byte: Array, servers: Array, fibers: Array, fiber_rate: Array) -> Array:
    """Seconds per byte of a member whose group may leave its server over shared fibers.

    Args:
        group: who talks.
        seconds_per_byte: of the member's own port.
        servers: endpoints of one server; 0 where all endpoints share one.
        fibers: that leave one server, per direction; 0 where there are always enough.
        fiber_rate: payload bytes per second of one fiber.

    Inside a server the port decides. Beyond it, all endpoints of the server send at once, each with its share of the
    fibers: max(beta, endpoints / (fibers rate)).
    """
    shared = maximum(seconds_per_byte, servers / (at_least(fibers, 1e-3) * fiber_rate))
    leaves = (group.size * group.stride > servers) & (servers > 0) & (fibers > 0)
    return jnp.where(leaves, shared, seconds_per_byte)


def switch_limits(switch: OpticalSwitch | None, setup_s: Array, endpoints: Array, servers: Array) -> dict[str, Array]:
    """Used share of a switch that joins the endpoints of one server, or all of them where there are no servers."""
    if switch is None:
        return {}
    return switch.limits(setup_s, jnp.where(servers > 0, servers, endpoints))


class OpticalCircuit(AbstractFabric):
    """`endpoints` devices joined by wavelength circuits that a mesh of interferometers points anywhere.

    The bandwidth is that of all `wavelengths` of one endpoint together; they may be divided among partners in whole
    wavelengths. Changing partners takes `reconfiguration_s`, which the algorithms charge per round (`Link`).

    Servers of `server_endpoints` may be joined by `server_fibers` fibers each. As one network level, a group that
    leaves its server sees its share of the fibers in every round; as two levels (server, rack) only the rounds that
    leave it do (`over_fibers`).

    `switch` is the technology that points circuits, a port an endpoint: it bounds set-up time and endpoints of a server
    (`limits`), and each port has a price. Without it nothing does.

    Assumes: enough waveguides between tiles that no request is refused; circuits of rings, trees and neighbours are
    set once for the whole job. Log-convex in everything but the number of wavelengths, which are counted whole.
    Source: [lumorph]: alpha 0.7 us, reconfiguration 3.7 us, 16 wavelengths, 300 GB/s per direction.
    """

    endpoints: Float[Array, "*b"] = integer(low=1.0)
    bandwidth_bytes_per_s: Float[Array, "*b"] = quantity(
        low=1.0, doc="payload per direction per endpoint", usual=(1e11, 2.4e12)
    )
    latency_s: Float[Array, "*b"] = quantity(doc="one message over a standing circuit", usual=(5e-7, 1e-5))
    reconfiguration_s: Float[Array, "*b"] = quantity(
        doc="to set a circuit to another partner", usual=(1e-9, 0.1, "semiconductor switches to mirrors")
    )
    wavelengths: Float[Array, "*b"] = quantity(default=0.0, doc="0: bandwidth may be divided at will")
    energy_j_per_byte: Float[Array, "*b"] = quantity(default=0.0, usual=(1.9e-11, 8.8e-11))
    usd_per_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0, usual=(4e-9, 8e-9))
    static_w_per_bytes_per_s: Float[Array, "*b"] = quantity(
        default=0.0, doc="lasers, which never idle", usual=(5.6e-12, 8.8e-11)
    )
    fixed_usd: Float[Array, "*b"] = quantity(default=0.0, usual=(1500.0, 5700.0))
    server_endpoints: Float[Array, "*b"] = integer(default=0.0, doc="on one wafer; 0: all of them")
    server_fibers: Float[Array, "*b"] = quantity(default=0.0, doc="that leave a server, per direction; 0: enough")
    fiber_bytes_per_s: Float[Array, "*b"] = quantity(low=1.0, default=1e12, doc="payload of one fiber, per direction")
    switch: OpticalSwitch | None = None

    def link(self, group: Group) -> Link:
        """One circuit for every group, with fewer bytes per second for a group that leaves its server."""
        port_beta = 1 / self.bandwidth_bytes_per_s
        beta = over_fibers(group, port_beta, self.server_endpoints, self.server_fibers, self.fiber_bytes_per_s)
        return Link(self.latency_s, beta, self.energy_j_per_byte, self.reconfiguration_s, self.wavelengths)

    def derived(self) -> dict[str, tuple[Array, Usual]]:
        """Quantities that follow from several numbers, with what is usual; 0 where wavelengths are not counted."""
        rate = 8 * self.bandwidth_bytes_per_s / at_least(self.wavelengths, 1.0)
        rate = jnp.where(self.wavelengths > 0, rate, 0.0)
        return {"bits_per_s_per_wavelength": (rate, (1e9, 1.2e12, "up to one carrier of a coherent pluggable module"))}

    def reach(self) -> Array:
        """All endpoints of the rack."""
        return self.endpoints

    def capex_usd(self) -> Array:
        """Transmitters, receivers, lasers and switch mesh of one endpoint."""
        ports = 0.0 if self.switch is None else self.switch.usd_per_port
        return self.fixed_usd + self.bandwidth_bytes_per_s * self.usd_per_bytes_per_s + ports

    def static_power_w(self) -> Array:
        """Lasers, tuning and the switch's port of one endpoint."""
        ports = 0.0 if self.switch is None else self.switch.port_w
        return self.bandwidth_bytes_per_s * self.static_w_per_bytes_per_s + ports

    def limits(self) -> dict[str, Array]:
        """Used share of what the switch can."""
        return switch_limits(self.switch, self.reconfiguration_s, self.endpoints, self.server_endpoints)

    @classmethod
    def example(cls) -> "OpticalCircuit":
        """A rack of 256 devices."""
        return cls(
            asarray(256.0),
            asarray(300e9),
            asarray(7e-7),
            asarray(3.7e-6),
            wavelengths=asarray(16.0),
            energy_j_per_byte=asarray(1e-11),
            usd_per_bytes_per_s=asarray(4e-9),
            static_w_per_bytes_per_s=asarray(1e-10),
            fixed_usd=asarray(50.0),
        )
