"""Phase diagram of the best design along varied parameters: the goal above, plan and hardware below."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..model.workloads.plan_fields import words_of
from ..model.workloads.words import OTHERS, Words
from .findings import headline
from .labels import metric, number, unit_of

LINE_IN = 0.34  # height of a line of the lower part
FEWEST = 3  # places that make a diagram


def phase_diagram(
    places: Sequence[str],
    goal: pd.Series,
    cells: pd.DataFrame,
    *,
    along: str,
    label: str,
    bound: pd.Series | None = None,
    found: str = "",
) -> Figure:
    """The figure.

    Args:
        places: what was varied, in words, one for each row of the others.
        goal: of the best design at each place.
        cells: what is told of it, one column a line, words or numbers; columns that never change are left out.
        along, label: of the axes.
        bound: what no design can be better than, at each place.
        found: the finding, above the figure.
    """
    cells = cells[[name for name in cells if cells[name].nunique() > 1]]
    figure = Figure(figsize=(8.5, 2.6 + LINE_IN * len(cells.columns)), layout="constrained")
    if found:
        headline(figure, found)
    upper, lower = figure.subplots(2, 1, height_ratios=[2.0, LINE_IN * max(len(cells.columns), 1)])
    at = np.arange(len(places))
    upper.plot(at, goal, "o-", color="#0072b2", label="best design")
    if bound is not None:
        upper.plot(at, bound, "_", color="#d55e00", markersize=16, label="bound on every design")
        upper.legend(frameon=False, fontsize=8)
    upper.set_ylabel(label)
    upper.set_ylim(min(0.0, float(goal.min())), max(0.0, 1.08 * float(goal.max())))
    upper.set_xlim(-0.5, len(places) - 0.5)
    shades = [pd.factorize(cells[name], sort=True)[0] / (cells[name].nunique() - 1) for name in cells]
    if shades:
        lower.imshow(np.array(shades), aspect="auto", cmap=matplotlib.colormaps["Blues"], vmin=-0.3, vmax=1.8)
    lower.grid(visible=False)
    for line, name in enumerate(cells):
        for index, value in enumerate(cells[name]):
            text = value if isinstance(value, str) else f"{value:g}"
            lower.text(index, line, text, ha="center", va="center", fontsize=8)
    lower.set_yticks(range(len(cells.columns)), [str(name).replace("_", " ") for name in cells], fontsize=8)
    upper.set_xticks(at, places)
    lower.set_xticks(at, places)
    lower.set_xlabel(along)
    return figure


def phases_of(frame: pd.DataFrame, goal: str, units: Mapping[str, str], words: Words = OTHERS) -> Figure | None:
    """The diagram of a collected multirun in which one number was varied; None of any other.

    Args:
        frame: the best design of each job, with its `overrides` in words.
        goal: its metric.
        units: hardware variable -> unit.
    """
    frame = frame[frame["feasible"]]
    result = varied(list(frame["overrides"]))
    if result is None or len(frame) < FEWEST:
        return None
    key, values = result
    order = np.argsort(values, kind="stable")
    frame, shown = frame.iloc[order], [number(values[i], unit_of(key)) for i in order]
    names = [str(name)[4:] for name in frame if str(name).startswith("var.")]
    cells = pd.DataFrame({n: [_cell(n, value, units.get(n, "")) for value in frame[f"var.{n}"]] for n in names})
    cells["binds first"] = [_first_limit(str(text)) for text in frame["active_constraints"]]
    label = metric(goal, words).label if goal.replace(".", "").isidentifier() else goal
    return phase_diagram(shown, frame["objective"].reset_index(drop=True), cells, along=key, label=label)


def _first_limit(binds: str) -> str:
    """First limit of a text such as `hbm 99.0%; dp 3% of time`."""
    limits = [part.strip() for part in binds.split(";") if not part.endswith("of time")]
    return limits[0].rsplit(" ", 1)[0] if limits and limits[0] else "nothing"


def _cell(name: str, value: float, unit: str) -> str:
    return words_of(name)[int(value)] if words_of(name) else number(float(value), unit, 3)


def varied(overrides: Sequence[str]) -> tuple[str, list[float]] | None:
    """(key, its number in each job) where jobs differ in the number of one key alone."""
    words: list[dict[str, str]] = []
    for text in overrides:
        pairs = [word.partition("=") for word in text.split()]
        words.append({key: value for key, _, value in pairs})
    keys = {key for mine in words for key in mine}
    differing = [key for key in keys if len({mine.get(key) for mine in words}) > 1]
    if len(differing) != 1:
        return None
    try:
        return differing[0], [float(mine[differing[0]]) for mine in words]
    except (KeyError, ValueError):
        return None
