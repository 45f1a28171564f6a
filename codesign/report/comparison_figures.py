"""Figures of a comparison: the goal of each candidate with its interval, and who is best along what was varied."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ..core.interval_text import UNBOUNDED
from ..core.units import unit_of
from .drawing import INK, SOFT, canvas, render, style
from .findings import headline
from .labels import COLOURS, DASH, metric, number
from .side_by_side import Comparison, sentences, turning_points, winners

ROW_IN = 0.34


def pictures(found: Comparison) -> dict[str, bytes]:
    """Name -> PNG; none where no candidate has a design."""
    drawn: dict[str, bytes] = {}
    with style():
        if not found.feasible.empty:
            drawn["comparison"] = candidates(found)
        if not found.phases.empty and found.phases["feasible"].any():
            drawn["phases"] = along(found)
    return drawn


def candidates(found: Comparison) -> bytes:
    """A mark and its 90 % interval for each candidate, best at the top, its share of draws at the right."""
    figure, (axes,) = canvas(1.35 + ROW_IN * len(found.feasible))
    draw_candidates(found, axes)
    headline(figure, sentences(found)[0].rstrip("."))
    return render(figure)


def draw_candidates(found: Comparison, axes: Axes, most: int | None = None) -> None:
    """The candidates on these axes; so many of the best, with their values alone, where there is less room."""
    ranked = found.feasible.iloc[:most]
    places = np.arange(len(ranked))
    values = ranked["objective"].to_numpy(float)
    low, high = (ranked.get(f"objective_{end}", pd.Series(values, ranked.index)).to_numpy(float) for end in ENDS)
    known, largest = ~np.isnan(low), _most(values, low, high)
    endless = np.isinf(high)
    low, high = (np.where(np.isinf(end), largest, end) for end in (low, high))  # to the edge, where it says so
    axes.hlines(places[known], low[known], high[known], color=COLOURS[3], linewidth=5, zorder=1)
    axes.plot(values, places, "o", color=COLOURS[0], markersize=6, zorder=2)
    for place, (_, row) in zip(places, ranked.iterrows(), strict=True):
        share = row.get("wins", np.nan)
        won = f", best in {share:.0%} of draws" if share == share and len(ranked) > 1 else ""
        end = max(high[place], values[place]) if known[place] else values[place]
        won += f", 90 % interval {UNBOUNDED}" if endless[place] else ""
        won = won if most is None else ""
        text = f"  {found.text(found.goal, row['objective'])}{won}"
        axes.text(end, place, text, va="center", fontsize=8, color=INK)
    axes.set_yticks(places, list(ranked["candidate"]))
    axes.set_ylim(len(ranked) - 0.5, -0.5)
    axes.set_xlim(0, (1.7 if endless.any() else 1.45) * largest)  # room for what stands beside
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= 1.05 * largest])
    axes.set_xlabel(f"{found.label(found.goal)}; bar: 90 % interval")
    axes.grid(axis="y", visible=False)


ENDS = ("low", "high")


def _most(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> float:
    """The largest number that is drawn."""
    every = np.concatenate([values, low, high])
    return float(every[np.isfinite(every)].max())


def along(found: Comparison) -> bytes:
    """The goal of each candidate along what was varied, the best one named below each level."""
    figure, (axes,) = canvas(3.6)
    headline(figure, " ".join(turning_points(found)).rstrip("."))
    told = winners(found)
    levels = [level for level, _ in told]
    for at, name in enumerate(found.table["candidate"]):
        rows = found.phases[found.phases["candidate"] == name].set_index("level").reindex(levels)
        values = rows["objective"].to_numpy(float)
        if np.isnan(values).all():
            continue
        colour = COLOURS[at % len(COLOURS)]
        axes.plot(range(len(levels)), values, "o-", color=colour, markersize=4)
        last = int(np.flatnonzero(~np.isnan(values))[-1])
        axes.text(last + 0.06, values[last], str(name), va="center", fontsize=8, color=INK)
    _levels(axes, found, told)
    axes.set_ylabel(found.label(found.goal))
    axes.set_ylim(0, None)
    axes.set_xlim(-0.4, len(levels) - 1 + max(0.8, 0.25 * len(levels)))
    return render(figure)


def _levels(axes: Axes, found: Comparison, told: list[tuple[str, str]]) -> None:
    unit, shown = unit_of(found.along), []
    for level, best in told:
        value = found.phases.loc[found.phases["level"] == level, "value"].iloc[0]
        name = number(value, unit) if value == value else level
        shown.append(f"{name}\n{best if best != DASH else 'none'}")
    axes.set_xticks(range(len(told)), shown)
    key = found.along.rpartition(".")[2]
    axes.set_xlabel(f"{metric(key, found.words).label}; below: the best there", color=SOFT)
