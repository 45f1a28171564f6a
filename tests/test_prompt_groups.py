"""Attention groups and a chunk of its own of the pool for prompts: by hand, proven, refused, the simulation beside."""

import dataclasses
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from codesign.commands.simulate import doubt, engine_of, pools_of
from codesign.config import check_plan, scenario_from_config
from codesign.core.errors import ConfigError
from codesign.model.metrics import evaluate
from codesign.model.scenario import Scenario
from codesign.simulation.serving import Requests, arrivals, lengths

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import curvature

DESIGN = (
    "calibration=h100_sxm_roofline", "framework=none",
    "prefill=same", "plan=serving_node", "model=gpt3_175b", "cluster.device_count=16",
    "plan.prefill_devices=8", "plan.prefill_tp=8", "plan.prefill_max_utilisation=0.38", "plan.micro_batch=32",
    "workload.input_tokens=1024", "workload.input_cv=0.5", "workload.output_cv=0.5",
)  # fmt: skip


@pytest.fixture(scope="module")
def two():
    return scenario_from_config(*DESIGN, "workload=disaggregated")


def changed(scenario: Scenario, **fields: float) -> Scenario:
    plan = dataclasses.replace(scenario.plan, **{name: jnp.asarray(value) for name, value in fields.items()})
    return dataclasses.replace(scenario, plan=plan)


def numbers(scenario: Scenario, **fields: float) -> dict[str, float]:
    return {name: float(value) for name, value in evaluate(changed(scenario, **fields)).flat().items()}


@pytest.mark.slow
def test_a_chunk_of_its_own_is_the_pools_alone(two):
    """With the plan's chunk for both, or another for decodes: times of prompts follow the pool's."""
    same, own = numbers(two, token_budget=512.0), numbers(two, token_budget=2048.0, prefill_token_budget=512.0)
    for name in ("ttft_s", "tpot_s", "requests_per_s", "prefill_pool_utilisation"):
        assert own[name] == pytest.approx(same[name], rel=1e-6), name
    assert numbers(two, token_budget=2048.0)["ttft_s"] != pytest.approx(own["ttft_s"], rel=1e-3)
    without = {"prefill_devices": 0.0, "token_budget": 512.0}
    assert numbers(two, **without, prefill_token_budget=64.0) == numbers(two, **without)  # no pool, no chunk of it


@pytest.mark.slow
def test_groups_take_a_prompt_each(two):
    """Half the ranks hold a prompt's cache: twice the bytes a device; two prompts at a time, each slower."""
    work, apart = two.workload, changed(two, prefill_attention_dp=2.0)
    pool, groups = two.layout.prefill, apart.layout.prefill
    assert float(work.prompt_engines(two.layout)) == 1
    assert float(work.prompt_engines(apart.layout)) == 2
    assert float(work.kv_bytes(groups, jnp.asarray(1024.0))) == pytest.approx(
        2 * float(work.kv_bytes(pool, jnp.asarray(1024.0)))
    )
    assert float(work.together(apart.layout)) == pytest.approx((1 + 0.38) / 2)
    shared = work.prompt_step(apart.layout, jnp.asarray(512.0)).shared_tokens
    assert float(shared) == pytest.approx(512 * 0.69)
    one, both = numbers(two), numbers(two, prefill_attention_dp=2.0)
    assert both["ttft_s"] > one["ttft_s"]
    assert both["usage.prefill.hbm"] > one["usage.prefill.hbm"]
    assert both["tpot_s"] > one["tpot_s"]  # the cache leaves over half the links


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"prefill_attention_dp": 2.0}, {"prefill_token_budget": 256.0}])
def test_the_closed_form_is_near_the_simulation(two, fields):
    """At nearly the rate at which the pool is as busy as the plan says."""
    small = changed(two, **fields, prefill_max_utilisation=0.35, micro_batch=64.0)
    closed = numbers(small)
    assert closed["prefill_pool_utilisation"] == pytest.approx(0.35, rel=1e-3)  # prompts set the rate
    pools = pools_of(small, *engine_of(small))
    rng, count = np.random.default_rng(29), 6000
    asked = Requests(
        lengths(rng, 1024, 0.5, count), lengths(rng, float(two.workload.output_tokens), 0.5, count, least=2),
        arrivals(rng, closed["requests_per_s"], 1.0, count),
    )  # fmt: skip
    served = pools.simulated(asked, lambda done, total: None)
    assert closed["ttft_s"] == pytest.approx(float(served.ttft_s.mean()), rel=0.1)


@pytest.mark.slow
def test_every_row_is_proven_with_groups_and_chunks():
    _, judgement, _ = curvature.walked([
        "experiment=disaggregation", "space.plan.tp=[8]", "space.plan.pp=[1]", "space.plan.micro_batch=[16,64]",
        "space.plan.token_budget=[512]", "space.plan.device_count=[16]", "space.plan.prefill_devices=[0,16]",
        "space.plan.prefill_tp=[8]", "space.plan.prefill_max_utilisation=[0.8]",
        "space.plan.prefill_attention_dp=[1,2,4]",
        "space.plan.prefill_token_budget=[0,2048]",
    ])  # fmt: skip
    assert judgement.unproven == {}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("plan.prefill_attention_dp=3", ("plan.prefill_attention_dp = 3", "does not divide plan.prefill_tp = 8")),
        ("plan.prefill_attention_dp=0", ("plan.prefill_attention_dp = 0 is outside",)),
        ("plan.prefill_token_budget=-1", ("plan.prefill_token_budget = -1 is outside",)),
    ],
)
def test_groups_that_cannot_be(override: str, words: tuple[str, ...]):
    with pytest.raises(ConfigError) as error:
        check_plan(scenario_from_config(*DESIGN, "workload=disaggregated", override))
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_at_a_rate_groups_are_more_engines():
    """A queue of two servers, each of which takes a prompt longer."""
    asked = (*DESIGN, "workload=disaggregated_at_rate", "workload.arrivals_per_s=1")
    one, two = (numbers(scenario_from_config(*asked, f"plan.prefill_attention_dp={groups}")) for groups in (1, 2))
    assert two["ttft_s"] > one["ttft_s"]
    assert 0 < two["prefill_pool_utilisation"] < 1.3 * one["prefill_pool_utilisation"]
    own = numbers(scenario_from_config(*asked, "plan.prefill_token_budget=256"))
    same = numbers(scenario_from_config(*asked, "plan.token_budget=256"))
    assert own["ttft_p99_s"] == pytest.approx(same["ttft_p99_s"], rel=1e-6)


def test_a_load_beyond_what_closed_forms_are_held_to_is_said():
    assert doubt(0.85) == ""
    assert "97.0% busy" in doubt(0.97)
