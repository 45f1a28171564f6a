"""Runners: the contract of each that starts quickly, workers that are lost, processes that nobody is left to ask."""

import contextlib
import operator
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import pytest
from unlucky import Dying

from codesign.core.errors import CodesignError, ConfigError
from codesign.executors import Local, RayCluster, Serial, Slurm
from codesign.testing import broken


@pytest.mark.parametrize("cls", [Serial, Local], ids=lambda cls: cls.__name__)
def test_runners_keep_their_contract(cls):
    """Those of clusters are tried by qa/clusters.py: Ray takes 15 s to start, and Slurm is a service."""
    assert broken(cls) == []


class Jobs:
    """Stands for submitit: runs each job of an array here when it is sent; the first one of all is lost half-way."""

    sent: ClassVar[list[int]] = []

    def batch(self):
        return contextlib.nullcontext()

    def submit(self, serve, box: str, share: dict[int, int]) -> "Jobs":
        lost = {} if self.sent else dict(list(share.items())[1:])
        self.sent.append(len(share))
        serve(box, {number: task for number, task in share.items() if number not in lost})
        return self

    def done(self) -> bool:
        return True

    def cancel(self, check: bool) -> None:
        pass


def test_what_lost_jobs_left_undone_goes_into_another_array(tmp_path, monkeypatch):
    monkeypatch.setattr(Slurm, "_executor", lambda self, box: Jobs())
    monkeypatch.setattr("codesign.executors.slurm.TICK_S", 0.01)
    runner = Slurm(workers=2, folder=str(tmp_path), cluster="local")
    result = [one for one in runner.results(operator.neg, range(6)) if one is not None]
    assert sorted(result) == [-5, -4, -3, -2, -1, 0]
    assert Jobs.sent == [3, 3, 1, 1]
    assert list(tmp_path.iterdir()) == []


def test_a_lost_workers_task_is_done_by_another(tmp_path):
    result = [one for one in Local(2).results(Dying(3, tmp_path / "flag"), range(9)) if one is not None]
    assert sorted(result) == list(range(9))


def test_a_task_that_no_worker_survives_is_one_line():
    with pytest.raises(CodesignError, match=r"runner=local: 3 ended its worker 2 times; where memory is short, take "):
        list(Local(1, retries=1).results(Dying(3, None), range(9)))


def test_work_that_cannot_be_sent_is_one_line():
    with pytest.raises(ConfigError, match="the study cannot be sent to another process: "):
        list(Local(1).results(lambda task: task, range(2)))


def alive(pid: int) -> bool:
    """Whether a process runs (one that ended and waits to be asked does not)."""
    with contextlib.suppress(OSError):
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return False


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="processes are read from /proc")
def test_no_worker_outlives_who_started_it(tmp_path):
    """Killed at once, while its workers are at tasks that would take an hour."""
    code = (
        "import os, time, pathlib\nfrom codesign.executors import Local\n"
        "from unlucky import Waiting\nprint(list(Local(2).results(Waiting(), [1, 2])))\n"
    )
    settings = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=settings)
    while len(list(tmp_path.glob("*.pid"))) < 2 and process.poll() is None:
        time.sleep(0.02)
    workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
    assert [alive(pid) for pid in workers] == [True, True]
    process.kill()
    process.wait()
    until = time.monotonic() + 10
    while any(map(alive, workers)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(alive, workers))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Local(workers=-1), "runner.workers = -1 must be at least 1; leave it out for one a processor"),
        (lambda: RayCluster(workers=0), "runner.workers = 0 must be at least 1; leave it out for one a processor"),
        (lambda: Local(chunk_s=0.0), "runner.chunk_s = 0.0 must be positive: seconds that a task should take"),
        (lambda: RayCluster(retries=-1), "runner.retries = -1 must be at least 0"),
        (lambda: Slurm(cluster="pbs"), "runner.cluster = 'pbs' must be one of slurm, local"),
    ],
)
def test_settings_that_no_runner_can_have(made, said):
    with pytest.raises(ConfigError) as refused:
        made()
    assert str(refused.value) == said


@pytest.mark.parametrize(("runner", "package"), [(RayCluster(), "ray"), (Slurm(cluster="local"), "submitit")])
def test_a_package_that_is_missing_is_one_line(monkeypatch, runner, package):
    module = sys.modules[type(runner).__module__]
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=rf"needs the package {package}: pip install 'codesign\[cluster\]'"):
        runner.refuse()


def test_a_cluster_that_is_not_there_is_one_line(monkeypatch):
    """Known before a run folder is made."""
    for name in ("slurm", "ray_cluster"):
        monkeypatch.setattr(f"codesign.executors.{name}.find_spec", lambda package: package)
    monkeypatch.setattr("codesign.executors.slurm.which", lambda name: None)
    with pytest.raises(ConfigError, match="there is no sbatch here"):
        Slurm().refuse()
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nowhere")
    with pytest.raises(ConfigError, match="set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"):
        RayCluster(address="127.0.0.1:1").refuse()
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t")
    with pytest.raises(ConfigError, match="nobody answers there: Connection refused"):
        RayCluster(address="127.0.0.1:1").refuse()
