"""Interface of runners, which compute the parts of a search."""

import abc
import functools
import os
import pickle
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from ..core.errors import CodesignError, ConfigError
from ..core.examples import by_default

# Messages between a worker and whoever asks: work, which is sent once, and what is replied to each task.


@dataclass
class Reply:
    """Reply of a worker to a task: its result, or what was raised."""

    value: Any = None
    raised: BaseException | None = None

    def result(self) -> Any:
        """The result; raises what the worker raised."""
        if self.raised is not None:
            raise self.raised
        return self.value


def packed(work: Any) -> bytes:
    """Work as it is sent.

    Raises:
        ConfigError: it holds what only this process knows, such as a function without a name.
    """
    try:
        return pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(f"runner: the study cannot be sent to another process: {error}") from error


@functools.lru_cache(maxsize=1)
def _unpacked(work: bytes) -> Callable[[Any], Any]:
    """Unpickle work from whoever started this process, over a pipe, a cluster or a folder; once in each process."""
    return pickle.loads(work)


def reply_to(work: bytes, task: Any) -> Reply:
    """Do what is asked; whatever goes wrong belongs to whoever asked."""
    try:
        return Reply(_unpacked(work)(task))
    except Exception as error:
        return Reply(raised=_sendable(error))


def packed_reply_to(work: bytes, task: Any) -> bytes:
    """The reply as bytes: what is read from them is the reader's own, whoever frees the memory they came through.

    Ray hands out arrays as views of its store, which end with the connection to it.
    """
    return pickle.dumps(reply_to(work, task), protocol=pickle.HIGHEST_PROTOCOL)


def _sendable(error: Exception) -> Exception:
    """An error that the other side can read."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def search_path() -> str:
    """Module search path of this process, for its workers."""
    return os.pathsep.join(os.path.abspath(path) for path in sys.path if path)


Task = TypeVar("Task")
Result = TypeVar("Result")
Self = TypeVar("Self", bound="AbstractRunner")

TICK_S = 1.0  # between two looks where nothing has come: whoever waits can show progress and be interrupted


class AbstractRunner(abc.ABC):
    """Computes tasks that know nothing of each other, in whatever order and as often as it takes.

    What a task leaves must depend on the task alone: a worker that is lost takes its task with it, which is then given
    to another, and on some clusters one task is computed twice.

    workers: tasks under way at the same time; None for as many as there are processors. chunk_s: seconds that one task
    should take: short ones cost overhead, long ones are lost with a worker and leave others waiting at the end.
    retries: times that a task is given to another worker after its own was lost.
    """

    workers: int | None
    chunk_s: float
    retries: int

    def check(self) -> None:
        """Refuse settings that no runner can have.

        Raises:
            ConfigError: the first.
        """
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"runner.workers = {self.workers} must be at least 1; leave it out for one a processor")
        if not 0 < self.chunk_s < float("inf"):
            raise ConfigError(f"runner.chunk_s = {self.chunk_s} must be positive: seconds that a task should take")
        if self.retries < 0:
            raise ConfigError(f"runner.retries = {self.retries} must be at least 0")

    @property
    def count(self) -> int:
        """Tasks under way at the same time."""
        return self.workers or processors()

    def refuse(self) -> None:
        """Refuse a runner of which something is missing, before anything is written.

        Raises:
            ConfigError: a package that is not installed, a command that is not there.
        """
        return

    @abc.abstractmethod
    def results(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Generator[Result | None, None, None]:
        """Yield what `work` makes of each task, as it comes, in any order; None every second in which nothing does.

        Closing the iterator ends what is under way. What `work` raises is raised here.

        Raises:
            CodesignError: a task whose worker was lost more often than `retries` allows.
        """

    @classmethod
    def example(cls: type[Self]) -> Self:
        """A small one, which contracts run."""
        return by_default(cls)


def processors() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def lost(what: str, task: Any, times: int) -> CodesignError:
    """Error: workers do not survive a task."""
    return CodesignError(
        f"runner={what}: {task} ended its worker {times} times; where memory is short, take smaller blocks "
        "(search.batch_size) or fewer workers (runner.workers)"
    )


def needed(package: str, what: str) -> ConfigError:
    """Error: a package is missing."""
    return ConfigError(f"runner={what} needs the package {package}: pip install 'codesign[cluster]'")


# Process of `runner=local`: reads work once, then tasks; ends with whoever started it.


def serve(pipe: int, life: int) -> None:
    """Reply until the pipe closes.

    Args:
        pipe: number of the end that is this process's.
        life: number of the end of a pipe that closes when the process that started this one ends.
    """
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()
    with Connection(pipe) as connection:
        try:
            work = connection.recv_bytes()
            while True:
                connection.send(reply_to(work, connection.recv()))
        except (EOFError, OSError):
            return


def _end_with(life: int) -> None:
    """Wait for the other process to end, in whatever way, and end."""
    os.read(life, 1)
    os._exit(1)
