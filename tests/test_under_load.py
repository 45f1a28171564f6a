"""Serving at a rate and goodput as studies see them: metrics, the price of a good token, bad input in a line."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from builders import cluster, gpt3

from codesign.commands.day import day, hours
from codesign.config import check_plan
from codesign.config.consistency import check_load
from codesign.config.study import scenario_from_config, study_from_config
from codesign.core.errors import ConfigError
from codesign.model.metrics import evaluate
from codesign.model.scenario import Scenario
from codesign.model.workloads import SLO, ContinuousServing, GoodputServing, Plan, ServingAtRate
from codesign.model.workloads.goodput import SLO_SHARES, NodeTimes
from codesign.model.workloads.latency import alone, others
from codesign.search.results import numbers_of
from codesign.staging import at_many

LENGTHS = {"input_tokens": 1024.0, "output_tokens": 257.0}
PLAN = Plan(tp=16.0, micro_batch=64.0, token_budget=512.0)


def numbers(work, plan=PLAN):
    return numbers_of(Scenario(cluster(16.0), work(model=gpt3(), **LENGTHS), plan))


@pytest.fixture(scope="module")
def quiet():
    return numbers(lambda **known: ServingAtRate(**known, arrivals_per_s=1e-6))


@pytest.fixture(scope="module")
def agreed():
    return numbers(lambda **known: GoodputServing(**known, slo=SLO(5.0, 0.2)))


def test_between_priced_steps_times_are_straight():
    times = NodeTimes(jnp.array([1.0, 4.0, 16.0]), jnp.array([0.0, 64.0, 512.0]), jnp.arange(9.0).reshape(3, 3))

    def step_s(decodes, tokens):
        return float(times.step_s(*map(jnp.asarray, (decodes, 0.0, tokens, 0.0))))

    for row, decodes in enumerate((1.0, 4.0, 16.0)):
        for column, tokens in enumerate((0.0, 64.0, 512.0)):
            assert step_s(decodes, tokens) == 3 * row + column
    assert step_s(10.0, 288.0) == pytest.approx(6.0)
    assert float(times.weights(jnp.asarray(7.0), jnp.asarray(100.0)).sum()) == pytest.approx(1)


@pytest.mark.slow
def test_a_request_alone_waits_for_its_own_steps(quiet):
    """Two steps of 512 prompt tokens, and steps of one sequence: those of a closed loop of one."""
    one = dataclasses.replace(PLAN, micro_batch=jnp.asarray(1.0))
    closed = numbers_of(Scenario(cluster(16.0), ContinuousServing(gpt3(), **LENGTHS), one))
    assert quiet["tpot_s"] == pytest.approx(closed["tpot_s"], rel=0.02)
    assert quiet["ttft_s"] == pytest.approx(closed["ttft_s"], rel=0.05)
    assert quiet["requests_per_s"] == pytest.approx(1e-6)
    assert quiet["ttft_p50_s"] <= quiet["ttft_p90_s"] <= quiet["ttft_p99_s"]


@pytest.mark.slow
def test_goodput_ends_at_a_limit_and_prices_good_tokens(agreed):
    used = [agreed[f"slo_{SLO_SHARES[name]}"] for name in ("ttft_s", "tpot_s", "prompts", "decodes")]
    assert max(used) == pytest.approx(1, abs=1e-3)
    assert agreed["ttft_p99_s"] <= 5.0 * 1.001
    assert agreed["tokens_per_s"] == pytest.approx(agreed["requests_per_s"] * 257, rel=1e-9)
    full = numbers_of(Scenario(cluster(16.0), ContinuousServing(gpt3(), **LENGTHS), PLAN))
    assert agreed["requests_per_s"] < 1.001 * full["requests_per_s"]  # what a batch that is always full reaches
    assert agreed["usd_per_million_tokens"] > 0.999 * full["usd_per_million_tokens"]


@pytest.mark.slow
def test_what_the_host_takes_is_added_and_left_less_of_an_agreement(quiet):
    """A second at the host: requests wait it out; two seconds of an SLO with one of them are one without."""
    later = numbers(lambda **known: ServingAtRate(**known, arrivals_per_s=1e-6, request_overhead_s=1.0))
    for name in ("ttft_s", "ttft_p99_s", "e2e_s", "e2e_p50_s"):
        assert later[name] == pytest.approx(quiet[name] + 1, rel=1e-12), name
    assert later["tpot_s"] == quiet["tpot_s"]
    left = numbers(lambda **known: GoodputServing(**known, slo=SLO(1.0, 0.2)))
    whole = numbers(lambda **known: GoodputServing(**known, slo=SLO(2.0, 0.2), request_overhead_s=1.0))
    assert whole["requests_per_s"] == pytest.approx(left["requests_per_s"], rel=1e-9)
    assert whole["slo_ttft_ratio"] == pytest.approx((left["slo_ttft_ratio"] + 1) / 2, rel=1e-9)


@pytest.mark.slow
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
        ("workload.slo.attainment=0.98", r"0\.5, 0\.9, 0\.99"),
        ("workload.slo.ttft_s=0", "ttft_s"),
        ("workload.arrival_cv=-1", "arrival_cv"),
    ):
        with pytest.raises(ConfigError, match=words) as error:
            check_plan(scenario_from_config("workload=goodput", "model=llama31_405b", "plan=serving_node", override))
        assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda **known: ServingAtRate(**known, arrivals_per_s=1e4), "workload.arrivals_per_s = 1e+04 is"),
        (lambda **known: GoodputServing(**known, slo=SLO(5.0, 1e-4)), "workload.slo.tpot_s = 0.0001"),
    ],
)
def test_what_no_engine_keeps_is_infeasible_and_refused_in_a_line(work, words):
    """A load beyond stability, and limits below the floor of one step."""
    scenario = Scenario(cluster(16.0), work(model=gpt3(), **LENGTHS), PLAN)
    result = numbers_of(scenario)
    assert max(value for name, value in result.items() if name.startswith("usage.engine.")) > 1.01
    with pytest.raises(ConfigError) as error:
        check_load(scenario, result)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_what_engines_keep_is_feasible(agreed):
    shares = [value for name, value in agreed.items() if name.startswith("usage.engine.")]
    assert max(shares) <= 1
    assert len(shares) == 4


@pytest.mark.slow
def test_following_a_day_of_load_switches_replicas_off(agreed):
    """Twice what one replica is good for, then a tenth: three ways to pay for it, by hand."""
    scenario = Scenario(cluster(16.0), GoodputServing(gpt3(), **LENGTHS, slo=SLO(5.0, 0.2)), PLAN)
    good_for = agreed["requests_per_s"]
    table = hours(scenario, np.array([1.9 * good_for, 0.1 * good_for]))
    assert table["replicas"].tolist() == [2.0, 1.0]
    assert (table["ttft_p99_s"] <= 5.0).all()
    assert table["power_w"].tolist() == pytest.approx(
        [table["power_all_on_w"][0], table["power_all_on_w"][1] / 2], rel=0.1
    )
    told = day(scenario, table)
    assert told["peak"]["accelerator_hours"] == 64
    assert told["hourly"]["accelerator_hours"] == 48
    assert told["hourly"]["usd_accelerators"] == pytest.approx(0.75 * told["peak"]["usd_accelerators"], rel=0.05)
    assert told["owned"]["usd_accelerators"] == told["peak"]["usd_accelerators"]
    assert told["owned"]["kwh"] == pytest.approx(table["power_w"].sum() / 1e3)
    with pytest.raises(ConfigError, match="no SLO"):
        hours(Scenario(cluster(16.0), ContinuousServing(gpt3(), **LENGTHS), PLAN), np.ones(2))


@pytest.mark.slow
@pytest.mark.parametrize(("kernels", "of_it"), [("null", 0.98), ("learned", 0.92)])
def test_slots_that_nobody_needs_make_no_step_faster(kernels, of_it):
    """Steps of experts grow less than their sequences: a line from one decode to many would lie far below them.

    Learned factors are not smooth in the sequences: which steps were priced moves the line by some percent.
    """
    study = study_from_config(
        "workload=at_rate", "model=mixtral_8x7b", "accelerator=h100_sxm", "framework=vllm_async",
        "workload.arrivals_per_s=20", "cluster.device_count=16", f"kernel_correction={kernels}",
    )  # fmt: skip
    priced = at_many(lambda plan: evaluate(study.space.place(study.scenario, plan)).get("tpot_s"))
    fixed = {"pp": 1.0, "attention_dp": 1.0, "token_budget": 512.0}
    for tp, ep in ((8.0, 1.0), (1.0, 8.0)):
        degrees = fixed | {"tp": tp, "ep": ep}
        plans = {name: np.full(3, value) for name, value in degrees.items()}
        few, many, most = priced(plans | {"micro_batch": np.array([128.0, 512.0, 1024.0])})
        assert few * of_it < many
        assert few * of_it < most


@pytest.mark.slow
def test_engines_that_step_together_meet_the_prompts_that_come():
    """Eight replicas that share experts: at a low rate hardly a step has prompts of others.

    Then a step is one of decodes, and what a step of others' prompts takes is told as what they do, not as overhead.
    """
    words = ("accelerator=h200", "model=deepseek_v3", "framework=vllm_async", "precision=checkpoint",
             "cluster.device_count=8", "plan.tp=1", "plan.ep=8", "plan.token_budget=512")  # fmt: skip

    def told(*more):
        return numbers_of(scenario_from_config(*words, *more))

    quiet, busy = (
        told("workload=at_rate", "plan.micro_batch=48", f"workload.arrivals_per_s={rate}") for rate in (0.01, 4.0)
    )
    single = told("workload=continuous", "plan.micro_batch=1")
    assert quiet["tpot_s"] == pytest.approx(single["tpot_s"], rel=0.15)
    assert busy["tpot_s"] > 1.5 * quiet["tpot_s"]
    for each in (quiet, busy):
        assert each["breakdown_s.overhead"] < 0.01 * each["time_s"]
