"""From a guess to a design: plans the network scores high, each from the hardware that it proposes for them.

screen    plans by the hard model alone, a third of the cost of a tangent
settle    those of the best scores, and those that look best by dear and cheap prices of violations, over the
          hardware (`settling`), fewer with every round
exchange  the same again at the best design's hardware, with the neighbours of its plan in two fields, until nothing
          better comes

Source: see docs/optimisation.md, section 7.
"""

import copy
import dataclasses
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from ...core.jax_typed import asarray, jit, zeros
from ...jaxprs.jit import quick_jit
from ...model.scenario import Scenario
from ...study.design_space import DesignSpace
from ..base import Problem
from ..branch_and_bound.model_oracle import Oracle, affine
from ..branch_and_bound.oracle import AbstractOracle, Tangents, relayed, rows_of
from ..branch_and_bound.programme import Programme
from ..settings import AMORTISED
from .guesser import Guesser, NetworkShape
from .settling import Settling


def bare_oracle(problem: Problem) -> Oracle:
    """An oracle that lists no plans: they are given later, by `with_plans`; compiles once for all of them."""
    space = DesignSpace({}, problem.space.hardware)
    fields = {name: np.zeros(1) for name in NetworkShape.of(problem.space).fields}
    return Oracle(dataclasses.replace(problem, space=space), rows_of(problem), AMORTISED.solved, plans=fields)


def numbers(scenario: Scenario) -> Scenario:
    """Copy of a scenario with every leaf in double precision."""

    def double(leaf: Any) -> np.ndarray:
        return np.asarray(leaf, dtype=float)

    return jax.tree.map(double, scenario)


def leaves_of(scenario: Scenario) -> Float[np.ndarray, " numbers"]:
    """All numbers of a scenario side by side."""
    return np.concatenate([np.ravel(np.asarray(leaf, dtype=float)) for leaf in jax.tree.leaves(scenario)])


def hard_model(oracle: Oracle) -> Callable[..., Any]:
    """(leaves of the scenario, table of plans, coordinates of each) -> rows; inf where a rule is broken."""
    _, tree = ravel_pytree(numbers(oracle.problem.scenario))

    def one(leaves: Any, plan: Any, u: Any) -> Any:
        rows, broken = oracle.program.exact(tree(leaves), plan, u)
        return jnp.where(broken > 0, jnp.inf, rows)

    return quick_jit(jax.vmap(one, in_axes=(None, 0, 0)))


def cut_model(oracle: Oracle) -> Callable[..., Any]:
    """Compiled model of cuts: (as `hard_model`, sharpness of each) -> exact rows, lower rows, slopes, broken rules."""
    _, tree = ravel_pytree(numbers(oracle.problem.scenario))

    def one(leaves: Any, plan: Any, u: Any, sharpness: Any) -> Any:
        exact, broken = oracle.program.exact(tree(leaves), plan, u)
        if not oracle.variables:
            return exact, exact, zeros((len(oracle.names), 0)), broken
        return exact, *oracle.program.tangent(tree(leaves), plan, u, sharpness), broken

    return quick_jit(jax.vmap(one, in_axes=(None, 0, 0, 0)))


def with_plans(oracle: Oracle, problem: Problem, table: Float[np.ndarray, "plans fields"]) -> Oracle:
    """Copy of a compiled oracle over these plans of a problem of the same structure (illegal ones break a rule)."""
    other = copy.copy(oracle)
    other.problem, other.evaluated = problem, 0
    other.plans = {name: table[:, i] for i, name in enumerate(oracle.plans)}
    other.table = np.ascontiguousarray(table)
    return other


class StudyOracle(AbstractOracle):
    """Every combination of plans in one study, by a compiled model whose scenario goes as one vector, in blocks.

    Illegal plans break a rule.
    """

    def __init__(self, instant: "Instant", leaves: Float[Array, " numbers"]):
        self._instant, self._leaves, self.names, self.evaluated = instant, leaves, instant.oracle.names, 0

    variables: Any = relayed("_instant", "variables")

    @property
    def count(self) -> int:
        """Combinations."""
        return len(self._instant.table)

    def near(self, plan: int, changes: int) -> np.ndarray:
        """Plans that differ from one in at most so many fields."""
        return np.flatnonzero(self._instant.near(plan, changes))

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """Rows and tangents, in calls of one shape."""
        self.evaluated += len(plan)
        sharp = np.broadcast_to(np.asarray(sharpness, dtype=float), (len(plan),))
        parts: list[list[np.ndarray]] = []
        for first in range(0, len(plan), AMORTISED.solved):
            at = np.minimum(np.arange(first, first + AMORTISED.solved), len(plan) - 1)
            out = self._instant.cuts(self._leaves, self._instant.table[plan[at]], u[at], sharp[at])
            parts.append([np.asarray(part)[: len(plan) - first] for part in out])
        exact, below, slopes, broken = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Tangents(exact, affine(below, slopes, u), broken)


def legality(problem: Problem) -> Callable[..., Any]:
    """(leaves of the scenario, table of plans) -> which break no rule; compiled once for studies of one structure."""
    fields, (_, tree) = NetworkShape.of(problem.space).fields, ravel_pytree(numbers(problem.scenario))

    def one(leaves: Any, plan: Any) -> Any:
        placed = problem.space.place(tree(leaves), dict(zip(fields, plan, strict=True)))
        broken = [asarray(value) for value in placed.workload.violations(placed.layout).values()]
        return jnp.max(jnp.stack([*broken, asarray(0.0)])) <= 0

    return jit(jax.vmap(one, in_axes=(None, 0)))


class Instant:
    """Shared state of answers to studies of one structure: the compiled model and rules, every combination of plans."""

    def __init__(self, problem: Problem, shape: NetworkShape):
        self.shape, self.table = shape, shape.table
        self.oracle, self.legal = bare_oracle(problem), legality(problem)
        self.hard, self.cuts, self.variables = hard_model(self.oracle), cut_model(self.oracle), self.oracle.variables

    def near(self, plan: int, changes: int) -> Bool[np.ndarray, " plans"]:
        """Mask of the plans that differ from one in at most so many fields."""
        return (self.table != self.table[plan]).sum(axis=1) <= changes


class InstantAnswer:
    """The design that a guess leads to: `run`, then `row`, `u` and `upper`."""

    def __init__(
        self, guesser: Guesser, instant: Instant, problem: Problem, allowed: dict[str, float] | None = None,
        gap: float = 2e-3,
    ):  # fmt: skip
        self.guesser, self.instant, self.problem = guesser, instant, problem
        self.leaves = asarray(leaves_of(problem.scenario))
        oracle = StudyOracle(instant, self.leaves)
        self.settling = Settling(Programme(oracle, allowed=allowed or {}), gap)  # it was compiled for other limits
        self.screened = 0

    @property
    def upper(self) -> float:
        """Log of the goal; inf where no design was found."""
        return self.settling.incumbent.upper

    @property
    def row(self) -> Float[np.ndarray, " fields"]:
        """The plan."""
        return self.instant.table[self.settling.incumbent.plan]

    @property
    def u(self) -> Float[np.ndarray, " variables"]:
        """Coordinates of the hardware."""
        return self.settling.incumbent.u

    @property
    def evaluated(self) -> int:
        """Points asked for."""
        return self.screened + self.settling.programme.oracle.evaluated

    def run(self) -> "InstantAnswer":
        """Guess, screen, settle; then again from the best design, until nothing better comes."""
        scores, logits = self.guesser.guess(self.problem)
        likely = self._legal(np.argpartition(-scores, min(AMORTISED.checked, len(scores)) - 1)[: AMORTISED.checked])
        likely = likely[np.argsort(-scores[likely], kind="stable")[: AMORTISED.likely]]
        shape, first = self.instant.shape, likely[: AMORTISED.first]
        suits = np.clip(shape.suits(logits, shape.has(self.instant.table[first])), 0.0, 1.0)
        self._round(first, np.asarray(suits, dtype=float), AMORTISED.chosen)
        for _ in range(AMORTISED.exchanges):
            before, asked = self.upper, likely
            best = self.settling.incumbent.plan
            if best >= 0:
                asked = np.union1d(asked, self._legal(np.flatnonzero(self.instant.near(best, AMORTISED.changes))))
            asked = asked[~self.settling.seen[asked]]
            self._round(asked, np.broadcast_to(self._hardware(), (len(asked), self.settling.width)))
            if math.isfinite(self.upper) and self.upper > before - self.settling.gap:
                break
        return self

    def _legal(self, plans: Int[np.ndarray, " k"]) -> Int[np.ndarray, " legal"]:
        """Legal plans among those of a list."""
        padded = plans[np.minimum(np.arange(-(-len(plans) // AMORTISED.screened) * AMORTISED.screened), len(plans) - 1)]
        return plans[np.asarray(self.instant.legal(self.leaves, self.instant.table[padded]))[: len(plans)]]

    def _hardware(self) -> np.ndarray:
        """Coordinates of the best design; where none is feasible, of the plan that breaks its limits least."""
        settling, soft = self.settling, self.settling.cuts.soft
        if settling.incumbent.plan >= 0 or not settling.edges:
            return settling.incumbent.u
        return settling.edges[min(settling.edges, key=lambda plan: soft[plan])]

    def _round(self, plans: Int[np.ndarray, " k"], u: Float[np.ndarray, "k variables"], first: int = 0) -> None:
        """Price plans, each at its hardware; settle those that look best, at first some of all kinds as well."""
        if len(plans) == 0:
            return
        exact = self._screen(plans, u)
        chosen = [np.argsort(_soft(exact, price), kind="stable")[: AMORTISED.each] for price in AMORTISED.prices]
        if first:
            order = np.argsort(_soft(exact, AMORTISED.price), kind="stable")
            kinds = [order[np.unique(column, return_index=True)[1]] for column in self.instant.table[plans[order]].T]
            chosen += [np.arange(min(first, len(plans))), *kinds]
        result = np.unique(np.concatenate(chosen))
        result = result[np.isfinite(exact[result]).all(axis=1)]
        if len(result):
            self._settle(plans[result], u[result])

    def _screen(self, plans: np.ndarray, u: np.ndarray) -> Float[np.ndarray, "k rows"]:
        """Rows of the hard model, goal first."""
        count = len(plans)
        self.screened += count
        padded = np.minimum(np.arange(-(-count // AMORTISED.screened) * AMORTISED.screened), count - 1)
        table, points = self.instant.table[plans[padded]], np.asarray(u)[padded]

        def run(first: int) -> np.ndarray:
            part = slice(first, first + AMORTISED.screened)
            return np.asarray(self.instant.hard(self.leaves, table[part], points[part]))

        with ThreadPoolExecutor(2) as pool:
            return (
                np.concatenate(list(pool.map(run, range(0, count, AMORTISED.screened))))[:count]
                - self.settling.programme.shift
            )

    def _settle(self, plans: np.ndarray, u: np.ndarray) -> None:
        """Solve plans over the hardware, each from its own on, fewer with every round."""
        settling = self.settling
        settling.start(plans, u)
        for index in range(AMORTISED.rounds if settling.width else 0):
            plans = plans[settling.inside[plans] < settling.cut]
            if len(plans) == 0:
                return
            settling.refine(plans)
            few = max(math.ceil(AMORTISED.left * len(plans)), AMORTISED.fewest) if index else len(plans)
            keys = settling.inside[plans], settling.cuts.soft_of(plans)
            best = [np.argsort(key, kind="stable")[:few] for key in keys]
            plans = plans[np.unique(np.concatenate(best))]


def _soft(exact: np.ndarray, price: float) -> np.ndarray:
    """Goal and dear violations."""
    return exact[:, 0] + price * np.maximum(exact[:, 1:], 0.0).sum(axis=1)
