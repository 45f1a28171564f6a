"""Carbon: parts by hand, hours of a grid, and a job that waits for them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.config import scenario_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.model.carbon import Carbon, PowerGrid
from codesign.model.metrics import evaluate

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
