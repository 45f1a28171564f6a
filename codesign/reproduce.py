"""Experiments that reproduce published results: claim | paper | model | error | bar | standing.

An experiment is a folder of `experiments/` with a `claims.py` that defines `claims() -> list[Claim]`, and where the
committed page shows more than model against paper, `tables() -> {name: DataFrame}` and `figures() -> {name: Figure}`;
its README says what is asked, what was expected and what was seen. Standing is how much the number proves: `published`
(every constant printed by its source), `derived` (follows from constants fitted elsewhere), `fitted k on n`
(calibration), `not determined: <reason>`.
"""

import functools
import importlib.util
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import CodesignError, ConfigError, suggestion

LONGEST_FIGURE = 60  # claims that a figure shows; of more those with a bar, and of these those farthest apart


@dataclass(frozen=True)
class Claim:
    """One published number and what the model says.

    `error` is |model / paper - 1| unless given; `bar` the largest error allowed, None where nothing is demanded.
    `found` holds what a search returned, by name, so that others can price it.
    """

    experiment: str
    claim: str
    paper: float | None
    model: float | None
    bar: float | None
    standing: str
    error: float | None = None
    found: dict[str, Any] | None = None

    def row(self) -> dict[str, Any]:
        """The claim with its error and verdict; `ok` is None where no bar is set."""
        error = self.error
        if error is None and self.paper and self.model is not None:
            error = abs(self.model / self.paper - 1)
        ok = None if self.bar is None or error is None else bool(error <= self.bar)
        row = asdict(self) | {"error": error, "ok": ok}
        return row if self.found is not None else {key: value for key, value in row.items() if key != "found"}


def experiments_folder() -> Path:
    """Where the experiments lie: beside the package in a checkout, inside it when installed.

    Raises:
        CodesignError: neither is there.
    """
    here = Path(__file__).resolve().parent
    for folder in (here.parent / "experiments", here / "experiments"):
        if folder.is_dir():
            return folder
    raise CodesignError("the experiments folder is missing: install the package whole or run from a checkout")


def available() -> dict[str, Path]:
    """Experiments that state claims: name -> folder."""
    return {path.parent.name: path.parent for path in sorted(experiments_folder().glob("*/claims.py"))}


@functools.cache
def load(folder: Path) -> ModuleType:
    """The `claims.py` of an experiment, run once a process: experiments may build on each other."""
    specification = importlib.util.spec_from_file_location(f"codesign_experiment_{folder.name}", folder / "claims.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def reproduce(names: Iterable[str] = ("all",), progress: Callable[[str], None] = lambda name: None) -> list[dict]:
    """Run experiments and return their rows.

    Args:
        names: experiments, or `all`.
        progress: told the name of each experiment before it runs.

    Raises:
        ConfigError: an unknown name, with a suggestion.
    """
    known = available()
    wanted = list(names)
    if not wanted or "all" in wanted:
        wanted = list(known)
    for name in wanted:
        if name not in known:
            raise ConfigError(f"experiment {name!r} does not exist{suggestion(name, known)}")
    rows = []
    for name in wanted:
        progress(name)
        rows += [claim.row() for claim in load(known[name]).claims()]
    return rows


def write_reports(rows: list[dict[str, Any]], folder: str | Path) -> list[Path]:
    """The committed outcome of each experiment in `rows`: `folder/<experiment>/` with page, table and figure."""
    import pandas as pd

    from .report import write_experiment_report

    frame, pages, known = pd.DataFrame(rows), [], available()
    for name, part in frame.groupby("experiment", sort=True):
        module = load(known[str(name)]) if name in known else None
        text = f"Question, command and what was expected: [experiments/{name}](../../experiments/{name}/README.md)."
        tables = {"Claims": part.reset_index(drop=True)} | getattr(module, "tables", dict)()
        both = (part["paper"].notna() & part["model"].notna()).any()
        figures = {"Model against paper": agreement(part)} if both else {}
        figures |= getattr(module, "figures", dict)()
        pages.append(write_experiment_report(Path(folder) / str(name), str(name), tables, figures, text))
    return pages


def agreement(claims: Any) -> Any:
    """Model over paper for every claim with both numbers, one row each, the bar shaded where it bounds that ratio."""
    from matplotlib.figure import Figure

    shown = claims[claims["paper"].notna() & claims["model"].notna() & (claims["paper"] != 0)].iloc[::-1]
    if len(shown) > LONGEST_FIGURE:
        shown = shown[shown["bar"].notna()]
    apart = (shown["model"] / shown["paper"] - 1).abs()
    title = ""
    if len(shown) > LONGEST_FIGURE:
        title = f"the {LONGEST_FIGURE} of {len(shown)} claims that lie farthest apart"
        shown = shown.loc[apart.sort_values().index[-LONGEST_FIGURE:]]
    own = (shown["error"] - apart).abs() > 1e-9  # an error of its own kind, such as points: its bar has another scale
    figure = Figure(figsize=(9.0, 1.0 + 0.27 * len(shown)), layout="constrained")
    axes = figure.add_subplot()
    heights = range(len(shown))
    axes.axvline(1.0, color="0.4", linewidth=1)
    for height, bar in zip(heights, shown["bar"].where(~own), strict=True):
        if bar == bar and bar is not None:
            axes.barh(height, 2 * bar, left=1 - bar, height=0.8, color="#0072b2", alpha=0.15)
    axes.plot(shown["model"] / shown["paper"], list(heights), "o", color="#d55e00", markersize=5)
    axes.set_yticks(list(heights), [_label(text) for text in shown["claim"]], fontsize=8)
    axes.set_xlabel("model / paper")
    axes.set_title(title, fontsize=9)
    axes.set_ylim(-1, len(shown))
    axes.grid(axis="x", alpha=0.3)
    return figure


def _label(claim: str) -> str:
    """A claim without its remark on errors; of a long one its beginning and its end."""
    text = re.sub(r" \(error[^)]*\)", "", claim)
    return text if len(text) <= 76 else f"{text[:46]} ... {text[-24:]}"
