"""Proofs of serving studies: `python benchmarks/serving_proofs.py [certified] [front] [--profile]`.

Prints wall and CPU seconds of a search that is certified, first in a process and again (the model traced, its slopes
derived and packed), with its plans, variables and gap; of a front, how many points are proven and how wide the widest
is. With `--profile` the rooms of the package in which the first search spends its CPU time.
"""

import cProfile
import pstats
import sys
import time
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.status import Status

from codesign import study_from_config
from codesign.search import Progress

jax.config.update("jax_enable_x64", True)
STUDY = "experiment=serve_deepseek_v3"
FRONT = (
    STUDY, "search=pareto", "search.minimise=[]", "search.maximise=[tokens_per_s_per_user,tokens_per_s_per_device]",
    "~objective.limits.tpot_s", "search.levels=8", "search.between=32",
)  # fmt: skip
BARS = {"certified": 5.0, "front": 30.0}  # seconds, for 0.1 % over the list and for thirty proven points
ROOMS = ("staging", "curvature", "search", "metrics", "workloads", "collectives", "fabrics", "hardware")


def searched(what: str, *overrides: str) -> tuple[Any, float, float]:
    """Trace of a search, its wall and CPU seconds, with progress where somebody looks."""
    study, out = study_from_config(*overrides), Console(stderr=True)
    with Status(what, console=out) as status:

        def report(progress: Progress) -> None:
            if out.is_terminal:
                status.update(f"{what}: {progress.stage} {progress.done:,} of {progress.total:,}")

        wall, cpu = time.perf_counter(), time.process_time()
        trace = study.search.run(study.problem, study.seed, report)
        return trace, time.perf_counter() - wall, time.process_time() - cpu


def by_room(profile: cProfile.Profile) -> dict[str, float]:
    """Share of own time by room of the package; what JAX and NumPy do counts as `outside`."""
    shares: dict[str, float] = dict.fromkeys((*ROOMS, "outside"), 0.0)
    for (file, _, _), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        parts = Path(file).parts
        room = parts[parts.index("codesign") + 1] if "codesign" in parts[:-1] else "outside"
        shares[room if room in shares else "outside"] += own
    total = sum(shares.values())
    return {room: own / total for room, own in shares.items()}


def told(what: str, trace: Any, wall: float, cpu: float) -> None:
    """One line."""
    found, gap = trace.certificate, trace.certificate.gap
    more = f"{len(trace.method)} designs, " if what.startswith("front") else ""
    bar = BARS[what.split(",")[0]]
    print(f"{what}: {cpu:.1f} CPU s, {wall:.1f} s wall (bar {bar:g}); {more}proven: {found.certified}, gap {gap}")


def main() -> None:
    """Run what is asked for."""
    asked = [word for word in sys.argv[1:] if not word.startswith("-")] or list(BARS)
    for what in asked:
        overrides = FRONT if what == "front" else (STUDY,)
        profile = cProfile.Profile(time.process_time)
        if "--profile" in sys.argv:
            profile.enable()
        first = searched(what, *overrides)
        profile.disable()
        told(f"{what}, first in a process", *first)
        if "--profile" in sys.argv:
            shares = sorted(by_room(profile).items(), key=lambda item: -item[1])
            print("  " + ", ".join(f"{room} {share:.0%}" for room, share in shares if share > 0.005))
        told(f"{what}, again", *searched(what, *overrides))


if __name__ == "__main__":
    main()
