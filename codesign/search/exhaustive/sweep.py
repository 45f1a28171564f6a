"""One pass over all points of a problem, and what it leaves."""

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Array

from ...core.atomic_files import writing
from ...core.errors import ConfigError
from ...core.jax_typed import structure
from ...core.pareto_tools import non_dominated_rows
from ...core.untrusted_io import checksum, read_arrays
from ...staging import Answers, Blocks, Model, Program, distinct_plans, model_of
from ...study.design_space import levels
from ...study.feasible_plans import as_it_stands
from ...study.objective import feasible
from ..base import Problem

# The points of an exhaustive search, addressed by the number of a plan and the number of a hardware level.


@dataclass
class Axes:
    """The points of a search: plans as listed, levels numbered with the last hardware variable running fastest."""

    plans: dict[str, np.ndarray]
    names: tuple[str, ...]
    levels: list[np.ndarray]
    listed: bool  # whether any plan field varies

    @classmethod
    def of(cls, problem: Problem) -> "Axes":
        """Return the axes of a problem.

        Raises:
            ConfigError: nothing varies, or no plan is legal.
        """
        problem.check_varies()
        space = problem.space
        plans = distinct_plans([problem.scenario], space, space.plans(problem.scenario))
        listed = bool(plans)
        plans = plans or as_it_stands(problem.scenario)
        return cls(plans, space.names, [levels(space.hardware[name]) for name in space.names], listed)

    @property
    def variables(self) -> list[tuple[str, np.ndarray]]:
        """Every variable with its distinct values: plan fields, then hardware."""
        plan = [(name, np.unique(column)) for name, column in self.plans.items()]
        return plan + list(zip(self.names, self.levels, strict=True))

    @property
    def plan_count(self) -> int:
        """Plans that are tried: legal ones, those that are equal in every metric once."""
        return len(next(iter(self.plans.values())))

    @property
    def shape(self) -> tuple[int, ...]:
        """Levels of each hardware variable."""
        return tuple(len(level) for level in self.levels) or (1,)

    @property
    def level_count(self) -> int:
        """Points of the hardware grid: one where nothing continuous varies."""
        return int(np.prod(self.shape, dtype=np.int64))

    def level_places(self, level: np.ndarray) -> np.ndarray:
        """[levels, hardware variables] which level of each variable."""
        return np.stack(np.unravel_index(level, self.shape), axis=-1)

    def values_of(self, level: np.ndarray) -> dict[str, np.ndarray]:
        """Values of the hardware variables at these levels."""
        places = self.level_places(level)
        return {name: self.levels[i][places[:, i]] for i, name in enumerate(self.names)}

    def points(self, pairs: np.ndarray) -> dict[str, np.ndarray]:
        """Values of [n, 2] (plan, level) pairs."""
        chosen = {name: column[pairs[:, 0]] for name, column in self.plans.items()} if self.listed else {}
        return chosen | self.values_of(pairs[:, 1])


# Running state of an exhaustive search over streaming points: a few arrays, however many points there are.


BINS = 64  # of the histogram: bars that a page of its width shows apart
EDITION = "2"  # of the saved state: what another edition left is not continued
LOOKS = 8  # designs of the front that points are held against before the front as a whole


@dataclass
class Block:
    """One evaluated block: plans x levels.

    plan, level: numbers of the rows and columns; goal: log; excess: largest violation; front: the two quantities of the
    Pareto front.
    """

    plan: np.ndarray
    level: np.ndarray
    goal: np.ndarray
    excess: np.ndarray
    front: tuple[np.ndarray, np.ndarray]


@dataclass
class TopDesigns:
    """The state of a streaming search; points are addressed by (plan, level), so no count overflows.

    best, level: of the `keep` best plans so far, least first (log goal of the best feasible level); nearest likewise by
    violation, for spaces without a feasible point. row: best goal (and nearest) of the plans under way. by_value: best
    goal at each value of each variable, one after the other. edges, histogram: of the log goal of feasible points.
    """

    done: np.ndarray  # blocks
    feasible: np.ndarray
    best: np.ndarray
    best_at: np.ndarray  # [k, 2] plan, level
    nearest: np.ndarray
    nearest_at: np.ndarray
    row: np.ndarray  # [plans of a block, 4] goal, level; excess, level
    front: np.ndarray
    front_at: np.ndarray
    by_value: np.ndarray
    edges: np.ndarray
    histogram: np.ndarray

    @property
    def least(self) -> float:
        """Log goal of the best point so far."""
        return float(min(self.best.min(initial=np.inf), self.row[:, 0].min(initial=np.inf)))

    @classmethod
    def empty(cls, plans: int, values: int) -> "TopDesigns":
        """Nothing seen; `plans` in a block, `values` of all variables together."""
        pairs, none = np.zeros((0, 2), dtype=np.int64), np.zeros(0)
        return cls(
            done=np.zeros((), np.int64), feasible=np.zeros((), np.int64),
            best=none, best_at=pairs, nearest=none, nearest_at=pairs,
            row=_fresh_rows(plans), front=np.zeros((0, 2)), front_at=pairs,
            by_value=np.full(values, np.inf), edges=none, histogram=np.zeros(BINS, np.int64),
        )  # fmt: skip

    def save(self, path: Path, study: str) -> None:
        """Whole or not at all."""
        arrays = {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}
        words = {"edition": EDITION, "study": study, "checksum": checksum(arrays)}
        with writing(path) as file:
            np.savez(file, allow_pickle=False, **{name: np.array(word) for name, word in words.items()}, **arrays)

    @classmethod
    def load(cls, path: Path, study: str) -> "TopDesigns":
        """Load the state that another run left.

        Raises:
            ConfigError: no such file, damaged, or one of another study or edition of this package.
        """
        cls.check(path)
        what, names = f"search.resume: {str(path)!r}", [f.name for f in fields(cls)]
        result = read_arrays(path, what, ("edition", "study", "checksum", *names))
        if str(result["edition"]) != EDITION:
            raise ConfigError(f"{what} is of another edition of this package: begin the search anew")
        if str(result["study"]) != study:
            raise ConfigError(f"{what} is of another study: repeat the overrides of that run")
        arrays = {name: result[name] for name in names}
        if str(result["checksum"]) != checksum(arrays):
            raise ConfigError(f"{what} is damaged: its checksum is not that of its numbers; begin the search anew")
        return cls(**arrays)

    @staticmethod
    def check(path: Path) -> None:
        """Refuse a state that is not there.

        Raises:
            ConfigError: no such file.
        """
        if not path.is_file():
            raise ConfigError(f"search.resume: {str(path)!r} does not exist: name the folder of an interrupted run")

    def take(self, block: Block, plan_values: np.ndarray, level_values: np.ndarray, keep: int) -> None:
        """Learn from one block.

        Args:
            block: what was evaluated.
            plan_values: [plans, plan variables] places in `by_value`.
            level_values: [levels, hardware variables] likewise.
            keep: plans that are kept in the end.
        """
        ok = feasible(block.excess) & np.isfinite(block.goal)
        score = np.where(ok, block.goal, np.inf)
        self.feasible = self.feasible + int(ok.sum())
        self._rows(block, score, keep)
        self._by_value(score, plan_values, level_values)
        at = np.nonzero(ok)
        if len(at[0]):
            self._histogram(score[at])
            self._front(block, at)
        self.done = self.done + 1

    def _rows(self, block: Block, score: np.ndarray, keep: int) -> None:
        """The best level of each plan of the block that may be among those kept, over all blocks of levels."""
        rows = self.row[: len(block.plan)]
        excess = np.where(np.isnan(block.excess), np.inf, block.excess)
        for first, values, best in ((0, score, self.best), (2, excess, self.nearest)):
            least = values.min(axis=1)
            limit = best[-1] if len(best) >= keep else np.inf
            better = np.flatnonzero((least < rows[:, first]) & (least < limit))
            level = values[better].argmin(axis=1)
            rows[better, first], rows[better, first + 1] = least[better], block.level[level]

    def finish_plans(self, plan: np.ndarray, keep: int) -> None:
        """All levels of these plans have been seen: the best plans so far."""
        rows = self.row[: len(plan)]
        for first, name in ((0, "best"), (2, "nearest")):
            result = np.isfinite(rows[:, first])
            values = np.concatenate([getattr(self, name), rows[result, first]])
            pairs = np.stack([plan[result], rows[result, first + 1].astype(np.int64)], axis=-1)
            pairs = np.concatenate([getattr(self, f"{name}_at"), pairs])
            order = np.lexsort((pairs[:, 1], pairs[:, 0], values))[:keep]
            setattr(self, name, values[order])
            setattr(self, f"{name}_at", pairs[order])
        self.row = _fresh_rows(len(self.row))

    def _by_value(self, score: np.ndarray, plan_values: np.ndarray, level_values: np.ndarray) -> None:
        for places, least in ((plan_values, score.min(axis=1)), (level_values, score.min(axis=0))):
            for column in places.T:
                np.minimum.at(self.by_value, column, least)

    def _histogram(self, values: np.ndarray) -> None:
        """The first block with feasible points sets the range, with room on both sides."""
        if len(self.edges) == 0:
            self.edges = np.linspace(float(values.min()) - 1.0, float(values.max()) + 1.0, BINS + 1)
        bins_of = (values - self.edges[0]) * (BINS / (self.edges[-1] - self.edges[0]))
        bins = np.bincount(np.clip(bins_of, 0, BINS - 1).astype(np.int64), minlength=BINS)
        self.histogram = self.histogram + bins

    def _front(self, block: Block, at: tuple[np.ndarray, ...]) -> None:
        first, second = (part[at] for part in block.front)
        open_ = np.ones(len(first), dtype=bool)
        for a, b in self.front[:: max(1, len(self.front) // LOOKS)]:  # most points are beaten by one of a few
            open_ &= (first < a) | (second < b)
        values = np.stack([first[open_], second[open_]], axis=-1)
        pairs = np.stack([block.plan[at[0][open_]], block.level[at[1][open_]]], axis=-1)
        non_dominated = non_dominated_rows(values)
        values, pairs = (
            np.concatenate([self.front, values[non_dominated]]),
            np.concatenate([self.front_at, pairs[non_dominated]]),
        )
        keep = non_dominated_rows(values)
        self.front, self.front_at = values[keep], pairs[keep]

    def copied(self) -> "TopDesigns":
        """Copy with arrays of its own for all that changes in place."""
        other = copy.copy(self)
        other.row, other.by_value = self.row.copy(), self.by_value.copy()
        return other


def _fresh_rows(count: int) -> np.ndarray:
    rows = np.full((count, 4), np.inf)
    rows[:, 1::2] = 0
    return rows


def fingerprint(
    problem: Problem, plans: dict[str, np.ndarray], levels: list[np.ndarray], block: tuple[int, int]
) -> str:
    """A study and the way it is cut into blocks, as a hash: state of one must not be continued in another."""
    digest = hashlib.sha256()
    objective = problem.objective
    words = (objective.minimise, objective.maximise, sorted(objective.limits.items()), sorted(objective.floors.items()))
    parts = (words, sorted(problem.space.hardware.items()), sorted(plans), block, structure(problem.scenario))
    digest.update(repr(parts).encode())
    for array in (*(plans[name] for name in sorted(plans)), *levels, *jax.tree.leaves(problem.scenario)):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@dataclass
class SweepResult:
    """Result of an exhaustive search."""

    axes: Axes
    top: TopDesigns
    evaluated: int
    seconds: float
    stopped: str = ""
    onward: str = ""  # how an interrupted search is continued
    counts: dict[str, int] = field(default_factory=dict[str, int])  # what else there is to tell

    def tables(self) -> dict[str, dict[str, np.ndarray]]:
        """Tidy columns: best goal at each value of each variable, and the histogram of feasible points."""
        every = self.axes.variables
        names, values = np.repeat([n for n, _ in every], [len(c) for _, c in every]), [c for _, c in every]
        by_value = {"variable": names, "value": np.concatenate(values), "log_goal": self.top.by_value}
        edges = self.top.edges if len(self.top.edges) else np.full(len(self.top.histogram) + 1, np.nan)
        counts = {"log_goal_from": edges[:-1], "log_goal_to": edges[1:], "points": self.top.histogram}
        return {"best_by_value": by_value, "histogram": counts}


def _priced_program(problem: Problem, model: Model) -> Program:
    """Log goal, excess, time and cost of every point."""

    def outputs(answers: Answers) -> list[Array]:
        metrics = answers.metrics
        goal, excess = problem.objective.rank(metrics), problem.objective.excess(metrics)
        return [goal, excess, metrics.time_s, metrics.usd_per_million_tokens]

    return model.program_of(outputs)


class Sweep:
    """One pass over all points of a problem."""

    def __init__(self, problem: Problem, block: int, keep: int):
        self.problem, self.size, self.keep, self.axes = problem, block, keep, Axes.of(problem)
        model = model_of(problem.scenario, problem.space, tuple(self.axes.plans))
        program, plans, levels = _priced_program(problem, model), self.axes.plans, self.axes.levels
        self.priced = Blocks(model, program, problem.scenario, plans, levels, block)
        self.tall = self.priced.tall  # plans of a block
        self.study = fingerprint(problem, self.axes.plans, self.axes.levels, (self.tall, self.priced.wide))
        sizes = [len(column) for _, column in self.axes.variables]
        self.offsets = np.cumsum([0, *sizes])
        plan_columns = list(self.axes.plans.values())
        self.plan_places = np.stack([np.unique(c, return_inverse=True)[1] for c in plan_columns], axis=-1)
        self.plan_places = self.plan_places + self.offsets[: len(plan_columns)]
        self.level_offsets = self.offsets[len(plan_columns) : -1]
        self.top = self.fresh()

    def fresh(self) -> TopDesigns:
        """Nothing seen yet."""
        return TopDesigns.empty(self.tall, int(self.offsets[-1]))

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(plans, levels) of each block; all levels of some plans before the next plans."""
        return map(self.block_at, range(self.block_count))

    @property
    def block_count(self) -> int:
        """Blocks of the whole pass."""
        return -(-self.axes.plan_count // self.tall) * self.priced.columns

    def block_at(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """(plans, levels) of one block."""
        row, column = divmod(number, self.priced.columns)
        plan, (first, count) = row * self.tall, self.priced.levels_of(column)
        return np.arange(plan, min(plan + self.tall, self.axes.plan_count)), np.arange(first, first + count)

    def block_of(self, pairs: np.ndarray) -> np.ndarray:
        """The block of each of [n, 2] (plan, level) pairs."""
        return pairs[:, 0] // self.tall * self.priced.columns + self.priced.column_of(pairs[:, 1])

    def evaluated(self, plan: np.ndarray, level: np.ndarray) -> Block:
        """One block."""
        goal, excess, seconds, cost = self.priced(plan, int(level[0]), len(level))
        return Block(plan, level, goal, excess, (seconds, cost))

    def take(self, top: TopDesigns, block: Block) -> None:
        """Learn from a block."""
        places = self.axes.level_places(block.level)[:, : len(self.axes.names)] + self.level_offsets
        top.take(block, self.plan_places[block.plan], places, self.keep)
        if block.level[-1] == self.axes.level_count - 1:
            top.finish_plans(block.plan, self.keep)
