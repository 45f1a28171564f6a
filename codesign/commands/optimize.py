"""`codesign optimize`: from a study to a run folder with its designs, frames and report."""

import dataclasses
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from ..config import Study, check_formats, check_plan, study_from_config
from ..config.as_sold import in_words
from ..config.consistency import check_boxes
from ..config.least_devices import sized_study
from ..core.atomic_files import write_text
from ..core.errors import ConfigError, WriteError, suggestion
from ..core.fields import replace
from ..core.json_yaml import dumps
from ..core.pareto_tools import spread_rows
from ..core.units import engineering
from ..core.untrusted_io import written
from ..model.scenario import Scenario
from ..report import build_report
from ..report.run_folder import MANIFEST, noted_names
from ..search import AbstractSearch, Certificate, Grid, GridThenProof, Mix, Problem, Progress, Trace, under_assumption
from ..search.base import refuse_without_logarithm
from ..search.exhaustive.grid import CHECKPOINT
from ..search.results import Results, collect, placed
from ..uncertainty import of_designs, strata_of, trace_with_draws
from .designs_table import add_devices, designs_table, prepare_devices, shown_columns
from .infeasible import refuse_infeasible
from .left_files import discard_run, new_folder, write_inputs, write_results, write_unusual
from .remarks import (
    of_hardware,
    of_table,
    print_explanations,
    say_default,
    say_devices,
    say_idle,
    say_not_held,
    say_trace,
    unusual_answer,
    warn,
)
from .setup import prepare_jax
from .terminal import console, intervals_text, job_text, next_steps, show_certificate, texts, units_of

__all__ = [
    "INTERRUPTED", "STAGES", "SearchProgressBar", "add_intervals", "check_study", "gap_text", "optimize", "run_name",
    "run_study", "some_design", "stage_of", "trace_once",
]  # fmt: skip


# Ctrl-C as a request: a search stops where its result is whole, and what it found is still written.


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
            signal.signal(signal.SIGINT, self._interrupt)
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

    def _interrupt(self, *_: object) -> None:
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


# Progress of a search as a reader wants it: what is being done in words, how far, the best so far, how sure.
#
# Searches name their stages in a word (`Progress.stage`; of several searches, `2 of 3, close`). Here each has a
# sentence and says what it counts; a stage without one is shown by its own name (a peer's of `search=blackbox`).


class StageText(NamedTuple):
    """Stage of a search: what it does in words, and the unit of its count."""

    words: str
    unit: str


STAGES = {
    "grid": StageText("pricing the grid", "points"),
    "incumbent": StageText("looking for a good design", "plans tried"),
    "bound": StageText("bounding every plan", "plans settled"),
    "close": StageText("tightening the open bounds", "plans settled"),
    "parts": StageText("proving partitions of the plans", "partitions"),
    "values": StageText("proving each fixed value", "values"),
    "integer": StageText("proving integer designs", "combinations"),
    "what must give": StageText("infeasible: looking for a minimal relaxation of the constraints", "limits relaxed"),
    "gradient": StageText("descending along gradients", "steps"),
    "solve": StageText("solving the plans nearest to the descent's end", "rounds"),
    "amortised": StageText("pricing what the trained network answers", "designs"),
    "front": StageText("proving ends and middle of the front", "problems solved"),
    "between": StageText("refining the front", "parts"),
    "blends": StageText("proving interpolated designs", "designs"),
    "levels": StageText("proving the front level by level", "levels"),
    "exchange": StageText("local search over the plans of all workloads", "plans settled"),
    "lean": StageText("Lagrangian bound over all workloads", "plans settled"),
    "drop": StageText("pruning plans", "plans settled"),
    "choose": StageText("branch and bound over the remaining plans", "plans settled"),
}
"""Name of a stage -> words."""


def stage_of(name: str) -> StageText:
    """A stage in words: `whole, 2 of 3, close` is the closing of the second of three searches over whole numbers."""
    *where, last = name.split(", ")
    result = STAGES.get(last, StageText(last, ""))
    places = ["integers" if part == "integer" else part for part in where]
    return result._replace(words=", ".join([*places, result.words]))


def counted(progress: Progress, unit: str) -> str:
    """`280 of 280 plans settled`; `129 plans tried` where the stage does not know how many will be."""
    has_total = progress.stage.split(", ")[-1] != "incumbent"
    count = f"{progress.done:,} of {progress.total:,}" if has_total else f"{progress.done:,}"
    return f"{count} {unit}".rstrip()


def gap_text(progress: Progress) -> str:
    """Gap between the best design and the bound, as text; a bound that may not hold is not called proven."""
    if not progress.proven:
        return f"gap to bound {progress.gap:.2%}, not proven"
    return f"proven within {progress.gap:.2%}" if progress.gap >= 5e-5 else "proven within less than 0.01%"


class SearchProgressBar:
    """A progress bar for a search: its pace and the best goal so far; one line a stage without a terminal."""

    def __init__(self, out: Console, text: Callable[[str, float], str]):
        """Prepare a bar and the lines beside it.

        Args:
            out: where to.
            text: (name, value) -> the value of a goal with its unit.
        """
        self.out, self.text, self.stage, self.started = out, text, "", 0.0
        self.bar = Bar(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"), TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"), console=out, disable=not out.is_terminal, transient=True,
        )  # fmt: skip
        self.task = self.bar.add_task("reading the model", total=None, note="", count="")

    def __enter__(self) -> "SearchProgressBar":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Take a report of the search."""
        now = time.perf_counter()
        if progress.stage != self.stage:
            self.stage, self.started = progress.stage, now
        elapsed = now - self.started
        rate = progress.done / elapsed if elapsed > 0.05 else 0.0
        stage, notes = stage_of(progress.stage), [f"{engineering(rate)}/s"] if rate >= 1 else []
        if math.isfinite(progress.best):
            notes.append(f"best {progress.goal} {self.text(progress.goal, progress.best)}")
        notes += [gap_text(progress)] if math.isfinite(progress.gap) else []
        note, count = ", ".join(notes), counted(progress, stage.unit)
        self.bar.update(
            self.task, description=stage.words, completed=progress.done, total=progress.total, note=note, count=count
        )
        if progress.done >= progress.total and not self.out.is_terminal:
            self.out.print(f"{stage.words}: {count}{f'; {note}' if note else ''}")


SHOWN = 8  # designs in the table
COMPARED = 16  # designs with intervals
NAMING = ("accelerator", "die", "stack", "memory", "fabric", "collective", "scale_out", "model", "workload")
MOST_NAMED = 80  # characters of a run folder that say what was chosen of these
INTERRUPTED = 130  # exit code of a search that was ended early, as of a shell's


def optimize(overrides: list[str], root: Path | str = "runs", *, explain: bool = False) -> int:
    """Search the study of these overrides and leave a run folder below `root`.

    Args:
        overrides: of the configuration.
        root: folder of run folders.
        explain: print what the columns of the table mean.

    Returns:
        Exit code: 0, or 130 where Ctrl-C ended the search; its best design so far is written all the same.

    Raises:
        ConfigError: bad configuration (before any folder is made), or no design that keeps all limits (after).
    """
    prepare_jax()
    study, counted = sized_study(study_from_config(*overrides), overrides)
    trace_once(study)
    check_study(study)
    say_default(overrides)
    say_devices(list(study.overrides), study.space, counted)
    say_not_held(study, overrides)
    say_idle(study.scenario, overrides)
    warn(study.unusual)
    say_trace(study.provenance)
    folder = new_folder(Path(root), run_name(study))
    try:
        done = run_study(study, folder, console(), explain=explain)
    except KeyboardInterrupt:
        print(f"codesign: interrupted before a design was found; {folder} holds the study", file=sys.stderr)
        return INTERRUPTED
    if done.interrupted:
        return INTERRUPTED
    refuse_infeasible(study, done.results.best, done.trace.certificate)
    return 0


def trace_once(study: Study) -> None:
    """So that designs and the draws of their intervals are priced by one trace."""
    if not isinstance(study.search, Mix):
        trace_with_draws(some_design(study))


def check_study(study: Study) -> None:
    """Whatever can be refused before a folder is made: metric names, an empty space.

    Raises:
        ConfigError: naming what is wrong.
    """
    from ..core.jax_typed import shapes_of
    from ..staging import base_of

    check_formats(study.scenario)
    if not study.space.plan:
        check_plan(study.scenario)

    def named(metrics: Any) -> None:
        study.objective.check(metrics)
        numbers = metrics.flat()
        for key in ("minimise", "maximise", "objectives"):
            wanted: Any = getattr(study.search, key, ())
            for name in () if isinstance(wanted, bool) else wanted:  # `search=inverse` says which way, not what
                if name not in numbers:
                    raise ConfigError(f"search.{key}: metric {name!r} does not exist{suggestion(name, numbers)}")

    shapes_of(named, base_of(some_design(study)).account.metrics)
    _check_some_plan(study)
    study.search.refuse(study.problem)
    problems = study.search.problems.values() if isinstance(study.search, Mix) else [study.problem]
    for problem in problems:
        refuse_without_logarithm(study.search, problem)
        _check_boxes(problem)


def _check_boxes(problem: Problem) -> None:
    """Devices must fill boxes, however many may be chosen."""
    counts = {name: problem.space.lists.get(name, ()) for name in ("device_count", "prefill_devices", "ffn_devices")}
    listed = [{f"plan.{name}": float(value)} for name, values in counts.items() for value in values]
    for change in listed or [{}]:
        check_boxes(replace(problem.scenario, change))


def some_design(study: Study) -> Scenario:
    """A scenario of the structure that designs of the study have: fields that the space lists are numbers in it."""
    return study.space.place(study.scenario, {name: values[0] for name, values in study.space.lists.items()})


def _check_some_plan(study: Study) -> None:
    """Refuse a space without a legal plan, with the numbers of one that is not."""
    try:
        study.space.legal_sample(study.scenario, 1)
    except ConfigError as error:
        first = {f"plan.{name}": float(values[0]) for name, values in study.space.lists.items()}
        try:
            check_plan(replace(study.scenario, first))
        except ConfigError as example:
            raise ConfigError(f"{error}; one of them: {example}") from error
        raise


def run_name(study: Study) -> str:
    """The experiment's name where it was asked for; else what of the design was chosen in place of the default's."""
    names = [text.partition("=") for text in study.overrides]
    if any(key in ("experiment", "name") for key, _, _ in names):
        return study.name
    chosen = [value for key, _, value in names if key in NAMING and value]
    return "_".join(chosen)[:MOST_NAMED] or study.name


class RunOutcome(NamedTuple):
    """Results of a run, and whether Ctrl-C ended its search."""

    results: Results
    trace: Trace
    interrupted: bool


def run_study(study: Study, folder: Path, out: Console, *, alone: bool = True, explain: bool = False) -> RunOutcome:
    """Search, price exactly, write every file of the run folder.

    Args:
        study, folder, out: what, where, and what is told to whoever waits.
        alone: no job of many, which show nothing and whose page is made when it is asked for (`codesign report`).
        explain: print what the columns of the table mean.

    Raises:
        WriteError: a file cannot be written; of the folder nothing is left but what a search can be continued from.
    """
    try:
        return _run_study(study, folder, out, alone=alone, explain=explain)
    except WriteError:
        discard_run(folder)
        raise


def _run_study(study: Study, folder: Path, out: Console, *, alone: bool, explain: bool) -> RunOutcome:
    started = time.perf_counter()
    write_inputs(study, folder)
    prepare_devices(study)
    watched = SearchProgressBar(out if alone else Console(quiet=True), texts(study))
    with Interrupt() as interrupt:

        def report(progress: Progress) -> None:
            watch(progress if progress.goal else dataclasses.replace(progress, goal=study.objective.goal))
            interrupt.check(progress)

        wall, cpu = time.perf_counter(), time.process_time()
        with watched as watch:
            trace = _saving(study.search, folder).run(study.problem, study.seed, report)
        under_assumption(study.problem, trace)
        if trace.evidence is not None:  # `codesign verify` says how long it took beside the search
            took = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
            trace.evidence.header["took"] = took
        interrupt.settle()
        if not trace.method:
            raise KeyboardInterrupt
        results = collect(study.problem, trace, study.seed, study.provenance)
        if alone:
            add_intervals(study, results)
        add_devices(study, results)
        write_results(study, results, trace, folder)
        answer = unusual_answer(study, results)
        warn(answer)
        write_unusual((*study.unusual, *answer), folder)
        write_text(folder / MANIFEST, dumps(written(folder, noted_names(folder)), indent=1))
        page = build_report(folder, pictures=False) if alone else None
    if page is not None:
        show(study, results, trace, out, explain=explain)
        out.print(f"{time.perf_counter() - started:.1f} s; report: {page}")
        out.print(next_steps(str(folder), proven=trace.evidence is not None), highlight=False)
    return RunOutcome(results, trace, interrupt.stopped)


def add_intervals(study: Study, results: Results) -> None:
    """Ends of 90 % intervals as columns of the best designs, and what the first may lose to the others."""
    if isinstance(study.search, Mix):
        return
    frame = results.designs
    best = frame[frame["feasible"]].head(COMPARED) if frame["feasible"].any() else frame.head(1)
    scenarios = [placed(study.problem, row) for _, row in best.iterrows()]
    result = of_designs(study.objective, scenarios)
    if result is None:
        return
    intervals = pd.DataFrame([one.columns() for one in result.designs], index=best.index)
    results.designs = frame.join(intervals)
    results.pareto = results.pareto.join(intervals)
    results.regret = result.regret._asdict() | {"text": result.regret.text()}
    results.errors = strata_of(scenarios[0])


def _saving(search: AbstractSearch, folder: Path) -> AbstractSearch:
    """A search that can be continued keeps its state in the run folder."""
    if isinstance(search, Grid) and not search.checkpoint:
        return dataclasses.replace(search, checkpoint=str(folder / CHECKPOINT))
    if isinstance(search, GridThenProof):
        return dataclasses.replace(search, grid=_saving(search.grid, folder))
    return search


def show(study: Study, results: Results, trace: Trace, out: Console, *, explain: bool = False) -> None:
    """The best designs and how they were found; what the columns mean where that is asked for."""
    count = ", ".join(f"{value:,} {name}" for name, value in trace.counts.items())
    result = trace.certificate or Certificate()
    device = str(results.best.get("device", ""))
    what = study.name if isinstance(study.search, Mix) else job_text(placed(study.problem, results.best), device)
    designs, metrics = results.designs, [result.goal or study.objective.goal]
    title = f"{what}: best designs by {metrics[0]}"
    if result.front is not None:
        metrics = list(result.front.metrics)
        designs = designs.iloc[spread_rows(np.log(designs[metrics].to_numpy()), SHOWN)]
        title = f"{what}: {len(designs)} of {len(results.designs)} on the front of {' and '.join(metrics)}"
    words, hardware = study.scenario.workload.words, None
    if not isinstance(study.search, Mix):
        hardware = in_words(study, designs.head(SHOWN))
    shown = (SHOWN, units_of(study.space), metrics, words, hardware, out.width)
    out.print(designs_table(designs, title, *shown))
    if explain:
        columns, _ = shown_columns(designs, *shown)
        named = [(one.head, one.name) for one in columns]
        print_explanations(out, of_table(named, designs.columns, words, of_hardware(study)))
    if text := intervals_text(results.best):
        out.print(text, highlight=False)
    out.print(f"{count}; {trace.claim}")
    if space := study.space.text(study.scenario):
        out.print(f"looked at: {space}", highlight=False)
    show_certificate(out, result, texts(study, 6))
    if results.catalogue:
        out.print(f"{device}: {'; '.join(results.catalogue)}", highlight=False)
    if results.regret:
        out.print(results.regret["text"])
    for group, text in results.cables.items():
        out.print(f"which cable limits {group}: {text}", highlight=False)
