"""Work for runners that ends its process or does not end; nothing heavy is imported, since workers read this file."""

import os
import signal
import time
from pathlib import Path


class Dying:
    """Gives tasks back; ends its process at one of them: once, where there is a file to remember it by, or always."""

    def __init__(self, at: int, flag: Path | None):
        self.at, self.flag = at, flag

    def __call__(self, task: int) -> int:
        if task == self.at and (self.flag is None or not self.flag.exists()):
            if self.flag is not None:
                self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task


class Waiting:
    """Says that it has begun, and does not end."""

    def __call__(self, task: int) -> int:
        Path(f"{os.getpid()}.pid").touch()
        time.sleep(3600)
        return task
