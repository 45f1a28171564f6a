"""Ray and Slurm themselves on this machine: two nodes each, started here and ended here, with ways to lose a worker.

Ray: a head and a second node on the loopback. Slurm: its own daemons (Debian: slurmctld, slurmd, munge) out of a
folder, two nodes. Whatever was started is ended by its process id.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from codesign.executors import AbstractRunner, RayCluster, Slurm

PATIENCE_S = 60.0  # for daemons to find each other
CONFIGURATION = """
ClusterName=trial
SlurmctldHost=localhost
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort=16817
SlurmctldPidFile={folder}/ctld.pid
SlurmctldLogFile={folder}/ctld.log
StateSaveLocation={folder}/state
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/spool-%n
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=2
NodeName=one NodeHostname=localhost NodeAddr=127.0.0.1 Port=17001 CPUs=1 RealMemory=2000
NodeName=two NodeHostname=localhost NodeAddr=127.0.0.1 Port=17002 CPUs=1 RealMemory=2000
PartitionName=all Nodes=one,two Default=YES MaxTime=10 State=UP
"""


class There(NamedTuple):
    """A cluster that runs.

    Attributes:
        runner: tasks of so many seconds, kept in a folder -> the runner that sends them there.
        typed: the same as typed on a command line.
        lose_worker: kills one worker at work; how many it killed.
        lose_node: kills the second node.
    """

    runner: Callable[[float, Path], AbstractRunner]
    typed: Callable[[Path], list[str]]
    lose_worker: Callable[[], int]
    lose_node: Callable[[], None]


def lacking(name: str) -> str:
    """Why a cluster cannot be had here; empty where it can."""
    package, programs = {"ray": ("ray", []), "slurm": ("submitit", ["slurmctld", "slurmd", "munged"])}[name]
    if find_spec(package) is None:
        return f"{package} is not installed (pip install 'codesign[cluster]')"
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        return f"{', '.join(missing)}: not installed (Debian: apt-get install slurmctld slurmd slurm-client munge)"
    return "slurmd runs as root alone" if programs and os.geteuid() != 0 else ""


@contextlib.contextmanager
def ray_of_this_machine() -> Iterator[There]:
    """Two nodes of one worker each."""
    loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    path = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with one_at_a_time("ray"), mock.patch.dict(os.environ, loopback | token | path):
        from ray.cluster_utils import Cluster

        small: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 2**27}
        cluster = Cluster(initialize_head=True, head_node_args=small | {"include_dashboard": False})
        second = cluster.add_node(**small)
        try:
            yield There(
                lambda chunk_s, folder: RayCluster(address=cluster.address, chunk_s=chunk_s),
                lambda folder: ["runner=ray", f"runner.address={cluster.address}"],
                lambda: killed(lambda name: name.startswith("ray::packed_reply_to")),
                lambda: cluster.remove_node(second, allow_graceful=False),
            )
        finally:
            cluster.shutdown()


@contextlib.contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Wait until no other process of this machine has such daemons: two heads would listen on one port."""
    with (Path(tempfile.gettempdir()) / f"codesign_{name}_of_{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def processes() -> list[tuple[int, str]]:
    """(number, command) of this machine's processes."""
    lines = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True).stdout.splitlines()
    return [(int(line.split()[0]), line.split(maxsplit=1)[1]) for line in lines]


def killed(is_one: Callable[[str], bool]) -> int:
    """The first process whose command is one of these is killed; how many there were to kill, one or none."""
    result = [pid for pid, name in processes() if is_one(name)][:1]
    for pid in result:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(result)


def waited(seconds: float) -> float:
    """A task that takes so long whatever else the machine does."""
    time.sleep(seconds)
    return seconds


def _is_job(name: str) -> bool:
    return "submitit.core._submit" in name and "srun" not in name


@contextlib.contextmanager
def slurm_of_this_machine(place: Path) -> Iterator[There]:
    """munged, slurmctld and two slurmd, in the foreground of this process, from an empty folder."""
    user = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    place.chmod(0o755)
    (place / "key").write_bytes(secrets.token_bytes(1024))
    (place / "key").chmod(0o400)
    (place / "state").mkdir()
    configuration = place / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(folder=place, user=user))
    munge = [f"--{name}-file={place}/munge.{name}" for name in ("pid", "log", "seed")]
    commands = {
        "munged": ["munged", "-F", "--force", f"--key-file={place}/key", f"--socket={place}/munge.socket", *munge],
        "slurmctld": ["slurmctld", "-D", "-f", str(configuration)],
        "one": ["slurmd", "-D", "-N", "one", "-f", str(configuration)],
        "two": ["slurmd", "-D", "-N", "two", "-f", str(configuration)],
    }
    running: dict[str, subprocess.Popen[bytes]] = {}

    def lose_node() -> None:
        running["two"].kill()
        killed(lambda name: "slurmstepd" in name)

    with mock.patch.dict(os.environ, {"SLURM_CONF": str(configuration)}):
        try:
            for name, command in commands.items():
                running[name] = subprocess.Popen(
                    command, start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )  # fmt: skip
                time.sleep(1)
            _until_idle(place)
            yield There(
                lambda chunk_s, folder: Slurm(
                    workers=2, chunk_s=chunk_s, folder=str(folder), minutes=5, memory_gb=1
                ),
                lambda folder: ["runner=slurm", "runner.workers=2", f"runner.folder={folder}", "runner.minutes=5",
                                "runner.memory_gb=1"],
                lambda: killed(_is_job),
                lose_node,
            )  # fmt: skip
            _until_empty(user)
        finally:
            _end(running, place)


def _until_idle(place: Path) -> None:
    """Both nodes answer.

    Raises:
        SystemExit: they do not.
    """
    until, idle = time.monotonic() + PATIENCE_S, ""
    while time.monotonic() < until:
        idle = subprocess.run(["sinfo", "-h", "-o", "%T %D"], capture_output=True, text=True).stdout
        if idle.split() == ["idle", "2"]:
            return
        time.sleep(0.5)
    raise SystemExit(f"slurm does not come up: {idle!r}; {(place / 'ctld.log').read_text()[-500:]}")


def _until_empty(user: str) -> None:
    """Whatever still waits is cancelled."""
    subprocess.run(["scancel", "--user", user], check=False)
    until = time.monotonic() + 20
    while time.monotonic() < until and subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout:
        time.sleep(0.5)


def _end(running: dict[str, subprocess.Popen[bytes]], place: Path) -> None:
    """Every daemon, and what a killed node leaves, which nobody else ends."""
    for process in reversed(running.values()):
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
    for pid, name in processes():
        if str(place) in name:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
