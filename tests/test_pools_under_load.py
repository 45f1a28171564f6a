"""Two pools at a rate and under an SLO: one pool as before, by hand, slopes, refusals, the simulation beside."""

import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.commands.simulate import engine_of, pools_of
from codesign.config import scenario_from_config
from codesign.config.consistency import check_load
from codesign.core.errors import ConfigError
from codesign.jaxprs.evaluator import interpreted
from codesign.model.scenario import Scenario
from codesign.model.workloads import GoodputServing, ServingAtRate
from codesign.model.workloads.goodput import SLO, SLO_SHARES, AbstractOpenServing, NodeTimes, most_at
from codesign.model.workloads.mean_step import Demand
from codesign.model.workloads.pools_under_load import PromptTimes, TwoQueues
from codesign.search.results import numbers_of
from codesign.simulation.serving import Requests, arrivals, lengths

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import curvature

pytestmark = pytest.mark.slow

DESIGN = (
    "calibration=h100_sxm_roofline", "framework=none",
    "model=gpt3_175b", "plan=serving_node", "prefill=same", "cluster.device_count=16",
    "plan.prefill_devices=16", "plan.prefill_tp=8", "plan.micro_batch=32", "plan.token_budget=512",
    "workload.input_tokens=1024", "workload.output_tokens=256", "workload.input_cv=0.5", "workload.output_cv=0.5",
)  # fmt: skip
RATE = ("workload=disaggregated_at_rate", "workload.arrivals_per_s=6")
AGREED = ("workload=disaggregated_goodput", "workload.slo.ttft_s=1.5", "workload.slo.tpot_s=0.04")


@pytest.fixture(scope="module")
def at_rate():
    return scenario_from_config(*DESIGN, *RATE)


@pytest.fixture(scope="module")
def agreed():
    return scenario_from_config(*DESIGN, *AGREED)


def changed(scenario: Scenario, **fields: float) -> Scenario:
    plan = dataclasses.replace(scenario.plan, **{name: jnp.asarray(value) for name, value in fields.items()})
    return dataclasses.replace(scenario, plan=plan)


@pytest.mark.parametrize("kind", ["at_rate", "agreed"])
def test_without_a_pool_it_is_the_one_that_there_was(kind, request):
    """Every metric of the workload of one pool, to rounding."""
    two = changed(request.getfixturevalue(kind), prefill_devices=0.0)
    own = {field.name: getattr(two.workload, field.name) for field in dataclasses.fields(AbstractOpenServing)}
    more = {name: getattr(two.workload, name) for name in ("arrivals_per_s", "slo") if hasattr(two.workload, name)}
    work = (GoodputServing if "slo" in more else ServingAtRate)(**own, **more)
    alone = Scenario(dataclasses.replace(two.cluster, prefill=None), work, two.plan)
    result = numbers_of(two)
    for name, value in numbers_of(alone).items():
        assert result[name] == pytest.approx(value, rel=1e-6), name


def test_a_prompt_alone_takes_its_steps(at_rate):
    """Against steps that are tabulated one by one, and a step of one decode after half a step and the crossing."""
    work = dataclasses.replace(at_rate.workload, arrivals_per_s=jnp.asarray(1e-6), input_cv=jnp.asarray(0.0))
    quiet = dataclasses.replace(at_rate, workload=dataclasses.replace(work, output_cv=jnp.asarray(0.0)))
    pools, result = pools_of(quiet, *engine_of(quiet)), numbers_of(quiet)
    steps = pools.prefill.times
    alone = sum(steps.linear_s(0, 512) + steps.pair_s * 512 * keys for keys in (256, 768))
    assert result["ttft_s"] == pytest.approx(alone, rel=0.01)
    assert result["ttft_p99_s"] == pytest.approx(alone, rel=0.01)
    times = pools.decode.times
    one = times.linear_s(1, 0) + times.context_s(1) * (1024 + 128)
    assert result["tpot_s"] == pytest.approx(one + pools.token_s * 1024 / 255, rel=0.02)
    assert result["requests_per_s"] == pytest.approx(1e-6)


def test_between_priced_steps_prompts_stream_or_compute():
    """Two lines that meet between few tokens and half a chunk are met everywhere, others where they were priced."""
    tokens = jnp.array([1.0, 64.0, 256.0, 512.0])
    for step, exact in ((lambda t: np.maximum(0.01 + 1e-6 * t, 6e-5 * t), True), (lambda t: 1e-3 * np.sqrt(t), False)):
        times = PromptTimes(tokens, jnp.asarray(step(np.asarray(tokens))), jnp.asarray(500.0), jnp.asarray(0.0))
        for asked in (1.0, 30.0, 64.0, 168.0, 171.0, 256.0, 300.0, 512.0) if exact else tokens.tolist():
            nothing = jnp.asarray(0.0)
            result = times.step_s(nothing, nothing, jnp.asarray(asked), jnp.asarray(500.0))
            assert float(result) == pytest.approx(float(step(asked)), rel=1e-6), asked


def test_the_simulation_is_near(at_rate):
    """Fresh seed, six tenths of what is sustained; one condition, where bars are medians of many."""
    result, pools = numbers_of(at_rate), pools_of(at_rate, *engine_of(at_rate))
    assert 0.4 < max(result["prefill_pool_utilisation"], result["decode_pool_utilisation"]) < 0.9
    rng, count = np.random.default_rng(90412), 8000
    asked = Requests(
        lengths(rng, 1024, 0.5, count), lengths(rng, 256, 0.5, count, least=2), arrivals(rng, 6.0, 1.0, count)
    )
    served = pools.simulated(asked, lambda done, total: None).summary()
    for name, rel in (("ttft", 0.03), ("tpot", 0.02), ("e2e", 0.03)):
        assert result[f"{name}_s"] == pytest.approx(served[f"{name}_s"], rel=rel), name
    for name, rel in (("ttft", 0.15), ("tpot", 0.12), ("e2e", 0.1)):
        assert result[f"{name}_p99_s"] == pytest.approx(served[f"{name}_s.p99"], rel=rel), name


def test_goodput_ends_at_a_limit_of_both_pools(agreed):
    result = numbers_of(agreed)
    used = {name: result[f"slo_{SLO_SHARES[name]}"] for name in ("ttft_s", "tpot_s", "prompts", "decodes")}
    assert max(used.values()) == pytest.approx(1, abs=1e-3)
    assert result["ttft_p99_s"] <= 1.5 * 1.001
    assert result["tpot_p99_s"] <= 0.04 * 1.001
    parts = [value for name, value in result.items() if name.startswith("breakdown_s.")]
    assert sum(parts) == pytest.approx(result["time_s"], rel=1e-9)
    money = 1024 * result["usd_per_million_input_tokens"] + 256 * result["usd_per_million_output_tokens"]
    assert money == pytest.approx(256 * result["usd_per_million_tokens"], rel=1e-9)


def test_a_slow_link_ends_goodput(agreed):
    path = "cluster.prefill.link.fabric.bandwidth_bytes_per_s"
    slow = numbers_of(scenario_from_config(*DESIGN, *AGREED, f"{path}=1e8", "workload.slo.tpot_s=10"))
    assert slow["transfer_utilisation"] == pytest.approx(1, abs=1e-3)
    assert slow["requests_per_s"] < numbers_of(agreed)["requests_per_s"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            (*RATE, "workload.arrivals_per_s=1e4", "plan.micro_batch=1"),
            ["workload.arrivals_per_s = 1e+04 is", "a larger plan.micro_batch", "lower it to"],
        ),
        (
            (*RATE, "workload.arrivals_per_s=20", "plan.prefill_devices=8", "plan.micro_batch=1024"),
            ["prefill engines", "a larger plan.prefill_devices"],
        ),
        ((*AGREED, "workload.slo.ttft_s=0.01"), ["workload.slo.ttft_s = 0.01", "% below "]),
    ],
)  # fmt: skip
def test_what_no_pools_keep_is_refused_in_a_line(overrides, words):
    scenario = scenario_from_config(*DESIGN, *overrides)
    with pytest.raises(ConfigError) as error:
        check_load(scenario, numbers_of(scenario))
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)


KNOWN = {
    "whole_s": 0.2, "pair_s": 2e-8, "decode_s": 0.03, "link_s": 0.05, "rate": 6.0, "ttft_s": 1.2, "tpot_s": 0.05,
}  # fmt: skip


def told(known):
    """Percentiles at a rate, and goodput, of pools put together by hand."""
    prompts = PromptTimes(
        jnp.array([1.0, 64.0, 512.0]),
        known["whole_s"] * jnp.array([0.2, 0.3, 1.0]),
        jnp.asarray(500.0),
        known["pair_s"],
    )
    nodes = known["decode_s"] * jnp.array([0.6, 0.7, 1.0])
    decode = NodeTimes(jnp.array([1.0, 16.0, 64.0]), jnp.array([0.0, 64.0, 512.0]), nodes[:, None] * jnp.ones((1, 3)))
    demand = Demand(1.0, 1024.0, 200.0, 512.0, 0.5, 0.5, 1.0, 64.0)
    pools = TwoQueues(
        prompts, decode, demand, (jnp.asarray(4.0), jnp.asarray(2.0)), known["link_s"], jnp.asarray(0.01),
        jnp.asarray(1.0), 0.5,
    )  # fmt: skip
    seen = pools.seen(known["rate"])
    kept = most_at(pools, SLO(known["ttft_s"], known["tpot_s"]), jnp.asarray(30.0))
    return jnp.stack([
        *(getattr(seen.ttft_s, name) for name in ("mean", "p50", "p99")),
        *(getattr(seen.tpot_s, name) for name in ("mean", "p99")), seen.e2e_s.p90, kept.rate,
    ])  # fmt: skip


def test_slopes_are_differences_and_transformations_agree():
    """Means, percentiles and goodput along a direction in which everything moves; compiled, batched, by NumPy.

    One batched program, run by NumPy, has the point, its neighbours on both sides and one further off.
    """
    ways = dict(zip(KNOWN, (0.3, -0.8, 1.0, 0.6, -0.2, 0.4, -0.1), strict=True))
    towards = {name: ways[name] * value for name, value in KNOWN.items()}
    steps = jnp.array([0.0, -1e-5, 1e-5])
    many = {name: jnp.append(KNOWN[name] + steps * towards[name], 1.1 * KNOWN[name]) for name in KNOWN}
    way = {name: jnp.asarray(x) for name, x in towards.items()}
    along = interpreted(jax.vmap(lambda at: jax.jvp(told, (at,), (way,))), always=True)
    result, slopes = along(many)
    near = (result[2] - result[1]) / 2e-5
    np.testing.assert_allclose(slopes[0][:-1], near[:-1], rtol=1e-5)
    np.testing.assert_allclose(slopes[0][-1], near[-1], rtol=1e-4)  # goodput's, where its halving ended
    compiled = jax.jit(told)({name: jnp.asarray(value) for name, value in KNOWN.items()})
    np.testing.assert_allclose(compiled, result[0], rtol=1e-9)
    assert np.isfinite(np.asarray(result)).all()


def test_the_walk_calls_none_of_it_proven():
    """Percentiles and goodput are for reports and searches that prove nothing."""
    small = {"tp": [8], "pp": [1], "micro_batch": [32, 64], "token_budget": [2048], "device_count": [16],
             "prefill_devices": [0, 16], "prefill_tp": [8], "prefill_pp": [1]}  # fmt: skip
    _, judgement, _ = curvature.walked([
        "experiment=disaggregation", "workload=disaggregated_goodput_fp8", "calibration=h100_sxm_roofline",
        *(f"space.plan.{name}={values}" for name, values in small.items()),
    ])  # fmt: skip
    assert curvature.GOAL in judgement.unproven
    for limited in ("ttft_s", "tpot_s"):
        assert any(limited in row for row in judgement.unproven), limited
