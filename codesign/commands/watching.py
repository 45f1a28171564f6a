"""Progress of a search as a reader wants it: what is being done in words, how far, the best so far, how sure.

Searches name their stages in a word (`Progress.stage`; of several searches, `2 of 3, close`). Here each has a sentence
and says what it counts; a stage without one is shown by its own name (a peer's of `search=blackbox`).
"""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from ..core.units import engineering
from ..search import Progress


class Told(NamedTuple):
    """Stage of a search: what it does in words, and the unit of its count."""

    words: str
    unit: str


STAGES = {
    "grid": Told("pricing the grid", "points"),
    "incumbent": Told("looking for a good design", "plans tried"),
    "bound": Told("bounding every plan", "plans settled"),
    "close": Told("tightening the open bounds", "plans settled"),
    "parts": Told("proving partitions of the plans", "partitions"),
    "values": Told("proving each fixed value", "values"),
    "integer": Told("proving integer designs", "combinations"),
    "what must give": Told("infeasible: looking for a minimal relaxation of the constraints", "limits relaxed"),
    "gradient": Told("descending along gradients", "steps"),
    "solve": Told("solving the plans nearest to the descent's end", "rounds"),
    "amortised": Told("pricing what the trained network answers", "designs"),
    "front": Told("proving ends and middle of the front", "problems solved"),
    "between": Told("refining the front", "parts"),
    "blends": Told("proving interpolated designs", "designs"),
    "levels": Told("proving the front level by level", "levels"),
    "exchange": Told("local search over the plans of all workloads", "plans settled"),
    "lean": Told("Lagrangian bound over all workloads", "plans settled"),
    "drop": Told("pruning plans", "plans settled"),
    "choose": Told("branch and bound over the remaining plans", "plans settled"),
}
"""Name of a stage -> words."""


def stage_of(name: str) -> Told:
    """A stage in words: `whole, 2 of 3, close` is the closing of the second of three searches over whole numbers."""
    *where, last = name.split(", ")
    result = STAGES.get(last, Told(last, ""))
    places = ["integers" if place == "integer" else place for place in where]
    return result._replace(words=", ".join([*places, result.words]))


def counted(progress: Progress, unit: str) -> str:
    """`280 of 280 plans settled`; `129 plans tried` where the stage does not know how many will be."""
    known = progress.stage.split(", ")[-1] != "incumbent"
    count = f"{progress.done:,} of {progress.total:,}" if known else f"{progress.done:,}"
    return f"{count} {unit}".rstrip()


def gap_text(progress: Progress) -> str:
    """Gap between the best design and the bound, as text; a bound that may not hold is not called proven."""
    if not progress.proven:
        return f"gap to bound {progress.gap:.2%}, not proven"
    return f"proven within {progress.gap:.2%}" if progress.gap >= 5e-5 else "proven within less than 0.01%"


class Watch:
    """A progress bar for a search: its pace and the best goal so far; one line a stage without a terminal."""

    def __init__(self, out: Console, text: Callable[[str, float], str]):
        """Begin.

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

    def __enter__(self) -> "Watch":
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
