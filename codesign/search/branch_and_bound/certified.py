"""`search=certified`: the best design with a proof of how far it may be from the optimum, and what holds it there."""

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...executors import AbstractRunner
from ..base import AbstractSearch, Evidence, Problem, Progress, Report, Trace, proving, silent
from ..certificate import Binding, Certificate, Convexity, Edge, Wanted, certify
from ..claims import claim_of_best, claim_of_none
from .branch_and_bound import BranchAndBound
from .conflict import Conflict
from .convexity import Verdict, check_convexity, look_again
from .effort import INTERRUPTED, Effort, Outcome
from .evidence import Recorder, evidence_of
from .model_oracle import AbstractModelOracle, designs_of
from .oracle import AbstractOracle
from .part_work import OracleMaker, PartWork, RowsOfProblem, proven_in_parts
from .programme import Programme
from .sensitivity import Resource, polish, resources
from .warm_start import COLD, WarmStart

UNPROVEN = {"factor_at_least": None, "needed": None}  # of conflicts of a model that is not convex
EDGE = 1e-3  # of the unit cube: what is nearer to a side than this lies at the end of its range


@dataclass(frozen=True)
class Certified(AbstractSearch):
    """Best design over all legal plans and the whole box of hardware, with a proven gap.

    For a fixed plan the model is a geometric programme; `branch_and_bound` bounds and closes plans until the best one
    is proven to `gap`. The word "certified" is used only where the walk of `curvature` proves every row of this very
    model and space convex; the proof is of the model, in float64. Rows that it does not prove are tested, and the
    result says so.

    Args:
        gap: relative distance from the optimum at which the search stops.
        seconds: its time limit; what is open by then is the gap of the result.
        batch_size: points in one call of the model.
        plans_per_round: plans closed side by side.
        top_k: next-best designs (each with another plan) that are kept for the frame.
        convexity_samples: pairs of points on which rows are tested that are not proven convex.
        explain: also say what binds, what more of it would bring, and, where nothing is feasible, why.
        runner: proves parts of the plans apart from each other; none: all of them together, here.
    """

    gap: float = 1e-3
    seconds: float = 600.0
    batch_size: int = 512
    plans_per_round: int = 512
    top_k: int = 16
    convexity_samples: int = 1024
    explain: bool = True
    runner: AbstractRunner | None = None

    def __post_init__(self) -> None:
        """Positive sizes."""
        self.must_be_positive("gap", "seconds", "batch_size", "plans_per_round", "top_k", "convexity_samples")

    @property
    def effort(self) -> Effort:
        """Stopping criteria and batch size of the branch and bound."""
        return Effort(gap=math.log1p(self.gap), seconds=self.seconds, batch=self.plans_per_round)

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Judge the rows, search, prove, explain.

        Raises:
            ConfigError: see `refuse`.
        """
        self.refuse(problem)
        maker = RowsOfProblem(self.batch_size, seed)
        return self.search(maker(problem), problem.wanted, seed, report, maker=maker)

    def refuse(self, problem: Problem) -> None:
        """Refuse a problem that cannot be searched; any number of plans can.

        Raises:
            ConfigError: nothing varies.
        """
        problem.check_varies()
        self.refuse_runner()

    def search(
        self,
        oracle: AbstractModelOracle,
        wanted: Wanted,
        seed: int,
        report: Report = silent,
        warm: WarmStart = COLD,
        maker: OracleMaker | None = None,
    ) -> Trace:
        """Judge the rows, search, prove and explain; the goal's row is what is wanted.

        Args:
            oracle: plans and their rows.
            wanted: what the goal's row is of.
            seed: of random numbers.
            report: hears of progress.
            warm: what is known before.
            maker: of the oracle; with a runner the plans are proven in parts by it.
        """
        verdict = check_convexity(oracle, seed, self.convexity_samples)
        told, parts = proving(in_values(report, wanted), verdict.convex), None
        if self.runner is None or maker is None:
            outcome = BranchAndBound(Programme(oracle), self.effort, seed, told, Recorder(), warm).run()
        else:
            work = PartWork(oracle.problem, maker, self.effort, seed, self.top_k)
            parts = proven_in_parts(work, oracle, self.runner, told)
            outcome, verdict = parts.outcome, replace(verdict, broken=verdict.broken or parts.doubt)
        if outcome.stopped != INTERRUPTED:
            verdict = look_again(oracle, verdict, {p: u for p, (_, u) in outcome.bounding.feasible.items()}, seed)
        trace = self.traced(oracle, wanted, verdict, outcome, seed, report)
        if parts is not None and parts.evidence is not None and trace.certificate is not None:
            trace.evidence = parts.evidence
            trace.evidence.header["claim"] = _claimed(oracle, outcome, trace.certificate)
        return trace

    def traced(
        self,
        oracle: AbstractModelOracle,
        wanted: Wanted,
        verdict: Verdict,
        outcome: Outcome,
        seed: int,
        report: Report = silent,
    ) -> Trace:
        """The trace of an outcome: the best design first, then the next-best with other plans."""
        bounding, counts, seconds = outcome.bounding, outcome.counts, {"certified": outcome.seconds}
        if bounding.plan < 0:
            conflict = Conflict(oracle, bounding.programme.rows[1:], self.effort, seed, report)
            if self.explain and outcome.stopped != INTERRUPTED:
                conflict.explain()
            plan, u = conflict.design or self._least_violating(oracle)
            why = [row if verdict.convex else replace(row, **UNPROVEN) for row in conflict.proof]
            certificate = _certificate(wanted, verdict, outcome, infeasible=tuple(why))
            claim = claim_of_none(certificate, counts["plans"])
            points, kept = designs_of(oracle, plan, u), _evidence(oracle, outcome, certificate)
            return Trace(points, ["certified"] * len(plan), counts, seconds, claim, certificate, evidence=kept)
        explained = {}
        if self.explain and oracle.variables:
            with contextlib.suppress(KeyboardInterrupt):  # the design is there already
                polish(bounding, bounding.plan, 1e-7)
                explained = held_by(oracle, bounding.plan, bounding.u, resources(bounding, 1e-7), wanted.sign)
        certificate = _certificate(wanted, verdict, outcome, **explained)
        best = bounding.incumbent.ranked(self.top_k)
        points = designs_of(oracle, np.array(best), np.array([bounding.feasible[p][1] for p in best]))
        claim, kept = claim_of_best(certificate, counts["plans"]), _evidence(oracle, outcome, certificate)
        return Trace(points, ["certified"] * len(best), counts, seconds, claim, certificate, evidence=kept)

    def _least_violating(self, oracle: AbstractModelOracle) -> tuple[np.ndarray, np.ndarray]:
        """Find the plan of a sample that breaks its limits least in the middle of the box."""
        plan = oracle.sample(np.random.default_rng(0), 4096)
        result = oracle.tangents(plan, np.full((len(plan), len(oracle.variables)), 0.5), 50.0)
        at = int(np.argmin(result.exact[:, 1:].max(axis=1)))
        return plan[at : at + 1], np.full((1, len(oracle.variables)), 0.5)

    @classmethod
    def example(cls, problem: Problem) -> "Certified":
        """To a thousandth."""
        return cls(gap=1e-3, convexity_samples=64, batch_size=64)


def in_values(report: Report, wanted: Wanted) -> Report:
    """Progress in values of the goal instead of logs."""

    def told(progress: Progress) -> None:
        best = math.exp(wanted.sign * progress.best)
        report(replace(progress, best=best, gap=math.expm1(progress.gap), goal=wanted.name))

    return told


def _certificate(wanted: Wanted, verdict: Verdict, outcome: Outcome, **more: Any) -> Certificate:
    """Bounds, gap and history, in values of the goal."""
    history = outcome.bounding.history
    return certify(
        wanted, outcome.upper, outcome.lower, convex=verdict.convex, closed=not outcome.stopped,
        reason=verdict.reason or outcome.stopped,
        convexity=Convexity(verdict.pairs, {**verdict.worst}, verdict.unproven),
        history=tuple((seconds, wanted.value(upper), wanted.value(lower)) for seconds, upper, lower in history), **more,
    )  # fmt: skip


def _evidence(oracle: AbstractModelOracle, outcome: Outcome, certificate: Certificate) -> Evidence | None:
    """Evidence of the bound beside the claim, where all of it was recorded."""
    result = outcome.bounding
    if not isinstance(result.recorder, Recorder):
        return None
    kept = evidence_of(oracle, result.recorder, result.programme.rows, result.table.leaf, result.lower, outcome.lower)
    if kept is not None:
        kept.header["claim"] = _claimed(oracle, outcome, certificate)
    return kept


def _claimed(oracle: AbstractModelOracle, outcome: Outcome, certificate: Certificate) -> dict[str, Any]:
    """Claim of the best design, to stand beside the evidence of its bound."""
    result = outcome.bounding
    design = {} if result.plan < 0 else oracle.point(result.plan, result.u)
    none = certificate.convex and result.plan < 0 and outcome.lower == math.inf
    return certificate.claimed(design, infeasible=none)


def held_by(oracle: AbstractOracle, plan: int, u: np.ndarray, found: list[Resource], sign: float) -> dict[str, Any]:
    """Explain what binds and what more of it would bring: changes of the goal, not of the row that is minimised."""
    edges = [
        Edge(name, "low" if u[i] < EDGE else "high")
        for i, name in enumerate(oracle.variables)
        if u[i] < EDGE or u[i] > 1 - EDGE
    ]
    rows = [
        Binding(
            r.name, r.used, sign * r.fewer, sign * r.more, _move(r.valid[0]), _move(r.valid[1]),
            math.expm1(sign * r.gained), r.plan != plan,
        )
        for r in found
    ]  # fmt: skip
    return {"constraints": tuple(rows), "at_bounds": tuple(edges)}


def _move(log: float) -> float | None:
    """A relative change; None where there is no limit."""
    return math.expm1(log) if math.isfinite(log) else None
