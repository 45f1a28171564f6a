"""One pass over all points of a problem, and what it leaves."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Array

from ...staging import Answers, Blocks, Model, Program, model_of
from ..base import Problem
from .axes import Axes
from .stream import Block, Kept, fingerprint


@dataclass
class Screened:
    """Result of an exhaustive search."""

    axes: Axes
    kept: Kept
    evaluated: int
    seconds: float
    stopped: str = ""
    onward: str = ""  # how an interrupted search is continued
    counts: dict[str, int] = field(default_factory=dict[str, int])  # what else there is to tell

    def tables(self) -> dict[str, dict[str, np.ndarray]]:
        """Tidy columns: best goal at each value of each variable, and the histogram of feasible points."""
        every = self.axes.variables
        names, values = np.repeat([n for n, _ in every], [len(c) for _, c in every]), [c for _, c in every]
        by_value = {"variable": names, "value": np.concatenate(values), "log_goal": self.kept.by_value}
        edges = self.kept.edges if len(self.kept.edges) else np.full(len(self.kept.histogram) + 1, np.nan)
        counts = {"log_goal_from": edges[:-1], "log_goal_to": edges[1:], "points": self.kept.histogram}
        return {"best_by_value": by_value, "histogram": counts}


def _asked(problem: Problem, model: Model) -> Program:
    """Log goal, excess, time and cost of every point."""

    def told(answers: Answers) -> list[Array]:
        metrics = answers.metrics
        goal, excess = problem.objective.rank(metrics), problem.objective.excess(metrics)
        return [goal, excess, metrics.time_s, metrics.usd_per_million_tokens]

    return model.asked(told)


class Sweep:
    """One pass over all points of a problem."""

    def __init__(self, problem: Problem, block: int, keep: int):
        self.problem, self.size, self.keep, self.axes = problem, block, keep, Axes.of(problem)
        model = model_of(problem.scenario, problem.space, tuple(self.axes.plans))
        asked, plans, levels = _asked(problem, model), self.axes.plans, self.axes.levels
        self.priced = Blocks(model, asked, problem.scenario, plans, levels, block)
        self.tall = self.priced.tall  # plans of a block
        self.study = fingerprint(problem, self.axes.plans, self.axes.levels, (self.tall, self.priced.wide))
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

    def take(self, kept: Kept, block: Block) -> None:
        """Learn from a block."""
        places = self.axes.level_places(block.level)[:, : len(self.axes.names)] + self.level_offsets
        kept.take(block, self.plan_places[block.plan], places, self.keep)
        if block.level[-1] == self.axes.level_count - 1:
            kept.finish_plans(block.plan, self.keep)
