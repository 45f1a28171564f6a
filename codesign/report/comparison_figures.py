"""Figures of a comparison: the goal of each candidate with its interval, and who is best along what was varied."""

import base64
import functools
import math
import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..core.atomic_files import write_files
from ..core.interval_text import UNBOUNDED
from ..core.units import unit_of
from .drawing import ACCENT, DPI, INK, SOFT, canvas, render, style
from .findings import BLUE, GREY, ORANGE, beside, headline, panels
from .labels import COLOURS, DASH, metric, number
from .pages import rendered
from .side_by_side import Comparison, sentences, turning_points, winners

__all__ = ["SIZES", "AnswerSlide", "api_figure", "pictures", "write_slide"]


# A fleet of one's own against an API's price: dollars of a month by load.


def api_figure(table: pd.DataFrame, cheaper: float, always: float, what: str) -> Figure:
    """Stairs of replicas and the line of the API.

    Args:
        table: of `commands.api_prices.load_table`.
        cheaper: requests/s from which on owning may be cheaper.
        always: requests/s from which on it is at every load.
        what: the fleet, in words.
    """
    with style():
        figure, ((axes,),) = panels(3.0)
        load = table["requests_per_s"]
        axes.plot(load, table["own_usd"] / 1e3, color=BLUE, lw=1.4)
        axes.plot(load, table["api_usd"] / 1e3, color=ORANGE, lw=1.4)
        last = table.iloc[-1]
        beside(axes, "API", last["requests_per_s"], last["api_usd"] / 1e3, ORANGE, (-4, 4))
        beside(axes, what, last["requests_per_s"], last["own_usd"] / 1e3, BLUE, (-4, -5))
        for rate, text in {cheaper: "one replica pays", always: "always"}.items():
            if math.isfinite(rate) and rate <= last["requests_per_s"]:
                axes.axvline(rate, color=GREY, lw=0.8, ls=":")
                beside(axes, text, rate, axes.get_ylim()[1], GREY, (3, -4))
        axes.set_xlim(0, last["requests_per_s"])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("requests a second, always")
        axes.set_ylabel("thousand dollars a month")
        title = "An API at this price is cheaper at every load"
        if math.isfinite(always):
            title = f"Owning is cheaper at every load from {always:.3g} requests a second on"
        headline(figure, title)
    return figure


ROW_IN = 0.34


def pictures(comparison: Comparison) -> dict[str, bytes]:
    """Name -> PNG; none where no candidate has a design."""
    drawn: dict[str, bytes] = {}
    with style():
        if not comparison.feasible.empty:
            drawn["comparison"] = candidates(comparison)
        if not comparison.phases.empty and comparison.phases["feasible"].any():
            drawn["phases"] = along(comparison)
    return drawn


def candidates(comparison: Comparison) -> bytes:
    """A mark and its 90 % interval for each candidate, best at the top, its share of draws at the right."""
    figure, (axes,) = canvas(1.35 + ROW_IN * len(comparison.feasible))
    draw_candidates(comparison, axes)
    headline(figure, sentences(comparison)[0].rstrip("."))
    return render(figure)


def draw_candidates(comparison: Comparison, axes: Axes, most: int | None = None) -> None:
    """The candidates on these axes; so many of the best, with their values alone, where there is less room."""
    ranked = comparison.feasible.iloc[:most]
    places = np.arange(len(ranked))
    values = ranked["objective"].to_numpy(float)
    low, high = (ranked.get(f"objective_{end}", pd.Series(values, ranked.index)).to_numpy(float) for end in ENDS)
    has_interval, largest = ~np.isnan(low), _most(values, low, high)
    endless = np.isinf(high)
    low, high = (np.where(np.isinf(end), largest, end) for end in (low, high))  # to the edge, where it says so
    axes.hlines(places[has_interval], low[has_interval], high[has_interval], color=COLOURS[3], linewidth=5, zorder=1)
    axes.plot(values, places, "o", color=COLOURS[0], markersize=6, zorder=2)
    for y, (_, row) in zip(places, ranked.iterrows(), strict=True):
        share = row.get("wins", np.nan)
        won = f", best in {share:.0%} of draws" if share == share and len(ranked) > 1 else ""
        end = max(high[y], values[y]) if has_interval[y] else values[y]
        won += f", 90 % interval {UNBOUNDED}" if endless[y] else ""
        won = won if most is None else ""
        text = f"  {comparison.text(comparison.goal, row['objective'])}{won}"
        axes.text(end, y, text, va="center", fontsize=8, color=INK)
    axes.set_yticks(places, list(ranked["candidate"]))
    axes.set_ylim(len(ranked) - 0.5, -0.5)
    axes.set_xlim(0, (1.7 if endless.any() else 1.45) * largest)  # room for what stands beside
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= 1.05 * largest])
    axes.set_xlabel(f"{comparison.label(comparison.goal)}; bar: 90 % interval")
    axes.grid(axis="y", visible=False)


ENDS = ("low", "high")


def _most(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """The largest number that is drawn."""
    every = np.concatenate([values, low, high])
    return float(every[np.isfinite(every)].max())


def along(comparison: Comparison) -> bytes:
    """The goal of each candidate along what was varied, the best one named below each level."""
    figure, (axes,) = canvas(3.6)
    headline(figure, " ".join(turning_points(comparison)).rstrip("."))
    best_by_level = winners(comparison)
    levels = [level for level, _ in best_by_level]
    for at, name in enumerate(comparison.table["candidate"]):
        rows = comparison.phases[comparison.phases["candidate"] == name].set_index("level").reindex(levels)
        values = rows["objective"].to_numpy(float)
        if np.isnan(values).all():
            continue
        colour = COLOURS[at % len(COLOURS)]
        axes.plot(range(len(levels)), values, "o-", color=colour, markersize=4)
        last = int(np.flatnonzero(~np.isnan(values))[-1])
        axes.text(last + 0.06, values[last], str(name), va="center", fontsize=8, color=INK)
    _levels(axes, comparison, best_by_level)
    axes.set_ylabel(comparison.label(comparison.goal))
    axes.set_ylim(0, None)
    axes.set_xlim(-0.4, len(levels) - 1 + max(0.8, 0.25 * len(levels)))
    return render(figure)


def _levels(axes: Axes, comparison: Comparison, best_by_level: list[tuple[str, str]]) -> None:
    unit, shown = unit_of(comparison.along), []
    for level, best in best_by_level:
        value = comparison.phases.loc[comparison.phases["level"] == level, "value"].iloc[0]
        name = number(value, unit) if value == value else level
        shown.append(f"{name}\n{best if best != DASH else 'none'}")
    axes.set_xticks(range(len(best_by_level)), shown)
    key = comparison.along.rpartition(".")[2]
    axes.set_xlabel(f"{metric(key, comparison.words).label}; below: the best there", color=SOFT)


# One slide for whoever pays: the choice, why, what it costs, how sure it is, what would change it.
#
# `slide.html` prints on one landscape page; `slide.png` is the same as a picture for other documents.


PAGE, PICTURE = "slide.html", "slide.png"
WIDTH_IN, HEIGHT_IN = 13.333, 7.5  # 16:9
SIZES = (13.0, 12.0, 11.0, 10.0, 9.0, 8.0, 7.0)  # points of the text, the first that fits
TEXT_IN = (7.1, 4.45)  # width and height of the text
LETTER = 0.53  # width of a letter in the size of its line
APART = 0.4  # of a line, between sentences
SHOWN = 8  # candidates in the chart: all that a slide has room for


@dataclass(frozen=True)
class AnswerSlide:
    """Content of the slide.

    question: what was asked; choice: the answer in one line; facts: pairs of (number with its unit, what it is), the
    largest first; why, risk, changes: sentences on why it is chosen, how sure that is, and what would change the
    answer; assumed: what nobody said; made: command and date.
    """

    question: str
    choice: str
    facts: tuple[tuple[str, str], ...]
    why: tuple[str, ...]
    risk: tuple[str, ...]
    changes: tuple[str, ...]
    assumed: tuple[str, ...] = ()
    made: str = ""

    @property
    def sections(self) -> list[tuple[str, tuple[str, ...]]]:
        """(heading, sentences) of what has any."""
        named = (("Why", self.why), ("Risk", self.risk), ("What would change the answer", self.changes))
        return [(head, lines) for head, lines in named if lines]


def write_slide(slide: AnswerSlide, comparison: Comparison, folder: Path) -> Path:
    """`slide.html` and `slide.png` in a folder; the page's path."""
    page = folder / PAGE
    with style():
        chart, picture = _chart(comparison), _picture(slide, comparison)
    uri = "data:image/png;base64," + base64.b64encode(chart).decode("ascii")
    write_files({page: rendered("slide.html.j2", slide=slide, chart=uri), folder / PICTURE: picture})
    return page


def _chart(comparison: Comparison) -> bytes:
    """The candidates alone, as the page shows them beside its text."""
    figure = Figure(figsize=(6.2, _height(comparison)), dpi=2 * DPI, layout="constrained")
    draw_candidates(comparison, figure.subplots(), SHOWN)
    return render(figure)


def _height(comparison: Comparison) -> float:
    return 1.0 + 0.4 * min(len(comparison.feasible), SHOWN)


def _fitted(slide: AnswerSlide) -> tuple[float, list[tuple[str, list[list[str]]]]]:
    """The largest size in which all sections fit, and their wrapped sentences."""
    for size in SIZES:
        letters = int(72 * TEXT_IN[0] / (LETTER * size))
        lines = [(head, [textwrap.wrap(text, letters) for text in texts]) for head, texts in slide.sections]
        rows = sum(1.4 + APART + sum(len(wrapped) + APART for wrapped in texts) for _, texts in lines)
        if rows * 1.3 * size / 72 <= TEXT_IN[1]:
            break
    return size, lines


def _picture(slide: AnswerSlide, comparison: Comparison) -> bytes:
    """The whole slide drawn; text that does not fit is set smaller."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), dpi=DPI)
    FigureCanvasAgg(figure)
    written = functools.partial(figure.text, parse_math=False)  # two prices in a line are no formula
    written(0.04, 0.945, textwrap.fill(slide.question, 150), fontsize=11, color=SOFT, va="center")
    written(0.04, 0.88, textwrap.fill(slide.choice, 78), fontsize=21, weight="bold", va="center")
    step = 0.92 / max(len(slide.facts), 1)
    for at, (value, what) in enumerate(slide.facts):
        written(0.04 + at * step, 0.775, value, fontsize=17, color=ACCENT, weight="bold", va="center")
        written(0.04 + at * step, 0.725, what, fontsize=10, color=SOFT, va="center")
    size, lines = _fitted(slide)
    line, y = 1.3 * size / 72 / HEIGHT_IN, 0.67
    for head, texts in lines:
        written(0.04, y, head, fontsize=1.1 * size, weight="bold", color=INK, va="top")
        y -= 1.4 * line
        for wrapped in texts:
            written(0.04, y, "\n".join(wrapped), fontsize=size, color=INK, va="top", linespacing=1.2)
            y -= (len(wrapped) + APART) * line
        y -= APART * line
    tall = min(0.52, _height(comparison) / HEIGHT_IN)
    draw_candidates(comparison, figure.add_axes((0.66, 0.67 - tall, 0.31, tall - 0.06)), SHOWN)
    small = [f"Assumed: {'; '.join(slide.assumed)}."] if slide.assumed else []
    small += [slide.made] if slide.made else []
    written(0.04, 0.03, "\n".join(textwrap.fill(text, 215) for text in small), fontsize=7.5, color=SOFT)
    return render(figure)
