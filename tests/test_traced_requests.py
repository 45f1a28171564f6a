"""`workload.trace`: a CSV file of requests as input of a study, through the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from codesign.commands.cli import main
from codesign.config import scenario_from_config, study_from_config, study_from_resolved
from codesign.config.traced_requests import moments
from codesign.core.errors import ConfigError
from codesign.core.json_yaml import write_yaml
from codesign.core.untrusted_io import read_yaml_file
from codesign.search.results import numbers_of
from codesign.simulation.serving import read_trace

SHIPPED = Path(__file__).resolve().parent.parent / "experiments/serve_goodput/requests.csv"
DESIGN = (
    "model=llama31_8b", "cluster.device_count=8", "plan.tp=1", "plan.pp=1", "plan.micro_batch=128",
    "plan.token_budget=1024",
)  # fmt: skip
HEADER = "arrival_s,input_tokens,output_tokens\n"
FOUR = HEADER + "0,100,10\n1,300,30\n2,100,30\n5,300,10\n"
WRONG = {
    "text": (HEADER + "0,10,5\n1,ten,5\n", ("requests.csv", "line 3", "input_tokens = 'ten' is no number")),
    "a gap": (HEADER + "0,10,5\n1,10,\n", ("requests.csv", "line 3", "output_tokens is empty")),
    "no number": (HEADER + "0,10,5\n1,10,nan\n", ("requests.csv", "line 3", "output_tokens = 'nan'")),
    "negative": (HEADER + "0,10,5\n1,-10,5\n", ("requests.csv", "line 3", "input_tokens = -10 is outside")),
    "back in time": (HEADER + "3,10,5\n1,10,5\n", ("requests.csv", "line 3", "arrival_s is 2 s before")),
    "a missing column": ("arrival_s,input_tokens\n0,10\n", ("requests.csv", "no column output_tokens")),
    "empty": ("", ("requests.csv", "is empty")),
    "a header alone": (HEADER, ("requests.csv", "is empty")),
    "one request": (HEADER + "0,10,5\n", ("requests.csv", "1 requests")),
    "none of the kind": (None, ("requests.csv", "cannot be read")),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("command", ["evaluate", "optimize"])
def test_what_is_no_trace_is_refused_in_a_line(command: str, wrong: str, tmp_path, monkeypatch, capsys):
    text, words = WRONG[wrong]
    if text is not None:
        (tmp_path / "requests.csv").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main([command, *DESIGN, "workload=at_rate", "workload.trace=requests.csv"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1, told
    assert all(word in told for word in words), told
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize("typed", ["workload.arrivals_per_s=3", "workload.input_cv=0.5"])
def test_a_number_that_a_trace_says_is_not_said_again(typed: str, capsys):
    assert main(["evaluate", *DESIGN, "workload=at_rate", f"workload.trace={SHIPPED}", typed]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"{typed.replace('=', ' = ')} stands beside" in told
    assert "leave one out" in told


def test_moments_by_hand(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text(FOUR)
    result = moments(read_trace(path))
    assert result == pytest.approx({
        "input_tokens": 200.0, "output_tokens": 20.0, "input_cv": 0.5, "output_cv": 0.5, "correlation": 0.0,
        "arrivals_per_s": 0.6, "arrival_cv": np.sqrt(8 / 9) / (5 / 3),
    })  # fmt: skip
    alike = "input_tokens,output_tokens\n7,5\n7,5\n"
    path.write_text(alike)
    result = moments(read_trace(path, timed=False))
    assert result["correlation"] == 0.0
    assert "arrivals_per_s" not in result
    with pytest.raises(ConfigError, match="no column arrival_s"):
        read_trace(path)


@pytest.mark.slow
def test_contexts_are_those_of_the_trace():
    """K = E[I O] / E[O] + E[O^2] / (2 E[O]) of the very requests, correlation and all."""
    asked = read_trace(SHIPPED)
    prompts, outputs = asked.prompts * 1.0, asked.outputs * 1.0
    scenario = scenario_from_config(*DESIGN, "workload=at_rate", f"workload.trace={SHIPPED}")
    context = (prompts * outputs).mean() / outputs.mean() + (outputs**2).mean() / (2 * outputs.mean())
    assert float(scenario.workload.context()) == pytest.approx(context, rel=1e-12)
    attended = (prompts**2).mean() / (2 * prompts.mean())
    assert float(scenario.workload.attended()) == pytest.approx(attended, rel=1e-12)
    assert numbers_of(scenario)["requests_per_s"] == pytest.approx(999 / asked.arrivals[-1], rel=1e-12)


@pytest.mark.slow
def test_a_run_is_read_again_without_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.csv"
    path.write_text(SHIPPED.read_text())
    study = study_from_config(*DESIGN, "workload=goodput", "workload.trace=mine.csv")
    (tmp_path / "config.yaml").write_text(write_yaml(study.resolved))
    path.unlink()
    kept = read_yaml_file(tmp_path / "config.yaml", "kept")
    assert "trace" not in kept["workload"]
    again = study_from_resolved(OmegaConf.create(kept), study.overrides)
    assert numbers_of(again.scenario) == numbers_of(study.scenario)
    assert again.provenance["workload.input_cv"]["source"] == "trace mine.csv"
    assert float(again.scenario.workload.input_cv) == pytest.approx(1.28158, rel=1e-4)


@pytest.mark.slow
def test_a_study_of_a_trace_is_answered(capsys):
    kernels = "calibration=h100_sxm_roofline"  # of which no draws are known
    assert main(["evaluate", *DESIGN, kernels, "workload=at_rate", f"workload.trace={SHIPPED}", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["requests_per_s"] == pytest.approx(4.076, rel=1e-3)


def test_lengths_alone_leave_the_rate_open(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("input_tokens,output_tokens\n100,10\n300,30\n")
    typed = (f"workload.trace={path}", "workload.arrivals_per_s=3", "workload.arrival_cv=2")
    work = study_from_config(*DESIGN, "workload=at_rate", *typed).scenario.workload
    assert float(work.arrivals_per_s) == 3
    assert float(work.arrival_cv) == 2
    assert float(work.input_tokens) == 200
    assert float(work.correlation) == 1


def test_requests_that_are_all_alike_have_no_trace(tmp_path, capsys):
    assert main(["evaluate", *DESIGN, "workload=static_batch", f"+workload.trace={SHIPPED}"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "all alike: choose a workload that batches continuously" in told
