"""Real signals to a real process: what was found is written, what was computed is not lost, nothing is a traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from codesign.config import study_from_config
from codesign.search.exhaustive.grid import CHECKPOINT, CheckpointSettings, screen, trace_of_screened

STUDY = ["experiment=train_dlrm", "calibration=h100_sxm_roofline"]
CERTIFIED = ["calibration=h100_sxm_roofline", "search=certified", "search.gap=1e-12", "search.explain=false"]  # lasts
LEVELS = [f"space.hardware.{name}.grid=100" for name in ("scale_up_bandwidth", "scale_out_bandwidth")]
GRID = [*STUDY, *LEVELS, "search=grid", "search.batch_size=1024", "search.every_s=0"]


def started(folder: Path, *overrides: str, **environment: str) -> subprocess.Popen:
    cache = Path(__file__).resolve().parent.parent / ".cache" / "jax"
    command = [sys.executable, "-m", "codesign", "optimize", *overrides]
    settings = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache)} | environment
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(command, cwd=folder, env=settings, **pipes)


@pytest.mark.slow
def test_ctrl_c_returns_the_best_design_with_its_gap(tmp_path):
    process = started(tmp_path, *CERTIFIED)
    assert process.stdout
    for line in process.stdout:  # the search is under way
        if line.startswith("looking for a good design: "):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "stopping with the best design so far; Ctrl-C again stops at once"
    assert "best designs by usd_per_million_tokens" in out
    assert "interrupted: proven within" in out
    assert "usd_per_million_tokens: best " in out
    (folder,) = (tmp_path / "runs").iterdir()
    names = {path.name for path in folder.iterdir()}
    assert {"config.yaml", "summary.json", "designs.parquet", "ops.parquet", "report.html"} <= names
    assert not [name for name in names if name.endswith(".partial")]
    assert pd.read_parquet(folder / "designs.parquet").iloc[0]["feasible"]


@pytest.mark.slow
@pytest.mark.parametrize("at_work", ["what it imports", "its trace"])
def test_ctrl_c_before_the_search_is_one_line(tmp_path, at_work):
    """Nothing is kept of another run: a trace takes seconds, and begins when the configuration is kept."""
    process = started(tmp_path, *CERTIFIED, XDG_CACHE_HOME=str(tmp_path))
    time.sleep(0.4)
    while at_work == "its trace" and not list(tmp_path.glob("*/composed/*.json")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert err.strip().startswith("codesign: interrupted")
    assert err.strip().count("\n") == 0


@pytest.mark.slow
def test_a_killed_grid_goes_on_where_it_was(tmp_path):
    process = started(tmp_path, *GRID)
    while not list(tmp_path.glob(f"runs/*/{CHECKPOINT}")) and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    (folder,) = (tmp_path / "runs").iterdir()
    problem = study_from_config(*GRID).problem
    told: list[int] = []
    again = screen(problem, 1024, lambda p: told.append(p.done), 64, CheckpointSettings(resume=str(folder)))
    assert told[0] > 1024  # what the killed one had done is not done again
    whole = screen(problem, 1024)
    assert again.evaluated == whole.evaluated
    for name, column in trace_of_screened(problem, whole).points.items():
        np.testing.assert_array_equal(trace_of_screened(problem, again).points[name], column)
