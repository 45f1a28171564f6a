"""Run folders, configurations and command lines of release 0.1 are read as they are; a line says each new name."""

import importlib.util
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from omegaconf import OmegaConf

from codesign import ConfigError, study_from_config
from codesign.commands.cli import main
from codesign.config import own_files
from codesign.config.composition import compose
from codesign.config.construct import parameters, resolve, targets
from codesign.config.groups import available, groups
from codesign.core import earlier_names
from codesign.model.workloads import Plan
from codesign.report.labels import MEANINGS
from codesign.report.run_folder import read_run

CONFIGURATIONS = [
    tuple(shlex.split(line))
    for line in (Path(__file__).with_name("data") / "configurations_of_0_1.txt")
    .read_text(encoding="utf-8")
    .splitlines()
]
"""Overrides of release 0.1: of its documentation, and with every name that is another one now."""
RUNS = Path(__file__).with_name("data") / "runs_of_0_1"
"""Written by release 0.1, over small spaces: `certified`, a job of a multirun; one run of each other kind.

Pages and figures are left out: of all but `certified`, `written.json` names the page.
"""
PROVEN = ("certified", "mix", "pareto")


@pytest.fixture(params=sorted(path.name for path in RUNS.iterdir()))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(RUNS / request.param, tmp_path / request.param))


def test_classes_of_a_run_folder_have_the_names_of_this_release(run: Path):
    text = (run / "config.yaml").read_text(encoding="utf-8")
    assert "codesign.hardware.Accelerator" in text
    config = read_run(run).config
    assert config["cluster"]["accelerator"]["_target_"] == "codesign.model.hardware.Accelerator"
    named = str(config)
    assert not any(old in named for old in earlier_names.MOVED)


@pytest.mark.slow
def test_its_page_is_built(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", str(run)]) == 0
    assert "time" in (run / "report.html").read_text(encoding="utf-8")
    assert "Traceback" not in capsys.readouterr().err


def test_its_frames_are_asked_by_names_of_this_release(run: Path, capsys: pytest.CaptureFixture[str]):
    old, new = "binds", "active_constraints"
    if run.name == "grid":
        old, new = "agreement_prompts", "slo_prefill_utilisation"
    assert main(["sql", str(run), f"select count({new}) as found from designs"]) == 0
    assert main(["sql", str(run), f"select {old} from designs"]) == 2
    shown = capsys.readouterr()
    assert "found" in shown.out
    assert new in shown.err or "not found" in shown.err


def test_its_metrics_have_names_of_this_release():
    designs = read_run(RUNS / "grid").designs
    assert {"var.token_budget", "slot_utilisation", "hybrid_step_share", "slo_ttft_ratio"} <= {*designs}
    assert not {*earlier_names.METRICS} & {*designs}
    config = read_run(RUNS / "grid").config
    assert config["objective"]["limits"]["slot_utilisation"] == 0.9
    assert config["workload"]["slo"]["attainment"] == 0.99
    assert config["cluster"]["facility"]["ownership"]["_target_"] == "codesign.model.ownership.OnPremises"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PROVEN, "serving"])
def test_a_run_of_an_earlier_model_is_refused_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Its files and names agree; memory is predicted otherwise since, or a space of that name lists more."""
    run = shutil.copytree(RUNS / name, tmp_path / name)
    if "report.html" in (run / "written.json").read_text(encoding="utf-8"):
        assert main(["report", str(run)]) == 0
    assert main(["verify", str(run), "--attack", "0"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "files are what the run wrote, by their checksums" in said
    if name == "serving":
        assert "not verified: designs.parquet has no column var.etp" in said
    else:
        assert "config.yaml is what" in said
        assert "not verified: designs.parquet: row 0: memory_bytes.hbm/working is" in said
    assert "an earlier release wrote it, whose model or errors were others" in said


def test_a_run_without_a_proof_is_told_which_searches_keep_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = shutil.copytree(RUNS / "grid", tmp_path / "grid")
    assert main(["verify", str(run)]) == 2
    assert "has no certificate" in capsys.readouterr().err


def test_every_name_of_release_0_1_stands_for_a_class(capsys: pytest.CaptureFixture[str]):
    earlier_names.say_once.cache_clear()
    known = {
        old + name.removeprefix(new)
        for old, new in earlier_names.MOVED.items()
        for name in targets()
        if name.startswith(new)
    }
    assert len(known) > 150
    for name in known:
        assert resolve(name, "a._target_") is targets()[earlier_names.current_target(name)]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(earlier_names.MOVED)  # one a room
    assert "codesign: _target_ codesign.hardware.* is codesign.model.hardware.* since release 0.2" in " ".join(lines)


@pytest.mark.parametrize(
    ("schema", "said"), [(99, "has schema 99; this release reads up to"), ("two", "schema = 'two'"), (True, "schema =")]
)
def test_a_schema_that_is_not_known(run: Path, schema, said: str):
    tree = json.loads((run / "versions.json").read_text(encoding="utf-8"))
    (run / "versions.json").write_text(json.dumps(tree | {"schema": schema}), encoding="utf-8")
    (run / "written.json").unlink()
    with pytest.raises(ConfigError, match=said):
        read_run(run)


@pytest.fixture(autouse=True)
def every_line_once_a_test():
    earlier_names.say_once.cache_clear()


def plain(overrides: tuple[str, ...]) -> Any:
    return OmegaConf.to_container(compose(list(overrides)), resolve=False)


def test_there_are_forty_configurations_and_each_earlier_name_is_in_one():
    assert len(CONFIGURATIONS) >= 40
    text = " ".join(word for overrides in CONFIGURATIONS for word in overrides)
    keys = {*earlier_names.PLAN} | {key for names in earlier_names.KEYS.values() for key in names}
    missing = {key for key in keys if not re.search(rf"\b{key}[=:.]", text)}
    assert missing <= {"optimiser", "answer_kinds", "values", "paths", "residual"}  # these two as groups


@pytest.mark.parametrize("overrides", CONFIGURATIONS, ids=" ".join)
def test_a_configuration_of_release_0_1_composes_to_names_of_this_one(overrides: tuple[str, ...]):
    tree = plain(overrides)
    assert tree == earlier_names.migrated_config(tree, 1)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", CONFIGURATIONS, ids=" ".join)
def test_a_study_is_made_of_it(overrides: tuple[str, ...]):
    study_from_config(*overrides)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("plan.reduce_often=0",), ("plan.reduce_grads_every_microbatch=0",)),
        (("workload=continuous", "space.plan.chunk=[256]"), ("workload=continuous", "space.plan.token_budget=[256]")),
        (("space.plan={reduce_often: [1]}",), ("space.plan={reduce_grads_every_microbatch: [1]}",)),
        (("workload=goodput", "workload.agreement.share=0.9"), ("workload=goodput", "workload.slo.attainment=0.9")),
        (("objective.limits.batch_used=0.9",), ("objective.limits.slot_utilisation=0.9",)),
        (("objective.minimise=place_wait_s * 2",), ("objective.minimise=queue_wait_s * 2",)),
        (("paths=photonic", "paths.tray_devices=4"), ("path_energy=photonic", "path_energy.tray_devices=4")),
        (("ownership=rented",), ("ownership=cloud",)),
        (("search=whole", "search.units={up: 5}"), ("search=integer", "search.step={up: 5}")),
        (("search=cmaes", "search.peer.most=9"), ("search=cmaes", "search.optimizer.max_population=9")),
    ],
    ids=lambda texts: " ".join(texts),
)  # fmt: skip
def test_an_earlier_name_means_what_the_new_one_means(old, new, capsys: pytest.CaptureFixture[str]):
    assert plain(old) == plain(new)
    told = capsys.readouterr().err.splitlines()
    assert told
    assert all(line.startswith("codesign: ") and "since release 0.2" in line for line in told)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [CONFIGURATIONS[number] for number in (13, -14, -12, -10, -4)], ids=" ".join)
@pytest.mark.parametrize("printed", ["job", "all"])
def test_the_configuration_that_is_printed_has_names_of_this_release(
    overrides: tuple[str, ...], printed: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["optimize", "--cfg", printed, *overrides]) == 0
    tree = yaml.safe_load(capsys.readouterr().out)
    assert ("hydra" in tree) == (printed == "all")
    tree.pop("hydra", None)
    assert tree == plain(overrides)
    assert tree == earlier_names.migrated_config(tree, 1)


def test_a_way_of_counting_that_is_gone():
    tree = {"_target_": "codesign.fabrics.PathEnergy", "tray_devices": 8}
    kept = {"_target_": "codesign.model.networks.fabrics.PathEnergy", "tray_devices": 8}
    assert earlier_names.migrated_config(tree | {"counting": "physical"}, 1, "cluster.paths") == kept
    with pytest.raises(ConfigError, match="counting = 'celestisim' is gone since release"):
        earlier_names.migrated_config(tree | {"counting": "celestisim"}, 1, "cluster.paths")


def test_the_page_of_renamed_things_is_what_the_aliases_are():
    path = Path(__file__).parents[1] / "docs" / "make_renamed.py"
    spec = importlib.util.spec_from_file_location("make_renamed", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run python docs/make_renamed.py"


def test_new_names_are_there_and_earlier_ones_are_not():
    for keys in earlier_names.KEYS.values():
        assert not {*keys} & {*keys.values()}
    assert {*earlier_names.PLAN.values()} <= {*parameters(Plan)}
    assert not {*earlier_names.PLAN} & {*parameters(Plan)}
    assert {*earlier_names.METRICS.values()} <= {*MEANINGS}
    assert {*earlier_names.GROUPS.values()} <= {*groups()}
    for (group, old), new in earlier_names.OPTIONS.items():
        assert new in available(group)
        assert old not in available(group)
    classes = targets()
    for begun, keys in earlier_names.KEYS.items():
        named = [parameters(made) for name, made in classes.items() if name.startswith(f"codesign.{begun}")]
        known = {argument for arguments in named for argument in arguments}
        assert {*keys.values()} <= known, begun
        assert not {*keys} & known - {"batch"}, begun


@pytest.mark.parametrize("command", sorted(earlier_names.COMMANDS))
def test_an_earlier_command_is_the_new_one(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr()
    assert f"codesign {earlier_names.COMMANDS[command]}" in shown.out
    assert shown.err.count("since release 0.2") == 1


OWN = """# @package _global_
# a study in the words of release 0.1
defaults:
  - override /model: llama31_8b
  - override /workload: goodput
  - override /ownership: bought
  - override /quality: null
  - _self_
cluster:
  facility:
    busy_ratio: 0.7
    ownership: {upkeep_ratio: 0.03}
workload:
  agreement: {share: 0.9}
space:
  plan: {chunk: [512]}
objective:
  minimise: batch_used
"""
LAW = """# @package workload.quality
# a law of my own
defaults: [hoffmann, _self_]
entropy: 1.7
"""


def test_own_files_of_release_0_1_are_read(tmp_path: Path):
    for place, text in (("experiment/old.yaml", OWN), ("quality/mine.yaml", LAW)):
        (tmp_path / place).parent.mkdir()
        (tmp_path / place).write_text(text, encoding="utf-8")
    with own_files(tmp_path):
        tree = plain(("experiment=old",))
        law = plain(("workload=training_run", "quality=mine"))["workload"]["scaling_law"]
    assert tree["cluster"]["facility"]["utilisation"] == 0.7
    assert tree["cluster"]["facility"]["ownership"]["maintenance_ratio"] == 0.03
    assert tree["workload"]["slo"] == {
        "_target_": "codesign.model.workloads.SLO", "ttft_s": 2.0, "tpot_s": 0.05, "attainment": 0.9
    }  # fmt: skip
    assert tree["space"]["plan"]["token_budget"] == [512]
    assert tree["objective"]["minimise"] == "slot_utilisation"
    assert law["entropy"] == 1.7
    assert sorted(path.name for path in tmp_path.iterdir()) == ["experiment", "quality"]  # as they were


def test_frames_and_certificates_of_release_0_1_have_the_columns_of_this_one():
    names = ["var.chunk", "mixed_ratio_low", "usage.quality.parameters", "capex.handover", "binds", "low.reduce_often"]
    frame = pd.DataFrame({name: [1.0] for name in names}).assign(path=["cluster.facility.busy_ratio"])
    result = earlier_names.current_frame(frame, 1)
    assert list(result.columns) == [
        "var.token_budget", "hybrid_step_share_low", "usage.scaling_law.parameters", "capex.kv_transfer",
        "active_constraints", "low.reduce_grads_every_microbatch", "path",
    ]  # fmt: skip
    assert list(result["path"]) == ["cluster.facility.utilisation"]
    assert earlier_names.current_frame(frame, earlier_names.SCHEMA) is frame
    claim = {"claim": "best found, no proof: why", "design": {"chunk": 512.0}}
    assert earlier_names.migrated(claim, 1) == {
        "claim": "heuristic solution, no certificate: why", "design": {"token_budget": 512.0}
    }  # fmt: skip
