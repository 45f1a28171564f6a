"""`search=integer`: stacks, lanes, fibers, ports are whole numbers: solve for real ones, then for those around them.

The real optimum bounds every whole design from below, so the gap that is reported is to all of them, not only to those
that were tried. Variables in which the model is not convex are held at every value they may have.

Source: see docs/optimisation.md, section 6.
"""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, cast

import jax
import numpy as np

from ...core.errors import CodesignError, ConfigError, suggestion
from ...core.jax_typed import asarray
from ...core.json_yaml import is_some
from ...executors import AbstractRunner
from ...study.design_space import levels
from ..base import AbstractSearch, AbstractSentWork, Evidence, Problem, Progress, Report, Trace, proving, silent
from ..certificate import Certificate, Edge, certify, claim_of_integer
from .bounding import INTERRUPTED, Outcome, SentOutcome
from .branch_and_bound import BranchAndBound
from .certified import Certified, held_by, in_values, polish, resources
from .convexity import PROVEN, Verdict, check_convexity
from .evidence import Recorder, evidence_of, together
from .model_oracle import Oracle, designs_of
from .oracle import AbstractOracle, AbstractRelay, Programme, Tangents, rows_of

# Results of `search=integer` for each fixed combination: the relaxed optimum and the integers tried around it.


@dataclass(frozen=True)
class Real:
    """Relaxed optimum with some coordinates held, no number integer; `evidence` is what its bound `lower` rests on."""

    held: dict[int, float]
    verdict: Verdict
    outcome: Outcome
    lower: float
    evidence: Evidence | None

    @property
    def u(self) -> np.ndarray:
        """Free coordinates of its best design."""
        return self.outcome.bounding.u


@dataclass(frozen=True)
class RoundingRecord:
    """Real optima, and what became of the whole numbers around them; `complete` where every combination has its own.

    ended: why not everything was searched; empty where it was.
    """

    real: list[Real]
    tried: list[tuple[dict[int, float], Outcome]]
    complete: bool
    ended: str

    @property
    def outcomes(self) -> list[Outcome]:
        """Each once."""
        every = [*(one.outcome for one in self.real), *(outcome for _, outcome in self.tried)]
        return list({id(outcome): outcome for outcome in every}.values())

    @property
    def lower(self) -> float:
        """Bound on every design, whole or not, of the combinations that were searched."""
        return min(one.lower for one in self.real)

    @property
    def stopped(self) -> str:
        """Reason of the first outcome that ended early; empty if none did."""
        return next((outcome.stopped for outcome in self.outcomes if outcome.stopped), "")


# An oracle over some of its coordinates, the others held: what `search=integer` solves for each listed value.


class FixedCoordinateOracle(AbstractRelay):
    """An oracle with some of its coordinates held: their slopes go into the intercepts."""

    def __init__(self, inner: AbstractOracle, held: dict[int, float]):
        super().__init__(inner)
        self.free = np.flatnonzero([i not in held for i in range(len(inner.variables))])
        self.fixed = np.array(sorted(held), dtype=int)
        self.at = np.array([held[int(i)] for i in self.fixed])

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the free variables."""
        return tuple(self.inner.variables[i] for i in self.free.tolist())

    def unproven(self, held: Mapping[str, Sequence[float]] | None = None) -> dict[str, str]:
        """Reasons why rows are not proven convex over the free coordinates, by row."""
        fixed: dict[str, Sequence[float]] = {
            self.inner.variables[int(i)]: [float(at)] for i, at in zip(self.fixed, self.at, strict=True)
        }
        return self.inner.unproven(fixed | dict(held or {}))

    def full_point(self, u: np.ndarray) -> np.ndarray:
        """All coordinates from the free ones."""
        full = np.zeros((len(u), len(self.inner.variables)))
        full[:, self.free], full[:, self.fixed] = u, self.at
        return full

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """Rows at the whole point; tangents over the free coordinates."""
        self.evaluated += len(plan)
        result = self.inner.tangents(plan, self.full_point(u), sharpness)
        intercept = result.affine[..., 0] + result.affine[..., 1 + self.fixed] @ self.at
        affine = np.concatenate([intercept[..., None], result.affine[..., 1 + self.free]], axis=-1)
        return Tangents(result.exact, affine, result.broken)


# Searches of `search=integer` with some coordinates fixed, each in this process or wherever a runner puts it.


Coordinates = tuple[tuple[int, float], ...]
"""(variable, coordinate) of what is held, in order."""


def optimum(
    oracle: Oracle, held: dict[int, float], proof: Certified, proven: bool, seed: int, report: Report = silent
) -> Real:
    """The optimum over all variables that are not held, with what its bound rests on."""
    free = free_of(oracle, held)
    verdict = PROVEN if proven else check_convexity(free, seed, proof.convexity_samples)
    on_progress, recorder = proving(report, verdict.convex), Recorder()
    outcome = BranchAndBound(Programme(free), proof.effort, seed, on_progress, recorder).run()
    bounding, lower = outcome.bounding, outcome.lower
    bounding.hush()
    rows, variables = bounding.programme.rows, free.variables
    evidence = evidence_of(oracle, recorder, rows, bounding.table.leaf, bounding.lower, lower, variables)
    return Real(held, verdict, outcome, lower, evidence)


def closed(
    oracle: AbstractOracle, held: dict[int, float], proof: Certified, seed: int, report: Report = silent
) -> Outcome:
    """Search with some coordinates fixed, without the proof."""
    return BranchAndBound(Programme(FixedCoordinateOracle(oracle, held)), proof.effort, seed, report).run()


def free_of(oracle: Oracle, held: dict[int, float]) -> AbstractOracle:
    """An oracle over the variables that are not held."""
    return FixedCoordinateOracle(oracle, held) if held else oracle


@dataclass(frozen=True)
class FixedCoordinateTask:
    """One search: its number, what is held, and whether what its bound rests on is asked for."""

    number: int
    held: Coordinates
    bounded: bool

    def __str__(self) -> str:
        """Fixed values of the search, as text."""
        return "values at " + ", ".join(f"{at:.4g} of variable {i}" for i, at in self.held)


@dataclass(frozen=True)
class FixedCoordinateResult:
    """Result of a search with fixed coordinates: outcome, points evaluated, verdict on its bound, and evidence."""

    part: FixedCoordinateTask
    outcome: SentOutcome
    points: int
    verdict: Verdict = PROVEN
    lower: float = 0.0
    evidence: Evidence | None = None

    def real(self, oracle: Oracle) -> Real:
        """Result as if this process had found it."""
        held = dict(self.part.held)
        outcome = self.outcome.over(Programme(free_of(oracle, held)))
        return Real(held, self.verdict, outcome, self.lower, self.evidence)


class FixedCoordinateWork(AbstractSentWork):
    """Runs searches of one problem with some coordinates held; the model is traced once in a process.

    Args:
        problem: whose plans and hardware are searched.
        proof: how each search is run; here, whatever runner it has.
        proven: whether the rows are known to be convex for everything that is held.
        seed: of each search.
    """

    def __init__(self, problem: Problem, proof: Certified, proven: bool, seed: int):
        self.problem, self.proof, self.proven, self.seed = problem, replace(proof, runner=None), proven, seed

    @functools.cached_property
    def oracle(self) -> Oracle:
        """Rows of every plan."""
        return Oracle(self.problem, rows_of(self.problem), self.proof.batch_size)

    def __call__(self, part: FixedCoordinateTask) -> FixedCoordinateResult:
        """One search from beginning to end: the same wherever it runs."""
        held, before = dict(part.held), self.oracle.evaluated
        if part.bounded:
            real = optimum(self.oracle, held, self.proof, self.proven, self.seed)
            extras: dict[str, Any] = {"verdict": real.verdict, "lower": real.lower, "evidence": real.evidence}
            outcome = real.outcome
        else:
            extras, outcome = {}, closed(self.oracle, held, self.proof, self.seed)
        return FixedCoordinateResult(
            part, SentOutcome(outcome.unless_interrupted()), self.oracle.evaluated - before, **extras
        )


def held_by_runner(
    runner: AbstractRunner,
    work: FixedCoordinateWork,
    helds: Sequence[Mapping[int, float]],
    bounded: bool,
    report: Report,
) -> Iterator[FixedCoordinateResult]:
    """One search for each of these, in their order; those that came before an error, then the error.

    Raises:
        CodesignError: a search whose workers were lost.
        KeyboardInterrupt: somebody asked to end.
    """
    parts = [FixedCoordinateTask(i, tuple(sorted(held.items())), bounded) for i, held in enumerate(helds)]
    result: dict[int, FixedCoordinateResult] = {}
    why: BaseException | None = None
    try:
        with closing(runner.results(work, parts)) as arriving:
            for one in arriving:
                result |= {} if one is None else {one.part.number: one}
                best = min((each.outcome.state["incumbent"].upper for each in result.values()), default=float("inf"))
                report(Progress("values" if bounded else "integer", len(result), len(parts), best))
    except (CodesignError, KeyboardInterrupt) as error:
        why = error
    for number in sorted(result):
        yield result[number]
    if why is not None:
        raise why


Closing = Callable[[dict[int, float]], Outcome]
"""Held coordinates -> the best of what is free then."""

MOST = 10  # variables: each doubles the number of solutions
MOST_HELD = 1000  # combinations of values


@dataclass(frozen=True)
class Integer(AbstractSearch):
    """The best design whose named variables are whole multiples of a unit, or take one of some values.

    A variable in `allowed_values` is held at each of them in turn, so the model need not be convex in it (endpoints of
    a switch, radix of a collective, wavelengths that are counted); `step` is for numbers that it is convex in.

    Args:
        step: hardware variable -> its unit (1 for a count; the bytes of one stack).
        proof: how each of the searches is run.
        allowed_values: hardware variable -> the values it may have, within its range.
        runner: runs the searches apart from each other, one a combination of values, and one a combination of whole
            numbers around its optimum; none: one after the other, here.
    """

    step: dict[str, float] = field(default_factory=dict[str, float])
    proof: Certified = field(default_factory=Certified)
    allowed_values: dict[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    runner: AbstractRunner | None = None

    def __post_init__(self) -> None:
        """Some names, positive units, non-empty lists, and not too many of either."""
        for name, unit in cast(dict[str, Any], self.step).items():
            if not isinstance(unit, int | float) or not unit > 0:
                raise ConfigError(f"search.step.{name} = {unit!r} must be a positive number")
        for name, values in self.allowed_values.items():
            if not is_some(values):
                raise ConfigError(f"search.allowed_values.{name} = {values!r} must be a non-empty list of values")
            if name in self.step:
                raise ConfigError(f"search.allowed_values.{name} is also in search.step: leave one of them out")
        if not len(self.step) + len(self.allowed_values) > 0 or len(self.step) > MOST:
            raise ConfigError(
                f"search.step must name 1 to {MOST} variables, not {len(self.step)}, or search.allowed_values"
            )
        listed = math.prod(len(values) for values in self.allowed_values.values())
        if listed > MOST_HELD:
            raise ConfigError(
                f"search.allowed_values lists {listed:,} combinations, each a search of its own: at most {MOST_HELD}"
            )

    def refuse(self, problem: Problem) -> None:
        """A variable that is not in the space, or a value outside its range."""
        super().refuse(problem)
        for group in ("step", "allowed_values"):
            for name in getattr(self, group):
                if name not in problem.space.hardware:
                    hint = suggestion(name, problem.space.hardware)
                    raise ConfigError(f"search.{group}.{name} is not in space.hardware{hint}")
        for name, values in self.allowed_values.items():
            variable = problem.space.hardware[name]
            for value in values:
                if not variable.low * (1 - 1e-9) <= value <= variable.high * (1 + 1e-9):
                    low, high = variable.low, variable.high
                    raise ConfigError(
                        f"search.allowed_values.{name}: {value:g} is outside its range [{low:g}, {high:g}]"
                    )
            if _decides(problem, name, values):
                raise ConfigError(
                    f"search.allowed_values.{name} changes which plans are legal: list it in space.plan instead"
                )

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """For each combination of `values`, solve for real numbers, then with `units` held below or above.

        Raises:
            ConfigError: see `refuse`; a unit with no whole number of it in range.
        """
        self.refuse(problem)
        return self.search(problem, Oracle(problem, rows_of(problem), self.proof.batch_size), seed, report)

    def search(self, problem: Problem, oracle: Oracle, seed: int, report: Report = silent) -> Trace:
        """Search as `run` does, on rows of the problem that are there already."""
        on_progress, listed = in_values(report, problem.wanted), self._listed(oracle)
        real: list[Real] = []
        tried: list[tuple[dict[int, float], Outcome]] = []
        work, ended = FixedCoordinateWork(problem, self.proof, self._proven(oracle, listed), seed), ""
        try:
            for one in self._reals(oracle, listed, work, on_progress):
                real.append(one)
                one.outcome.unless_interrupted()
            close = self._wholes(oracle, real, work, _named(on_progress, "integer, "))
            for one in sorted(real, key=lambda one: one.outcome.upper):
                least = min((outcome.upper for _, outcome in tried), default=math.inf)
                if one.outcome.bounding.plan >= 0 and one.outcome.lower < least:
                    for held in self._around(oracle, one):
                        tried.append((held, one.outcome if held == one.held else close(held)))
                        tried[-1][1].unless_interrupted()
        except ConfigError:
            raise
        except (CodesignError, KeyboardInterrupt) as error:
            ended = str(error) or INTERRUPTED
            if not self.step:  # what was found at a listed value is an answer already
                tried = [(one.held, one.outcome) for one in real if one.outcome.bounding.plan >= 0]
            if not any(one.outcome.bounding.plan >= 0 for one in real):
                raise
        if not any(one.outcome.bounding.plan >= 0 for one in real):
            return self._none(problem, seed, report)
        return self._traced(oracle, RoundingRecord(real, tried, len(real) == len(listed), ended))

    def _traced(self, oracle: Oracle, result: RoundingRecord) -> Trace:
        """The best whole design, bounded by the real optima of everything listed."""
        stopped = result.ended or result.stopped
        verdict = next((one.verdict for one in result.real if not one.verdict.convex), result.real[0].verdict)
        first = min(result.real, key=lambda one: one.outcome.upper)
        counts = first.outcome.counts | {"integer": len(result.tried), "points": oracle.evaluated}
        seconds = {"integer": sum(outcome.seconds for outcome in result.outcomes)}
        wanted, complete = oracle.problem.wanted, result.complete

        def certificate_at(upper: float, **more: Any) -> Certificate:
            reason = verdict.reason or stopped
            convex, closed = verdict.convex, not stopped
            return certify(
                wanted, upper, result.lower, convex=convex, closed=closed, reason=reason, bounded=complete, **more
            )

        held, best = min(result.tried, key=lambda pair: pair[1].upper, default=(dict[int, float](), first.outcome))
        if not result.tried or best.bounding.plan < 0:
            points = designs_of(
                oracle, np.array([first.outcome.bounding.plan]), self._full(oracle, first.held, first.u)
            )
            claim = "no whole numbers next to the real optimum keep all constraints"
            claim = f"{stopped or claim}; the real optimum is shown, no proof"
            certificate = replace(certificate_at(math.inf), certified=False, reason=claim)
            evidence = self._evidence(result, certificate, {})
            return Trace(points, ["real"], counts, seconds, claim, certificate, evidence=evidence)
        explain = self.proof.explain and best.bounding.width
        explained = self._explained(oracle, held, best, wanted.sign) if explain else {}
        certificate = certificate_at(best.upper, **explained)  # the best one may have come down while it was explained
        designs = self._designs(oracle, result)
        claim = claim_of_integer(certificate)
        evidence = self._evidence(result, certificate, {name: float(column[0]) for name, column in designs.items()})
        method = ["integer"] * len(designs[next(iter(designs))])
        return Trace(designs, method, counts, seconds, claim, certificate, evidence=evidence)

    def _none(self, problem: Problem, seed: int, report: Report) -> Trace:
        """Trace of a search without feasible listed values; a design between them is no answer."""
        trace = self.proof.run(problem, seed, report)
        if trace.certificate is not None and trace.certificate.best is not None:
            trace.claim = "no listed values keep all constraints; a design between them is shown, no proof"
            none = replace(trace.certificate, best=None, gap=None, certified=False, reason=trace.claim)
            trace.certificate = none
            if trace.evidence is not None:
                trace.evidence.header["claim"] = none.claimed()
        return trace

    def _evidence(self, result: RoundingRecord, certificate: Certificate, design: dict[str, float]) -> Evidence | None:
        """Evidence of the bounds of all combinations; None where one of them has none."""
        parts = [one.evidence for one in result.real if one.evidence is not None]
        if not result.complete or len(parts) < len(result.real):
            return None
        columns = zip(*itertools.product(*self.allowed_values.values()), strict=True)
        evidence = together(parts, dict(zip(self.allowed_values, map(list, columns), strict=True)))
        evidence.header["claim"] = certificate.claimed(design)
        return evidence

    def _designs(self, oracle: Oracle, result: RoundingRecord) -> dict[str, np.ndarray]:
        """The best design of each combination that was closed, best first, its numbers exactly whole or as listed."""
        closed = result.tried if self.step else [(one.held, one.outcome) for one in result.real]
        closed = sorted((pair for pair in closed if pair[1].bounding.plan >= 0), key=lambda pair: pair[1].upper)
        plan = np.array([outcome.bounding.plan for _, outcome in closed])
        u = np.concatenate([self._full(oracle, held, outcome.bounding.u) for held, outcome in closed])
        points = designs_of(oracle, plan, u)
        points |= {name: np.round(points[name] / unit) * unit for name, unit in self.step.items()}
        for name, values in self.allowed_values.items():
            allowed = np.array(sorted(map(float, values)))
            points[name] = allowed[np.abs(points[name][:, None] - allowed).argmin(axis=1)]
        return points

    def _explained(self, oracle: Oracle, held: dict[int, float], best: Outcome, sign: float) -> dict[str, Any]:
        """Explain what binds with the counted numbers held, and which listed one lies at the end of its list."""
        bounding, free = best.bounding, best.bounding.programme.oracle
        explanation: dict[str, Any] = {}
        with contextlib.suppress(KeyboardInterrupt):
            polish(bounding, bounding.plan, 1e-7)
            explanation = held_by(free, bounding.plan, bounding.u, resources(bounding, 1e-7), sign)
            for name, values in self.allowed_values.items():
                ends = sorted(value for _, value in _coordinates(oracle, name, sorted(values)))
                at = held[oracle.variables.index(name)]
                if len(ends) > 1 and at in (ends[0], ends[-1]):
                    explanation["at_bounds"] += (Edge(name, "low" if at == ends[0] else "high"),)
        return explanation

    def _listed(self, oracle: Oracle) -> list[dict[int, float]]:
        """Coordinates of the values listed, all combinations; one that holds nothing without any."""
        options = [_coordinates(oracle, name, list(values)) for name, values in self.allowed_values.items()]
        return [dict(choice) for choice in itertools.product(*options)]

    def _proven(self, oracle: Oracle, listed: list[dict[int, float]]) -> bool:
        """True if one walk proves the rows for all values listed."""
        columns: dict[str, list[float]] = {}
        for held in listed:
            for at, value in held.items():
                columns.setdefault(oracle.variables[at], []).append(value)
        return not oracle.unproven(columns)

    def _reals(
        self, oracle: Oracle, listed: list[dict[int, float]], work: FixedCoordinateWork, report: Report
    ) -> Iterator[Real]:
        """The optimum of each combination of values, in their order."""
        if self.runner is not None:
            for result in held_by_runner(self.runner, work, listed, True, report):
                oracle.evaluated += result.points
                yield result.real(oracle)
            return
        for number, held in enumerate(listed):
            prefix = f"{number + 1} of {len(listed)}, " if len(listed) > 1 else ""
            yield optimum(oracle, held, self.proof, work.proven, work.seed, _named(report, prefix))

    def _wholes(self, oracle: Oracle, real: list[Real], work: FixedCoordinateWork, report: Report) -> Closing:
        """Return the search of a combination of integers: run here, or looked up among those that a runner has run."""
        if self.runner is None:
            return lambda held: closed(oracle, held, self.proof, work.seed, report)
        fixed_points = {tuple(sorted(held.items())): held for one in real if one.outcome.bounding.plan >= 0
                 for held in self._around(oracle, one) if held != one.held}  # fmt: skip
        outcomes: dict[Coordinates, Outcome] = {}
        for result in (
            held_by_runner(self.runner, work, list(fixed_points.values()), False, report) if fixed_points else ()
        ):
            oracle.evaluated += result.points
            outcomes[result.part.held] = result.outcome.over(
                Programme(FixedCoordinateOracle(oracle, dict(result.part.held)))
            )
        return lambda held: outcomes[tuple(sorted(held.items()))]

    def _around(self, oracle: Oracle, real: Real) -> list[dict[int, float]]:
        """Coordinates of the whole numbers around a real optimum, all combinations."""
        u = self._full(oracle, real.held, real.outcome.bounding.u)[0]
        options: list[list[tuple[int, float]]] = []
        for name, unit in self.step.items():
            index, variable = oracle.variables.index(name), oracle.problem.space.hardware[name]
            number = variable.low * (variable.high / variable.low) ** u[index] / unit
            around = {math.floor(number + 1e-9), math.ceil(number - 1e-9)}
            inside = [n for n in sorted(around) if variable.low * (1 - 1e-9) <= n * unit <= variable.high * (1 + 1e-9)]
            if not inside:
                raise ConfigError(f"search.step.{name} = {unit:g}: no whole number of it next to {number:.3g} in range")
            options.append(_coordinates(oracle, name, [n * unit for n in inside]))
        return [real.held | dict(choice) for choice in itertools.product(*options)]

    def _full(self, oracle: Oracle, held: dict[int, float], u: np.ndarray) -> np.ndarray:
        """[1, variables] all coordinates from the free ones."""
        return FixedCoordinateOracle(oracle, held).full_point(u[None])

    @classmethod
    def example(cls, problem: Problem) -> "Integer":
        """The levels of the last variable."""
        name = problem.space.names[-1]
        values = [float(f"{value:.12g}") for value in levels(problem.space.hardware[name])]
        return cls({}, Certified(gap=5e-3, convexity_samples=64, batch_size=64, explain=False), {name: values})


def _named(report: Report, prefix: str) -> Report:
    """Say which of several searches it is that reports."""
    return lambda progress: report(replace(progress, stage=prefix + progress.stage))


def _decides(problem: Problem, name: str, values: Sequence[float]) -> bool:
    """True if values of a variable change workload or layout, of which plans are legal or not."""
    there = [problem.scenario] + [problem.space.place(problem.scenario, {name: float(value)}) for value in values]
    leaves = [jax.tree.leaves((scenario.workload, scenario.layout)) for scenario in there]
    return any(not np.array_equal(a, b) for one in leaves[1:] for a, b in zip(leaves[0], one, strict=True))


def _coordinates(oracle: Oracle, name: str, values: Sequence[float]) -> list[tuple[int, float]]:
    """(place of the variable, coordinate) of each value."""
    at = oracle.problem.space.coordinates({name: asarray(values)})[name]
    return [(oracle.variables.index(name), float(value)) for value in np.clip(np.asarray(at), 0.0, 1.0)]
