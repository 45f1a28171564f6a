"""Figures of a run, drawn from the frames of `series`. The same data give the same bytes."""

import math
import string
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from . import proof, series
from .drawing import ACCENT, INK, SOFT, WIDTH_IN, canvas, render, style
from .findings import CLEAR
from .labels import (
    DASH,
    KERNELS,
    KINDS,
    MEMORY_CLASSES,
    OTHER_COLOUR,
    PARTS,
    TIERS,
    axis_prefix,
    component,
    money,
    number,
    signed,
)
from .run_folder import RunFolder

__all__ = ["digits_apart", "memory_picture"]


# One picture of what lies in a device's memory when: stacked bars over the moments of a job against what there is.


GIB = 2**30


def memory_picture(moments: Mapping[str, Mapping[str, float]], lines: Mapping[str, float], title: str) -> bytes:
    """PNG of stacked bars, a moment each.

    Args:
        moments: moment -> class of data -> bytes of a device.
        lines: what bounds them -> bytes, drawn as lines.
        title: above the bars.
    """
    with style():
        return render(_drawn(moments, lines, title))


def _drawn(moments: Mapping[str, Mapping[str, float]], lines: Mapping[str, float], title: str) -> Figure:
    figure, (axes,) = canvas(1.5 + 0.36 * len(moments))
    classes = [name for name in MEMORY_CLASSES if any(parts.get(name) for parts in moments.values())]
    classes += sorted({name for parts in moments.values() for name in parts} - set(MEMORY_CLASSES))
    left = [0.0] * len(moments)
    for name in classes:
        label, colour = MEMORY_CLASSES.get(name, (name.replace("_", " "), OTHER_COLOUR))
        widths = [parts.get(name, 0.0) / GIB for parts in moments.values()]
        axes.barh(range(len(moments)), widths, left=left, height=0.7, color=colour, label=label)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    handles, labels = axes.get_legend_handles_labels()
    for index, (what, nbytes) in enumerate(lines.items()):
        dashes = "-" if index == 0 else "--"
        axes.axvline(nbytes / GIB, color=INK, linewidth=1.8, linestyle=dashes)
        handles.append(Line2D([], [], color=INK, linewidth=1.8, linestyle=dashes))
        labels.append(what)
    axes.set_yticks(range(len(moments)), list(moments))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.06 * max([*left, *(nbytes / GIB for nbytes in lines.values())]))
    axes.set_xlabel("Memory of a device [GiB]")
    axes.set_title(title)
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), handlelength=1.3)
    return figure


# Convergence of the optimality gap as a picture, for pages that cannot draw their own.


WIDE = 1.0  # of logarithms: names of all lines of a decade would lie upon each other


def convergence(run: RunFolder) -> Figure:
    """Best design and bound over the time of the search.

    Raises:
        MissingPart: there is too little to follow.
    """
    points = proof.closing(run)
    values = [value for _, best, bound in points for value in (best, bound) if value is not None]
    span = math.log(max(values) / min(values))
    figure, (axes,) = canvas(2.4)
    seconds = [point[0] for point in points]
    axes.step(seconds, [point[1] for point in points], where="post", color=INK, label="best design")
    bounds = [(s, bound) for s, _, bound in points if bound is not None]
    if bounds:
        axes.step(*zip(*bounds, strict=True), where="post", color=ACCENT, label="bound on every design")
    axes.set_xlabel("seconds")
    goal = proof.goal(run)
    axes.set_ylabel(textwrap.fill(goal.label, 28))
    axes.set_yscale("log")
    if span > WIDE:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    for axis_text in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis_text(FuncFormatter(lambda value, _: number(value, goal.unit, 3 if span > 0.1 else 5)))
    axes.tick_params(axis="both", which="both", colors=SOFT)
    axes.legend(loc="best")
    return figure


LETTER_IN, HANDLE_IN = 0.068, 0.5  # of a legend: room for a letter, and for a mark with what parts it from the next


def _bars(axes: Axes, table: pd.DataFrame, labels: dict[str, tuple[str, str]], factor: float, least: float) -> None:
    """Stacked horizontal bars, the first at 0; a segment of `least` or more carries its share of the bar."""
    places, left = np.arange(len(table)), np.zeros(len(table))
    totals = table.sum(axis="columns").to_numpy()
    for name in table:
        label, colour = labels.get(str(name), (str(name).replace("_", " "), OTHER_COLOUR))
        values = table[name].to_numpy() / factor
        axes.barh(places, values, left=left, height=0.72, color=colour, label=label, edgecolor="white", linewidth=0.6)
        for y, value in zip(places, values, strict=True):
            if value * factor >= least:
                share = value * factor / totals[y]
                axes.text(
                    left[y] + value / 2, y, f"{share:.0%}", ha="center", va="center", fontsize=7,
                    color=_contrast(colour),
                )  # fmt: skip
        left += values
    axes.set_ylim(len(table) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def _contrast(colour: str) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 140 else INK


def _legend_below(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=_columns(labels), handlelength=1.1)


def _columns(labels: list[str], most: int = 5) -> int:
    """Columns of a legend that stand side by side within the figure; each is filled before the next."""
    for count in range(min(most, len(labels)), 1, -1):
        sizes = [len(labels) // count + (at < len(labels) % count) for at in range(count)]
        starts = np.cumsum([0, *sizes[:-1]])
        letters = [max(map(len, labels[start : start + size])) for start, size in zip(starts, sizes, strict=True)]
        if sum(LETTER_IN * longest + HANDLE_IN for longest in letters) < WIDTH_IN:
            return count
    return 1


def time_breakdown(run: RunFolder) -> Figure:
    """Stacked bars: where the time of the best designs goes."""
    table = series.time_breakdown(run)
    factor, unit = axis_prefix(float(table.sum(axis="columns").max()), "s")
    figure, (axes,) = canvas(1.35 + 0.3 * len(table))
    _bars(axes, table, run.labels(PARTS, run.words.parts), factor, 0.06 * float(table.sum(axis="columns").max()))
    axes.set_yticks(range(len(table)), series.design_labels(run, len(table)))
    axes.set_xlabel(f"{run.metric('time_s').label} [{unit}]")
    totals = table.sum(axis="columns").to_numpy()
    for index, total in enumerate(totals):
        axes.text(total / factor, index, f" {number(total, 's', zeros=True)}", va="center", fontsize=7.5)
    axes.set_xlim(0, 1.1 * totals.max() / factor)
    _legend_below(figure, axes)
    return figure


def roofline(run: RunFolder) -> Figure:
    """Log-log: the ops of the best design under the peaks and the memory bandwidth of the chips that they run on."""
    ops = series.roofline(run)
    roofs = series.roofs(ops)
    figure, (axes,) = canvas(3.9)
    low, high = series.roofline_ends(ops)
    high *= 10 if roofs[0].named else 1  # names of two chips' roofs stand beyond the marks
    peaks = [(roof.number_format, roof.peak) for roof in roofs]
    for roof in roofs:
        second = roof.device != roofs[0].device
        x = np.array([low, roof.ridge, high])
        axes.plot(
            x, np.minimum(x * roof.bandwidth, roof.peak), color=SOFT, linewidth=1.3, zorder=1,
            linestyle="--" if second else "-",
        )  # fmt: skip
        alike = peaks.count((roof.number_format, roof.peak)) > 1  # of two chips
        if second and alike:
            continue  # its name stands there, of both
        axes.annotate(
            f"{'' if alike else roof.named}{roof.number_format} peak {number(roof.peak, 'FLOP/s')}", (high, roof.peak),
            (0, -3 if second else 3), textcoords="offset points", ha="right", va="top" if second else "bottom",
            fontsize=7.5, color=SOFT, zorder=5, path_effects=CLEAR,
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=(low, high))
    floor = min(ops["achieved_flops_per_s"].min() / 3, *(low * roof.bandwidth for roof in roofs))
    axes.set_ylim(floor, roofs[0].peak * 2.2)
    axes.set_xlabel("Arithmetic intensity [FLOP per byte of memory traffic]")
    axes.set_ylabel("Achieved rate per accelerator [FLOP/s]")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value, "count")))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _scatter_ops(axes, ops)
    _letter_ops(axes, ops)
    memories = {roof.device: roof for roof in reversed(roofs)}
    most = max(roof.bandwidth for roof in memories.values())
    for index, roof in enumerate(memories.values()):
        axes.annotate(
            f"{roof.named}memory {number(roof.bandwidth, 'B/s')}", (low * 1.5, low * 1.5 * most),
            (-6, (76 if roof.named else 46) + 11 * index), textcoords="offset points", fontsize=7.5, color=SOFT,
        )  # fmt: skip
    return figure


def _area(share: Any) -> Any:
    """Area of a mark, in points squared."""
    return 18 + 1400 * share


def _scatter_ops(axes: Axes, ops: pd.DataFrame) -> None:
    for kind in [*KERNELS, *sorted(set(ops["family"]) - set(KERNELS))]:
        rows = ops[ops["family"] == kind]
        if rows.empty:
            continue
        label, colour, marker = KERNELS.get(kind, (kind or "other", OTHER_COLOUR, "o"))
        axes.scatter(
            rows["intensity"], rows["achieved_flops_per_s"], s=_area(rows["share"]), c=colour, marker=marker,
            alpha=0.8, edgecolors="white", linewidths=0.7, zorder=3,
        )  # fmt: skip
        axes.scatter([], [], s=40, c=colour, marker=marker, label=label)


def _letter_ops(axes: Axes, ops: pd.DataFrame) -> None:
    """A letter at each heavy group of marks; the key of letters joins the legend, where there is room for names."""
    handles, names = axes.get_legend_handles_labels()
    for letter, (name, intensity, rate) in zip(string.ascii_uppercase, series.roofline_labels(ops), strict=False):
        here = (ops["intensity"] == intensity) & (ops["achieved_flops_per_s"] == rate)
        radius = _area(float(ops.loc[here, "share"].max())) ** 0.5 / 2
        axes.annotate(
            letter, (intensity, rate), (0, -2 - radius), textcoords="offset points", ha="center", va="top", fontsize=8,
            fontweight="bold", zorder=6, path_effects=CLEAR,
        )  # fmt: skip
        handles.append(
            Line2D([], [], color=INK, linestyle="", marker=f"$\\mathbf{{{letter}}}$", markersize=6, markeredgewidth=0)
        )
        names.append(name)
    axes.legend(handles, names, loc="lower right")


def time_against_cost(run: RunFolder) -> Figure:
    """All kept designs in time and cost; the front in colour, designs that break a limit in grey."""
    table = series.time_against_cost(run)
    figure, (axes,) = canvas(3.6)
    out, rest = table[~table["feasible"]], table[table["feasible"] & ~table["front"]]
    front = table[table["front"]].sort_values("time_s", kind="stable")
    x, y = "time_s", "usd_per_million_tokens"
    if len(out):
        axes.scatter(out[x], out[y], s=12, c="#b9bfc6", marker="x", linewidths=0.8, label=f"infeasible ({len(out)})")
    if len(rest):
        axes.scatter(rest[x], rest[y], s=14, c="#8fc1e8", label=f"feasible ({len(rest)})")
    axes.plot(front[x], front[y], c="#0072b2", marker="o", markersize=5, linewidth=1.2, label=f"front ({len(front)})")
    axes.scatter(
        run.best[x], run.best[y], s=150, marker="*", c=ACCENT, edgecolors="white", linewidths=0.8, zorder=5,
        label="best for the objective",
    )  # fmt: skip
    fine = [digits_apart(table[column]) for column in (x, y)]
    _log_axis(axes, "x", table[x], lambda value, _: number(value, "s", fine[0]))
    _log_axis(axes, "y", table[y], lambda value, _: money(value, fine[1], zeros=axes.get_yscale() == "linear"))
    axes.set_xlabel(run.metric(x).label)
    axes.set_ylabel(run.metric(y).label)
    axes.legend(loc="best")
    return figure


def digits_apart(values: np.ndarray | pd.Series) -> int:
    """Digits that tell ten places along an axis apart; three where there is but one value."""
    numbers = np.asarray(values, dtype=float)
    numbers = np.abs(numbers[np.isfinite(numbers)])
    if len(numbers) == 0 or np.ptp(numbers) == 0:
        return 3
    return int(np.clip(np.ceil(2 - np.log10(np.ptp(numbers) / numbers.max())), 3, 7))


def _log_axis(axes: Axes, which: str, values: pd.Series, text: Callable[..., str]) -> None:
    """Log where values span more than a factor of four, with labels inside a decade too; linear otherwise."""
    axis, span = getattr(axes, f"{which}axis"), float(values.max() / values.min()) if values.min() > 0 else 1.0
    if span > 4:
        getattr(axes, f"set_{which}scale")("log")
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if span < 100 else (1.0,)))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(7))
    axis.set_major_formatter(FuncFormatter(text))


def memory_by_tier(run: RunFolder) -> Figure:
    """Stacked bars of each tier against its capacity."""
    tiers = series.memory_by_tier(run)
    rows = len(next(iter(tiers.values()))[0])
    figure, all_axes = canvas(1.35 + 0.3 * rows, len(tiers), sharey=True)
    for axes, (tier, (table, capacity)) in zip(all_axes, tiers.items(), strict=True):
        largest = float(max(table.sum(axis="columns").max(), capacity.max() if capacity.notna().any() else 0.0))
        factor, unit = axis_prefix(largest, "B")
        _bars(axes, table, run.labels(MEMORY_CLASSES, run.words.memory), factor, 0.1 * largest)
        ends = (capacity / factor).to_numpy()
        for index, end in enumerate(ends):
            axes.plot([end, end], [index - 0.42, index + 0.42], color=INK, linewidth=2.2)
        axes.set_title(TIERS.get(tier, tier))
        axes.set_xlabel(f"Per accelerator [{unit}]")
        axes.set_xlim(0, 1.06 * largest / factor)
    all_axes[0].set_yticks(range(rows), series.design_labels(run, rows))
    result = {
        label: handle for axes in all_axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    result["usable capacity"] = Line2D([], [], color=INK, linewidth=2.2)
    figure.legend(
        result.values(), result.keys(), loc="outside lower center", ncols=min(6, len(result)), handlelength=1.1
    )
    return figure


def elasticities(run: RunFolder) -> Figure:
    """Horizontal bars: by how many per cent the goal moves when a constant grows by one per cent."""
    table = series.elasticities(run)
    figure, (axes,) = canvas(1.1 + 0.235 * len(table))
    colours = [KINDS.get(kind, (kind, OTHER_COLOUR))[1] for kind in table["kind"]]
    axes.barh(range(len(table)), table["elasticity"], height=0.7, color=colours)
    axes.set_yticks(range(len(table)), [path.removeprefix("cluster.") for path in table["path"]], fontsize=7.5)
    reach = 1.35 * table["elasticity"].abs().max()
    has_both = (table["elasticity"] < 0).any(), (table["elasticity"] > 0).any()
    axes.set_xlim(-reach if has_both[0] else 0, reach if has_both[1] else 0)
    for index, value in enumerate(table["elasticity"]):
        axes.text(
            value, index, f" {signed(value)} ", va="center", ha="left" if value > 0 else "right",
            fontsize=7.5,
        )  # fmt: skip
    axes.axvline(0, color=SOFT, linewidth=0.9)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    name = run.metric(series.elasticity_metric(run)).label
    axes.set_xlabel(f"Change of {name[0].lower() + name[1:]} [%] when the constant grows by 1 %", loc="right")
    handles = [
        Patch(color=colour, label=label) for kind, (label, colour) in KINDS.items() if kind in set(table["kind"])
    ]
    axes.legend(handles=handles, loc="lower right" if abs(axes.get_xlim()[1]) >= abs(axes.get_xlim()[0]) else "best")
    return figure


def capex_and_power(run: RunFolder) -> Figure:
    """Draw what the best design costs to buy and to power, by part."""
    capex, power = series.parts(run, "capex."), series.parts(run, "power.")
    figure, axes = canvas(0.85 + 0.27 * max(len(capex), len(power)), 2)
    names = list(dict.fromkeys([*capex.index, *power.index]))
    for panel, values, unit, title in (
        (axes[0], capex, "$", "Purchase price"),
        (axes[1], power, "W", "Provisioned power"),
    ):
        amounts = values.reindex(names).fillna(0.0)
        panel.barh(range(len(names)), amounts, height=0.7, color="#2f6fb0")
        for y, value in enumerate(amounts):
            text = f" {number(value, unit)}  {value / amounts.sum():.0%}" if value > 0 else f" {DASH}"
            panel.text(value, y, text, va="center", fontsize=7.5)
        panel.set_yticks(range(len(names)), [component(str(name)) for name in names])
        panel.set_xlim(0, 1.5 * amounts.max())
        panel.set_title(f"{title}: {number(amounts.sum(), unit)}")
        panel.set_xticks([])
        panel.invert_yaxis()
        panel.grid(visible=False)
        panel.tick_params(axis="y", length=0)
        panel.spines["bottom"].set_visible(False)
    axes[1].set_yticklabels([])
    return figure
