"""One process at a time in a folder of results: a second one is refused before it writes anything.

The lock is the system's, on the folder itself: it goes with the process, however that ends, and leaves no file. Where
the system has no such locks (some shared folders, Windows) nobody is refused: files are whole there all the same, since
each is renamed into place.
"""

import contextlib
import os
from collections.abc import Generator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..core.atomic_files import make_folder
from ..core.errors import ConfigError

__all__ = ["alone_in"]


@contextlib.contextmanager
def alone_in(folder: Path, key: str) -> Generator[None]:
    """Keep other processes out of a folder, which is made where it is not there yet.

    Args:
        folder: that is written to.
        key: what says where it is, for the message.

    Raises:
        ConfigError: another process writes to it.
        WriteError: it cannot be made.
    """
    made = make_folder(folder)
    number = _locked(folder, key)
    try:
        yield
    except BaseException:
        for one in reversed(made):  # those in which nothing was written
            with contextlib.suppress(OSError):
                one.rmdir()
        raise
    finally:
        if number is not None:
            os.close(number)


def _locked(folder: Path, key: str) -> int | None:
    """An open folder that holds the lock until it is closed; None where the system has none.

    Raises:
        ConfigError: another process holds it.
    """
    if find_spec("fcntl") is None:
        return None
    locks: Any = import_module("fcntl")
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        locks.flock(number, locks.LOCK_EX | locks.LOCK_NB)
    except BlockingIOError as error:
        os.close(number)
        raise ConfigError(
            f"{key} = {str(folder)!r} is written by another process: wait for it, or name another folder"
        ) from error
    except OSError:
        os.close(number)
        return None
    return number
