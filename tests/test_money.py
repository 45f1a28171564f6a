"""Purchase price and power: by hand, against public figures, and what an optimizer may rely on."""

import jax
import numpy as np
import pytest
from builders import cluster, training

from codesign.config import scenario_from_config
from codesign.core.fields import get_path, replace
from codesign.evidence.calibration.board_power import PLATEAU, Loads, fit_loads, fit_power
from codesign.model.metrics import evaluate
from codesign.model.metrics.money import device_capex_usd, device_idle_w, device_provisioned_w, summed

PUBLIC_USD_PER_GPU = {1024: 49248, 512: 46883, 32768: 51613}  # [cluster_cost_2024], InfiniBand included
NODE_W = (8.4e3, 10.2e3)  # observed at most in training, and rated [latif2025]


@pytest.fixture(scope="module")
def h100():
    return scenario_from_config("accelerator=h100_sxm", "scale_out=infiniband_ndr", "cluster.device_count=1024")


def test_parts_by_hand():
    parts = {name: float(value) for name, value in device_capex_usd(cluster()).items()}
    assert parts == pytest.approx(
        {"accelerator": 29e3, "hbm": 960.0, "host": 6e3, "ddr": 2048.0, "scale_up": 1800.0, "scale_out": 4000.0}
    )
    power = {name: float(value) for name, value in device_provisioned_w(cluster()).items()}
    assert power == pytest.approx(
        {"accelerator": 560.0, "hbm": 134.0, "host": 150.0, "scale_up": 45.0, "scale_out": 0.0}
    )
    assert float(device_idle_w(cluster())) == pytest.approx(100 + 150 + 45)


def test_cluster_totals_by_hand():
    base = training()
    scenario = replace(base, {"cluster.facility.usd_per_w": 2.0, "cluster.facility.pue": 1.5})
    metrics, per_device = evaluate(scenario), 560 + 134 + 150 + 45
    provisioned = 1024 * 1.5 * per_device
    assert float(metrics.provisioned_power_w) == pytest.approx(provisioned)
    assert float(metrics.capex_usd) == pytest.approx(1024 * 43808 + 2 * provisioned)
    life, rate = 4 * 365.25 * 86400, 0.08 / 3.6e6
    energy = float(metrics.energy_j)
    usd = float(metrics.capex_usd) * float(metrics.time_s) / life + energy * rate
    assert float(metrics.usd_per_million_tokens) == pytest.approx(1e6 * usd / (1024 * 2048))
    idle = 1024 * 1.5 * 295 * float(metrics.time_s)
    assert energy > idle


@pytest.mark.parametrize(("devices", "tolerance"), [(1024, 0.002), (512, 0.06), (32768, 0.06)])
def test_h100_cluster_costs_what_the_public_spreadsheet_says(h100, devices, tolerance):
    """1,024 GPUs fixed the constants; 512 (one switch stage) and 32,768 (three) did not: +5.0 % and -4.6 %."""
    ours = float(summed(device_capex_usd(h100.cluster)))
    assert ours == pytest.approx(PUBLIC_USD_PER_GPU[devices], rel=tolerance)


def test_h100_node_power(h100):
    """Eight GPUs with host and both networks lie between what a node draws and what it is rated at."""
    node = 8 * float(summed(device_provisioned_w(h100.cluster)))
    assert NODE_W[0] < node < NODE_W[1]


@pytest.mark.slow
def test_training_draws_less_than_provisioned(h100):
    """A busy cluster stays under its provisioned power, and above the three quarters of a node's rating observed."""
    metrics = evaluate(h100)
    assert 0.7 < float(metrics.power_w) / float(metrics.provisioned_power_w) < 1.0


def test_nvl72_rack_power():
    scenario = scenario_from_config("accelerator=gb200")
    rack = 72 * float(summed(device_provisioned_w(scenario.cluster)))
    assert rack == pytest.approx(120e3, rel=0.05)


@pytest.mark.parametrize(
    "path",
    [
        "cluster.accelerator.hbm.capacity_bytes",
        "cluster.network.scale_up.fabric.bandwidth_bytes_per_s",
        "cluster.network.scale_out.fabric.bandwidth_bytes_per_s",
        "cluster.host.memory.capacity_bytes",
    ],
)
def test_more_of_a_part_costs_more(h100, path):
    """The budget pushes back on every hardware variable; the gradient is the slope."""

    def price(value):
        return summed(device_capex_usd(replace(h100, {path: value}).cluster))

    value = float(get_path(h100, path))
    slope = float(jax.grad(price)(value))
    assert slope > 0
    assert slope == pytest.approx(float(price(1.1 * value) - price(value)) / (0.1 * value), rel=1e-6)


def test_power_fit_recovers_what_made_the_data():
    rng = np.random.default_rng(0)
    formats = np.where(rng.random(400) < 0.5, "bf16", "fp8")
    flops, nbytes = rng.uniform(0, 6e14, 400), rng.uniform(0, 3e12, 400)
    per_flop = np.where(formats == "bf16", 0.3e-12, 0.1e-12)
    power = 250 + per_flop * flops + 50e-12 * nbytes
    power[::40] *= 3  # a few broken sensors
    fit = fit_loads(Loads(formats, flops, nbytes, power), {"bf16": 989e12, "fp8": 1979e12}, 700.0)
    assert fit["idle_w"] == pytest.approx(250, rel=0.03)
    assert fit["energy_j_per_byte"] == pytest.approx(50e-12, rel=0.05)
    assert fit["energy_j_per_flop"]["bf16"] == pytest.approx(0.3e-12, rel=0.05)
    assert fit["energy_j_per_flop"]["fp8"] == pytest.approx(0.1e-12, rel=0.1)
    assert fit["median_error"] < 0.01


def test_power_fit_never_exceeds_the_board_limit():
    """Where the data are flat at the limit, a GEMM at its plateau is charged the limit and no more."""
    flops = np.linspace(1e13, 9e14, 50)
    power = np.minimum(200 + 2e-12 * flops, 700)
    fit = fit_loads(Loads(np.full(50, "bf16"), flops, np.zeros(50), power), {"bf16": 989e12}, 700.0)
    assert fit["idle_w"] + fit["energy_j_per_flop"]["bf16"] * PLATEAU * 989e12 <= 700 * (1 + 1e-9)


def test_committed_power_constants_are_those_of_the_fit(reference_dir, h100):
    fits = fit_power(reference_dir / "measured", [])
    for gpu, device in (("H100-SXM", h100), ("B200", scenario_from_config("accelerator=b200"))):
        ours = device.cluster.accelerator
        assert float(ours.idle_w) == pytest.approx(fits[gpu]["idle_w"], rel=0.01)
        assert float(ours.hbm.energy()) == pytest.approx(fits[gpu]["energy_j_per_byte"], rel=0.01)
        for number_format, value in fits[gpu]["energy_j_per_flop"].items():
            assert float(ours.energy_j_per_flop[number_format]) == pytest.approx(value, rel=0.01)
    assert fits["H100-SXM"]["median_error"] < 0.10
    assert fits["B200"]["median_error"] < 0.23
