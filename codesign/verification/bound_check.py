"""The whole check: what is stored, that it covers the space, what it proves, the best design, and an attack."""

import dataclasses
import math
import shlex
from collections.abc import Mapping

import numpy as np
from jaxtyping import Int

from ..core.jax_typed import asarray
from ..study.design_space import ordered, shown
from ..study.objective import feasible
from .attack import Attack, aims_of, sample
from .coverage import PlanCover, cover
from .curvature_of_rows import Directions, check_directions, check_structure
from .derivation import (
    Answer,
    AttackEffort,
    Derivation,
    Refuted,
    Report,
    StatedClaim,
    alike,
    answered,
    attacked,
    least_designs,
    quiet,
)
from .inequality import WeightedSums, derive, lower_of
from .model_answers import CheckedModel, VerifiedProblem

__all__ = ["CheckedModel", "check_claim", "check_listed", "described", "listed_plans", "priced", "verify"]

SAME = 1e-8  # relative; how far a value may lie outside what it may be, for rounding
VALUE = 1e-9  # relative; how well claimed values and those derived here must agree; a bound must hold as it stands
LISTED = 1 << 16  # legal plans that designs are drawn from
SPREAD = 1 << 14  # of them at least, where variables are listed too
SMALLEST = 1e-12  # gap that is none


def verify(
    problem: VerifiedProblem,
    claim: StatedClaim,
    certificate: Derivation | Refuted | None,
    attack: int | AttackEffort,
    seed: int,
    report: Report = quiet,
    model: CheckedModel | None = None,
) -> Answer:
    """Check a claim about a study.

    Args:
        problem: the study.
        claim: what a search says about it.
        certificate: what that rests on, or why it cannot be one; None where nothing is claimed.
        attack: designs to try.
        seed: of these.
        report: hears stage, done and total.
        model: that of the study, where it is compiled already.
    """
    rng = np.random.default_rng(seed)
    return answered(lambda answer: _verify(answer, problem, claim, certificate, attack, rng, report, model))


def _verify(
    answer: Answer,
    problem: VerifiedProblem,
    claim: StatedClaim,
    certificate: Derivation | Refuted | None,
    attack: int | AttackEffort,
    rng: np.random.Generator,
    report: Report,
    model: CheckedModel | None,
) -> None:
    if isinstance(certificate, Refuted):
        raise certificate
    check_claim(claim, problem.goal, problem.sign)
    if claim.bound is None and not claim.infeasible:  # nothing rests on what was noted
        certificate = None
    if certificate is not None and not certificate.held:  # a proof for all values, those that are listed among them
        problem = dataclasses.replace(problem, values={})
    sums, covered = None, None
    if problem.cases is not None:
        count, words = len(problem.scenarios), problem.cases.words(problem.sign)
        answer.checks.append(
            f"designs are judged in {count} cases: {problem.goal} is {words} of theirs, limits hold in each"
        )
    if claim.design:
        answer.checks.append(_check_design(claim, problem))
    elif claim.best is not None and certificate is not None:
        raise Refuted(f"best design: {problem.goal} {claim.best:.9g} is claimed, but no design is kept")
    model = model or CheckedModel(problem)
    if certificate is not None:
        report("covering the space", 0, 1)
        covered = cover(certificate, problem, model)
        problem.legal.check(rng)
        values_text = f", with {_listed(problem)}" if certificate.held else ""
        answer.checks.append(f"{len(certificate.low):,} nodes stand for {covered.text}{values_text}")
        report("curvature", 0, 1)
        proven, text = set[tuple[str, str]](), "nothing but the plan varies: rows of groups are bounded by their ranges"
        if not certificate.ranges:
            proven, text = check_structure(certificate, model)
        answer.checks.append(text)
        sums = derive(certificate, model, lambda done, total: report("bounds anew", done, total))
        lower = lower_of(certificate, sums)
        answer.checks.append(_check_bound(certificate, lower, problem))
        directions = Directions()
        if not certificate.ranges:
            directions = check_directions(
                certificate, model, rng, proven, lambda done, total: report("directions", done, total)
            )
        if directions.text:
            answer.checks.append(directions.text)
        answer.numbers |= {"nodes": len(certificate.low), "cuts": len(certificate.node), "plans": covered.plans}
        answer.numbers |= {"every_plan": covered.exact, "distinct_plans": covered.distinct}
        answer.numbers |= {"directions_tested": directions.tested, "directions_proven": directions.proven}
        answer.numbers["bound"] = _value(claim, float(lower.min()))
    tried = _attacker(problem, claim, model, certificate, sums, covered)
    alike(tried.compare(least_designs(attack), rng))
    lanes = attacked(tried, attack, rng, report)
    tried.refuse(lambda index, u: described(problem, tried.lists, index, u), _claimed(claim, problem))
    answer.checks.append(_attacked(tried, lanes, claim))
    answer.numbers |= {"tried": tried.tried, "feasible": tried.feasible, "polished": lanes, "held": tried.held}
    answer.numbers["best_of_attack"] = _value(claim, tried.best)
    answer.line = _line(claim, problem, certificate, tried)


def check_claim(claim: StatedClaim, goal: str, sign: float) -> None:
    """The claim must be about this goal of the study, and its numbers must agree with each other.

    Raises:
        Refuted: naming what does not.
    """
    if (claim.goal, claim.sign) != (goal, sign):
        sense = "minimise" if sign > 0 else "maximise"
        raise Refuted(f"the claim is to {claim.sense} {claim.goal}, the study asks to {sense} {goal}")
    if claim.infeasible and (claim.best is not None or claim.bound is not None):
        raise Refuted("the claim is that nothing is feasible, and yet it has a best design or a bound")
    if claim.bound is None or claim.best is None:
        if claim.gap is not None:
            raise Refuted(f"the claimed gap {claim.gap:.3g} has no bound or no best design")
        return
    gap = math.expm1(claim.sign * (math.log(claim.best) - math.log(claim.bound)))
    if claim.gap is None or abs(gap - claim.gap) > SMALLEST * (1 + abs(gap)):
        raise Refuted(f"best {claim.best:.9g} and bound {claim.bound:.9g} are {gap:.6g} apart, claimed is {claim.gap}")
    if gap < -SAME:
        raise Refuted(f"the claimed best {claim.best:.9g} is better than the claimed bound {claim.bound:.9g}")


def _check_design(claim: StatedClaim, problem: VerifiedProblem) -> str:
    """The best design: sound, and worth what is claimed."""
    value = priced(problem, claim.design, "best design")
    if claim.best is None or not abs(value / claim.best - 1) <= VALUE:
        raise Refuted(f"best design: {problem.goal} is {value:.9g}, claimed is {claim.best}")
    return f"the best design is feasible and has {problem.goal} {value:.9g}, as claimed"


def priced(problem: VerifiedProblem, point: Mapping[str, float], whose: str) -> float:
    """The goal of a design that is listed, legal, inside the box and feasible.

    Raises:
        Refuted: what it is not.
    """
    space = problem.space
    names = {*space.plan, *space.hardware}
    if not names <= set(point):
        raise Refuted(f"{whose}: {sorted(names - set(point))[0]} has no value")
    for name, values in space.lists.items():
        if point[name] not in values:
            raise Refuted(f"{whose}: {name} = {point[name]:g} is not listed in space.plan")
    for name, variable in space.hardware.items():
        if not variable.low * (1 - SAME) <= point[name] <= variable.high * (1 + SAME):
            raise Refuted(f"{whose}: {name} = {point[name]:g} is outside {variable.low:g} to {variable.high:g}")
    check_listed(problem, point, whose)
    value, excess = problem.priced(dict(point))
    if not feasible(excess):
        raise Refuted(f"{whose}: it breaks a constraint by {excess:.3g}")
    return value


def _listed(problem: VerifiedProblem) -> str:
    """`every value of radix (4), wavelengths (3)`."""
    return "every value of " + ", ".join(f"{name} ({len(problem.lists[name])})" for name in sorted(problem.values))


def check_listed(problem: VerifiedProblem, point: Mapping[str, float], whose: str) -> None:
    """A design takes listed values where values are listed, and a whole number of units where these are named.

    Raises:
        Refuted: naming the first variable that does not.
    """
    for name, values in problem.values.items():
        if point[name] not in values:
            raise Refuted(f"{whose}: {name} = {point[name]:.9g} is not listed in search.allowed_values.{name}")
    for name, unit in problem.units.items():
        number = point[name] / unit
        if not abs(number - round(number)) <= SAME * max(number, 1.0):
            raise Refuted(f"{whose}: {name} = {point[name]:.9g} is {number:.6g} of search.step.{name}, not whole")


def _check_bound(certificate: Derivation, lower: np.ndarray, problem: VerifiedProblem) -> str:
    """No node's bound may lie below the claim."""
    claim = certificate.claim
    low = int(np.argmin(lower))
    derived = float(lower[low])
    if not derived >= claim.log_bound:
        wanted = "no design feasible" if claim.infeasible else f"{claim.bound:.9g}"
        raise Refuted(f"{certificate.named(low)}: its bound is {_value(claim, derived):.9g}, claimed is {wanted}")
    if claim.infeasible:
        return f"the constraints of each of {len(lower):,} nodes cannot hold together"
    ruled = int(np.isinf(lower).sum())
    return (
        f"bound derived anew from {len(certificate.node):,} weighted tangents at {len(certificate.u):,} points:"
        f" {problem.goal} {_value(claim, derived):.9g}; {ruled:,} nodes ruled out by their constraints alone"
    )


def _value(claim: StatedClaim, log: float) -> float | None:
    return math.exp(claim.sign * log) if math.isfinite(log) else None


def _attacker(
    problem: VerifiedProblem,
    claim: StatedClaim,
    model: CheckedModel,
    certificate: Derivation | None,
    sums: WeightedSums | None,
    covered: PlanCover | None,
) -> Attack:
    lists = list(problem.lists.values())
    start = None
    if claim.design:
        index = sample(np.array([[claim.design[name] for name in problem.lists]]), lists)
        values = {name: asarray(claim.design[name]) for name in problem.variables}
        result = problem.space.coordinates(values)
        start = index, np.clip(np.array([[float(result[name]) for name in problem.variables]]), 0.0, 1.0)
    listed = listed_plans(problem)
    low, high, listed_fully = listed[:0], listed[:0], False
    if certificate is not None and not certificate.ranges:  # of plans of a group by ranges not all are legal
        low, high = certificate.low, certificate.high
        listed_fully = not problem.variables and np.array_equal(low, high)
    return Attack(
        model, lists, listed, low, high, lambda rows: claim.log_bound - rows[:, 0], aims_of(model), start,
        certificate, sums, covered, listed_fully,
    )  # fmt: skip


def listed_plans(problem: VerifiedProblem) -> Int[np.ndarray, "plans fields"]:
    """Places of legal plans of the study, at random where they are many, with random values of listed variables.

    Raises:
        Refuted: the study has no legal plan.
    """
    rng = np.random.default_rng(0)
    plans = problem.legal.sample(rng, LISTED)
    if len(plans) == 0:
        raise Refuted("no plan of the study is legal")
    names = sorted(problem.values)
    values = [rng.integers(0, len(problem.lists[name]), max(len(plans), SPREAD)) for name in names]
    indices = sample(plans, list(problem.lists.values())[: len(problem.space.plan)])
    if names:
        indices = np.concatenate(
            [np.resize(indices, (len(values[0]), indices.shape[1])), np.stack(values, axis=-1)], axis=-1
        )
    return indices


def described(problem: VerifiedProblem, lists: list[np.ndarray], index: np.ndarray, u: np.ndarray) -> str:
    """A design with its goal and what `codesign evaluate` needs to price it again."""
    chosen = {name: float(lists[j][index[j]]) for j, name in enumerate(problem.lists)}
    plan = {name: chosen[name] for name in problem.space.plan}
    result = problem.space.values({name: asarray(u[i]) for i, name in enumerate(problem.variables)})
    hardware = {name: float(result[name]) if name in result else chosen[name] for name in problem.space.names}
    value, excess = problem.priced(plan | hardware)
    scenario, leaves, where = problem.scenario, {}, ""
    if problem.cases is not None:
        goals, violations = problem.in_cases(plan | hardware)
        worst = problem.cases.worst(problem.sign * np.log(goals), violations)
        scenario, leaves = problem.cases.every[worst].scenario, dict(problem.cases.every[worst].moved)
        where = f"; case {worst + 1} of {len(goals)}, which has {goals[worst]:.9g}, follows"
    for name in ordered(problem.space.hardware):
        leaves |= problem.space.hardware[name].leaves(scenario, hardware[name], leaves)
    words = [f"plan.{name}={shown(name, number)}" for name, number in plan.items()]
    words = [shlex.quote(word) for word in (*words, *(f"{path}={float(leaf)!r}" for path, leaf in leaves.items()))]
    return f"{problem.goal} {value:.9g} (largest violation {max(excess, 0.0):.2g}{where}): {' '.join(words)}"


def _claimed(claim: StatedClaim, problem: VerifiedProblem) -> str:
    if claim.infeasible:
        return "claimed is that no design is feasible"
    better = "below" if claim.sign > 0 else "above"
    return f"claimed is that no design's {problem.goal} is {better} {claim.bound:.9g}" if claim.bound else "nothing"


def _attacked(tried: Attack, lanes: int, claim: StatedClaim) -> str:
    best = _value(claim, tried.best)
    result = "none feasible" if best is None else f"best {best:.9g}"
    held = f"; the inequality of its node held at {tried.held:,} of them" if tried.held else ""
    return f"attack: {tried.tried:,} designs, {tried.feasible:,} feasible, {lanes} polished, {result}{held}"


def _line(claim: StatedClaim, problem: VerifiedProblem, certificate: Derivation | None, tried: Attack) -> str:
    """The answer in one line."""
    if certificate is None or (claim.bound is None and not claim.infeasible):
        better = claim.best is not None and tried.best < claim.sign * math.log(claim.best) - SAME
        beside = f"; the attack found a better design, {_value(claim, tried.best):.9g}" if better else ""
        held = "it found no design" if claim.best is None else "what it found is as it says"
        return f"nothing claimed to verify: the search proves nothing, {held}{beside}"
    if claim.infeasible:
        return (
            f"verified: no design of {problem.space.combinations:,} combinations of plan values keeps all constraints"
        )
    better = "below" if claim.sign > 0 else "above"
    best = "no design found" if claim.best is None else f"best {claim.best:.9g}, gap {claim.gap:.3%}"
    return f"verified: no {problem.goal} {better} {claim.bound:.9g}; {best}"
