"""What a verification asks of the model: rows, tangents and designs, by a program of its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..compiling import quick_jit
from ..metrics import Metrics, evaluate
from ..objective import Objective
from ..scenario import Scenario
from ..smooth import Weighted, at_least, reading
from ..space import DesignSpace
from .certificate import GOAL

LEAST_SHARE = 1e-9  # stands in for a share of zero, which has no logarithm; far below 1, where a constraint binds
TARGETS = ("time_s", "energy_j", "capex_usd", "provisioned_power_w")
TANGENT_BLOCK, EXACT_BLOCK = 128, 2048  # points in one call; few, so that a call for some designs costs little
THREADS = 2


@dataclass(frozen=True)
class Asked:
    """A study as its configuration says it.

    goal: name of what is optimised: the objective's, or a variable of the space (`search=inverse`); sign: 1 where less
    is better. targets: metrics whose extremes an attack visits too: a goal may have its cliff there.
    """

    scenario: Scenario
    space: DesignSpace
    objective: Objective
    goal: str
    sign: float = 1.0
    targets: tuple[str, ...] = TARGETS

    def metrics(self, point: dict[str, float]) -> Metrics:
        """The hard model in float64 at plan fields and hardware values, run by NumPy, not compiled."""
        values = {name: jnp.asarray(point[name], dtype=float) for name in (*self.space.plan, *self.space.hardware)}
        return evaluate(self.space.place(self.scenario, values))

    def priced(self, point: dict[str, float]) -> tuple[float, float]:
        """(goal, largest violation) of one design."""
        metrics = self.metrics(point)
        return float(self.value(metrics, point)), float(self.objective.excess(metrics))

    def value(self, metrics: Metrics, hardware: dict[str, Any]) -> Any:
        """The goal of a design."""
        if self.goal in self.space.hardware and self.goal != self.objective.goal:
            return hardware[self.goal]
        return self.objective.value(metrics, self.goal)


class Exact(NamedTuple):
    """Designs by the hard model: logs of the goal, of used shares and of the targets; whether all constraints hold."""

    rows: Float[np.ndarray, "designs rows"]
    feasible: np.ndarray


class Model:
    """Evaluates plans at coordinates of the unit cube, in float64 and in blocks.

    names: of the rows: the goal's log, the log of each constraint's used share, and the logs of the targets.
    """

    def __init__(self, asked: Asked):
        self.asked, self.evaluated = asked, 0
        self.fields, self.variables = tuple(asked.space.plan), asked.space.names
        somewhere = {name: values[0] for name, values in asked.space.lists.items()}
        somewhere |= {name: variable.low for name, variable in asked.space.hardware.items()}
        self.constraints = tuple(sorted(asked.objective.usages(asked.metrics(somewhere))))
        self.names = (GOAL, *self.constraints, *asked.targets)
        self._tree = jax.device_put(asked.scenario)
        self._tangents = quick_jit(jax.vmap(self._tangent, in_axes=(None, 0, 0, 0)))
        self._exact = quick_jit(jax.vmap(self._priced, in_axes=(None, 0, 0)))

    def _priced(self, scenario: Scenario, plan: Array, u: Array) -> tuple[Array, Array]:
        """Rows and the largest broken rule of one design."""
        space, asked = self.asked.space, self.asked
        hardware = space.values({name: u[i] for i, name in enumerate(self.variables)})
        metrics = evaluate(space.place(scenario, dict(zip(self.fields, plan, strict=True)) | hardware))
        shares = asked.objective.usages(metrics)
        logs = [asked.sign * jnp.log(asked.value(metrics, hardware))]
        logs += [jnp.log(at_least(shares[name], LEAST_SHARE)) for name in self.constraints]
        logs += [jnp.log(metrics.get(name)) for name in asked.targets]
        broken = jnp.stack([*map(jnp.asarray, metrics.violations.values()), jnp.asarray(0.0)])
        return jnp.stack(logs), jnp.max(broken)

    def _tangent(self, scenario: Scenario, plan: Array, u: Array, sharpness: Array) -> tuple[Array, Array]:
        """Value and slopes of every row, maxima read as weighted sums: both belong to a function below the row."""

        def weighted(u: Array) -> tuple[Array, Array]:
            rows, _ = reading(Weighted(sharpness), lambda u: self._priced(scenario, plan, u))(u)
            return rows, rows

        if not self.variables:
            rows, _ = self._priced(scenario, plan, u)
            return rows, jnp.zeros((len(self.names), 0))
        slopes, value = jax.jacfwd(weighted, has_aux=True)(u)
        return value, slopes

    def tangents(
        self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray, told: Callable[[int], None] = lambda done: None
    ) -> tuple[Float[np.ndarray, "points rows"], Float[np.ndarray, "points rows variables"]]:
        """Values and slopes of all rows; `told` hears how many points are done."""
        return self._run(self._tangents, TANGENT_BLOCK, (plan, u, sharpness), told)

    def exact(self, plan: np.ndarray, u: np.ndarray) -> Exact:
        """Designs by the hard model. A constraint holds where its share is at most 1, with no tolerance."""
        rows, broken = self._run(self._exact, EXACT_BLOCK, (plan, u), lambda done: None)
        last = 1 + len(self.constraints)
        holds = (rows[:, 1:last] <= 0).all(axis=1) & (broken <= 0) & np.isfinite(rows[:, 0])
        return Exact(rows, holds)

    def _run(
        self, compiled: Any, block: int, columns: tuple[np.ndarray, ...], told: Callable[[int], None]
    ) -> tuple[np.ndarray, np.ndarray]:
        count, done = len(columns[0]), 0
        self.evaluated += count

        def run(first: int) -> tuple[np.ndarray, ...]:
            index = np.minimum(np.arange(first, first + block), count - 1)
            out = compiled(self._tree, *(jnp.asarray(column[index]) for column in columns))
            return tuple(np.asarray(part)[: count - first] for part in out)

        parts = []
        with ThreadPoolExecutor(THREADS) as pool:
            for part in pool.map(run, range(0, count, block)):
                parts.append(part)
                done += len(part[0])
                told(done)
        first, second = (np.concatenate(part) for part in zip(*parts, strict=True))
        return first, second
