"""`search=certified`: the best design with a proof of how far it may be from the optimum, and what holds it there."""

import contextlib
import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from ...executors import AbstractRunner
from ...study.objective import feasible_logs
from ..base import AbstractSearch, Evidence, Problem, Progress, Report, Trace, proving, silent
from ..certificate import (
    Binding,
    Certificate,
    Convexity,
    Edge,
    GoalQuantity,
    RequiredRelaxation,
    certify,
    claim_of_best,
    claim_of_none,
)
from . import interior_point as interior
from .bounding import COLD, INTERRUPTED, REFERENCE_SHARPNESS, Bounding, Outcome, SearchEffort, WarmStart
from .branch_and_bound import BranchAndBound
from .convexity import Verdict, check_convexity, look_again
from .evidence import Recorder, evidence_of
from .model_oracle import AbstractModelOracle, designs_of
from .oracle import AbstractOracle, AbstractRelay, Programme, Tangents
from .part_work import OracleMaker, PartWork, RowsOfProblem, proven_in_parts

# Relaxation of infeasible studies: by how much constraints must give, alone or together, every number with its proof.
#
# A constraint that gives becomes what is minimised, under the others. Where none can give enough alone, first the
# largest of all is minimised, then one after the other under what the others have given: that ends where none can be
# tightened.


LARGEST = "largest"
SLACK = 1e-6  # log by which a constraint is allowed more than a design was found with


class LargestRow(AbstractRelay):
    """One row more: the largest of some.

    Args:
        inner: has these rows.
        rows: their names.
    """

    def __init__(self, inner: AbstractOracle, rows: tuple[str, ...]):
        super().__init__(inner)
        self.names = (*inner.names, LARGEST)
        self._columns = np.array([inner.names.index(row) for row in rows])

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """A tangent of the largest row there lies below the largest everywhere."""
        result = self.inner.tangents(plan, u, sharpness)
        self.evaluated += len(plan)
        at = self._columns[result.exact[:, self._columns].argmax(axis=1)]
        lane = np.arange(len(plan))
        exact = np.concatenate([result.exact, result.exact[lane, at][:, None]], axis=1)
        return Tangents(exact, np.concatenate([result.affine, result.affine[lane, at][:, None]], axis=1), result.broken)


class Conflict:
    """Constraints that no design keeps together.

    Args:
        oracle: has their rows.
        rows: their names.
        effort: of each programme; its seconds are those of all together.
        seed: of the samples.
        report: told after each programme.

    Attributes:
        proof: of each constraint, in this order.
        design: plan and coordinates of the design that asks for least.
    """

    def __init__(
        self, oracle: AbstractOracle, rows: tuple[str, ...], effort: SearchEffort, seed: int, report: Report = silent
    ):
        self.oracle, self.rows, self.effort, self.seed, self.report = oracle, rows, effort, seed, report
        self.solved, self.planned = 0, len(rows)
        self.ends = time.perf_counter() + effort.seconds
        self.proof: list[RequiredRelaxation] = []
        self.design: tuple[np.ndarray, np.ndarray] | None = None

    def explain(self) -> "Conflict":
        """Fill `proof` and `design`; nothing of both where that was interrupted."""
        try:
            self._alone()
            if self.design is None:
                self._together()
        except KeyboardInterrupt:  # half a list would say that the rest cannot help
            self.proof, self.design = [], None
        return self

    def _least(self, oracle: AbstractOracle, goal: str, others: tuple[str, ...], given: dict[str, float]) -> Outcome:
        effort = replace(self.effort, seconds=max(self.ends - time.perf_counter(), 0.1))
        outcome = BranchAndBound(Programme(oracle, goal, others, given), effort, self.seed).run().unless_interrupted()
        self.solved += 1
        self.report(Progress("what must give", self.solved, max(self.solved, self.planned), math.nan))
        return outcome

    def _take(self, outcome: Outcome) -> None:
        self.design = np.array([outcome.bounding.plan]), outcome.bounding.u[None]

    def _others(self, name: str) -> tuple[str, ...]:
        return tuple(other for other in self.rows if other != name)

    def _alone(self) -> None:
        best = np.inf
        for name in self.rows:
            least = self._least(self.oracle, name, self._others(name), {})
            alone = math.isfinite(least.upper)
            if least.upper < best:
                best = least.upper
                self._take(least)
            factor = math.exp(least.upper) if alone else None
            self.proof.append(RequiredRelaxation(name, alone, factor, _factor(least.lower)))

    def _together(self) -> None:
        limits = tuple(name for name in self.rows if not name.startswith("usage."))
        self.planned += len(self.rows) + 1 + len(limits)
        alone = [self._least(self.oracle, row.constraint, (), {}).lower for row in self.proof]
        self.proof = [replace(row, needed=_factor(max(low, 0.0))) for row, low in zip(self.proof, alone, strict=True)]
        must = tuple(row.constraint for row in self.proof if (row.needed or math.inf) > 1.0)
        for giving in dict.fromkeys((must, limits, self.rows)):  # limits are easier given than hardware
            retained = tuple(name for name in self.rows if name not in giving)
            if giving:
                first = self._least(LargestRow(self.oracle, giving), LARGEST, retained, {})
                if math.isfinite(first.upper):
                    self._tighten(giving, first)
                    return

    def _tighten(self, giving: tuple[str, ...], first: Outcome) -> None:
        """One constraint after the other under what the others have given."""
        given = dict.fromkeys(giving, max(first.upper, 0.0) + SLACK)
        self._take(first)
        for name in giving:
            outcome = self._least(self.oracle, name, self._others(name), {k: v for k, v in given.items() if k != name})
            if math.isfinite(outcome.upper) and outcome.upper < given[name]:
                given[name] = max(outcome.upper + SLACK, 0.0)
                self._take(outcome)
        self.proof = [replace(row, together=math.exp(given.get(row.constraint, 0.0))) for row in self.proof]


def _factor(log: float) -> float | None:
    return math.exp(log) if math.isfinite(log) else None


# Sensitivity of the optimum: what binds it and what more would bring, solved again under moved constraints.
#
# Moving a bound only adds a constant to its row, so every tangent of a plan serves all moves at once. The optimum of
# one plan is a convex function of the moves; its slopes on both sides of zero are the one-sided elasticities, which
# differ where a kink or another constraint lies at the optimum. Over all plans the optimum may change its plan: that
# is why a large move is solved over the best plans, and not extrapolated.


SMALL = 1e-3  # log of the move that measures a slope
MOVES = (0.003, 0.01, 0.03, 0.1)  # logs of the moves over which a slope is tested
LINEAR = 1e-4  # log of the goal by which a slope may miss


@dataclass(frozen=True)
class Resource:
    """One constraint at the optimum.

    used: share of what is allowed. fewer, more: d log goal / d log allowed when it is taken from or given to, at this
    plan. valid: logs of the moves, down and up, over which these slopes hold to 1e-4 of the goal. gained: log-change
    of the goal when a tenth more is allowed, over the best plans; `plan` is the best one then.
    """

    name: str
    used: float
    fewer: float
    more: float
    valid: tuple[float, float]
    gained: float
    plan: int


def polish(bounding: Bounding, plan: int, tolerance: float, rounds: int = 40) -> None:
    """Close the gap of one plan further."""
    if plan not in bounding.cuts:  # its bound came from another plan's point before it was asked for cuts of its own
        bounding.learn(np.array([plan]), bounding.feasible[plan][1][None], REFERENCE_SHARPNESS)
    keep, bounding.gap = bounding.gap, tolerance
    for _ in range(rounds):
        if plan not in bounding.cuts or bounding.lower[plan] >= bounding.feasible.get(plan, (np.inf,))[0] - tolerance:
            break
        bounding.refine(np.array([plan]))
    bounding.gap = keep


def optima(
    bounding: Bounding,
    plans: np.ndarray,
    moves: Float[np.ndarray, "lanes rows"],
    tolerance: float,
    rounds: int,
    rivals: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """Optimum of each plan under constraints moved by these logs: (lower bound, value of the model), [lanes].

    Tangents learnt for one lane serve all lanes of its plan. A lane ends early where nothing keeps its constraints and
    more tangents do not say so more clearly.

    Args:
        bounding, plans, moves: what is solved.
        tolerance, rounds: gap at which a lane ends, and when the last does.
        rivals: lanes side by side of which only the best counts: one that cannot be it ends too.
    """
    lanes = len(plans)
    lower, upper = np.full(lanes, -np.inf), np.full(lanes, np.inf)
    pools = {p: np.array(bounding.cuts[p]) for p in set(plans.tolist())}
    active = np.arange(lanes)
    for _ in range(rounds):
        most = max(len(pools[p]) for p in plans[active].tolist())
        affine = np.zeros((len(active), most, moves.shape[1], bounding.width + 1))
        affine[..., 0] = interior.EMPTY
        for lane, at in enumerate(active):
            pool = pools[int(plans[at])]
            affine[lane, : len(pool)] = pool
            affine[lane, : len(pool), :, 0] -= moves[at]
        spread = np.clip(0.3 * (upper[active] - lower[active]), 1e-9, 1.0)
        solved = interior.solve(affine, np.nan_to_num(spread, nan=1.0), np.full(len(active), 0.1 * tolerance))
        before = lower[active]
        lower[active] = np.maximum(before, solved.lower)
        points = np.concatenate([solved.edge, solved.central])
        queried = np.concatenate([plans[active]] * 2)
        sharpness = np.clip(3.0 / np.concatenate([spread, spread]), 30.0, 1e7)
        exact, result = bounding.programme.tangents(queried, points, sharpness)
        at = np.concatenate([active, active])
        holds = feasible_logs((exact[:, 1:] - moves[at, 1:]).max(axis=1, initial=-np.inf))
        values = np.where(holds, exact[:, 0], np.inf)
        np.minimum.at(upper, at, values)
        for p in pools:
            pools[p] = _trimmed(pools[p], result[queried == p], solved.weights, plans[active] == p)
        hopeless = (solved.violation > tolerance) & (lower[active] - before < tolerance)
        beaten = lower > upper.reshape(-1, rivals).min(axis=1).repeat(rivals)
        active = active[(upper[active] - lower[active] > tolerance) & ~hopeless & ~beaten[active]]
        if len(active) == 0:
            break
    return lower, upper


def _trimmed(pool: np.ndarray, new: np.ndarray, weights: np.ndarray, mine: np.ndarray, most: int = 60) -> np.ndarray:
    """The tangents that some lane leant on, and the new ones."""
    if len(pool) + len(new) > most and mine.any():
        leant = weights[mine][:, : len(pool)].sum(axis=2).max(axis=0)
        pool = pool[np.sort(np.argsort(-leant, kind="stable")[: most // 2])]
    return np.concatenate([pool, new[: most // 2]])


def resources(bounding: Bounding, tolerance: float, rivals: int = 24) -> list[Resource]:
    """Every constraint of the programme at the optimum of the best plan, and what a tenth more would bring."""
    rows, best = bounding.programme.rows, bounding.plan
    exact, _ = bounding.programme.tangents(np.array([best]), bounding.u[None], 1e6)
    used = np.exp(exact[0])
    near = [i for i in range(1, len(rows)) if used[i] > 0.5]
    result = [Resource(n, float(used[i]), 0.0, 0.0, (-np.inf, np.inf), 0.0, best) for i, n in enumerate(rows)]
    if not near:
        return result[1:]
    steps = [0.0, *(sign * size for size in (SMALL, *MOVES) for sign in (-1, 1))]
    moves = np.zeros((1 + len(near) * (len(steps) - 1), len(rows)))
    lane = {(near[0], 0.0): 0}
    for i in near:
        for step in steps[1:]:
            lane[i, step] = len(lane)
            moves[lane[i, step], i] = step
    low, _ = optima(bounding, np.full(len(moves), best), moves, tolerance, rounds=40)
    gained = _tenth_more(bounding, near, tolerance, rivals)
    for i in near:
        change = {step: low[lane[i, step]] - low[0] for step in steps[1:]}
        fewer, more = -change[-SMALL] / SMALL, change[SMALL] / SMALL
        valid: list[float] = []
        for sign, slope in ((-1, fewer), (1, more)):
            holds = [s for s in MOVES if abs(change[sign * s] - slope * sign * s) <= LINEAR]
            broken = [s for s in MOVES if s not in holds]
            valid.append(sign * max([s for s in holds if not broken or s < min(broken)], default=SMALL))
        result[i] = Resource(rows[i], float(used[i]), fewer, more, (valid[0], valid[1]), *gained[i])
    return result[1:]


def _tenth_more(bounding: Bounding, near: list[int], tolerance: float, rivals: int) -> dict[int, tuple[float, int]]:
    """Row -> (log-change of the goal, plan) when a tenth more is allowed, over the plans that come closest."""
    with_cuts = np.array(sorted(bounding.cuts))
    with_cuts = with_cuts[bounding.programme.oracle.single(with_cuts)]
    plans = with_cuts[np.argsort(bounding.lower[with_cuts], kind="stable")[:rivals]]
    plans = plans if bounding.plan in plans else np.append(plans, bounding.plan)
    moves = np.zeros((len(near) * len(plans), len(bounding.programme.rows)))
    for k, i in enumerate(near):
        moves[k * len(plans) : (k + 1) * len(plans), i] = np.log(1.1)
    _, upper = optima(bounding, np.tile(plans, len(near)), moves, max(tolerance, 1e-4), 16, rivals=len(plans))
    upper = upper.reshape(len(near), len(plans))
    return {
        i: (float(min(upper[k].min() - bounding.upper, 0.0)), int(plans[upper[k].argmin()])) for k, i in enumerate(near)
    }


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
    def effort(self) -> SearchEffort:
        """Stopping criteria and batch size of the branch and bound."""
        return SearchEffort(gap=math.log1p(self.gap), seconds=self.seconds, batch=self.plans_per_round)

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Judge the rows, search, prove, explain.

        Raises:
            ConfigError: see `refuse`.
        """
        self.refuse(problem)
        maker = RowsOfProblem(self.batch_size, seed, ranges=self.runner is None)
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
        wanted: GoalQuantity,
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
        on_progress, parts = proving(in_values(report, wanted), verdict.convex), None
        if self.runner is None or maker is None:
            outcome = BranchAndBound(Programme(oracle), self.effort, seed, on_progress, Recorder(), warm).run()
        else:
            work = PartWork(oracle.problem, maker, self.effort, seed, self.top_k)
            parts = proven_in_parts(work, oracle, self.runner, on_progress)
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
        wanted: GoalQuantity,
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
            points, evidence = designs_of(oracle, plan, u), _evidence(oracle, outcome, certificate)
            return Trace(points, ["certified"] * len(plan), counts, seconds, claim, certificate, evidence=evidence)
        explained = {}
        if self.explain and oracle.variables:
            with contextlib.suppress(KeyboardInterrupt):  # the design is there already
                polish(bounding, bounding.plan, 1e-7)
                explained = held_by(oracle, bounding.plan, bounding.u, resources(bounding, 1e-7), wanted.sign)
        certificate = _certificate(wanted, verdict, outcome, **explained)
        best = bounding.incumbent.ranked(self.top_k)
        points = designs_of(oracle, np.array(best), np.array([bounding.feasible[p][1] for p in best]))
        claim, evidence = claim_of_best(certificate, counts["plans"]), _evidence(oracle, outcome, certificate)
        return Trace(points, ["certified"] * len(best), counts, seconds, claim, certificate, evidence=evidence)

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


HUGE = 700.0  # log beyond which float64 has no number


def in_values(report: Report, wanted: GoalQuantity) -> Report:
    """Progress in values of the goal instead of logs."""

    def scaled_report(progress: Progress) -> None:
        best = math.exp(wanted.sign * progress.best)
        gap = math.expm1(progress.gap) if progress.gap < HUGE or math.isnan(progress.gap) else math.inf
        report(replace(progress, best=best, gap=gap, goal=wanted.name))

    return scaled_report


def _certificate(wanted: GoalQuantity, verdict: Verdict, outcome: Outcome, **more: Any) -> Certificate:
    """Bounds, gap and history, in values of the goal; a bound of the history that float64 has no number for is none."""
    history = [
        (seconds, *(wanted.value(log) if abs(log) < HUGE else None for log in logs))
        for seconds, *logs in outcome.bounding.history
    ]
    return certify(
        wanted, outcome.upper, outcome.lower, convex=verdict.convex, closed=not outcome.stopped,
        reason=verdict.reason or outcome.stopped,
        convexity=Convexity(verdict.pairs, {**verdict.worst}, verdict.unproven),
        history=tuple((seconds, best, bound) for seconds, best, bound in history), **more,
    )  # fmt: skip


def _evidence(oracle: AbstractModelOracle, outcome: Outcome, certificate: Certificate) -> Evidence | None:
    """Evidence of the bound beside the claim, where all of it was recorded."""
    result = outcome.bounding
    if not isinstance(result.recorder, Recorder):
        return None
    evidence = evidence_of(
        oracle, result.recorder, result.programme.rows, result.table.leaf, result.lower, outcome.lower
    )
    if evidence is not None:
        evidence.header["claim"] = _claimed(oracle, outcome, certificate)
    return evidence


def _claimed(oracle: AbstractModelOracle, outcome: Outcome, certificate: Certificate) -> dict[str, Any]:
    """Claim of the best design, to stand beside the evidence of its bound."""
    result = outcome.bounding
    design = {} if result.plan < 0 else oracle.point(result.plan, result.u)
    none = certificate.convex and result.plan < 0 and outcome.lower == math.inf
    return certificate.claimed(design, infeasible=none)


def held_by(
    oracle: AbstractOracle, plan: int, u: np.ndarray, resources_used: list[Resource], sign: float
) -> dict[str, Any]:
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
        for r in resources_used
    ]  # fmt: skip
    return {"constraints": tuple(rows), "at_bounds": tuple(edges)}


def _move(log: float) -> float | None:
    """A relative change; None where there is no limit."""
    return math.expm1(log) if math.isfinite(log) else None
