"""Optical path between a modulator and a receiver."""

from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.jax_typed import asarray
from ...core.module import Module


class OpticalPath(Module):
    """Loss = stages x dB + crossings x dB + length x dB/m + couplers x dB + splitter + margin, all in dB.

    A switch stage is a Mach-Zehnder interferometer of the mesh that points circuits; each passed is held by
    `stage_hold_w`, and the mesh of one waveguide has as many in use as light passes.

    Source: sum of a link budget; single losses [dsent2012], coupler to a fiber [sci_rep_2017].
    """

    stages: Float[Array, "*b"] = quantity(high=64.0, default=8.0, doc="interferometers of the switch mesh")
    stage_db: Float[Array, "*b"] = quantity(high=1.0, default=0.3)
    stage_hold_w: Float[Array, "*b"] = quantity(high=1.0, default=0.0)
    crossings: Float[Array, "*b"] = quantity(high=256.0, default=20.0)
    crossing_db: Float[Array, "*b"] = quantity(high=0.2, default=0.02)
    length_m: Float[Array, "*b"] = quantity(high=1.0, default=0.06, doc="on the wafer")
    waveguide_db_per_m: Float[Array, "*b"] = quantity(high=100.0, default=30.0)
    couplers: Float[Array, "*b"] = quantity(high=8.0, default=3.0, doc="laser in; two more for each fiber")
    coupler_db: Float[Array, "*b"] = quantity(high=6.0, default=1.0)
    splitter_db: Float[Array, "*b"] = quantity(high=20.0, default=1.0, doc="of the laser's light")
    margin_db: Float[Array, "*b"] = quantity(high=10.0, default=3.0, doc="ageing, temperature, spread")

    def loss_db(self) -> Array:
        """All of it but the modulator, the rings and the crosstalk."""
        switching = self.stages * self.stage_db + self.crossings * self.crossing_db
        travelling = self.length_m * self.waveguide_db_per_m + self.couplers * self.coupler_db
        return switching + travelling + self.splitter_db + self.margin_db

    def items_db(self) -> dict[str, Array]:
        """The terms by name, for a budget that can be read."""
        return {
            "switch stages": self.stages * self.stage_db,
            "crossings": self.crossings * self.crossing_db,
            "waveguide": self.length_m * self.waveguide_db_per_m,
            "couplers": self.couplers * self.coupler_db,
            "splitter": asarray(self.splitter_db),
            "margin": asarray(self.margin_db),
        }

    def holding_w(self) -> Array:
        """Power of the switch stages in use, per waveguide."""
        return self.stages * self.stage_hold_w
