"""Exhaustive search: all legal plans x all hardware levels, streaming in blocks, with one compilation at most.

Of the points only what `stream.Kept` holds stays: the best plans, the Pareto front of time against cost, the best at
each value of each variable, a histogram. Memory does not grow with the number of points, and an interrupted search
continues where it stopped.
"""

import contextlib
import copy
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..compiling import quick_jit
from ..errors import ConfigError
from ..interpreting import PATIENCE, interpreted
from ..metrics import evaluate
from ..scenario import Scenario
from .axes import Axes
from .base import AbstractSearch, Problem, Progress, Report, Trace, silent
from .precision import Slipped, settle
from .stream import Block, Kept, fingerprint
from .stream import non_dominated as non_dominated

CHECKPOINT = "grid_checkpoint.npz"
FEW_POINTS = 4096  # NumPy has done them before a compiler is done
MANY_POINTS = 8_000_000  # about where single precision saves what compiling a second program costs (12 CPU s)
LEAST_LEVELS = 16  # of each plan, of which one is a control, for single precision to save anything
PAIRS = 512  # points priced exactly in one call


def single_precision(tree: Scenario) -> Scenario:
    """The same tree in float32, which runs about 1.6 times as fast."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.float32), tree)


@dataclass
class Screened:
    """What an exhaustive search leaves."""

    axes: Axes
    kept: Kept
    evaluated: int
    seconds: float
    stopped: str = ""
    onward: str = ""  # how an interrupted search is continued

    def tables(self) -> dict[str, dict[str, np.ndarray]]:
        """Tidy columns: best goal at each value of each variable, and the histogram of feasible points."""
        every = self.axes.variables
        names, values = np.repeat([n for n, _ in every], [len(c) for _, c in every]), [c for _, c in every]
        by_value = {"variable": names, "value": np.concatenate(values), "log_goal": self.kept.by_value}
        edges = self.kept.edges if len(self.kept.edges) else np.full(len(self.kept.histogram) + 1, np.nan)
        counts = {"log_goal_from": edges[:-1], "log_goal_to": edges[1:], "points": self.kept.histogram}
        return {"best_by_value": by_value, "histogram": counts}


Priced = Callable[[Scenario, dict[str, Array], dict[str, Array]], tuple[Array, ...]]


def _point_function(problem: Problem) -> Priced:
    """(scenario, plan, level) -> log goal, excess, time and cost."""

    def one(scenario: Scenario, plan: dict[str, Array], level: dict[str, Array]) -> tuple[Array, ...]:
        metrics = evaluate(problem.space.place(scenario, level | plan))
        cost = metrics.usd_per_million_tokens
        return problem.objective.rank(metrics), problem.objective.excess(metrics), metrics.time_s, cost

    return one


def _block_function(problem: Problem, few: bool) -> Priced:
    """The same for plans of a block and levels, each [plans, levels].

    Levels are mapped inside plans: what depends on the plan alone is computed once for all its levels.
    """
    over_levels = jax.vmap(_point_function(problem), in_axes=(None, None, 0))
    return (interpreted if few else quick_jit)(jax.vmap(over_levels, in_axes=(None, 0, None)))


def _pair_function(problem: Problem) -> Priced:
    """The same for pairs of a plan and a level."""
    return quick_jit(jax.vmap(_point_function(problem), in_axes=(None, 0, 0)))


class Sweep:
    """One pass over all points of a problem."""

    def __init__(self, problem: Problem, block: int, keep: int):
        self.problem, self.keep, self.axes = problem, keep, Axes.of(problem)
        plans, levels = self.axes.plan_count, self.axes.level_count
        self.wide = min(levels, block)  # levels of a block
        self.tall = max(1, min(block // self.wide, plans))  # plans of a block
        self.function = _block_function(problem, plans * levels <= min(FEW_POINTS, PATIENCE // 3 * block))
        self.single = plans * levels >= MANY_POINTS and levels >= LEAST_LEVELS
        self.pairs = _pair_function(problem) if self.single else None
        self.scenario = single_precision(problem.scenario) if self.single else problem.scenario
        self.study = fingerprint(problem, self.axes.plans, self.axes.levels, (self.tall, self.wide))
        sizes = [len(column) for _, column in self.axes.variables]
        self.offsets = np.cumsum([0, *sizes])
        plan_columns = list(self.axes.plans.values())
        self.plan_places = np.stack([np.unique(c, return_inverse=True)[1] for c in plan_columns], axis=-1)
        self.plan_places = self.plan_places + self.offsets[: len(plan_columns)]
        self.level_offsets = self.offsets[len(plan_columns) : -1]
        self.kept = self.fresh()

    def fresh(self) -> Kept:
        """Nothing seen yet."""
        return Kept.empty(self.tall, int(self.offsets[-1]))

    def continue_from(self, kept: Kept) -> None:
        """Go on from a state, in the precision that it was in."""
        self.kept = kept
        if self.single and not np.isfinite(kept.rounding):
            self._distrust()

    def start_in_double_precision(self) -> None:
        """Begin again, single precision being of no use for this study."""
        self.kept = self.fresh()
        self.kept.rounding = np.asarray(np.inf)
        self._distrust()

    def _distrust(self) -> None:
        self.single, self.pairs, self.scenario = False, None, self.problem.scenario

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(plans, levels) of each block; all levels of some plans before the next plans."""
        firsts = range(0, self.axes.plan_count, self.tall), range(0, self.axes.level_count, self.wide)
        for plan, level in itertools.product(*firsts):
            yield (
                np.arange(plan, min(plan + self.tall, self.axes.plan_count)),
                np.arange(level, min(level + self.wide, self.axes.level_count)),
            )

    def evaluated(self, plan: np.ndarray, level: np.ndarray) -> Block:
        """One block through the compiled function; short ones are padded by their last row and column."""
        rows = np.minimum(np.arange(self.tall), len(plan) - 1)
        columns = np.minimum(np.arange(self.wide), len(level) - 1)
        precision = jnp.float32 if self.single else float
        plans = {name: jnp.asarray(c[plan[rows]], precision) for name, c in self.axes.plans.items()}
        values = self.axes.values_of(level[columns]) or {"tp": self.axes.plans["tp"][:1]}
        levels = {name: jnp.asarray(column, precision) for name, column in values.items()}
        with jax.enable_x64(False) if self.single else contextlib.nullcontext():  # constants inside the model follow
            answers = self.function(self.scenario, plans, levels)
        whole = (np.array(part, dtype=float)[: len(plan), : len(level)] for part in answers)
        goal, excess, seconds, cost = whole
        return Block(plan, level, goal, excess, (seconds, cost))

    def exact(self, pairs: np.ndarray) -> tuple[np.ndarray, ...]:
        """Goal, excess and front of (plan, level) pairs in double precision, in calls of one shape."""
        assert self.pairs is not None
        parts = []
        for first in range(0, len(pairs), PAIRS):
            some = pairs[np.minimum(np.arange(first, first + PAIRS), len(pairs) - 1)]
            plans = {name: jnp.asarray(column[some[:, 0]]) for name, column in self.axes.plans.items()}
            levels = {name: jnp.asarray(column) for name, column in self.axes.values_of(some[:, 1]).items()}
            answers = self.pairs(self.problem.scenario, plans, levels)
            parts.append([np.asarray(part)[: len(pairs) - first] for part in answers])
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def take(self, kept: Kept, plan: np.ndarray, level: np.ndarray) -> None:
        """Evaluate one block and learn from it."""
        places = self.axes.level_places(level)[:, : len(self.axes.names)] + self.level_offsets
        block = self.evaluated(plan, level)
        if self.single:
            settle(block, self.exact, kept)
        kept.take(block, self.plan_places[plan], places)
        if level[-1] == self.axes.level_count - 1:
            kept.finish_plans(plan, self.keep)


@dataclass(frozen=True)
class Saving:
    """Where the state of a search goes, how often, and which state it starts from (paths; empty: none)."""

    path: str = ""
    resume: str = ""
    every_s: float = 5.0


def screen(
    problem: Problem, block: int = 16384, report: Report = silent, keep: int = 64, saving: Saving | None = None
) -> Screened:
    """Evaluate every legal plan at every hardware level: in double precision, or as if it were (see `precision`).

    An interrupt ends the search with what is known, its state saved.

    Raises:
        ConfigError: nothing varies, no plan is legal, or a state that is not of this study.
    """
    start, saving = time.perf_counter(), saving or Saving()
    sweep = Sweep(problem, block, keep)
    if saving.resume:
        sweep.continue_from(Kept.load(_state(saving.resume), sweep.study))
    total = sweep.axes.plan_count * sweep.axes.level_count
    points, stopped = total, ""
    try:
        try:
            _pass(sweep, report, saving)
        except Slipped:
            sweep.start_in_double_precision()
            _pass(sweep, report, saving)
    except KeyboardInterrupt:
        points = sum(len(p) * len(v) for p, v in itertools.islice(sweep.blocks(), int(sweep.kept.done)))
        stopped = f"interrupted after {points:,} of {total:,} points"
    if saving.path and (stopped or saving.resume or Path(saving.path).exists()):
        sweep.kept.save(Path(saving.path), sweep.study)
    onward = f"; continue with search.resume={Path(saving.path).parent}" if saving.path else ""
    return Screened(sweep.axes, sweep.kept, points, time.perf_counter() - start, stopped, onward)


def _pass(sweep: Sweep, report: Report, saving: Saving) -> None:
    """Take every block that was not taken yet."""
    problem, saved, points = sweep.problem, time.perf_counter(), 0
    total = sweep.axes.plan_count * sweep.axes.level_count
    for number, (plan, level) in enumerate(sweep.blocks()):
        points += len(plan) * len(level)
        if number < int(sweep.kept.done):
            continue
        after = copy.deepcopy(sweep.kept)  # an interrupt finds the state before a block or after it
        sweep.take(after, plan, level)
        sweep.kept = after
        report(Progress("grid", points, total, problem.objective.goal_at(after.least)))
        if saving.path and time.perf_counter() - saved > saving.every_s:
            after.save(Path(saving.path), sweep.study)
            saved = time.perf_counter()


def _state(resume: str) -> Path:
    """A state file, or the one in a run folder."""
    return Path(resume) / CHECKPOINT if Path(resume).is_dir() else Path(resume)


@dataclass(frozen=True)
class Grid(AbstractSearch):
    """Every legal plan at every hardware level.

    Points are priced in float64. Where there are millions, they are screened in float32, and all that float32 cannot
    decide is priced again in float64 (see `precision`): the best point and what is feasible are the same.

    Args:
        block: points in one vectorised call.
        keep: plans whose best level is kept for the frame.
        resume: run folder (or state file) of an interrupted search of the same study to continue.
        checkpoint: file that holds the state; the run folder's own if empty.
        every_s: seconds between two states.
    """

    block: int = 16384
    keep: int = 64
    resume: str = ""
    checkpoint: str = ""
    every_s: float = 5.0

    def __post_init__(self) -> None:
        """Positive sizes."""
        if min(self.block, self.keep) < 1:
            raise ConfigError(f"search.block = {self.block} and search.keep = {self.keep} must be at least 1")

    def refuse(self, problem: Problem) -> None:
        """More plans than can be listed, or no state to continue from."""
        super().refuse(problem)
        if self.resume:
            Kept.check(_state(self.resume))

    def logged(self, problem: Problem) -> list[tuple[str, str]]:
        """Nothing: designs are only ranked."""
        return []

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Exhaustive; the seed is not used."""
        saving = Saving(self.checkpoint, self.resume, self.every_s)
        return kept_of(problem, screen(problem, self.block, report, self.keep, saving))


def kept_of(problem: Problem, screened: Screened) -> Trace:
    """The best plans at their best level, and the front of time against cost.

    Where nothing is feasible, the plans that violate least are kept: an infeasible design is worth seeing.
    """
    kept = screened.kept
    if len(kept.best) == 0 and (kept.row[:, 0] < np.inf).any():  # interrupted before any plan was done
        kept.finish_plans(np.arange(len(kept.row)), 1)
    best = kept.best_at if len(kept.best) else kept.nearest_at
    pairs = np.concatenate([best, kept.front_at])
    method = ["grid"] * len(best) + ["pareto"] * len(kept.front_at)
    axes = screened.axes
    counts = {"plans": axes.plan_count, "points": screened.evaluated, "feasible": int(kept.feasible)}
    claim = "best of an exhaustive grid over all legal plans; no proof between the grid's levels"
    if screened.stopped:
        claim = f"{screened.stopped}: best so far{screened.onward}"
    found = Trace(axes.points(pairs), method, counts, {"grid": screened.seconds}, claim)
    found.tables = screened.tables()
    return found
