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
    claim_of_mix,
    claim_of_none,
    claim_of_whole,
    closed,
)
from ..search.results import Results
from ..verification import Asked, AskedMix, Refuted
from ..verification.model_answers import LEAST_SHARE
from .told_anew import closeness, counted, same

EDGE = 1e-3  # of the unit cube: what is nearer to a side than this lies at the end of its range
SLACK = 2e-8  # relative; what is taken off a bound before it is told
REFERENCE = 0.1  # of each metric's range on a front: so far beyond its worst value lies the hypervolume's reference
METHODS = ("certified", "robust", "integer", "real", "pareto", "mix", "grid")


def gap_asked(search: AbstractSearch) -> float | None:
    """The gap at which a search may call its answer certified; None of one that has none."""
    proof = getattr(search, "proof", search)
    return proof.gap if isinstance(proof, Certified | Mix | Pareto) else None


def claim_anew(study: Study, own: Certificate, counts: dict[str, Any]) -> str:
    """State the claim of a certificate in the words of the search that left it.

    Raises:
        Refuted: it says what no such certificate can.
    """
    search, plans = study.search, counts.get("plans", 0)
    if not isinstance(plans, int):
        raise Refuted(f"summary.json: counts.plans is {plans!r}, no whole number")
    if isinstance(search, Pareto) and own.front is not None:
        text = claim_of_front(own, search.gap)
    elif isinstance(search, Mix):
        text = claim_of_mix(own, plans, search.gap)
    elif own.best is not None:
        text = claim_of_whole(own) if isinstance(search, Integer) else claim_of_best(own, plans)
    elif (isinstance(search, Integer) and own.infeasible is None) or (
        isinstance(search, Amortised) and search.proof is None
    ):
        text = own.reason
    else:
        text = claim_of_none(own, plans)
    told = study.scenario.workload.words.assuming
    if told and own.assuming:
        text = f"bound under the assumption that {told}: {text.removeprefix(CERTIFIED)}"
    return text


def check_certificate(
    study: Study, asked: Asked | None, folder: RunFolder, results: Results, own: Certificate
) -> list[str]:
    """Check the statements of a certificate other than best, bound and gap, which are checked with the proof.

    Args:
        study, asked: what is searched for; of a mix there is no one question.
        folder: as it was left.
        results: derived anew.
        own: the certificate of the summary.

    Returns:
        Names of what does not follow from anything else.

    Raises:
        Refuted: naming the first thing that is not so.
    """
    told = folder.summary["certificate"]
    same("summary.json", told, _plain(own), "certificate", "what can be read")
    _check_words(study, own)
    if asked is not None and asked.cases is None and own.best is not None and own.front is None:
        known = float(results.best["objective" if asked.goal == asked.objective.goal else PLAN_PREFIX + asked.goal])
        if not math.isclose(own.best, known, rel_tol=closeness(study)):
            raise Refuted(f"summary.json: certificate.best is {own.best:.12g}, derived is {known:.12g}")
    rest = ["certificate.history"] * bool(own.history)
    _check_history(own)
    if own.constraints is not None and asked is not None:
        _check_used(own, asked, results, closeness(study))
        others = [entry.name for entry in dataclasses.fields(Binding) if entry.name not in ("constraint", "used")]
        rest += [f"certificate.constraints.{name}" for name in others if own.constraints]
    if own.at_bounds is not None and asked is not None:
        _check_edges(study.search, own, asked, folder)
    if own.front is not None:
        _check_front(own.front)
    rest += ["certificate.infeasible"] * bool(own.infeasible)
    rest += ["certificate.convexity.worst"] * bool(own.convexity and own.convexity.worst)
    rest += ["certificate.amortised"] * bool(own.amortised)
    rest += ["certificate.reason"] * bool(own.reason)
    rest += ["certificate.workloads.own_bound", "certificate.workloads.counts"] * bool(own.workloads)
    rest += ["certificate.workloads.own_design beyond its worth"] * bool(own.workloads)
    rest += ["certificate.bound_of_own_hardware"] * (own.bound_of_own_hardware is not None)
    known = {"open": 0} if own.certified and not isinstance(study.search, Mix) else {}
    if own.front is not None:
        known["designs on the front"] = len(own.front.points)
    if own.robust is not None:
        known["cases"] = len(own.robust.cases)
    rest += [name for name in counted(folder.summary["counts"], known) if name != "counts.plans"]
    rest += [f"seconds.{name}" for name in folder.summary["seconds"]]
    _check_methods(study, folder)
    return [f"summary.{name}" for name in rest]


def _plain(own: Certificate) -> Any:
    """Certificate in the plain form in which a file gives it back."""
    return json.loads(dumps(own.as_plain()))


def _check_methods(study: Study, folder: RunFolder) -> None:
    """Refute a design whose method is neither that of the study's search nor that of a part of it."""
    known = METHODS
    for kind, name in ((Certified, "certified"), (Inverse, "certified"), (Robust, "robust"), (Mix, "mix")):
        known = (name,) if isinstance(study.search, kind) else known
    if isinstance(study.search, Pareto):
        known = ("pareto", "certified")
    if isinstance(study.search, Integer):
        known = ("integer", "real", "certified")
    for name in dict.fromkeys(folder.designs["method"]):
        if name not in known and not isinstance(study.search, GridThenProof | Amortised):
            raise Refuted(f"designs.parquet: method {str(name)!r}, the search has {', '.join(known)}")


def _check_words(study: Study, own: Certificate) -> None:
    """Check the words of a certificate: certified, convex, assumed, and why not.

    Raises:
        Refuted: naming the word.
    """
    asked, assumed = gap_asked(study.search), study.scenario.workload.words.assuming
    if own.bound is not None and not own.convex:
        raise Refuted("summary.json: certificate has a bound of a model that it does not call convex")
    if own.convexity is not None and own.convex and (own.convexity.unproven or own.convexity.worst):
        raise Refuted("summary.json: certificate calls the model convex and has rows that are not proven")
    if own.convexity is not None and own.convex and own.convexity.pairs:
        raise Refuted("summary.json: certificate.convexity.pairs is not 0, although nothing had to be tested")
    if own.certified and own.reason:
        raise Refuted(f"summary.json: certified, and yet there is a reason why not: {own.reason}")
    if own.certified and not own.convex:
        raise Refuted("summary.json: certified, of a model that is not called convex")
    if own.certified and own.front is None and own.best is not None and asked is not None:
        limit = asked * LATE if isinstance(study.search, Mix) else asked
        if not closed(own.gap, limit):
            raise Refuted(f"summary.json: certified at a gap of {own.gap}, asked for is {asked:g}")
    if own.front is not None and asked is not None:
        for number, point in enumerate(own.front.points):
            if point.certified and not closed(None if point.gap is None else max(point.gap, 0.0), asked):
                raise Refuted(f"summary.json: design {number} of the front is certified at a gap of {point.gap}")
            if own.certified and not point.certified:
                raise Refuted(f"summary.json: a certified front has design {number}, which is not")
    if not own.certified and own.convex and not own.reason and own.front is None and not isinstance(study.search, Mix):
        raise Refuted("summary.json: neither certified, nor a reason why not")
    if (
        isinstance(study.search, Mix)
        and not own.certified
        and own.convex
        and not own.reason
        and (asked is not None and closed(own.gap, asked))
    ):
        raise Refuted(f"summary.json: a mix with a gap of {own.gap} is not called certified")
    if own.assuming not in ("", assumed):
        raise Refuted(f"summary.json: assumed is {own.assuming!r}, of this workload {assumed!r}")
    if assumed and own.certified and not own.assuming:
        raise Refuted(f"summary.json: certified without saying that it is assumed that {assumed}")


def _check_history(own: Certificate) -> None:
    """Seconds rise; nothing is better than the best, and no bound says more than the one that is claimed.

    Raises:
        Refuted: naming the first row.
    """
    sign, before = 1.0 if own.sense == "minimise" else -1.0, -math.inf
    for number, row in enumerate(own.history or ()):
        if not all(value is None or _positive(value) for value in row[1:]) or not isinstance(
            cast(object, row[0]), int | float
        ):
            raise Refuted(f"summary.json: certificate.history[{number}] is {list(row)}")
        seconds, best, bound = row
        if seconds < before or seconds < 0:
            raise Refuted(f"summary.json: certificate.history[{number}] goes back in time")
        before = seconds
        if best is not None and own.best is not None and sign * math.log(best / own.best) < -SLACK:
            raise Refuted(
                f"summary.json: certificate.history[{number}] has a best of {best:.9g}, best is {own.best:.9g}"
            )
        if bound is not None and own.bound is not None and sign * math.log(bound / own.bound) > SLACK:
            raise Refuted(
                f"summary.json: certificate.history[{number}] has a bound of {bound:.9g}, not {own.bound:.9g}"
            )


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _check_used(own: Certificate, asked: Asked, results: Results, close: float) -> None:
    """The used share of each constraint at the best design; with several cases, of the worst.

    Raises:
        Refuted: naming the constraint.
    """
    best = results.best
    point = {name: float(best[PLAN_PREFIX + name]) for name in (*asked.space.plan, *asked.space.hardware)}
    if asked.cases is None:
        shares = {str(name).removeprefix("limit."): float(best[name]) for name in best.index if "limit." in str(name)}
    else:
        shares = _shares(asked, point)
    for row in own.constraints or ():
        known = shares.get(row.constraint)
        if known is not None and not _same_share(row.used, known, close):
            raise Refuted(f"summary.json: {row.constraint} is used to {row.used:.12g}, derived is {known:.12g}")
    absent = [name for name in shares if name not in {row.constraint for row in own.constraints or ()}]
    if absent and own.constraints:
        raise Refuted(f"summary.json: certificate.constraints has no {absent[0]}")


def _same_share(told: float, derived: float, close: float) -> bool:
    """True if a used share is the derived one; what uses nothing is told as the least share that has a logarithm."""
    return math.isclose(told, max(derived, LEAST_SHARE), rel_tol=close) or told == derived


def _shares(asked: Asked, point: dict[str, float]) -> dict[str, float]:
    """Used share of each constraint by a design, in the case where it is largest."""
    each = [asked.objective.usages(asked.metrics(point, scenario)) for scenario in asked.scenarios]
    return {name: max(float(one[name]) for one in each) for name in each[0]}


def check_workloads(study: Study, asked: AskedMix, own: Certificate) -> None:
    """Check what is told of each workload of a mix: its goal and weight, used shares, what sharing costs.

    Raises:
        Refuted: naming workload and value.
    """
    close = closeness(study)
    for row, weight, (name, one) in zip(own.workloads or (), asked.weights, asked.workloads.items(), strict=True):
        if (row.workload, row.goal, row.weight) != (name, one.goal, weight):
            raise Refuted(
                f"summary.json: a workload is {row.workload}, {row.goal}, {row.weight:g}; asked for is {name}"
            )
        for constraint, share in _shares(one, row.design).items():
            told = row.used.get(constraint, math.nan)
            if not _same_share(told, share, close):
                raise Refuted(f"summary.json: {name} uses {told} of {constraint}, derived is {share:.12g}")
        if row.costs is None or row.value is None or row.own_best is None:
            continue
        costs = math.expm1(one.sign * (math.log(row.value) - math.log(row.own_best)))
        if not math.isclose(row.costs, costs, rel_tol=close, abs_tol=1e-12):
            raise Refuted(f"summary.json: sharing costs {name} {row.costs}, derived is {costs:.12g}")


def _check_edges(search: AbstractSearch, own: Certificate, asked: Asked, folder: RunFolder) -> None:
    """Variables at an end of their range, at the best design.

    Raises:
        Refuted: there are others.
    """
    best = folder.best
    free = [name for name in asked.space.names if name not in asked.values and name not in asked.units]
    point = {name: float(best[PLAN_PREFIX + name]) for name in asked.space.hardware}
    result = asked.space.coordinates({name: asarray(value) for name, value in point.items()})
    u = {name: float(np.clip(np.asarray(result[name]), 0.0, 1.0)) for name in free}
    known = {name: "low" if at < EDGE else "high" for name, at in u.items() if at < EDGE or at > 1 - EDGE}
    for name, values in asked.values.items():
        ends = sorted({float(value) for value in values})
        if len(ends) > 1 and point[name] in (ends[0], ends[-1]):
            known[name] = "low" if point[name] == ends[0] else "high"
    told = {edge.variable: edge.at for edge in own.at_bounds or ()}
    near = {name for name, at in u.items() if min(abs(at - EDGE), abs(1 - EDGE - at)) < 1e-9}
    for name in (*known, *told):
        if told.get(name) != known.get(name) and name not in near:
            raise Refuted(f"summary.json: {name} is at {told.get(name) or 'no bound'}, derived is {known.get(name)}")


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
    known = np.exp(signs * (logs.max(axis=0) + REFERENCE * np.where(span > 0, span, 1.0)))
    for name, value in zip(front.metrics, known.tolist(), strict=True):
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
