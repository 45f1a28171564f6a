"""Carbon: parts by hand, hours of a grid, and a job that waits for them."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.model.carbon import Carbon, PowerGrid
from codesign.model.metrics import evaluate

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import curvature

NEAR = "cluster.accelerator.hbm.tiers.hbm.capacity_bytes"
HOURS = {f"h{hour:02d}": 1 + 0.5 * np.cos(2 * np.pi * hour / 24) for hour in range(24)}


@pytest.mark.parametrize("hours", [1.0, 6.0, 7.5, 24.0])
def test_the_lowest_hours_are_taken(hours):
    lowest = np.sort(list(HOURS.values()))
    whole = int(hours)
    wanted = (lowest[:whole].sum() + (hours - whole) * (lowest[whole] if whole < 24 else 0)) / hours
    grid = PowerGrid(400.0, HOURS, hours)
    assert float(grid.kg_per_j()) == pytest.approx(0.4 / 3.6e6 * wanted, rel=1e-12)
    assert float(grid.waits()) == 24 / hours


def test_slopes_in_the_hours_a_day():
    def intensity(hours):
        return PowerGrid(400.0, HOURS, hours).kg_per_j()

    step = 1e-4
    difference = (float(intensity(6.4 + step)) - float(intensity(6.4 - step))) / (2 * step)
    assert float(jax.grad(intensity)(jnp.asarray(6.4))) == pytest.approx(difference, rel=1e-6)


def test_parts_by_hand():
    made = Carbon.example().made_kg(jnp.asarray(80e9), jnp.asarray(256e9))
    assert {name: float(part) for name, part in made.items()} == pytest.approx(
        {"die": 8 * 2.5 / 0.875, "hbm": 16.0, "ddr": 16.64, "other": 0.0}
    )


@pytest.mark.slow
def test_all_that_is_installed_is_made():
    """Tiers and shared pools with what is reserved in them, beside the same devices with HBM alone."""
    words = ("model=llama31_8b", "workload=static_batch", "framework=none", "plan.tp=1", "cluster.device_count=8")
    made = {}
    for memory in ((), ("memory=hbm_cxl_ssd",), ("memory=photonic_pool_shared",)):
        one = scenario_from_config(*words, *memory, "carbon=usa")
        made[memory] = float(evaluate(one).get("carbon_made_kg")) / 8
        each = float(one.cluster.carbon.hbm_kg_per_byte)
    alone = float(scenario_from_config(*words).cluster.accelerator.hbm.capacity_bytes)
    tiers = (85.899e9 + 512e9 + 4e12 - alone) * each
    assert made["memory=hbm_cxl_ssd",] - made[()] == pytest.approx(tiers, rel=1e-4)
    assert made["memory=photonic_pool_shared",] - made[()] == pytest.approx((2e12 - alone) * each, rel=1e-4)


@pytest.mark.slow
def test_carbon_of_tiers_is_proven():
    """Two pools with tiers whose capacities vary: the sum of what is made is a posynomial."""
    _, judgement, _ = curvature.walked([
        "framework=none", "calibration=h100_sxm_roofline", "workload=disaggregated", "prefill=same", "space=fixed",
        "model=llama31_70b", "memory=hbm_and_photonic_pool", "carbon=usa", "reliability=llama3", "plan.tp=8",
        "plan.prefill_tp=8", "cluster.device_count=16", "objective.minimise=carbon_kg",
        "space.plan={micro_batch: [16, 32], prefill_devices: [16, 32]}", "+objective.floors={availability: 0.5}",
        "+space.hardware.near={_target_: codesign.study.design_space.Continuous, path: " + NEAR + ", tied: ["
        + NEAR.replace("cluster.", "cluster.prefill.cluster.", 1) + "], low: 4e10, high: 2e11}",
    ])  # fmt: skip
    assert judgement.unproven == {}


@pytest.mark.slow
def test_a_run_emits_and_waiting_trades_making_against_running():
    """Fewer hours: less for energy, more for what stands idle, later."""
    start = ("workload=training_run", "plan=megatron_3d", "calibration=h100_sxm_roofline")
    plain = evaluate(scenario_from_config(*start))
    assert "carbon_kg" not in plain.flat()
    scenario = scenario_from_config(*start, "carbon=sunny")
    sunny = [evaluate(replace(scenario, {"cluster.carbon.grid.hours_a_day": hours})) for hours in (24.0, 8.0)]
    assert float(sunny[0].time_s) == float(plain.time_s)
    every, some = ({key: float(value) for key, value in one.flat().items()} for one in sunny)
    assert some["carbon_kg.operational"] < 0.8 * every["carbon_kg.operational"]
    assert some["carbon_kg.embodied"] == pytest.approx(3 * every["carbon_kg.embodied"])
    assert some["time_to_train_s"] == pytest.approx(3 * every["time_to_train_s"])
    assert some["usd_to_train"] > every["usd_to_train"]
    assert every["carbon_kg.operational"] == pytest.approx(every["energy_j"] / 3.6e6 * 0.38, rel=1e-3)


def test_hours_are_all_or_none():
    with pytest.raises(ConfigError, match="by_hour must have the keys h00 to h23, or none"):
        PowerGrid(400.0, {"h00": 1.0})
