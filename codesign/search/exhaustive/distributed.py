"""An exhaustive search whose chunks a runner computes: cut, hand out, keep as files, put together."""

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...core.errors import CodesignError, ConfigError
from ...executors import AbstractRunner
from ..base import Problem, Progress, Report
from .chunk_files import FOLDER, Stored, name_of, save_portion
from .chunk_work import ChunkWork
from .chunks import Gathering, Portion, cut, edges_of
from .sweep import Screened, Sweep

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
    def known(self) -> list[Path]:
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
) -> Screened:
    """Evaluate every legal plan at every hardware level, chunk by chunk, wherever the runner says.

    An interrupt ends the search with the chunks that came; a folder of chunks that a run left is continued.

    Raises:
        ConfigError: nothing varies, no plan is legal, or chunks of another study.
        CodesignError: workers do not survive a chunk; finished chunks are kept.
    """
    start, sweep = time.perf_counter(), Sweep(problem, block, keep)
    stored = Stored(folders.known, sweep)
    if folders.resume and stored.others and not (stored.portions or stored.damaged):
        raise ConfigError(f"search.resume: {folders.resume!r} is of another study: repeat the overrides of that run")
    if folders.folder is not None:
        folders.folder.mkdir(parents=True, exist_ok=True)
        stored.link_into(folders.folder)
    gathered = Gathering(stored.portions)
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
    whole = gathered.whole()
    kept = sweep.fresh() if whole is None else whole.kept(sweep.tall)
    return Screened(sweep.axes, kept, gathered.points, time.perf_counter() - start, stopped, onward, counts)


def _compute(
    sweep: Sweep, runner: AbstractRunner, stored: Stored, gathered: Gathering, folder: Path | None, report: Report
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
    kept = sweep.fresh()
    spent: list[float] = []
    for number in sample:
        began = time.perf_counter()
        sweep.take(kept, sweep.evaluated(*sweep.block_at(number)))
        spent.append(time.perf_counter() - began)
    return max(1, min(int(runner.chunk_s / float(np.median(spent))), -(-missing // (SHARES * runner.count))))
