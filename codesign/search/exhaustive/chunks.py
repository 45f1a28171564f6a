"""An exhaustive search in chunks that know nothing of each other, and what they leave, put together in any order.

A chunk is a range of blocks of a study. What it leaves is a portion; `merged(a, b)` is a portion again. Merging is
associative, commutative and idempotent: ties go to the address that one pass meets first, the edges of the histogram
are fixed before the first chunk, and counts are kept for each chunk, so that one that comes twice is counted once.
"""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..._version import __version__
from ...core.atomic_files import writing
from ...core.errors import CodesignError, ConfigError
from ...core.pareto_tools import non_dominated_rows
from ...core.untrusted_io import UNREADABLE, checksum, read_frame
from ...executors import AbstractRunner
from ..base import AbstractSentWork, Problem, Progress, Report
from .sweep import BINS, EDITION, Sweep, SweepResult, TopDesigns

FIRST_LOOKS, LOOKS = 16, 64  # blocks that are looked at for the histogram's range: the first, and others evenly spread
NOTHING_SEEN = (-46.0, 46.0)  # its range where none of them has a feasible point: 1e-20 to 1e20


@dataclass(frozen=True, order=True)
class Chunk:
    """Blocks `first` to `first + blocks` of a study, which is named by a hash."""

    study: str
    first: int
    blocks: int

    @property
    def end(self) -> int:
        """The block after the last."""
        return self.first + self.blocks

    def __str__(self) -> str:
        """Blocks of the chunk, as text."""
        return f"blocks {self.first} to {self.end - 1}"


@dataclass(frozen=True)
class Portion:
    """Results of some chunks of a study.

    chunks: [n, 2] first block and blocks of each, in order; counts: [n, 2 + bins] points, feasible points and
    histogram of each; seconds: [n] that each took. front_block: block of each point of the front. The other arrays are
    those of `TopDesigns`.
    """

    study: str
    keep: int
    chunks: np.ndarray
    counts: np.ndarray
    seconds: np.ndarray
    best: np.ndarray
    best_at: np.ndarray
    nearest: np.ndarray
    nearest_at: np.ndarray
    front: np.ndarray
    front_at: np.ndarray
    front_block: np.ndarray
    by_value: np.ndarray
    edges: np.ndarray

    @property
    def points(self) -> int:
        """Evaluated."""
        return int(self.counts[:, 0].sum())

    @property
    def least(self) -> float:
        """Log goal of the best point."""
        return float(self.best.min(initial=np.inf))

    def top_designs(self, plans: int) -> TopDesigns:
        """Results in the form of one pass over the grid; `plans` in a block."""
        top = TopDesigns.empty(plans, len(self.by_value))
        top.done, top.feasible = np.asarray(self.chunks[:, 1].sum()), np.asarray(self.counts[:, 1].sum())
        for name in ("best", "best_at", "nearest", "nearest_at", "front", "front_at", "by_value", "edges"):
            setattr(top, name, getattr(self, name))
        top.histogram = self.counts[:, 2:].sum(axis=0)
        return top


def study_of(sweep: Sweep) -> str:
    """The hash that chunks of a study are named by: what is searched, how it is cut, what is kept, by which edition."""
    words = (sweep.study, sweep.keep, EDITION, __version__)
    return hashlib.sha256(repr(words).encode()).hexdigest()


def merged(a: Portion, b: Portion) -> Portion:
    """Merge the results of two sets of chunks.

    Raises:
        ValueError: of two studies or two histograms, or chunks that overlap without being the same.
    """
    if (a.study, a.keep) != (b.study, b.keep) or not np.array_equal(a.edges, b.edges):
        raise ValueError("portions of two studies cannot be merged")
    chunks, first, same = np.unique(
        np.concatenate([a.chunks, b.chunks]), axis=0, return_index=True, return_inverse=True
    )
    if (chunks[:-1].sum(axis=1) > chunks[1:, 0]).any():
        raise ValueError("chunks that overlap would be counted twice")
    seconds = np.full(len(chunks), np.inf)
    np.minimum.at(seconds, same.ravel(), np.concatenate([a.seconds, b.seconds]))
    best, best_at = _least(a, b, "best")
    nearest, nearest_at = _least(a, b, "nearest")
    front, front_at, front_block = _front(a, b)
    return Portion(
        study=a.study, keep=a.keep, chunks=chunks, counts=np.concatenate([a.counts, b.counts])[first],
        seconds=seconds, best=best, best_at=best_at, nearest=nearest, nearest_at=nearest_at,
        front=front, front_at=front_at, front_block=front_block,
        by_value=np.minimum(a.by_value, b.by_value), edges=a.edges,
    )  # fmt: skip


def _least(a: Portion, b: Portion, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The best plans of both, each once, at its best level: the lowest where several are as good."""
    values = np.concatenate([getattr(a, name), getattr(b, name)])
    pairs = np.concatenate([getattr(a, f"{name}_at"), getattr(b, f"{name}_at")])
    order = np.lexsort((pairs[:, 1], pairs[:, 0], values))
    _, met = np.unique(pairs[order, 0], return_index=True)
    order = order[np.sort(met)][: a.keep]
    return values[order], pairs[order]


def _front(a: Portion, b: Portion) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The front of both fronts; of equal points the one that a single pass meets first."""
    values, pairs, block = (np.concatenate([getattr(x, name) for x in (a, b)])
                            for name in ("front", "front_at", "front_block"))  # fmt: skip
    order = np.lexsort((pairs[:, 1], pairs[:, 0], block))
    order = order[non_dominated_rows(values[order])]
    return values[order], pairs[order], block[order]


class PortionMerger:
    """Portions put together as they come: each is merged with one of its size, so that none is copied often."""

    def __init__(self, portions: Iterable[Portion] = ()):
        self._heaps: list[Portion] = []
        self.points, self.least = 0, np.inf
        for portion in portions:
            self.take(portion)

    def take(self, portion: Portion) -> None:
        """One more, of chunks that are not in it yet."""
        self.points, self.least = self.points + portion.points, min(self.least, portion.least)
        while self._heaps and len(self._heaps[-1].chunks) <= len(portion.chunks):
            portion = merged(self._heaps.pop(), portion)
        self._heaps.append(portion)

    def merged_portion(self) -> Portion | None:
        """Merged results of all chunks so far; None if there are none."""
        while len(self._heaps) > 1:
            self._heaps.append(merged(self._heaps.pop(), self._heaps.pop()))
        return self._heaps[0] if self._heaps else None


def edges_of(sweep: Sweep) -> np.ndarray:
    """Edges of the histogram: those of one pass where a block near the beginning has a feasible point.

    Else of the first feasible block among some that are evenly spread; a range that holds anything where there is none.
    """
    total = sweep.block_count
    spread = np.linspace(0, total - 1, LOOKS).astype(int).tolist()
    for number in dict.fromkeys([*range(min(FIRST_LOOKS, total)), *spread]):
        top = sweep.fresh()
        sweep.take(top, sweep.evaluated(*sweep.block_at(number)))
        if len(top.edges):
            return top.edges
    return np.linspace(*NOTHING_SEEN, BINS + 1)


def cut(study: str, gaps: Sequence[tuple[int, int]], size: int) -> list[Chunk]:
    """Chunks of at most so many blocks that cover ranges [first, end) of blocks."""
    return [
        Chunk(study, first, min(size, end - first)) for start, end in gaps for first in range(start, end, size)
    ]  # fmt: skip


def run(sweep: Sweep, chunk: Chunk, edges: np.ndarray) -> Portion:
    """Evaluate the blocks of a chunk, one after the other."""
    start, points, top, plan = time.perf_counter(), 0, sweep.fresh(), np.zeros(0, np.int64)
    top.edges = edges
    for number in range(chunk.first, chunk.end):
        plan, level = sweep.block_at(number)
        sweep.take(top, sweep.evaluated(plan, level))
        points += len(plan) * len(level)
    top.finish_plans(plan, sweep.keep)  # nothing is left of them where the last block had their last levels
    return Portion(
        study=chunk.study, keep=sweep.keep, chunks=np.array([[chunk.first, chunk.blocks]]),
        counts=np.array([[points, int(top.feasible), *top.histogram]]),
        seconds=np.array([time.perf_counter() - start]),
        best=top.best, best_at=top.best_at, nearest=top.nearest, nearest_at=top.nearest_at,
        front=top.front, front_at=top.front_at, front_block=sweep.block_of(top.front_at),
        by_value=top.by_value, edges=edges,
    )  # fmt: skip


# Chunks as files: one table of Parquet each, renamed into place, named by study and chunk.
#
# A file has one row: which chunk it is, and columns of lists. `kind` says of each design kept why (the best plans,
# the nearest to being feasible, the front); then come its plan and level, its numbers, and the values of its
# variables. What is missing is what no file covers. A file is taken if it is whole and of the study, and computed
# again otherwise.


FOLDER = "chunks"  # of a run
BEST, NEAREST, FRONT = 0, 1, 2
NUMBERS = {"first": int, "blocks": int, "points": int, "feasible": int, "seconds": float, "keep": int}
INTEGER_COLUMNS = ("kind", "plan", "level", "block", "histogram")
LISTS = (*INTEGER_COLUMNS, "log_goal", "excess", "time_s", "usd_per_million_tokens", "by_value", "edges")
SHORT = 16  # characters of a study's hash in the name of a file


def name_of(study: str, first: int, blocks: int) -> str:
    """Name of the file of a chunk."""
    return f"{study[:SHORT]}-{first}-{blocks}.parquet"


def save_portion(portion: Portion, sweep: Sweep, folder: Path) -> Path:
    """The file of a portion of one chunk, whole or not at all.

    Raises:
        WriteError: it cannot be written.
    """
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    first, blocks = portion.chunks[0].tolist()
    path = folder / name_of(portion.study, first, blocks)
    row = _row(portion, sweep)
    table = pa.table({name: pa.array([value]) for name, value in row.items()})
    with writing(path) as file:
        parquet.write_table(table, file, write_page_checksum=True)
    return path


def _row(portion: Portion, sweep: Sweep) -> dict[str, Any]:
    """Numbers and lists of a portion of one chunk, with their checksum."""
    columns = (portion.best, portion.nearest, portion.front[:, 0])
    pairs = np.concatenate([portion.best_at, portion.nearest_at, portion.front_at])
    (first, blocks), (points, feasible, *histogram) = portion.chunks[0], portion.counts[0]
    none = [np.full(len(one), np.nan) for one in columns]
    numbers = [first, blocks, points, feasible, portion.seconds[0], portion.keep]
    lists = {
        "kind": np.repeat([BEST, NEAREST, FRONT], [len(one) for one in columns]),
        "plan": pairs[:, 0], "level": pairs[:, 1],
        "block": np.concatenate([np.zeros(len(columns[0]) + len(columns[1]), np.int64), portion.front_block]),
        "log_goal": np.concatenate([columns[0], *none[1:]]),
        "excess": np.concatenate([none[0], columns[1], none[2]]),
        "time_s": np.concatenate([*none[:2], portion.front[:, 0]]),
        "usd_per_million_tokens": np.concatenate([*none[:2], portion.front[:, 1]]),
        "by_value": portion.by_value, "edges": portion.edges, "histogram": np.asarray(histogram),
    }  # fmt: skip
    values = {f"var.{name}": column for name, column in sweep.axes.points(pairs).items()}
    row = dict(zip(NUMBERS, (kind(n) for kind, n in zip(NUMBERS.values(), numbers, strict=True)), strict=True))
    return {"study": portion.study, **row, **lists, **values, "checksum": _checksum(portion.study, row, lists | values)}


def _checksum(study: str, numbers: dict[str, Any], lists: dict[str, np.ndarray]) -> str:
    """Checksum of all that a file holds."""
    return checksum({name: np.asarray(value) for name, value in {"study": study, **numbers, **lists}.items()})


def load_portion(path: Path) -> Portion:
    """Read a portion from its file.

    Raises:
        ConfigError: it is no such file, or damaged.
    """
    what = f"chunk {str(path)!r}"
    frame = read_frame(path, what)
    try:
        row = {str(name): value for name, value in frame.iloc[0].items()}
        numbers = {name: kind(row[name]) for name, kind in NUMBERS.items()}
        values = {name: np.asarray(value) for name, value in row.items() if name in LISTS or name.startswith("var.")}
        complete = len(frame) == 1 and row["checksum"] == _checksum(str(row["study"]), numbers, values)
        if not complete or path.name != name_of(str(row["study"]), int(numbers["first"]), int(numbers["blocks"])):
            raise ValueError("its checksum is not that of its numbers, or it is named as another")
        return _portion(str(row["study"]), numbers, values)
    except UNREADABLE as error:
        raise ConfigError(f"{what} is damaged or no chunk: {error}") from error


def _portion(study: str, numbers: dict[str, Any], lists: dict[str, np.ndarray]) -> Portion:
    of = {kind: lists["kind"] == kind for kind in (BEST, NEAREST, FRONT)}
    pairs = np.stack([lists["plan"], lists["level"]], axis=-1)
    if len(lists["histogram"]) != BINS:
        raise ValueError("its histogram has another number of bins")
    return Portion(
        study=study, keep=numbers["keep"], chunks=np.array([[numbers["first"], numbers["blocks"]]]),
        counts=np.array([[numbers["points"], numbers["feasible"], *lists["histogram"]]]),
        seconds=np.array([numbers["seconds"]]),
        best=lists["log_goal"][of[BEST]], best_at=pairs[of[BEST]],
        nearest=lists["excess"][of[NEAREST]], nearest_at=pairs[of[NEAREST]],
        front=np.stack([lists[name][of[FRONT]] for name in ("time_s", "usd_per_million_tokens")], axis=-1),
        front_at=pairs[of[FRONT]], front_block=lists["block"][of[FRONT]],
        by_value=lists["by_value"], edges=lists["edges"],
    )  # fmt: skip


class StoredChunks:
    """Chunks that files of a folder hold: those of one study that are whole, none overlapping another.

    Attributes: portions; paths of these; damaged: how many files of the study are not whole; others: of other studies.
    """

    def __init__(self, folders: Iterable[Path], sweep: Sweep):
        study, every = study_of(sweep), [path for folder in folders for path in sorted(folder.glob("*.parquet"))]
        self.damaged = 0
        result: list[tuple[int, int, Path, Portion]] = []
        ours = [path for path in every if path.name.startswith(study[:SHORT])]
        self.others = len(every) - len(ours)
        for path in ours:
            try:
                portion = load_portion(path)
                first, blocks = portion.chunks[0].tolist()
                result += [(first, blocks, path, portion)] if portion.study == study else []
            except ConfigError:
                self.damaged += 1
        self.portions: list[Portion] = []
        self.paths: list[Path] = []
        end = 0
        for first, blocks, path, portion in sorted(result, key=lambda one: one[:2]):
            alike = not self.portions or np.array_equal(portion.edges, self.portions[0].edges)
            if first >= end and first + blocks <= sweep.block_count and blocks > 0 and alike:
                end = first + blocks
                self.portions.append(portion)
                self.paths.append(path)

    def gaps(self, total: int) -> list[tuple[int, int]]:
        """Ranges [first, end) of blocks that no file covers."""
        ends = [(int(first), int(first + blocks)) for portion in self.portions for first, blocks in portion.chunks]
        starts = [0, *(end for _, end in ends)]
        return [(start, end) for start, end in zip(starts, [*(first for first, _ in ends), total], strict=True)
                if start < end]  # fmt: skip

    def link_into(self, folder: Path) -> None:
        """Have them in another folder too; what cannot be linked is copied."""
        for path in self.paths:
            there = folder / path.name
            if there.exists():
                continue
            with contextlib.suppress(OSError):
                try:
                    os.link(path, there)
                except OSError:
                    shutil.copyfile(path, there)


# Chunks computed by whatever process is asked to: a study goes there once, and is traced there once.


_ready: dict[str, Sweep] = {}  # of the study that this process worked on last


class ChunkWork(AbstractSentWork):
    """Computes chunks of one study, here or in another process, which traces the model once.

    Args:
        sweep: over all blocks.
        edges: of the histogram.
        folder: that a worker leaves its chunk in, where it sees it: then no chunk is lost with whoever asked for it.
    """

    def __init__(self, sweep: Sweep, edges: np.ndarray, folder: str = ""):
        self.problem, self.block, self.keep = sweep.problem, sweep.size, sweep.keep
        self.study, self.edges = study_of(sweep), edges
        self.folder = folder
        _ready.clear()
        _ready[self.study] = sweep

    def _sweep(self) -> Sweep:
        sweep = _ready.get(self.study)
        if sweep is None:
            sweep = Sweep(self.problem, self.block, self.keep)
            if study_of(sweep) != self.study:
                raise ConfigError("a worker reads another study than it was given: install the same version everywhere")
            _ready.clear()
            _ready[self.study] = sweep
        return sweep

    def __call__(self, chunk: Chunk) -> Portion:
        """Compute one chunk."""
        sweep = self._sweep()
        portion = run(sweep, chunk, self.edges)
        if self.folder and Path(self.folder).is_dir():
            with contextlib.suppress(
                OSError
            ):  # a disk that is full, or not there to be written: whoever asked tries too
                save_portion(portion, sweep, Path(self.folder))
        return portion


# An exhaustive search whose chunks a runner computes: cut, hand out, keep as files, put together.


SHARES = 4  # chunks of each worker at the least, so that none waits long for the last
FEW = 4  # blocks that are timed


@dataclass(frozen=True)
class ChunkFolders:
    """Folders of finished chunks, of this run and of an earlier one (folders of runs; empty: none)."""

    run: str = ""
    resume: str = ""

    @property
    def folder(self) -> Path | None:
        """Folder that finished chunks go to."""
        return Path(self.run) / FOLDER if self.run else None

    @property
    def stored_paths(self) -> list[Path]:
        """Folders that may hold chunks."""
        return [folder for folder in dict.fromkeys(Path(run) / FOLDER for run in (self.run, self.resume) if run)
                if folder.is_dir()]  # fmt: skip

    def check(self) -> None:
        """Refuse a run to continue that has no chunks.

        Raises:
            ConfigError: no such folder, or a run that was not cut into chunks.
        """
        if self.resume and not (Path(self.resume) / FOLDER).is_dir():
            hint = "leave runner out" if Path(self.resume).is_dir() else "name the folder of an interrupted run"
            raise ConfigError(f"search.resume: {self.resume!r} has no chunks to continue from: {hint}")


def screen_in_chunks(
    problem: Problem, runner: AbstractRunner, block: int, report: Report, keep: int, folders: ChunkFolders
) -> SweepResult:
    """Evaluate every legal plan at every hardware level, chunk by chunk, wherever the runner says.

    An interrupt ends the search with the chunks that came; a folder of chunks that a run left is continued.

    Raises:
        ConfigError: nothing varies, no plan is legal, or chunks of another study.
        CodesignError: workers do not survive a chunk; finished chunks are kept.
    """
    start, sweep = time.perf_counter(), Sweep(problem, block, keep)
    stored = StoredChunks(folders.stored_paths, sweep)
    if folders.resume and stored.others and not (stored.portions or stored.damaged):
        raise ConfigError(f"search.resume: {folders.resume!r} is of another study: repeat the overrides of that run")
    if folders.folder is not None:
        folders.folder.mkdir(parents=True, exist_ok=True)
        stored.link_into(folders.folder)
    gathered = PortionMerger(stored.portions)
    counts: dict[str, int] = {}
    if stored.portions:
        counts["points from earlier chunks"] = gathered.points
    if stored.damaged:
        counts["damaged chunks computed again"] = stored.damaged
    onward = f"; continue with search.resume={folders.run}" if folders.run else ""
    stopped, total = "", sweep.axes.plan_count * sweep.axes.level_count
    try:
        unsaved = _compute(sweep, runner, stored, gathered, folders.folder, report)
        counts |= {"chunks that could not be written": unsaved} if unsaved else {}
    except KeyboardInterrupt:
        stopped = f"interrupted after {gathered.points:,} of {total:,} points"
    except CodesignError as error:
        raise CodesignError(f"{error}{onward}") from error
    merged = gathered.merged_portion()
    top = sweep.fresh() if merged is None else merged.top_designs(sweep.tall)
    return SweepResult(sweep.axes, top, gathered.points, time.perf_counter() - start, stopped, onward, counts)


def _compute(
    sweep: Sweep,
    runner: AbstractRunner,
    stored: StoredChunks,
    gathered: PortionMerger,
    folder: Path | None,
    report: Report,
) -> int:
    """Have the missing chunks computed and take them as they come; returns how many could not be written."""
    gaps, total, unsaved = stored.gaps(sweep.block_count), sweep.axes.plan_count * sweep.axes.level_count, 0
    edges = stored.portions[0].edges if stored.portions else edges_of(sweep)
    work = ChunkWork(sweep, edges, str(folder.absolute()) if folder is not None else "")
    chunks = cut(work.study, gaps, chunk_size(sweep, runner, gaps))
    if not chunks:
        return 0
    with closing(runner.results(work, chunks)) as arriving:
        for portion in arriving:
            if portion is not None:
                gathered.take(portion)
                unsaved += folder is not None and not _written(portion, sweep, folder)
            report(Progress("grid", gathered.points, total, sweep.problem.objective.goal_at(gathered.least)))
    return unsaved


def _written(portion: Portion, sweep: Sweep, folder: Path) -> bool:
    """True if the file of a portion is there: its worker wrote it, or it is written now."""
    if (folder / name_of(portion.study, *portion.chunks[0].tolist())).exists():
        return True
    try:
        save_portion(portion, sweep, folder)
    except OSError:
        return False
    return True


def chunk_size(sweep: Sweep, runner: AbstractRunner, gaps: list[tuple[int, int]]) -> int:
    """Blocks of a chunk: as many as take the seconds that the runner asks for, less where there would be few chunks."""
    missing = sum(end - first for first, end in gaps)
    if missing <= SHARES * runner.count:
        return 1
    sample = np.linspace(0, sweep.block_count - 1, FEW).astype(int).tolist()
    top = sweep.fresh()
    spent: list[float] = []
    for number in sample:
        began = time.perf_counter()
        sweep.take(top, sweep.evaluated(*sweep.block_at(number)))
        spent.append(time.perf_counter() - began)
    return max(1, min(int(runner.chunk_s / float(np.median(spent))), -(-missing // (SHARES * runner.count))))
