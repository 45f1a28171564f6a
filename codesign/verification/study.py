"""What a verification asks of the model: rows, tangents and designs, by a program of its own."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..compiling import quick_jit
from ..curvature import judge
from ..metrics import Metrics, evaluate
from ..objective import Objective
from ..scenario import Scenario
from ..smooth import at_least
from ..space import DesignSpace
from ..staging import reserve_rows, row_program, tight_tiers
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
        shares = asked.objective.usages(asked.metrics(somewhere))
        reserves = reserve_rows(asked.scenario, tight_tiers(asked.scenario, asked.space))
        self.constraints = tuple(sorted({*shares, *reserves}))
        self.names = (GOAL, *self.constraints, *asked.targets)
        self.keys = tuple(name if name in reserves else f"{place:03d}" for place, name in enumerate(self.names))
        self.program = row_program(asked.scenario, asked.space, self.fields, self._rows, self.keys[0])
        self._order = np.array([self.program.names.index(key) for key in self.keys])
        self._tree = jax.device_put(asked.scenario)
        self._tangents = quick_jit(jax.vmap(self._tangent, in_axes=(None, 0, 0, 0)))
        self._exact = quick_jit(jax.vmap(self._priced, in_axes=(None, 0, 0)))

    def _rows(self, metrics: Metrics, hardware: dict[str, Array]) -> dict[str, Array]:
        """Every row by its key, but for those that come with a program."""
        shares, asked = self.asked.objective.usages(metrics), self.asked
        found = {self.keys[0]: asked.sign * jnp.log(asked.value(metrics, hardware))}
        for key, name in zip(self.keys[1:], self.names[1:], strict=True):
            if name in self.constraints and key.isdigit() and int(key) <= len(self.constraints):
                found[key] = jnp.log(at_least(shares[name], LEAST_SHARE))
            elif key.isdigit():
                found[key] = jnp.log(metrics.get(name))
        return found

    def judged(
        self, listed: Mapping[str, np.ndarray], free: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, str], dict[tuple[str, str], int]]:
        """What the rules of curvature say of the rows: row -> why it is not convex; (row, field) -> which way it goes.

        Args:
            listed: plan field -> its value in each legal combination.
            free: field -> all its values, where each is legal with every combination.
        """
        found = judge(self.program, [self.asked.scenario], listed, free, ordered=tuple(free))
        last = 1 + len(self.constraints)
        rows = dict(zip(self.keys[:last], self.names[:last], strict=True))
        unproven = {rows.get(at, at): why for at, why in found.unproven.items() if at in rows or not at.isdigit()}
        ways = {(name, field): found.direction(at, field) for at, name in rows.items() for field in free}
        return unproven, {pair: way for pair, way in ways.items() if way is not None}

    def _priced(self, scenario: Scenario, plan: Array, u: Array) -> tuple[Array, Array]:
        """Rows and the largest broken rule of one design."""
        rows, broken = self.program.exact(scenario, plan, u)
        return rows[self._order], broken

    def _tangent(self, scenario: Scenario, plan: Array, u: Array, sharpness: Array) -> tuple[Array, Array]:
        """Value and slopes of every row of the reading that lies below it."""
        if not self.variables:
            return self._priced(scenario, plan, u)[0], jnp.zeros((len(self.names), 0))
        value, slopes = self.program.tangent(scenario, plan, u, sharpness)
        return value[self._order], slopes[self._order]

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
