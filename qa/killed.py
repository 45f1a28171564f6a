"""Runs that are killed at random instants and continued, against undisturbed ones: nothing lost, counted twice or left.

    python qa/killed.py        2 kills of each kind (`--kills 10 --kinds chunks,multirun --seed 3`)

A kill is `kill -9` of the process that was started, at an instant drawn evenly over the time of the undisturbed run.
Its workers must be gone within ten seconds. What it left must be readable, or refused in one line. Then the run is
continued (`search.resume=`, the same folder of a multirun) or begun again, and its frames must be equal to the bit.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
STUDY = ["experiment=train_dlrm", "calibration=h100_sxm_roofline"]
LEVELS = [f"space.hardware.{name}.grid=60" for name in ("scale_up_bandwidth", "scale_out_bandwidth")]
GRID = [*STUDY, *LEVELS, "search=grid", "search.batch_size=4096"]
CHUNKS = [*GRID, "runner=local", "workers=2", "runner.chunk_s=0.02"]
CERTIFIED = [*STUDY, "search=certified", "search.explain=false"]
FRONT = [*STUDY, "search=pareto"]
JOBS = [*STUDY, "search=grid", "space.hardware.scale_up_bandwidth.grid=20,30,40", "hydra.sweep.dir=jobs"]
KEPT = [*STUDY, "search=grid"]
TRAINING = ["training", "--steps", "5", "--held-out", "0", "--out", "trained"]
FRAMES = ("designs", "pareto", "histogram", "best_by_value")
GONE_S = 10.0


class Kind(NamedTuple):
    """arguments: of the command; continued: folder that was left -> further arguments; results: where frames are.

    first: a command that is left alone; the other, in whose arguments RUN is its folder, is killed beside what it left.
    """

    arguments: list[str]
    continued: Callable[[Path], list[str]]
    results: Callable[[Path], list[Path]]
    first: tuple[str, ...] = ()


def anew(folder: Path) -> list[str]:
    """Nothing of the killed run is used."""
    return []


def resumed(folder: Path) -> list[str]:
    """What the killed grid had done is used, if it had come so far."""
    for run in sorted((folder / "runs").glob("*")):
        if (run / "grid_checkpoint.npz").is_file() or (run / "chunks").is_dir():
            return [f"search.resume={run}"]
    return []


def last_run(folder: Path) -> list[Path]:
    """The newest run."""
    return [max((folder / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)]


def jobs(folder: Path) -> list[Path]:
    """Every job of the multirun, and what was collected."""
    return [folder / "jobs", *(folder / "jobs" / str(number) for number in range(3))]


KINDS = {
    "chunks": Kind(["optimize", *CHUNKS], resumed, last_run),
    "grid": Kind(["optimize", *GRID, "search.every_s=0"], resumed, last_run),
    "certified": Kind(["optimize", *CERTIFIED], anew, last_run),
    "front": Kind(["optimize", *FRONT], anew, last_run),
    "multirun": Kind(["optimize", "-m", *JOBS], anew, jobs),
    "calibrate": Kind(
        ["calibrate", str(ROOT / "tests/data/tables"), "--out", "fitted"], anew, lambda f: [f / "fitted"]
    ),
    "train": Kind(["train-amortised", *TRAINING], anew, lambda f: [f / "trained"]),
    "report": Kind(["report", "RUN"], anew, last_run, ("optimize", *KEPT)),
}


def command(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    """`codesign` in a folder."""
    settings = os.environ | {"PYTHONPATH": str(ROOT), "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax")}
    given = [str(last_run(folder)[0]) if word == "RUN" else word for word in arguments]
    words = [sys.executable, "-m", "codesign", *given]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=folder, env=settings, text=True, stdout=pipe, stderr=pipe)


def finished(arguments: list[str], folder: Path) -> float:
    """Seconds of a command that must end well."""
    began, process = time.perf_counter(), command(arguments, folder)
    _, told = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)}: exit code {process.returncode}: {told}")
    return time.perf_counter() - began


def found(places: list[Path], every: bool) -> dict[str, object]:
    """Frames by name; files of a folder without frames, or `every` file, by their bytes."""
    frames: dict[str, object] = {}
    for number, index in enumerate(places):
        for name in (*FRAMES, "collected"):
            if (index / f"{name}.parquet").is_file():
                frames[f"{number}/{name}"] = pd.read_parquet(index / f"{name}.parquet")
        if every or not list(index.glob("*.parquet")):
            frames |= {str(path.relative_to(index)): content(path) for path in sorted(index.rglob("*.*"))}
    return frames


def content(path: Path) -> object:
    """Bytes of a file; of a trained network its numbers: beside them it tells how long training took."""
    if path.suffix != ".npz":
        return path.read_bytes()
    with np.load(path) as arrays:
        return {name: arrays[name].tobytes() for name in arrays.files if name not in ("told", "checksum")}


def differences(one: dict[str, object], other: dict[str, object]) -> list[str]:
    """Names of what is not equal to the bit."""
    wrong = sorted(one.keys() ^ other.keys())
    for name in one.keys() & other.keys():
        a, b = one[name], other[name]
        same = a.equals(b) if isinstance(a, pd.DataFrame) and isinstance(b, pd.DataFrame) else a == b
        wrong += [] if same else [name]
    return wrong


def children(pid: int) -> list[int]:
    """Processes that a process started."""
    told = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(word) for word in told.split()]


def left_running(pids: list[int]) -> list[int]:
    """Those that are there after a while."""
    until = time.monotonic() + GONE_S
    while time.monotonic() < until:
        pids = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        if not pids:
            return []
        time.sleep(0.05)
    return pids


def readable(folder: Path) -> str:
    """What a report of each run that was left says wrong: nothing, or more than one line."""
    for run in (folder / "runs").glob("*"):
        process = command(["report", str(run)], folder)
        _, told = process.communicate()
        if process.returncode not in (0, 2) or (process.returncode == 2 and len(told.splitlines()) != 1):
            return f"report of what was left: exit code {process.returncode}: {told[-300:]}"
    return ""


def trial(kind: Kind, truth: dict[str, object], at_s: float, folder: Path) -> str:
    """Kill a run, continue it; what is wrong in the end, or nothing."""
    process = command(kind.arguments, folder)
    try:
        process.wait(at_s)
        early = False
    except subprocess.TimeoutExpired:
        early = True
    workers = children(process.pid) if early else []
    process.send_signal(signal.SIGKILL)
    process.communicate()
    orphans = left_running(workers)
    if orphans:
        return f"processes {orphans} run on"
    wrong = readable(folder)
    if wrong:
        return wrong
    finished([*kind.arguments, *kind.continued(folder)], folder)
    different = differences(truth, found(kind.results(folder), bool(kind.first)))
    return f"differs in {', '.join(different)}" if different else ""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kinds", default=",".join(KINDS))
    options.add_argument("--kills", type=int, default=2)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    rng, bad, total = random.Random(given.seed), 0, 0
    for name in given.kinds.split(","):
        kind, root = KINDS[name], Path(tempfile.mkdtemp(prefix=f"killed-{name}-"))
        (root / "begun").mkdir()
        if kind.first:
            finished(list(kind.first), root / "begun")
        shutil.copytree(root / "begun", root / "whole")
        seconds = finished(kind.arguments, root / "whole")
        truth = found(kind.results(root / "whole"), bool(kind.first))
        print(f"{name}: undisturbed in {seconds:.1f} s, {len(truth)} frames or files", flush=True)
        for number in range(given.kills):
            shutil.copytree(root / "begun", root / str(number))
            at_s = rng.uniform(0.0, seconds)
            wrong = trial(kind, truth, at_s, root / str(number))
            bad, total = bad + bool(wrong), total + 1
            print(f"  killed after {at_s:5.1f} s: {wrong or 'equal'}", flush=True)
        shutil.rmtree(root)
    print(f"{total - bad} of {total} equal the undisturbed run")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
