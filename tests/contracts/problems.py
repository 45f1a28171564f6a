"""Every kind of problem that a search may be given, and what is known of its optimum without a search."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from codesign.model.metrics import Metrics, evaluate
from codesign.search import Problem, Progress
from codesign.staging import at_many
from codesign.study.design_space import Continuous, DesignSpace
from codesign.study.objective import Objective, feasible
from codesign.testing.check import products

UP = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
HBM = "cluster.accelerator.hbm.capacity_bytes"
HBM_RATE = "cluster.accelerator.hbm.bandwidth_bytes_per_s"
FINE = 25  # levels of each variable in the exhaustive optimum; its 1st, 13th and 25th are the grid's
FRONT = ("time_s", "usd_per_million_tokens")

PLAN = {"tp": [1, 2, 4], "micro_batch": [1, 4]}
HARDWARE = {
    "hbm": Continuous(HBM, 20e9, 160e9, grid=3, tied=[HBM_RATE]),
    "up": Continuous(UP, 100e9, 900e9, grid=3),
}
FASTEST = Objective("time_s", limits={"capex_usd": 7e5})
"""Bandwidth and memory compete for the money, and the best of both lies inside the box."""


def bumpy(metrics: Metrics) -> Array:
    """A price that jumps with what is spent: no tangent of it holds across the jump."""
    return metrics.usd_per_million_tokens * jnp.where(metrics.capex_usd > 6.8e5, 1.3, 1.0)


@dataclass
class Stop:
    """Hears what a search reports, and is a Ctrl-C at the report of this number (0: never)."""

    at: int = 0

    def __post_init__(self) -> None:
        """Nothing heard yet."""
        self.heard: list[Progress] = []

    def __call__(self, progress: Progress) -> None:
        """Take it down."""
        self.heard.append(progress)
        if len(self.heard) == self.at:
            raise KeyboardInterrupt


def made(plan: dict | None = None, hardware: dict | None = None, objective: Objective = FASTEST) -> Problem:
    """A problem over the one scenario."""
    space = DesignSpace(PLAN if plan is None else plan, HARDWARE if hardware is None else hardware)
    return Problem(products(), space, objective)


TIGHT = HARDWARE | {"hbm": Continuous(HBM, 2e9, 160e9, grid=3, tied=[HBM_RATE])}
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "feasible": made,
    "most": lambda: made(objective=Objective("", "tokens_per_s", limits={"capex_usd": 7e5})),
    "infeasible": lambda: made(objective=Objective("time_s", limits={"capex_usd": 5e5})),
    "illegal": lambda: made(plan={"tp": [3, 5], "micro_batch": [1]}),
    "point": lambda: made({}, {}),
    "hardware": lambda: made(plan={}),
    "plans": lambda: made(hardware={}, objective=Objective("time_s", limits={"capex_usd": 8e5})),
    "line": lambda: made(hardware={"up": HARDWARE["up"]}, objective=Objective("time_s", limits={"capex_usd": 8e5})),
    "ties": lambda: made(plan=PLAN | {"virtual_stages": [1, 2]}),
    "kink": lambda: made(objective=Objective("max(time_s / 0.012, capex_usd / 7e5)", limits={"time_s": 0.1})),
    "reserve": lambda: made(hardware=TIGHT),
    "bumpy": lambda: made(objective=Objective("bumpy", limits={"bumpy": 1.0}, custom={"bumpy": bumpy})),
    "stop_1": made,
    "stop_3": made,
}  # fmt: skip
"""Name -> problem. illegal: no plan is; point: nothing varies; line: one variable; ties: a plan field that changes
nothing; kink: the goal is a maximum whose two sides meet at the optimum; reserve: some of the box cannot hold what is
reserved; bumpy: no tangent holds; stop: see `STOPS`."""

STOPS = {"stop_1": 1, "stop_3": 3}


@functools.cache
def problem_of(name: str) -> Problem:
    """Made once: traces are shared."""
    return PROBLEMS[name]()


class Priced(NamedTuple):
    """Designs priced by the plain model: log of the goal, whether all limits are kept, logs of the front's metrics."""

    goal: np.ndarray
    feasible: np.ndarray
    front: np.ndarray


@functools.cache
def pricing(name: str) -> Callable[[dict[str, np.ndarray]], list[np.ndarray]]:
    """Designs of a problem -> logs of the goal, largest violations, logs of the front's metrics: the plain model."""
    problem = problem_of(name)

    def one(point: dict[str, Array]) -> list[Array]:
        metrics = evaluate(problem.space.place(problem.scenario, {key: point[key] for key in point if key != "none"}))
        front = [jnp.log(metrics.get(metric)) for metric in FRONT]
        return [problem.objective.log_goal(metrics), problem.objective.excess(metrics), *front]

    return at_many(one)


def priced(name: str, points: dict[str, np.ndarray]) -> Priced:
    """Designs of a problem, which may have no field that is chosen: then there is one."""
    goal, excess, *front = pricing(name)(points or {"none": np.zeros(1)})
    return Priced(goal, np.asarray(feasible(excess)), np.stack(front, axis=-1))


def fine_points(problem: Problem) -> dict[str, np.ndarray]:
    """Every legal plan at a fine grid of the hardware."""
    plans = problem.space.plans(problem.scenario) if problem.space.plan else {}
    levels = [np.linspace(0.0, 1.0, FINE)] * len(problem.space.names)
    u = np.stack(np.meshgrid(*levels, indexing="ij"), axis=-1).reshape(-1, len(levels)) if levels else np.zeros((1, 0))
    values = problem.space.values({name: u[:, i] for i, name in enumerate(problem.space.names)})
    count = len(next(iter(plans.values()), [0]))
    points = {name: np.repeat(np.asarray(column, dtype=float), len(u)) for name, column in plans.items()}
    return points | {name: np.tile(column, count) for name, column in values.items()}


@functools.cache
def exhaustive(name: str) -> tuple[dict[str, np.ndarray], Priced]:
    """The fine grid of a problem, priced; nothing where no plan is legal."""
    if name == "illegal":
        return {"up": np.zeros(0)}, Priced(np.zeros(0), np.zeros(0, dtype=bool), np.zeros((0, len(FRONT))))
    points = fine_points(problem_of(name))
    return points, priced(name, points)
