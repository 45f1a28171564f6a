"""Plan fields that somebody types and that change nothing of a job: one line each, and true."""

import pytest

from codesign.commands.cli import main
from codesign.config import scenario_from_config
from codesign.config.consistency import idle_fields
from codesign.core.fields import replace
from codesign.model.scenario import Scenario
from codesign.model.workloads.plan_fields import plan_field
from codesign.search.results import numbers_of

JOBS = {
    "trained": ("model=llama31_8b", "cluster.device_count=16", "plan.tp=4", "plan.pp=2", "plan.recompute=selective"),
    "trained experts": ("model=mixtral_8x7b", "cluster.device_count=32", "plan.tp=2", "plan.pp=2", "plan.ep=4"),
    "served": ("model=llama31_8b", "workload=continuous", "cluster.device_count=8", "plan.tp=4", "plan.micro_batch=64"),
    "two pools": (
        "model=mixtral_8x7b", "workload=disaggregated", "prefill=same", "cluster.device_count=16", "plan.tp=4",
        "plan.micro_batch=64", "plan.prefill_devices=8", "plan.prefill_tp=4",
    ),
}  # fmt: skip


def told(scenario: Scenario) -> dict[str, float]:
    """Metrics; rules may refuse what a field that changes none of them says."""
    return {name: value for name, value in numbers_of(scenario).items() if not name.startswith("violations.")}


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_idle_fields_change_no_number(name):
    scenario = scenario_from_config(*JOBS[name])
    expected = told(scenario)
    idle = idle_fields(scenario)
    assert idle
    for field in idle:
        known = plan_field(field)
        assert known is not None
        if (own := getattr(scenario.plan, field)) is None:
            continue
        other = next(value for value in (2.0, 1.0, 0.5, 0.0) if known["low"] <= value <= known["high"] and value != own)
        numbers = told(replace(scenario, {f"plan.{field}": other}))
        assert numbers == pytest.approx(expected, nan_ok=True, rel=1e-12), field


@pytest.mark.slow
@pytest.mark.parametrize(("overrides", "expected"), [
    (("plan.attention_dp=4",), "plan.attention_dp = 4 changes nothing: it is of serving"),
    (("plan.ep=4", "plan.etp=0"), "plan.ep = 4 changes nothing: llama31_8b has no experts"),
    (("workload=continuous", "plan.zero=3"), "plan.zero = 3 changes nothing: it is of training"),
    (("workload=continuous", "plan.prefill_tp=2"), "plan.prefill_tp = 2 changes nothing: prompts are computed beside"),
])  # fmt: skip
def test_a_field_that_changes_nothing_is_told(overrides, expected, capsys):
    assert main(["evaluate", "model=llama31_8b", "cluster.device_count=8", *overrides]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "changes nothing" in line]
    assert len(lines) == 1
    assert expected in lines[0]


@pytest.mark.parametrize("overrides", [(), ("workload=continuous",)])
def test_accelerators_for_prompts_that_nothing_uses_are_refused(overrides, capsys):
    words = ["evaluate", "model=llama31_8b", "cluster.device_count=8", "plan.prefill_devices=8", *overrides]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("codesign: plan.prefill_devices = 8: ")


@pytest.mark.parametrize(("words", "expected"), [
    (("--ep", "4"), "unknown option '--ep': a field of the plan is an override, write plan.ep=4"),
    (("--tp=4",), "write plan.tp=4"),
    (("--micro-batch", "64"), "write plan.micro_batch=64"),
    (("--devices", "2.5"), "--devices 2.5 is not a whole number; take 2 or 3"),
])  # fmt: skip
def test_fields_of_the_plan_as_options(words, expected, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "llama31_8b", "--on", "h200", "--rate", "5/s", *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert expected in line
    assert not list(tmp_path.iterdir())
