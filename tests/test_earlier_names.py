"""Run folders and configurations of release 0.1 are read as they are."""

import json
import shutil
from pathlib import Path

import pytest

from codesign import ConfigError
from codesign.commands.cli import main
from codesign.config.construct import resolve, targets
from codesign.core import earlier_names
from codesign.report.run_folder import read_run

RUNS = Path(__file__).with_name("data") / "runs_of_0_1"
"""Jobs of a multirun over a small space of `experiment=codesign_175b`, written by release 0.1."""


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


@pytest.mark.slow
def test_its_proof_is_verified(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["verify", str(run), "--attack", "1024"]) == 0
    assert "verified: " in capsys.readouterr().out


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
