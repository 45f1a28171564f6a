"""`search=amortised`: an instant answer from a network that has seen many studies of its family.

    guess   a small network turns workload, budgets and prices into a score of every plan and the hardware that suits it
    answer  the best are priced there, the most promising solved, their neighbours looked at (`answer`)

No proof comes with the answer; what comes is the regret measured on studies the network was not trained on. As a warm
start (`proof`) it hands its design to the certified search, which then only has to prove it.
"""

import contextlib
import copy
import dataclasses
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from ...core.errors import ConfigError
from ...core.jax_typed import asarray, jit, zeros
from ...jaxprs.evaluator import quick_jit
from ...model.scenario import Scenario
from ...study.design_space import DesignSpace
from ..base import AbstractSearch, Problem, Progress, Report, Trace, silent
from ..branch_and_bound import interior_point as interior
from ..branch_and_bound.bounding import COLD, REFERENCE_SHARPNESS, WarmStart
from ..branch_and_bound.bounding_state import CutPool, Incumbent, InsidePoints
from ..branch_and_bound.certified import Certified
from ..branch_and_bound.model_oracle import Oracle, affine, designs_of
from ..branch_and_bound.oracle import AbstractOracle, Programme, Tangents, relayed, rows_of
from ..certificate import certify
from ..settings import AMORTISED, BRANCH_AND_BOUND
from .guesser import NetworkShape, TrainedPredictor, shipped

# Solving plans over the hardware when good hardware is known already: within a box that moves and shrinks.
#
# Source: [conn2000], trust regions; see docs/optimisation.md, section 7.


@dataclass
class TrustRegion:
    """Trust region of a plan's solution: the best point seen, its rows, how far the box reaches from it."""

    centre: Float[np.ndarray, " variables"]
    rows: Float[np.ndarray, " rows"]
    reach: float


class Settling:
    """Plans solved within boxes of their own; what is known of a box bounds it alone, and proves nothing.

    Attributes:
        incumbent: the best designs.
        inside: what each plan's goal is at least within its box, when last solved; to choose plans by.
        seen: which plans were solved.
        edges: where each plan's cuts are lowest, in its box.
    """

    def __init__(self, programme: Programme, gap: float):
        self.programme, self.gap, self.width = programme, gap, programme.width
        self.incumbent, self.cuts = Incumbent(self.width), CutPool(len(programme.rows), self.width + 1)
        self.inside = np.full(programme.oracle.count, -np.inf)
        self.seen = np.zeros(programme.oracle.count, dtype=bool)
        self.edges: dict[int, np.ndarray] = {}
        self._boxes: dict[int, TrustRegion] = {}
        self._points = InsidePoints()

    @property
    def cut(self) -> float:
        """Plans that are worth no less in their boxes need no more work."""
        return self.incumbent.upper - self.gap

    def start(self, plan: Int[np.ndarray, " k"], u: Float[np.ndarray, "k variables"]) -> None:
        """Begin with plans, each at its own hardware."""
        exact = self._learn(plan, u, REFERENCE_SHARPNESS)
        for lane, p in enumerate(plan.tolist()):
            self._boxes[p] = TrustRegion(u[lane], exact[lane], AMORTISED.reach)

    def refine(self, plan: Int[np.ndarray, " k"]) -> None:
        """One round: solve the programmes of these plans in their boxes, evaluate where those say, move the boxes."""
        for batch in self.cuts.batches(plan):
            self._refine(batch, self.cut)

    def _learn(
        self,
        plan: np.ndarray,
        u: np.ndarray,
        sharpness: np.ndarray | float,
        prices: np.ndarray | float = BRANCH_AND_BOUND.dear_enough,
    ) -> np.ndarray:
        exact, affine = self.programme.tangents(plan, u, sharpness)
        self.incumbent.notice(plan, u, exact, self.programme.oracle.single(plan))
        self.cuts.keep(plan, exact, affine, prices)
        return exact

    def _refine(self, plan: np.ndarray, enough: float) -> None:
        affine, boxes = self.cuts.gathered(plan)[0], [self._boxes[p] for p in plan.tolist()]
        centre, reach = np.array([box.centre for box in boxes]), np.array([[box.reach] for box in boxes])
        low, high = np.maximum(centre - reach, 0.0), np.minimum(centre + reach, 1.0)
        affine[..., 0] += np.einsum("ltrv,lv->ltr", affine[..., 1:], low)
        affine[..., 1:] *= (high - low)[:, None, None]
        soft, least = self.cuts.soft_of(plan), self.inside[plan]
        gap = np.clip(np.where(np.isfinite(least), soft - least, AMORTISED.most_gap), self.gap, AMORTISED.most_gap)
        price = np.full(len(plan), interior.ELASTIC)
        solved = interior.solve(affine, 0.3 * gap, np.clip(0.03 * gap, *AMORTISED.tolerance), enough, price)
        self.inside[plan], self.seen[plan] = solved.lower, True
        weights = np.array([each.sum(axis=0) for each in solved.weights])
        points = np.concatenate([low + (high - low) * u for u in (solved.central, solved.edge)])
        both, sharpness = np.concatenate([plan, plan]), np.full(2 * len(plan), 3.0 / self.gap)
        exact = self._learn(both, points, sharpness, np.concatenate([weights, weights]))
        lane, pulled = self._points.pulled(plan, points, exact, self.incumbent.upper)
        if len(lane):
            self._learn(plan[lane], pulled, sharpness[lane])
        self._move(plan, points, exact, weights)

    def _move(self, plan: np.ndarray, points: np.ndarray, exact: np.ndarray, weights: np.ndarray) -> None:
        """Centre every box at the best point seen; shrink those where that is not new, or not at a side."""
        for lane, p in enumerate(plan.tolist()):
            price, box = 2 * weights[lane][1:] + AMORTISED.least_price, self._boxes[p]
            rows = np.stack([box.rows, exact[lane], exact[lane + len(plan)]])
            best = int(np.argmin(rows[:, 0] + (np.maximum(rows[:, 1:], 0.0) * price).sum(axis=1)))
            self.edges[p] = points[lane + len(plan)]
            moved = points[lane + (best - 1) * len(plan)] if best else box.centre
            stayed = np.abs(moved - box.centre).max() < 0.99 * box.reach
            self._boxes[p] = TrustRegion(moved, rows[best], box.reach * AMORTISED.shrink if stayed else box.reach)


# From a guess to a design: plans the network scores high, each from the hardware that it proposes for them.
#
# screen    plans by the hard model alone, a third of the cost of a tangent
# settle    those of the best scores, and those that look best by dear and cheap prices of violations, over the
#           hardware (`settling`), fewer with every round
# exchange  the same again at the best design's hardware, with the neighbours of its plan in two fields, until nothing
#           better comes
#
# Source: see docs/optimisation.md, section 7.


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
        """Number of plans in the table."""
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
        self, guesser: TrainedPredictor, instant: Instant, problem: Problem, allowed: dict[str, float] | None = None,
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
            before, candidates = self.upper, likely
            best = self.settling.incumbent.plan
            if best >= 0:
                candidates = np.union1d(
                    candidates, self._legal(np.flatnonzero(self.instant.near(best, AMORTISED.changes)))
                )
            candidates = candidates[~self.settling.seen[candidates]]
            self._round(candidates, np.broadcast_to(self._hardware(), (len(candidates), self.settling.width)))
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


@dataclass(frozen=True)
class Amortised(AbstractSearch):
    """The instant answer of a network trained on studies of this family.

    Args:
        weights: file of the network; empty chooses one that comes with the package.
        proof: a certified search that starts from the answer and proves it; none gives the answer alone.
    """

    weights: str = ""
    proof: Certified | None = None

    def refuse(self, problem: Problem) -> None:
        """Before anything is written: no network that can be read fits the study.

        Raises:
            ConfigError: what is wrong with the file, or why none fits.
        """
        super().refuse(problem)
        self._fitting(problem)

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Answer, and prove where that is asked for.

        Raises:
            ConfigError: no network fits the study.
        """
        guesser = self._fitting(problem)
        instant = Instant(problem, guesser.shape)
        InstantAnswer(guesser, instant, problem).run()  # compiles
        began = time.perf_counter()
        answer = InstantAnswer(guesser, instant, problem).run()
        seconds = time.perf_counter() - began
        with contextlib.suppress(KeyboardInterrupt):  # the answer is there
            report(Progress("amortised", answer.evaluated, answer.evaluated, math.exp(min(answer.upper, 700.0))))
        if self.proof is not None:
            return self._proven(problem, guesser, answer, seed, report, seconds)
        result = np.isfinite(answer.upper)
        points = designs_of(
            with_plans(instant.oracle, problem, answer.row[None]), np.zeros(1, dtype=int), answer.u[None]
        )
        claim = regret_text(guesser.facts) if result else "no feasible design found near the network's guess; no proof"
        facts = {"family": guesser.family, **guesser.facts}
        certificate = certify(
            problem.wanted, answer.upper, -math.inf, convex=False, closed=False, reason=claim, amortised=facts
        )
        counts = {"points": answer.evaluated}
        return Trace(points, ["amortised"], counts, {"amortised": seconds}, claim, certificate)

    def _fitting(self, problem: Problem) -> TrainedPredictor:
        if self.weights and not Path(self.weights).is_file():
            raise ConfigError(f"search.weights = {self.weights!r} is no file")
        guessers = [TrainedPredictor.load(Path(self.weights))] if self.weights else shipped()
        reasons: list[str] = []
        for guesser in guessers:
            reason = guesser.misfit(problem)
            if not reason:
                return guesser
            reasons.append(f"{guesser.family}: {reason}")
        raise ConfigError(f"search=amortised has no network for this study ({'; '.join(reasons) or 'none is there'})")

    def _proven(
        self,
        problem: Problem,
        guesser: TrainedPredictor,
        answer: InstantAnswer,
        seed: int,
        report: Report,
        seconds: float,
    ) -> Trace:
        """The certified search, started from the answer."""
        proof = self.proof
        assert proof is not None
        oracle = Oracle(problem, rows_of(problem), proof.batch_size)
        warm = COLD
        if np.isfinite(answer.upper):
            order = [guesser.shape.fields.index(name) for name in oracle.plans]
            same = np.flatnonzero((np.stack(list(oracle.plans.values()), axis=-1) == answer.row[order]).all(axis=1))
            warm = WarmStart(plan=same[:1], u=answer.u[None]) if len(same) else COLD
        trace = proof.search(oracle, problem.wanted, seed, report, warm)
        trace.seconds["amortised"] = seconds
        return trace


def regret_text(facts: dict[str, Any]) -> str:
    """Regret measured on held-out studies, in words."""
    measured = facts.get("regret")
    if not measured:
        return "instant answer; its regret was not measured"
    return (
        f"instant answer, no proof: on {measured['studies']} studies held out, {measured['within_1_percent']:.0%} were "
        f"within 1 % of the certified optimum (median {measured['median']:.2%}, worst {measured['worst']:.1%})"
    )
