"""`search=certified`: the best design with a proof of how far it may be from the optimum, and what holds it there."""

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...errors import ConfigError
from ..base import AbstractSearch, Evidence, Problem, Progress, Report, Trace, proving, silent
from .branch_and_bound import BranchAndBound
from .conflict import Conflict
from .convexity import Verdict, check, look_again
from .effort import INTERRUPTED, Effort, Outcome
from .evidence import Recorder, evidence_of
from .model_oracle import AbstractModelOracle, designs_of
from .node_relaxation import oracle_for
from .oracle import AbstractOracle, rows_of
from .programme import Programme
from .sensitivity import Resource, polish, resources
from .warm_start import COLD, WarmStart

UNPROVEN = {"factor_at_least": None, "needed": None}  # of conflicts of a model that is not convex


class Wanted(NamedTuple):
    """What the goal's row is the log of, and its sign: 1 where less is better, -1 where more is."""

    name: str
    sign: float = 1.0

    def value(self, log: float) -> float | None:
        """The quantity of a value of the row; None where there is none."""
        return math.exp(self.sign * log) if math.isfinite(log) else None


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
        block: points in one call of the model.
        batch: plans closed side by side.
        keep: next-best designs (each with another plan) that are kept for the frame.
        pairs: pairs of points on which rows are tested that are not proven convex.
        explain: also say what binds, what more of it would bring, and, where nothing is feasible, why.
    """

    gap: float = 1e-3
    seconds: float = 600.0
    block: int = 512
    batch: int = 512
    keep: int = 16
    pairs: int = 1024
    explain: bool = True

    def __post_init__(self) -> None:
        """Positive sizes."""
        for name in ("gap", "seconds", "block", "batch", "keep", "pairs"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"search.{name} = {getattr(self, name)} must be positive")

    @property
    def effort(self) -> Effort:
        """How hard the loop tries."""
        return Effort(gap=math.log1p(self.gap), seconds=self.seconds, batch=self.batch)

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Judge the rows, search, prove, explain.

        Raises:
            ConfigError: see `refuse`.
        """
        self.refuse(problem)
        wanted = Wanted(problem.objective.goal, 1.0 if problem.objective.minimise else -1.0)
        return self.search(oracle_for(problem, rows_of(problem), self.block, seed), wanted, seed, report)

    def refuse(self, problem: Problem) -> None:
        """What cannot be searched; any number of plans can.

        Raises:
            ConfigError: nothing varies.
        """
        if not problem.space.plan and not problem.space.hardware:
            raise ConfigError("space is empty: neither space.plan nor space.hardware names anything that may vary")

    def search(
        self,
        oracle: AbstractModelOracle,
        wanted: Wanted,
        seed: int,
        report: Report = silent,
        warm: WarmStart = COLD,
    ) -> Trace:
        """Judge the rows, search, prove and explain; the goal's row is what is wanted.

        Args:
            oracle: plans and their rows.
            wanted: what the goal's row is of.
            seed: of random numbers.
            report: hears of progress.
            warm: what is known before.
        """
        verdict = check(oracle, seed, self.pairs)
        told = proving(_translated(report, wanted), verdict.convex)
        outcome = BranchAndBound(Programme(oracle), self.effort, seed, told, Recorder(), warm).run()
        if outcome.stopped != INTERRUPTED:
            verdict = look_again(oracle, verdict, {p: u for p, (_, u) in outcome.bounding.feasible.items()}, seed)
        return self.traced(oracle, wanted, verdict, outcome, seed, report)

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
            why = conflict.proof if verdict.convex else [row | UNPROVEN for row in conflict.proof]
            certificate = _certificate(wanted, verdict, outcome) | {"infeasible": why}
            claim = _claim_infeasible(verdict, outcome)
            points, kept = designs_of(oracle, plan, u), _evidence(oracle, outcome, certificate)
            return Trace(points, ["certified"] * len(plan), counts, seconds, claim, certificate, evidence=kept)
        explained = {}
        if self.explain and oracle.variables:
            with contextlib.suppress(KeyboardInterrupt):  # the design is there already
                polish(bounding, bounding.plan, 1e-7)
                explained = _explained(oracle, bounding.plan, bounding.u, resources(bounding, 1e-7), wanted.sign)
        certificate = _certificate(wanted, verdict, outcome) | explained
        best = bounding.incumbent.ranked(self.keep)
        points = designs_of(oracle, np.array(best), np.array([bounding.feasible[p][1] for p in best]))
        claim, kept = _claim(verdict, outcome), _evidence(oracle, outcome, certificate)
        return Trace(points, ["certified"] * len(best), counts, seconds, claim, certificate, evidence=kept)

    def _least_violating(self, oracle: AbstractModelOracle) -> tuple[np.ndarray, np.ndarray]:
        """Of a sample of plans in the middle of the box, the one that breaks its limits least."""
        plan = oracle.sample(np.random.default_rng(0), 4096)
        found = oracle.tangents(plan, np.full((len(plan), len(oracle.variables)), 0.5), 50.0)
        at = int(np.argmin(found.exact[:, 1:].max(axis=1)))
        return plan[at : at + 1], np.full((1, len(oracle.variables)), 0.5)


def _translated(report: Report, wanted: Wanted) -> Report:
    """Progress in values of the goal instead of logs."""

    def told(progress: Progress) -> None:
        best = math.exp(wanted.sign * progress.best)
        report(replace(progress, best=best, gap=math.expm1(progress.gap), goal=wanted.name))

    return told


def _certificate(wanted: Wanted, verdict: Verdict, outcome: Outcome) -> dict[str, Any]:
    """Bounds, gap and history, in values of the goal."""
    value = wanted.value
    return {
        "certified": verdict.convex and not outcome.stopped,
        "convex": verdict.convex,
        "reason": verdict.reason or outcome.stopped,
        "goal": wanted.name,
        "sense": "minimise" if wanted.sign > 0 else "maximise",
        "best": value(outcome.upper),
        "bound": value(outcome.lower) if verdict.convex else None,
        "gap": math.expm1(outcome.gap) if verdict.convex and math.isfinite(outcome.gap) else None,
        "convexity": {"pairs": verdict.pairs, "worst": verdict.worst, "unproven": verdict.unproven},
        "history": [[seconds, value(upper), value(lower)] for seconds, upper, lower in outcome.bounding.history],
    }


def _evidence(oracle: AbstractModelOracle, outcome: Outcome, certificate: dict[str, Any]) -> Evidence | None:
    """What the bound rests on, where notes were taken of all of it, beside what is claimed."""
    bounding = outcome.bounding
    if bounding.recorder is None or not isinstance(oracle, AbstractModelOracle):  # not of mixes: many models, not one
        return None
    kept = evidence_of(
        oracle, bounding.recorder, bounding.programme.rows, bounding.table.leaf, bounding.lower, outcome.lower
    )
    if kept is not None:
        kept.header["claim"] = {name: certificate[name] for name in ("goal", "sense", "best", "bound", "gap")} | {
            "infeasible": certificate["convex"] and bounding.plan < 0 and outcome.lower == math.inf,
            "design": {} if bounding.plan < 0 else oracle.point(bounding.plan, bounding.u),
        }
    return kept


def _explained(oracle: AbstractOracle, plan: int, u: np.ndarray, found: list[Resource], sign: float) -> dict[str, Any]:
    """What binds and what more of it would bring: changes of the goal, not of the row that is minimised."""
    edges = [
        {"variable": name, "at": "low" if u[i] < 1e-3 else "high"}
        for i, name in enumerate(oracle.variables)
        if u[i] < 1e-3 or u[i] > 1 - 1e-3
    ]
    rows = [
        {
            "constraint": r.name, "used": r.used,
            "elasticity_fewer": sign * r.fewer, "elasticity_more": sign * r.more,
            "valid_down": _move(r.valid[0]), "valid_up": _move(r.valid[1]),
            "tenth_more": math.expm1(sign * r.gained), "changes_plan": r.plan != plan,
        }
        for r in found
    ]  # fmt: skip
    return {"constraints": rows, "at_bounds": edges}


def _move(log: float) -> float | None:
    """A relative change; None where there is no limit."""
    return math.expm1(log) if math.isfinite(log) else None


def _claim(verdict: Verdict, outcome: Outcome) -> str:
    """In words, how much the result proves."""
    if not verdict.convex:
        return f"best found, no proof: {verdict.reason}"
    if math.isinf(outcome.gap):
        return f"best found, nothing proven yet: {outcome.stopped}"
    proven = (
        f"within {100 * max(math.expm1(outcome.gap), 1e-6):.2g} % of the optimum over {outcome.counts['plans']:,} plans"
    )
    if outcome.stopped:
        return f"best found, {outcome.stopped}: proven {proven}"
    return f"certified: proven {proven} and the whole box of hardware"


def _claim_infeasible(verdict: Verdict, outcome: Outcome) -> str:
    if verdict.convex and not outcome.stopped:
        return f"certified: no design of {outcome.counts['plans']:,} plans keeps all constraints, whatever the hardware"
    return f"no feasible design found, no proof: {verdict.reason or outcome.stopped}"
