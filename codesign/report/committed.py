"""The committed outcome of a run: what was asked and found, the best designs as a table, and the figures."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..core.atomic_files import write_files
from . import drawing, wording
from .build import build_report
from .labels import DASH, MINUS, is_number, metric, number
from .run_folder import read_run

# The committed outcome of an experiment: a folder with a Markdown page, its tables as CSV and small figures.


CLAIMS = ("claim", "paper", "model", "error", "tolerance", "provenance")
KINDS = (
    "input",
    "transcription",
    "note",
    "fitted",
    "predicted",
)  # `codesign.evidence.reproduction.KINDS` says what they are
NUMBER = re.compile(rf"[$]?[-{MINUS}]?[0-9]|{DASH}$")  # a text that is a number with its unit
LONGEST_TABLE = 40  # rows a page carries; longer ones are linked


def write_experiment_report(
    folder: Path | str,
    title: str,
    tables: Mapping[str, pd.DataFrame],
    figures: Mapping[str, Figure | bytes] | None = None,
    text: str = "",
    units: Mapping[str, str] | None = None,
) -> Path:
    """Write `README.md`, one CSV per table and one PNG per figure; the same input leaves the same bytes.

    A table with the columns claim, paper, model, error, bar and standing is shown as a table of claims: errors and bars
    are fractions, and a claim is met where `ok` says so, or else where |error| <= bar; one without a bar is only told.

    Args:
        folder: where to write; made where it is absent. Its other files stay.
        title: heading of the page.
        tables: name -> frame, in the order of the page; the name becomes heading and file name.
        figures: name -> figure or PNG bytes.
        text: Markdown under the heading (what was found, question, command).
        units: column -> unit of its numbers, where its name does not tell.

    Returns:
        The page.
    """
    folder = Path(folder)
    files: dict[Path, str | bytes] = {}
    lines = [f"# {title}", ""]
    if text:
        lines += [text.strip(), ""]
    for name, frame in tables.items():
        file = f"{_file_name(name)}.csv"
        files[folder / file] = frame.to_csv(index=False, float_format="%.10g", lineterminator="\n")
        is_claims = set(CLAIMS) <= set(frame.columns)
        shown = _claims(frame) if is_claims else with_units(frame, units or {})
        lines += [f"## {name}", ""]
        if is_claims:
            verdicts = [verdict for verdict in _verdicts(frame) if verdict != "no bar"]
            verdict_text = f"{verdicts.count('yes')} of {len(verdicts)} claims with a bar are met."
            lines += [verdict_text if verdicts else "None of the claims has a bar: the question is our own.", ""]
            lines += _by_kind(frame)
        if is_claims:
            heading, shown = _most_telling(shown)
            lines += heading
        if len(shown) <= LONGEST_TABLE:
            lines += [*markdown_table(shown), ""] if len(shown) else []
        lines += [f"[{len(frame)} rows as CSV]({file})", ""]
    for name, figure in (figures or {}).items():
        file = f"{_file_name(name)}.png"
        files[folder / file] = figure if isinstance(figure, bytes) else drawing.render(figure)
        lines += [f"## {name}", "", f"![{name}]({file})", ""]
    page = folder / "README.md"
    write_files(files | {page: "\n".join(lines).rstrip() + "\n"})
    return page


def with_units(frame: pd.DataFrame, units: Mapping[str, str]) -> pd.DataFrame:
    """Numbers as text with the units that `units` or the columns' names tell; other columns as they are."""
    result = frame.copy()
    for name in result.columns:
        unit = units.get(str(name)) or metric(str(name)).unit
        if _is_numeric(frame[name]) and unit:
            result[name] = [number(value, unit, 4) for value in frame[name]]
    return result


def _is_numeric(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and column.dtype != bool


def markdown_table(frame: pd.DataFrame) -> list[str]:
    """A frame as lines of a Markdown table, numbers to four digits and to the right, those with units too."""
    numeric = [
        _is_numeric(frame[name])
        or (len(frame) > 0 and all(isinstance(value, str) and NUMBER.match(value) for value in frame[name]))
        for name in frame.columns
    ]
    lines = [_row(frame.columns), _row("---:" if right else "---" for right in numeric)]
    return lines + [_row(_cell(value) for value in row) for row in frame.itertuples(index=False, name=None)]


def _verdicts(frame: pd.DataFrame) -> list[str]:
    """Verdict on each claim: whether it met its bar; one without a bar or an error has none to meet."""
    verdicts: list[str] = []
    for row in frame.to_dict(orient="records"):
        ok = row.get("ok")
        if not isinstance(ok, bool | np.bool_):
            ok = (
                abs(row["error"]) <= row["tolerance"]
                if is_number(row["error"]) and is_number(row["tolerance"])
                else None
            )
        verdicts.append("no bar" if ok is None else "yes" if ok else "**no**")
    return verdicts


def _by_kind(frame: pd.DataFrame) -> list[str]:
    """Counts of claims by kind and the median error of predictions, as text; nothing if no kind is given."""
    if "evidence" not in frame:
        return []
    counts = frame["evidence"].value_counts()
    parts = [f"{counts[kind]} {kind}" for kind in KINDS if kind in counts]
    predicted = frame[(frame["evidence"] == "predicted") & frame["paper"].notna() & frame["model"].notna()]
    predicted = predicted[predicted["paper"] != 0]
    apart = (predicted["model"].astype(float) / predicted["paper"].astype(float) - 1).abs()
    middle = f"; median error of what is predicted {number(float(apart.median()), '%')}" if len(apart) else ""
    return [f"Of {len(frame)} claims: {', '.join(parts)}{middle}.", ""]


def _claims(frame: pd.DataFrame) -> pd.DataFrame:
    """Errors and bars in per cent, and whether the bar was met."""
    shown = frame[[name for name in ("experiment", *CLAIMS[:-1], "evidence", CLAIMS[-1]) if name in frame]].copy()
    for name in ("error", "tolerance"):
        shown[name] = [number(value, "%") for value in frame[name]]
    shown["met"] = _verdicts(frame)
    return shown


def _most_telling(shown: pd.DataFrame) -> tuple[list[str], pd.DataFrame]:
    """(lines before it, the claims that a page has room for): all, those with a bar, or those that miss theirs."""
    if len(shown) <= LONGEST_TABLE:
        return [], shown
    judged = shown[shown["met"] != "no bar"]
    if len(judged) <= LONGEST_TABLE:
        return ["Those with a bar:", ""] if len(judged) else [], judged
    missed = judged[judged["met"] != "yes"]
    return ["Those that miss it:", ""] if len(missed) else [], missed


def _cell(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if value is None or isinstance(value, int | float):
        return number(value, "", 4)
    return str(value).replace("|", "\\|").replace("\n", " ")


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _file_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


SHOWN = (
    "rank", "method", "time_s", "ttft_s", "tpot_s", "tokens_per_s", "mfu", "joules_per_token",
    "usd_per_million_tokens", "capex_usd", "provisioned_power_w", "usage.hbm", "usage.ddr", "active_constraints",
)  # fmt: skip
DESIGNS = 10


def write_run_report(run_folder: Path | str, folder: Path | str) -> Path:
    """Write `folder/<name of the study>/` with page, best designs as CSV and the run's figures.

    Where an experiment of the same name has its claims there, the run goes beside it, `<name>_search`.

    Raises:
        ConfigError: the run folder is not a run.
    """
    build_report(run_folder)
    run = read_run(run_folder)
    best = run.designs.head(DESIGNS)
    design = [name for name in best if str(name).startswith("var.")]  # all, so that a test can price it again
    names = [name for name in (*SHOWN[:2], *design, *SHOWN[2:]) if name in best]
    table = pd.DataFrame(best[names]).rename(columns=lambda name: name.removeprefix("var."))
    figures = {path.stem.replace("_", " "): path.read_bytes() for path in sorted((run.path / "figures").glob("*.png"))}
    units = {str(name): run.unit(str(name)) for name in table if run.setting(f"space.hardware.{name}")}
    lines = [
        f"**Best design.** {wording.best_design(run)}",
        f"**Objective.** {wording.objective_text(run)}",
        f"**Design.** {wording.design(run)}",
    ]
    lines += [f"**Confidence.** {wording.certainty(run)}"]
    name = str(run.config.get("name", "study"))
    lines += [
        f"`codesign optimize experiment={name}`, then `codesign report RUN --reports reports` rewrites this page."
    ]
    taken = (Path(folder) / name / "claims.csv").is_file()
    report_folder, text = Path(folder) / (f"{name}_search" if taken else name), "\n\n".join(lines)
    return write_experiment_report(report_folder, wording.title(run), {"Best designs": table}, figures, text, units)
