"""Photonic ports: the worked link budget, monotone behaviour, slopes, and the limits where they bind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contracts.menus import built
from contracts.probing import all_finite

from codesign.core.fields import get_path, replace, walk
from codesign.model.hardware import (
    ElectroAbsorptionModulator,
    MachZehnderModulator,
    PhotonicLink,
    PhotonicReceiver,
    RingModulator,
)
from codesign.model.hardware.photonics import bit_error_ratio_of, dbm, from_decibel, quality_of

PORT = built("fabric", "lightpath_optics").port
CONTINUOUS = [path for path, _, value in walk(PORT) if float(value) > 0]


@jax.jit
def energy_and_light(port):
    """pJ per bit, watts of light per wavelength, standing watts."""
    return jnp.stack([port.energy_j_per_bit() * 1e12, port.laser_w(), port.static_power_w()])


class TestBudget:
    def test_quality_and_bit_error_ratio_undo_each_other(self):
        for ratio, quality in ((1e-9, 5.998), (1e-12, 7.034), (1e-15, 7.941)):
            assert float(quality_of(jnp.asarray(ratio))) == pytest.approx(quality, abs=5e-4)
            assert float(bit_error_ratio_of(quality_of(jnp.asarray(ratio)))) == pytest.approx(ratio, rel=1e-6)

    def test_noise_and_errors_by_simulation(self):
        """Bits through a Gaussian channel at the modulation amplitude of Q = 2 err as often as the formula says."""
        receiver = PhotonicReceiver(quality=2.0, penalty_db=0.0)
        random, bits = np.random.default_rng(0), 400_000
        noise = 12e-12 * np.sqrt(0.6 * 32e9)
        level = 1.1 * float(receiver.sensitivity_w(jnp.asarray(32e9)))
        sent = random.integers(0, 2, bits)
        heard = sent * level + random.normal(0, noise, bits) > level / 2
        assert (heard != sent).mean() == pytest.approx(float(bit_error_ratio_of(jnp.asarray(2.0))), rel=0.03)

    def test_worked_case_by_hand(self):
        amplitude = 2 * 7.0345 * 12e-12 * np.sqrt(0.6 * 32e9) / 1.1 * 10**0.6
        loss = 8 * 0.3 + 20 * 0.02 + 6 * 0.3 + 4 + 1 + 32 * 0.01 + 3 + 1 + 3
        loss += 4.3429 * np.pi**2 / 3 * (1.48 * 32 / 200) ** 2
        assert float(PORT.loss_db()) == pytest.approx(loss, rel=1e-5)
        assert float(PORT.laser_w()) == pytest.approx(amplitude * 10 ** (loss / 10), rel=1e-4)
        assert float(PORT.laser_j_per_bit()) == pytest.approx(amplitude * 10 ** (loss / 10) / 0.15 / 32e9, rel=1e-4)

    def test_crosstalk_is_that_of_lorentzian_neighbours(self):
        """Summed over 1,000 neighbours on both sides, as a power penalty."""
        half, places = 1.48 * 32e9 / 2, np.arange(1, 1001) * 100e9
        leaked = 2 * (1 / (1 + (places / half) ** 2)).sum()
        assert float(PORT.crosstalk_db()) == pytest.approx(10 * np.log10(1 + leaked), rel=0.15)

    def test_bandwidth_density_and_powers(self):
        assert float(PORT.bandwidth_bytes_per_s()) == pytest.approx(320e9)
        assert float(PORT.density_bits_per_s_per_m()) * 1e-15 == pytest.approx(4.03, abs=0.005)  # Tb/s/mm
        per_bit = float(PORT.static_power_w()) / (5 * 16 * 32e9) + float(PORT.moving_j_per_bit())
        assert per_bit == pytest.approx(float(PORT.energy_j_per_bit()), rel=1e-6)

    @pytest.mark.parametrize("modulator", [RingModulator(), ElectroAbsorptionModulator(), MachZehnderModulator()])
    def test_every_modulator_makes_a_link_within_the_published_energies(self, modulator):
        port = replace(PORT, {})
        values = {name: getattr(port, name) for name in port.__dataclass_fields__} | {"modulator": modulator}
        energy = float(PhotonicLink(**values).energy_j_per_bit()) * 1e12
        assert 0.75 < energy < 3.1  # co-packaged VCSEL and electro-absorption links


OPEN = {"modulator.hz_per_w": (1e11, 1e15), "modulator.free_spectral_range_hz": (1e11, 1e13)}
MORE_COSTS_MORE = [
    "path.stages", "path.stage_db", "path.crossings", "path.crossing_db", "path.length_m", "path.waveguide_db_per_m",
    "path.couplers", "path.coupler_db", "path.margin_db", "modulator.insertion_db", "modulator.through_db",
    "receiver.quality", "receiver.penalty_db", "receiver.noise_a_per_sqrt_hz", "wavelengths", "bits_per_s",
]  # fmt: skip


class TestShape:
    @pytest.mark.parametrize("path", MORE_COSTS_MORE)
    def test_light_rises_with_loss_rate_and_quality(self, path):
        start = get_path(PORT, path)
        light = jax.vmap(lambda f: energy_and_light(replace(PORT, {path: start * f}))[1])(jnp.linspace(0.5, 2.0, 16))
        assert (jnp.diff(light) > 0).all()

    def test_fewer_errors_need_more_light(self):
        ratios = jnp.asarray([1e-6, 1e-9, 1e-12, 1e-15, 1e-18])
        light = [energy_and_light(replace(PORT, {"receiver.quality": quality_of(r)}))[1] for r in ratios]
        assert (np.diff(light) > 0).all()

    @pytest.mark.parametrize("path", ["bits_per_s", "wavelengths", "path.stages", "receiver.quality", "spacing_hz"])
    def test_slopes_agree_with_finite_differences(self, path):
        start = get_path(PORT, path)

        def by(factor):
            return jnp.log(energy_and_light(replace(PORT, {path: start * factor})))

        numeric = (by(1 + 1e-5) - by(1 - 1e-5)) / 2e-5
        np.testing.assert_allclose(jax.jacfwd(by)(1.0), numeric, rtol=1e-6, atol=1e-9)

    def test_finite_with_finite_slopes_over_the_legal_box(self):
        ranges = {path: (meta["low"], meta["high"]) for path, meta, _ in walk(PORT)}
        assert all(np.isfinite(ranges[path]).all() for path in CONTINUOUS if path not in OPEN)
        random = np.random.default_rng(0)

        def at(values):
            return energy_and_light(replace(PORT, values))

        def both(values):
            return jax.jacrev(at)(values), at(values)

        corners = {}
        for path in CONTINUOUS:
            low, high = ranges[path] if path not in OPEN else OPEN[path]
            low = max(low, high * 1e-6)
            corners[path] = jnp.asarray(low * (high / low) ** random.choice([0.0, 1.0, 0.3, 0.6], 64))
        slopes, values = jax.jit(jax.vmap(both))(corners)
        assert all_finite(values)
        assert all_finite(slopes)


class TestLimits:
    def test_each_binds_where_it_should(self):
        free = {name: float(share) for name, share in PORT.limits().items()}
        assert free["band"] == pytest.approx(16 * 0.1 / 3.2)
        assert max(free.values()) < 1
        for path, factor, limit in (
            ("wavelengths", 2.01, "band"), ("spacing_hz", 2.01, "band"), ("waveguides", 40.0, "edge"),
            ("bits_per_s", 2.0, "waveguide_power"), ("path.stages", 1.5, "waveguide_power"),
        ):  # fmt: skip
            shares = replace(PORT, {path: get_path(PORT, path) * factor}).limits()
            assert float(shares[limit]) > 1, path

    def test_descent_stops_at_the_free_spectral_range(self):
        """More wavelengths pay until the band is full: a penalised descent in log wavelengths ends at 32."""

        def loss(log_count):
            port = replace(
                PORT, {"wavelengths": jnp.exp(log_count), "waveguide_cap_w": 10.0, "modulator.through_db": 0.0}
            )
            full = jnp.maximum(jnp.log(port.limits()["band"]), 0.0)
            return -jnp.log(port.bandwidth_bytes_per_s()) + 100 * full**2

        slope, at = jax.jit(jax.grad(loss)), jnp.log(16.0)
        for _ in range(400):
            at = at - 0.004 * slope(at)
        assert float(jnp.exp(at)) == pytest.approx(32, rel=0.01)


def test_decibels():
    assert float(dbm(jnp.asarray(1e-3))) == 0
    assert float(from_decibel(jnp.asarray(3.0103))) == pytest.approx(2, rel=1e-5)


def test_the_document_rate_needs_seven_and_a_half_buses():
    demonstrated = replace(PORT, {"waveguides": 1.0, "bits_per_s": 20e9})
    assert float(demonstrated.bandwidth_bytes_per_s()) == pytest.approx(40e9)
    assert 300e9 / float(demonstrated.bandwidth_bytes_per_s()) == pytest.approx(7.5)
