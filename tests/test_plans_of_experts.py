"""What a study that names only a model may choose from: experts and long contexts over devices, where that helps."""

import numpy as np
import pytest

import codesign
from codesign import study_from_config

MANY = "cluster.device_count=1024"
DENSE, SPARSE = "llama31_70b", "qwen3_235b_a22b"


def plans(*overrides: str) -> dict[str, np.ndarray]:
    study = study_from_config("accelerator=h200", MANY, *overrides)
    return {name: np.asarray(values) for name, values in study.space.plans(study.scenario).items()}


def least(*overrides: str) -> codesign.Solution:
    return codesign.solve(study_from_config("accelerator=h200", "workload=training", *overrides))


@pytest.mark.parametrize(
    "workload", ["training", "training_fp8", "training_run", "serving", "serving_fp8", "continuous"]
)
def test_experts_are_laid_over_devices_where_there_are_some(workload):
    more = ["workload.tokens=1e12"] if workload == "training_run" else []
    assert set(plans(f"workload={workload}", f"model={SPARSE}", *more)["ep"]) >= {1.0, 8.0}
    assert set(plans(f"workload={workload}", f"model={DENSE}", *more)["ep"]) == {1.0}


def test_what_is_proven_best_of_all_plans_beats_what_is_proven_best_without_experts_over_devices():
    free, held = least(MANY, f"model={SPARSE}"), least(MANY, f"model={SPARSE}", "space.plan.ep=[1]")
    assert free.certified
    assert held.certified
    assert float(free.best["var.ep"]) > 1
    assert free.best["objective"] < 0.95 * held.bound  # no plan without them comes within 5 %


def test_a_context_that_no_device_holds_is_cut_over_devices():
    long = ("model=llama31_70b", "workload.sequence=131072", "workload.global_batch=32", "cluster.device_count=512")
    free, held = least(*long), least(*long, "space.plan.cp=[1]")
    assert float(free.best["var.cp"]) > 1
    assert free.best["objective"] < 0.8 * held.bound
