"""`search=pareto`: designs of which none is better in everything, each with a proof of how near to the front it lies.

Epsilon-constraint: the first metric is minimised while the others are held to levels between their best and their
worst value on the front. Unlike weighted sums this finds the dents of a front, and each programme is one that the
certified search can prove. All of them share one compilation, the tangents of all plans and each other's bounds; the
designs between them (`between`) are proven by what their neighbours left.

Sources: Haimes, Lasdon and Wismer 1971 (epsilon-constraint) [haimes1971epsilon]; Ishibuchi et al. 2018 (reference point
of hypervolumes) [ishibuchi2018reference].
"""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.errors import CodesignError, ConfigError
from ...core.pareto_tools import hypervolume, knee, non_dominated_rows
from ...executors import AbstractRunner
from ...model.metrics import Metrics
from ...study.objective import POSITIVE
from ..base import AbstractSearch, AbstractSentWork, Evidence, Problem, Report, Trace, proving, silent
from ..branch_and_bound.bounding import INTERRUPTED, SearchEffort
from ..branch_and_bound.branch_and_bound import BranchAndBound
from ..branch_and_bound.certified import Certified
from ..branch_and_bound.convexity import Verdict, check_convexity
from ..branch_and_bound.evidence import VERSION, Recorder, nodes_of, table_of_cuts, table_of_points
from ..branch_and_bound.model_oracle import AbstractModelOracle, Oracle, designs_of
from ..branch_and_bound.node_relaxation import oracle_for
from ..branch_and_bound.oracle import GOAL, Programme, Rows, rows_of
from ..certificate import (
    MARGIN,
    SHORT,
    Certificate,
    FrontPoint,
    GoalQuantity,
    ProvenFront,
    certify,
    certify_front,
    claim_of_front,
)
from .dual_pool import Backed, Notes, Pool, Statement
from .epsilon_constraint import Cell, FrontDesign, FrontWalk
from .parametric_sequence import ParametricSequence, RememberingOracle

# Programmes of a front at fixed levels, by whatever process a runner asks, each with what proves it.
#
# A level's bound is a minimum over plans, and what bounds a plan is a set of weighted tangents. Sets are put together
# by their union, so what comes first, last or twice makes no difference: `Pool.back` derives all bounds from the
# whole.


@dataclass(frozen=True)
class FrontLevel:
    """Level of a front: upper limits of the other metrics, (row, log) of each; number: among all levels."""

    number: int
    allowed: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        """Allowed levels of the metrics, as text."""
        return "level " + ", ".join(f"{name} {np.exp(most):.4g}" for name, most in self.allowed)


@dataclass(frozen=True)
class LevelProof:
    """The best design at a level (plan -1: there is none), the bound there, why it ended early, and what proves it."""

    level: FrontLevel
    plan: int
    u: np.ndarray
    lower: float
    stopped: str
    notes: Notes
    points: int


class LevelWork(AbstractSentWork):
    """Solves programmes of one front, here or in another process; plans are numbered as they are listed.

    Args:
        problem: whose front it is.
        sequence_of: makes what solves them; once in a process.
    """

    def __init__(self, problem: Problem, sequence_of: Callable[[Problem], ParametricSequence]):
        self.problem, self.sequence_of = problem, sequence_of

    def __call__(self, level: FrontLevel) -> LevelProof:
        """One programme, whatever was solved before in this process."""
        sequence, allowed = self.sequence_of(self.problem), dict(level.allowed)
        outcome = sequence.solve(GOAL, allowed).unless_interrupted()
        bounding, oracle = outcome.bounding, sequence.oracle.inner
        backed = sequence.pool.back([Statement(GOAL, allowed, outcome.lower)], oracle)
        notes = sequence.pool.notes(backed.used)
        return LevelProof(
            level, bounding.plan, bounding.u.copy(), outcome.lower, outcome.stopped, notes, oracle.evaluated
        )


def walked_by(runner: AbstractRunner, walk: FrontWalk, work: LevelWork) -> str:
    """Ends here, levels that are evenly spread over the runner; says why where something is missing."""
    stopped = ""
    try:
        if not walk.ends():
            return f"stopped at its time limit of {walk.sweep.effort.seconds:g} s"
        ticks = {row: np.linspace(walk.least[row], walk.most[row], walk.levels + 2) for row in walk.rows[1:]}
        every = itertools.product(*(values[1:-1].tolist() for values in ticks.values()))
        levels = [FrontLevel(i, tuple(zip(ticks, values, strict=True))) for i, values in enumerate(every)]
        walk.cells = [
            Cell(np.array([low for low, _ in ends]), np.array([high for _, high in ends]))
            for ends in itertools.product(*(list(itertools.pairwise(values)) for values in ticks.values()))
        ]
        proofs: dict[int, LevelProof] = {}
        try:
            with closing(runner.results(work, levels)) as arriving:
                for proof in arriving:
                    proofs |= {} if proof is None else {proof.level.number: proof}
                    walk.report_progress("levels", len(proofs), len(levels))
        except CodesignError as error:
            stopped = str(error)
        for number in sorted(proofs):
            take(walk, proofs[number])
        return stopped or next((one.stopped for one in proofs.values() if one.stopped), "")
    except KeyboardInterrupt:
        return INTERRUPTED


def take(walk: FrontWalk, proof: LevelProof) -> None:
    """A level's design, evaluated again here, and its notes."""
    allowed = dict(proof.level.allowed)
    walk.sweep.pool.absorb(proof.notes)
    walk.done += 1
    if proof.plan < 0:
        walk.impossible += [allowed] if not proof.stopped else []
        return
    values, holds = walk.metrics_of(np.array([proof.plan]), proof.u[None])
    if holds[0]:
        walk.designs.append(FrontDesign(proof.plan, proof.u, values[0], proof.lower, allowed, not proof.stopped))


# Evidence of a front, for others to check: statements about its metrics, and weighted tangents that prove them.
#
# Source: see docs/optimisation.md, section 5.


STEPS = 1e9  # of a log: bounds are told in whole numbers of them, rounded so that they say less
METRIC = "metrics."  # before the name of a row that is the log of a metric, so that it cannot be a limit's


def settle(walk: FrontWalk, oracle: AbstractModelOracle) -> tuple[list[Statement], Backed]:
    """Claim of a walk no more than the weights kept in its pool prove; returns what is claimed, and by what.

    Statements are in the order of the designs found, levels that nothing keeps to, and least values of the others.
    """
    pool = walk.sweep.pool
    statements = [Statement(GOAL, one.levels, one.lower) for one in walk.designs]
    statements += [Statement(GOAL, levels, np.inf) for levels in walk.impossible]
    statements += [Statement(row, {}, lowest) for row, lowest in walk.lowest.items()]
    backed = pool.back(statements, oracle)
    bounds = np.where(np.isfinite(backed.bounds), np.floor((backed.bounds - MARGIN) * STEPS) / STEPS, backed.bounds)
    backed = replace(backed, bounds=bounds)
    result, rest = len(walk.designs), len(walk.designs) + len(walk.impossible)
    for one, bound in zip(walk.designs, backed.bounds[:result].tolist(), strict=True):
        one.lower = bound
    never = np.isposinf(backed.bounds[result:rest]).tolist()
    walk.impossible = [levels for levels, is_proven in zip(walk.impossible, never, strict=True) if is_proven]
    walk.lowest = dict(zip(walk.lowest, backed.bounds[rest:].tolist(), strict=True))
    claimed = [Statement(s.goal, s.levels, float(b)) for s, b in zip(statements, backed.bounds, strict=True)]
    return claimed, backed


def front_evidence(
    oracle: AbstractModelOracle,
    pool: Pool,
    statements: Sequence[Statement],
    backed: Backed,
    metrics: tuple[str, ...],
    designs: Mapping[str, np.ndarray],
    of: Sequence[int],
) -> Evidence:
    """The notes that are used, the statements, the designs of the front with the statement of each.

    Args:
        oracle: numbers and their plans.
        pool: has the notes.
        statements: with the bounds that are claimed.
        backed: which notes say so.
        metrics: of the front, the first of which is the goal.
        designs: plan fields and hardware variables -> values.
        of: statement of each design.
    """
    header, columns = nodes_of(oracle, pool.plan[backed.used])
    names = [GOAL, *(name for name in oracle.names if name != GOAL)]
    metric_names = {name: METRIC + name if name in metrics[1:] else name.removeprefix("limit.") for name in names}
    header["views"] = {view: [metric_names[name] for name in rows] for view, rows in header["views"].items()}
    header |= {"version": VERSION, "rows": [metric_names[name] for name in names], "variables": list(oracle.variables)}
    terms = pool.terms(backed.used)
    points, sharpness, terms["point"] = pool.places.distinct(terms["point"])
    order = np.argsort(terms["node"], kind="stable")
    terms["row"] = np.array([names.index(name) for name in oracle.names])[terms["row"]]
    tables = {
        "nodes": columns,
        "points": table_of_points(oracle.variables, points, sharpness),
        "cuts": table_of_cuts({name: column[order] for name, column in terms.items()}),
        "statements": _statements(statements, metrics),
        "designs": {name: np.asarray(values) for name, values in designs.items()} | {"statement": np.array(of)},
    }  # fmt: skip
    return Evidence(header, tables)


def _statements(statements: Sequence[Statement], metrics: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Place of what is at least `bound` among the metrics, and the levels of the others; inf where there is none."""
    rows = (GOAL, *metrics[1:])
    columns: dict[str, Any] = {"metric": np.array([rows.index(one.goal) for one in statements], dtype=np.int16)}
    for row, name in zip(rows[1:], metrics[1:], strict=True):
        columns[f"level.{name}"] = np.array([one.levels.get(row, np.inf) for one in statements])
    return columns | {"bound": np.array([one.bound for one in statements])}


BEYOND = 0.1  # of each metric's range on the front: so far beyond its worst value lies the hypervolume's reference


@dataclass(frozen=True)
class Pareto(AbstractSearch):
    """The front of two or three metrics under the study's limits and floors; its own goal is not used.

    Args:
        minimise, maximise: metrics, at least two and at most three together; the first is the one whose gap is proven.
        levels: of the other metrics, at which the first is minimised by a search of its own, laid where the front is
            least known.
        between: designs between those, so many times `levels` (its square for three metrics), proven by what the
            levels left; between these again `blending` puts some of their own.
        gap: relative distance from the front at which a design counts as proven.
        seconds: limit for the whole front; what is left out by then is told.
        batch_size, plans_per_round, convexity_samples: as in `Certified`.
        runner: solves the programmes at `levels` that are evenly spread, apart from each other, each plan by itself;
            nothing is put between them then. None: all here, each where least is known.
    """

    minimise: tuple[str, ...] = ("time_s", "usd_per_million_tokens")
    maximise: tuple[str, ...] = ()
    levels: int = 6
    between: int = 16
    gap: float = 1e-3
    seconds: float = 600.0
    batch_size: int = 512
    plans_per_round: int = 512
    convexity_samples: int = 1024
    runner: AbstractRunner | None = None

    def __post_init__(self) -> None:
        """Two or three metrics, positive sizes."""
        names = self.metrics
        if len(names) not in (2, 3) or len(set(names)) != len(names):
            raise ConfigError(
                f"search.minimise = {list(self.minimise)} and search.maximise = {list(self.maximise)} must name two or "
                "three different metrics together"
            )
        self.must_be_positive("gap", "seconds", "batch_size", "plans_per_round", "convexity_samples")
        if self.levels < 2:
            raise ConfigError(f"search.levels = {self.levels} must be at least 2")
        if self.between < 0:
            raise ConfigError(f"search.between = {self.between} must not be negative")

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics of the front."""
        return (*self.minimise, *self.maximise)

    @property
    def wanted(self) -> list[GoalQuantity]:
        """Quantities whose logs are the rows."""
        return [GoalQuantity(n, 1.0) for n in self.minimise] + [GoalQuantity(n, -1.0) for n in self.maximise]

    def logged(self, problem: Problem) -> list[tuple[str, str]]:
        """Floors and the metrics of the front; the objective's own goal is not used."""
        ways = [("search.minimise", name) for name in self.minimise] + [("search.maximise", n) for n in self.maximise]
        floors = [entry for entry in super().logged(problem) if "floors" in entry[0]]
        return floors + [(where, name) for where, name in ways if name not in POSITIVE]

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Test convexity, find the ends, then level by level.

        Raises:
            ConfigError: nothing varies, or no such metric.
        """
        self.refuse(problem)
        rows = front_rows(problem, self.wanted)
        oracle = (
            oracle_for(problem, rows, self.batch_size, seed)
            if self.runner is None
            else Oracle(problem, rows, self.batch_size)
        )
        return self.front(oracle, seed, report)

    def refuse(self, problem: Problem) -> None:
        """Nothing that varies; over a runner more plans than are bounded one by one."""
        problem.check_varies()
        if self.runner is not None:
            super().refuse(problem)

    def sequence(self, oracle: AbstractModelOracle, seed: int) -> ParametricSequence:
        """Return a sequence of programmes over an oracle with these rows."""
        effort = SearchEffort(gap=math.log1p(self.gap), seconds=self.seconds, batch=self.plans_per_round)
        limits = tuple(n for n in oracle.names if n not in (GOAL, *self.metrics[1:]))
        return ParametricSequence(RememberingOracle(oracle), limits, effort, seed)

    def listed(self, seed: int, problem: Problem) -> ParametricSequence:
        """Return a sequence of programmes over a problem, every plan by itself."""
        return self.sequence(Oracle(problem, front_rows(problem, self.wanted), self.batch_size), seed)

    def front(self, oracle: AbstractModelOracle, seed: int, report: Report = silent) -> Trace:
        """Search for the front over an oracle with these rows."""
        verdict = check_convexity(oracle, seed, self.convexity_samples)
        sweep = self.sequence(oracle, seed)
        on_progress = proving(report, verdict.convex)
        walk = FrontWalk(sweep, (GOAL, *self.metrics[1:]), self.levels, self.between, on_progress)
        if self.runner is None:
            stopped = walk.run()
        else:
            work = LevelWork(oracle.problem, partial(replace(self, runner=None).listed, seed))
            stopped = walked_by(self.runner, walk, work)
        if not walk.designs:
            return self._nothing(oracle, verdict, sweep, seed)
        return self._traced(oracle, verdict, walk, stopped)

    def _nothing(self, oracle: AbstractModelOracle, verdict: Verdict, sweep: ParametricSequence, seed: int) -> Trace:
        """Trace without a front; that there can be none is proven once more, by notes that are of this alone."""
        if not sweep.steps:
            raise KeyboardInterrupt
        outcome = sweep.steps[0].outcome
        outcome.bounding.hush()
        if not outcome.stopped:
            outcome = BranchAndBound(
                Programme(oracle, GOAL, sweep.limits), sweep.effort, seed, recorder=Recorder()
            ).run()
        return Certified(gap=self.gap, top_k=1).traced(oracle, self.wanted[0], verdict, outcome, seed)

    def _traced(self, oracle: AbstractModelOracle, verdict: Verdict, walk: "FrontWalk", stopped: str) -> Trace:
        statements, backed = settle(walk, oracle)
        on_front = [int(i) for i in non_dominated_rows(np.array([one.values for one in walk.designs]))]
        front = [walk.designs[i] for i in on_front]
        points = designs_of(oracle, np.array([one.plan for one in front]), np.array([one.u for one in front]))
        counts = {"plans": oracle.plan_count, "points": oracle.evaluated, "programmes": walk.done}
        counts |= {"designs on the front": len(front)}
        certificate = self._certificate(verdict, front, walk, stopped)
        claim = claim_of_front(certificate, self.gap)
        seconds = {"pareto": time.perf_counter() - walk.sweep.began}
        evidence = None
        if verdict.convex:
            evidence = front_evidence(oracle, walk.sweep.pool, statements, backed, self.metrics, points, on_front)
            first = certify(self.wanted[0], math.inf, -math.inf, convex=True, closed=False, reason="")
            evidence.header.update(claim=first.claimed(), kind="front", front=certificate.as_plain()["front"])
        return Trace(points, ["pareto"] * len(front), counts, seconds, claim, certificate, evidence=evidence)

    def _certificate(self, verdict: Verdict, front: list[FrontDesign], walk: FrontWalk, stopped: str) -> Certificate:
        """Every design of the front with its bound, in values of the metrics."""
        logs, convex = np.array([one.values for one in front]), verdict.convex
        corners = walk.optimistic() if convex else np.zeros((0, len(self.metrics)))
        reference, enough = reference_of(logs), math.log1p(self.gap) + SHORT

        def values(logs: Iterable[float]) -> list[float]:
            return [math.exp(wanted.sign * float(log)) for wanted, log in zip(self.wanted, logs, strict=True)]

        points = tuple(
            FrontPoint(
                dict(zip(self.metrics, values(one.values), strict=True)),
                self.wanted[0].value(one.lower) if convex else None,
                math.expm1(one.gap) if convex and math.isfinite(one.gap) else None,
                convex and one.closed and bool(one.gap <= enough),
                {w.name: math.exp(w.sign * one.levels[w.name]) for w in self.wanted if w.name in one.levels},
            )
            for one in front
        )
        result = ProvenFront(
            self.metrics, tuple(self.maximise), points, knee(logs), hypervolume(logs, reference),
            hypervolume(corners, reference) if len(corners) else None, tuple(tuple(values(c)) for c in corners),
            dict(zip(self.metrics, values(reference), strict=True)),
        )  # fmt: skip
        return certify_front(result, convex=convex, closed=not stopped, reason=verdict.reason or stopped)

    @classmethod
    def example(cls, problem: Problem) -> "Pareto":
        """Few levels."""
        return cls(levels=2, between=1, gap=5e-3, convexity_samples=64, batch_size=64)


def reference_of(logs: Float[np.ndarray, "designs metrics"]) -> Float[np.ndarray, " metrics"]:
    """Reference point of hypervolumes: a tenth of each metric's range beyond its worst value."""
    span = np.ptp(logs, axis=0)
    return logs.max(axis=0) + BEYOND * np.where(span > 0, span, 1.0)


def front_rows(problem: Problem, wanted: list[GoalQuantity]) -> Rows:
    """The rows of a problem's constraints; the log of the first metric as the goal, of the others by their names."""
    rows = rows_of(problem)

    def extended(metrics: Metrics, values: dict[str, Array]) -> dict[str, Array]:
        logs = {w.name: w.sign * jnp.log(metrics.get(w.name)) for w in wanted}
        goal_rows = {GOAL: logs.pop(wanted[0].name)} | logs
        clash = set(goal_rows) & set(rows(metrics, values)) - {GOAL}
        other_rows = {("limit." + name if name in clash else name): row for name, row in rows(metrics, values).items()}
        return other_rows | goal_rows

    return extended
