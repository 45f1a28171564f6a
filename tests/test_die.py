"""The die as a design: the nominal one changes nothing, each law by hand, slopes, log-convexity, what bounds it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import training

from codesign.core.errors import ConfigError
from codesign.core.fields import replace, walk
from codesign.model.hardware import Die, Shoreline
from codesign.model.metrics import device_capex_usd, device_provisioned_w, evaluate

H100 = dict(
    engines_mm2=400.0, clock_hz=1.8e9, nominal_engines_mm2=400.0, nominal_clock_hz=1.8e9, other_mm2=414.0,
    package_w=700.0, voltage_exponent=0.5, engine_power_share=0.6, defects_per_mm2=0.001, clustering=3.0,
)  # fmt: skip
DIE = "cluster.accelerator.die"


def with_die(**changes):
    scenario = training()
    made = Die(**(H100 | changes))
    return eqx.tree_at(lambda s: s.cluster.accelerator.die, scenario, made, is_leaf=lambda leaf: leaf is None)


@pytest.mark.slow
def test_the_nominal_die_changes_nothing():
    plain, nominal = evaluate(training()).flat(), evaluate(with_die()).flat()
    for name, value in plain.items():
        assert float(nominal[name]) == pytest.approx(float(value), rel=1e-12), name
    assert set(nominal) - set(plain) == {"usage.die.area", "usage.die.package_power"}


def test_each_law_by_hand():
    """Twice the engines, half of the clock: the same peak at half the energy an operation."""
    die = Die(**(H100 | {"engines_mm2": 800.0, "clock_hz": 0.9e9}))
    assert float(die.peak_ratio()) == pytest.approx(1.0)
    assert float(die.energy_ratio()) == pytest.approx(0.5)
    assert float(die.power_ratio()) == pytest.approx(0.4 + 0.6 * 0.5)
    good = [area * (1 + area * 0.001 / 3) ** 3 for area in (1214.0, 814.0)]
    assert float(die.price_ratio()) == pytest.approx(good[0] / good[1])
    assert float(die.limits(jnp.asarray(350.0))["area"]) == pytest.approx(1214 / 858)
    assert float(die.limits(jnp.asarray(350.0))["package_power"]) == pytest.approx(0.5)


def test_dies_of_a_package_by_hand():
    """Engines are shared, the other circuits and the edge come with each die, and joining loses packages."""
    die = Die(**(H100 | {"engines_mm2": 800.0, "dies": 2.0, "joining_loss": 0.05}))
    good = 814 * (1 + 814 * 0.001 / 3) ** 3
    assert float(die.good_mm2()) == pytest.approx(2 * good * 1.05)
    assert float(die.price_ratio()) == pytest.approx(2 * 1.05)
    assert float(die.limits(jnp.asarray(350.0))["area"]) == pytest.approx(814 / 858)
    assert float(die.peak_ratio()) == pytest.approx(2.0)
    edge = Shoreline(72.0, {"hbm": 1e11})
    alone, both = (float(edge.used_share({"hbm": jnp.asarray(3.6e12)}, dies)) for dies in (1.0, 2.0))
    assert (alone, both) == pytest.approx((0.5, 0.25))


def test_area_and_clock_reach_time_energy_power_and_price():
    slow, nominal = with_die(clock_hz=0.9e9), with_die()
    assert float(evaluate(slow).time_s) > 1.3 * float(evaluate(nominal).time_s)
    power = [float(device_provisioned_w(s.cluster)["accelerator"]) for s in (slow, nominal)]
    assert power[0] / power[1] == pytest.approx(0.4 + 0.6 * 0.25)
    small = with_die(engines_mm2=200.0)
    price = [float(device_capex_usd(s.cluster)["accelerator"]) for s in (small, nominal)]
    assert price[0] < 0.75 * price[1]


def test_slopes_are_those_of_finite_differences():
    scenario = with_die(engines_mm2=350.0, clock_hz=1.5e9, dies=1.3, joining_loss=0.02)
    die = scenario.cluster.accelerator.die

    def value(die):
        return jnp.log(die.price_ratio()) + jnp.log(die.power_ratio()) + die.peak_ratio() * die.energy_ratio()

    for path, _, slope in walk(jax.grad(value)(die)):
        at = float(getattr(die, path))
        up, down = (value(replace(die, {path: at * (1 + step)}, slack=1e-5)) for step in (1e-6, -1e-6))
        assert float(slope) == pytest.approx(float(up - down) / (2e-6 * at), rel=1e-5, abs=1e-12), path


def test_every_quantity_is_log_convex_in_area_clock_and_dies():
    rng = np.random.default_rng(0)
    ends = np.log([[50.0, 0.9e9, 1.0], [800.0, 2.2e9, 8.0]])

    def logs(at):
        area, clock, dies = np.exp(at)
        die = Die(**(H100 | {"engines_mm2": area, "clock_hz": clock, "dies": dies, "joining_loss": 0.02}))
        parts = [die.power_ratio(), die.price_ratio(), die.energy_ratio(), 1 / die.peak_ratio()]
        return np.log([float(part) for part in [*parts, *die.limits(die.power_ratio() * 600).values()]])

    for _ in range(50):
        a, b = rng.uniform(*ends, size=(2, 3))
        assert (logs((a + b) / 2) <= (logs(a) + logs(b)) / 2 + 1e-12).all()


def test_a_die_that_cannot_be_made_is_refused():
    from codesign.config import check_memory

    with pytest.raises(ConfigError, match=r"of cluster.accelerator.die, area, is used"):
        check_memory(with_die(engines_mm2=800.0))


@pytest.mark.slow
def test_a_plan_may_buy_its_own_number_of_devices():
    every, plan = evaluate(training(512.0)).flat(), training(1024.0)
    some = evaluate(eqx.tree_at(lambda s: s.plan.device_count, plan, jnp.asarray(512.0), is_leaf=lambda x: x is None))
    for name, value in every.items():
        assert float(some.flat()[name]) == pytest.approx(float(value), rel=1e-12), name
