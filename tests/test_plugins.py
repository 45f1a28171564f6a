"""Somebody else's package adds a component of every kind and an experiment; nothing of this repository is edited."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from codesign.commands.skeletons import CLASSES, KINDS, new, next_steps
from codesign.core.errors import ConfigError

SOURCE = Path(__file__).parent / "data" / "plugin" / "codesign_torus"
NAMES = {
    "fabric": "hyperx",
    "collective": "halving",
    "search": "lucky",
    "experiment": "hyperx_study",
    "workload": "sampling",
    "model": "dit_xl",
    "plan": "sampling",
    "space": "sampling",
    "accelerator": "h150",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package and its entry point, as an installer leaves it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(SOURCE, folder / "codesign_torus")
    about = folder / "codesign_torus-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: codesign-torus\nVersion: 0.1\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[codesign]\ntorus = codesign_torus\n", encoding="utf-8")
    return folder


MANY = """
import contextlib, gc, io, json, sys
from codesign.commands.cli import main
gc.disable()  # it does not live long
for command in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


class Done(NamedTuple):
    """Exit code and what was printed."""

    returncode: int
    stdout: str
    stderr: str


def ran(installed: Path, *arguments: str) -> Done:
    """One command."""
    return ran_together(installed, arguments)[0]


def ran_together(installed: Path, *commands: Sequence[str]) -> list[Done]:
    """Several commands, one after the other in one process, which has the plug-in."""
    paths = [str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    asked = [sys.executable, "-c", MANY, json.dumps(commands)]
    done = subprocess.run(asked, cwd=installed, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [Done(*json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_what_a_plugin_brings_is_listed_priced_searched_and_under_contract(installed: Path):
    *lists, result, done, checked = ran_together(
        installed,
        *(["list", group] for group in NAMES),
        ["evaluate", "experiment=hyperx_study", "accelerator=h150", "fabric=hyperx", "--json"],
        ["optimize", "experiment=hyperx_study", "search.plans=4"],
        ["check-plugin"],
    )
    for name, listed in zip(NAMES.values(), lists, strict=True):
        assert name in listed.stdout
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["time_s"] > 0
    assert done.returncode in (0, 2), done.stderr
    (folder,) = (installed / "runs").glob("*hyperx_study")
    assert "codesign_torus.Lucky" in (folder / "config.yaml").read_text(encoding="utf-8")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    brought = ("HyperX", "HalvingDoublingAllReduce", "Sampling", "Lucky")
    assert checked.stdout.splitlines() == [f"codesign_torus.{name}: keeps its contract" for name in brought]


@pytest.mark.slow
def test_a_family_of_workloads_is_certified_checked_and_told_in_its_own_words(installed: Path):
    """Sampling from a diffusion transformer: fields, axes, rules and words of its own."""
    refusals = {
        ("evaluate", "plan.tp=3"): "plan.tp = 3 does not divide model.heads = 16",
        ("evaluate", "plan=data_parallel"): "plan = Plan: Sampling is laid out by a SamplingPlan",
        ("optimize", "space.plan.pp=[1,2]"): "space.plan.pp is no field of SamplingPlan",
    }
    study = "experiment=sampling_study"
    done, *refused = ran_together(
        installed, ["optimize", study], *([command, study, change] for command, change in refusals)
    )
    assert done.returncode == 0, done.stderr
    assert "certified: proven within" in done.stdout + done.stderr
    assert "every step in 2 whole" in done.stdout
    assert "images/s" in done.stdout
    for said, one in zip(refusals.values(), refused, strict=True):
        assert one.returncode == 2
        assert said in one.stderr
        assert one.stderr.count("\n") == 1
    (folder,) = (installed / "runs").glob("*sampling_study")
    page = (folder / "report.html").read_text(encoding="utf-8")
    for words in ("dit_xl sampling on 8", "Denoising step", "One batch of images", "% denoising", "Time to an image"):
        assert words in page, words
    assert "per million tokens" not in page
    checked = ran(installed, "verify", str(folder), "--attack", "2000")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "verified: no usd_per_million_tokens below" in checked.stdout


@pytest.mark.slow
def test_a_plugin_that_breaks_is_told_in_one_line(installed: Path, tmp_path: Path):
    broken = tmp_path / "site"
    shutil.copytree(installed, broken, ignore=shutil.ignore_patterns("runs"))
    for text, said in (
        ("import nowhere_at_all\n", "plug-in 'torus' cannot be imported: ModuleNotFoundError: No module named"),
        (
            "from codesign.model.networks.fabrics import AbstractFabric\n\nclass Half(AbstractFabric):\n"
            "    def reach(self):\n        return 1.0\n",
            "plug-in 'torus': Half lacks capex_usd, link, static_power_w, which its base asks for",
        ),
    ):
        (broken / "codesign_torus" / "__init__.py").write_text(text, encoding="utf-8")
        refused = ran(broken, "evaluate")
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"codesign: {said}")
        assert refused.stderr.count("\n") == 1
    shutil.copy(installed / "codesign_torus" / "__init__.py", broken / "codesign_torus" / "__init__.py")
    wired = broken / "codesign_torus" / "fabric.py"
    text = wired.read_text(encoding="utf-8").replace("return Link(3 * self.latency_s, ", "return (3 * self.latency_s, ")
    wired.write_text(text, encoding="utf-8")
    refused = ran(broken, "evaluate", "experiment=hyperx_study")
    assert refused.returncode == 2
    assert refused.stderr.startswith(
        "codesign: HyperX: legal and sensible for every group: fails with AttributeError: "
    )
    assert refused.stderr.count("\n") == 1
    shutil.rmtree(broken / "codesign_torus")
    assert "names the package 'codesign_torus', which cannot be imported" in ran(broken, "evaluate").stderr


@pytest.mark.slow
def test_a_file_of_an_option_that_exists_is_refused(installed: Path, tmp_path: Path):
    twice = tmp_path / "site"
    shutil.copytree(installed, twice, ignore=shutil.ignore_patterns("runs"))
    conf = twice / "codesign_torus" / "conf"
    shutil.copy(conf / "fabric" / "hyperx.yaml", conf / "fabric" / "scin.yaml")
    refused = ran(twice, "evaluate", "fabric=scin")
    assert refused.returncode == 2
    assert "fabric=scin is two files" in refused.stderr


@pytest.mark.slow
def test_skeletons_of_every_kind_work_as_they_are_written(tmp_path: Path):
    """One package with all of them, installed as its own pyproject says, priced and searched."""
    for kind in KINDS:
        files = new(kind, f"my_{kind}", "mine", tmp_path)
        assert files[0].is_file()
        chosen = {"workload": "experiment", "kernel": "calibration"}.get(kind, kind)
        asked = f"codesign {'optimize' if kind in ('search', 'runner') else 'evaluate'} {chosen}=my_{kind}"
        assert asked in next_steps(kind, f"my_{kind}", files)
    project = tmp_path / "mine"
    entry = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][
        "codesign.plugins"
    ]
    about = project / "mine-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 0.1\n", encoding="utf-8")
    points = "\n".join(f"{name} = {package}" for name, package in entry.items())
    (about / "entry_points.txt").write_text(f"[codesign.plugins]\n{points}\n", encoding="utf-8")
    chosen = [f"{kind}=my_{kind}" for kind in KINDS if kind not in ("search", "runner", "workload", "kernel")]
    family = ["evaluate", "experiment=my_workload", "plan.tp=4", "--json"]
    timed = ["evaluate", "calibration=my_kernel", "--json"]
    searched = ["optimize", "experiment=my_workload", "runner=my_runner"]
    result, own, kernel, run, listed, checked = ran_together(
        project, ["evaluate", *chosen, "--json"], family, timed, searched, ["list", "search"], ["check-plugin"]
    )
    for priced in (result, own, kernel):
        assert priced.returncode == 0, priced.stderr
        assert json.loads(priced.stdout)["time_s"] > 0
    assert run.returncode == 0, run.stderr
    assert "my_search" in listed.stdout
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("keeps its contract") == len(CLASSES)
    with pytest.raises(ConfigError, match="exists already"):
        new("fabric", "my_fabric", "mine", tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("fabrik", "x", "did you mean 'fabric'"),
        ("fabric", "Hyper-X", "lower-case letters"),
        ("search", "class", "must be"),
    ],
)
def test_names_that_cannot_be_are_refused(kind: str, name: str, said: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=said):
        new(kind, name, name if name == "class" else None, tmp_path)
    assert not list(tmp_path.iterdir())
