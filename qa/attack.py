"""Attack on certificates: random studies, each solved, then searched for a design that its certificate says cannot be.

    python qa/attack.py --studies 300 --seed 1 --out /tmp/attack     all; one line a study, a table at the end
    python qa/attack.py --seed 1 --study 17                          one of them alone
    python qa/attack.py --out /tmp/attack --resume                   go on where a run was stopped
    python qa/attack.py --only serving_moe                           those of one structure

A certificate is false where a design keeps every limit (no tolerance) and lies more than 1e-9 below the bound, or where
one keeps all limits although none can. Exits with 1 if one is false, or if fewer than 95 % of the studies that are
log-convex by construction keep their proof. Nothing is compiled that NumPy runs sooner (`codesign.jaxprs.evaluator`).
"""

import argparse
import csv
import math
import multiprocessing
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
from attack_goals import LOG_CONVEX, UNKNOWN
from attack_one import COLUMNS, prepared, study
from attack_studies import BASES, MEMBERS, family, kind_of

from codesign.jaxprs import evaluator as interpreting

BAR = 0.95


def several(seed: int, wanted: dict[int, list[int]]) -> Iterator[dict[str, Any]]:
    """The studies of some families, one after the other; what breaks is told and counts as a failure."""
    prepared()
    for number, members in wanted.items():
        given = None
        for one in members:
            try:
                given = given or family(seed, number)
                yield study(given, seed, one)
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                why = f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"
                yield dict.fromkeys(COLUMNS, "") | {
                    "study": one, "kind": kind_of(seed, number), "verdict": "failed", "truth": UNKNOWN, "false": 0,
                    "tried": 0, "reason": why, "cpu_s": 0,
                }  # fmt: skip
        jax.clear_caches()
        interpreting.forget_programs()


def lane(queue: Any, seed: int, wanted: dict[int, list[int]]) -> None:
    """What one worker does: rows into the queue, then nothing; it ends with the process that asked for it."""
    asked_by = os.getppid()
    for row in several(seed, wanted):
        queue.put(row)
        if os.getppid() != asked_by:
            return
    queue.put(None)


def results(seed: int, wanted: dict[int, list[int]], workers: int) -> Iterator[dict[str, Any]]:
    """Rows as they come; every worker has families of its own."""
    if workers == 1:
        yield from several(seed, wanted)
        return
    context = multiprocessing.get_context("spawn")
    queue, numbers = context.Queue(), list(wanted)
    parts = [{number: wanted[number] for number in numbers[at::workers]} for at in range(workers)]
    processes = [context.Process(target=lane, args=(queue, seed, part), daemon=True) for part in parts]
    for process in processes:
        process.start()
    left = workers
    while left:
        row = queue.get()
        left -= row is None
        if row is not None:
            yield row


def line(row: dict[str, Any]) -> str:
    """One study."""
    margin = f", attacked down to {float(row['margin']):+.1e} of the bound" if row["margin"] != "" else ""
    wrong = f" FALSE: {row['found']} at {row['design']}" if int(row["false"]) else ""
    said = row["reason"] if row["verdict"] != "proven" else row["claim"]
    return (
        f"{row['study']:>5} {row['kind']:>16} {row['truth']:>10} {row['verdict']:>7} {row['search']}: {row['form']}: "
        f"{said}{margin}; {row['tried']} designs, {row['cpu_s']} CPU s{wrong}"
    )


def table(rows: list[dict[str, Any]], seed: int) -> int:
    """Print the summary; says how the run ends."""
    print(f"\n{'kind':>16} studies log-convex proven tested refused failed   designs least margin false")
    for kind in (*BASES, "all"):
        some = [row for row in rows if kind in (row["kind"], "all")]
        if some:
            count = {v: sum(row["verdict"] == v for row in some) for v in ("proven", "tested", "refused", "failed")}
            margin = min((float(row["margin"]) for row in some if row["margin"] != ""), default=math.nan)
            tried = sum(int(row["tried"]) for row in some)
            convex, false = sum(row["truth"] == LOG_CONVEX for row in some), sum(int(row["false"]) for row in some)
            print(
                f"{kind:>16} {len(some):7d} {convex:10d} {count['proven']:6d} {count['tested']:6d}"
                f" {count['refused']:7d}"
                f" {count['failed']:6d} {tried:9d} {margin:12.2e} {false:5d}"
            )
    truly = [row for row in rows if row["truth"] == LOG_CONVEX]
    lost = [row for row in truly if row["verdict"] != "proven"]
    wrong = [row for row in rows if int(row["false"])]
    for what, some in (("lost", lost), ("FALSE", wrong), ("failed", [r for r in rows if r["verdict"] == "failed"])):
        for row in some:
            told = f"{row['found']} below the bound {row['bound']}" if what == "FALSE" else row["reason"]
            print(f"{what}: --seed {seed} --study {row['study']} ({row['kind']}, {row['form']}): {told}")
    share = 1 - len(lost) / max(len(truly), 1)
    kept = f"{len(truly) - len(lost)} of {len(truly)} log-convex studies keep their proof ({share:.1%})"
    print(f"{kept}; {len(wrong)} certificates are false")
    return 1 if wrong or share < BAR or any(row["verdict"] == "failed" for row in rows) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--study", type=int, help="this one alone")
    parser.add_argument("--only", choices=[*BASES], help="studies of one structure")
    parser.add_argument("--out", type=Path, help="folder of the record, studies.csv")
    parser.add_argument("--resume", action="store_true", help="leave out what the record has")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    given = parser.parse_args()
    numbers = range(given.studies) if given.study is None else [given.study]
    numbers = [n for n in numbers if given.only in (None, kind_of(given.seed, n // MEMBERS))]
    record = given.out / "studies.csv" if given.out else None
    rows: list[dict[str, Any]] = []
    if record is not None:
        record.parent.mkdir(parents=True, exist_ok=True)
        if given.resume and record.exists():
            rows = [row for row in csv.DictReader(record.open()) if int(row["seed"]) == given.seed]
        else:
            record.write_text(",".join(("seed", *COLUMNS)) + "\n")
    known, wanted = {int(row["study"]) for row in rows}, {}
    for number in numbers:
        if number not in known:
            wanted.setdefault(number // MEMBERS, []).append(number)
    for row in results(given.seed, wanted, given.workers if len(wanted) > 1 else 1):
        rows.append(row)
        print(line(row), flush=True)
        if record is not None:
            with record.open("a", newline="") as file:
                csv.DictWriter(file, ("seed", *COLUMNS)).writerow({"seed": given.seed} | row)
    return table(rows, given.seed)


if __name__ == "__main__":
    sys.exit(main())
