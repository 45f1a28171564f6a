"""From a guess to a design: prices plans at the hardware at hand, solves the best of every kind, starts again there.

    screen  plans at one hardware by the hard model alone, a third of the cost of a tangent
    choose  the best by dear and cheap prices of violations, and the best with each value of each field
    settle  those over the hardware (`ledger`), fewer with every round

Hardware and plan are improved in turn: at the hardware of the optimum its plan is the best of all, so what has to be
found is hardware that is near enough, and that is what the network is asked for. The next round screens neighbours of
the best plan in two fields, what looked good before, and plans not screened yet.
"""

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Bool, Float, Int

from ..compiling import quick_jit
from ..metrics import evaluate
from ..scenario import Scenario
from ..space import DesignSpace
from .amortised_guesser import Guesser, Shape
from .base import Problem
from .ledger import REFERENCE_SHARPNESS, Ledger, Programme
from .oracle import Oracle, Rows, rows_of

SCREENED, SOLVED = 512, 16  # points in one call of the hard model, and of the one with tangents
LIKELY, SPREAD = 300, (1000, 3000)  # plans screened: by the network's own ranking; anywhere, at first and later
KEPT = 400  # plans that looked best in one round, screened again in the next
PRICES, PRICE = (0.5, 2.0, 10.0), 2.0  # of a unit of log-violation, by which plans are chosen
EACH = 3  # plans chosen by each price
ROUNDS, LEFT, FEWEST = 4, 0.4, 4  # of a plan's programme; share of the plans, and how many, that stay after each
FINISHED, FINISHES = 12, 2  # plans that may still win, solved further in one go; how often
MOST_TRIES = 14


def bare_oracle(problem: Problem) -> Oracle:
    """An oracle that lists no plans: they are given later, by `with_plans`; compiles once for all of them."""
    space = DesignSpace({}, problem.space.hardware)
    oracle = Oracle(dataclasses.replace(problem, space=space), rows_of(problem), SOLVED)
    oracle.plans = {name: np.zeros(1) for name in Shape.of(problem.space).fields}
    _, tree = ravel_pytree(numbers(problem.scenario))
    oracle._compiled = quick_jit(
        jax.vmap(lambda leaves, *point: oracle._one(tree(leaves), *point), in_axes=(None, 0, 0, 0))
    )
    return oracle


def numbers(scenario: Scenario) -> Scenario:
    """The same scenario, every leaf in double precision."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype=float), scenario)


def leaves_of(scenario: Scenario) -> Float[np.ndarray, " numbers"]:
    """All numbers of a scenario side by side."""
    return np.concatenate([np.ravel(np.asarray(leaf, dtype=float)) for leaf in jax.tree.leaves(scenario)])


def hard_model(problem: Problem, rows: Rows, names: tuple[str, ...]) -> Callable[..., Any]:
    """(leaves of the scenario, table of plans, coordinates of one hardware) -> rows; inf where a rule is broken."""
    fields, space = Shape.of(problem.space).fields, problem.space
    _, tree = ravel_pytree(numbers(problem.scenario))

    def one(leaves: Any, plan: Any, u: Any) -> Any:
        values = space.values({name: u[i] for i, name in enumerate(space.names)})
        metrics = evaluate(space.place(tree(leaves), dict(zip(fields, plan, strict=True)) | values))
        found = rows(metrics, values)
        broken = jnp.max(jnp.stack([*map(jnp.asarray, metrics.violations.values()), jnp.asarray(0.0)]))
        return jnp.where(broken > 0, jnp.inf, jnp.stack([found[name] for name in names]))

    return quick_jit(jax.vmap(one, in_axes=(None, 0, None)))


def with_plans(oracle: Oracle, problem: Problem, table: Float[np.ndarray, "plans fields"]) -> Oracle:
    """The same compiled oracle over these plans of a problem of the same structure (illegal ones break a rule)."""
    other = copy.copy(oracle)
    other.problem, other.evaluated = problem, 0
    other.plans = {name: table[:, i] for i, name in enumerate(oracle.plans)}
    other._table = np.ascontiguousarray(table)
    return other


def of_leaves(oracle: Oracle, leaves: Float[np.ndarray, " numbers"]) -> Oracle:
    """A bare oracle asked for one study: its scenario goes as one vector, a tree of hundreds takes long."""
    other, compiled = copy.copy(oracle), oracle._compiled
    other._compiled = lambda _, *points: compiled(leaves, *points)
    return other


def legality(problem: Problem) -> Callable[..., Any]:
    """(leaves of the scenario, table of plans) -> which break no rule; compiled once for studies of one structure."""
    fields, (_, tree) = Shape.of(problem.space).fields, ravel_pytree(numbers(problem.scenario))

    def one(leaves: Any, plan: Any) -> Any:
        placed = problem.space.place(tree(leaves), dict(zip(fields, plan, strict=True)))
        broken = [jnp.asarray(value) for value in placed.workload.violations(placed.layout).values()]
        return jnp.max(jnp.stack([*broken, jnp.asarray(0.0)])) <= 0

    return jax.jit(jax.vmap(one, in_axes=(None, 0)))


class Instant:
    """What answers to studies of one structure share: the compiled model and rules, and every combination of plans."""

    def __init__(self, problem: Problem, shape: Shape):
        lists = (*shape.degrees.values(), *shape.categories.values())
        self.shape, self.table = shape, np.array(list(itertools.product(*lists)))
        self.oracle, self.legal = bare_oracle(problem), legality(problem)
        self.hard = hard_model(problem, self.oracle.rows, self.oracle.names)
        self.spread = np.random.default_rng(0).permutation(len(self.table))  # the same for every study

    def near(self, plan: int, changes: int) -> Bool[np.ndarray, " plans"]:
        """Which plans differ from one in at most so many fields."""
        return (self.table != self.table[plan]).sum(axis=1) <= changes

    def unlikely(self, degrees: np.ndarray, logits: dict[str, np.ndarray]) -> Float[np.ndarray, " plans"]:
        """How far every plan is from a guess: squares of the distances of degrees, in octaves, and logs of chances."""
        count = len(self.shape.degrees)
        total = ((np.log2(self.table[:, :count]) - degrees / math.log(2)) ** 2).sum(axis=1)
        for column, (name, values) in zip(self.table[:, count:].T, self.shape.categories.items(), strict=True):
            logs = logits[name] - np.logaddexp.reduce(logits[name])
            total -= logs[np.searchsorted(values, column)]
        return total


class Answer:
    """The design that a guess leads to: `run`, then `row`, `u` and `upper`."""

    def __init__(
        self, guesser: Guesser, instant: Instant, problem: Problem, allowed: dict[str, float] | None = None,
        gap: float = 2e-3,
    ):  # fmt: skip
        self.guesser, self.instant, self.problem = guesser, instant, problem
        self.leaves = leaves_of(problem.scenario)
        oracle = of_leaves(with_plans(instant.oracle, problem, instant.table), self.leaves)
        programme = Programme(oracle, allowed=allowed or {})  # where the oracle was compiled for other limits
        self.ledger = Ledger(programme, gap)
        self.shift = np.array([0.0, *((allowed or {}).get(name, 0.0) for name in programme.rows[1:])])
        self.legal = np.asarray(instant.legal(self.leaves, instant.table))
        self.screened = 0

    @property
    def upper(self) -> float:
        """Log of the goal; inf where no design was found."""
        return self.ledger.upper

    @property
    def row(self) -> Float[np.ndarray, " fields"]:
        """The plan."""
        return self.instant.table[self.ledger.plan]

    @property
    def u(self) -> Float[np.ndarray, " variables"]:
        """Coordinates of the hardware."""
        return self.ledger.u

    @property
    def evaluated(self) -> int:
        """Points asked for."""
        return self.screened + self.ledger.programme.oracle.evaluated

    def run(self, rounds: int = 4) -> "Answer":
        """Guess, then screen, choose and settle until nothing better comes."""
        degrees, logits, u = self.guesser.guess(self.problem)
        legal, spread = np.flatnonzero(self.legal), self.instant.spread[self.legal[self.instant.spread]]
        likely = legal[np.argsort(self.instant.unlikely(degrees, logits)[legal], kind="stable")[:LIKELY]]
        plans, at = np.union1d(likely, spread[: SPREAD[0]]), SPREAD[0]
        for index in range(rounds):
            if len(plans) == 0:
                break
            before, exact = self.upper, self._screen(plans, u)
            self._settle(plans[self._chosen(plans, exact)], u)
            self._finish()
            if index and math.isfinite(self.upper) and self.upper > before - self.ledger.gap:
                break
            u, kept = self._hardware(), plans[np.argsort(_soft(exact, PRICE), kind="stable")[:KEPT]]
            asked = self.instant.near(self.ledger.plan, 2) if self.ledger.plan >= 0 else np.zeros_like(self.legal)
            asked[kept], asked[spread[at : at + SPREAD[1]]] = True, True
            plans, at = np.flatnonzero(asked & self.legal & (self.ledger.tried == 0)), at + SPREAD[1]
        return self

    def _hardware(self) -> np.ndarray:
        """Coordinates of the best design; where none is feasible, of the plan that breaks its limits least."""
        ledger = self.ledger
        if ledger.plan >= 0 or not ledger.solution:
            return ledger.u
        return ledger.solution[min(ledger.solution, key=lambda plan: ledger.soft[plan])]

    def _screen(self, plans: Int[np.ndarray, " k"], u: np.ndarray) -> Float[np.ndarray, "k rows"]:
        """Rows of the hard model at one hardware, goal first."""
        count = len(plans)
        self.screened += count

        def run(first: int) -> np.ndarray:
            index = plans[np.minimum(np.arange(first, first + SCREENED), count - 1)]
            return np.asarray(self.instant.hard(self.leaves, self.instant.table[index], u))[: count - first]

        with ThreadPoolExecutor(2) as pool:
            return np.concatenate(list(pool.map(run, range(0, count, SCREENED)))) - self.shift

    def _chosen(self, plans: np.ndarray, exact: np.ndarray) -> np.ndarray:
        """Which of the rows promise most: by several prices, and with each value of each field."""
        chosen = [np.argsort(_soft(exact, price), kind="stable")[:EACH] for price in PRICES]
        order = np.argsort(_soft(exact, PRICE), kind="stable")
        chosen += [order[np.unique(column, return_index=True)[1]] for column in self.instant.table[plans[order]].T]
        found = np.unique(np.concatenate(chosen))
        return found[np.isfinite(exact[found]).all(axis=1)]

    def _settle(self, plans: np.ndarray, u: np.ndarray) -> None:
        """Solve plans over the hardware, from this one on, fewer with every round."""
        ledger = self.ledger
        if len(plans) == 0:
            return
        ledger.keep(plans, *ledger.evaluate(plans, np.broadcast_to(u, (len(plans), len(u))), REFERENCE_SHARPNESS))
        for index in range(ROUNDS if ledger.width else 0):
            plans = plans[ledger.lower[plans] < ledger.cut]
            if len(plans) == 0:
                return
            ledger.refine(plans)
            if index:
                few = max(int(LEFT * len(plans)), FEWEST)
                soft = np.array([ledger.soft[plan] for plan in plans.tolist()])
                best = [np.argsort(key, kind="stable")[:few] for key in (ledger.lower[plans], soft)]
                plans = plans[np.unique(np.concatenate(best))]

    def _finish(self) -> None:
        """Solve those further that their bounds do not rule out."""
        ledger = self.ledger
        for _ in range(FINISHES if ledger.width else 0):
            open_ = np.flatnonzero((ledger.tried > 0) & (ledger.tried < MOST_TRIES) & (ledger.lower < ledger.cut))
            if len(open_) == 0:
                return
            ledger.refine(open_[np.argsort(ledger.lower[open_], kind="stable")[:FINISHED]])


def _soft(exact: np.ndarray, price: float) -> np.ndarray:
    """Goal and dear violations."""
    return exact[:, 0] + price * np.maximum(exact[:, 1:], 0.0).sum(axis=1)
