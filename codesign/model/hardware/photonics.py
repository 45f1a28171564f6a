"""Photonics: modulators, the optical path, receivers, the multiplexed port of these, and optical circuit switches."""

import abc
import math

import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float

from ...core.fields import Module, quantity
from ...core.jax_typed import asarray, zeros_like
from ...core.smooth import used_share

# Optical modulators, which write bits on light: micro-rings, electro-absorption and Mach-Zehnder modulators.


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


# Optical path between a modulator and a receiver.


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


# The receiving end of an optical channel: how much light a bit needs.


def decibel(power_ratio: Array) -> Array:
    """10 log10 of a ratio of powers."""
    return 10 * jnp.log10(power_ratio)


def from_decibel(db: Array) -> Array:
    """Ratio of powers of a level in dB."""
    return jnp.power(10.0, db / 10)


def dbm(power_w: Array) -> Array:
    """Watts as dB over one milliwatt."""
    return decibel(power_w / 1e-3)


def quality_of(bit_error_ratio: Array) -> Array:
    """Q = sqrt(2) erfcinv(2 BER), the distance of a level from the threshold in standard deviations of the noise."""
    return -ndtri(asarray(bit_error_ratio))


def bit_error_ratio_of(quality: Array) -> Array:
    """BER = erfc(Q / sqrt(2)) / 2."""
    return ndtr(-asarray(quality))


class PhotonicReceiver(Module):
    """Photodiode, amplifier and slicer of one wavelength: OMA = 2 Q i_n sqrt(w R) / (responsivity 10^(-penalty/10)).

    OMA is the optical modulation amplitude, light of a one less light of a zero; R the bits per second, w R the noise
    bandwidth. `quality` is the Q that is demanded: 7.03 is a bit error ratio of 1e-12 (`quality_of`,
    `bit_error_ratio_of`). It is a leaf in place of the BER because log Q is concave in log BER.

    Assumes: Gaussian noise of the amplifier, the same on both levels and white; no error correction.
    Source: [agrawal2010] section 4.6; `penalty_db` brings it to measured receivers [sci_rep_2017].
    """

    noise_a_per_sqrt_hz: Float[Array, "*b"] = quantity(
        high=1e-6, default=12e-12, doc="input-referred current noise", usual=(1.2e-11, 1.2e-11)
    )
    responsivity_a_per_w: Float[Array, "*b"] = quantity(low=1e-3, high=100.0, default=1.1)
    quality: Float[Array, "*b"] = quantity(low=0.1, high=40.0, default=7.0345, doc="Q demanded; 7.03 is BER 1e-12")
    penalty_db: Float[Array, "*b"] = quantity(high=30.0, default=6.0, doc="interference, jitter, offset")
    bandwidth_ratio: Float[Array, "*b"] = quantity(low=0.1, high=2.0, default=0.6, doc="noise bandwidth over bit rate")
    energy_j_per_bit: Float[Array, "*b"] = quantity(
        high=1e-9, default=0.0, doc="amplifier, slicer, clock recovery", usual=(3e-13, 3e-13)
    )

    def sensitivity_w(self, bits_per_s: Array) -> Array:
        """Least optical modulation amplitude at this bit rate, in watts."""
        noise_a = self.noise_a_per_sqrt_hz * jnp.sqrt(self.bandwidth_ratio * bits_per_s)
        return 2 * self.quality * noise_a / self.responsivity_a_per_w * from_decibel(self.penalty_db)


# Optical circuit switch: how fast it points circuits at partners, how many it joins, what a port of it costs.


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


# A multiplexed photonic port: waveguides x wavelengths x bits per second, and what that costs in light.


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
