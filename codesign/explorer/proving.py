"""The proof, in a process of its own: a search over all plans and the whole box of hardware under the sliders' limits.

It is the search that `codesign optimize` would run, in a folder that goes when the page does. Hardware sliders do not
change what it proves; limits do, so that another begins when they move.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..commands.optimize import optimize
from ..config import own_files
from ..core.errors import CodesignError, ConfigError
from ..core.terminal_encoding import lenient_output
from ..report.run_folder import RunFolder, read_run
from .beginning import HARDWARE, PROVING, SliderStudy, config_words

WAITS, RUNS, DONE, FAILED = "waits", "runs", "done", "failed"
PAUSE_S = 1.0  # after the last move of a limit
MAX_PROOFS = 16  # proofs that are remembered
NICE = 10  # the page comes first
PROCESS = ("-P", "-m", "codesign.explorer.proving")  # -P: nothing of the folder at hand is imported

Limits = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class ProofState:
    """State of the proof under the present limits; `run` is what the search left, `text` why there is none."""

    state: str
    seconds: float = 0.0
    run: RunFolder | None = None
    text: str = ""


class Prover:
    """Proofs of one study, one at a time.

    Args:
        found: the study.
        known: proofs under limits seen before, of all readers.
    """

    def __init__(self, setup: SliderStudy, proofs: "OrderedDict[Limits, ProofState]"):
        self._given = setup
        self._folder = Path(tempfile.mkdtemp(prefix="codesign-explore-"))
        self._proofs = proofs
        self._process: subprocess.Popen[str] | None = None
        self._limits: Limits = ()
        self._since, self._started, self._count = 0.0, 0.0, 0
        self._lock = threading.Lock()
        atexit.register(self.stop)
        self.ask(setup.start)
        proven = setup.run.certificate if setup.run is not None else None
        if proven is not None and proven.bound is not None and not _held(setup):
            self._proofs.setdefault(self._limits, ProofState(DONE, run=setup.run))

    def ask(self, values: Mapping[str, float]) -> None:
        """Tell where the sliders are: a proof under other limits is given up."""
        wanted = tuple((key, value) for key, value in values.items() if not key.startswith(f"{HARDWARE}."))
        with self._lock:
            if wanted != self._limits or not self._since:
                self._limits, self._since = wanted, time.monotonic()
                self._end()

    def look(self) -> ProofState:
        """Return the state of the proof; start it once the limits have been at rest for a while."""
        with self._lock:
            proof = self._proofs.get(self._limits)
            if proof is not None:
                return proof
            if self._process is None:
                if time.monotonic() - self._since < PAUSE_S:
                    return ProofState(WAITS)
                self._start()
            assert self._process is not None
            seconds = time.monotonic() - self._started
            if self._process.poll() is None:
                return ProofState(RUNS, seconds)
            return self._remember(self._outcome(self._process, seconds))

    def stop(self) -> None:
        """Give up and leave nothing behind."""
        with self._lock:
            self._end()
            atexit.unregister(self.stop)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        self._count, self._started = self._count + 1, time.monotonic()
        words = [sys.executable, *PROCESS, str(NICE), str(self._folder / str(self._count))]
        words += config_words(self._given.study)
        paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        self._process = subprocess.Popen(
            [*words, *searched(self._given, dict(self._limits))], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _outcome(self, process: "subprocess.Popen[str]", seconds: float) -> ProofState:
        error_lines = process.communicate()[1].strip().splitlines()
        folders = sorted((self._folder / str(self._count)).glob("*"))
        why = (
            error_lines[-1].removeprefix("codesign: ")
            if error_lines
            else f"the search ended with code {process.returncode}"
        )
        try:
            run = read_run(folders[0]) if folders else None
        except ConfigError as error:
            run, why = None, str(error)
        if run is None or not run.best.get("feasible", False):
            return ProofState(FAILED, seconds, run, why)
        return ProofState(DONE, seconds, run)

    def _remember(self, proof: ProofState) -> ProofState:
        self._process = None
        self._proofs[self._limits] = proof
        while len(self._proofs) > MAX_PROOFS:
            self._proofs.popitem(last=False)
        return proof


def searched(setup: SliderStudy, limits: Mapping[str, float]) -> list[str]:
    """Overrides of the search that proves: the study's own, with the sliders' limits."""
    starts = setup.start
    moved = {key: value for key, value in limits.items() if value != starts[key]}
    keys = {f"objective.{key}" for key in moved}
    base = [text for text in setup.overrides if text.lstrip("+").partition("=")[0] not in keys]
    if not isinstance(setup.study.search, PROVING):
        base = [*(text for text in base if not text.lstrip("+~").startswith("search")), "search=certified"]
    return [*base, *(f"objective.{key}={value!r}" for key, value in moved.items())]


def _held(setup: SliderStudy) -> bool:
    """True if the run held numbers that have sliders here: its proof is of them alone."""
    assert setup.run is not None
    return tuple(setup.run.overrides) != setup.overrides


# The process that proves: `python -P -m codesign.explorer.proving NICE FOLDER [--conf DIR] [OVERRIDE ...]`.


def main(words: list[str]) -> int:
    """Search, with lower priority, into a folder; what is wrong is one line."""
    with lenient_output(restore=False):
        return _prove(words)


def _prove(words: list[str]) -> int:
    os.nice(int(words[0]))
    folders, arguments = list[str](), words[2:]
    while arguments[:1] == ["--conf"]:
        folders, arguments = [*folders, arguments[1]], arguments[2:]
    try:
        with own_files(*folders):
            return optimize(arguments, words[1])
    except CodesignError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
