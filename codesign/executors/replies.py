"""Messages between a worker and whoever asks: work, which is sent once, and what is replied to each task."""

import functools
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.errors import ConfigError


@dataclass
class Reply:
    """Reply of a worker to a task: its result, or what was raised."""

    found: Any = None
    raised: BaseException | None = None

    def result(self) -> Any:
        """The result; raises what the worker raised."""
        if self.raised is not None:
            raise self.raised
        return self.found


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
