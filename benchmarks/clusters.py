"""Ray and Slurm themselves, with workers and nodes killed under a grid: what comes back equals one pass in every field.

    python benchmarks/clusters.py            both (`--only ray`, `--only slurm`); what is not installed is left out

Ray: two nodes on this machine's loopback; a worker is killed, then the second node's raylet. Slurm: its own daemons,
from a folder of this script (Debian: slurm-wlm, munge), two nodes of this machine; a job and a daemon are killed.
Everything that this script started is ended by its process id.
"""

import argparse
import contextlib
import dataclasses
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from codesign import Problem, prepare_jax, study_from_config
from codesign.distributing import AbstractRunner, RayCluster, Slurm
from codesign.search.exhaustive import ChunkFolders, Kept, screen, screen_in_chunks

STUDY = ["experiment=train_dlrm", "calibration=h100_sxm_roofline", "search=grid"]
LEVELS = [f"space.hardware.{name}.grid=60" for name in ("scale_up_bandwidth", "scale_out_bandwidth")]
BLOCK, KEEP = 4096, 64


class Trial:
    """A grid, and what one pass over it leaves."""

    def __init__(self) -> None:
        self.problem: Problem = study_from_config(*STUDY, *LEVELS).problem
        self.truth = screen(self.problem, BLOCK, keep=KEEP).kept

    def over(self, runner: AbstractRunner, kill: threading.Thread, folder: Path) -> str:
        """Run it, killing meanwhile; what differs."""
        began = time.perf_counter()
        heard: list[int] = []

        def report(progress) -> None:
            heard.append(progress.done)
            if progress.done > 0 and not kill.ident:
                kill.start()

        found = screen_in_chunks(self.problem, runner, BLOCK, report, KEEP, ChunkFolders(str(folder)))
        kill.join()
        wrong = [f.name for f in dataclasses.fields(Kept)
                 if not np.array_equal(getattr(found.kept, f.name), getattr(self.truth, f.name))]  # fmt: skip
        count = len(list((folder / "chunks").iterdir()))
        took = f"{count} chunks, {found.evaluated:,} points, {time.perf_counter() - began:.1f} s"
        return f"{took}: {'differs in ' + ', '.join(wrong) if wrong else 'equal to one pass'}"


def under_ray(trial: Trial, folder: Path) -> str:
    """Two nodes; a worker and then the second node are killed."""
    loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ.update(loopback | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    from ray.cluster_utils import Cluster

    quiet = {"include_dashboard": False, "object_store_memory": 2**27}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **quiet})
    second = cluster.add_node(num_cpus=1, object_store_memory=2**27)
    said: list[str] = []

    def kill() -> None:
        workers = [pid for pid, name in processes() if name.startswith("ray::reply_to")]
        for pid in workers[:1]:
            os.kill(pid, signal.SIGKILL)
        time.sleep(1)
        cluster.remove_node(second, allow_graceful=False)
        said.append(f"killed {len(workers[:1])} worker and 1 raylet")

    try:
        runner = RayCluster(address=cluster.address, chunk_s=0.02)
        told = trial.over(runner, threading.Thread(target=kill), folder)
        return f"{' '.join(said)}; {told}"
    finally:
        cluster.shutdown()


def processes() -> list[tuple[int, str]]:
    """(number, command) of this machine's processes."""
    lines = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True).stdout.splitlines()
    return [(int(line.split()[0]), line.split(maxsplit=1)[1]) for line in lines]


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


@contextlib.contextmanager
def slurm_of_this_machine(folder: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """munged, slurmctld and two slurmd, in the foreground of this process."""
    user = subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
    folder.chmod(0o755)
    (folder / "key").write_bytes(secrets.token_bytes(1024))
    (folder / "key").chmod(0o400)
    (folder / "state").mkdir()
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, user=user))
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    commands = {
        "munged": ["munged", "-F", "--force", f"--key-file={folder}/key", f"--socket={folder}/munge.socket", *munge],
        "slurmctld": ["slurmctld", "-D", "-f", str(folder / "slurm.conf")],
        "one": ["slurmd", "-D", "-N", "one", "-f", str(folder / "slurm.conf")],
        "two": ["slurmd", "-D", "-N", "two", "-f", str(folder / "slurm.conf")],
    }
    running: dict[str, subprocess.Popen[bytes]] = {}
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    try:
        for name, command in commands.items():
            running[name] = subprocess.Popen(command, start_new_session=True, **silent)
            time.sleep(1)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            idle = subprocess.run(["sinfo", "-h", "-o", "%T %D"], capture_output=True, text=True).stdout
            if idle.split() == ["idle", "2"]:
                break
            time.sleep(0.5)
        else:
            raise SystemExit(f"slurm does not come up: {idle!r}; {(folder / 'ctld.log').read_text()[-500:]}")
        yield running
        subprocess.run(["scancel", "--user", user], check=False)
        until = time.monotonic() + 20
        while time.monotonic() < until and subprocess.run(["squeue", "-h"], capture_output=True, text=True).stdout:
            time.sleep(0.5)
    finally:
        for process in reversed(running.values()):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
        for pid, name in processes():  # of the node that was killed: nobody else ends them
            if str(folder) in name:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def under_slurm(trial: Trial, folder: Path) -> str:
    """Two nodes; everything on the second is killed."""
    place = Path(tempfile.mkdtemp(prefix="slurm-trial-"))
    said: list[str] = []
    with slurm_of_this_machine(place) as running:

        def kill() -> None:
            steps = [pid for pid, name in processes() if "slurmstepd" in name]
            jobs = [pid for pid, name in processes() if "submitit.core._submit" in name and "srun" not in name]
            running["two"].kill()
            for pid in [*jobs[:1], *steps[:1]]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            said.append(f"killed a node's daemon and {len(jobs[:1])} job")

        runner = Slurm(workers=2, chunk_s=0.02, folder=str(folder), minutes=5, memory_gb=1)
        told = trial.over(runner, threading.Thread(target=kill), folder)
    shutil.rmtree(place, ignore_errors=True)
    return f"{' '.join(said)}; {told}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", choices=("ray", "slurm"))
    given = options.parse_args()
    prepare_jax()
    trial = Trial()
    for name, run, there in (
        ("ray", under_ray, find_spec("ray") is not None),
        ("slurm", under_slurm, find_spec("submitit") is not None and shutil.which("slurmctld") is not None),
    ):
        if given.only in (None, name):
            with tempfile.TemporaryDirectory(prefix=f"cluster-{name}-") as folder:
                print(f"{name}: {run(trial, Path(folder)) if there else 'not installed here'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
