"""Messages from host to host through PCIe, a network card and back, packet by packet."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from ....core.cost import Cost
from ....core.jax_typed import arrays
from ....core.smooth import maximum
from ...hardware import Channel, Link, ThreeStagePath, infiniband, pcie
from ..fabrics import Group
from .base import AbstractCollective, Tuned
from .ring import Send


class HostPath(AbstractCollective):
    """A send over a `ThreeStagePath` whose wire is the link: its rate, shared or not, and its latency.

        t = launch + max(library, path)
        path = alpha + t0 + read + n1 (a1 + beta + a3) + (n - n1) max(a1, beta, a3) + ramp n^2 / (n^2 + nr^2)

    `path.start_s` is what comes on top of the link's own latency; of `path.wire` only the size of a packet counts.
    `inner` is the send of a library between such hosts as it was measured (`Tuned`): its launch, in software, comes
    before the first byte moves and is added; while bytes move, the library's own transfer and the path go on together,
    and the slower lasts. Adding all of the path would count the wire twice: a measured 33.5 MB between ten nodes takes
    1,401 us, of which this gives 1,389 and the sum of both 2,061.

    Assumes: one message at a time; the launch as it was measured, between hosts whose read and first packet (0.4 us of
    39) are in it. Log-convex in the link and in the rates of both hosts' PCIe where `inner` is.
    Source: [pcie_interference] sections 3.2 and 4.1, as `ThreeStagePath`.
    """

    operation: ClassVar[str] = "send"

    path: ThreeStagePath
    inner: AbstractCollective = Send()

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """One message to the next member; nothing for a group of one or no bytes."""
        busy = (group.size > 1) & (nbytes > 0)
        wire = Channel(1 / link.beta_s_per_byte, unit_bytes=self.path.wire.packet_bytes())
        seconds = link.alpha_s + dataclasses.replace(self.path, wire=wire).time_s(nbytes)
        library = self.inner if isinstance(self.inner, Tuned) else Tuned(self.inner)
        moving = dataclasses.replace(library, launch_s=0.0 * library.launch_s).cost(nbytes, group, link)
        taken = library.launch_s + maximum(seconds, moving.time_s)
        return Cost(jnp.where(busy, taken, 0.0), moving.energy_j)

    @classmethod
    def example(cls) -> "HostPath":
        """From card to card."""
        return cls(ThreeStagePath(pcie(5), infiniband("NDR"), pcie(5), *arrays(0.0, 4e-7, 220.0, 8e-7)))
