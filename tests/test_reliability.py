"""Failures: the closed form, its optimum and its derivatives, a simulation beside it, and the metrics of a scenario."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import training

from _lib.failing_jobs import Kind, simulate_job
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.jaxprs.evaluator import interpreted
from codesign.model.hardware import CachedPool, SharedPool, TieredMemory
from codesign.model.metrics import evaluate
from codesign.model.reliability import Failure, Reliability, best_interval_s, growth, least_growth, young_interval_s

DEVICES, WRITTEN = 1e4, 120.0


def law(**changes) -> Reliability:
    failures = {"device": Failure(5e4), "host": Failure(6e4, devices_each=8.0), "silent": Failure(1e6, lost_s=3600.0)}
    return Reliability(**({"failures": failures, "straggling": 0.01} | changes))


def stretched(law: Reliability, devices=DEVICES, written=WRITTEN):
    return law.stretched(jnp.asarray(devices), jnp.asarray(written))


@pytest.mark.parametrize("a", [1e-12, 1e-6, 1e-3, 0.1, 1.0, 10.0])
def test_the_best_interval_is_where_nothing_is_gained(a):
    """Of a rate of 1: the growth there is `least_growth`, and a per cent to either side is no better."""
    best = float(best_interval_s(1.0, a))

    def at(w):
        return float(growth(w + a) * (w + a) / w)

    assert at(best) == pytest.approx(float(least_growth(a)), rel=1e-9)
    assert at(best) <= min(at(0.99 * best), at(1.01 * best)) * (1 + 1e-12)
    y = float(least_growth(a))
    assert 1 / y + math.log(y) == pytest.approx(1 + a, rel=1e-12)
    if a < 1e-5:  # Young's is first order
        assert best == pytest.approx(float(young_interval_s(1.0, a)), rel=3e-3)


@pytest.mark.parametrize("operation", [growth, least_growth])
def test_slopes_are_differences(operation):
    for x in (1e-4, 0.03, 1.7):
        step = 1e-5 * x
        difference = (float(operation(x + step)) - float(operation(x - step))) / (2 * step)
        assert float(jax.grad(operation)(x)) == pytest.approx(difference, rel=1e-6)


PATHS = ("failures.device.mtbf_hours", "failures.silent.lost_s", "restart_s", "repair_s", "straggling")


@pytest.mark.parametrize("changes", [{}, {"interval_s": 900.0}, {"spare_ratio": 0.0}])
def test_slopes_of_the_stretch_are_differences_and_batches_are_the_same(changes):
    one = law(**changes)
    at = jnp.asarray([5e4, 3600.0, 700.0, 8e4, 0.02, DEVICES, WRITTEN])

    def time(numbers):
        *leaves, devices, written = numbers
        return replace(one, dict(zip(PATHS, leaves, strict=True))).stretched(devices, written)

    slopes = interpreted(jax.grad(time), always=True)(at)
    for index, slope in enumerate(slopes):
        step = 1e-6 * float(at[index])
        sides = [float(time(at.at[index].add(way * step))) for way in (1, -1)]
        assert float(slope) == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=2e-5, abs=1e-12)
    batch = interpreted(jax.vmap(time), always=True)(jnp.stack([at, 1.1 * at]))
    assert np.allclose(batch, [float(time(at)), float(time(1.1 * at))], rtol=1e-12)
    assert float(jax.jit(time)(at)) == pytest.approx(float(time(at)), rel=1e-12)


def test_log_convex_over_rates_times_and_devices():
    """Of random pairs, the middle is below the mean of the ends."""
    rng = np.random.default_rng(0)

    def log_time(x):
        rate, restart, written, interval = (10**number for number in x)
        one = Reliability({"device": Failure(1 / rate)}, restart, interval_s=interval)
        best = Reliability({"device": Failure(1 / rate)}, restart)
        return np.array([math.log(float(law.stretched(jnp.asarray(1e4), jnp.asarray(written)))) for law in (one, best)])

    for _ in range(8):
        a, b = (rng.uniform([-5.5, 0.5, 0, 2], [-4, 3, 2.5, 3.5]) for _ in range(2))
        assert np.all(log_time((a + b) / 2) <= (log_time(a) + log_time(b)) / 2 + 1e-12)


def test_the_simulation_agrees():
    """A few jobs, with errors found late and a given interval; the experiment has two hundred."""
    for seed, interval in ((1, 3000.0), (2, 900.0)):
        kinds = [Kind(1e-5), Kind(2e-6, lost_s=2000.0)]
        result = simulate_job(kinds, 2e8, interval, 100.0, 400.0, seed)
        failures = {"a": Failure(1e5 / 3600), "b": Failure(5e5 / 3600, lost_s=2000.0)}
        closed = Reliability(failures, 300.0, interval_s=interval)
        goodput = 1 / float(stretched(closed, 1.0, 100.0))
        assert result.goodput == pytest.approx(goodput, rel=5e-3)
        assert result.failures > 2000


def test_without_spares_repairs_are_waited_for():
    kinds = [Kind(1e-5, replaced=True)]
    some, none = (simulate_job(kinds, 3e7, 3000.0, 100.0, 400.0, 0, spares, repair_s=2e4) for spares in (10.0, 0.0))
    assert some.waited_s == 0.0
    assert none.waited_s == pytest.approx(none.failures * 2e4, rel=1e-9)
    failing = {"a": Failure(1e5 / 3600)}
    waiting = Reliability(failing, 300.0, spare_ratio=0.0, repair_s=2e4, interval_s=3000.0)
    assert none.goodput == pytest.approx(1 / float(stretched(waiting, 1.0, 100.0)), rel=0.03)


@pytest.mark.slow
def test_a_scenario_without_failures_is_as_it_was_and_one_with_them_costs_more():
    plain = training()
    failing = dataclasses.replace(plain, cluster=dataclasses.replace(plain.cluster, reliability=law()))
    before, after = evaluate(plain), evaluate(failing)
    assert "goodput" not in before.flat()
    assert float(after.time_s) == float(before.time_s)
    assert 0.5 < float(after.get("goodput")) < 1
    assert float(after.capex_usd) == pytest.approx(1.02 * float(before.capex_usd), rel=1e-12)
    assert float(after.get("usage.spares")) > 0


def test_checkpoints_may_go_to_a_pool_that_outlives_the_device():
    """Each device writes its share through its port: the slower of port and memory; some are shared."""
    kept = law(store="pool")
    cached, shared = CachedPool.example(), SharedPool.example()
    assert float(cached.beyond_s_per_byte()) == pytest.approx(1 / 3e11)
    beta, sharers = float(shared.port.beta_s_per_byte), float(shared.sharers)
    by_hand = max(sharers / float(shared.tier.bandwidth()), beta, sharers * beta / float(shared.ports))
    assert float(shared.beyond_s_per_byte()) == pytest.approx(by_hand)
    saved, devices = jnp.asarray(1e12), jnp.asarray(64.0)
    result = kept.written_s(saved, devices, jnp.asarray(5e10), jnp.asarray(5e10), cached.beyond_s_per_byte())
    assert float(result) == pytest.approx(1e12 / 64 / 3e11)
    tiers = TieredMemory.example()
    assert float(tiers.beyond_s_per_byte()) > 0
    plain = training()
    with pytest.raises(ConfigError, match=r"store = 'pool' needs memory that outlives a device"):
        evaluate(dataclasses.replace(plain, cluster=dataclasses.replace(plain.cluster, reliability=kept)))


def test_what_cannot_be_is_refused_in_one_line():
    with pytest.raises(ConfigError, match="store = 'tape' is not one of storage, host"):
        law(store="tape")
    with pytest.raises(ConfigError, match="failures is empty"):
        Reliability({})
