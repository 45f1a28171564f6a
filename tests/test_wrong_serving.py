"""Wrong inputs of who serves: one line each, by how much it is wrong and what would help."""

import pytest

from codesign.commands.cli import main
from codesign.config import check_plan
from codesign.config.checks import not_held
from codesign.config.consistency import check_load
from codesign.config.memory_advice import changes_that_fit, does_not_fit, narrower, shortage, smallest_change
from codesign.config.study import scenario_from_config, study_from_config
from codesign.core.errors import ConfigError
from codesign.core.fields import replace
from codesign.model.workloads.served import OF_TRAINING
from codesign.search.results import numbers_of
from codesign.staging import distinct_plans

pytestmark = pytest.mark.slow

DESIGN = ("model=llama31_405b", "plan=serving_node", "plan.tp=8", "plan.pp=2", "cluster.device_count=64")
HEADER = "arrival_s,input_tokens,output_tokens\n"
CLOSED = "workload=continuous"
TYPED = {
    "prompts fill the step": (
        (
            "evaluate",
            "workload=disaggregated",
            "prefill=same",
            "plan.prefill_devices=0",
            "plan.micro_batch=512",
            "plan.token_budget=64",
        ),
        ("16.03 times as many", "take plan.token_budget of 1048 or more", "plan.micro_batch of 31 or fewer"),
    ),
    "a trace with text": (
        ("simulate", CLOSED, "plan.micro_batch=64", "--trace", "text.csv"),
        ("line 3", "input_tokens", "'ten' is no number", "fill it in or leave the row out"),
    ),
    "a trace with a gap": (
        ("simulate", CLOSED, "plan.micro_batch=64", "--trace", "gap.csv"),
        ("line 3", "output_tokens is empty", "fill it in or leave the row out"),
    ),
}
ASKED = {
    "load beyond stability": (
        ("workload=at_rate", "workload.arrivals_per_s=1e4"),
        ("times the 4.43", "lower it to 4.35", "or more accelerators"),
    ),
    "tokens faster than a step": (
        ("workload=goodput", "workload.slo.tpot_s=0.0001"),
        ("99.8% below ", "are alone on the engine: allow", "faster memory, more tensor ranks"),
    ),
    "first token before a step": (
        ("workload=goodput", "workload.slo.ttft_s=0.1"),
        ("% below ", "are alone on the engine: allow", "more tokens a step, shorter prompts"),
    ),
}


@pytest.mark.parametrize("typed", TYPED)
def test_what_nobody_can_serve_is_refused_in_a_line(typed: str, capsys, tmp_path, monkeypatch):
    (tmp_path / "text.csv").write_text(HEADER + "0,10,5\n1,ten,5\n")
    (tmp_path / "gap.csv").write_text(HEADER + "0,10,5\n1,10,\n")
    monkeypatch.chdir(tmp_path)
    (command, *words), parts = TYPED[typed]
    code = main([command, *DESIGN, *words])
    told = capsys.readouterr().err
    assert code == 2
    assert told.count("\n") == 1, told
    assert all(part in told for part in parts), told


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_asked_of_engines_is_refused_in_a_line(asked: str):
    overrides, parts = ASKED[asked]
    scenario = scenario_from_config(*DESIGN, *overrides)
    check_plan(scenario)
    with pytest.raises(ConfigError) as error:
        check_load(scenario, numbers_of(scenario))
    assert "\n" not in str(error.value)
    assert all(part in str(error.value) for part in parts), str(error.value)


@pytest.mark.parametrize("workload", ["serving", "continuous"])
def test_what_only_training_has_changes_nothing_that_serving_costs(workload):
    scenario = scenario_from_config("model=llama31_8b", f"workload={workload}", "cluster.device_count=8")
    usual = numbers_of(scenario)
    fields = {f"plan.{name}": 1.0 for name in OF_TRAINING}
    changed = numbers_of(replace(scenario, fields | {"plan.virtual_stages": 2.0}))
    for name in ("time_s", "ttft_s", "tpot_s", "usd_per_million_tokens", "joules_per_token"):
        assert changed[name] == pytest.approx(usual[name], rel=1e-12), name


def test_a_space_of_training_is_no_space_to_serve_in(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["die=h100_sxm", "model=llama31_70b", "workload=static_batch_fp8"]
    assert main(["optimize", "space=chip", *words]) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert "space=serving_plans, continuous_plans or serving_chip" in line
    assert "'~space.plan.recompute'" in line
    assert told.out == ""
    assert list(tmp_path.iterdir()) == []
    plans = study_from_config("space=serving_chip", *words, "space.plan.tp=[8]").problem
    distinct = distinct_plans([plans.scenario], plans.space, plans.space.plans(plans.scenario))
    assert set(distinct["token_budget"]) == {64}  # static batches have none: one of them is enough


SMALL = ("model=llama31_70b", "accelerator=h100_sxm", "calibration=h100_sxm_roofline", "plan.pp=1")


def test_what_would_help_a_plan_that_does_not_fit_is_more_ranks_before_offloading(capsys):
    one = ("workload=at_rate", "cluster.device_count=8", "plan.tp=1")
    assert main(["evaluate", *SMALL, *one]) == 2
    assert capsys.readouterr().err.endswith("smallest change that fits: plan.tp=4\n")
    two = ("workload=continuous", "cluster.device_count=8", "plan.tp=2", "plan.micro_batch=64")
    assert main(["evaluate", *SMALL, *two]) == 2
    assert capsys.readouterr().err.endswith("fits: plan.tp=4, or workload.precision.weights=fp8\n")


def test_offloading_comes_last_where_anything_else_helps():
    """A long sequence whose cache lacks room: more ranks and devices, a narrower cache, and only then offloading."""
    scenario = scenario_from_config(
        *SMALL, "workload=continuous", "cluster.device_count=4", "plan.tp=4", "plan.micro_batch=1",
        "workload.input_tokens=560000", "workload.output_tokens=2000",
    )  # fmt: skip
    missing = shortage(scenario)
    text = does_not_fit(scenario, missing)
    near, afar = changes_that_fit(scenario)
    assert not any("offload" in one for one in near)
    assert afar == smallest_change(scenario) == ["plan.offload_weights=1"]
    assert near == ["plan.tp=8", "cluster.device_count=8"]
    assert narrower(scenario) == ["workload.precision.kv_cache=fp8"]
    ways = [" ".join(near), *narrower(scenario), " ".join(afar)]
    assert text.endswith(f"smallest change that fits: {', or '.join(ways)}")


@pytest.mark.parametrize("typed", ["cluster.device_count=32", "plan.device_count=32"])
def test_devices_that_a_space_would_overrule_are_refused(typed, capsys):
    """What is typed would be forgotten without a word; the list alone, or none of it, says what is meant."""
    listed = ("space.plan.device_count=[8,16]",)
    assert main(["optimize", *SMALL, "workload=continuous", *listed, typed]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"{typed.replace('=', ' = ')} would not count: space.plan.device_count lists 8, 16;" in told
    assert "'space.plan.device_count=[32]'" in told
    same = study_from_config(*SMALL, "workload=continuous", "space.plan.device_count=[32]", typed)
    assert list(same.space.plan["device_count"]) == [32]
    without = study_from_config("experiment=serve_deepseek_v3", "~space.plan.device_count", typed)
    assert float(without.scenario.layout.devices) == 32


def test_a_plan_field_that_is_typed_and_listed_is_said_not_to_be_held():
    study = study_from_config(
        "model=llama31_8b", "workload=static_batch", "space.plan.tp=[1,2]", "plan.tp=2", "plan.pp=1"
    )
    assert not_held(study.space, ["plan.tp=2"]) == [
        "plan.tp = 2 does not hold it: space.plan.tp lists 1, 2; 'space.plan.tp=[2]' does"
    ]
    held = study_from_config("model=llama31_8b", "workload=static_batch", "space.plan.tp=[2]", "plan.tp=2")
    assert not_held(held.space, ["plan.tp=2", "workload.input_tokens=128", "plan=serving_node"]) == []
