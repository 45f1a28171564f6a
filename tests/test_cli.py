"""The command line: help at once, one line for what is wrong, whole run folders."""

import json
import re
import subprocess
import sys
import time

import pandas as pd
import pytest

from codesign import __version__
from codesign.commands.cli import FUNCTIONS, main
from codesign.commands.optimize import run_name
from codesign.commands.remarks import COLUMNS
from codesign.config import composition, study_from_config

QUICK = ["search=grid", "calibration=h100_sxm_roofline", "space.plan.tp=[4,8]", "space.plan.pp=[4,8]"]
QUICK += ["space.plan.virtual_stages=[1,3]", "space.plan.micro_batch=[1]", "space.plan.recompute=[selective]"]
QUICK += ["space.plan.sequence_parallel=[1]", "space.plan.zero=[1]", "space.plan.offload_optimizer=[0]"]
QUICK += [f"space.hardware.{name}.grid=2" for name in ("scale_up_bandwidth", "scale_out_bandwidth", "hbm_to_ddr")]
QUICK += ["objective.limits.provisioned_power_w=1e8"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Commands write into the folder they are started in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys, *arguments: str) -> str:
    """The single line on stderr of a command that exits with 2."""
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("codesign: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    return captured.err


def test_help_comes_within_a_second():
    seconds = []
    for _ in range(3):  # the best of three: others may use the machine
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "codesign", "--help"], capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - start)
    assert "optimize" in done.stdout
    assert min(seconds) < 1.0


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"codesign {__version__}\n"


def test_list_shows_groups_and_options(capsys):
    assert main(["list"]) == 0
    assert "accelerator" in capsys.readouterr().out
    assert main(["list", "experiment"]) == 0
    assert "train_gpt3_175b" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["evalute"], ["'evalute'", "'evaluate'"]),
        (["evaluate", "--jsn"], ["'--jsn'", "'--json'"]),
        (["evaluate", "plan.tp"], ["'plan.tp'", "key=value"]),
        (["list", "acelerator"], ["'acelerator'", "'accelerator'"]),
        (["report", "no_such_run"], ["no_such_run"]),
        (["evaluate", "--top", "3", "plan.tp=7"], ["plan.tp = 7 does not divide"]),
        (["evaluate", "plan.pp=8", "--json", "plan.tp=7"], ["plan.tp = 7 does not divide"]),
        (["evaluate", "plan.tp=7"], ["plan.tp = 7 does not divide model heads = 96"]),
        (["evaluate", "fabric.bandwidth_bytes_per_s=-1"], ["bandwidth_bytes_per_s = -1 is outside [1, inf]"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, arguments, parts):
    text = refused(capsys, *arguments)
    assert all(part in text for part in parts), text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["space.plan.tp=[]"], ["space.plan.tp", "non-empty"]),
        (["space.plan.tp=[7]"], ["space is empty", "devices"]),
        (["objective.minimise=usd_per_million_token"], ["'usd_per_million_tokens'"]),
        (["fabric._target_=os.system"], ["os.system", "refused"]),
        (["search=grid", "search.resume=nowhere"], ["search.resume: 'nowhere", "does not exist"]),
        (["search=pareto", "search.minimise=[time_s, joule_per_token]"], ["'joule_per_token'", "'joules_per_token'"]),
        (["search=integer", "search.step={up: 3}"], ["search.step.up is not in space.hardware"]),
        (["-m", "accelerator=h100_sxm,b2000"], ["b2000", "'b200'"]),
    ],
)
def test_a_study_that_cannot_run_leaves_no_folder(capsys, elsewhere, overrides, parts):
    text = refused(capsys, "optimize", *overrides)
    assert all(part in text for part in parts), text
    assert list(elsewhere.iterdir()) == []


def test_interrupt_is_quiet(capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(FUNCTIONS, "list", interrupted)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "codesign: interrupted\n"


def test_an_unwritable_cache_is_no_obstacle(monkeypatch, elsewhere):
    from codesign.commands.setup import cache_folder

    (elsewhere / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(elsewhere / "file"))
    assert cache_folder() is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(elsewhere / "new"))
    assert cache_folder() == elsewhere / "new" / "codesign"


@pytest.mark.slow
def test_evaluate_prints_every_number_as_json(capsys):
    assert main(["evaluate", "calibration=h100_sxm_roofline", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    parts = sum(value for name, value in numbers.items() if name.startswith("breakdown_s."))
    assert parts == pytest.approx(numbers["time_s"], rel=1e-9)
    assert 0 < numbers["mfu"] < 1


def test_evaluate_refuses_a_design_that_does_not_fit_in_one_line(capsys):
    assert main(["evaluate", "calibration=h100_sxm_roofline", "plan=data_parallel"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert re.search("does not fit: .*lacks .*smallest change that fits", line)


@pytest.mark.slow
def test_optimize_leaves_a_whole_run_folder(capsys, elsewhere):
    assert main(["optimize", *QUICK, "objective.limits.capex_usd=1e9", "--explain"]) == 0
    (folder,) = (elsewhere / "runs").iterdir()
    assert folder.name.endswith("_train_gpt3_175b")
    names = {path.name for path in folder.iterdir()}
    assert {"config.yaml", "overrides.txt", "versions.json", "summary.json", "designs.parquet"} <= names
    assert {"ops.parquet", "elasticities.parquet", "pareto.parquet"} <= names
    assert not [name for name in names if name.endswith(".partial")]
    best = pd.read_parquet(folder / "designs.parquet").iloc[0]
    assert best["feasible"]
    printed = capsys.readouterr().out
    assert printed.index("best designs") < printed.index(COLUMNS["rank"]) < printed.index("Next:")
    assert "varied: cluster.network.scale_up.fabric.bandwidth_bytes_per_s" in printed
    assert main(["report", str(folder)]) == 0


@pytest.mark.slow
def test_multirun_collects_the_best_of_each_job_and_says_why_one_has_none(monkeypatch, capsys, elsewhere):
    asked, compose = [], composition._composed_anew
    monkeypatch.setattr(sys, "argv", ["codesign"])
    monkeypatch.setattr(composition, "_composed_anew", lambda chosen: asked.append(chosen) or compose(chosen))
    limits = "objective.limits.capex_usd=1e6,1e9"
    assert main(["optimize", "-m", "--explain", *QUICK, limits, "hydra.sweep.dir=multirun/here"]) == 2
    assert COLUMNS["job"] in capsys.readouterr().out
    assert len({*asked}) == len(asked) <= 2  # no choice of files twice, for any job
    root = elsewhere / "multirun" / "here"
    frame = pd.read_parquet(root / "collected.parquet")
    assert list(frame["job"]) == [0, 1]
    assert list(frame["feasible"]) == [False, True]
    reason = (root / "0" / "error.txt").read_text()
    assert reason.startswith("no design keeps all limits; the nearest one found breaks objective.limits.capex_usd ($")
    assert "$1 M allowed)" in reason
    assert not (root / "1" / "error.txt").exists()
    assert main(["report", str(root / "1")]) == 0  # its page is made when it is asked for
    assert (root / "1" / "report.html").is_file()


@pytest.mark.slow
def test_jobs_of_a_multirun_go_over_a_runner(monkeypatch, capsys, elsewhere):
    """The same files whoever computes them, jobs that were found are not done again, one that is refused says so."""
    monkeypatch.setattr(sys, "argv", ["codesign"])
    jobs = [*QUICK, "objective.limits.capex_usd=1e6,1e9,2e9"]
    for place, runner in (("one", []), ("two", ["runner=serial"]), ("three", ["runner=local", "workers=2"])):
        assert main(["optimize", "-m", *jobs, f"hydra.sweep.dir={place}", *runner]) == 2
        assert (elsewhere / place / "0" / "error.txt").is_file()
        for name in ("collected", "1/designs", "2/histogram"):
            pd.testing.assert_frame_equal(
                pd.read_parquet(elsewhere / place / f"{name}.parquet"),
                pd.read_parquet(elsewhere / "one" / f"{name}.parquet"),
            )
    capsys.readouterr()
    assert main(["optimize", "-m", *jobs, "hydra.sweep.dir=three", "runner=local", "workers=1"]) == 2
    assert capsys.readouterr().out.count("found before") == 2


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--fast"], ["unknown option '--fast'"]),
        (["--cfg", "job", "--package", "spaces"], ["no such key", "'space'"]),
        (["--resolve"], ["belong to --cfg"]),
        (["-m", "--cfg", "job"], ["leave out -m"]),
        (["-m", "accelerator=glob(h*)"], ["list the values"]),
        (["-m", "seed=interval(1, 2)"], ["list the values"]),
        (["--cfg", "job", "plan.tpp=2"], ["plan.tpp", "'tp'"]),
    ],
)
def test_options_of_optimize_are_refused_on_one_line(capsys, arguments, parts):
    text = refused(capsys, "optimize", *arguments)
    assert all(part in text for part in parts), text


@pytest.mark.slow
def test_a_configuration_is_shown_and_nothing_runs(capsys, monkeypatch, elsewhere):
    monkeypatch.setattr(sys, "argv", ["codesign"])
    assert main(["optimize", "--cfg", "job", "--package", "accelerator", "accelerator=b200"]) == 0
    assert "name: b200" in capsys.readouterr().out
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "train_gpt3_175b"),
        (["objective.limits.capex_usd=5e7"], "train_gpt3_175b"),
        (["accelerator=b200", "objective.limits.capex_usd=9e7"], "b200"),
        (["accelerator=b200", "experiment=photonic_rack"], "photonic_rack"),
        (["name=mine", "accelerator=b200"], "mine"),
    ],
)
def test_a_run_folder_says_what_was_asked_for(overrides, name):
    assert run_name(study_from_config(*overrides)) == name
