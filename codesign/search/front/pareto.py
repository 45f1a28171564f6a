"""`search=pareto`: designs of which none is better in everything, each with a proof of how near to the front it lies.

Epsilon-constraint: the first metric is minimised while the others are held to levels between their best and their
worst value on the front. Unlike weighted sums this finds the dents of a front, and each programme is one that the
certified search can prove. All of them share one compilation, the tangents of all plans and each other's bounds; the
designs between them (`between`) are proven by what their neighbours left.

Sources: Haimes, Lasdon and Wismer 1971 (epsilon-constraint) [haimes1971epsilon]; Ishibuchi et al. 2018 (reference point
of hypervolumes) [ishibuchi2018reference].
"""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.pareto_tools import hypervolume, knee, non_dominated_rows
from ...executors import AbstractRunner
from ...model.metrics import Metrics
from ...study.objective import POSITIVE
from ..base import AbstractSearch, Problem, Report, Trace, proving, silent
from ..branch_and_bound.branch_and_bound import BranchAndBound
from ..branch_and_bound.certified import Certified
from ..branch_and_bound.convexity import Verdict, check_convexity
from ..branch_and_bound.effort import Effort
from ..branch_and_bound.evidence import Recorder
from ..branch_and_bound.model_oracle import AbstractModelOracle, Oracle, designs_of
from ..branch_and_bound.node_relaxation import oracle_for
from ..branch_and_bound.oracle import GOAL, Rows, rows_of
from ..branch_and_bound.programme import Programme
from ..certificate import Certificate, OnFront, ProvenFront, Wanted, certify, certify_front
from ..claims import SHORT, claim_of_front
from .epsilon_constraint import FrontDesign, FrontWalk
from .front_evidence import front_evidence, settle
from .level_work import LevelWork, walked_by
from .parametric_sequence import ParametricSequence
from .remembered_cuts import Remembering

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
    def wanted(self) -> list[Wanted]:
        """Quantities whose logs are the rows."""
        return [Wanted(n, 1.0) for n in self.minimise] + [Wanted(n, -1.0) for n in self.maximise]

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
        effort = Effort(gap=math.log1p(self.gap), seconds=self.seconds, batch=self.plans_per_round)
        limits = tuple(n for n in oracle.names if n not in (GOAL, *self.metrics[1:]))
        return ParametricSequence(Remembering(oracle), limits, effort, seed)

    def listed(self, seed: int, problem: Problem) -> ParametricSequence:
        """Return a sequence of programmes over a problem, every plan by itself."""
        return self.sequence(Oracle(problem, front_rows(problem, self.wanted), self.batch_size), seed)

    def front(self, oracle: AbstractModelOracle, seed: int, report: Report = silent) -> Trace:
        """Search for the front over an oracle with these rows."""
        verdict = check_convexity(oracle, seed, self.convexity_samples)
        sweep = self.sequence(oracle, seed)
        told = proving(report, verdict.convex)
        walk = FrontWalk(sweep, (GOAL, *self.metrics[1:]), self.levels, self.between, told)
        if self.runner is None:
            stopped = walk.run()
        else:
            work = LevelWork(oracle.problem, partial(replace(self, runner=None).listed, seed))
            stopped = walked_by(self.runner, walk, work)
        if not walk.found:
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
        on_front = [int(i) for i in non_dominated_rows(np.array([one.values for one in walk.found]))]
        front = [walk.found[i] for i in on_front]
        points = designs_of(oracle, np.array([one.plan for one in front]), np.array([one.u for one in front]))
        counts = {"plans": oracle.plan_count, "points": oracle.evaluated, "programmes": walk.done}
        counts |= {"designs on the front": len(front)}
        certificate = self._certificate(verdict, front, walk, stopped)
        claim = claim_of_front(certificate, self.gap)
        seconds = {"pareto": time.perf_counter() - walk.sweep.began}
        kept = None
        if verdict.convex:
            kept = front_evidence(oracle, walk.sweep.pool, statements, backed, self.metrics, points, on_front)
            first = certify(self.wanted[0], math.inf, -math.inf, convex=True, closed=False, reason="")
            kept.header.update(claim=first.claimed(), kind="front", front=certificate.as_plain()["front"])
        return Trace(points, ["pareto"] * len(front), counts, seconds, claim, certificate, evidence=kept)

    def _certificate(self, verdict: Verdict, front: list[FrontDesign], walk: FrontWalk, stopped: str) -> Certificate:
        """Every design of the front with its bound, in values of the metrics."""
        logs, convex = np.array([one.values for one in front]), verdict.convex
        corners = walk.optimistic() if convex else np.zeros((0, len(self.metrics)))
        reference, enough = reference_of(logs), math.log1p(self.gap) + SHORT

        def values(logs: Iterable[float]) -> list[float]:
            return [math.exp(wanted.sign * float(log)) for wanted, log in zip(self.wanted, logs, strict=True)]

        points = tuple(
            OnFront(
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


def front_rows(problem: Problem, wanted: list[Wanted]) -> Rows:
    """The rows of a problem's constraints; the log of the first metric as the goal, of the others by their names."""
    rows = rows_of(problem)

    def extended(metrics: Metrics, values: dict[str, Array]) -> dict[str, Array]:
        logs = {w.name: w.sign * jnp.log(metrics.get(w.name)) for w in wanted}
        own = {GOAL: logs.pop(wanted[0].name)} | logs
        clash = set(own) & set(rows(metrics, values)) - {GOAL}
        kept = {("limit." + name if name in clash else name): row for name, row in rows(metrics, values).items()}
        return kept | own

    return extended
