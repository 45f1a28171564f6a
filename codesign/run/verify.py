"""`codesign verify`: a run's proof checked by a program that shares nothing with the search, and attacked."""

import dataclasses
import math
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..config import Study, study_from_resolved
from ..errors import ConfigError
from ..kept_on_disk import keep_in
from ..objective import feasible
from ..report.run_folder import RunFolder, read_run
from ..search import Certificate, Inverse, Mix, Pareto, Robust, Whole
from ..strict_json import dumps
from ..verification import Answer, Asked, AskedMix, Derivation, Refuted, StatedClaim, derivation_of, verify
from ..verification.derivation import claim_of
from ..verification.whole_check import SAME, check_listed
from .cases import cases_of, check_shown, check_told
from .evidence_files import FOLDER, read_evidence
from .setup import prepare_jax
from .terminal import console
from .verify_front import answer_of_front, is_bounded
from .verify_mix import answer_of_mix, asked_of_mix

KEEPERS = (
    "certified", "grid_then_proof", "inverse", "whole", "pareto", "mix", "robust", "amortised with a proof",
)  # fmt: skip
SEARCHED = ("search", "space", "objective", "seed", "name")  # keys of overrides that no design depends on


def verify_run(run: str, attack: int, seed: int, *, as_json: bool = False) -> int:
    """Check the proof of a run folder and print the answer.

    Returns:
        Exit code: 0 where nothing that is claimed is false, 1 where something is.

    Raises:
        ConfigError: a folder without a proof that could be checked, or a count that is none.
    """
    if attack < 0:
        raise ConfigError(f"--attack {attack}: the number of designs to try cannot be negative")
    if seed < 0:
        raise ConfigError(f"--seed {seed}: a seed is 0 or more")
    prepare_jax()
    keep_in(None)  # what is verified is traced anew: a program that was kept may be one that the search read too
    wall, cpu = time.perf_counter(), time.process_time()
    folder = read_run(run)
    claimed = folder.certificate
    if claimed is None or not (claimed.front or claimed.goal):
        raise ConfigError(f"{run!r} has no certificate: {_keepers()}")
    study = study_from_resolved(OmegaConf.create(folder.config), folder.overrides, folder.conf)
    asked = asked_of_mix(study.search, study.seed) if isinstance(study.search, Mix) else asked_of(study)
    stored = read_evidence(Path(run))
    if stored is None and (claimed.bound is not None or claimed.certified or is_bounded(claimed)):
        raise ConfigError(f"{run!r} claims a bound but has no folder {FOLDER!r}: {_keepers()}")
    out = Console(stderr=True, quiet=as_json)
    with _Watch(out) as watch:
        if isinstance(asked, AskedMix):
            answer = answer_of_mix(asked, claimed, stored, attack, seed, watch, same_claim, shown=folder.best)
        elif claimed.front is not None:
            answer = answer_of_front(asked, folder.designs, claimed.as_plain()["front"], stored, attack, seed, watch)
        else:
            answer = _answer(asked, study, folder, claimed, stored, attack, seed, watch)
    assuming = study.scenario.workload.words.assuming
    if answer.verified and assuming:
        answer = dataclasses.replace(answer, line=f"{answer.line}; all under the assumption that {assuming}")
    seconds = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    _show(answer, seconds, (stored[0].get("took") if stored else None) or {}, as_json)
    return 0 if answer.verified else 1


def asked_of(study: Study) -> Asked:
    """What a study asks for, as a verification needs it."""
    objective, search = study.objective, study.search
    if isinstance(search, Inverse):
        return Asked(study.scenario, study.space, objective, search.variable, -1.0 if search.most else 1.0)
    if isinstance(search, Pareto):
        first, *others = ((wanted.name, wanted.sign) for wanted in search.wanted)
        return Asked(study.scenario, study.space, objective, *first, levelled=dict(others))
    asked = Asked(study.scenario, study.space, objective, objective.goal, 1.0 if objective.minimise else -1.0)
    if isinstance(search, Whole):
        return dataclasses.replace(asked, values=search.values, units=search.units)
    if isinstance(search, Robust):
        cases = cases_of(study.problem, search.cases, search.how, search.tail, study.seed)
        return dataclasses.replace(asked, scenario=search.cases.with_room(study.scenario), cases=cases)
    return asked


def _keepers() -> str:
    return f"the searches that keep one are {', '.join(KEEPERS)} (run it again with one of them)"


def _answer(
    asked: Asked,
    study: Study,
    folder: RunFolder,
    claimed: Certificate,
    stored: tuple[dict[str, Any], dict[str, Any]] | None,
    attack: int,
    seed: int,
    watch: "_Watch",
) -> Answer:
    """Compare what the run says in its several files, then check it."""
    proof: Derivation | Refuted | None = None
    try:
        claim = claim_of(claimed.claimed())
        if stored is not None:
            claim = same_claim(claimed, claim_of(stored[0].get("claim") or {}))
            proof = derivation_of(*stored)
        check_told(asked, study.search, study.seed, claimed, claim)
        _check_frame(asked, folder, claim)
    except (Refuted, KeyError, TypeError, ValueError) as found:
        return Answer(False, f"not verified: {found if isinstance(found, Refuted) else 'claim cannot be read'}")
    answer = verify(asked, claim, proof, attack, seed, watch)
    if not answer.verified and "plan." in answer.line:
        kept = [text for text in folder.overrides if text.lstrip("+~").split(".")[0].split("=")[0] not in SEARCHED]
        answer.numbers["again"] = " ".join(["codesign evaluate", *kept, answer.line.rpartition("): ")[2]])
    return answer


def same_claim(claimed: Certificate, claim: StatedClaim) -> StatedClaim:
    """The claim of the certificate, which must be that of the summary, from which reports are made.

    Raises:
        Refuted: naming the value that differs.
    """
    for name, value in (("best", claim.best), ("bound", claim.bound), ("gap", claim.gap)):
        told = getattr(claimed, name)
        if (told is None) != (value is None) or (told is not None and not math.isclose(told, value, rel_tol=SAME)):
            raise Refuted(f"summary.json claims {name} {told}, certificate.json {value}")
    if claimed.certified and claim.bound is None and not claim.infeasible:
        raise Refuted("summary.json claims a proof, certificate.json neither a bound nor that nothing is feasible")
    return claim


def _check_frame(asked: Asked, folder: RunFolder, claim: StatedClaim) -> None:
    """The best row of the frame, which reports show: as good as it says, and not better than the bound.

    The frame is of nominal constants, where these are uncertain; bound and best of the claim are over all cases.

    Raises:
        Refuted: naming what differs.
    """
    best = folder.best
    if asked.cases is not None:
        check_shown(folder, claim)
    if not best.get("feasible"):
        return
    if claim.infeasible and asked.cases is None:
        raise Refuted("designs.parquet has a feasible design, claimed is that there is none")
    point = {name: float(best[f"var.{name}"]) for name in (*asked.space.plan, *asked.space.hardware)}
    if claim.best is not None:
        check_listed(asked, point, "designs.parquet: the best design")
    value, excess = asked.nominal.priced(point)
    said = float(best["objective"] if asked.goal == asked.objective.goal else best[f"var.{asked.goal}"])
    if not math.isclose(value, said, rel_tol=SAME) or not feasible(excess):
        raise Refuted(f"designs.parquet: the best design has {asked.goal} {value:.9g}, not {said:.9g} as it says")
    if asked.cases is not None:
        value, excess = asked.priced(point)
    elif claim.best is not None and asked.sign * (math.log(value) - math.log(claim.best)) > SAME:
        raise Refuted(f"designs.parquet: the best design has {asked.goal} {value:.9g}, claimed is {claim.best:.9g}")
    if excess <= 0 and claim.infeasible:
        raise Refuted("designs.parquet has a design that is feasible in every case, claimed is that there is none")
    if excess <= 0 and asked.sign * math.log(value) < claim.log_bound - SAME:
        raise Refuted(f"designs.parquet: the best design has {asked.goal} {value:.9g}, the bound is {claim.bound:.9g}")


def _show(answer: Answer, seconds: dict[str, float], took: dict[str, float], as_json: bool) -> None:
    """What was checked and the answer; times beside those that the search took, compilation included."""
    if as_json:
        found: dict[str, Any] = {"verified": answer.verified, "answer": answer.line, "checks": answer.checks}
        found |= answer.numbers | seconds | {f"search_{name}": value for name, value in took.items()}
        print(dumps(found, indent=2))
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


class _Watch:
    """A progress bar on a terminal, one line a stage elsewhere."""

    def __init__(self, out: Console):
        self.out, self.stage = out, ""
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=out, disable=not out.is_terminal, transient=True,
        )  # fmt: skip
        self.task = self.bar.add_task("reading", total=None)

    def __enter__(self) -> "_Watch":
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
