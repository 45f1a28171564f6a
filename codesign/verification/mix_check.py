"""The whole check of a mix: its workloads' plans, rounds of duals, tuples that these leave, its designs, an attack."""

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from ..core.jax_typed import asarray
from .attack import sample
from .bound_check import LISTED, SAME, VALUE, check_claim, described, priced
from .coverage import cover
from .curvature_of_rows import check_structure
from .derivation import Answer, AttackEffort, Refuted, Report, StatedClaim, alike, answered, attacked, quiet
from .goals_blended import CheckedBlend
from .inequality import rows_in
from .mix_attack import MixAttack, Tuple
from .mix_bound import PlanCuts, bounded, replayed
from .mix_derivation import MixDerivation, Part
from .model_answers import CheckedModel, VerifiedProblem

# Question and designs of a mix, checked: the designs shown are sound, on one hardware, and worth what the run says.


@dataclass(frozen=True)
class WorkloadStatement:
    """Result of one workload in a run: its design, the goal's value, the best it could have on its own hardware."""

    design: dict[str, float]
    value: float
    own_design: dict[str, float]
    own_best: float | None


@dataclass(frozen=True)
class ConfiguredMix:
    """A mix as its configuration says it.

    workloads: name -> its own study. goal: what the blend is called. relative: goals over each workload's own best.
    """

    workloads: dict[str, VerifiedProblem]
    goal: str
    how: str
    weights: tuple[float, ...]
    tail: float
    relative: bool

    def blend(self, offset: np.ndarray) -> CheckedBlend:
        """Blend of the goals, less these logs."""
        return CheckedBlend(self.how, np.array(self.weights), self.tail, offset)


def offset_of(
    problem: ConfiguredMix, said: Sequence[WorkloadStatement], certificate: MixDerivation | None
) -> np.ndarray:
    """Logs that the goals are relative to: each workload's own best, which the run shows with its design.

    Raises:
        Refuted: they are not what the run says.
    """
    count = len(problem.workloads)
    stored = None if certificate is None else certificate.offset
    if stored is not None and len(stored) != count:
        raise Refuted(f"the certificate has {len(stored)} workloads, the mix {count}")
    shown = np.zeros(count)
    if said:
        for k, ((name, one), each) in enumerate(zip(problem.workloads.items(), said, strict=True)):
            if each.own_best is None:
                continue
            value = priced(one, each.own_design, f"{name}: its own best design")
            if not abs(value / each.own_best - 1) <= VALUE:
                raise Refuted(f"{name}: its own best design has {one.goal} {value:.9g}, said is {each.own_best:.9g}")
            shown[k] = one.sign * math.log(each.own_best) if problem.relative else 0.0
    elif problem.relative and stored is not None:
        raise Refuted("goals are relative to each workload's own best, but no designs are kept")
    if stored is not None and not np.allclose(stored, shown, rtol=0, atol=VALUE):
        raise Refuted("certificate.json: offset is not the log of what the run says that each workload could have")
    return shown if stored is None else stored


def check_designs(
    problem: ConfiguredMix, claim: StatedClaim, said: Sequence[WorkloadStatement], blend: CheckedBlend
) -> str:
    """Designs that are feasible on common hardware, and worth what is claimed."""
    logs, hardware = list[float](), None
    for (name, one), each in zip(problem.workloads.items(), said, strict=True):
        value = priced(one, each.design, f"{name}: its design")
        if not abs(value / each.value - 1) <= VALUE:
            raise Refuted(f"{name}: its design has {one.goal} {value:.9g}, said is {each.value:.9g}")
        hardware_stated = {variable: each.design[variable] for variable in one.space.hardware}
        if hardware is not None and hardware_stated != hardware:
            raise Refuted(f"{name}: its hardware is not that of the other workloads")
        hardware = hardware_stated
        logs.append(one.sign * math.log(value))
    blended = math.exp(float(blend.value(np.array(logs))))
    if claim.best is None or not abs(blended / claim.best - 1) <= VALUE:
        raise Refuted(f"the designs have {problem.goal} {blended:.9g}, claimed is {claim.best}")
    return f"{len(logs)} designs on common hardware are feasible and have {problem.goal} {blended:.9g}, as claimed"


def verify_mix(
    problem: ConfiguredMix,
    claim: StatedClaim,
    said: Sequence[WorkloadStatement],
    certificate: MixDerivation | Refuted | None,
    attack: int | AttackEffort,
    seed: int,
    report: Report = quiet,
    models: Sequence[CheckedModel] | None = None,
) -> Answer:
    """Check a claim about a mix.

    Args:
        problem: the mix.
        claim: what a search says about it.
        said: what it says of each workload; empty where no designs were found.
        certificate: what that rests on, or why it cannot be one; None where nothing is claimed.
        attack: designs to try, of all workloads together.
        seed: of these.
        report: hears stage, done and total.
        models: those of the workloads, where they are there already.
    """
    rng = np.random.default_rng(seed)
    return answered(lambda answer: _verify(answer, problem, claim, said, certificate, attack, rng, report, models))


def _verify(
    answer: Answer,
    problem: ConfiguredMix,
    claim: StatedClaim,
    said: Sequence[WorkloadStatement],
    certificate: MixDerivation | Refuted | None,
    attack: int | AttackEffort,
    rng: np.random.Generator,
    report: Report,
    models: Sequence[CheckedModel] | None,
) -> None:
    if isinstance(certificate, Refuted):
        raise certificate
    check_claim(claim, problem.goal, 1.0)
    names = list(problem.workloads)
    offset = offset_of(problem, said, certificate)
    blend = problem.blend(offset)
    if said:
        answer.checks.append(check_designs(problem, claim, said, blend))
    elif claim.best is not None:
        raise Refuted(f"{problem.goal}: {claim.best:.9g} is claimed, but no designs are kept")
    report("models", 0, len(names))
    models = models or [CheckedModel(each) for each in problem.workloads.values()]
    if certificate is not None and claim.bound is not None:
        _check_bound(answer, problem, claim, certificate, models, blend, report)
    for name, model in zip(names, models, strict=True):
        _check_tables(name, model, rng)
    tables = [_legal(each) for each in problem.workloads.values()]
    tried = MixAttack(models, tables, blend, _start(problem, said, tables))
    lanes = attacked(tried, attack, rng, report)
    _refuse(problem, claim, tried)
    best = None if tried.best is None else math.exp(tried.best.rank)
    result = "none feasible" if best is None else f"best {best:.9g}"
    answer.checks.append(
        f"attack: {tried.tried:,} designs, each place's best plans together, {lanes} tuples polished, {result}"
    )
    answer.numbers |= {"tried": tried.tried, "feasible": tried.feasible, "polished": lanes, "best_of_attack": best}
    answer.line = _line(problem, claim, certificate, best)


@contextmanager
def _of(name: str) -> Generator[None, None, None]:
    """Say of which workload something was refuted."""
    try:
        yield
    except Refuted as why:
        raise Refuted(f"{name}: {why}") from why


def _check_bound(
    answer: Answer,
    problem: ConfiguredMix,
    claim: StatedClaim,
    certificate: MixDerivation,
    models: Sequence[CheckedModel],
    blend: CheckedBlend,
    report: Report,
) -> None:
    """Check of all that the bound of a mix rests on, each derived anew."""
    if [part.name for part in certificate.parts] != list(problem.workloads):
        raise Refuted(f"the certificate is of workloads {[p.name for p in certificate.parts]}, not those of the mix")
    plans, distinct, exact = 0, 0, True
    for k, (part, model) in enumerate(zip(certificate.parts, models, strict=True)):
        report("covering the spaces", k, len(models))
        with _of(part.name):
            result = cover(part.plans, model.problem, model)
            model.problem.legal.check(np.random.default_rng(0))
            plans, distinct, exact = plans + result.plans, distinct + result.distinct, exact and result.exact
    answer.checks.append(
        f"{sum(len(part.plans.low) for part in certificate.parts):,} nodes stand for all {plans:,} plans"
    )
    rows = 0
    for k, (part, model) in enumerate(zip(certificate.parts, models, strict=True)):
        report("curvature", k, len(models))
        rows += _check_curvature(part, model)
    answer.checks.append(f"{rows} rows convex by the rules of curvature, for every plan and the whole box")
    target = claim.log_bound
    floors = replayed(certificate, models, blend, target, lambda done, total: report("bounds anew", done, total))
    left = [int(mine.sum()) for mine in floors.left]
    said = f"{len(certificate.rounds)} rounds of duals, {floors.tangents:,} weighted tangents"
    answer.numbers |= {
        "every_plan": exact,
        "plans": plans,
        "distinct_plans": distinct,
        "rounds": len(certificate.rounds),
        "cuts": floors.tangents,
        "left": left,
    }
    if floors.proven:
        answer.checks.append(f"bound derived anew by {said}: {math.exp(floors.bound):.9g}; no tuple is left below it")
        answer.numbers["bound"] = math.exp(floors.bound)
        return
    if not len(certificate.points):
        raise Refuted(
            f"by {said}, no tuple lies below {math.exp(floors.bound):.9g}, claimed is {claim.bound:.9g}; of the"
            f" workloads {', '.join(map(str, left))} plans are left"
        )
    cuts = [_cuts(*each) for each in zip(certificate.parts, models, floors.left, strict=True)]
    result = bounded(cuts, blend, certificate.points, target, lambda done, total: report("tuples", done, total))
    if not result.bound >= target:
        raise Refuted(f"the tuples that are left reach {math.exp(result.bound):.9g}, claimed is {claim.bound:.9g}")
    how = "rests on a mixed-integer solver's bound" if result.trusted else f"{result.parts:,} parts, each checked here"
    answer.checks.append(
        f"{said}; tuples of the {' x '.join(map(str, left))} plans left reach {claim.bound:.9g} ({how})"
    )
    answer.numbers |= {"bound": claim.bound, "parts": result.parts, "trusted": result.trusted}


def _check_curvature(part: Part, model: CheckedModel) -> int:
    """Check that all rows of a workload are convex, by the rules of curvature; how many these are."""
    with _of(part.name):
        every = rows_in(part.plans, model)
        none = np.zeros(len(every), dtype=int)
        used = replace(part.plans, row=np.arange(len(every)), node=none, point=none, weight=0.0 * every)
        check_structure(used, model)
    return len(every)


def _cuts(part: Part, model: CheckedModel, left: np.ndarray) -> PlanCuts:
    """Tangents of the plans that are left.

    Raises:
        Refuted: a plan that is left has none.
    """
    plans = part.plans
    mine = np.flatnonzero(left[part.tangent_node])
    node, at = part.tangent_node[mine], part.tangent_point[mine]
    numbers = np.flatnonzero(left)
    none = np.setdiff1d(numbers, node)
    if len(none):
        raise Refuted(f"{part.name}: {len(none):,} plans are neither ruled out nor have tangents; the first:"
                      f" {plans.named(int(none[0]))}")  # fmt: skip
    value, slope = model.tangents(plans.values(plans.low[node]), plans.u[at], plans.sharpness[at])
    rows = rows_in(plans, model)
    value, slope = value[:, rows], slope[:, rows]
    finite = np.isfinite(value).all(axis=1) & np.isfinite(slope).all(axis=(1, 2))
    node_index = np.searchsorted(numbers, node)
    if not np.isin(np.arange(len(numbers)), node_index[finite]).all():
        raise Refuted(f"{part.name}: a plan that is left has no tangent that is a number")
    return PlanCuts(len(numbers), node_index[finite], plans.u[at][finite], value[finite], slope[finite])


def _check_tables(name: str, model: CheckedModel, rng: np.random.Generator) -> None:
    """Random designs, priced with tables as the attack prices them and without."""
    table = _legal(model.problem)
    u = rng.uniform(size=(64, len(model.variables)))[rng.integers(0, 64, 1 << 13)]
    alike(model.disagreement(table[rng.integers(0, len(table), 1 << 13)], u, 128), f"{name}: ")


def _legal(problem: VerifiedProblem) -> np.ndarray:
    """Legal plans, values of fields; many of them at random where there are more."""
    if not problem.space.plan:
        return np.zeros((1, 0))
    return problem.legal.sample(np.random.default_rng(0), LISTED)


def _start(problem: ConfiguredMix, said: Sequence[WorkloadStatement], tables: list[np.ndarray]) -> Tuple | None:
    """The claimed tuple."""
    if not said:
        return None
    plans: list[int] = []
    for k, (one, each) in enumerate(zip(problem.workloads.values(), said, strict=True)):
        values = np.array([each.design[name] for name in one.space.plan])
        at = np.flatnonzero((tables[k] == values).all(axis=1))
        if len(at) == 0:
            tables[k] = np.concatenate([tables[k], values[None]])
        plans.append(int(at[0]) if len(at) else len(tables[k]) - 1)
    first, design = next(iter(problem.workloads.values())), said[0].design
    result = first.space.coordinates({name: asarray(design[name]) for name in first.variables})
    u = np.clip(np.array([float(result[name]) for name in first.variables]), 0.0, 1.0)
    return Tuple(np.array(plans), u, np.inf)


def _refuse(problem: ConfiguredMix, claim: StatedClaim, tried: MixAttack) -> None:
    """A tuple below the bound refutes it.

    Raises:
        Refuted: naming its designs.
    """
    result = tried.below(claim.log_bound)
    if result is None:
        return
    words: list[str] = []
    for k, (name, one) in enumerate(problem.workloads.items()):
        lists = list(one.lists.values())
        index = sample(tried.tables[k][result.plans[k]][None], lists)[0]
        words.append(f"{name}: {described(one, lists, index, result.u)}")
    raise Refuted(
        f"claimed is that no {problem.goal} is below {claim.bound:.9g}, but feasible designs have"
        f" {math.exp(result.rank):.9g}: {'; '.join(words)}"
    )


def _line(problem: ConfiguredMix, claim: StatedClaim, certificate: MixDerivation | None, attacked: float | None) -> str:
    """The answer in one line."""
    if certificate is None or claim.bound is None:
        better = claim.best is not None and attacked is not None and attacked < claim.best * (1 - SAME)
        beside = f"; the attack found better designs, {attacked:.9g}" if better else ""
        held = "it found no designs" if claim.best is None else "what it found is as it says"
        return f"nothing claimed to verify: the search proves nothing, {held}{beside}"
    best = "no designs found" if claim.best is None else f"best {claim.best:.9g}, gap {claim.gap:.3%}"
    return f"verified: no {problem.goal} below {claim.bound:.9g}; {best}"
