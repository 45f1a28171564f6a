"""Goodput under an SLO and what no scheduler beats: derivatives, refusals, the simulation beside them."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_open_loop import ASK, STEP, traced

from codesign.core.errors import ConfigError
from codesign.jaxprs.evaluator import interpreted
from codesign.model.workloads.daily_load import read_load, replicas_by_hour
from codesign.model.workloads.goodput import SLO, check_kept, goodput, shares_at
from codesign.model.workloads.open_loop import Demand, RooflineTimes
from codesign.simulation.serving import TabulatedSteps, least_token_s, most_rate
from codesign.simulation.serving.no_scheduler import MeanRequest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import serving_bounds
from least_step import least_times, most_requests_s

LIMITS = {"ttft_s": 1.0, "tpot_s": 0.05}


def rate(step, limits):
    return goodput(RooflineTimes(**step), Demand(**ASK), SLO(**limits)).rate


along = interpreted(lambda at, towards: jax.jvp(rate, at, towards), always=True)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"ttft_s": 0.4, "tpot_s": 1.0}, {"ttft_s": 10.0, "tpot_s": 0.03}])
def test_goodput_ends_where_a_limit_is_met_and_its_slopes_are_differences(limits):
    """Along a direction in which times of steps and limits move together, through the balance of decodes and steps."""
    at = (traced(STEP), traced(limits))
    towards = jax.tree.map(lambda value, share: share * value, at, (
        dict(zip(STEP, (0.3, 1.0, -0.7, 0.5, 0.9), strict=True)), {"ttft_s": 0.4, "tpot_s": -0.2}
    ))  # fmt: skip
    result, slope = along(at, towards)
    used = shares_at(RooflineTimes(**STEP), Demand(**ASK), SLO(**limits), result)
    assert max(map(float, used.values())) == pytest.approx(1, abs=1e-6)
    ends = [
        float(along(jax.tree.map(lambda value, way, d=d: value + d * way, at, towards), towards)[0])
        for d in (-1e-5, 1e-5)
    ]
    assert float(slope) == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-5)


@pytest.mark.slow
def test_an_agreement_below_a_step_is_refused_in_a_line():
    for limits, name in (({"tpot_s": 0.005}, "tpot_s"), ({"ttft_s": 0.01}, "ttft_s")):
        with pytest.raises(ConfigError, match=name) as error:
            check_kept(RooflineTimes(**STEP), Demand(**ASK), SLO(**(LIMITS | limits)))
        assert "% below" in str(error.value)
        assert "\n" not in str(error.value)
    check_kept(RooflineTimes(**STEP), Demand(**ASK), SLO(**LIMITS))
    with pytest.raises(ConfigError, match=r"0\.5, 0\.9, 0\.99"):
        SLO(1.0, 1.0, attainment=0.98)


def test_the_simulation_beats_no_bound():
    result = serving_bounds.compared(24, 7, requests=600)
    assert len(result) == 24
    assert (result[["step_s", "tpot_s", "ttft_s", "rate"]] <= 1 + 1e-9).all().all(), result.max()
    assert result["step_s"].median() > 0.5  # and says something


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
    result = replicas_by_hour([1.0] * 12 + [4.0] * 12, 2.0)
    assert result.replicas.tolist() == [1.0] * 12 + [2.0] * 12
    assert result.saved == pytest.approx(0.25)
    for rates, words in (([1.0, float("nan")], "hour 1"), ([], "no hours")):
        with pytest.raises(ConfigError, match=words):
            replicas_by_hour(rates, 1.0)
    with pytest.raises(ConfigError, match="serves nobody"):
        replicas_by_hour([1.0], 0.0)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "hour,requests_per_s\n0,1\n2,3\n", "line 3: hour = '2' where 1"),
        ("a.csv", "hour,requests_per_s\n0,\n", "hour 0: requests_per_s is empty"),
        ("a.csv", "hour,requests_per_s\n0,1\n1,many\n", "hour 1: requests_per_s = 'many' is no rate"),
        ("a.csv", "time,rate\n0,1\n", "no column hour, requests_per_s"),
        ("a.csv", "hour,requests_per_s\n", "has no hours"),
        ("a.yaml", "- 1\n- -2\n", "hour 1: requests_per_s = -2 is no rate"),
        ("a.yaml", "busy: 3\n", "holds no list"),
        ("a.yaml", "- 0\n- 0\n", "nobody asks"),
    ],
)
def test_a_load_with_gaps_or_text_is_refused_in_a_line(name, text, words, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_load(path)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_load_is_read_from_a_table_or_a_list(tmp_path):
    (tmp_path / "a.csv").write_text("hour,requests_per_s\n0,1\n1,2.5\n")
    (tmp_path / "a.yaml").write_text("[1, 2.5]\n")
    assert read_load(tmp_path / "a.csv").tolist() == read_load(tmp_path / "a.yaml").tolist() == [1.0, 2.5]


@pytest.mark.slow
def test_no_schedule_beats_the_programme_of_steps():
    """Steps in tiles, not convex; the reference is every mixture of two kinds of steps, tried one by one."""
    result = serving_bounds.open_loops(8, 11, requests=300)
    assert (result[["tpot_s", "rate", "rate_at_tpot"]] <= 1).all().all(), result.max()
    assert result["tpot_s"].median() > 0.4


def test_the_most_that_is_sustained_is_that_of_the_best_kind_of_step():
    """Without prompts to speak of: the largest b / t over all numbers of decodes; a limit on tokens takes fewer."""
    times = TabulatedSteps(
        [0.0, 1.0, 64.0], [0.0, 1.0], np.array([[2.0, 2.0], [2.0, 2.0], [5.0, 5.0]]), np.zeros(3), 0.0
    )
    asked = MeanRequest(steps=10.0, prompt_tokens=1e-9, context=1.0, keys=1.0, most=64)
    assert most_rate(times, asked) == pytest.approx(64 / 5 / 10)
    assert most_rate(times, asked, 2.0) == pytest.approx(1 / 2 / 10)
    assert least_token_s(times, asked, 64 / 5 / 10) == pytest.approx(5.0)
    assert least_token_s(times, asked, 2.0) == np.inf
