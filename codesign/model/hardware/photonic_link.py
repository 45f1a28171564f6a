"""A multiplexed photonic port: waveguides x wavelengths x bits per second, and what that costs in light."""

import math

from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.module import Module
from ...core.smooth import used_share
from .photonic_modulator import AbstractModulator
from .photonic_path import OpticalPath
from .photonic_receiver import PhotonicReceiver, from_decibel

NEIGHBOURS = 10 / math.log(10) * math.pi**2 / 3  # dB per (half width / spacing)^2, channels on both sides


class PhotonicLink(Module):
    """Photonic port of one endpoint, per direction: waveguides G, each with N wavelengths of R bits per second.

        bandwidth    = payload_ratio G N R / 8
        laser        = OMA(R) 10^(loss/10),  loss = modulator + path + crosstalk      [W of light per wavelength]
        crosstalk    = 10/ln 10 pi^2/3 (filter_ratio R / (2 spacing))^2               [dB]
        energy a bit = laser / (efficiency R) + drive + receiver + electronics + holding / R

    The crosstalk is that of Lorentzian filters of width `filter_ratio` R between equally spaced neighbours, summed in
    power and to first order, which says too much where filters overlap. Used shares of what limits it (`limits`,
    feasible up to 1): band N spacing / free spectral range; edge G pitch / die edge; waveguide_power N laser / cap.

    Log-convex in every continuous number. Bit error ratio enters as the Q of the receiver.

    Assumes: all wavelengths alike; lasers always on; every loss on the worst path; one direction per waveguide.
    Source: [bahadori2016] for the budget of a ring link; [dsent2012].
    """

    modulator: AbstractModulator
    path: OpticalPath
    receiver: PhotonicReceiver
    waveguides: Float[Array, "*b"] = quantity(
        low=1.0, high=1e5, doc="or fibers, per endpoint and direction", usual=(2.0, 64.0)
    )
    wavelengths: Float[Array, "*b"] = quantity(low=1.0, high=256.0, doc="per waveguide")
    bits_per_s: Float[Array, "*b"] = quantity(low=1e9, high=2e11, doc="per wavelength")
    spacing_hz: Float[Array, "*b"] = quantity(low=2.5e10, high=1e13, default=100e9)
    filter_ratio: Float[Array, "*b"] = quantity(high=2.0, default=1.48, doc="filter width over bit rate")
    laser_efficiency: Float[Array, "*b"] = quantity(low=1e-3, high=1.0, default=0.15, doc="light per electric power")
    electronics_j_per_bit: Float[Array, "*b"] = quantity(
        high=1e-9, default=0.0, doc="serialiser and its partner", usual=(5e-13, 5e-13)
    )
    payload_ratio: Float[Array, "*b"] = quantity(low=0.1, high=1.0, default=1.0, doc="coding and framing")
    pitch_m: Float[Array, "*b"] = quantity(low=1e-7, high=1e-2, default=127e-6, usual=(1.2e-4, 1.3e-4))
    edge_m: Float[Array, "*b"] = quantity(
        low=1e-4, high=1.0, default=25e-3, doc="die edge for one direction", usual=(0.025, 0.025)
    )
    waveguide_cap_w: Float[Array, "*b"] = quantity(low=1e-4, high=10.0, default=0.1, doc="light before it is absorbed")

    def bandwidth_bytes_per_s(self) -> Array:
        """Payload of all wavelengths together."""
        return self.payload_ratio * self.lanes() * self.bits_per_s / 8

    def lanes(self) -> Array:
        """Wavelengths of all waveguides."""
        return self.waveguides * self.wavelengths

    def crosstalk_db(self) -> Array:
        """Light of the neighbours in one's own filter."""
        return NEIGHBOURS * (self.filter_ratio * self.bits_per_s / (2 * self.spacing_hz)) ** 2

    def loss_db(self) -> Array:
        """From the laser to the photodiode."""
        return self.modulator.loss_db(self.wavelengths) + self.path.loss_db() + self.crosstalk_db()

    def laser_w(self) -> Array:
        """Light per wavelength that the laser must give."""
        return self.receiver.sensitivity_w(self.bits_per_s) * from_decibel(self.loss_db())

    def laser_j_per_bit(self) -> Array:
        """Electric energy of the laser."""
        return self.laser_w() / (self.laser_efficiency * self.bits_per_s)

    def holding_j_per_bit(self) -> Array:
        """Heaters, biases and switch stages at full rate."""
        per_wavelength = self.modulator.holding_w() + self.path.holding_w() / self.wavelengths
        return per_wavelength / self.bits_per_s

    def moving_j_per_bit(self) -> Array:
        """Energy that is spent only when a bit moves, J/bit."""
        return self.modulator.drive_j_per_bit() + self.receiver.energy_j_per_bit + self.electronics_j_per_bit

    def energy_j_per_bit(self) -> Array:
        """Total energy of a bit at full rate."""
        return self.laser_j_per_bit() + self.holding_j_per_bit() + self.moving_j_per_bit()

    def energy_j_per_byte(self) -> Array:
        """Energy of a byte of payload beside the static power, J/byte."""
        return 8 * self.moving_j_per_bit() / self.payload_ratio

    def static_power_w(self) -> Array:
        """Lasers, heaters, biases and switch stages of one endpoint, whether or not anything moves."""
        return (self.laser_j_per_bit() + self.holding_j_per_bit()) * self.lanes() * self.bits_per_s

    def density_bits_per_s_per_m(self) -> Array:
        """Bits per second over each metre of die edge."""
        return self.wavelengths * self.bits_per_s / self.pitch_m

    def limits(self) -> dict[str, Array]:
        """Used share of what bounds the design; feasible up to 1."""
        return {
            "band": used_share(self.wavelengths * self.spacing_hz, self.modulator.band_hz()),
            "edge": used_share(self.waveguides * self.pitch_m, self.edge_m),
            "waveguide_power": used_share(self.wavelengths * self.laser_w(), self.waveguide_cap_w),
        }
