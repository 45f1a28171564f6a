"""`codesign verify`: a run's proof checked by a program that shares nothing with the search, and attacked."""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..config import Study
from ..core.disk_cache import keep_in
from ..core.earlier_names import SCHEMA
from ..core.errors import ConfigError
from ..core.json_yaml import dumps, is_mapping
from ..report.run_folder import PLAN_PREFIX, RunFolder, read_run, readable
from ..search import AbstractSearch, Certificate, GridThenProof, Integer, Inverse, Mix, Pareto, Problem, Robust
from ..search.certificate import CLAIMED, DIGITS, Robustness, Shared
from ..search.front.pareto import STEPS
from ..search.mix.mix_evidence import ALONE
from ..study.objective import feasible
from ..uncertainty import Cases as Stated
from ..verification import (
    Answer,
    AttackEffort,
    ConfiguredMix,
    Derivation,
    MixDerivation,
    Refuted,
    StatedClaim,
    VerifiedProblem,
    WorkloadStatement,
    derivation_of,
    mix_derivation_of,
    verify,
    verify_front,
    verify_mix,
    verify_unproven,
)
from ..verification.bound_check import SAME, VALUE, check_listed
from ..verification.derivation import Report, claim_of
from ..verification.goals_blended import Case, StudyCases
from ..verification.model_answers import CheckedModel
from .certificate_summary import check_certificate, check_plans, check_workloads, claim_anew
from .left_files import FOLDER, read_evidence
from .rederivation import check_belongs, check_files, check_page, frames_anew, study_anew, summary_anew
from .setup import prepare_jax
from .terminal import console

# `codesign verify` of a front: what its files say of it must agree, then it is checked.


STEP_ROUNDING = 1e-3  # of a step: what float64 leaves of the last digits of a bound


def is_bounded(claimed: Certificate) -> bool:
    """True if a bound is claimed of any design of a front."""
    return claimed.front is not None and any(one.bound is not None for one in claimed.front.points)


def answer_of_front(
    question: VerifiedProblem,
    shown: pd.DataFrame,
    claimed: dict[str, Any],
    stored: tuple[dict[str, Any], dict[str, Any]] | None,
    attack: int | AttackEffort,
    seed: int,
    watch: Report,
) -> Answer:
    """Compare what the run says of its front in several files, then check it.

    Args:
        question: the study.
        shown: the frame of its designs.
        claimed: what the summary says of the front.
        stored: its certificate, if it has one.
        attack, seed, watch: as of any verification.
    """
    if stored is None:
        names = [*question.space.plan, *question.space.hardware]
        designs = {name: shown[f"var.{name}"].to_numpy(dtype=float) for name in names}
        return verify_unproven(question, designs, shown[list(claimed["metrics"])].to_numpy(dtype=float))
    header, tables = stored
    stated = header.get("front")
    if not is_mapping(stated) or stated != claimed:
        names = [name for name in claimed if not is_mapping(stated) or stated.get(name) != claimed[name]]
        return Answer(False, f"not verified: summary.json and certificate.json differ in the front's {names[0]}")
    bounds = np.asarray(tables.get("statements", {}).get("bound", ()), dtype=float) * STEPS
    if not np.allclose(bounds[np.isfinite(bounds)] % 1.0 * (1 - bounds[np.isfinite(bounds)] % 1.0), 0.0, atol=1e-4):
        return Answer(
            False, f"not verified: a statement's bound is no whole number of {1 / STEPS:g}: no search tells so"
        )
    answer = verify_front(question, header, tables, attack, seed, watch)
    if answer.verified and not _same_designs(shown, tables["designs"], stated):
        return Answer(False, "not verified: designs.parquet has other designs than the certificate", answer.checks)
    return answer


def _same_designs(shown: pd.DataFrame, stored: dict[str, Any], summary: dict[str, Any]) -> bool:
    """True if the frame, which reports show, has the designs of the certificate and the same metrics of them."""
    variables = [name for name in stored if name != "statement"]
    metrics = summary["metrics"]
    if len(shown) != len(summary["points"]):
        return False
    one = np.array(
        [stored[name] for name in variables] + [[p["values"][m] for p in summary["points"]] for m in metrics]
    )
    other = np.array([shown[name] for name in [*(f"var.{name}" for name in variables), *metrics]], dtype=float)
    one, other = (table[:, np.lexsort(table[: len(variables)])] for table in (one, other))
    return bool(np.allclose(one, other, rtol=VALUE, atol=0))


# Uncertain constants of a run: its cases rebuilt from the configuration, and what the run says of them.


SHOWN = 1e-12  # relative; how well a design that is claimed and the same in a frame must agree

SAME_CASES = 1e-9  # relative; how well what is told and what is found here must agree


def cases_of(problem: Problem, stated: Stated, how: str, tail: float, seed: int) -> StudyCases:
    """The cases that the configuration states; random ones follow from its seed.

    Raises:
        ConfigError: an uncertain leaf that does not exist, or that the space sets.
    """
    stated.check(problem.scenario, problem.space)
    scenarios = stated.scenarios(problem.scenario, seed)
    moved = [{path: float(leaf) for path, leaf in leaves.items()} for leaves in stated.leaves(problem.scenario, seed)]
    every = tuple(Case(scenario, leaves) for scenario, leaves in zip(scenarios, moved, strict=True))
    return StudyCases(every, how, tail)


def check_robust_summary(
    question: VerifiedProblem, search: AbstractSearch, seed: int, claimed: Certificate, claim: StatedClaim
) -> None:
    """Check the cases in `summary.json`, which reports are made of, against the study and the best design.

    Raises:
        Refuted: naming the first case that differs.
    """
    if question.cases is None or not isinstance(search, Robust):
        return
    claimed_robust, stated = claimed.robust or Robustness("", 0.0, ()), search.cases
    said = (claimed_robust.how, claimed_robust.tail, len(claimed_robust.cases))
    expected = (question.cases.how, question.cases.tail, len(question.cases.every))
    if said != expected:
        stated_text, expected_text = (
            f"{count} cases by how = {how}, tail = {tail}" for how, tail, count in (said, expected)
        )
        raise Refuted(f"summary.json tells of {stated_text}; the study asks for {expected_text}")
    goals = question.in_cases(claim.design)[0] if claim.design else [None] * len(question.cases.every)
    for number, (case, row, goal) in enumerate(zip(claimed_robust.cases, stated.named(seed), goals, strict=True)):
        result = row | ({} if goal is None else {"goal": goal})
        for name, value in result.items():
            if not _same(case.get(name), float(value)):
                raise Refuted(f"summary.json: case {number + 1} has {name} {case.get(name)}, not {value:.9g}")


def check_shown(folder: RunFolder, claim: StatedClaim, close: float = SHOWN) -> None:
    """The design that is claimed must be among those of the frame; `close` is how well its values must agree.

    Raises:
        Refuted: it is not.
    """
    if not claim.design:
        return
    shown = np.ones(len(folder.designs), dtype=bool)
    for name, value in claim.design.items():
        if PLAN_PREFIX + name in folder.designs:
            shown &= np.isclose(folder.designs[PLAN_PREFIX + name].to_numpy(dtype=float), value, rtol=close, atol=0.0)
    if not shown.any():
        raise Refuted("designs.parquet does not have the design that is claimed to be the best")


def _same(stated: Any, derived: float) -> bool:
    return isinstance(stated, int | float) and math.isclose(stated, derived, rel_tol=SAME_CASES)


# Verification of a run of `search=mix`: reads what it says of each workload, asks for the check.


SameClaim = Callable[[Certificate, StatedClaim], StatedClaim]


def problem_of_mix(mix: Mix, seed: int) -> ConfiguredMix:
    """Question that a mix asks, as a verification needs it; `seed` draws the cases of uncertain constants."""
    workloads: dict[str, VerifiedProblem] = {}
    for name, problem in mix.problems.items():
        objective = problem.objective
        sign = 1.0 if objective.minimise else -1.0
        cases = None
        if mix.cases is not None and mix.cases.uncertain:
            cases = cases_of(problem, mix.cases, mix.over_cases, mix.tail, seed)
        workloads[name] = VerifiedProblem(problem.scenario, problem.space, objective, objective.goal, sign, cases=cases)
    relative = " relative to its own best" if mix.relative else ""
    weights = tuple(mix.entries[name].weight for name in workloads)
    goal = f"{mix.aggregate} of {len(workloads)} goals{relative}"
    return ConfiguredMix(workloads, goal, mix.aggregate, weights, mix.tail, mix.relative)


def answer_of_mix(
    question: ConfiguredMix,
    claimed: Certificate,
    stored: tuple[dict[str, Any], dict[str, Any]] | None,
    attack: int | AttackEffort,
    seed: int,
    progress: Report,
    same_claim: SameClaim,
    models: list[CheckedModel] | None = None,
    shown: Mapping[str, Any] | None = None,
) -> Answer:
    """Compare what the run says in its files, then check it.

    Args:
        question: the mix.
        claimed: the certificate of the summary.
        stored: header and tables of the folder `certificate`.
        attack: designs to try.
        seed: of these.
        progress: hears stage, done and total.
        same_claim: the claim of the folder, which must be that of the summary.
        models: those of the workloads, where they are there already.
        shown: best row of the frame, which reports show: the first workload's design.
    """
    if stored is not None and stored[0].get("kind") == ALONE:
        return _impossible(question, claimed, stored, attack, seed, progress, models)
    certificate: MixDerivation | Refuted | None = None
    try:
        claim = claim_of(claimed.claimed())
        said = [_said(row) for row in claimed.workloads or ()]
        if said and [row.workload for row in claimed.workloads or ()] != list(question.workloads):
            raise Refuted(f"summary.json has workloads other than {', '.join(question.workloads)}")
        if said and shown is not None:
            _check_shown(said[0], shown)
        if stored is not None:
            certificate = mix_derivation_of(*stored)
            claim = same_claim(claimed, certificate.claim)
    except Refuted as result:
        return Answer(False, f"not verified: {result}")
    except (KeyError, TypeError, ValueError):
        return Answer(False, "not verified: claim cannot be read")
    return verify_mix(question, claim, said, certificate, attack, seed, progress, models)


def _impossible(
    question: ConfiguredMix,
    claimed: Certificate,
    stored: tuple[dict[str, Any], dict[str, Any]],
    attack: int | AttackEffort,
    seed: int,
    progress: Report,
    models: list[CheckedModel] | None,
) -> Answer:
    """Verify a mix in which one workload has no feasible design, on whatever hardware."""
    name = stored[0].get("workload")
    if name not in question.workloads or name not in claimed.alone_infeasible:
        return Answer(False, f"not verified: summary.json does not say that {name!r} has no feasible design")
    try:
        certificate = derivation_of(*stored)
        if not certificate.claim.infeasible or claimed.best is not None:
            raise Refuted("a mix of which one workload has no feasible design has a best one")
    except Refuted as result:
        return Answer(False, f"not verified: {result}")
    model = None if models is None else models[list(question.workloads).index(name)]
    answer = verify(question.workloads[name], certificate.claim, certificate, attack, seed, progress, model)
    answer.line = f"{answer.line} (of {name} alone)"
    return answer


def _check_shown(said: WorkloadStatement, shown: Mapping[str, Any]) -> None:
    """The frame has the design that the summary has.

    Raises:
        Refuted: naming the first value that differs.
    """
    for name, value in said.design.items():
        value_shown = float(shown.get(f"var.{name}", value))
        if not math.isclose(value_shown, value, rel_tol=VALUE):
            raise Refuted(f"designs.parquet: the best design has {name} {value_shown:.9g}, summary.json {value:.9g}")


def _said(row: Shared) -> WorkloadStatement:
    """Result of one workload in a run."""
    designs = [{str(n): float(v) for n, v in (design or {}).items()} for design in (row.design, row.own_design)]
    value = float("nan") if row.value is None else float(row.value)
    return WorkloadStatement(designs[0], value, designs[1], None if row.own_best is None else float(row.own_best))


KEEPERS = (
    "certified", "grid_then_proof", "inverse", "integer", "pareto", "mix", "robust", "amortised with a proof",
)  # fmt: skip
TIMES = 2.0  # the time of the search that a check may take, if nobody says how many designs an attack has
Stored = tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]
SEARCHED = ("search", "space", "objective", "seed", "name")  # keys of overrides that no design depends on


def verify_run(run: str, attack: int | None, seed: int, *, as_json: bool = False) -> int:
    """Check a run folder and print the answer.

    Args:
        run: the folder.
        attack: designs to try; None: as many as the time of the search allows.
        seed: of these.
        as_json: print the answer as JSON.

    Returns:
        Exit code: 0 where nothing that is claimed is false, 1 where something is.

    Raises:
        ConfigError: a folder without a proof that could be checked, files that cannot be read, or a count that is none.
    """
    if attack is not None and attack < 0:
        raise ConfigError(f"--attack {attack}: the number of designs to try cannot be negative")
    if seed < 0:
        raise ConfigError(f"--seed {seed}: a seed is 0 or more")
    prepare_jax()
    keep_in(None)  # what is verified is traced anew: a program that was kept may be one that the search read too
    wall, cpu = time.perf_counter(), time.process_time()
    folder = read_run(run)
    with readable(folder.path):
        claimed = folder.certificate
        if claimed is None or not (claimed.front or claimed.goal):
            raise ConfigError(f"{run!r} has no certificate: {_keepers()}")
        answer, took = _answered(folder, claimed, attack, seed, Console(stderr=True, quiet=as_json))
    seconds = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    _show(answer, seconds, took, as_json)
    return 0 if answer.verified else 1


def _answered(
    folder: RunFolder, claimed: Certificate, attack: int | None, seed: int, out: Console
) -> tuple[Answer, dict[str, float]]:
    """The answer, and what the search took.

    Raises:
        ConfigError: see `verify_run`.
    """
    begun = Answer(False, "")
    try:
        begun.checks.append(check_files(folder.path))
        study, text = study_anew(folder)
        begun.checks.append(text)
        _check_job(folder)
        stored = read_evidence(folder.path, folder.schema)
        if stored is None and (claimed.bound is not None or claimed.certified or is_bounded(claimed)):
            raise ConfigError(f"{str(folder.path)!r} claims a bound but has no folder {FOLDER!r}: {_keepers()}")
        if stored is not None:
            check_belongs(stored, folder)
        with _StageProgressBar(out) as watch:
            watch("frames anew", 0, 1)
            rest = _check_summary(study, folder, claimed, begun)
            answer = _proven(study, folder, claimed, stored, _effort(attack, _took(stored)), seed, watch)
        answer.checks = begun.checks + answer.checks
        if answer.verified:
            _check_digits(claimed)
            plans = answer.numbers.get("distinct_plans") if answer.numbers.get("every_plan") else None
            rest += check_plans(folder.summary["counts"], None if plans is None else plans // _combinations(study))
            answer.checks.append(check_page(folder))
            rest = ["versions.json", "figures/", *(["certificate.took"] if stored else []), *dict.fromkeys(rest)]
            answer.checks.append(f"not checked: {', '.join(rest)}")
    except Refuted as result:
        moved = "" if folder.schema >= SCHEMA else "; an earlier release wrote it, whose model or errors were others"
        return Answer(False, f"not verified: {result}{moved}", begun.checks), {}
    return answer, _took(stored)


def _check_job(folder: RunFolder) -> None:
    """The note of what a job of several asked for is what its overrides say.

    Raises:
        Refuted: it is not.
    """
    note = folder.path / "job.txt"
    if note.is_file() and note.read_text(encoding="utf-8").strip() != " ".join(folder.overrides):
        raise Refuted("job.txt is not what overrides.txt says")


def _check_digits(claimed: Certificate) -> None:
    """A bound has the digits that searches tell: one that was raised by less than one of them has more.

    Raises:
        Refuted: it has others.
    """
    if claimed.bound is not None and claimed.bound != float(f"{claimed.bound:.{DIGITS - 1}e}"):
        raise Refuted(f"the bound {claimed.bound!r} has more than {DIGITS} digits: no search tells one so")


def _check_summary(study: Study, folder: RunFolder, claimed: Certificate, answer: Answer) -> list[str]:
    """Check what the run tells beside its proof; names of what does not follow from anything.

    Raises:
        Refuted: naming what is not so.
    """
    results, texts = frames_anew(study, folder)
    answer.checks.extend(texts)
    claim = claim_anew(study, claimed, folder.summary.get("counts") or {})
    answer.checks.append(summary_anew(study, folder, results, claim, claimed))
    problem = None if isinstance(study.search, Mix) else problem_of(study)
    return check_certificate(study, problem, folder, results, claimed)


def _proven(
    study: Study,
    folder: RunFolder,
    claimed: Certificate,
    stored: Stored | None,
    effort: AttackEffort,
    seed: int,
    watch: "_StageProgressBar",
) -> Answer:
    """The proof, checked."""
    problem = problem_of_mix(study.search, study.seed) if isinstance(study.search, Mix) else problem_of(study)
    if isinstance(problem, ConfiguredMix):
        if claimed.workloads:
            check_workloads(study, problem, claimed)
        answer = answer_of_mix(problem, claimed, stored, effort, seed, watch, same_claim, shown=folder.best)
    elif claimed.front is not None:
        answer = answer_of_front(
            problem, folder.designs, folder.summary["certificate"]["front"], stored, effort, seed, watch
        )
    else:
        answer = _answer(problem, study, folder, claimed, stored, effort, seed, watch)
    assuming = study.scenario.workload.words.assuming
    if answer.verified and assuming:
        answer = dataclasses.replace(answer, line=f"{answer.line}; all under the assumption that {assuming}")
    return answer


def _effort(attack: int | None, took: dict[str, float]) -> AttackEffort:
    """So many designs, or until the check has taken what the search took, so many times."""
    return AttackEffort(attack, time.process_time() if not took else TIMES * took["cpu_s"])


def _combinations(study: Study) -> int:
    """Combinations of listed values, each of which has every plan."""
    listed = study.search.allowed_values if isinstance(study.search, Integer) else {}
    return math.prod(len({*map(float, values)}) for values in listed.values())


def _took(stored: Stored | None) -> dict[str, float]:
    """Seconds of the search; nothing where they are none."""
    stated = stored[0].get("took") if stored else None
    if not is_mapping(stated) or {*stated} != {"wall_s", "cpu_s"}:
        return {}
    right = all(isinstance(value, int | float) and 0 <= value < math.inf for value in stated.values())
    return {str(name): float(value) for name, value in stated.items()} if right else {}


def problem_of(study: Study) -> VerifiedProblem:
    """Question that a study asks, as a verification needs it."""
    objective, search = study.objective, study.search
    parts = study.scenario, study.space, objective
    if isinstance(search, Inverse):
        return VerifiedProblem(*parts, search.variable, -1.0 if search.maximise else 1.0)
    if isinstance(search, Pareto):
        first, *others = ((wanted.name, wanted.sign) for wanted in search.wanted)
        return VerifiedProblem(*parts, *first, levelled=dict(others))
    problem = VerifiedProblem(*parts, objective.goal, 1.0 if objective.minimise else -1.0)
    if isinstance(search, Integer):
        return dataclasses.replace(problem, values=search.allowed_values, units=search.step)
    if isinstance(search, Robust):
        cases = cases_of(study.problem, search.cases, search.aggregate, search.tail, study.seed)
        return dataclasses.replace(problem, scenario=search.cases.with_room(study.scenario), cases=cases)
    return problem


def _keepers() -> str:
    return f"the searches that keep one are {', '.join(KEEPERS)} (run it again with one of them)"


def _answer(
    question: VerifiedProblem,
    study: Study,
    folder: RunFolder,
    claimed: Certificate,
    stored: Stored | None,
    attack: AttackEffort,
    seed: int,
    watch: "_StageProgressBar",
) -> Answer:
    """Compare what the run says in its several files, then check it."""
    proof: Derivation | Refuted | None = None
    try:
        claim = claim_of(claimed.claimed())
        if stored is not None:
            claim = same_claim(claimed, claim_of(stored[0].get("claim") or {}))
            proof = derivation_of(*stored)
        check_robust_summary(question, study.search, study.seed, claimed, claim)
        joined = isinstance(study.search, GridThenProof)  # of two designs that are nearly the same one is shown
        check_shown(folder, claim, SAME if joined else SHOWN)
        _check_frame(question, folder, claim)
    except (Refuted, KeyError, TypeError, ValueError) as result:
        return Answer(False, f"not verified: {result if isinstance(result, Refuted) else 'claim cannot be read'}")
    answer = verify(question, claim, proof, attack, seed, watch)
    if not answer.verified and "plan." in answer.line:
        overrides = [text for text in folder.overrides if text.lstrip("+~").split(".")[0].split("=")[0] not in SEARCHED]
        answer.numbers["again"] = " ".join(["codesign evaluate", *overrides, answer.line.rpartition("): ")[2]])
    return answer


def same_claim(claimed: Certificate, claim: StatedClaim) -> StatedClaim:
    """The claim of the certificate, which must be that of the summary, from which reports are made.

    Raises:
        Refuted: naming the value that differs.
    """
    for name in CLAIMED:
        stated, value = getattr(claimed, name), getattr(claim, name)
        if stated != value:
            raise Refuted(f"summary.json claims {name} {stated}, certificate.json {value}")
    if claimed.certified and claim.bound is None and not claim.infeasible:
        raise Refuted("summary.json claims a proof, certificate.json neither a bound nor that nothing is feasible")
    return claim


def _check_frame(question: VerifiedProblem, folder: RunFolder, claim: StatedClaim) -> None:
    """The best row of the frame, which reports show: as good as it says, and not better than the bound.

    The frame is of nominal constants, where these are uncertain; bound and best of the claim are over all cases.

    Raises:
        Refuted: naming what differs.
    """
    best = folder.best
    if not best.get("feasible"):
        return
    if claim.infeasible and question.cases is None:
        raise Refuted("designs.parquet has a feasible design, claimed is that there is none")
    point = {name: float(best[f"var.{name}"]) for name in (*question.space.plan, *question.space.hardware)}
    if claim.best is not None:
        check_listed(question, point, "designs.parquet: the best design")
    value, excess = question.nominal.priced(point)
    said = float(best["objective"] if question.goal == question.objective.goal else best[f"var.{question.goal}"])
    if not math.isclose(value, said, rel_tol=VALUE) or not feasible(excess):
        raise Refuted(f"designs.parquet: the best design has {question.goal} {value:.9g}, not {said:.9g} as it says")
    if question.cases is not None:
        value, excess = question.priced(point)
    elif claim.best is not None and question.sign * (math.log(value) - math.log(claim.best)) > SAME:
        raise Refuted(f"designs.parquet: the best design has {question.goal} {value:.9g}, claimed is {claim.best:.9g}")
    if excess <= 0 and claim.infeasible:
        raise Refuted("designs.parquet has a design that is feasible in every case, claimed is that there is none")
    if excess <= 0 and question.sign * math.log(value) < claim.log_bound - SAME:
        raise Refuted(
            f"designs.parquet: the best design has {question.goal} {value:.9g}, the bound is {claim.bound:.9g}"
        )


def _show(answer: Answer, seconds: dict[str, float], took: dict[str, float], as_json: bool) -> None:
    """Show what was checked and the answer; times beside those that the search took, compilation included."""
    if as_json:
        result: dict[str, Any] = {"verified": answer.verified, "answer": answer.line, "checks": answer.checks}
        result |= answer.numbers | seconds | {f"search_{name}": value for name, value in took.items()}
        print(dumps(result, indent=2))
        return
    out = console()
    for text in answer.checks:
        out.print(f"- {text}", highlight=False, markup=False)
    if "again" in answer.numbers:
        out.print(answer.numbers["again"], highlight=False, markup=False)
    times = f"verification {seconds['wall_s']:.1f} s ({seconds['cpu_s']:.1f} CPU s)"
    if took:
        times += f"; the search took {took['wall_s']:.1f} s ({took['cpu_s']:.1f} CPU s)"
    out.print(times, highlight=False, markup=False)
    out.print(answer.line, highlight=False, markup=False, soft_wrap=True)


class _StageProgressBar:
    """A progress bar on a terminal, one line a stage elsewhere."""

    def __init__(self, out: Console):
        self.out, self.stage = out, ""
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=out, disable=not out.is_terminal, transient=True,
        )  # fmt: skip
        self.task = self.bar.add_task("reading", total=None)

    def __enter__(self) -> "_StageProgressBar":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take a report."""
        if stage != self.stage:
            self.stage = stage
            if not self.out.is_terminal:
                self.out.print(stage, highlight=False)
        self.bar.update(self.task, description=stage, completed=done, total=total)
