"""Optical modulators, which write bits on light: micro-rings, electro-absorption and Mach-Zehnder modulators."""

import abc

from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.jax_typed import zeros_like
from ...core.module import Module


class AbstractModulator(Module):
    """One modulator per wavelength, and what belongs to it at the receiving end of a multiplexed waveguide."""

    @abc.abstractmethod
    def loss_db(self, wavelengths: Array) -> Array:
        """Loss of light of one wavelength in modulating, joining and leaving a waveguide of so many, dB."""

    @abc.abstractmethod
    def drive_j_per_bit(self) -> Array:
        """Energy to drive it."""

    @abc.abstractmethod
    def holding_w(self) -> Array:
        """Power per wavelength to keep it tuned or biased, at both ends."""

    @abc.abstractmethod
    def band_hz(self) -> Array:
        """Width of the optical band in which wavelengths may lie."""


class RingModulator(AbstractModulator):
    """Micro-rings: each modulates or drops one wavelength and lets the others pass, so they multiplex by themselves.

    Their resonances repeat every free spectral range, which all wavelengths must share. A heater holds each of the two
    rings of a wavelength where it belongs: correction / (hertz moved per watt).

    Assumes: rings passed are counted as all of a wavelength's neighbours at both ends (one ring too many at each).
    Source: [bahadori2016]; [topic_ring_2024] for heaters and spectral range.
    """

    insertion_db: Float[Array, "*b"] = quantity(high=20.0, default=4.0, doc="with what the finite contrast costs")
    drop_db: Float[Array, "*b"] = quantity(high=10.0, default=1.0)
    through_db: Float[Array, "*b"] = quantity(high=0.2, default=0.01, doc="each ring passed")
    energy_j_per_bit: Float[Array, "*b"] = quantity(high=1e-9, default=7e-15, usual=(7e-15, 2e-13))
    correction_hz: Float[Array, "*b"] = quantity(
        high=1e13, default=250e9, doc="mean distance to be tuned", usual=(2.5e11, 2.5e11)
    )
    hz_per_w: Float[Array, "*b"] = quantity(
        low=1e9, default=283e12, doc="shift of the resonance per watt of heat", usual=(2.8e14, 2.9e14)
    )
    free_spectral_range_hz: Float[Array, "*b"] = quantity(low=1e9, default=3.2e12, usual=(3.2e12, 3.2e12))

    def loss_db(self, wavelengths: Array) -> Array:
        """Own ring, drop ring and all the others."""
        return self.insertion_db + self.drop_db + 2 * wavelengths * self.through_db

    def drive_j_per_bit(self) -> Array:
        """Charge on the junction."""
        return self.energy_j_per_bit

    def holding_w(self) -> Array:
        """Two heaters."""
        return 2 * self.correction_hz / self.hz_per_w

    def band_hz(self) -> Array:
        """One free spectral range."""
        return self.free_spectral_range_hz


class ElectroAbsorptionModulator(AbstractModulator):
    """An absorber on a branch of its own: no resonance to hold, a fixed multiplexer at each end.

    Assumes: stable over temperature, so that nothing is tuned.
    Source: [celestial2025hotchips].
    """

    insertion_db: Float[Array, "*b"] = quantity(high=20.0, default=4.0, doc="with what the finite contrast costs")
    multiplexer_db: Float[Array, "*b"] = quantity(high=10.0, default=1.0, doc="each of two")
    energy_j_per_bit: Float[Array, "*b"] = quantity(high=1e-9, default=1e-13, usual=(7e-15, 2e-13))
    multiplexed_hz: Float[Array, "*b"] = quantity(low=1e9, default=6.4e12, doc="band of the multiplexer")

    def loss_db(self, wavelengths: Array) -> Array:
        """Modulator and two multiplexers."""
        return self.insertion_db + 2 * self.multiplexer_db + 0 * wavelengths

    def drive_j_per_bit(self) -> Array:
        """Charge and photocurrent."""
        return self.energy_j_per_bit

    def holding_w(self) -> Array:
        """Nothing to hold."""
        return zeros_like(self.energy_j_per_bit)

    def band_hz(self) -> Array:
        """The multiplexer's."""
        return self.multiplexed_hz


class MachZehnderModulator(AbstractModulator):
    """An interferometer on a branch of its own: broadband, large, dear to drive; its bias point is held.

    Source: [baehrjones2012] for the drive.
    """

    insertion_db: Float[Array, "*b"] = quantity(high=20.0, default=5.0, doc="with what the finite contrast costs")
    multiplexer_db: Float[Array, "*b"] = quantity(high=10.0, default=1.0, doc="each of two")
    energy_j_per_bit: Float[Array, "*b"] = quantity(high=1e-9, default=2e-13, usual=(7e-15, 3e-13))
    bias_w: Float[Array, "*b"] = quantity(high=1.0, default=5e-3)
    multiplexed_hz: Float[Array, "*b"] = quantity(low=1e9, default=6.4e12, doc="band of the multiplexer")

    def loss_db(self, wavelengths: Array) -> Array:
        """Modulator and two multiplexers."""
        return self.insertion_db + 2 * self.multiplexer_db + 0 * wavelengths

    def drive_j_per_bit(self) -> Array:
        """Power in the travelling-wave electrodes."""
        return self.energy_j_per_bit

    def holding_w(self) -> Array:
        """Phase shifter of the bias point."""
        return self.bias_w

    def band_hz(self) -> Array:
        """The multiplexer's."""
        return self.multiplexed_hz
