"""A rack of photonic circuits built up from its optics: wavelengths, rates, fibers and losses are the variables."""

import dataclasses
from collections.abc import Sequence

from jaxtyping import Array, Float

from ....core.errors import ConfigError
from ....core.fields import as_leaves, integer, quantity
from ....core.jax_typed import arrays, asarray
from ....core.smooth import ratio
from ...hardware import Link, OpticalPath, OpticalSwitch, PhotonicLink, PhotonicReceiver, RingModulator
from ...slices import CircuitRack
from .base import AbstractFabric, Group
from .optical_circuit import OpticalCircuit, over_fibers, switch_limits


class PhotonicRack(AbstractFabric):
    """`endpoints` devices joined by circuits, each behind the photonic `port` that it sends through.

    Bandwidth, energy per byte and standing power follow from the port; a circuit is a wavelength of a waveguide, so
    the port divides into waveguides x wavelengths lanes. What limits the optics (free spectral range, die edge, light
    a waveguide bears) is a constraint of the design (`limits`).

    Servers of `server_endpoints` are joined by `server_fibers` fibers each, which carry what a waveguide carries. The
    `switch` that points circuits has a port for each waveguide, as in `OpticalCircuit`.

    Assumes: as `OpticalCircuit`; prices in proportion to wavelengths and waveguides.
    Source: [lumorph] for the rack; the port's own sources for the optics.
    """

    port: PhotonicLink
    endpoints: Float[Array, "*b"] = integer(low=1.0)
    latency_s: Float[Array, "*b"] = quantity(doc="one message over a standing circuit", usual=(5e-7, 1e-5))
    reconfiguration_s: Float[Array, "*b"] = quantity(
        doc="to set a circuit to another partner", usual=(1e-9, 0.1, "semiconductor switches to mirrors")
    )
    server_endpoints: Float[Array, "*b"] = integer(default=0.0, doc="on one wafer; 0: all of them")
    server_fibers: Float[Array, "*b"] = quantity(default=0.0, doc="that leave a server, per direction; 0: enough")
    usd_per_wavelength: Float[Array, "*b"] = quantity(
        default=0.0, doc="laser share, modulator, detector, electronics", usual=(16.0, 16.0)
    )
    usd_per_waveguide: Float[Array, "*b"] = quantity(
        default=0.0, doc="attachment and its share of the mesh", usual=(20.0, 20.0)
    )
    fixed_usd: Float[Array, "*b"] = quantity(default=0.0, usual=(1500.0, 5700.0))
    usd_per_fiber: Float[Array, "*b"] = quantity(default=0.0, doc="of those that leave a server", usual=(50.0, 50.0))
    switch: OpticalSwitch | None = None

    def link(self, group: Group) -> Link:
        """The port's link, with a share of the fibers for a group that leaves its server."""
        port_beta = 1 / self.port.bandwidth_bytes_per_s()
        fiber = self.port.bandwidth_bytes_per_s() / self.port.waveguides
        beta = over_fibers(group, port_beta, self.server_endpoints, self.server_fibers, fiber)
        return Link(self.latency_s, beta, self.port.energy_j_per_byte(), self.reconfiguration_s, self.port.lanes())

    def reach(self) -> Array:
        """All endpoints of the rack."""
        return self.endpoints

    def capex_usd(self) -> Array:
        """Optics of one endpoint, and its share of its server's fibers."""
        lanes, waveguides = self.port.lanes(), self.port.waveguides
        fibers = ratio(self.server_fibers, self.server_endpoints) * self.usd_per_fiber
        ports = 0.0 if self.switch is None else waveguides * self.switch.usd_per_port
        return self.fixed_usd + lanes * self.usd_per_wavelength + waveguides * self.usd_per_waveguide + fibers + ports

    def static_power_w(self) -> Array:
        """Lasers, heaters and switch stages of one endpoint."""
        ports = 0.0 if self.switch is None else self.port.waveguides * self.switch.port_w
        return self.port.static_power_w() + ports

    def limits(self) -> dict[str, Array]:
        """Used share of what bounds the optics, and of what the switch can."""
        rack_limits = switch_limits(self.switch, self.reconfiguration_s, self.endpoints, self.server_endpoints)
        return self.port.limits() | rack_limits

    @classmethod
    def example(cls) -> "PhotonicRack":
        """A rack of 256 devices on ring modulators."""
        modulator = RingModulator(**as_leaves(dict(insertion_db=0.3, drop_db=0.1, through_db=1e-4)))
        path = OpticalPath(*arrays(2.0, 0.05, 1e-3, 2.0, 0.01, 0.01, 3.0, 2.0, 0.1, 0.1, 0.1))
        receiver = PhotonicReceiver(**as_leaves(dict(penalty_db=0.5, energy_j_per_bit=3e-13)))
        link = PhotonicLink(modulator, path, receiver, *arrays(5.0, 16.0, 32e9), filter_ratio=asarray(0.1))
        servers = dict(server_endpoints=32.0, server_fibers=8.0)
        prices = dict(usd_per_wavelength=10.0, usd_per_waveguide=30.0)
        return cls(link, *arrays(256.0, 7e-7, 3.7e-6), **as_leaves(servers | prices))


# A slice of a rack of circuits, as its scheduler gave it: how many of its members share how many fibers.


Circuits = OpticalCircuit | PhotonicRack


def on_slice(
    inner: Circuits, size: int, taken: Sequence[int], each: int, fibers: int, per_member: float = 0.0
) -> Circuits:
    """The circuits of a slice of `size` accelerators, placed on a rack of which some are taken.

    Inside one server a slice has full rate. Spread over several, the members in the server with the most of them to a
    fiber set the pace of every group that leaves it (`over_fibers`).

    Args:
        inner: the rack's circuits.
        size: accelerators of the slice.
        taken: accelerators that other slices have in each server.
        each: accelerators of a server.
        fibers: that leave a server.
        per_member: fibers that the scheduler gives for each member, while there are any; at least a ring of servers.

    Raises:
        ConfigError: the rack has no place for it.
    """
    rack = CircuitRack.occupied(taken, each, fibers, per_member)
    handle = rack.allocate(size)
    if handle is None:
        free = rack.free
        raise ConfigError(
            f"size = {size} finds no place on this rack: {free} accelerators are free with {fibers} fibers a server;"
            " ask for less, free some (taken) or add fibers"
        )
    parts = rack.parts(handle)
    if not parts:
        return dataclasses.replace(inner, endpoints=asarray(float(size)), server_fibers=asarray(0.0))
    members, ends = max(parts, key=lambda part: part[0] / part[1])
    return dataclasses.replace(
        inner,
        endpoints=asarray(float(size)),
        server_endpoints=asarray(float(members)),
        server_fibers=asarray(float(ends)),
    )
