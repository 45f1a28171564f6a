"""Process of `runner=local`: reads work once, then tasks; ends with whoever started it."""

import os
import threading
from multiprocessing.connection import Connection

from .base import reply_to


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
