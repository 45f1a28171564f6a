"""`runner=local`: processes of this machine, none of which outlives the one that started them."""

import contextlib
import os
import pickle
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from .base import TICK_S, AbstractRunner, Reply, Result, Task, lost, packed, search_path

# `runner=serial`: one task after the other, here: chunks and their files without processes.


@dataclass(frozen=True)
class Serial(AbstractRunner):
    """Runner that computes all tasks in this process.

    Args:
        chunk_s: seconds that one task should take.
    """

    chunk_s: float = 10.0
    workers: int | None = 1
    retries: int = 0

    def __post_init__(self) -> None:
        """Settings that can be kept."""
        self.check()

    def results(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Generator[Result | None, None, None]:
        """Yield the results in the order of the tasks."""
        for task in tasks:
            yield work(task)


GONE = (EOFError, OSError, pickle.UnpicklingError)
"""Exceptions on reading from a worker that has died, before or within an answer."""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
PATIENCE_S = 2.0  # for a worker to end before it is killed


@dataclass(frozen=True)
class Local(AbstractRunner):
    """Fresh processes, one task each at a time.

    Each starts Python anew (nothing is forked that holds threads or locks), leaves Ctrl-C to whoever started it, and
    ends at once when that process does, however it does.

    Args:
        workers: processes; None for one a processor.
        chunk_s: seconds that one task should take.
        retries: times that a task is given to another process after its own was lost.
    """

    workers: int | None = None
    chunk_s: float = 10.0
    retries: int = 3

    def __post_init__(self) -> None:
        """Settings that can be kept."""
        self.check()

    def results(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Generator[Result | None, None, None]:
        """Yield results as they complete; None while none is ready.

        Raises:
            ConfigError: work that cannot be sent to another process.
            CodesignError: a task that processes do not survive.
        """
        waiting, losses = deque(enumerate(tasks)), Counter[int]()
        with WorkerCrew(packed(work)) as crew:
            while waiting or crew.busy:
                while waiting and len(crew.busy) < self.count:
                    crew.give(waiting.popleft())
                answers = list(crew.answers())
                if not answers:
                    yield None
                for (number, task), answer in answers:
                    if answer is not None:
                        yield answer.result()
                        continue
                    losses[number] += 1
                    if losses[number] > self.retries:
                        raise lost("local", task, losses[number])
                    waiting.appendleft((number, task))

    @classmethod
    def example(cls) -> "Local":
        """Two processes."""
        return cls(workers=2, chunk_s=1.0)


@dataclass
class Worker:
    """A process and the end of its pipe here."""

    process: subprocess.Popen[bytes]
    pipe: Connection


@dataclass
class WorkerCrew:
    """Workers, which tasks they are at, and those that wait for one.

    Args:
        work: pickled, sent to each once.
    """

    work: bytes
    idle: list[Worker] = field(default_factory=list[Worker])
    busy: dict[Connection, tuple[Worker, tuple[int, Any]]] = field(default_factory=dict[Any, Any])

    def __enter__(self) -> "WorkerCrew":
        """A pipe that nobody writes to: that it closes tells workers that this process has gone."""
        self._life, self._alive = os.pipe()
        return self

    def __exit__(self, *_: object) -> None:
        """End every worker, whatever it is at."""
        workers = [*self.idle, *(worker for worker, _ in self.busy.values())]
        os.close(self._alive)
        for worker in workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in workers:
            try:
                worker.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        os.close(self._life)

    def give(self, numbered: tuple[int, Any]) -> None:
        """A task to a worker that has none, or to a new one."""
        worker = self.idle.pop() if self.idle else self._started()
        self.busy[worker.pipe] = (worker, numbered)
        with contextlib.suppress(OSError):  # a worker that has died is found when it is asked
            worker.pipe.send(numbered[1])

    def answers(self) -> Iterator[tuple[tuple[int, Any], Reply | None]]:
        """(task, what was said of it; None where its worker was lost), of all that have one."""
        for pipe in wait(list(self.busy), TICK_S):
            assert isinstance(pipe, Connection)
            worker, numbered = self.busy.pop(pipe)
            try:
                answer = pipe.recv()
                self.idle.append(worker)
            except GONE:
                answer = None
                pipe.close()
                worker.process.kill()
                worker.process.wait()
            yield numbered, answer

    def _started(self) -> Worker:
        """A new worker that has its work; a group of its own keeps the terminal's signals from it."""
        here, there = Pipe()
        code = f"from codesign.executors.base import serve; serve({there.fileno()}, {self._life})"
        settings = os.environ | ONE_THREAD | {"PYTHONPATH": search_path()}
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=settings,
            pass_fds=(there.fileno(), self._life), process_group=0,
        )  # fmt: skip
        there.close()
        with contextlib.suppress(OSError):
            here.send_bytes(self.work)
        return Worker(process, here)
