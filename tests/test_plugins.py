"""Somebody else's package adds an accelerator, fabric, collective, search and experiment; nothing is edited."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from codesign.errors import ConfigError
from codesign.run.skeletons import KINDS, new, told

SOURCE = Path(__file__).parent / "data" / "plugin" / "codesign_torus"
NAMES = {
    "fabric": "hyperx",
    "collective": "halving",
    "search": "lucky",
    "experiment": "hyperx_study",
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


def ran(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = [str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "codesign", *arguments]
    return subprocess.run(command, cwd=installed, env=environment, capture_output=True, text=True, check=False)


def test_what_a_plugin_brings_is_listed_priced_and_searched(installed: Path):
    for group, name in NAMES.items():
        assert name in ran(installed, "list", group).stdout
    found = ran(installed, "evaluate", "experiment=hyperx_study", "accelerator=h150", "fabric=hyperx", "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["time_s"] > 0
    done = ran(installed, "optimize", "experiment=hyperx_study", "search.plans=4")
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    (folder,) = (installed / "runs").iterdir()
    assert "codesign_torus.Lucky" in (folder / "config.yaml").read_text(encoding="utf-8")


def test_a_plugin_that_breaks_is_told_in_one_line(installed: Path, tmp_path: Path):
    broken = tmp_path / "site"
    shutil.copytree(installed, broken, ignore=shutil.ignore_patterns("runs"))
    for text, said in (
        ("import nowhere_at_all\n", "plug-in 'torus' cannot be imported: ModuleNotFoundError: No module named"),
        (
            "from codesign.fabrics import AbstractFabric\n\nclass Half(AbstractFabric):\n    def reach(self):\n"
            "        return 1.0\n",
            "plug-in 'torus': Half lacks capex_usd, link, static_power_w, which its base asks for",
        ),
    ):
        (broken / "codesign_torus" / "__init__.py").write_text(text, encoding="utf-8")
        refused = ran(broken, "evaluate")
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"codesign: {said}")
        assert refused.stderr.count("\n") == 1
    shutil.rmtree(broken / "codesign_torus")
    assert "names the package 'codesign_torus', which cannot be imported" in ran(broken, "evaluate").stderr


def test_a_file_of_an_option_that_exists_is_refused(installed: Path, tmp_path: Path):
    twice = tmp_path / "site"
    shutil.copytree(installed, twice, ignore=shutil.ignore_patterns("runs"))
    conf = twice / "codesign_torus" / "conf"
    shutil.copy(conf / "fabric" / "hyperx.yaml", conf / "fabric" / "scin.yaml")
    refused = ran(twice, "evaluate", "fabric=scin")
    assert refused.returncode == 2
    assert "fabric=scin is two files" in refused.stderr


def test_skeletons_of_every_kind_work_as_they_are_written(tmp_path: Path):
    """One package with all of them, installed as its own pyproject says, priced and searched."""
    for kind in KINDS:
        files = new(kind, f"my_{kind}", "mine", tmp_path)
        assert files[0].is_file()
        assert f"codesign {'optimize' if kind == 'search' else 'evaluate'} {kind}=my_{kind}" in told(
            kind, f"my_{kind}", files
        )
    project = tmp_path / "mine"
    entry = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][
        "codesign"
    ]
    about = project / "mine-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 0.1\n", encoding="utf-8")
    points = "\n".join(f"{name} = {package}" for name, package in entry.items())
    (about / "entry_points.txt").write_text(f"[codesign]\n{points}\n", encoding="utf-8")
    chosen = [f"{kind}=my_{kind}" for kind in KINDS if kind != "search"]
    found = ran(project, "evaluate", *chosen, "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["time_s"] > 0
    assert "my_search" in ran(project, "list", "search").stdout
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
