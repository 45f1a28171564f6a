"""Exhaustive search: all legal plans x all hardware levels, streaming in blocks, nothing compiled.

Of the points only what `TopDesigns` holds stays: the best plans, the Pareto front of time against cost, the best at
each value of each variable, a histogram. Memory does not grow with the number of points, and an interrupted search
continues where it stopped.

Source: see docs/optimisation.md, section 7.
"""

import itertools
import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...core.errors import ConfigError
from ...executors import AbstractRunner
from ..base import AbstractSearch, Problem, Progress, Report, Trace, silent
from .chunks import ChunkFolders, screen_in_chunks
from .sweep import Block, Sweep, SweepResult, TopDesigns

CHECKPOINT = "grid_checkpoint.npz"
BLOCK = 262_144  # points: an array of them stays in a cache, and calling NumPy costs little beside them
WORKERS = min(2, os.cpu_count() or 1)  # blocks evaluated side by side


@dataclass(frozen=True)
class CheckpointSettings:
    """Checkpoint settings: path of the state, how often it is saved, state to start from (paths; empty: none)."""

    path: str = ""
    resume: str = ""
    every_s: float = 5.0


def screen(
    problem: Problem,
    block: int = BLOCK,
    report: Report = silent,
    keep: int = 64,
    saving: CheckpointSettings | None = None,
) -> SweepResult:
    """Evaluate every legal plan at every hardware level, in double precision.

    An interrupt ends the search with what is known, its state saved.

    Raises:
        ConfigError: nothing varies, no plan is legal, or a state that is not of this study.
    """
    start, saving = time.perf_counter(), saving or CheckpointSettings()
    sweep = Sweep(problem, block, keep)
    if saving.resume:
        sweep.top = TopDesigns.load(_state(saving.resume), sweep.study)
    total = sweep.axes.plan_count * sweep.axes.level_count
    points, stopped = total, ""
    try:
        _pass(sweep, report, saving)
    except KeyboardInterrupt:
        points = sum(len(p) * len(v) for p, v in itertools.islice(sweep.blocks(), int(sweep.top.done)))
        stopped = f"interrupted after {points:,} of {total:,} points"
    if saving.path and (stopped or saving.resume or Path(saving.path).exists()):
        sweep.top.save(Path(saving.path), sweep.study)
    onward = f"; continue with search.resume={Path(saving.path).parent}" if saving.path else ""
    return SweepResult(sweep.axes, sweep.top, points, time.perf_counter() - start, stopped, onward)


def _pass(sweep: Sweep, report: Report, saving: CheckpointSettings) -> None:
    """Take every block that was not taken yet."""
    problem, saved, done = sweep.problem, time.perf_counter(), int(sweep.top.done)
    total = sweep.axes.plan_count * sweep.axes.level_count
    points = sum(len(plan) * len(level) for plan, level in itertools.islice(sweep.blocks(), done))
    for block in _ahead(sweep, itertools.islice(sweep.blocks(), done, None)):
        points += block.goal.size
        after = sweep.top.copied()  # an interrupt finds the state before a block or after it
        sweep.take(after, block)
        sweep.top = after
        report(Progress("grid", points, total, problem.objective.goal_at(after.least)))
        if saving.path and time.perf_counter() - saved > saving.every_s:
            after.save(Path(saving.path), sweep.study)
            saved = time.perf_counter()


def _ahead(sweep: Sweep, places: Iterator[tuple[np.ndarray, np.ndarray]]) -> Iterator[Block]:
    """Blocks in their order, some of them evaluated side by side while others are taken."""
    with ThreadPoolExecutor(WORKERS) as pool:
        waiting: deque[Future[Block]] = deque()
        try:
            for block in places:
                waiting.append(pool.submit(sweep.evaluated, *block))
                if len(waiting) > WORKERS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _state(resume: str) -> Path:
    """A state file, or the one in a run folder."""
    return Path(resume) / CHECKPOINT if Path(resume).is_dir() else Path(resume)


@dataclass(frozen=True)
class Grid(AbstractSearch):
    """Every legal plan at every hardware level.

    Points are priced in float64; what few variables decide is computed once for all points that share it.

    Args:
        batch_size: points in one vectorised call.
        top_k: plans whose best level is kept for the frame.
        resume: run folder (or state file) of an interrupted search of the same study to continue.
        checkpoint: file that holds the state; the run folder's own if empty.
        every_s: seconds between two states.
        runner: computes the grid in chunks, each of which is kept as a file beside the state's; none: here, in one
            pass.
    """

    batch_size: int = BLOCK
    top_k: int = 64
    resume: str = ""
    checkpoint: str = ""
    every_s: float = 5.0
    runner: AbstractRunner | None = None

    def __post_init__(self) -> None:
        """Positive sizes."""
        if min(self.batch_size, self.top_k) < 1:
            raise ConfigError(
                f"search.batch_size = {self.batch_size} and search.top_k = {self.top_k} must be at least 1"
            )

    def refuse(self, problem: Problem) -> None:
        """More plans than can be listed, or no state to continue from."""
        super().refuse(problem)
        if self.runner is not None:
            self._folders.check()
        elif self.resume:
            TopDesigns.check(_state(self.resume))

    @property
    def _folders(self) -> ChunkFolders:
        return ChunkFolders(str(Path(self.checkpoint).parent) if self.checkpoint else "", self.resume)

    def logged(self, problem: Problem) -> list[tuple[str, str]]:
        """Nothing: designs are only ranked."""
        return []

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Exhaustive; the seed is not used."""
        if self.runner is not None:
            folders = self._folders
            return trace_of_screened(
                problem, screen_in_chunks(problem, self.runner, self.batch_size, report, self.top_k, folders)
            )
        saving = CheckpointSettings(self.checkpoint, self.resume, self.every_s)
        return trace_of_screened(problem, screen(problem, self.batch_size, report, self.top_k, saving))

    @classmethod
    def example(cls, problem: Problem) -> "Grid":
        """Example with small blocks."""
        return cls(batch_size=64, top_k=4)


def trace_of_screened(problem: Problem, screened: SweepResult) -> Trace:
    """The best plans at their best level, and the front of time against cost.

    Where nothing is feasible, the plans that violate least are kept: an infeasible design is worth seeing.
    """
    top = screened.top
    if len(top.best) == 0 and (top.row[:, 0] < np.inf).any():  # interrupted before any plan was done
        top.finish_plans(np.arange(len(top.row)), 1)
    best = top.best_at if len(top.best) else top.nearest_at
    pairs = np.concatenate([best, top.front_at])
    method = ["grid"] * len(best) + ["pareto"] * len(top.front_at)
    axes = screened.axes
    counts = {"plans": axes.plan_count, "points": screened.evaluated, "feasible": int(top.feasible)}
    counts |= screened.counts
    claim = "best of an exhaustive grid over all legal plans; no certificate between the grid's levels"
    if screened.stopped:
        claim = f"{screened.stopped}: best so far{screened.onward}"
    result = Trace(axes.points(pairs), method, counts, {"grid": screened.seconds}, claim)
    result.tables = screened.tables()
    return result
