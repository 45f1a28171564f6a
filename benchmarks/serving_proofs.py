"""Proofs of serving studies: `python benchmarks/serving_proofs.py [certified] [dense] [front] [usd] [--profile]`.

Prints wall and CPU seconds of a search that is certified, first in a process and again (the model traced, its slopes
derived and packed), with its plans, variables and gap; of a front, how many points are proven and how wide the widest
is. With `--profile` the rooms of the package in which the first search spends its CPU time.

`certified` is the whole list of `serve_deepseek_v3`, `dense` as long a list of `serve_llama31_405b`, both with the
arithmetic of the chip (its price and power with it) as a fourth variable. `front` is tokens/s of an accelerator against
tokens/s of a user, of which few plans are best; `usd` has the price of tokens for the first, which falls with hardware.
"""

import cProfile
import math
import pstats
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from codesign import prepare_jax, study_from_config
from codesign.search import Progress

prepare_jax()  # as commands do: the second process finds the model traced
STUDY = "experiment=serve_deepseek_v3"
ALONG = ("peak_flops_per_s.bf16", "peak_flops_per_s.vector", "tdp_w", "price_usd", "idle_w")
AGAINST_A_USER = (STUDY, "search=pareto", "~objective.limits.tpot_s")


def chip(peak: str, low: float, high: float) -> str:
    """A smaller or larger chip: the other peaks, its power and price go with one peak."""
    along = ",".join(f"cluster.accelerator.{name}" for name in ALONG if not name.endswith(peak))
    return (
        "+space.hardware.compute={_target_: codesign.study.design_space.Continuous,"
        f" path: cluster.accelerator.peak_flops_per_s.{peak}, tied: [{along}], low: {low:g}, high: {high:g}}}"
    )


STUDIES = {
    "certified": (STUDY, chip("fp8", 5e14, 4e15)),
    "dense": (
        "experiment=serve_llama31_405b", "search=certified", chip("bf16", 2e14, 2.5e15),
        "space.plan.micro_batch=[1,2,3,4,6,8,10,12,14,16,20,24,28,32,40,48,56,64,80,96,112,128,160,192,224,256,384,512]",
        f"space.plan.token_budget={list(range(128, 8193, 128))}".replace(" ", ""),
        "+space.plan.device_count=[16,32,64,128]",
    ),
    "front": (
        *AGAINST_A_USER, "search.minimise=[]", "search.maximise=[tokens_per_s_per_user,tokens_per_s_per_device]",
        "search.levels=8", "search.between=32",
    ),
    "usd": (
        *AGAINST_A_USER, "search.minimise=[usd_per_million_tokens]", "search.maximise=[tokens_per_s_per_user]",
        "search.levels=3", "search.between=4",
    ),
}  # fmt: skip
BARS = {"certified": 5.0, "dense": 5.0, "front": 30.0, "usd": 30.0}  # s, for 0.1 % over the list; for 30 proven points
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
    result, gap = trace.certificate, trace.certificate.gap or math.nan
    bar = BARS[what.split(",")[0]]
    if result.front is None:
        size = f"{trace.counts['plans']:,} plans, gap {100 * gap:.3f} %"
    else:
        gaps = [100 * point.gap for point in result.front.points if point.certified]
        size = f"{len(gaps)} of {len(trace.method)} points proven, the widest to {max(gaps, default=math.nan):.3f} %"
    print(
        f"{what}: {cpu:.1f} CPU s, {wall:.1f} s wall (bar {bar:g}); certified: {result.certified}, {size}", flush=True
    )


def main() -> None:
    """Run what is asked for."""
    asked = [word for word in sys.argv[1:] if not word.startswith("-")] or list(BARS)
    for what in asked:
        overrides = STUDIES[what]
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
