"""Exhaustive search: all legal plans x all hardware levels, in blocks, with one compilation."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..errors import ConfigError
from ..metrics import evaluate
from ..scenario import Scenario
from .base import AbstractSearch, Problem, Progress, Report, Trace, silent


def single_precision(tree: Scenario) -> Scenario:
    """The same tree in float32: screening needs no more, and runs about four times as fast."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.float32), tree)


@dataclass
class Screened:
    """What is kept of the points: the best hardware level of every plan and the front of time against cost."""

    plans: dict[str, np.ndarray]
    levels: dict[str, np.ndarray]
    best: np.ndarray  # [plans] log goal of the best feasible level, inf where none is
    best_level: np.ndarray  # [plans]
    excess: np.ndarray  # [plans] smallest violation of any level
    front: np.ndarray  # [front, 2] (plan, level)
    evaluated: int
    feasible: int
    seconds: float

    def points(self, plan_index: np.ndarray, level_index: np.ndarray) -> dict[str, np.ndarray]:
        """Values of the given (plan, level) pairs."""
        chosen = {name: column[plan_index] for name, column in self.plans.items()}
        return chosen | {name: column[level_index] for name, column in self.levels.items()}


def _block_function(problem: Problem, size: int):
    """(plan arrays, level arrays, first point, scenario) -> log goal, excess, time, cost of `size` points."""

    def one(scenario: Scenario, point: dict[str, Array]) -> tuple[Array, Array, Array, Array]:
        metrics = evaluate(problem.space.place(scenario, point))
        cost = metrics.usd_per_million_tokens
        return problem.objective.log_goal(metrics), problem.objective.excess(metrics), metrics.time_s, cost

    def block(scenario: Scenario, plans: dict[str, Array], levels: dict[str, Array], plan: Array, level: Array):
        point = {name: column[plan] for name, column in plans.items()}
        point |= {name: column[level] for name, column in levels.items()}
        return jax.vmap(one, in_axes=(None, 0))(scenario, point)

    return jax.jit(block)


def _pairs(plan_count: int, level_count: int, size: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """(plan indices, level indices, how many are real) of each block; the last block repeats its final point."""
    total = plan_count * level_count
    for first in range(0, total, size):
        index = np.minimum(np.arange(first, first + size, dtype=np.int64), total - 1)
        yield (index // level_count).astype(np.int32), (index % level_count).astype(np.int32), min(size, total - first)


def non_dominated(values: np.ndarray) -> np.ndarray:
    """Indices of the rows of [n, 2] that no other row beats in both columns, sorted by the first."""
    order = np.lexsort((values[:, 1], values[:, 0]))
    best = np.minimum.accumulate(values[order, 1])
    keep = np.concatenate([[True], values[order[1:], 1] < best[:-1]]) if len(order) else np.array([], dtype=bool)
    return order[keep]


def screen(problem: Problem, block: int = 16384, report: Report = silent) -> Screened:
    """Evaluate every legal plan at every hardware level.

    Raises:
        ConfigError: no plan is legal.
    """
    start = time.perf_counter()
    plans, levels = problem.space.plans(problem.scenario), problem.space.grid()
    plan_count = len(next(iter(plans.values()))) if plans else 1
    level_count = len(next(iter(levels.values()))) if levels else 1
    total = plan_count * level_count
    size = min(block, max(256, 1 << (total - 1).bit_length()))
    function = _block_function(problem, size)
    scenario = single_precision(problem.scenario)
    as_f32 = {n: jnp.asarray(c, dtype=jnp.float32) for n, c in plans.items()}
    levels_f32 = {n: jnp.asarray(c, dtype=jnp.float32) for n, c in levels.items()}

    best = np.full(plan_count, np.inf)
    best_level = np.zeros(plan_count, dtype=np.int32)
    excess_of = np.full(plan_count, np.inf)
    front_values, front_pairs = np.zeros((0, 2)), np.zeros((0, 2), dtype=np.int32)
    done = feasible_count = 0
    for plan, level, real in _pairs(plan_count, level_count, size):
        goal, excess, seconds, cost = (
            np.asarray(a, dtype=float)[:real] for a in function(scenario, as_f32, levels_f32, plan, level)
        )
        plan, level = plan[:real], level[:real]
        ok = (excess <= 1e-6) & np.isfinite(goal)
        feasible_count += int(ok.sum())
        np.minimum.at(excess_of, plan, excess)
        score = np.where(ok, goal, np.inf)
        order = np.argsort(-score, kind="stable")  # the last write of each plan is its best
        better = score[order] < best[plan[order]]
        best[plan[order][better]] = score[order][better]
        best_level[plan[order][better]] = level[order][better]
        values = np.concatenate([front_values, np.stack([seconds[ok], cost[ok]], axis=-1)])
        pairs = np.concatenate([front_pairs, np.stack([plan[ok], level[ok]], axis=-1)])
        keep = non_dominated(values)
        front_values, front_pairs = values[keep], pairs[keep]
        done += real
        report(Progress("grid", done, total, _goal_value(problem, best)))
    return Screened(
        plans, levels, best, best_level, excess_of, front_pairs, total, feasible_count, time.perf_counter() - start
    )


def _goal_value(problem: Problem, best: np.ndarray) -> float:
    value = float(np.min(best))
    return float(np.exp(value if problem.objective.minimise else -value))


@dataclass(frozen=True)
class Grid(AbstractSearch):
    """Every legal plan at every hardware level.

    Args:
        block: points in one vectorised call.
        keep: plans whose best level is kept for the frame.
    """

    block: int = 16384
    keep: int = 64

    def __post_init__(self) -> None:
        """Positive sizes."""
        if self.block < 1 or self.keep < 1:
            raise ConfigError(f"search.block = {self.block} and search.keep = {self.keep} must be at least 1")

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Exhaustive; the seed is not used."""
        return kept_of(screen(problem, self.block, report), self.keep)


def kept_of(screened: Screened, keep: int) -> Trace:
    """The best plans at their best level, and the front of time against cost.

    Where nothing is feasible, the plans that violate least are kept: an infeasible design is worth seeing.
    """
    order = np.argsort(screened.best, kind="stable")[:keep]
    if not np.isfinite(screened.best).any():
        order = np.argsort(screened.excess, kind="stable")[:keep]
    plan = np.concatenate([order, screened.front[:, 0]])
    level = np.concatenate([screened.best_level[order], screened.front[:, 1]])
    counts = {"plans": len(screened.best), "points": screened.evaluated, "feasible": screened.feasible}
    method = ["grid"] * len(order) + ["pareto"] * len(screened.front)
    claim = "best of an exhaustive grid over all legal plans; no proof between the grid's levels"
    return Trace(screened.points(plan, level), method, counts, {"grid": screened.seconds}, claim)
