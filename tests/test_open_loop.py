"""The open loop in closed form: known queues, derivatives of its solution, the simulation beside it."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.core.errors import ConfigError
from codesign.jaxprs.evaluator import interpreted
from codesign.model.workloads import quantiles
from codesign.model.workloads.goodput import check_stable
from codesign.model.workloads.open_loop import Demand, RooflineTimes, TableTimes, open_loop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import serving as benchmark

STEP = {"fixed_s": 0.004, "weights_s": 0.006, "token_s": 4e-5, "read_s": 3e-8, "pair_s": 4e-10}
ASK = {"rate": 6.0, "input_tokens": 1500.0, "output_tokens": 200.0, "chunk": 2048.0, "input_cv": 0.4, "output_cv": 0.5}
answer = jax.jit(lambda step, ask: open_loop(RooflineTimes(**step), Demand(**ask)))


def traced(values):
    return {name: jnp.asarray(value) for name, value in values.items()}


def asked(**changes):
    return answer(traced(STEP), traced(ASK | changes))


@pytest.mark.slow
def test_alone_nothing_is_waited_for():
    result = asked(rate=1e-6)
    mixed = 0.004 + 4e-5 * 1500 + 4e-10 * 1500**2 / 2 * (1 + 0.4**2)
    assert float(result.ttft_s.mean) == pytest.approx(mixed, rel=0.05)
    assert float(result.tpot_s.mean) == pytest.approx(0.01, rel=0.01)
    assert float(result.decodes) == pytest.approx(1e-6 * 199 * 0.01, rel=0.01)


@pytest.mark.slow
def test_everything_grows_with_the_rate():
    result = [asked(rate=rate) for rate in (1.0, 3.0, 6.0, 9.0)]
    for name in ("ttft_s", "tpot_s"):
        for share in ("mean", "p50", "p90", "p99"):
            assert np.all(np.diff([float(getattr(getattr(one, name), share)) for one in result]) > 0), (name, share)
    assert float(asked(arrival_cv=2.0).ttft_s.mean) > float(result[2].ttft_s.mean)


@pytest.mark.slow
def test_derivatives_are_those_of_the_solution():
    """Central differences of means and percentiles, through the balance of decodes and steps."""
    outputs = [(name, share) for name in ("ttft_s", "tpot_s") for share in ("mean", "p50", "p99")]

    def run(step, ask):
        result = answer(step, ask)
        return jnp.stack([getattr(getattr(result, name), share) for name, share in outputs])

    by_step, by_ask = interpreted(jax.jacfwd(run, (0, 1)), always=True)(traced(STEP), traced(ASK))
    for index, (slopes, values) in enumerate(((by_step, STEP), (by_ask, ASK))):
        for name in ("token_s", "read_s") if index == 0 else ("rate", "input_tokens", "output_tokens"):
            ends = []
            for factor in (1 - 1e-5, 1 + 1e-5):
                moved = traced(values | {name: values[name] * factor})
                ends.append(run(moved, traced(ASK)) if index == 0 else run(traced(STEP), moved))
            difference = np.asarray(ends[1] - ends[0]) / (2e-5 * values[name])
            np.testing.assert_allclose(np.asarray(slopes[name]), difference, rtol=1e-5)


@pytest.mark.slow
def test_rounds_are_enough(monkeypatch):
    """Percentiles of TTFT against those after many more rounds of Newton's method, at 240 engines and loads."""
    rng = np.random.default_rng(3)
    drawn = [benchmark.drawn(rng) | {"arrival_cv": rng.choice([0.5, 1.0, 2.0])} for _ in range(240)]
    rows = {name: jnp.asarray([float(one[name]) for one in drawn]) for name in drawn[0]}
    times = RooflineTimes(*(rows[name] for name in benchmark.STEP))
    full = times.step_s(jnp.asarray(64.0), rows["prompt"] + rows["answer"], 0.25 * rows["budget"], rows["prompt"])
    demand = Demand(
        rate=jnp.asarray(rng.choice([0.05, 0.3, 0.6], 240)) / full / (rows["prompt"] / rows["budget"] + 1),
        input_tokens=rows["prompt"], output_tokens=rows["answer"], chunk=rows["budget"], input_cv=rows["cv_prompt"],
        output_cv=rows["cv_answer"], arrival_cv=rows["arrival_cv"], most=jnp.full(240, 256.0), elsewhere=jnp.zeros(240),
    )  # fmt: skip
    result = []
    for rounds in (quantiles.ROUNDS, 50):
        monkeypatch.setattr(quantiles, "ROUNDS", rounds)
        anew = jax.jit(jax.vmap(open_loop.__wrapped__))
        result.append(np.stack(anew(times, demand).ttft_s[1:]))
    off = np.abs(result[0] / result[1] - 1)
    assert np.isfinite(result).all()
    assert off.max() > 0  # another number of rounds was traced
    assert np.quantile(off, 0.95) < 1e-12
    assert np.quantile(off, 0.98) < 5e-3  # what few sums lie near: a share that many values have


@pytest.mark.slow
def test_a_table_of_steps_answers_alike():
    decodes, tokens = np.linspace(0, 300, 301), np.array([0.0, 1.0, 500.0, 1000.0, 1500.0, 2048.0])
    linear = 0.004 + np.maximum(0.006, 4e-5 * (decodes[:, None] + tokens))
    table = TableTimes(*map(jnp.asarray, (decodes, tokens, linear, np.full(301, 3e-8), 4e-10)))
    result, plain = jax.jit(open_loop)(table, Demand(**ASK)), asked()
    assert float(result.tpot_s.mean) == pytest.approx(float(plain.tpot_s.mean), rel=0.01)
    assert float(result.ttft_s.p99) == pytest.approx(float(plain.ttft_s.p99), rel=0.03)


@pytest.mark.slow
def test_more_than_can_be_served_is_refused():
    for changes, words in (({"rate": 60.0}, "prefill would fill"), ({"most": 8.0}, "sequences together")):
        demand = Demand(**(ASK | changes))
        with pytest.raises(ConfigError, match=words) as error:
            check_stable(asked(**changes), demand, lambda: jnp.asarray(2.5))
        assert "the 2.5 that the engines sustain" in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_simulation_is_near(monkeypatch):
    """A cheap sample of `benchmarks/serving.py`; bars in the mean are 3 and 5 per cent."""
    monkeypatch.setattr(benchmark, "REQUESTS", 2500)
    result = benchmark.errors(benchmark.open_loops(8, 5), "closed")
    assert result["median"]["tpot_s"] < 0.04
    assert result["median"]["ttft_s"] < 0.08
