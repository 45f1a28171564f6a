"""Two pools: times by hand, one pool as before, money of both, what is refused, and the simulation beside them."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

from codesign.commands.simulate import engine_of, pools_of
from codesign.config import check_plan, scenario_from_config, study_from_config
from codesign.core.errors import ConfigError
from codesign.model.metrics import evaluate
from codesign.model.scenario import Scenario
from codesign.model.workloads import ContinuousServing
from codesign.simulation.serving import Requests, arrivals, lengths
from codesign.staging import distinct_plans
from codesign.study import Objective
from codesign.study.objective import feasible

SMALL = (
    "calibration=h100_sxm_roofline", "workload=disaggregated", "prefill=same", "plan=serving_node", "framework=none",
)  # fmt: skip
APART = ("plan.prefill_devices=16", "plan.prefill_tp=8", "plan.prefill_max_utilisation=0.7", "plan.micro_batch=256",
         "cluster.device_count=16")  # fmt: skip
LENGTHS = ("workload.input_cv=0.5", "workload.output_cv=0.5", "model=gpt3_175b", "workload.input_tokens=1024")


@pytest.fixture(scope="module")
def two():
    return scenario_from_config(*SMALL, *APART, *LENGTHS)


def changed(scenario: Scenario, **fields: float) -> Scenario:
    plan = dataclasses.replace(scenario.plan, **{name: jnp.asarray(value) for name, value in fields.items()})
    return dataclasses.replace(scenario, plan=plan)


@pytest.mark.slow
def test_without_a_pool_it_is_continuous_serving(two):
    """To the last digit, but for what only two pools have."""
    names = {field.name for field in dataclasses.fields(ContinuousServing)} - {"clients"}  # nobody is in step
    fields = {name: getattr(two.workload, name) for name in names}
    alone = dataclasses.replace(two.cluster, prefill=None)
    plain = evaluate(Scenario(alone, ContinuousServing(**fields), changed(two, prefill_devices=0.0).plan)).flat()
    result = evaluate(changed(two, prefill_devices=0.0)).flat()
    for name, value in plain.items():
        assert float(result[name]) == pytest.approx(float(value), rel=1e-6), name


@pytest.mark.slow
def test_a_pool_of_tiers_holds_every_class_where_it_lies():
    """Weights of 141 GB on one device of 83 GB fit no pool for prompts, however large its second tier is."""
    words = ("workload=disaggregated", "prefill=same", "model=llama31_70b", "memory=hbm_and_photonic_pool", "plan.tp=8",
             "plan.prefill_devices=8", "cluster.device_count=16", "framework=none")  # fmt: skip
    one, eight = (evaluate(scenario_from_config(*words, f"plan.prefill_tp={tp}")).flat() for tp in (1, 8))
    held = scenario_from_config(*words, "plan.prefill_tp=1")
    kept = {name: float(n) for name, n in held.workload.prefill_bytes(held.layout).items()}
    near = held.cluster.prefill.cluster.accelerator.hbm
    share = float(near.placement["kv_cache"].shares["hbm"])
    by_hand = sum(kept.values()) - (1 - share) * kept["kv_cache"]
    assert float(one["usage.prefill.hbm.hbm"]) == pytest.approx(by_hand / float(near.tiers["hbm"].usable_bytes()))
    assert float(one["usage.prefill.hbm"]) < 1 < float(one["usage.prefill.hbm.hbm"])
    assert float(eight["usage.prefill.hbm.hbm"]) < 1
    assert not feasible(Objective().excess(evaluate(held)))
    assert feasible(Objective().excess(evaluate(scenario_from_config(*words, "plan.prefill_tp=8"))))


@pytest.mark.slow
def test_both_pools_are_made_and_have_spares():
    """By the account of one pool of as many devices; engines of 16 stand longer than those of 8."""
    words = ("model=llama31_70b", "accelerator=h200", "framework=none", "plan.tp=8", "carbon=usa", "reliability=llama3")
    apart = ("workload=disaggregated", "prefill=same", "plan.prefill_tp=8", "cluster.device_count=16")
    alone = evaluate(scenario_from_config("workload=continuous", *words, "cluster.device_count=16")).flat()
    each, failing = float(alone["carbon_made_kg"]) / 16, float(alone["availability"])
    for devices in (8, 64):
        result = evaluate(scenario_from_config(*apart, *words, f"plan.prefill_devices={devices}")).flat()
        assert float(result["carbon_made_kg"]) == pytest.approx((16 + devices) * each, rel=1e-5)
        assert float(result["availability"]) == pytest.approx(failing, abs=1e-9)
        without = evaluate(scenario_from_config(*apart, *words[:-1], f"plan.prefill_devices={devices}")).flat()
        assert float(result["capex_usd"] / without["capex_usd"]) == pytest.approx(1.02, abs=2e-3)  # 2 % of spares
    large = evaluate(scenario_from_config(*apart, *words, "plan.prefill_devices=64", "plan.prefill_pp=2")).flat()
    assert 1 - float(large["availability"]) == pytest.approx(2 * (1 - failing), rel=1e-2)


@pytest.mark.slow
def test_the_pool_that_is_full_sets_the_rate(two):
    few, many = (evaluate(changed(two, prefill_devices=devices)).flat() for devices in (8.0, 256.0))
    assert float(few["prefill_pool_utilisation"]) == pytest.approx(0.7, rel=1e-5)
    assert float(few["decode_pool_utilisation"]) < 1  # its batch is not full
    assert float(many["decode_pool_utilisation"]) == pytest.approx(1, rel=1e-5)
    assert float(many["prefill_pool_utilisation"]) < 0.1
    assert float(many["requests_per_s"]) > float(few["requests_per_s"])
    assert float(many["ttft_s"]) < float(few["ttft_s"])  # more engines share a queue
    for result in (few, many):
        parts = sum(value for name, value in result.items() if name.startswith("breakdown_s"))
        assert float(parts) == pytest.approx(float(result["time_s"]), rel=1e-5)


@pytest.mark.slow
def test_a_slow_link_delays_tokens_and_paces_both(two):
    fabric = "cluster.prefill.link.fabric.bandwidth_bytes_per_s"
    slow = evaluate(scenario_from_config(*SMALL, *APART, *LENGTHS, f"{fabric}=0.2e9")).flat()
    result = evaluate(two).flat()
    assert float(slow["tpot_s"]) > float(result["tpot_s"])
    assert float(slow["transfer_utilisation"]) == pytest.approx(0.7, rel=1e-5)
    assert float(slow["capex_usd"]) < float(result["capex_usd"])


@pytest.mark.slow
def test_money_and_power_of_both_pools(two):
    """Twice the accelerators of one kind cost twice, and their link beside."""
    one, both = (evaluate(changed(two, prefill_devices=devices)).flat() for devices in (0.0, 16.0))
    level, facility = two.cluster.prefill.link, two.cluster.facility
    ports = 32 * (level.capex_usd() + level.fabric.static_power_w() * facility.pue * facility.usd_per_w)
    assert float(both["capex_usd"] - 2 * one["capex_usd"]) == pytest.approx(float(ports), rel=1e-4)
    answers = float(two.workload.output_tokens)
    parts = 1024 * both["usd_per_million_input_tokens"] + answers * both["usd_per_million_output_tokens"]
    assert float(parts) == pytest.approx(answers * float(both["usd_per_million_tokens"]), rel=1e-5)
    assert float(both["usage.prefill.hbm"]) > 0
    assert float(one["usage.prefill.hbm"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ((*SMALL, *APART, "plan.prefill_devices=12"), ["prefill_tp 8", "plan.prefill_devices = 12"]),
        (("workload=disaggregated",), ["cluster.prefill", "prefill=same"]),
        (("prefill=same",), ["Training", "workload=disaggregated"]),
        ((*SMALL, "prefill=other", "cluster.prefill.like.accelerator=b20"), ["cluster.prefill.like", "b200"]),
        (
            ("workload=disaggregated_fp8", "prefill=other", "cluster.prefill.like.accelerator=a100_80gb"),
            ["a100_80gb of cluster.prefill", "fp8"],
        ),
    ],
)  # fmt: skip
def test_pools_that_cannot_be(overrides, words):
    with pytest.raises(ConfigError) as error:
        check_plan(scenario_from_config(*overrides))
    assert all(word in str(error.value) for word in words), str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_pool_of_other_accelerators():
    result = scenario_from_config(
        *SMALL, "prefill=other", "cluster.prefill.like.accelerator=l40s",
        "cluster.prefill.cluster.accelerator.price_usd=7",
    )  # fmt: skip
    assert result.cluster.prefill.cluster.accelerator.name == "l40s"
    assert float(result.cluster.prefill.cluster.accelerator.price_usd) == 7
    assert result.cluster.accelerator.name == "h100_sxm"


@pytest.mark.slow
def test_one_pool_is_listed_once():
    """Degrees of a pool that is left out are no choice."""
    study = study_from_config(
        "experiment=disaggregation", "space.plan.tp=[8]", "space.plan.pp=[1]", "space.plan.micro_batch=[8]",
        "space.plan.token_budget=[2048]", "space.plan.device_count=[16]", "space.plan.prefill_devices=[0,16]",
    )  # fmt: skip
    plans = distinct_plans([study.scenario], study.space, study.space.plans(study.scenario))
    without = plans["prefill_devices"] == 0
    assert without.sum() == 1
    assert (~without).sum() == 3 * 2 * 4 - 4  # tp 16 x pp 2 has too few devices


@pytest.mark.slow
def test_the_closed_form_is_near_the_simulation(two):
    """At nearly the plan's own rate, where both pools are nearly full."""
    small = changed(two, micro_batch=32.0, prefill_devices=8.0, prefill_max_utilisation=0.38, token_budget=2048.0)
    closed = {name: float(value) for name, value in evaluate(small).flat().items()}
    pools = pools_of(small, *engine_of(small))
    rng, count = np.random.default_rng(3), 6000
    asked = Requests(
        lengths(rng, 1024, 0.5, count), lengths(rng, float(two.workload.output_tokens), 0.5, count, least=2),
        arrivals(rng, 0.98 * closed["requests_per_s"], 1.0, count),
    )  # fmt: skip
    served = pools.simulated(asked, lambda done, total: None)
    assert closed["ttft_s"] == pytest.approx(float(served.ttft_s.mean()), rel=0.1)
    assert closed["tpot_s"] == pytest.approx(float(served.tpot_s.mean()), rel=0.05)


@pytest.mark.slow
def test_an_engine_serves_no_more_sequences_than_its_plan_says(capsys):
    """On a step that a 65th sequence lengthens by a tile, decodes at 97 % load stay within the batch, as exported.

    An engine that takes all who come decodes more than the plan's batch at times, in longer steps.
    """
    from codesign.commands.cli import main

    arguments = ["simulate", "model=llama31_8b", "workload=disaggregated", "accelerator=h100_sxm", "prefill=same"]
    arguments += ["cluster.device_count=2", "plan.tp=1", "plan.pp=1", "plan.micro_batch=64", "plan.prefill_devices=4"]
    assert main([*arguments, "calibration=h100_sxm_roofline", "--requests", "3000", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["loop"] == "open"
    assert told["simulated"]["decodes"] <= 64
    assert told["closed_form"]["tpot_s"] == pytest.approx(told["simulated"]["tpot_s"], rel=0.06)
    assert told["closed_form"]["slot_utilisation"] > 0.5
