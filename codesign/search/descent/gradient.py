"""Gradient search over the hardware variables of the best plans: any Optax optimizer, many starts, one compilation.

Source: see docs/optimisation.md, section 7.
"""

import inspect
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ...core.errors import ConfigError, suggestion
from ...core.jax_typed import asarray, block_until_ready, grad, linspace
from ...core.smooth import reading_with_sharpness
from ...executors import AbstractRunner
from ...jaxprs.evaluator import interpreted, quick_jit
from ...jaxprs.program import cached
from ...model.metrics import evaluate
from ...model.scenario import Scenario
from ...study.design_space import DesignSpace
from ...study.objective import Objective, feasible
from ..base import AbstractSearch, Problem, Progress, Report, Trace, silent
from ..exhaustive.chunks import ChunkFolders, screen_in_chunks
from ..exhaustive.grid import screen, trace_of_screened
from ..exhaustive.sweep import SweepResult

# Optax by name: an optimizer, and transformations of the gradient before it; loaded by searches that descend alone.


OPTIMIZERS = (
    "adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan", "amsgrad", "fromage",
    "lamb", "lars", "lion", "nadam", "nadamw", "novograd", "optimistic_adam_v2", "optimistic_gradient_descent", "radam",
    "rmsprop", "rprop", "sgd", "sign_sgd", "sm3", "yogi",
)  # fmt: skip
TRANSFORMATIONS = (
    "adaptive_grad_clip", "add_decayed_weights", "centralize", "clip", "clip_by_block_rms", "clip_by_global_norm",
    "ema", "normalize_by_update_norm", "scale", "scale_by_adam", "scale_by_belief", "scale_by_lion", "scale_by_rms",
    "scale_by_sign", "scale_by_trust_ratio", "trace", "zero_nans",
)  # fmt: skip
NO_SCHEDULE = ("rprop", "sm3")  # take a constant step only

_descents: OrderedDict[Any, Any] = OrderedDict()
_segments: OrderedDict[Any, Any] = OrderedDict()
MOST_COMPILED = 2  # of each: another seed of the same study needs no other, and a program is large


def _made(key: str, name: str, *args: Any, **options: Any) -> Any:
    """A transformation of Optax with these options.

    Raises:
        ConfigError: an option that it does not have.
    """
    factory = getattr(import_module("optax"), name)
    accepted = inspect.signature(factory).parameters
    for option in options:
        if option not in accepted:
            raise ConfigError(f"{key}.options.{option}: {name} has no such option{suggestion(option, accepted)}")
    try:
        return factory(*args, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key}.options: {name}: {str(error).splitlines()[0]}") from error


def annealed(ends: tuple[float, float], progress: Any) -> Any:
    """From the first to the last number, by equal factors, as progress goes from 0 to 1."""
    return ends[0] * (ends[1] / ends[0]) ** progress


def moved(at: Any, updates: Any) -> Any:
    """Point after the optimizer's updates."""
    return import_module("optax").apply_updates(at, updates)


def segment(steps: int, parts: int = 10) -> int:
    """Steps of one compiled call: a divisor of all of them, short enough for a search to report and be interrupted."""
    return max(length for length in range(1, max(steps // parts, 1) + 1) if steps % length == 0)


@dataclass(frozen=True)
class Transformation:
    """One transformation of the gradient, such as `clip_by_global_norm` with `max_norm: 1.0`."""

    name: str
    options: dict[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        """Only names from the list: a configuration may not reach arbitrary code."""
        if self.name not in TRANSFORMATIONS:
            hint = suggestion(self.name, TRANSFORMATIONS)
            raise ConfigError(f"search.optimizer.before.name = {self.name!r} is not known{hint}")
        self.build()

    def build(self) -> Any:
        """The `optax.GradientTransformation`."""
        return _made("search.optimizer.before", self.name, **self.options)


@dataclass(frozen=True)
class Optimizer:
    """An Optax optimizer by name; `options` go to its constructor, `before` runs on the gradient first."""

    name: str = "adam"
    learning_rate: float = 0.05
    options: dict[str, float] = field(default_factory=dict[str, float])
    before: tuple[Transformation, ...] = ()

    def __post_init__(self) -> None:
        """Only names from the list: a configuration may not reach arbitrary code."""
        if self.name not in OPTIMIZERS:
            raise ConfigError(f"search.optimizer.name = {self.name!r} is not known{suggestion(self.name, OPTIMIZERS)}")
        if not self.learning_rate > 0:
            raise ConfigError(f"search.optimizer.learning_rate = {self.learning_rate} must be positive")
        if self.options:  # each of them can be made with none
            self.build(1)

    def build(self, steps: int) -> Any:
        """The chain, an `optax.GradientTransformation`, its step decaying by a cosine over the run."""
        optax = import_module("optax")
        schedule: Any = optax.cosine_decay_schedule(self.learning_rate, steps, alpha=0.02)
        rate = self.learning_rate if self.name in NO_SCHEDULE else schedule
        last = _made("search.optimizer", self.name, rate, **self.options)
        return optax.chain(*(part.build() for part in self.before), last) if self.before else last


@dataclass(frozen=True)
class Descent:
    """Gradient-based optimisation of the continuous variables.

    The maximum is read as a p-norm whose p grows from `sharpness[0]` to `sharpness[1]`, and the weight of violated
    constraints from `penalty[0]` to `penalty[1]`; in the last fifth each constraint is tightened by `margin`.
    """

    starts: int = 4
    steps: int = 150
    optimizer: Optimizer = field(default_factory=Optimizer)
    sharpness: tuple[float, float] = (8.0, 400.0)
    penalty: tuple[float, float] = (1.0, 40.0)
    margin: float = 2e-3

    def minimise(
        self, problem: Problem, plans: dict[str, np.ndarray], start: np.ndarray, on_progress: Callable[[int], None]
    ) -> np.ndarray:
        """Descend from every start of every plan.

        Args:
            problem: what is minimised.
            plans: name -> [candidates] values.
            start: [candidates, starts, variables] unit-cube coordinates.
            on_progress: is told how many steps are done, every few of them.

        Returns:
            [candidates, starts, variables] final coordinates.
        """
        key = (repr(self), likeness(problem))
        run = cached(_descents, key, lambda: self._compiled(problem.space, problem.objective), MOST_COMPILED)
        carry = asarray(start), jax.vmap(jax.vmap(self.optimizer.build(self.steps).init))(asarray(start))
        length = segment(self.steps)
        for number, part in enumerate(linspace(0.0, 1.0, self.steps).reshape(-1, length)):
            on_progress(number * length)
            carry = run(carry, _arrays(plans), problem.scenario, part)
            block_until_ready(carry)
        return np.asarray(carry[0])

    def _compiled(self, space: DesignSpace, objective: Objective) -> Callable[..., Any]:
        """(point and state of the optimizer, plans, scenario, shares of the descent) -> point and state, some steps on.

        Traced and compiled when it is first called.
        """
        names, optimizer = space.names, self.optimizer.build(self.steps)
        priced = reading_with_sharpness(evaluate)

        def loss(
            u: Array, plan: dict[str, Array], scenario: Scenario, sharpness: Array, weight: Array, margin: Array
        ) -> Array:
            point = plan | space.values({name: u[i] for i, name in enumerate(names)})
            metrics = priced(sharpness, space.place(scenario, point))
            return objective.loss(metrics, weight, margin)

        def descend(carry: Any, plan: dict[str, Array], scenario: Scenario, progress: Array) -> Any:
            def step(carry: Any, progress: Array) -> Any:
                u, state = carry
                sharpness = annealed(self.sharpness, progress)
                weight = annealed(self.penalty, progress)
                margin = jnp.where(progress > 0.8, self.margin, 0.0)
                gradient = grad(loss)(u, plan, scenario, sharpness, weight, margin)
                gradient = jnp.where(jnp.isfinite(gradient), gradient, 0.0)
                updates, state = optimizer.update(gradient, state, u)
                return (jnp.clip(cast(Array, moved(u, updates)), 0.0, 1.0), state), None

            return jax.lax.scan(step, carry, progress)[0]

        over_starts = jax.vmap(descend, in_axes=(0, None, None, None))
        return quick_jit(jax.vmap(over_starts, in_axes=(0, 0, None, None)), once=True)


def likeness(problem: Problem) -> tuple[Any, ...]:
    """Key of what a program takes from a problem beside the arguments of each call.

    Functions of the user's count by identity: a program that is kept holds its objective, so no other gets their place
    in memory.
    """
    space, objective = problem.space, problem.objective
    quantities = {each.name: getattr(objective, each.name) for each in fields(objective) if each.name != "custom"}
    custom = tuple((name, id(function)) for name, function in objective.custom.items())
    return repr((tuple(space.plan), space.hardware, space.given, quantities)), custom


def _arrays(plans: dict[str, np.ndarray]) -> dict[str, Array]:
    return {name: asarray(column) for name, column in plans.items()}


@dataclass(frozen=True)
class GridThenGradient(AbstractSearch):
    """An exhaustive grid, then a descent over the hardware variables of its best plans.

    Args:
        batch_size: points in one vectorised call of the grid.
        top_k: plans whose best level is kept for the frame.
        candidates: plans that are refined.
        descent: how they are refined.
        runner: computes the grid in chunks, of which no files are kept; none: here, in one pass.
    """

    batch_size: int = 16384
    top_k: int = 64
    candidates: int = 16
    descent: Descent = Descent()
    runner: AbstractRunner | None = None

    def __post_init__(self) -> None:
        """Positive sizes."""
        for name in ("batch_size", "top_k", "candidates"):
            if getattr(self, name) < 1:
                raise ConfigError(f"search.{name} = {getattr(self, name)} must be at least 1")

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Screen, then refine; falls back to the grid where there is nothing continuous or nothing feasible."""
        block, keep = self.batch_size, max(self.top_k, self.candidates)
        if self.runner is None:
            screened = screen(problem, block, report, keep)
        else:
            screened = screen_in_chunks(problem, self.runner, block, report, keep, ChunkFolders())
        trace = trace_of_screened(problem, screened)
        if not problem.space.names or len(screened.top.best) == 0 or screened.stopped:
            return trace
        began = time.perf_counter()
        try:
            refined = self._refine(problem, screened, seed, report)
        except KeyboardInterrupt:
            trace.claim = f"interrupted before the descent was done; {trace.claim}"
            return trace
        count = len(next(iter(refined.values())))
        trace.points = {name: np.concatenate([trace.points[name], refined[name]]) for name in trace.points}
        trace.method += ["gradient"] * count
        trace.counts["refined"] = count
        trace.seconds["gradient"] = time.perf_counter() - began
        trace.claim = "heuristic solution by an exhaustive grid and gradients on its best plans; no certificate"
        return trace

    def _refine(self, problem: Problem, screened: SweepResult, seed: int, report: Report) -> dict[str, np.ndarray]:
        axes, pairs = screened.axes, screened.top.best_at[: self.candidates]
        plans = {name: column[pairs[:, 0]] for name, column in axes.plans.items()}
        names, count = problem.space.names, len(pairs)
        levels = {name: asarray(column) for name, column in axes.values_of(pairs[:, 1]).items()}
        coordinates = problem.space.coordinates(levels)
        first = np.stack([np.asarray(coordinates[name]) for name in names], axis=-1)
        rng = np.random.default_rng(seed)
        spread = rng.uniform(size=(count, self.descent.starts, len(names)))
        spread[:, 0] = first

        def on_progress(done: int) -> None:
            report(Progress("gradient", done, self.descent.steps, float("nan")))

        final = self.descent.minimise(problem, plans, spread, on_progress)
        points = _best_on_segments(problem, plans, first, final)
        on_progress(self.descent.steps)
        return points if axes.listed else {n: v for n, v in points.items() if n in names}

    @classmethod
    def example(cls, problem: Problem) -> "GridThenGradient":
        """Short descents from two starts."""
        return cls(64, top_k=4, candidates=2, descent=Descent(starts=2, steps=10))


def _best_on_segments(
    problem: Problem, plans: dict[str, np.ndarray], first: np.ndarray, final: np.ndarray, samples: int = 17
) -> dict[str, np.ndarray]:
    """The best feasible point, priced hard, between each plan's grid point and where its descents ended.

    A descent ends a little inside or outside its constraints; the segment to a feasible start holds a feasible point.
    """
    names = problem.space.names
    share = np.linspace(0.0, 1.0, samples) ** 0.5  # denser towards the descent's end
    line = first[:, None, None, :] + share[None, None, :, None] * (final - first[:, None, :])[:, :, None, :]
    count = line.shape[0]
    flat = line.reshape(count, -1, len(names))

    priced = cached(_segments, likeness(problem), lambda: _pricing(problem.space, problem.objective), MOST_COMPILED)
    goal, excess = (np.asarray(a) for a in priced(asarray(flat), _arrays(plans), problem.scenario))
    winner = np.argmin(np.where(feasible(excess), goal, np.inf), axis=1)
    best = flat[np.arange(count), winner]
    values = problem.space.values({name: asarray(best[:, i]) for i, name in enumerate(names)})
    return plans | {name: np.asarray(value) for name, value in values.items()}


def _pricing(space: DesignSpace, objective: Objective) -> Callable[..., Any]:
    """([plans, points, variables] coordinates, plans, scenario) -> log of the goal and excess, [plans, points] each."""

    def one(u: Array, plan: dict[str, Array], scenario: Scenario) -> tuple[Array, Array]:
        point = plan | space.values({name: u[i] for i, name in enumerate(space.names)})
        metrics = evaluate(space.place(scenario, point))
        return objective.log_goal(metrics), objective.excess(metrics)

    return interpreted(jax.vmap(jax.vmap(one, in_axes=(0, None, None)), in_axes=(0, 0, None)))
