"""Wrong inputs of who serves: one line each, by how much it is wrong and what would help."""

import pytest

from codesign.cli import main
from codesign.config import check_plan
from codesign.config.load_checks import check_load
from codesign.config.study import scenario_from_config, study_from_config
from codesign.errors import ConfigError
from codesign.fields import replace
from codesign.results import numbers_of
from codesign.workloads.served import OF_TRAINING

DESIGN = ("model=llama31_405b", "plan=serving_node", "plan.tp=8", "plan.pp=2", "cluster.device_count=64")
HEADER = "arrival_s,input_tokens,output_tokens\n"
CLOSED = "workload=continuous"
TYPED = {
    "prompts fill the step": (
        ("evaluate", CLOSED, "plan.micro_batch=512", "plan.chunk=64"),
        ("16.03 times as many", "take plan.chunk of 1048 or more", "plan.micro_batch of 31 or fewer"),
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
        ("times the 4.288 that the engines sustain", "ask for 4.2 or fewer", "or more accelerators"),
    ),
    "tokens faster than a step": (
        ("workload=goodput", "workload.agreement.tpot_s=0.0001"),
        ("99.8% below the", "alone on the engine: allow", "faster memory, more tensor ranks"),
    ),
    "first token before a step": (
        ("workload=goodput", "workload.agreement.ttft_s=0.1"),
        ("below the", "alone on the engine: allow", "more tokens a step, shorter prompts"),
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
    words = ["die=h100_sxm", "model=llama31_70b", "workload=serving_fp8"]
    assert main(["optimize", "space=chip", *words]) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert "space=serving_plans, continuous_plans or serving_chip" in line
    assert "'~space.plan.recompute'" in line
    assert told.out == ""
    assert list(tmp_path.iterdir()) == []
    plans = study_from_config("space=serving_chip", *words, "space.plan.tp=[8]").problem
    assert set(plans.space.plans(plans.scenario)["chunk"]) == {64}  # static batches have none: one of them is enough
