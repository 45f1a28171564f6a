"""Goodput under an agreement and what no scheduler beats: derivatives, refusals, the simulation beside them."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_open_loop import ASK, STEP, traced

from codesign.errors import ConfigError
from codesign.workloads.goodput import Agreement, check_kept, goodput, replicas_by_hour, shares_at
from codesign.workloads.least_step import least_times, most_requests_s
from codesign.workloads.open_loop import Demand, RooflineTimes

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import serving_bounds

LIMITS = {"ttft_s": 1.0, "tpot_s": 0.05}


def rate(step, limits):
    return goodput(RooflineTimes(**step), Demand(**ASK), Agreement(**limits)).rate


along = jax.jit(lambda at, towards: jax.jvp(rate, at, towards))  # one program for values and slopes


@pytest.mark.parametrize("limits", [{"ttft_s": 0.4, "tpot_s": 1.0}, {"ttft_s": 10.0, "tpot_s": 0.03}])
def test_goodput_ends_where_a_limit_is_met_and_its_slopes_are_differences(limits):
    """Along a direction in which times of steps and limits move together, through the balance of decodes and steps."""
    at = (traced(STEP), traced(limits))
    towards = jax.tree.map(lambda value, share: share * value, at, (
        dict(zip(STEP, (0.3, 1.0, -0.7, 0.5, 0.9), strict=True)), {"ttft_s": 0.4, "tpot_s": -0.2}
    ))  # fmt: skip
    found, slope = along(at, towards)
    used = shares_at(RooflineTimes(**STEP), Demand(**ASK), Agreement(**limits), found)
    assert max(map(float, used.values())) == pytest.approx(1, abs=1e-6)
    ends = [
        float(along(jax.tree.map(lambda value, way, d=d: value + d * way, at, towards), towards)[0])
        for d in (-1e-5, 1e-5)
    ]
    assert float(slope) == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-5)


def test_an_agreement_below_a_step_is_refused_in_a_line():
    for limits, name in (({"tpot_s": 0.005}, "tpot_s"), ({"ttft_s": 0.01}, "ttft_s")):
        with pytest.raises(ConfigError, match=name) as error:
            check_kept(RooflineTimes(**STEP), Demand(**ASK), Agreement(**(LIMITS | limits)))
        assert "% below" in str(error.value)
        assert "\n" not in str(error.value)
    check_kept(RooflineTimes(**STEP), Demand(**ASK), Agreement(**LIMITS))
    with pytest.raises(ConfigError, match=r"0\.5, 0\.9, 0\.99"):
        Agreement(1.0, 1.0, share=0.98)


def test_the_simulation_beats_no_bound():
    found = serving_bounds.compared(24, 7, requests=600)
    assert len(found) == 24
    assert (found[["step_s", "tpot_s", "ttft_s", "rate"]] <= 1 + 1e-9).all().all(), found.max()
    assert found["step_s"].median() > 0.5  # and says something


def test_bounds_have_slopes_and_say_where_arithmetic_ends():
    demand = Demand(**ASK)
    by_step = jax.grad(lambda step: most_requests_s(RooflineTimes(**step), demand, jnp.asarray(64.0)))(traced(STEP))
    ends = [
        float(most_requests_s(RooflineTimes(**(STEP | {"token_s": 4e-5 * (1 + d)})), demand, jnp.asarray(64.0)))
        for d in (-1e-5, 1e-5)
    ]
    assert float(by_step["token_s"]) == pytest.approx((ends[1] - ends[0]) / (2e-5 * 4e-5), rel=1e-5)
    assert not np.isfinite(float(least_times(RooflineTimes(**STEP), Demand(**(ASK | {"rate": 60.0}))).tpot_s))


def test_replicas_follow_the_day():
    found = replicas_by_hour([1.0] * 12 + [4.0] * 12, 2.0)
    assert found.replicas.tolist() == [1.0] * 12 + [2.0] * 12
    assert found.saved == pytest.approx(0.25)
    for rates, words in (([1.0, float("nan")], "hour 1"), ([], "no hours")):
        with pytest.raises(ConfigError, match=words):
            replicas_by_hour(rates, 1.0)
    with pytest.raises(ConfigError, match="serves nobody"):
        replicas_by_hour([1.0], 0.0)
