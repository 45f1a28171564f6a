"""Ray and Slurm themselves, workers and nodes killed under a search: what comes back equals what one process finds.

    python qa/clusters.py            both (`--only ray`, `--only slurm`); what is not installed is left out

What the cluster adds to ten tasks of 20 s on two workers; then three searches on each: a mix of two workloads under
certificates, a worker killed meanwhile; the jobs of a multirun (`codesign optimize -m`); an exhaustive grid in chunks,
a worker and then a whole node killed meanwhile.
"""

import argparse
import contextlib
import dataclasses
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from cluster_daemons import There, lacking, ray_of_this_machine, slurm_of_this_machine, waited

from codesign import Problem, prepare_jax, study_from_config
from codesign.search import Mix, Trace
from codesign.search.exhaustive import ChunkFolders, TopDesigns, screen, screen_in_chunks

STUDY = ["experiment=train_dlrm", "calibration=h100_sxm_roofline", "search=grid"]
VARIED = ("scale_up_bandwidth", "scale_out_bandwidth")
BLOCK, KEEP = 4096, 64
CERTIFIED = ["experiment=train_gpt3_175b", "calibration=h100_sxm_roofline", "search=certified"]
SEQUENCES = (2048, 4096)  # of the two workloads of the mix
WAITS, WAIT_S = 10, 20.0  # tasks that only wait, so that whatever else the machine does costs them nothing
JOBS = [*STUDY, "objective.limits.capex_usd=50e6,60e6"]


def grid(levels: int = 60) -> Problem:
    """The study whose grid is split."""
    return study_from_config(*STUDY, *(f"space.hardware.{name}.grid={levels}" for name in VARIED)).problem


def mix() -> Mix:
    """Two lengths of sequences on one machine, 27,936 plans."""
    problems = {str(each): study_from_config(*CERTIFIED, f"workload.sequence={each}").problem for each in SEQUENCES}
    return Mix({name: {} for name in problems}, gap=5e-3).bound(problems)


def killing(action: Callable[[], object]) -> tuple[threading.Thread, Callable[[bool], None]]:
    """A thread that kills once, and what starts it when something has come back."""
    thread = threading.Thread(target=action)

    def heard(something: bool) -> None:
        if something and not thread.ident:
            thread.start()

    return thread, heard


def grid_over(there: There, problem: Problem, folder: Path, block: int = BLOCK, chunk_s: float = 0.02) -> str:
    """A grid, a worker and then a node killed once the first chunk is there; what differs from one pass."""
    truth, said = screen(problem, block, keep=KEEP).top, []

    def kill() -> None:
        said.append(there.lose_worker())
        time.sleep(1)
        there.lose_node()

    thread, heard = killing(kill)
    runner = there.runner(chunk_s, folder)
    result = screen_in_chunks(
        problem, runner, block, lambda progress: heard(progress.done > 0), KEEP, ChunkFolders(str(folder))
    )
    if thread.ident:
        thread.join()
    same = {
        f.name: np.array_equal(getattr(result.top, f.name), getattr(truth, f.name))
        for f in dataclasses.fields(TopDesigns)
    }
    count = len(list((folder / "chunks").iterdir()))
    return told(same, f"{count} chunks, {result.evaluated:,} points, {sum(said)} worker and {len(said)} node killed")


def mix_over(there: There, wanted: Mix, folder: Path, chunk_s: float = 1e-3) -> str:
    """A mix, the first worker that is seen at work killed; what differs from the undivided answer."""
    problem, said = next(iter(wanted.problems.values())), []
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.2) and not sum(said):
            said.append(there.lose_worker())

    truth = wanted.run(problem, 0)
    thread = threading.Thread(target=kill)
    thread.start()
    result = wanted.over(there.runner(chunk_s, folder)).run(problem, 0)
    ended.set()
    thread.join()
    return told(apart(truth, result), f"a mix, {result.counts['plans']:,} plans, {sum(said)} worker killed")


def apart(one: Trace, other: Trace) -> dict[str, bool]:
    """Of each part of two traces whether it is the same; how long it took is no part of them."""
    if one.certificate is None or other.certificate is None:
        return {"certificate": one.certificate is other.certificate}
    points = {name: np.array_equal(column, other.points[name]) for name, column in one.points.items()}
    proofs = [dataclasses.replace(trace.certificate, history=()) for trace in (one, other) if trace.certificate]
    return points | {"claim": one.claim == other.claim, "certificate": proofs[0] == proofs[1]}


def jobs_over(there: There, folder: Path, chosen: list[str] | None = None) -> str:
    """Jobs of a multirun as tasks; what differs in the table of all jobs from the one of this process."""
    asked, tables = [sys.executable, "-m", "codesign", "optimize", "-m", *(chosen or JOBS)], []
    for name, runner in (("here", []), ("there", there.typed(folder / "exchange"))):
        place = folder / name
        place.mkdir()
        done = subprocess.run([*asked, *runner], cwd=place, capture_output=True, text=True)
        if done.returncode != 0:
            return f"differs: {done.stderr.strip().splitlines()[-1]}"
        tables.append(pd.read_parquet(next(place.glob("multirun/*/collected.parquet"))).drop(columns="overrides"))
    same = {"columns": list(tables[0]) == list(tables[1])}
    same |= {name: tables[0][name].equals(tables[1][name]) for name in tables[0] if name in tables[1]}
    return told(same, f"{tables[1]['job'].nunique()} jobs of a multirun, {len(tables[1])} designs")


def added_by(there: There, folder: Path) -> str:
    """What sending, replying and asking add to tasks on two workers, and how long their start takes."""
    began, came = time.perf_counter(), list[float]()
    for one in there.runner(WAIT_S, folder).results(waited, [WAIT_S] * WAITS):
        if one is not None:
            came.append(time.perf_counter() - began)
    start, least = came[0] - WAIT_S, WAIT_S * WAITS / 2
    added = (came[-1] - start) / least - 1
    told = f"{len(came)} tasks of {WAIT_S:.0f} s on two workers: {100 * added:.1f} % more than {least:.0f} s"
    return f"{told}, after {start:.1f} s in which the workers started"


def told(same: dict[str, bool], what: str) -> str:
    """One line."""
    wrong = [name for name, equal in same.items() if not equal]
    return f"{what}: {'differs in ' + ', '.join(wrong) if wrong else 'equal to one process'}"


TRIALS: dict[str, Callable[[There, Path], str]] = {
    "added": added_by,
    "mix": lambda there, folder: mix_over(there, mix(), folder),
    "jobs": jobs_over,
    "grid": lambda there, folder: grid_over(there, grid(), folder),
}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", choices=("ray", "slurm"))
    options.add_argument("--trials", default="added,mix,jobs,grid", help="which, by comma")
    given = options.parse_args()
    prepare_jax()
    wrong = 0
    for name in ("ray", "slurm") if given.only is None else (given.only,):
        if lacking(name):
            print(f"{name}: left out: {lacking(name)}", flush=True)
            continue
        with tempfile.TemporaryDirectory(prefix=f"cluster-{name}-") as text, contextlib.ExitStack() as stack:
            folder = Path(text)
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="daemons-")))
            there = stack.enter_context(ray_of_this_machine() if name == "ray" else slurm_of_this_machine(place))
            for number, trial in enumerate(given.trials.split(",")):
                box, began = folder / str(number), time.perf_counter()
                box.mkdir()
                line = TRIALS[trial](there, box)
                wrong += "differs" in line
                print(f"{name}: {line}; {time.perf_counter() - began:.1f} s", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
