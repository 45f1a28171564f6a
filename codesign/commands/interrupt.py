"""Ctrl-C as a request: a search stops where its result is whole, and what it found is still written."""

import math
import os
import signal
import threading
from typing import Any

from ..search import Progress

PATIENCE_S = 10.0  # for which a search may go on until it can say how far its best design is from the optimum


class Interrupt:
    """While it is entered, the first SIGINT is a request, the second one breaks in.

    A search that reports a gap is stopped at its first report with a finite one, any other at its next report, and
    every search after `PATIENCE_S` wherever it is. `stopped` says whether that happened. Outside the main thread, which
    alone gets signals, nothing is changed.
    """

    def __init__(self) -> None:
        self.stopped = self._settled = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)}
            signal.signal(signal.SIGINT, self._asked)
            signal.signal(signal.SIGALRM, self._break_in)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def settle(self) -> None:
        """The search is over: what is left is short, and only a repeated request ends it."""
        self._settled = True
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def check(self, progress: Progress) -> None:
        """End the search here if that was asked for.

        Raises:
            KeyboardInterrupt: which every search answers with what it has found.
        """
        if self.stopped and not math.isinf(progress.gap):
            raise KeyboardInterrupt

    def _asked(self, *_: object) -> None:
        if self.stopped:
            self._break_in()
        self.stopped = True
        if self._settled:
            _say("\nwriting what was found; Ctrl-C again gives it up\n")
            return
        _say("\nstopping with the best design so far; Ctrl-C again stops at once\n")
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)

    def _break_in(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        raise KeyboardInterrupt


def _say(text: str) -> None:
    """To the terminal, past every lock and buffer that the interrupted code may hold."""
    os.write(2, text.encode())
