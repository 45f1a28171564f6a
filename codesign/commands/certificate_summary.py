"""The certificate of `summary.json`, from which terminal and report are made: what of it follows from other files."""

import dataclasses
import json
import math
from typing import Any, cast

import numpy as np

from ..config import Study
from ..core.jax_typed import asarray
from ..core.json_yaml import dumps, is_mapping
from ..core.pareto_tools import knee
from ..report.run_folder import PLAN_PREFIX, RunFolder
from ..search import AbstractSearch, Amortised, Certified, GridThenProof, Integer, Inverse, Mix, Pareto, Robust
from ..search.base import CERTIFIED
from ..search.certificate import (
    LATE,
    Binding,
    Certificate,
    ProvenFront,
    claim_of_best,
    claim_of_front,
    claim_of_integer,
    claim_of_mix,
    claim_of_none,
    closed,
)
from ..search.results import Results
from ..verification import ConfiguredMix, Refuted, VerifiedProblem
from ..verification.model_answers import LEAST_SHARE
from .rederivation import closeness, counted, same

EDGE = 1e-3  # of the unit cube: what is nearer to a side than this lies at the end of its range
SLACK = 2e-8  # relative; what is taken off a bound before it is told
REFERENCE = 0.1  # of each metric's range on a front: so far beyond its worst value lies the hypervolume's reference
METHODS = ("certified", "robust", "integer", "real", "pareto", "mix", "grid")


def required_gap(search: AbstractSearch) -> float | None:
    """The gap at which a search may call its answer certified; None of one that has none."""
    proof = getattr(search, "proof", search)
    return proof.gap if isinstance(proof, Certified | Mix | Pareto) else None


def claim_anew(study: Study, certificate: Certificate, counts: dict[str, Any]) -> str:
    """State the claim of a certificate in the words of the search that left it.

    Raises:
        Refuted: it says what no such certificate can.
    """
    search, plans = study.search, counts.get("plans", 0)
    if not isinstance(plans, int):
        raise Refuted(f"summary.json: counts.plans is {plans!r}, no whole number")
    if isinstance(search, Pareto) and certificate.front is not None:
        text = claim_of_front(certificate, search.gap)
    elif isinstance(search, Mix):
        text = claim_of_mix(certificate, plans, search.gap)
    elif certificate.best is not None:
        text = claim_of_integer(certificate) if isinstance(search, Integer) else claim_of_best(certificate, plans)
    elif (isinstance(search, Integer) and certificate.infeasible is None) or (
        isinstance(search, Amortised) and search.proof is None
    ):
        text = certificate.reason
    else:
        text = claim_of_none(certificate, plans)
    assumption = study.scenario.workload.words.assuming
    if assumption and certificate.assuming:
        text = f"bound under the assumption that {assumption}: {text.removeprefix(CERTIFIED)}"
    return text


def check_certificate(
    study: Study, problem: VerifiedProblem | None, folder: RunFolder, results: Results, certificate: Certificate
) -> list[str]:
    """Check the statements of a certificate other than best, bound and gap, which are checked with the proof.

    Args:
        study, problem: what is searched for; of a mix there is no one question.
        folder: as it was left.
        results: derived anew.
        certificate: the certificate of the summary.

    Returns:
        Names of what does not follow from anything else.

    Raises:
        Refuted: naming the first thing that is not so.
    """
    summary = folder.summary["certificate"]
    same("summary.json", summary, _plain(certificate), "certificate", "what can be read")
    _check_words(study, certificate)
    if problem is not None and problem.cases is None and certificate.best is not None and certificate.front is None:
        best_value = float(
            results.best["objective" if problem.goal == problem.objective.goal else PLAN_PREFIX + problem.goal]
        )
        if not math.isclose(certificate.best, best_value, rel_tol=closeness(study)):
            raise Refuted(f"summary.json: certificate.best is {certificate.best:.12g}, derived is {best_value:.12g}")
    rest = ["certificate.history"] * bool(certificate.history)
    _check_history(certificate)
    if certificate.constraints is not None and problem is not None:
        _check_used(certificate, problem, results, closeness(study))
        others = [entry.name for entry in dataclasses.fields(Binding) if entry.name not in ("constraint", "used")]
        rest += [f"certificate.constraints.{name}" for name in others if certificate.constraints]
    if certificate.at_bounds is not None and problem is not None:
        _check_edges(study.search, certificate, problem, folder)
    if certificate.front is not None:
        _check_front(certificate.front)
    rest += ["certificate.infeasible"] * bool(certificate.infeasible)
    rest += ["certificate.convexity.worst"] * bool(certificate.convexity and certificate.convexity.worst)
    rest += ["certificate.amortised"] * bool(certificate.amortised)
    rest += ["certificate.reason"] * bool(certificate.reason)
    rest += ["certificate.workloads.own_bound", "certificate.workloads.counts"] * bool(certificate.workloads)
    rest += ["certificate.workloads.own_design beyond its worth"] * bool(certificate.workloads)
    rest += ["certificate.bound_of_own_hardware"] * (certificate.bound_of_own_hardware is not None)
    best_value = {"open": 0} if certificate.certified and not isinstance(study.search, Mix) else {}
    if certificate.front is not None:
        best_value["designs on the front"] = len(certificate.front.points)
    if certificate.robust is not None:
        best_value["cases"] = len(certificate.robust.cases)
    rest += [name for name in counted(folder.summary["counts"], best_value) if name != "counts.plans"]
    rest += [f"seconds.{name}" for name in folder.summary["seconds"]]
    _check_methods(study, folder)
    return [f"summary.{name}" for name in rest]


def _plain(certificate: Certificate) -> Any:
    """Certificate in the plain form in which a file gives it back."""
    return json.loads(dumps(certificate.as_plain()))


def _check_methods(study: Study, folder: RunFolder) -> None:
    """Refute a design whose method is neither that of the study's search nor that of a part of it."""
    methods = METHODS
    for kind, name in ((Certified, "certified"), (Inverse, "certified"), (Robust, "robust"), (Mix, "mix")):
        methods = (name,) if isinstance(study.search, kind) else methods
    if isinstance(study.search, Pareto):
        methods = ("pareto", "certified")
    if isinstance(study.search, Integer):
        methods = ("integer", "real", "certified")
    for name in dict.fromkeys(folder.designs["method"]):
        if name not in methods and not isinstance(study.search, GridThenProof | Amortised):
            raise Refuted(f"designs.parquet: method {str(name)!r}, the search has {', '.join(methods)}")


def _check_words(study: Study, certificate: Certificate) -> None:
    """Check the words of a certificate: certified, convex, assumed, and why not.

    Raises:
        Refuted: naming the word.
    """
    required, assumed = required_gap(study.search), study.scenario.workload.words.assuming
    if certificate.bound is not None and not certificate.convex:
        raise Refuted("summary.json: certificate has a bound of a model that it does not call convex")
    if (
        certificate.convexity is not None
        and certificate.convex
        and (certificate.convexity.unproven or certificate.convexity.worst)
    ):
        raise Refuted("summary.json: certificate calls the model convex and has rows that are not proven")
    if certificate.convexity is not None and certificate.convex and certificate.convexity.pairs:
        raise Refuted("summary.json: certificate.convexity.pairs is not 0, although nothing had to be tested")
    if certificate.certified and certificate.reason:
        raise Refuted(f"summary.json: certified, and yet there is a reason why not: {certificate.reason}")
    if certificate.certified and not certificate.convex:
        raise Refuted("summary.json: certified, of a model that is not called convex")
    if certificate.certified and certificate.front is None and certificate.best is not None and required is not None:
        limit = required * LATE if isinstance(study.search, Mix) else required
        if not closed(certificate.gap, limit):
            raise Refuted(f"summary.json: certified at a gap of {certificate.gap}, asked for is {required:g}")
    if certificate.front is not None and required is not None:
        for number, point in enumerate(certificate.front.points):
            if point.certified and not closed(None if point.gap is None else max(point.gap, 0.0), required):
                raise Refuted(f"summary.json: design {number} of the front is certified at a gap of {point.gap}")
            if certificate.certified and not point.certified:
                raise Refuted(f"summary.json: a certified front has design {number}, which is not")
    if (
        not certificate.certified
        and certificate.convex
        and not certificate.reason
        and certificate.front is None
        and not isinstance(study.search, Mix)
    ):
        raise Refuted("summary.json: neither certified, nor a reason why not")
    if (
        isinstance(study.search, Mix)
        and not certificate.certified
        and certificate.convex
        and not certificate.reason
        and (required is not None and closed(certificate.gap, required))
    ):
        raise Refuted(f"summary.json: a mix with a gap of {certificate.gap} is not called certified")
    if certificate.assuming not in ("", assumed):
        raise Refuted(f"summary.json: assumed is {certificate.assuming!r}, of this workload {assumed!r}")
    if assumed and certificate.certified and not certificate.assuming:
        raise Refuted(f"summary.json: certified without saying that it is assumed that {assumed}")


def _check_history(certificate: Certificate) -> None:
    """Seconds rise; nothing is better than the best, and no bound says more than the one that is claimed.

    Raises:
        Refuted: naming the first row.
    """
    sign, before = 1.0 if certificate.sense == "minimise" else -1.0, -math.inf
    for number, row in enumerate(certificate.history or ()):
        if not all(value is None or _positive(value) for value in row[1:]) or not isinstance(
            cast(object, row[0]), int | float
        ):
            raise Refuted(f"summary.json: certificate.history[{number}] is {list(row)}")
        seconds, best, bound = row
        if seconds < before or seconds < 0:
            raise Refuted(f"summary.json: certificate.history[{number}] goes back in time")
        before = seconds
        if best is not None and certificate.best is not None and sign * math.log(best / certificate.best) < -SLACK:
            raise Refuted(
                f"summary.json: certificate.history[{number}] has a best of {best:.9g}, best is {certificate.best:.9g}"
            )
        if bound is not None and certificate.bound is not None and sign * math.log(bound / certificate.bound) > SLACK:
            raise Refuted(
                f"summary.json: certificate.history[{number}] has a bound of {bound:.9g}, not {certificate.bound:.9g}"
            )


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _check_used(certificate: Certificate, question: VerifiedProblem, results: Results, close: float) -> None:
    """The used share of each constraint at the best design; with several cases, of the worst.

    Raises:
        Refuted: naming the constraint.
    """
    best = results.best
    point = {name: float(best[PLAN_PREFIX + name]) for name in (*question.space.plan, *question.space.hardware)}
    if question.cases is None:
        shares = {str(name).removeprefix("limit."): float(best[name]) for name in best.index if "limit." in str(name)}
    else:
        shares = _shares(question, point)
    for row in certificate.constraints or ():
        derived = shares.get(row.constraint)
        if derived is not None and not _same_share(row.used, derived, close):
            raise Refuted(f"summary.json: {row.constraint} is used to {row.used:.12g}, derived is {derived:.12g}")
    absent = [name for name in shares if name not in {row.constraint for row in certificate.constraints or ()}]
    if absent and certificate.constraints:
        raise Refuted(f"summary.json: certificate.constraints has no {absent[0]}")


def _same_share(stated: float, derived: float, close: float) -> bool:
    """True if a used share is the derived one; what uses nothing is told as the least share that has a logarithm."""
    return math.isclose(stated, max(derived, LEAST_SHARE), rel_tol=close) or stated == derived


def _shares(question: VerifiedProblem, point: dict[str, float]) -> dict[str, float]:
    """Used share of each constraint by a design, in the case where it is largest."""
    each = [question.objective.usages(question.metrics(point, scenario)) for scenario in question.scenarios]
    return {name: max(float(one[name]) for one in each) for name in each[0]}


def check_workloads(study: Study, question: ConfiguredMix, certificate: Certificate) -> None:
    """Check what is told of each workload of a mix: its goal and weight, used shares, what sharing costs.

    Raises:
        Refuted: naming workload and value.
    """
    close = closeness(study)
    for row, weight, (name, one) in zip(
        certificate.workloads or (), question.weights, question.workloads.items(), strict=True
    ):
        if (row.workload, row.goal, row.weight) != (name, one.goal, weight):
            raise Refuted(
                f"summary.json: a workload is {row.workload}, {row.goal}, {row.weight:g}; asked for is {name}"
            )
        for constraint, share in _shares(one, row.design).items():
            stated = row.used.get(constraint, math.nan)
            if not _same_share(stated, share, close):
                raise Refuted(f"summary.json: {name} uses {stated} of {constraint}, derived is {share:.12g}")
        if row.costs is None or row.value is None or row.own_best is None:
            continue
        costs = math.expm1(one.sign * (math.log(row.value) - math.log(row.own_best)))
        if not math.isclose(row.costs, costs, rel_tol=close, abs_tol=1e-12):
            raise Refuted(f"summary.json: sharing costs {name} {row.costs}, derived is {costs:.12g}")


def _check_edges(
    search: AbstractSearch, certificate: Certificate, question: VerifiedProblem, folder: RunFolder
) -> None:
    """Variables at an end of their range, at the best design.

    Raises:
        Refuted: there are others.
    """
    best = folder.best
    free = [name for name in question.space.names if name not in question.values and name not in question.units]
    point = {name: float(best[PLAN_PREFIX + name]) for name in question.space.hardware}
    result = question.space.coordinates({name: asarray(value) for name, value in point.items()})
    u = {name: float(np.clip(np.asarray(result[name]), 0.0, 1.0)) for name in free}
    by_name = {name: "low" if at < EDGE else "high" for name, at in u.items() if at < EDGE or at > 1 - EDGE}
    for name, values in question.values.items():
        ends = sorted({float(value) for value in values})
        if len(ends) > 1 and point[name] in (ends[0], ends[-1]):
            by_name[name] = "low" if point[name] == ends[0] else "high"
    stated_at = {edge.variable: edge.at for edge in certificate.at_bounds or ()}
    near = {name for name, at in u.items() if min(abs(at - EDGE), abs(1 - EDGE - at)) < 1e-9}
    for name in (*by_name, *stated_at):
        if stated_at.get(name) != by_name.get(name) and name not in near:
            raise Refuted(
                f"summary.json: {name} is at {stated_at.get(name) or 'no bound'}, derived is {by_name.get(name)}"
            )


def _check_front(front: ProvenFront) -> None:
    """The bend of a front and where its hypervolumes are measured to.

    Raises:
        Refuted: one of them is elsewhere.
    """
    signs = np.array([-1.0 if name in front.maximised else 1.0 for name in front.metrics])
    logs = np.log(np.array([[point.values[name] for name in front.metrics] for point in front.points])) * signs
    if front.knee != knee(logs):
        raise Refuted(f"summary.json: the front bends at design {front.knee}, derived is {knee(logs)}")
    span = np.ptp(logs, axis=0)
    reference_point = np.exp(signs * (logs.max(axis=0) + REFERENCE * np.where(span > 0, span, 1.0)))
    for name, value in zip(front.metrics, reference_point.tolist(), strict=True):
        if not math.isclose(front.reference.get(name, math.nan), value, rel_tol=1e-9):
            raise Refuted(
                f"summary.json: front.reference.{name} is {front.reference.get(name)}, derived is {value:.12g}"
            )


def check_plans(counts: dict[str, Any], plans: int | None) -> list[str]:
    """Plans that are told of, against the legal ones, of which those that are equal in every row count once.

    Raises:
        Refuted: another number.
    """
    if plans is None:
        return ["summary.counts.plans"] if "plans" in counts else []
    if is_mapping(counts) and counts.get("plans", plans) != plans:
        raise Refuted(f"summary.json: counts.plans is {counts.get('plans')}, there are {plans:,} plans that differ")
    return []
