"""Exhaustive search: all legal plans x all hardware levels, in blocks, with one compilation."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..compiling import quick_jit
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


def _block_function(problem: Problem):
    """(scenario, plans of a block, levels) -> log goal, excess, time and cost, each [plans, levels].

    Levels are mapped inside plans: what depends on the plan alone (shapes, tilings, footprints) is computed once for
    all its levels.
    """

    def one(scenario: Scenario, plan: dict[str, Array], level: dict[str, Array]) -> tuple[Array, ...]:
        metrics = evaluate(problem.space.place(scenario, level | plan))
        cost = metrics.usd_per_million_tokens
        return problem.objective.log_goal(metrics), problem.objective.excess(metrics), metrics.time_s, cost

    over_levels = jax.vmap(one, in_axes=(None, None, 0))
    return quick_jit(jax.vmap(over_levels, in_axes=(None, 0, None)))


def _blocks(plan_count: int, size: int) -> Iterator[tuple[np.ndarray, int]]:
    """(plan indices, how many are real) of each block; the last block repeats its final plan."""
    for first in range(0, plan_count, size):
        index = np.minimum(np.arange(first, first + size), plan_count - 1)
        yield index, min(size, plan_count - first)


def non_dominated(values: np.ndarray) -> np.ndarray:
    """Indices of the rows of [n, 2] that no other row beats in both columns, sorted by the first."""
    order = np.lexsort((values[:, 1], values[:, 0]))
    best = np.minimum.accumulate(values[order, 1])
    keep = np.concatenate([[True], values[order[1:], 1] < best[:-1]]) if len(order) else np.array([], dtype=bool)
    return order[keep]


def screen(problem: Problem, block: int = 16384, report: Report = silent) -> Screened:
    """Evaluate every legal plan at every hardware level, in float32.

    Raises:
        ConfigError: nothing varies, or no plan is legal.
    """
    start = time.perf_counter()
    plans, levels = problem.space.plans(problem.scenario), problem.space.grid()
    fixed = not plans
    if fixed and not levels:
        raise ConfigError("space is empty: neither space.plan nor space.hardware names anything that may vary")
    if fixed:
        plans = {"tp": np.full(1, float(problem.scenario.plan.tp))}
    plan_count, level_count = len(next(iter(plans.values()))), _count(levels)
    size = max(1, min(block // level_count, plan_count))
    function = _block_function(problem)
    scenario = single_precision(problem.scenario)
    levels_f32 = {name: jnp.asarray(column, dtype=jnp.float32) for name, column in levels.items()}
    levels_f32 = levels_f32 or {"tp": jnp.asarray(plans["tp"][:1], dtype=jnp.float32)}

    best, best_level = np.full(plan_count, np.inf), np.zeros(plan_count, dtype=np.int64)
    least_excess = np.full(plan_count, np.inf)
    front_values, front_pairs = np.zeros((0, 2)), np.zeros((0, 2), dtype=np.int64)
    done = feasible_count = 0
    for index, real in _blocks(plan_count, size):
        points = {name: jnp.asarray(column[index], dtype=jnp.float32) for name, column in plans.items()}
        with jax.enable_x64(False):  # constants inside the model follow
            answers = function(scenario, points, levels_f32)
        goal, excess, seconds, cost = (np.asarray(a, dtype=float)[:real] for a in answers)
        index = index[:real]
        ok = (excess <= 1e-6) & np.isfinite(goal)
        feasible_count += int(ok.sum())
        score = np.where(ok, goal, np.inf)
        best_level[index] = np.where(ok.any(axis=1), score.argmin(axis=1), excess.argmin(axis=1))
        best[index], least_excess[index] = score.min(axis=1), excess.min(axis=1)
        plan_at, level_at = np.nonzero(ok)
        values = np.concatenate([front_values, np.stack([seconds[ok], cost[ok]], axis=-1)])
        pairs = np.concatenate([front_pairs, np.stack([index[plan_at], level_at], axis=-1)])
        keep = non_dominated(values)
        front_values, front_pairs = values[keep], pairs[keep]
        done += real * level_count
        report(Progress("grid", done, plan_count * level_count, _goal_value(problem, best)))
    plans = {} if fixed else plans
    return Screened(
        plans, levels, best, best_level, least_excess, front_pairs, done, feasible_count, time.perf_counter() - start
    )


def _count(levels: dict[str, np.ndarray]) -> int:
    """Points of the hardware grid: one where nothing continuous varies."""
    return len(next(iter(levels.values()))) if levels else 1


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
