"""`runner=slurm`: an array of jobs of a Slurm cluster, sent by submitit; tasks and replies lie in a shared folder."""

import os
import pickle
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree, which
from typing import Any

from ..core.atomic_files import make_folder, write_bytes
from ..core.errors import ConfigError
from .base import TICK_S, AbstractRunner, Reply, Result, Task, lost, needed, packed, reply_to, search_path

CLUSTERS = ("slurm", "local")
AT_ONCE = {"no_requeue": True}  # Slurm would let minutes pass before it runs a lost job again; another array does not
LOOK_S = 10.0  # between two questions to Slurm which jobs there still are


@dataclass(frozen=True)
class Slurm(AbstractRunner):
    """One array of as many jobs as workers, each with its share of the tasks.

    A job leaves the reply to each task as soon as it is there. What jobs that failed, were preempted or ran into their
    time limit did not do goes into another array.

    Args:
        workers: jobs of the array.
        chunk_s: seconds that one task should take.
        retries: further arrays for what is missing.
        folder: that all nodes see; this search makes one of its own in it, which nobody else may read.
        partition: of the cluster; empty: its default.
        minutes: time limit of each job.
        memory_gb: of each job.
        cluster: slurm, or local: processes of this machine that submitit starts, for trying things out.
    """

    workers: int | None = 8
    chunk_s: float = 20.0
    retries: int = 2
    folder: str = "runs"
    partition: str = ""
    minutes: int = 60
    memory_gb: float = 4.0
    cluster: str = "slurm"

    def __post_init__(self) -> None:
        """Settings that can be kept."""
        self.check()
        if self.cluster not in CLUSTERS:
            raise ConfigError(f"runner.cluster = {self.cluster!r} must be one of {', '.join(CLUSTERS)}")
        if self.minutes < 1 or not self.memory_gb > 0:
            raise ConfigError("runner.minutes and runner.memory_gb must be positive")

    def refuse(self) -> None:
        """No submitit, or no Slurm."""
        if find_spec("submitit") is None:
            raise needed("submitit", "slurm")
        if self.cluster == "slurm" and which("sbatch") is None:
            raise ConfigError("runner=slurm: there is no sbatch here; start from a node that sends jobs to the cluster")
        if self.cluster == "slurm":
            answer = subprocess.run(["sinfo", "-h"], capture_output=True, text=True)
            if answer.returncode:
                raise ConfigError(f"runner=slurm: the cluster does not answer: {_last_line(answer.stderr)}")

    def results(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Generator[Result | None, None, None]:
        """Yield results as they complete; None while none is ready.

        Raises:
            ConfigError: no Slurm, or work that cannot be sent.
            CodesignError: tasks that no array finished.
        """
        self.refuse()
        if not tasks:
            return
        make_folder(Path(self.folder))
        box = Path(tempfile.mkdtemp(prefix="slurm-", dir=self.folder)).absolute()
        try:
            write_bytes(box / "work.pkl", packed(work))
            left = dict(enumerate(tasks))
            for _ in range(self.retries + 1):
                for reply in self._array(box, left):
                    yield None if reply is None else reply.result()
                if not left:
                    return
            raise lost("slurm", next(iter(left.values())), self.retries + 1)
        finally:
            rmtree(box, ignore_errors=True)

    def _array(self, box: Path, left: dict[int, Any]) -> Iterator[Reply | None]:
        """Replies to the tasks that are left, while the jobs of one array run; what is replied to is left no more."""
        shares = [dict(list(left.items())[number :: self.count]) for number in range(self.count)]
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = search_path()
        try:
            executor = self._executor(box)
            with executor.batch():
                jobs = [executor.submit(_serve, str(box), share) for share in shares if share]
        except (RuntimeError, OSError) as error:  # of a partition that is not there, or more than it gives
            raise ConfigError(f"runner=slurm: the array is refused: {_last_line(error)}") from error
        finally:
            os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
        try:
            running, looked_at = True, time.monotonic()
            while running and left:
                if time.monotonic() - looked_at > (LOOK_S if self.cluster == "slurm" else TICK_S):
                    running, looked_at = self._any_runs(jobs), time.monotonic()
                result = list(_arrived(box, left))  # after the question: what came before the last job ended is there
                yield from result
                if not result:
                    time.sleep(TICK_S / 4)
                    yield None
        finally:
            all_replied = (
                self.cluster == "local" and not left
            )  # those have replied to everything, and end by themselves
            for job in () if all_replied else jobs:
                with suppress(Exception):  # of a cluster that is gone; what runs on ends with its time limit
                    job.cancel(check=False)

    def _executor(self, box: Path) -> Any:
        import submitit

        executor = submitit.AutoExecutor(folder=box / "jobs", cluster=self.cluster)
        executor.update_parameters(
            name="codesign", timeout_min=self.minutes, cpus_per_task=1, mem_gb=self.memory_gb,
            slurm_array_parallelism=self.workers, slurm_additional_parameters=AT_ONCE,
            **({"slurm_partition": self.partition} if self.partition else {}),
        )  # fmt: skip
        return executor

    def _any_runs(self, jobs: Sequence[Any]) -> bool:
        """True if any job still may reply."""
        if self.cluster == "local":
            return not all(job.done() for job in jobs)
        names = ",".join(dict.fromkeys(job.job_id.split("_")[0] for job in jobs))
        answer = subprocess.run(["squeue", "-h", "-o", "%i", "-j", names], capture_output=True, text=True)
        return bool(answer.stdout.strip()) if answer.returncode == 0 else "Invalid job id" not in answer.stderr

    @classmethod
    def example(cls) -> "Slurm":
        """Two jobs of this machine."""
        return cls(workers=2, chunk_s=1.0, folder=tempfile.gettempdir(), cluster="local")


def _last_line(said: object) -> str:
    """Last line of a Slurm command's complaint."""
    return next((line for line in reversed(str(said).splitlines()) if line.strip()), type(said).__name__)


def _serve(box: str, share: dict[int, Any]) -> None:
    """A job: reply to its tasks one after the other."""
    work = (Path(box) / "work.pkl").read_bytes()
    for number, task in share.items():
        write_bytes(Path(box) / f"{number}.reply", pickle.dumps(reply_to(work, task)))


def _arrived(box: Path, left: dict[int, Any]) -> Iterator[Reply]:
    """Replies that are there: files of this user's own jobs in a folder that nobody else may write to."""
    for path in box.glob("*.reply"):
        number = int(path.stem)
        if number in left:
            del left[number]
            yield pickle.loads(path.read_bytes())
        path.unlink()
