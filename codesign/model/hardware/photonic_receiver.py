"""The receiving end of an optical channel: how much light a bit needs."""

import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.jax_typed import asarray
from ...core.module import Module


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
