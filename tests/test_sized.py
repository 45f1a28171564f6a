"""How many devices serve where nothing says it: the least for one design, a list for a search; and usual formats."""

import json

import pytest

from codesign import study_from_config
from codesign.commands.cli import main
from codesign.config import scenario_from_config
from codesign.config.least_devices import sized, sized_study
from codesign.config.legal_start import legal_start
from codesign.core.fields import replace
from codesign.model.workloads.number_formats import WEIGHT_FORMATS
from codesign.search import Grid
from codesign.search.results import numbers_of

RATE = ["workload=at_rate", "model=llama31_8b", "accelerator=h200", "workload.arrivals_per_s=20"]


@pytest.mark.slow
def test_a_search_chooses_among_the_counts_that_a_rate_may_need():
    """No fewer than arithmetic asks for; a count that is named, or a space that lists some, stays."""
    result = study_from_config(*RATE).space.plan["device_count"]
    assert list(result) == sorted(result)
    assert 1 <= result[0] < result[-1] <= 64
    ten = study_from_config(*RATE[:-1], "workload.arrivals_per_s=200").space.plan["device_count"]
    assert ten[-1] > 5 * result[-1]
    assert "device_count" not in study_from_config(*RATE, "cluster.device_count=64").space.plan
    assert list(study_from_config(*RATE, "space.plan.device_count=[16]").space.plan["device_count"]) == [16]
    assert "device_count" not in study_from_config("workload=training", "model=llama31_8b").space.plan
    assert not study_from_config(*RATE, "space=fixed").space.plan


@pytest.mark.slow
def test_one_design_has_the_least_devices_that_sustain_its_rate():
    """With the count before it in the list the engines are too few, or the plan does not fit."""
    asked, line = sized(scenario_from_config(*RATE), RATE)
    count = float(asked[0].removeprefix("cluster.device_count="))
    assert "the least devices that sustain the rate" in line
    counts = [float(one) for one in study_from_config(*RATE).space.plan["device_count"]]
    design = scenario_from_config(*RATE, *asked)
    assert numbers_of(design)["usage.engine.decodes"] <= 1
    fewer = max((one for one in counts if one < count), default=0.0)
    if fewer >= float(design.plan.tp):
        used = numbers_of(replace(design, {"cluster.device_count": fewer}))
        assert max(value for name, value in used.items() if name.startswith("usage.")) > 1
    assert sized(scenario_from_config(*RATE, "cluster.device_count=64"), [*RATE, "cluster.device_count=64"]) == ([], "")


@pytest.mark.slow
def test_a_design_of_two_pools_is_sized_though_its_space_lists_counts():
    overrides = ["workload=disaggregated", "model=llama31_8b", "prefill=same"]
    asked, line = sized(scenario_from_config(*overrides), overrides)
    assert "cluster.device_count=4" in asked
    assert "the least devices that hold a replica" in line
    said = [*overrides, "cluster.device_count=4"]  # fewer than tensor ranks of the plan that comes along
    design, instead = legal_start(scenario_from_config(*said), said)
    assert float(design.plan.tp) == 4
    assert "priced with plan." in instead


@pytest.mark.slow
def test_evaluate_says_how_many_it_took(capsys: pytest.CaptureFixture):
    assert main(["evaluate", "workload=serving", "model=llama31_8b", "accelerator=h200", "--json"]) == 0
    told = capsys.readouterr()
    assert "cluster.device_count=1 with plan.tp=1, the least devices that hold a replica" in told.err
    assert "since nothing says how many" not in told.err
    assert json.loads(told.out)["ttft_s"] > 0


@pytest.mark.slow
def test_a_training_step_is_priced_on_the_least_boxes_that_hold_it():
    overrides = ["model=llama31_8b", "accelerator=h100_sxm"]
    asked, line = sized(scenario_from_config(*overrides), overrides)
    assert "cluster.device_count=8" in asked
    assert "the least devices that hold a training step" in line
    large = ["model=llama31_405b", "accelerator=h100_sxm"]
    count = sized(scenario_from_config(*large), large)[0][0]
    design = scenario_from_config(*large, count)
    assert max(value for name, value in numbers_of(design).items() if name.startswith("usage.")) <= 1
    fewer = legal_start(scenario_from_config(*large, f"{count.partition('=')[0]}=64"), large)[0]
    assert max(value for name, value in numbers_of(fewer).items() if name.startswith("usage.")) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "said"), [
    ([], "the least that hold a training step"),
    (["objective.limits.time_s=8"], "the least that hold a training step and keep the limits"),
    (["workload=training_run", "workload.tokens=1e12", "objective.limits.time_to_train_s=300 days"], "keep the limits"),
])  # fmt: skip
def test_a_search_of_training_has_the_least_devices_that_do_the_job(asked, said):
    """On half as many devices no plan of the space fits and keeps the limits."""
    overrides = ["model=llama31_8b", "workload=training", *asked]
    first = study_from_config(*overrides)
    study, line = sized_study(first, overrides)
    count = int(float(study.scenario.cluster.device_count))
    assert f"assumed: {count:,} devices, {said}" in line or said in line
    assert f"cluster.device_count={count}" in study.overrides
    assert Grid(top_k=1).run(study.problem, 0).counts["feasible"] > 0
    if count > 8:
        fewer = study_from_config(*overrides, f"cluster.device_count={count // 2}")
        assert Grid(top_k=1).run(fewer.problem, 0).counts["feasible"] == 0
    said_so = [*overrides, "cluster.device_count=64"]
    assert sized_study(study_from_config(*said_so), said_so)[1] == ""


@pytest.mark.slow
def test_limits_that_no_number_of_devices_keeps_are_told():
    overrides = ["model=llama31_8b", "workload=training", "objective.limits.capex_usd=1e4"]
    study, line = sized_study(study_from_config(*overrides), overrides)
    assert "assumed: 8 devices, the least that hold a training step: none of 8, 16, 32 ... " in line
    assert float(study.scenario.cluster.device_count) == 8


def test_experiments_keep_their_number_of_devices():
    overrides = ["experiment=train_gpt3_175b"]
    study = study_from_config(*overrides)
    assert sized_study(study, overrides) == (study, "")


@pytest.mark.parametrize(("workload", "kind"), [
    ("serving", "ContinuousServing"), ("serving_fp8", "ContinuousServing"), ("static_batch", "StaticBatch"),
    ("continuous", "ContinuousServing"),
])  # fmt: skip
def test_serving_is_what_people_deploy(workload, kind):
    assert type(scenario_from_config(f"workload={workload}", "model=llama31_8b").workload).__name__ == kind


@pytest.mark.parametrize(("overrides", "weights"), [
    (["workload=serving", "model=gpt_oss_20b"], 0.53125),
    (["workload=serving", "model=gpt_oss_20b", "precision=bf16"], 2),
    (["workload=serving", "model=llama31_8b"], 2), (["workload=serving_fp8", "model=gpt_oss_20b"], 1),
    (["workload=training", "model=gpt_oss_20b"], 2), (["experiment=serve_deepseek_v3", "model=gpt_oss_20b"], 1),
])  # fmt: skip
def test_a_model_is_served_in_the_formats_it_was_published_in(overrides, weights):
    """Bytes of a weight of an expert: four bits and a scale of eight for 32 of them."""
    precision = scenario_from_config(*overrides).workload.precision
    formats = precision.by_class
    assert (precision.bytes_of("weights") if formats is None else WEIGHT_FORMATS[formats.experts].nbytes) == weights
