"""The lock file works anywhere, and the wheel takes configurations and experiments along."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import codesign

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
DIRECT = [Requirement(text) for text in PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]]


def test_lock_holds_only_pinned_names():
    """No host, folder, option or link: where packages come from is the reader's own configuration."""
    pin = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+( ; [^/@]+)?")
    assert [line for line in LOCK if not pin.fullmatch(line)] == []


@pytest.mark.parametrize("requirement", DIRECT, ids=lambda requirement: requirement.name)
def test_lock_satisfies_each_direct_dependency(requirement):
    pins = [pin for pin in map(Requirement, LOCK) if canonicalize_name(pin.name) == canonicalize_name(requirement.name)]
    assert pins, f"{requirement.name} is not locked: compile requirements.lock again"
    for pin in pins:
        (version,) = (specifier.version for specifier in pin.specifier)
        assert requirement.specifier.contains(version), f"{pin} does not satisfy {requirement}"


def test_wheel_ships_configurations_and_experiments():
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["codesign"]
    assert wheel["force-include"] == {"conf": "codesign/conf", "experiments": "codesign/experiments"}


def test_the_version_stands_in_one_place():
    """The wheel, the page of a run and what chunks are named by say the same."""
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"] == {"path": "codesign/_version.py"}
    said = re.findall(r'^__version__ = "(.*)"$', (ROOT / "codesign" / "_version.py").read_text("utf-8"), re.MULTILINE)
    assert said == [codesign.__version__]


def test_a_hosted_service_runs_every_python_that_is_allowed():
    matrix = yaml.safe_load((ROOT / ".ci" / "matrix.yml").read_text(encoding="utf-8"))
    pythons = matrix["jobs"]["suite"]["strategy"]["matrix"]["python"]
    allowed = SpecifierSet(PROJECT["project"]["requires-python"])
    assert pythons == [f"3.{minor}" for minor in range(30) if allowed.contains(f"3.{minor}") and minor < 15]
    named = [text.split(" :: ")[-1] for text in PROJECT["project"]["classifiers"] if " Python :: 3." in text]
    assert set(named) <= set(pythons)
    steps = matrix["jobs"]["suite"]["steps"] + matrix["jobs"]["release"]["steps"]
    for command in (step["run"] for step in steps if "run" in step):
        assert (ROOT / command.split()[1]).is_file()


FLOW = """
import contextlib, io, json, sys
from pathlib import Path
from codesign.commands.cli import main
from codesign.config import conf_dir, own_files
from codesign.config.composition import compose
from codesign.evidence.reproduction import available, experiments_folder, load
said = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        said.append([main(command), out.getvalue()])
with own_files("mine"):
    assert compose(["accelerator=my_chip"]).cluster.accelerator.name == "my_chip"
load(available()["scin_waves"])
shared = sys.modules["_lib.in_switch"].__file__
print(json.dumps([said, str(conf_dir()), str(experiments_folder()), shared, len(available())]))
"""


@pytest.mark.slow
def test_what_is_installed_works_from_an_empty_folder(tmp_path: Path):
    """The layout of the wheel, as the build file says it; `run_documented.py --codesign PATH` runs a built one."""
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    site, here = tmp_path / "site", tmp_path / "here"
    here.mkdir()
    for source, place in {**{name: name for name in wheel["packages"]}, **wheel["force-include"]}.items():
        shutil.copytree(ROOT / source, site / place)
    commands = [
        ["list", "accelerator"],
        ["scaffold", "accelerator", "my_chip", "--conf", "mine"],
        ["list", "accelerator", "my_chip", "--conf", "mine"],
        ["scaffold", "fabric", "my_ring"],
    ]
    known = os.environ | {"PYTHONPATH": str(site), "HOME": str(tmp_path)}
    asked = [sys.executable, "-c", FLOW, json.dumps(commands)]
    done = subprocess.run(asked, cwd=here, env=known, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said, conf, experiments, shared, count = json.loads(done.stdout.splitlines()[-1])
    assert [code for code, _ in said] == [0] * len(commands)
    assert (conf, experiments) == (str(site / "codesign" / "conf"), str(site / "codesign" / "experiments"))
    assert shared == str(site / "codesign" / "experiments" / "_lib" / "in_switch.py")
    assert count > 30
    assert "own file mine/accelerator/my_chip.yaml" in said[2][1]
    assert "next: pip install -e codesign_my_ring" in said[3][1]
