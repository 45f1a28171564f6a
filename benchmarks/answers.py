"""What a user waits for: `codesign optimize` with nothing cached and again, its compilations, its proof, five jobs.

    python benchmarks/answers.py                 the default study
    python benchmarks/answers.py photonic_rack   another experiment
    python benchmarks/answers.py --json

CPU seconds of the whole process and all it starts, imports included; each run in a process and a folder of its own.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

COMPILED = "Finished XLA compilation"  # what JAX logs once for each
JOBS = "objective.limits.capex_usd=52e6,54e6,56e6,58e6,60e6"  # of one structure: another limit is another number


class Run(NamedTuple):
    """One command: CPU and wall-clock seconds, and how many programs were compiled."""

    cpu_s: float
    wall_s: float
    compiled: int


def run(folder: Path, *arguments: str) -> Run:
    """`codesign` with these arguments in a folder, its cache in the folder too."""
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "JAX_LOG_COMPILES": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as on anybody's machine
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "codesign", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"codesign {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(cpu, wall, done.stderr.count(COMPILED))


def measured(experiment: str) -> dict[str, Run]:
    """Every command once, but for the first study, which is run twice more."""
    chosen = [f"experiment={experiment}"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = {"nothing cached": run(folder, "optimize", *chosen)}
        again = [run(folder, "optimize", *chosen) for _ in range(2)]
        result["again"] = min(again)
        latest = sorted((folder / "runs").iterdir())[-1]
        result["verify"] = run(folder, "verify", str(latest))
        result["five jobs"] = run(folder, "optimize", "-m", *chosen, JOBS)
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", nargs="?", default="train_gpt3_175b")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measured(options.experiment)
    if options.json:
        print(json.dumps({name: one._asdict() for name, one in result.items()}))
        return
    for name, one in result.items():
        print(f"{name:>16}: {one.cpu_s:6.1f} CPU s, {one.wall_s:6.1f} s, {one.compiled} compilations")
    print(f"five jobs over one: {result['five jobs'].cpu_s / result['again'].cpu_s:.1f} x")


if __name__ == "__main__":
    main()
