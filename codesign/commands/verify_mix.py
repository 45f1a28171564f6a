"""Verification of a run of `search=mix`: reads what it says of each workload, asks for the check."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..search import Certificate, Mix
from ..search.certificate import Shared
from ..search.mix.mix_evidence import ALONE
from ..verification import (
    Answer,
    Asked,
    AskedMix,
    AttackEffort,
    MixDerivation,
    Refuted,
    Said,
    StatedClaim,
    derivation_of,
    mix_derivation_of,
    verify,
    verify_mix,
)
from ..verification.attacked import Told
from ..verification.derivation import claim_of
from ..verification.model_answers import CheckedModel
from ..verification.whole_check import VALUE
from .cases import cases_of

SameClaim = Callable[[Certificate, StatedClaim], StatedClaim]


def asked_of_mix(mix: Mix, seed: int) -> AskedMix:
    """Question that a mix asks, as a verification needs it; `seed` draws the cases of uncertain constants."""
    workloads = {}
    for name, problem in mix.problems.items():
        objective = problem.objective
        sign = 1.0 if objective.minimise else -1.0
        cases = None
        if mix.cases is not None and mix.cases.uncertain:
            cases = cases_of(problem, mix.cases, mix.over_cases, mix.tail, seed)
        workloads[name] = Asked(problem.scenario, problem.space, objective, objective.goal, sign, cases=cases)
    relative = " relative to its own best" if mix.relative else ""
    weights = tuple(mix.entries[name].weight for name in workloads)
    goal = f"{mix.aggregate} of {len(workloads)} goals{relative}"
    return AskedMix(workloads, goal, mix.aggregate, weights, mix.tail, mix.relative)


def answer_of_mix(
    asked: AskedMix,
    claimed: Certificate,
    stored: tuple[dict[str, Any], dict[str, Any]] | None,
    attack: int | AttackEffort,
    seed: int,
    told: Told,
    same_claim: SameClaim,
    models: list[CheckedModel] | None = None,
    shown: Mapping[str, Any] | None = None,
) -> Answer:
    """Compare what the run says in its files, then check it.

    Args:
        asked: the mix.
        claimed: the certificate of the summary.
        stored: header and tables of the folder `certificate`.
        attack: designs to try.
        seed: of these.
        told: hears stage, done and total.
        same_claim: the claim of the folder, which must be that of the summary.
        models: those of the workloads, where they are there already.
        shown: best row of the frame, which reports show: the first workload's design.
    """
    if stored is not None and stored[0].get("kind") == ALONE:
        return _impossible(asked, claimed, stored, attack, seed, told, models)
    certificate: MixDerivation | Refuted | None = None
    try:
        claim = claim_of(claimed.claimed())
        said = [_said(row) for row in claimed.workloads or ()]
        if said and [row.workload for row in claimed.workloads or ()] != list(asked.workloads):
            raise Refuted(f"summary.json has workloads other than {', '.join(asked.workloads)}")
        if said and shown is not None:
            _check_shown(said[0], shown)
        if stored is not None:
            certificate = mix_derivation_of(*stored)
            claim = same_claim(claimed, certificate.claim)
    except Refuted as result:
        return Answer(False, f"not verified: {result}")
    except (KeyError, TypeError, ValueError):
        return Answer(False, "not verified: claim cannot be read")
    return verify_mix(asked, claim, said, certificate, attack, seed, told, models)


def _impossible(
    asked: AskedMix,
    claimed: Certificate,
    stored: tuple[dict[str, Any], dict[str, Any]],
    attack: int | AttackEffort,
    seed: int,
    told: Told,
    models: list[CheckedModel] | None,
) -> Answer:
    """Verify a mix in which one workload has no feasible design, on whatever hardware."""
    name = stored[0].get("workload")
    if name not in asked.workloads or name not in claimed.alone_infeasible:
        return Answer(False, f"not verified: summary.json does not say that {name!r} has no feasible design")
    try:
        certificate = derivation_of(*stored)
        if not certificate.claim.infeasible or claimed.best is not None:
            raise Refuted("a mix of which one workload has no feasible design has a best one")
    except Refuted as result:
        return Answer(False, f"not verified: {result}")
    model = None if models is None else models[list(asked.workloads).index(name)]
    answer = verify(asked.workloads[name], certificate.claim, certificate, attack, seed, told, model)
    answer.line = f"{answer.line} (of {name} alone)"
    return answer


def _check_shown(said: Said, shown: Mapping[str, Any]) -> None:
    """The frame has the design that the summary has.

    Raises:
        Refuted: naming the first value that differs.
    """
    for name, value in said.design.items():
        told = float(shown.get(f"var.{name}", value))
        if not math.isclose(told, value, rel_tol=VALUE):
            raise Refuted(f"designs.parquet: the best design has {name} {told:.9g}, summary.json {value:.9g}")


def _said(row: Shared) -> Said:
    """Result of one workload in a run."""
    designs = [{str(n): float(v) for n, v in (design or {}).items()} for design in (row.design, row.own_design)]
    value = float("nan") if row.value is None else float(row.value)
    return Said(designs[0], value, designs[1], None if row.own_best is None else float(row.own_best))
