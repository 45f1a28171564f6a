"""Candidates of a comparison: a study for each combination of listed values, its best design or why there is none."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import pandas as pd

from ..config import Study, study_from_config
from ..config.composition import admit, combinations
from ..config.study import study_from_plain
from ..core.errors import ConfigError
from ..core.jax_typed import asarray
from ..model.scenario import Scenario
from ..report.run_folder import read_run
from ..search import Certificate
from ..search.results import placed

PROOF = "search=certified"
"""Search that each candidate gets by default."""
ONLY_FLEET = "own fleet"  # where there is but one


@dataclass(frozen=True)
class Candidate:
    """One of what is compared.

    label: what tells it from the others; varied: key -> its value of what is listed; overrides: that make it; designs:
    frame, best first; why: that there is no design to compare, in one line; folder: of its run, if it has one; margin:
    in words, with which its limits were searched.
    """

    label: str
    varied: dict[str, str]
    overrides: tuple[str, ...]
    study: Study | None = None
    designs: pd.DataFrame | None = None
    certificate: Certificate | None = None
    claim: str = ""
    why: str = ""
    folder: str = ""
    margin: str = ""

    @property
    def best(self) -> pd.Series | None:
        """Its best design; None where it has none that keeps all limits."""
        if self.why or self.designs is None:
            return None
        return self.designs.iloc[0]

    @functools.cached_property
    def scenario(self) -> Scenario:
        """Scenario of its best design."""
        assert self.study is not None
        assert self.best is not None
        return jax.tree.map(asarray, placed(self.study.problem, self.best))


def listed(arguments: Sequence[str], *, one_is_enough: bool = False) -> list[Candidate]:
    """The candidates that overrides with lists of values name, unsearched; one, where something else is beside it.

    Raises:
        ConfigError: an override that no candidate could take, or nothing that is listed.
    """
    searched = any(text.lstrip("+~").startswith("search=") for text in arguments)
    admitted = admit([*([] if searched else [PROOF]), *arguments])
    jobs = combinations(admitted)
    if len(jobs[0]) < len(admitted):
        keys = [text.partition("=")[0] for text in admitted]
        key = next(each for each in keys if keys.count(each) > 1)
        raise ConfigError(f"compare: {key} stands twice: write it once, with all its values")
    varied = [at for at in range(len(admitted)) if len({job[at] for job in jobs}) > 1]
    if not varied and one_is_enough:
        return [dataclasses.replace(_candidate(jobs[0], []), label=ONLY_FLEET)]
    if not varied:
        raise ConfigError("compare: name at least two options, as in accelerator=h100_sxm,h200,b200")
    return [_candidate(job, varied) for job in jobs]


def _candidate(job: Sequence[str], varied: Sequence[int]) -> Candidate:
    pairs = [job[at].lstrip("+~").partition("=") for at in varied]
    values = {key: value for key, _, value in pairs}
    return Candidate(_label(values), values, tuple(job))


def _label(varied: dict[str, str]) -> str:
    """`h200 · tpot_s 0.05`: options of groups alone, values with the last word of their key."""
    return " · ".join(
        value if "." not in key else f"{key.rpartition('.')[2]} {value}" for key, value in varied.items() if value
    )


def refuse_all(candidates: Sequence[Candidate]) -> None:
    """Raise an error if none of the candidates has a study.

    Raises:
        ConfigError: the reason of all, or that of each.
    """
    if any(candidate.study is not None for candidate in candidates):
        return
    reasons = {candidate.why for candidate in candidates}
    if len(reasons) == 1:
        raise ConfigError(next(iter(reasons)))
    raise ConfigError("; ".join(f"{candidate.label}: {candidate.why}" for candidate in candidates))


def study_of(candidate: Candidate, more: Sequence[str] = ()) -> Study:
    """The study of a candidate, perhaps with further overrides.

    Raises:
        ConfigError: anything wrong in the configuration.
    """
    return study_from_config(*candidate.overrides, *more)


def of_folders(folders: Sequence[Path]) -> list[Candidate]:
    """The jobs of a multirun as candidates, from what each left in its folder; those refused are left out."""
    result = list[Candidate]()
    for folder in folders:
        why = _text(folder / "error.txt")
        if not (folder / "designs.parquet").is_file():
            continue
        overrides = tuple(_text(folder / "overrides.txt").splitlines())
        run = read_run(folder)
        study = study_from_plain(run.config, overrides, run.conf)
        claim = str(run.summary.get("claim") or "")
        result.append(Candidate("", {}, overrides, study, run.designs, run.certificate, claim, why, folder.name))
    return _distinguished(result)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def _distinguished(candidates: Sequence[Candidate]) -> list[Candidate]:
    """With labels of the overrides that not all share."""
    pairs = [[text.lstrip("+~").partition("=") for text in candidate.overrides] for candidate in candidates]
    names = [{key: value for key, _, value in mine} for mine in pairs]
    keys = [key for key in dict.fromkeys(itertools.chain(*names)) if len({mine.get(key) for mine in names}) > 1]
    lines = list[Candidate]()
    for candidate, mine in zip(candidates, names, strict=True):
        varied = {key: mine.get(key, "") for key in keys}
        lines.append(dataclasses.replace(candidate, label=_label(varied) or candidate.folder, varied=varied))
    return lines
