"""A user's own YAML files beside ours: composed, listed, recorded with a run, refused in one line with their name."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from rich.console import Console

import codesign
import codesign.config.study as composed_study
from codesign.commands.cli import main
from codesign.commands.optimize import run_study
from codesign.commands.skeletons import WITHOUT_CODE
from codesign.config import available, own_files, scenario_from_config, study_from_config, study_from_resolved
from codesign.config.user_files import texts
from codesign.core.errors import ConfigError
from codesign.core.json_yaml import write_yaml
from codesign.explorer.beginning import config_words, given
from codesign.explorer.proving import PROCESS, searched
from codesign.report.run_folder import copied_conf, read_run
from codesign.search.exhaustive.chunks import ChunkWork, study_of
from codesign.search.exhaustive.sweep import Sweep

CHIP = """# @package _global_
# Our chip: an H100 with twice the memory
defaults:
  - h100_sxm
  - _self_
cluster:
  accelerator:
    name: chip
    hbm:
      capacity_bytes: 160GB
    tdp_w: 650
    provenance:
      tdp_w: {source: our data sheet, at: page 3, kind: datasheet}
"""
RACK = """# @package _global_
# Our rack
defaults:
  - train_gpt3_175b
  - override /accelerator: chip
  - _self_
name: rack
"""


def written(folder: Path, **files: str) -> Path:
    """A folder of own files: group__option -> text."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """In a folder whose name has what Hydra's grammar takes for something else."""
    return written(tmp_path / "it's mine, all", accelerator__chip=CHIP, experiment__rack=RACK)


@pytest.mark.slow
def test_own_files_inherit_are_listed_with_their_origin_and_say_where_numbers_come_from(mine: Path):
    study = study_from_config("experiment=rack", conf=mine)
    assert study.scenario.cluster.accelerator.name == "chip"
    assert float(study.scenario.cluster.accelerator.hbm.capacity_bytes) == 160e9
    said = study.provenance
    assert said["cluster.accelerator.hbm.capacity_bytes"]["kind"] == "assumed", "not the H100's data sheet"
    assert said["cluster.accelerator.hbm.capacity_bytes"]["source"].endswith("accelerator/chip.yaml")
    assert said["cluster.accelerator.tdp_w"]["source"] == "our data sheet"
    assert said["cluster.accelerator.hbm.bandwidth_bytes_per_s"]["kind"] == "datasheet"
    assert study.conf == (mine.resolve(),)
    with own_files(mine):
        told = available("accelerator")["chip"]
        assert float(scenario_from_config("accelerator=chip").cluster.accelerator.tdp_w) == 650
    assert told.startswith("Our chip: an H100 with twice the memory (own file ")
    with pytest.raises(ConfigError, match="accelerator = chip does not exist"):
        scenario_from_config("accelerator=chip")


@pytest.mark.slow
def test_a_command_takes_the_folder_and_a_file_that_changes_is_read_anew(mine: Path, capsys: pytest.CaptureFixture):
    assert main(["list", "accelerator", "chip", "--conf", str(mine)]) == 0
    assert "Our chip" in capsys.readouterr().out
    assert main(["optimize", "--cfg", "job", "-p", "name", "experiment=rack", "--conf", str(mine)]) == 0
    assert "rack" in capsys.readouterr().out
    written(mine, accelerator__chip=CHIP.replace("650", "600"))
    os.utime(mine / "accelerator" / "chip.yaml", ns=(1, 1))
    assert float(scenario_from_config("accelerator=chip", conf=mine).cluster.accelerator.tdp_w) == 600
    assert float(scenario_from_config("accelerator=h100_sxm", conf=str(mine)).cluster.accelerator.tdp_w) != 600


@pytest.mark.slow
def test_nothing_is_composed_once_the_search_has_begun(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The devices of the designs are named by the files as they were when the study was composed."""
    few = ("plan.virtual_stages=1", "~space.plan", "+space.plan={tp: [4, 8], pp: [1]}")
    more = ("accelerator=chip", "model=llama31_8b", "search=certified", "accelerator.hbm.capacity_bytes=150e9")
    study = study_from_config(*more, *few, conf=mine)
    search = type(study.search).run

    def begun(*arguments: Any) -> Any:
        for path in mine.rglob("*.yaml"):
            path.unlink()
        for name in ("compose", "chosen_options"):
            monkeypatch.setattr(composed_study, name, None)
        return search(*arguments)

    monkeypatch.setattr(type(study.search), "run", begun)
    (tmp_path / "run").mkdir()
    done = run_study(study, tmp_path / "run", Console(quiet=True), alone=False)
    assert done.results.designs["device"].tolist() == ["chip (modified)"] * len(done.results.designs)
    (text,) = done.results.catalogue
    assert text.startswith("HBM capacity 150 GB (catalogue: ")


@pytest.mark.slow
def test_a_run_keeps_the_files_it_was_composed_with(mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    few = ("plan.virtual_stages=1", "~space.plan", "+space.plan={tp: [4, 8], pp: [1]}")
    study = study_from_config("accelerator=chip", "model=llama31_8b", "search=certified", *few, conf=mine)
    run = tmp_path / "run"
    run.mkdir()
    run_study(study, run, Console(quiet=True), alone=False)
    with own_files(mine):
        kept = {place: (run / "conf" / place).read_text(encoding="utf-8") for place in texts()}
        assert kept == texts()
    for path in mine.rglob("*.yaml"):
        path.unlink()
    result = read_run(run)
    assert result.conf == (run / "conf",)
    again = study_from_resolved(OmegaConf.create(result.config), result.overrides, result.conf)
    assert again.provenance["cluster.accelerator.hbm.capacity_bytes"]["kind"] == "assumed"
    assert main(["export", str(run), "--to", "megatron"]) == 0
    assert main(["verify", str(run), "--attack", "64"]) == 0  # wherever the files lay
    explored = given([str(run)])
    assert explored.study.conf == ((run / "conf").resolve(),)
    assert config_words(explored.study) == ["--conf", str((run / "conf").resolve())]
    words = [*PROCESS, "0", str(tmp_path / "proof"), *config_words(explored.study), *searched(explored, {})]
    root = str(Path(codesign.__file__).resolve().parent.parent)
    proof = subprocess.run([sys.executable, *words], env=os.environ | {"PYTHONPATH": root}, capture_output=True)
    assert proof.returncode == 0, proof.stderr
    (run / "designs.parquet").rename(run / "kept")
    with pytest.raises(ConfigError, match=r"repeat it with `codesign optimize --conf .*conf accelerator=chip"):
        read_run(run)
    (run / "kept").rename(run / "designs.parquet")
    changed = run / "conf" / "accelerator" / "chip.yaml"
    changed.write_text(CHIP.replace("650", "651"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"chip\.yaml' is not what the run wrote"):
        copied_conf(run)
    changed.unlink()
    capsys.readouterr()
    assert main(["verify", str(run)]) == 1
    assert "conf/accelerator/chip.yaml is missing: written.json has its checksum" in capsys.readouterr().out


def test_a_job_that_is_run_elsewhere_knows_the_files_by_its_hydra_settings(mine: Path, monkeypatch, tmp_path):
    """`hydra/launcher=joblib` starts processes that have none of this one's state."""
    from hydra import compose, initialize_config_dir

    from codesign.config import search_path
    from codesign.config.groups import conf_dir

    monkeypatch.chdir(tmp_path)
    with own_files(mine):
        asked = search_path()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = compose("config", [*asked, "accelerator=chip"], return_hydra_config=True)
    assert str(mine.resolve()) in [source.path for source in config.hydra.runtime.config_sources]


HEAD = "# @package _global_\n# x\n"
NAMED = "cluster: {accelerator: {name: x%s}}\n"
WRONG = {
    "a name of ours": ("accelerator__h200", CHIP, "accelerator=h200 is there already"),
    "a group that is none": ("acelerator__x", CHIP, "did you mean 'accelerator'"),
    "no first line": ("accelerator__x", "name: x\n", "its first line must be `# @package _global_`"),
    "a first line too many": ("search__x", HEAD + "a: 1\n", "its first line must not be a `# @package` line"),
    "a class of another package": (
        "accelerator__x", HEAD + NAMED % ", hbm: {_target_: os.system}", "_target_ = 'os.system' is refused"),
    "settings of Hydra": ("experiment__x", HEAD + "hydra: {launcher: {_target_: codesign.x}}\n", "settings of Hydra"),
    "a launcher": ("experiment__x", HEAD + "defaults: [override /hydra/launcher: joblib]\n", "settings of Hydra"),
    "another place": ("experiment__x", HEAD + "defaults: [/search@hydra.launcher: grid]\n", "settings of Hydra"),
    "the environment": ("experiment__x", HEAD + "name: ${oc.env:HOME}\n", "asks for something outside"),
    "no YAML": ("experiment__x", HEAD + "name: [1\n", "line 4, cannot be read"),
    "no mapping": ("experiment__x", HEAD + "- 1\n", "should map keys to values"),
    "no list of defaults": ("experiment__x", HEAD + "defaults: 1\n", "defaults must be a list"),
    "too deep": ("experiment__x", HEAD + "a: " + "[" * 99 + "]" * 99, "levels deep"),
    "what grows": (
        "experiment__x",
        HEAD + "a0: &a0 [1, 1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)),
        "values once"),
    "no name": ("accelerator__x", HEAD + "defaults: [h100_sxm, _self_]\n", "cluster.accelerator.name is missing"),
    "no name of a model": ("model__x", "# @package workload.model\nlayers: 1\n", "name is missing"),
    "a name with a space": ("experiment__x y", HEAD + "name: x\n", "call it NAME.yaml"),
    "nothing to inherit from": ("accelerator__x", HEAD + "defaults: [h100_sxmm]\n" + NAMED % "", "/h100_sxmm"),
    "an argument that is none": (
        "accelerator__x", HEAD + "defaults: [h100_sxm, _self_]\n" + NAMED % ", tdp: 7",
        "x.yaml: cluster.accelerator.tdp = 7: Accelerator has no such argument (did you mean 'tdp_w'"),
    "out of range": (
        "accelerator__x", HEAD + "defaults: [h100_sxm, _self_]\n" + NAMED % ", hbm: {capacity_bytes: -1}",
        "x.yaml: cluster.accelerator.hbm.capacity_bytes = -1 is outside"),
    "another unit": (
        "accelerator__x", HEAD + "defaults: [h100_sxm, _self_]\n" + NAMED % ", hbm: {capacity_bytes: 3 s}",
        "x.yaml: cluster.accelerator.hbm.capacity_bytes = '3 s' is measured in something else"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_line_with_the_file(case: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    name, text, said = WRONG[case]
    folder = written(tmp_path / "mine", **{name: text})
    group, _, option = name.partition("__")
    assert main(["evaluate", "--conf", str(folder), f"{group}={option}"]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1
    assert option in printed or group in printed


def test_what_is_no_folder_of_files_is_one_line(tmp_path: Path):
    def refused(*folders: Path | str) -> str:
        with pytest.raises(ConfigError) as caught, own_files(*folders):
            raise AssertionError
        return str(caught.value)

    assert "there is no such folder" in refused(tmp_path / "nowhere")
    assert "no group with a file in it" in refused(tmp_path)
    (tmp_path / "x.yaml").write_text("a: 1\n", encoding="utf-8")
    assert "x.yaml: it stands in no group" in refused(tmp_path)
    (tmp_path / "x.yaml").unlink()
    (tmp_path / "accelerator").mkdir()
    os.mkfifo(tmp_path / "accelerator" / "pipe.yaml")
    assert "pipe.yaml cannot be read: it is no regular file" in refused(tmp_path)
    (tmp_path / "accelerator" / "pipe.yaml").unlink()
    (tmp_path / "accelerator" / "x.yml").write_text(CHIP, encoding="utf-8")
    assert "x.yml: call it NAME.yaml" in refused(tmp_path)
    (tmp_path / "accelerator" / "x.yml").unlink()
    one = written(tmp_path / "one", accelerator__chip=CHIP)
    two = written(tmp_path / "two", accelerator__chip=CHIP)
    with own_files(one, two), pytest.raises(ConfigError, match="accelerator=chip is two files"):
        scenario_from_config("accelerator=chip")
    with own_files(one, two), pytest.raises(ConfigError, match="another folder of --conf has a file of that name"):
        texts()


@pytest.mark.slow
def test_what_is_composed_does_not_depend_on_where_the_files_lie(mine: Path, tmp_path: Path):
    other = written(tmp_path / "elsewhere", accelerator__chip=CHIP, experiment__rack=RACK)
    assert len({write_yaml(study_from_config("experiment=rack", conf=one).resolved) for one in (mine, other)}) == 1


def test_a_new_file_works_as_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture):
    folder = tmp_path / "mine"
    for kind in WITHOUT_CODE:
        assert main(["scaffold", kind, f"my_{kind}", "--conf", str(folder)]) == 0
        assert f"--conf {folder} {kind}=my_{kind}" in capsys.readouterr().out
    study = study_from_config("experiment=my_experiment", "accelerator=my_accelerator", "model=my_model", conf=folder)
    assert study.scenario.cluster.accelerator.name == "my_accelerator"
    assert float(study.scenario.workload.model.layers) == 96
    for asked, said in (
        (["accelerator", "my_accelerator", "--conf", str(folder)], "exists already"),
        (["fabric", "x", "--conf", str(folder)], "needs a package of its own"),
        (["modle", "x", "--conf", str(folder)], "did you mean 'model'"),
        (["model", "X", "--conf", str(folder)], "lower-case letters"),
        (["model", "x", "--conf", str(folder), "--package", "y"], "exclude each other"),
    ):
        assert main(["scaffold", *asked]) == 2
        printed = capsys.readouterr().err
        assert said in printed
        assert printed.count("\n") == 1


@pytest.mark.slow
def test_an_experiment_does_not_overrule_a_chosen_file_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture):
    plan = tmp_path / "plan" / "mine.yaml"
    plan.parent.mkdir()
    plan.write_text("_target_: codesign.model.workloads.Plan\ntp: 4\nmicro_batch: 32\n")
    asked = ("experiment=disaggregation", "plan=mine")
    with pytest.raises(ConfigError, match=r"plan.tp: experiment=disaggregation sets 8 over the 4 of plan=mine: type"):
        scenario_from_config(*asked, conf=tmp_path)
    with pytest.raises(ConfigError, match=r"plan.tp=4 or plan.tp=8"):
        study_from_config(*asked, conf=tmp_path)
    assert scenario_from_config(*asked, "plan.tp=4", conf=tmp_path).plan.tp == 4
    capsys.readouterr()
    assert scenario_from_config("experiment=disaggregation", "plan=data_parallel").plan.tp == 8
    assert capsys.readouterr().err == "codesign: experiment=disaggregation sets plan.tp=8 over plan=data_parallel\n"


def test_a_worker_needs_no_own_files(mine: Path):
    """What is sent to processes, to Ray and to Slurm is built: none of them looks for the folder."""
    few = ("space.plan.tp=[1]", "space.plan.micro_batch=[1,2]")
    study = study_from_config("accelerator=chip", "model=llama31_8b", "search=grid", *few, conf=mine)
    sent = pickle.dumps(ChunkWork(Sweep(study.problem, 64, 4), np.linspace(0.0, 1.0, 65)))
    for path in sorted(mine.rglob("*.yaml")):
        path.unlink()
    work = pickle.loads(sent)
    assert float(work.problem.scenario.cluster.accelerator.tdp_w) == 650
    assert study_of(Sweep(work.problem, 64, 4)) == work.study
