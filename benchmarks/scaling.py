"""What a grid over many processes costs: units measured here, and what they come to over many workers.

    python benchmarks/scaling.py                              two processes over one; 10^12 points on 1,000 workers
    python benchmarks/scaling.py --points 1e10 --workers 2    another plan (`--rounds 5`, `--json`)

One process and two do the same chunks in turn. Whoever else uses the machine shows in the ratio: quote the load too.
"""

import argparse
import json
import os
import pickle
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from codesign import prepare_jax, study_from_config
from codesign.executors import Local
from codesign.search.exhaustive import (  # fmt: skip
    ChunkWork,
    Portion,
    PortionMerger,
    Sweep,
    cut,
    edges_of,
    load_portion,
    merged,
    save_portion,
)

LEVELS = [f"space.hardware.{name}.grid=40" for name in ("scale_up_bandwidth", "scale_out_bandwidth")]
BLOCK, KEEP = 262_144, 64
CHUNK_S = 20.0  # of the plan
CALLS = 20
SLOWEST = 2.0  # a straggler: a worker at half the rate of the others


class Units(NamedTuple):
    """Measured here. Seconds are of CPU where a core's work is meant, of the wall where somebody waits."""

    points_per_cpu_s: float  # of one core
    sweep_s: float  # wall, of a process: tracing the study
    start_s: float  # wall, from asking for a worker to its first reply
    reply_s: float  # wall, of a task that does nothing: there and back
    send_s: float  # of a portion: pickled and read back
    save_s: float
    load_s: float
    merge_s: float  # of two portions of one chunk
    merge_row_s: float  # and of each further chunk in them
    study_bytes: float
    portion_bytes: float
    file_bytes: float
    row_bytes: float  # of a chunk in a merged portion


def timed(call: Callable[[], object], calls: int = CALLS) -> float:
    """Seconds of CPU of one call, in the median."""
    spent = []
    for _ in range(calls):
        began = time.process_time()
        call()
        spent.append(time.process_time() - began)
    return statistics.median(spent)


def measured(sweep: Sweep, sweep_s: float, folder: Path) -> tuple[Units, ChunkWork]:
    """Units of one study, chunk by chunk of one block."""
    work = ChunkWork(sweep, edges_of(sweep))
    chunks = cut(work.study, [(0, min(24, sweep.block_count))], 1)
    spent, portions = [], []
    for chunk in chunks:
        began = time.process_time()
        portions.append(work(chunk))
        spent.append((time.process_time() - began) / portions[-1].points)
    first = portions[0]
    half = len(portions) // 2
    big = [PortionMerger(part).merged_portion() for part in (portions[:half], portions[half:])]
    assert isinstance(big[0], Portion)
    assert isinstance(big[1], Portion)
    path = save_portion(first, sweep, folder)
    merge_s = timed(lambda: merged(portions[0], portions[1]))
    whole_s = timed(lambda: merged(big[0], big[1]))
    rows = first.counts.nbytes + first.chunks.nbytes + first.seconds.nbytes
    began = time.perf_counter()
    arriving = Local(1).results(abs, range(CALLS + 1))
    next(one for one in arriving if one is not None)
    start_s, began = time.perf_counter() - began, time.perf_counter()
    list(arriving)
    reply_s = (time.perf_counter() - began) / CALLS
    units = Units(
        points_per_cpu_s=1 / statistics.median(spent), sweep_s=sweep_s, start_s=start_s, reply_s=reply_s,
        send_s=timed(lambda: pickle.loads(pickle.dumps(first))),
        save_s=timed(lambda: save_portion(first, sweep, folder)), load_s=timed(lambda: load_portion(path)),
        merge_s=merge_s, merge_row_s=max(0.0, (whole_s - merge_s) / max(1, len(portions) - 2)),
        study_bytes=float(len(pickle.dumps(work))), portion_bytes=float(len(pickle.dumps(first))),
        file_bytes=float(path.stat().st_size), row_bytes=float(rows),
    )  # fmt: skip
    return units, work


def rate(work: ChunkWork, workers: int, sizes: int, total: int) -> tuple[float, float]:
    """(points/s by the wall while all workers are at work, share of that time not spent in chunks)."""
    chunks = cut(work.study, [(0, total)], sizes)
    began, points, inside, seen = 0.0, 0, 0.0, 0
    for portion in Local(workers).results(work, chunks):
        if portion is None:
            continue
        seen += 1
        if seen == workers:  # each has traced the study and done one
            began = time.perf_counter()
        elif seen > workers:
            points, inside = points + portion.points, inside + float(portion.seconds.sum())
    wall = time.perf_counter() - began
    return points / wall, 1 - inside / (wall * workers)


def planned(units: Units, points: float, workers: int) -> list[tuple[str, float, str]]:
    """(what, number, unit)."""
    chunks = max(1.0, points / (units.points_per_cpu_s * CHUNK_S))
    each = -(-chunks // workers)
    levels = int(chunks).bit_length()  # a portion is merged so often: each time with one of its size
    take = units.send_s + units.save_s + units.merge_s + levels * units.merge_row_s
    setup = units.start_s + units.sweep_s
    ideal = points / units.points_per_cpu_s / workers
    wall = setup + each * (CHUNK_S + units.reply_s) + take
    return [
        ("chunks of 20 s", chunks, ""),
        ("chunks of each worker", each, ""),
        ("core seconds of evaluation", points / units.points_per_cpu_s, "s"),
        ("evaluation alone, evenly divided", ideal, "s"),
        ("start of a worker and tracing", setup, "s"),
        ("overhead of a chunk beside 20 s", 100 * (units.reply_s + units.send_s) / CHUNK_S, "%"),
        ("portions that arrive each second", workers / CHUNK_S, "/s"),
        ("coordinator at work for one (read, write, merge)", 1e3 * take, "ms"),
        ("coordinator busy", 100 * workers / CHUNK_S * take, "%"),
        ("workers that one coordinator serves", CHUNK_S / take, ""),
        ("all files read back and merged (resume)", chunks * (take - units.send_s - units.save_s + units.load_s), "s"),
        ("sent to workers", units.study_bytes * workers / 1e6, "MB"),
        ("files of chunks", units.file_bytes * chunks / 1e6, "MB"),
        ("memory of the merged portion", (units.portion_bytes + units.row_bytes * chunks) / 1e6, "MB"),
        ("wall, workers alike", wall, "s"),
        ("wall, some at half the rate", wall + (SLOWEST - 1) * CHUNK_S, "s"),
        ("lost with a worker, in the mean", CHUNK_S / 2 + setup, "s"),
    ]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--points", type=float, default=1e12)
    options.add_argument("--workers", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    prepare_jax()
    problem = study_from_config("search=grid", *LEVELS).problem
    began = time.perf_counter()
    sweep = Sweep(problem, BLOCK, KEEP)
    with tempfile.TemporaryDirectory() as folder:
        units, work = measured(sweep, time.perf_counter() - began, Path(folder))
    total = min(sweep.block_count, 48)
    pairs = []
    for _ in range(given.rounds):
        one, two = rate(work, 1, 2, total), rate(work, 2, 2, total)
        pairs.append((one, two))
        print(f"  1 process {one[0] / 1e6:.1f} M/s, 2 processes {two[0] / 1e6:.1f} M/s", file=sys.stderr, flush=True)
    ratio = statistics.median(two[0] / one[0] for one, two in pairs)
    beside = statistics.median(one[1] for one, _ in pairs)
    rows = planned(units, given.points, given.workers)
    if given.json:
        told = {"units": units._asdict(), "two_over_one": ratio, "beside_chunks": beside}
        print(json.dumps(told | {"plan": [row[:2] for row in rows]}, indent=1))
        return 0
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for name, value in units._asdict().items():
        print(f"  {name:<20} {value:.4g}")
    print(f"  two processes over one {ratio:.2f}; time of one beside chunks of two blocks {beside:.1%}")
    print(f"{given.points:g} points of the default study on {given.workers:,} workers")
    for name, value, unit in rows:
        print(f"  {name:<52} {value:10.4g} {unit}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
