"""`search=gradient`: plan and hardware descended together from many starts, then rounded, repaired and solved again.

Source: see docs/optimisation.md, section 7.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.errors import ConfigError, suggestion
from ...core.jax_typed import asarray, jacfwd, linspace, zeros
from ...core.smooth import at_least, reading_with_sharpness
from ...jaxprs.evaluator import quick_jit
from ...jaxprs.program import cached
from ...model.metrics import Metrics, evaluate
from ...model.scenario import Scenario
from ...model.workloads.plan_fields import plan_value
from ...study.design_space import DesignSpace
from ...study.objective import Objective
from ..base import AbstractSearch, Problem, Progress, Report, Trace, silent
from ..branch_and_bound.bounding import REFERENCE_SHARPNESS, Bounding
from ..branch_and_bound.model_oracle import Oracle, designs_of
from ..branch_and_bound.oracle import Programme, rows_of
from .gradient import MOST_COMPILED, Optimizer, annealed, likeness, moved, segment

# Plans as points of a cube: what gradients move, and which legal plans lie near where they stop.
#
# A field of the plan with values v_1 < ... < v_k becomes one coordinate, in log2 where all values are positive:
#
#     log2              the real number between them; nothing is rounded until the end
#     straight_through  the nearest value forward, the slope of the real number backward
#     gumbel            a softmax over the k values with Gumbel noise, its temperature falling; one logit a value


KINDS = ("log2", "straight_through", "gumbel")
HOTTEST, COLDEST = 2.0, 0.05  # temperatures of the softmax, first and last
_descents: OrderedDict[Any, Any] = OrderedDict()


@dataclass(frozen=True)
class Relaxation:
    """The plan fields of a space as continuous coordinates.

    values: field -> sorted values; kind: how they are relaxed.
    """

    values: dict[str, np.ndarray]
    kind: str

    @classmethod
    def of(cls, space: DesignSpace, kind: str) -> "Relaxation":
        """Relax the plans of a space.

        Raises:
            ConfigError: an unknown kind.
        """
        if kind not in KINDS:
            raise ConfigError(f"search.relaxation = {kind!r} is not known{suggestion(kind, KINDS)}")
        listed = {name: sorted({float(plan_value(name, v)) for v in values}) for name, values in space.plan.items()}
        return cls({name: np.array(values) for name, values in listed.items()}, kind)

    @property
    def size(self) -> int:
        """Numbers that the gradient moves."""
        if self.kind == "gumbel":
            return sum(len(values) for values in self.values.values())
        return len(self.values)

    @property
    def bounded(self) -> bool:
        """True if points live in the unit cube (logits do not)."""
        return self.kind != "gumbel"

    def start(self, rng: np.random.Generator, starts: int) -> Float[np.ndarray, "starts size"]:
        """Random coordinates, or small random logits."""
        return rng.uniform(size=(starts, self.size)) if self.bounded else 0.5 * rng.normal(size=(starts, self.size))

    def fields(self, x: Float[Array, " size"], noise: Float[Array, " size"], progress: Array) -> dict[str, Array]:
        """Values of the plan's fields at coordinates x; `noise` is Gumbel's, used by that kind only."""
        if self.kind == "gumbel":
            temperature = annealed((HOTTEST, COLDEST), progress)
            return self._mixed((x + noise) / temperature)
        result: dict[str, Array] = {}
        for i, (name, values) in enumerate(self.values.items()):
            relaxed = _unscaled(values, _interpolated(values, x[i]))
            if self.kind == "straight_through":
                nearest = asarray(values)[jnp.argmin(jnp.abs(_scaled_all(values) - _interpolated(values, x[i])))]
                relaxed = relaxed + jax.lax.stop_gradient(nearest - relaxed)
            result[name] = relaxed
        return result

    def _mixed(self, logits: Array) -> dict[str, Array]:
        result, first = dict[str, Array](), 0
        for name, values in self.values.items():
            weights = jax.nn.softmax(logits[first : first + len(values)])
            result[name] = _unscaled(values, jnp.sum(weights * _scaled_all(values)))
            first += len(values)
        return result

    def settled(self, x: Float[np.ndarray, "starts size"]) -> Float[np.ndarray, "starts fields"]:
        """Final fields of each start, in scaled units (log2 where values are positive), without noise."""
        noise, end = zeros(x.shape[1]), asarray(1.0)
        relaxed = self if self.kind != "straight_through" else Relaxation(self.values, "log2")
        fields = jax.vmap(partial(relaxed.fields, noise=noise, progress=end))(asarray(x))
        columns = [_scaled(values, np.asarray(fields[name])) for name, values in self.values.items()]
        return np.stack(columns, axis=-1) if columns else np.zeros((len(x), 0))

    def nearest(
        self, settled: Float[np.ndarray, "starts fields"], plans: dict[str, np.ndarray], count: int
    ) -> np.ndarray:
        """Numbers of the legal plans nearest to where each start stopped, [starts, count]: rounding with repair."""
        if not self.values:
            return np.zeros((len(settled), 1), dtype=int)
        table = np.stack([_scaled(values, plans[name]) for name, values in self.values.items()], axis=-1)
        count = min(count, len(table))
        result = [np.argpartition(((table - row) ** 2).sum(axis=1), count - 1)[:count] for row in settled]
        return np.array(result)


def _is_log(values: np.ndarray) -> bool:
    return bool(values[0] > 0)


def _scaled(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.log2(x) if _is_log(values) else x


def _scaled_all(values: np.ndarray) -> Array:
    return asarray(_scaled(values, values))


def _unscaled(values: np.ndarray, x: Array) -> Array:
    return 2.0**x if _is_log(values) else x


def _interpolated(values: np.ndarray, x: Array) -> Array:
    ends = _scaled(values, values[[0, -1]])
    return ends[0] + (ends[1] - ends[0]) * x


ROUNDS, NEIGHBOURS = 4, 3  # of neighbours of the best plan, and in how many fields they differ
GLANCE = 4  # legal plans next to each start that are priced on the way, so that an interrupt has something to show
HALF = 0.5  # a rule broken by less than this is a matter of rounding


@dataclass(frozen=True)
class Gradient(AbstractSearch):
    """Relax, descend, round, solve again.

    1. Degrees and switches of the plan are relaxed (`relaxation`) and descended together with the hardware over the
       unit cube, all starts in one vectorised loop: the maximum read as a p-norm that sharpens, constraints as
       penalties that grow.
    2. Where a start stops, the `near` nearest legal plans are taken, and of all those the `candidates` that look best
       are solved over the hardware by the programme that `search=certified` closes plans with; then those that differ
       from the best one in three fields, until none of them is better.

    Nothing is proven about plans that no start came near.

    Args:
        starts: descents side by side.
        steps: of each.
        optimizer: any of Optax, with transformations before it.
        relaxation: log2, straight_through or gumbel.
        sharpness: first and last p of the p-norm.
        penalty: first and last weight of a violated constraint.
        near: legal plans taken for each start.
        candidates: plans solved over the hardware.
        rounds: of the inner solve, at most.
        gap: log-gap at which a plan counts as solved.
        top_k: designs (each with another plan) in the frame.
        batch_size: points in one call of the exact model.
    """

    starts: int = 64
    steps: int = 150
    optimizer: Optimizer = field(default_factory=Optimizer)
    relaxation: str = "log2"
    sharpness: tuple[float, float] = (2.0, 60.0)
    penalty: tuple[float, float] = (0.5, 8.0)
    near: int = 256
    candidates: int = 128
    rounds: int = 12
    gap: float = 1e-4
    top_k: int = 16
    batch_size: int = 256

    def __post_init__(self) -> None:
        """Positive sizes."""
        self.must_be_positive("starts", "steps", "near", "candidates", "rounds", "gap", "top_k", "batch_size")

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Descend from `starts` random points, then settle on legal plans.

        Raises:
            ConfigError: nothing varies, or no plan is legal.
        """
        relaxation = Relaxation.of(problem.space, self.relaxation)
        problem.check_varies()
        began = time.perf_counter()
        oracle = Oracle(problem, rows_of(problem), self.batch_size)
        bounding, seen = Bounding(Programme(oracle), self.gap), Bounding(Programme(oracle), self.gap)
        x, u, near, done, stopped, middle = np.zeros(0), np.zeros(0), np.zeros(0), 0, "", None
        try:
            for done, x, u in self._descents(problem, relaxation, seed):
                near = near if done else self._look(seen, oracle, relaxation, x, u)
                report(Progress("gradient", done, self.steps, problem.objective.goal_at(seen.upper)))
            middle = time.perf_counter()
            near = relaxation.nearest(relaxation.settled(x), oracle.plans, self.near)
            for share in self._solve(bounding, near, u):
                report(Progress("solve", share, ROUNDS + 1, problem.objective.goal_at(bounding.upper)))
        except KeyboardInterrupt:
            if not seen.cuts.soft:
                raise
            stopped = "interrupted"
            if middle is None:
                near = self._look(seen, oracle, relaxation, x, u)
            bounding = min(bounding, seen, key=lambda candidate: (candidate.upper, not candidate.cuts.soft))
        ended = time.perf_counter()
        middle = middle or ended
        trace = self._traced(oracle, bounding, near, u, {"descent": middle - began, "solve": ended - middle}, stopped)
        trace.counts["points"] += self.starts * done
        return trace

    def _descents(
        self, problem: Problem, relaxation: Relaxation, seed: int
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(steps done, coordinates of the plan, of the hardware, [starts, ...] each), from the start to the end."""
        rng, length = np.random.default_rng(seed), segment(self.steps)
        start = relaxation.start(rng, self.starts), rng.uniform(size=(self.starts, len(problem.space.names)))
        at = (asarray(start[0]), asarray(start[1]))
        state = jax.vmap(self.optimizer.build(self.steps).init)(at)
        carry = at, state, jax.random.split(jax.random.key(seed), self.starts)
        yield 0, *start
        key = repr(self), likeness(problem), *((name, *column) for name, column in relaxation.values.items())
        run = cached(
            _descents, key, lambda: self._compiled(problem.space, problem.objective, relaxation), MOST_COMPILED
        )
        progress = linspace(0.0, 1.0, self.steps).reshape(-1, length)
        for number, part in enumerate(progress, start=1):
            carry = run(carry, part, problem.scenario)
            yield number * length, np.asarray(carry[0][0]), np.asarray(carry[0][1])

    def _compiled(self, space: DesignSpace, objective: Objective, relaxation: Relaxation) -> Callable[..., Any]:
        """(points, state of the optimizer and key of each start, shares of the descent, scenario) -> some steps on.

        Traced and compiled when it is first called.
        """
        names, optimizer = space.names, self.optimizer.build(self.steps)
        priced = reading_with_sharpness(evaluate)

        def loss(at: tuple[Array, Array], noise: Array, scenario: Scenario, progress: Array) -> Array:
            x, u = at
            values = space.values({name: u[i] for i, name in enumerate(names)})
            point = relaxation.fields(x, noise, progress) | values
            sharpness = annealed(self.sharpness, progress)
            weight = annealed(self.penalty, progress)
            metrics: Metrics = priced(sharpness, space.place(scenario, point))
            return objective.loss(metrics, weight) + weight * _broken(metrics)

        def descend(carry: Any, progress: Array, scenario: Scenario) -> Any:
            def step(carry: Any, progress: Array) -> Any:
                at, state, key = carry
                key, noise_key = jax.random.split(key)
                noise = jax.random.gumbel(noise_key, at[0].shape) * (1 - progress)
                # few inputs: reverse mode compiles for longer
                gradient = jacfwd(loss)(at, noise, scenario, progress)
                gradient = jax.tree.map(_finite, gradient)
                updates, state = optimizer.update(gradient, state, at)
                x, u = cast(tuple[Array, Array], moved(at, updates))
                x = jnp.clip(x, 0.0, 1.0) if relaxation.bounded else x
                return ((x, jnp.clip(u, 0.0, 1.0)), state, key), None

            return jax.lax.scan(step, carry, progress)[0]

        return quick_jit(jax.vmap(descend, in_axes=(0, None, None)))

    def _look(
        self, bounding: Bounding, oracle: Oracle, relaxation: Relaxation, x: np.ndarray, u: np.ndarray
    ) -> np.ndarray:
        """Price the legal plans next to each start at its hardware; their numbers."""
        near = relaxation.nearest(relaxation.settled(x), oracle.plans, GLANCE)
        plan, start = near.reshape(-1), np.repeat(u, near.shape[1], axis=0)
        bounding.learn(plan, start, REFERENCE_SHARPNESS)
        return near

    def _solve(self, bounding: Bounding, near: np.ndarray, u: np.ndarray) -> Iterator[int]:
        """The most promising of the plans near a start, each solved over the hardware; yields rounds of plans done."""
        oracle = bounding.programme.oracle
        plan, start = near.reshape(-1), np.repeat(u, near.shape[1], axis=0)
        plan, first = np.unique(plan, return_index=True)
        for _ in self._settle(bounding, plan, start[first]):
            yield 0
        for number in range(ROUNDS):
            best = bounding.plan
            around = oracle.near(best, NEIGHBOURS) if best >= 0 else np.zeros(0, dtype=int)
            new = around[~bounding.cuts.has_cuts(around)]
            if len(new):
                for _ in self._settle(bounding, new, np.broadcast_to(bounding.u, (len(new), bounding.width))):
                    yield number + 1
            if len(new) == 0 or bounding.plan == best:
                break
        yield ROUNDS + 1

    def _settle(self, bounding: Bounding, plan: np.ndarray, u: np.ndarray) -> Iterator[None]:
        """Evaluate these plans at these points, and solve the `candidates` that look best, round by round."""
        exact = bounding.learn(plan, u, REFERENCE_SHARPNESS)
        soft = exact[:, 0] + np.maximum(exact[:, 1:], 0.0).sum(axis=1)  # hardware will give way, so a mild penalty
        chosen = plan[np.argsort(soft, kind="stable")[: self.candidates]]
        for _ in range(self.rounds if bounding.width else 0):
            chosen = chosen[bounding.lower[chosen] < bounding.cut]
            if len(chosen) == 0:
                return
            bounding.refine(chosen)
            yield

    def _traced(
        self,
        oracle: Oracle,
        bounding: Bounding,
        near: np.ndarray,
        u: np.ndarray,
        seconds: dict[str, float],
        stopped: str,
    ) -> Trace:
        counts = {"plans": oracle.count, "tried": len(bounding.cuts), "solved": bounding.solved}
        counts |= {"starts": self.starts, "points": oracle.evaluated}
        claim = f"heuristic solution by {self.starts} relaxed descents, rounding and solving again; no certificate"
        claim = f"{stopped}: {claim}" if stopped else claim
        best = bounding.incumbent.ranked(self.top_k)
        if not best:  # an infeasible design is worth seeing
            at = min(bounding.cuts.soft, key=lambda p: bounding.cuts.soft[p])
            row = int(np.argmax((near == at).any(axis=1)))
            points = designs_of(oracle, np.array([at]), u[row : row + 1])
            claim = ", ".join(filter(None, (stopped, "no feasible design found, no certificate")))
            return Trace(points, ["gradient"], counts, seconds, claim)
        points = designs_of(oracle, np.array(best), np.array([bounding.feasible[p][1] for p in best]))
        return Trace(points, ["gradient"] * len(best), counts, seconds, claim)

    @classmethod
    def example(cls, problem: Problem) -> "Gradient":
        """Short descents from two starts."""
        return cls(starts=2, steps=10, near=2, candidates=2, rounds=3, batch_size=64)


def _finite(slope: Array) -> Array:
    return jnp.where(jnp.isfinite(slope), slope, 0.0)


def _broken(metrics: Metrics) -> Array:
    """Rules of the plan that no rounding would mend, such as more ranks than devices."""
    total = asarray(0.0)
    for broken in metrics.violations.values():
        total = total + jnp.log1p(at_least(broken - HALF, 0.0))
    return total
