"""Experiments that reproduce published results: claim | paper | model | error | bar | standing.

An experiment is a folder of `experiments/` with a `claims.py` that defines `claims() -> list[Claim]`, and where the
committed page shows more than model against paper, `tables() -> {name: DataFrame}` and `figures() -> {name: Figure}`;
its README says what is asked, what was expected and what was seen. Experiments share the code of `experiments/_lib/`.
Standing is how much the number proves: `published`
(every constant printed by its source), `derived` (follows from constants fitted elsewhere), `fitted k on n`
(calibration), `not determined: <reason>`. Of which kind a claim is (`KINDS`) follows from its standing, where the
module's own `KINDS`, kind -> pattern of the claim's words, does not say otherwise.
"""

import functools
import importlib.util
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ..core.errors import CodesignError, ConfigError, suggestion
from ..core.free_memory import forget_calls, forget_programs, give_back, resident_bytes

__all__ = [
    "KINDS", "Claim", "available", "claims_of", "experiments_folder", "forget", "kind_of", "load", "reproduce",
    "summary", "write_reports",
]  # fmt: skip


KINDS = {
    "input": "a number of the document that the model is given, read back",
    "transcription": "numbers of the document compared with each other",
    "note": "a remark of ours, or a number that nothing determines",
    "fitted": "met with constants, or an operating point, chosen on this number or on others of its set",
    "predicted": "follows without it",
}
"""Kinds of claims. Only the last two can fail: the others have no standing against a bar."""

COLUMNS = {"bar": "tolerance", "standing": "provenance", "kind": "evidence"}
"""Field of a claim -> column of tables of claims."""

JUDGED = ("fitted", "predicted")

MOST_HELD = 3 << 28  # bytes (0.75 GiB) above which programs are dropped between two experiments

DOCUMENTS = {
    "pfa": ("pfa_",),
    "lumorph": ("lumorph_",),
    "intranode": ("intranode_",),
    "fabrex": ("fabrex_",),
    "scin": ("scin_",),
}
"""Source document -> how the names of its experiments begin."""


@dataclass(frozen=True)
class Claim:
    """One published number and what the model says.

    `error` is |model / paper - 1| unless given; `bar` the largest error allowed, None where nothing is demanded.
    `found` holds what a search returned, by name, so that others can price it. `kind` is one of `KINDS`; without it
    the standing tells.
    """

    experiment: str
    claim: str
    paper: float | None
    model: float | None
    bar: float | None
    standing: str
    error: float | None = None
    found: dict[str, Any] | None = None
    kind: str | None = None

    def __post_init__(self) -> None:
        """The kind is known, or follows from the standing."""
        if self.kind is None:
            object.__setattr__(self, "kind", kind_of(self))
        if self.kind not in KINDS:
            raise ConfigError(f"claim {self.claim!r}: kind = {self.kind!r} is not one of {', '.join(KINDS)}")

    def row(self) -> dict[str, Any]:
        """The claim with its error and verdict; `ok` is None where no bar is set, or none can be: see `KINDS`."""
        error = self.error
        if error is None and self.paper and self.model is not None:
            error = abs(self.model / self.paper - 1)
        bar = self.bar if self.kind in JUDGED else None
        ok = None if bar is None or error is None else bool(error <= bar)
        fields = asdict(self) | {"error": error, "bar": bar, "ok": ok}
        row = {COLUMNS.get(key, key): value for key, value in fields.items()}
        return row if self.found is not None else {key: value for key, value in row.items() if key != "found"}


def kind_of(claim: Claim) -> str:
    """Kind of a claim by its standing; what is told without a number of the document or a bar is a note."""
    standing = claim.standing
    for begun, kind in (("fitted", "fitted"), ("not determined", "note"), ("published: an input", "input")):
        if standing.startswith(begun):
            return kind
    return "note" if claim.paper is None and claim.bar is None else "predicted"


def experiments_folder() -> Path:
    """Folder of the experiments: beside the package in a checkout, inside it when installed.

    Raises:
        CodesignError: neither is there.
    """
    here = Path(__file__).resolve().parents[1]
    for folder in (here.parent / "experiments", here / "experiments"):
        if folder.is_dir():
            return folder
    raise CodesignError("the experiments folder is missing: install the package whole or run from a checkout")


def available() -> dict[str, Path]:
    """Experiments that state claims: name -> folder."""
    return {path.parent.name: path.parent for path in sorted(experiments_folder().glob("*/claims.py"))}


@functools.cache
def load(folder: Path) -> ModuleType:
    """The `claims.py` of an experiment, run once a process: experiments may build on each other.

    What they share lies beside them in `_lib` and is imported by that name.
    """
    if str(folder.parent) not in sys.path:
        sys.path.insert(0, str(folder.parent))
    specification = importlib.util.spec_from_file_location(f"codesign_experiment_{folder.name}", folder / "claims.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def forget(name: str) -> None:
    """Let go of what an experiment has computed, and of programs where this process holds much; it may run again."""
    module = load(available()[name])
    forget_calls({key: held for key, held in vars(module).items()
                  if getattr(held, "__module__", "") == module.__name__})  # fmt: skip
    if resident_bytes() > MOST_HELD:
        forget_programs()
    if resident_bytes() > MOST_HELD:
        give_back(cycles=True)


def claims_of(folder: Path) -> list[Claim]:
    """The claims of an experiment, each of the kind that its module says."""
    module = load(folder)
    said = getattr(module, "KINDS", {})

    def reported(claim: Claim) -> Claim:
        kinds = [kind for kind, pattern in said.items() if re.search(pattern, claim.claim)]
        return replace(claim, kind=kinds[0]) if kinds else claim

    return [reported(claim) for claim in module.claims()]


def reproduce(
    names: Iterable[str] = ("all",),
    progress: Callable[[str, list[dict]], None] = lambda *_: None,
    failed: Callable[[str, Exception], None] | None = None,
) -> list:
    """Run experiments and return their rows.

    Args:
        names: experiments, or `all`.
        progress: told the name of each experiment and its rows: none before it runs, all of them after. What it raises
            then is an error of the experiment.
        failed: told of an experiment that ends in an error, after which the others run; without it the error is raised.

    Raises:
        ConfigError: an unknown name, with a suggestion.
    """
    experiments = available()
    wanted = list(names)
    if not wanted or "all" in wanted:
        wanted = list(experiments)
    for name in wanted:
        if name not in experiments:
            raise ConfigError(f"experiment {name!r} does not exist{suggestion(name, experiments)}")
    rows = []
    for name in wanted:
        progress(name, [])
        try:
            result = [claim.row() for claim in claims_of(experiments[name])]
            rows += result
            progress(name, result)
        except Exception as error:
            if failed is None or isinstance(error, BrokenPipeError):
                raise
            failed(name, error)
    return rows


def summary(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts of claims by kind and of those that meet their tolerance, and the median error of predictions.

    `median_error` is that of |model / paper - 1| of the predicted claims, all and for each source document; None where
    there is none.
    """
    rows = list(rows)
    result: dict[str, Any] = {"all": _counts(rows)}
    for document, prefixes in DOCUMENTS.items():
        mine = [row for row in rows if str(row["experiment"]).startswith(prefixes)]
        if mine:
            result[document] = _counts(mine)
    return result


def summary_rows(counts: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A `summary` as rows of a table: `of`, a column a kind (met of those with a bar), `median error`."""
    rows = []
    for name, result in counts.items():
        row: dict[str, Any] = {"of": name}
        for kind in KINDS:
            one = result[kind]
            bars = f" ({one['met']} of {one['with_bar']} met)" if one.get("with_bar") else ""
            row[kind] = f"{one['claims']}{bars}"
        rows.append(row | {"median error": result["median_error"]})
    return rows


def _counts(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts and median error of one set of rows."""
    result: dict[str, Any] = {}
    for kind in KINDS:
        mine = [row for row in rows if row["evidence"] == kind]
        result[kind] = {"claims": len(mine)}
        if kind in JUDGED:
            verdicts = [row["ok"] for row in mine if row["ok"] is not None]
            result[kind] |= {"with_bar": len(verdicts), "met": sum(verdicts)}
    errors = [apart for row in rows if row["evidence"] == "predicted" if (apart := _apart(row)) is not None]
    return result | {"median_error": statistics.median(errors) if errors else None}


def _apart(row: Mapping[str, Any]) -> float | None:
    """|model / paper - 1|, where both are numbers and the paper's is not 0."""
    paper, model = row["paper"], row["model"]
    if not isinstance(paper, int | float) or model is None or not paper or math.isnan(paper) or math.isnan(model):
        return None
    return abs(model / paper - 1)


def finding(name: str) -> list[str]:
    """The sentence `**Finding.** ...` of an experiment's page, where it has one."""
    page = experiments_folder() / name / "README.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    result = re.search(r"^\*\*Finding\.\*\* .*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return [result[0]] if result else []


def write_reports(rows: list[dict[str, Any]], folder: str | Path) -> list[Path]:
    """The committed outcome of each experiment in `rows`: `folder/<experiment>/` with page, table and figure."""
    import pandas as pd

    from ..report import style, write_experiment_report
    from ..report.findings import agreement

    frame, pages, experiments = pd.DataFrame(rows), [], available()
    for name, part in frame.groupby("experiment", sort=True):
        module = load(experiments[str(name)]) if name in experiments else None
        page = f"[experiments/{name}](../../experiments/{name}/README.md)"
        text = "\n\n".join([*finding(str(name)), f"Question, command and what was expected: {page}."])
        if part["found"].isna().all() if "found" in part else False:  # of others that were reproduced beside it
            part = part.drop(columns="found")
        tables = {"Claims": part.reset_index(drop=True)} | getattr(module, "tables", dict)()
        both = (part["paper"].notna() & part["model"].notna()).any()
        drawn = agreement(part) if both else None
        figures = {"Model against paper": drawn} if drawn is not None else {}
        with style():
            figures |= getattr(module, "figures", dict)()
            pages.append(write_experiment_report(Path(folder) / str(name), str(name), tables, figures, text))
    return pages
