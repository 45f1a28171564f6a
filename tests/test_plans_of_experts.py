"""What a study that names only a model may choose from: experts and long contexts over devices, where that helps."""

import numpy as np
import pytest

import codesign
from codesign import study_from_config
from codesign.staging import distinct_plans

MANY = "cluster.device_count=1024"
DENSE, SPARSE = "llama31_70b", "qwen3_235b_a22b"


def plans(*overrides: str) -> dict[str, np.ndarray]:
    """Legal plans, of those that are equal in every metric the first."""
    study = study_from_config("accelerator=h200", *overrides)
    legal = study.space.plans(study.scenario)
    return distinct_plans([study.scenario], study.space, {name: np.asarray(values) for name, values in legal.items()})


def least(*overrides: str) -> codesign.Solution:
    return codesign.solve(study_from_config("accelerator=h200", "workload=training", *overrides))


@pytest.mark.slow
@pytest.mark.parametrize(
    "workload", ["training", "training_fp8", "training_run", "static_batch", "static_batch_fp8", "continuous"]
)
def test_experts_are_laid_over_devices_where_there_are_some(workload):
    more = ["workload.tokens=1e12"] if workload == "training_run" else []
    assert set(plans(f"workload={workload}", f"model={SPARSE}", MANY, *more)["ep"]) >= {1.0, 8.0}
    assert set(plans(f"workload={workload}", f"model={DENSE}", MANY, *more)["ep"]) == {1.0}


@pytest.mark.slow
def test_what_is_proven_best_of_all_plans_beats_what_is_proven_best_without_experts_over_devices():
    free, held = least(MANY, f"model={SPARSE}"), least(MANY, f"model={SPARSE}", "space.plan.ep=[1]")
    assert free.certified
    assert held.certified
    assert float(free.best["var.ep"]) > 1
    assert free.best["objective"] < 0.95 * held.bound  # no plan without them comes within 5 %


@pytest.mark.slow
def test_a_context_that_no_device_holds_is_cut_over_devices():
    long = ("model=llama31_70b", "workload.sequence=131072", "workload.global_batch=32", "cluster.device_count=512")
    free, held = least(*long), least(*long, "space.plan.cp=[1]")
    assert float(free.best["var.cp"]) > 1
    assert free.best["objective"] < 0.8 * held.bound


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["disaggregated", "disaggregated_goodput"])
def test_two_pools_lay_experts_over_devices_each_its_own_way(workload):
    more = (f"workload={workload}", "prefill=same", "space.plan.micro_batch=[64]", "space.plan.token_budget=[512]")
    sparse, dense = (plans(f"model={model}", *more) for model in (SPARSE, DENSE))
    assert set(sparse["ep"]) >= {1.0, 8.0, 16.0}
    assert set(sparse["prefill_ep"]) >= {1.0, 8.0}
    assert set(sparse["attention_dp"]) >= {1.0, 4.0}
    assert set(dense["ep"]) == set(dense["prefill_ep"]) == {1.0}


@pytest.mark.slow
def test_two_pools_spread_experts_over_engines_that_they_have():
    told = ("workload=disaggregated_fp8", "prefill=same", "model=deepseek_v3", "space.plan.micro_batch=[512]")
    free, held = (
        codesign.solve(study_from_config("accelerator=h200", *told, f"space={space}", "space.plan.token_budget=[2048]"))
        for space in ("disaggregated_plans", "dense_disaggregated_plans")
    )
    assert free.certified
    assert held.certified
    assert free.best["objective"] < 1.001 * held.best["objective"]
    pool, engine = free.designs["var.prefill_devices"], free.designs["var.prefill_tp"] * free.designs["var.prefill_pp"]
    cut = free.designs["var.prefill_etp"].where(free.designs["var.prefill_etp"] > 0, free.designs["var.prefill_tp"])
    sharing = free.designs["var.prefill_ep"] * cut / free.designs["var.prefill_tp"]
    assert (sharing > 1).any()
    assert ((pool == 0) | (pool >= engine * sharing)).all()  # nobody computes who is not paid
