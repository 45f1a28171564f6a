"""Serving at a rate and goodput as studies see them: metrics, the price of a good token, bad input in a line."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from builders import cluster, gpt3

from codesign.config import check_plan
from codesign.config.study import scenario_from_config
from codesign.errors import ConfigError
from codesign.results import numbers_of
from codesign.scenario import Scenario
from codesign.workloads import Agreement, ContinuousServing, GoodputServing, Plan, ServingAtRate
from codesign.workloads.clumps import alone, others
from codesign.workloads.under_load import NodeTimes

LENGTHS = {"input_tokens": 1024.0, "output_tokens": 257.0}
PLAN = Plan(tp=16.0, micro_batch=64.0, chunk=512.0)


def numbers(work, plan=PLAN):
    return numbers_of(Scenario(cluster(16.0), work(model=gpt3(), **LENGTHS), plan))


@pytest.fixture(scope="module")
def quiet():
    return numbers(lambda **known: ServingAtRate(**known, arrivals_per_s=1e-6))


@pytest.fixture(scope="module")
def agreed():
    return numbers(lambda **known: GoodputServing(**known, agreement=Agreement(5.0, 0.2)))


def test_between_priced_steps_times_are_straight():
    times = NodeTimes(jnp.array([1.0, 4.0, 16.0]), jnp.array([0.0, 64.0, 512.0]), jnp.arange(9.0).reshape(3, 3))

    def step_s(decodes, tokens):
        return float(times.step_s(*map(jnp.asarray, (decodes, 0.0, tokens, 0.0))))

    for row, decodes in enumerate((1.0, 4.0, 16.0)):
        for column, tokens in enumerate((0.0, 64.0, 512.0)):
            assert step_s(decodes, tokens) == 3 * row + column
    assert step_s(10.0, 288.0) == pytest.approx(6.0)
    assert float(times.weights(jnp.asarray(7.0), jnp.asarray(100.0)).sum()) == pytest.approx(1)


def test_a_request_alone_waits_for_its_own_steps(quiet):
    """Two steps of 512 prompt tokens, and steps of one sequence: those of a closed loop of one."""
    one = dataclasses.replace(PLAN, micro_batch=jnp.asarray(1.0))
    closed = numbers_of(Scenario(cluster(16.0), ContinuousServing(gpt3(), **LENGTHS), one))
    assert quiet["tpot_s"] == pytest.approx(closed["tpot_s"], rel=0.02)
    assert quiet["ttft_s"] == pytest.approx(closed["ttft_s"], rel=0.05)
    assert quiet["requests_per_s"] == pytest.approx(1e-6)
    assert quiet["ttft_p50_s"] <= quiet["ttft_p90_s"] <= quiet["ttft_p99_s"]


def test_goodput_ends_at_a_limit_and_prices_good_tokens(agreed):
    used = [agreed[f"agreement_{name}"] for name in ("ttft_s", "tpot_s", "prompts", "decodes")]
    assert max(used) == pytest.approx(1, abs=1e-3)
    assert agreed["ttft_p99_s"] <= 5.0 * 1.001
    assert agreed["tokens_per_s"] == pytest.approx(agreed["requests_per_s"] * 257, rel=1e-9)
    full = numbers_of(Scenario(cluster(16.0), ContinuousServing(gpt3(), **LENGTHS), PLAN))
    assert agreed["requests_per_s"] < 1.001 * full["requests_per_s"]  # what a batch that is always full reaches
    assert agreed["usd_per_million_tokens"] > 0.999 * full["usd_per_million_tokens"]


def test_parts_of_the_time_are_the_time(agreed):
    parts = [value for name, value in agreed.items() if name.startswith("breakdown_s.")]
    assert len(parts) > 3
    assert sum(parts) == pytest.approx(agreed["time_s"], rel=1e-9)


def test_clumps_are_nobody_where_gaps_are_exponential():
    for mean in (0.01, 1.0, 100.0):
        assert float(others(jnp.asarray(1.0), jnp.asarray(mean))) == 0
        assert float(alone(jnp.asarray(mean), jnp.asarray(0.0))) == pytest.approx(np.exp(-mean))
    assert float(others(jnp.asarray(2.0), jnp.asarray(1e6))) == pytest.approx(1.5, rel=1e-3)  # (a^2 - 1) / 2


def test_wrong_agreements_are_refused_in_a_line():
    for override, words in (
        ("workload.agreement.share=0.98", r"0\.5, 0\.9, 0\.99"),
        ("workload.agreement.ttft_s=0", "ttft_s"),
        ("workload.gap_cv=-1", "gap_cv"),
    ):
        with pytest.raises(ConfigError, match=words) as error:
            check_plan(scenario_from_config("workload=goodput", "model=llama31_405b", "plan=serving_node", override))
        assert "\n" not in str(error.value)
