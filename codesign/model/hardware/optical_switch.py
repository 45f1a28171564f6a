"""Optical circuit switch: how fast it points circuits at partners, how many it joins, what a port of it costs."""

from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.module import Module
from ...core.smooth import used_share


class OpticalSwitch(Module):
    """A technology of optical circuit switches, as built: nothing of it is set faster or joins more.

    One plane of switches joins one port of each endpoint; an endpoint of several waveguides takes as many planes.

    Assumes: one stage of switches a plane; loss is the optical path's.
    """

    setup_s: Float[Array, "*b"] = quantity(
        doc="least time to point a circuit", usual=(1e-9, 0.1, "semiconductor switches to mirrors")
    )
    ports: Float[Array, "*b"] = quantity(low=1.0, doc="largest that was built", usual=(2.0, 1100.0, "mirrors"))
    usd_per_port: Float[Array, "*b"] = quantity(default=0.0, usual=(20.0, 200.0))
    port_w: Float[Array, "*b"] = quantity(default=0.0, usual=(0.1, 1.0))

    def limits(self, reconfiguration_s: Array, joined: Array) -> dict[str, Array]:
        """Used share of what the technology can: its haste, and its ports where so many endpoints are joined."""
        return {"switch_setup": used_share(self.setup_s, reconfiguration_s), "switch_ports": joined / self.ports}
