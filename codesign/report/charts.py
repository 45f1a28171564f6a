"""Pictures that answer when one points at them, drawn by Bokeh in the page itself; nothing is loaded from elsewhere.

Their ink is a grey that reads on white and on black, so that one picture serves light and dark pages.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from markupsafe import escape

from . import series
from .labels import KERNELS, OTHER_COLOUR, axis_prefix, number
from .run_folder import RunFolder

if TYPE_CHECKING:
    from bokeh.models import ColumnDataSource
    from bokeh.plotting import figure

INK = "#7b8794"  # contrast of 3.9 with white and of 4.6 with the dark page
FRONT, FEASIBLE, BROKEN, BEST = "#0072b2", "#6fb3e0", "#a9b1ba", "#d55e00"
Data = dict[str, Sequence[Any]]
Named = tuple[str, float, float]
PLOT_PX, LETTER_PX, LINE_PX = (300.0, 240.0), 5.6, 12.0  # inside the axes on a telephone; letters of 11 px
ABOVE_PX = 4  # of a roof's name over its roof
SPREAD = 4.0  # ratio of values from which an axis is logarithmic
TOOLS = "pan,wheel_zoom,box_zoom,box_select,reset"


def plot(kind_x: str = "linear", kind_y: str = "linear", height: int = 320, tools: str = TOOLS) -> "figure":
    """An empty picture as wide as its place."""
    from bokeh.models import LogTicker
    from bokeh.plotting import figure

    made = figure(
        height=height, sizing_mode="stretch_width", x_axis_type=kind_x, y_axis_type=kind_y, tools=tools,
        toolbar_location="below", background_fill_color=None, border_fill_color=None, outline_line_color=None,
    )  # fmt: skip
    made.toolbar.logo = None  # a link to elsewhere
    made.toolbar.autohide = True
    for axis in made.axis:
        axis.axis_line_color = axis.major_tick_line_color = axis.axis_label_text_color = INK
        axis.major_label_text_color, axis.minor_tick_line_color = INK, None
        axis.axis_label_text_font_style, axis.axis_label_text_font_size = "normal", "12px"
        axis.major_label_text_font_size = "12px"
    for grid in made.grid:
        grid.grid_line_color, grid.grid_line_alpha = INK, 0.25
    for axis, kind in ((made.xaxis, kind_x), (made.yaxis, kind_y)):
        if kind == "log":
            axis.ticker = LogTicker(mantissas=[1, 2, 5], desired_num_ticks=5)
    return made


def axis_kind(values: np.ndarray | pd.Series) -> str:
    """Logarithmic where values span much."""
    numbers = np.asarray(values, dtype=float)
    numbers = numbers[np.isfinite(numbers) & (numbers > 0)]
    return "log" if len(numbers) and numbers.max() > SPREAD * numbers.min() else "linear"


def front_data(run: RunFolder, dots: pd.DataFrame) -> tuple[Data, str]:
    """(columns of a source of dots, unit of its times).

    Args:
        run: whose words are used.
        dots: time_s, usd_per_million_tokens, feasible, front; perhaps best, and what a dot is called.
    """
    factor, unit = axis_prefix(float(dots["time_s"].max()), "s")
    cost = run.metric("usd_per_million_tokens")
    best = dots["best"] if "best" in dots else pd.Series(False, index=dots.index)
    kinds = [
        "best for the goal" if b else "on the front" if f else "within all limits" if k else "infeasible"
        for b, f, k in zip(best, dots["front"], dots["feasible"], strict=True)
    ]
    look = {
        "best for the goal": (BEST, 13), "on the front": (FRONT, 9),
        "within all limits": (FEASIBLE, 6), "infeasible": (BROKEN, 5),
    }  # fmt: skip
    names = [str(escape(name)) for name in dots["name"]] if "name" in dots else [""] * len(dots)
    data: Data = {
        "x": (dots["time_s"] / factor).tolist(), "y": dots["usd_per_million_tokens"].tolist(), "kind": kinds,
        "colour": [look[kind][0] for kind in kinds], "size": [look[kind][1] for kind in kinds], "name": names,
        "time": [number(value, "s", 4) for value in dots["time_s"]],
        "cost": [cost.text(value, 4) for value in dots["usd_per_million_tokens"]],
    }  # fmt: skip
    return data, unit


def front_chart(run: RunFolder, dots: pd.DataFrame, height: int = 360) -> "tuple[figure, ColumnDataSource]":
    """Time against cost: what nobody beats in both, what keeps the limits, what does not."""
    data, unit = front_data(run, dots)
    made = front_plot(*front_axes(run, dots, unit), height, data)
    return made, _source(made, "dots")


def _source(made: "figure", name: str) -> "ColumnDataSource":
    result: Any = made.select_one({"name": name})
    return result


def front_axes(run: RunFolder, dots: pd.DataFrame, unit: str) -> tuple[str, str, str, str]:
    """Kinds of both axes and what stands at them."""
    kinds = axis_kind(dots["time_s"]), axis_kind(dots["usd_per_million_tokens"])
    return *kinds, f"{run.metric('time_s').label} [{unit}]", f"{run.metric('usd_per_million_tokens').label} [$]"


def front_plot(kind_x: str, kind_y: str, label_x: str, label_y: str, height: int, data: Data) -> "figure":
    """Dots with a legend, and what each is where one points at it."""
    from bokeh.models import ColumnDataSource, HoverTool

    made = plot(kind_x, kind_y, height)
    source = ColumnDataSource(dict(data), name="dots")
    drawn = made.scatter(
        "x", "y", source=source, size="size", color="colour", line_color="white", line_width=0.6, fill_alpha=0.9,
        legend_field="kind", nonselection_fill_alpha=0.2,
    )  # fmt: skip
    hover = HoverTool(renderers=[drawn], tooltips=[("", "@name @kind"), ("time", "@time"), ("cost", "@cost")])
    made.add_tools(hover)
    made.xaxis.axis_label, made.yaxis.axis_label = label_x, label_y
    quiet_legend(made)
    return made


def quiet_legend(made: "figure") -> None:
    """A legend above the picture, where it covers nothing."""
    for legend in made.legend:
        legend.background_fill_color = legend.border_line_color = None
        legend.label_text_color, legend.orientation = INK, "horizontal"
        legend.label_text_font_size, legend.spacing = "12px", 8
        legend.nrows, legend.ncols = "auto", 2  # what a telephone is wide enough for, in wide letters too
        made.add_layout(legend, "above")


def roofline_data(run: RunFolder) -> tuple[Data, Data, Data, tuple[float, float]]:
    """(marks of the operations, roofs, names of the heaviest groups of marks, ends of the intensity axis)."""
    ops = series.roofline(run)
    result, (low, high) = series.roofs(ops), series.roofline_ends(ops)
    kinds_drawn = [KERNELS.get(kind, (kind or "other", OTHER_COLOUR, "o")) for kind in ops["family"]]
    marks: Data = {
        "x": ops["intensity"].tolist(), "y": ops["achieved_flops_per_s"].tolist(),
        "size": _sizes(ops).tolist(), "colour": [each[1] for each in kinds_drawn],
        "kind": [str(each[0]) for each in kinds_drawn], "name": [str(escape(name)) for name in ops["name"]],
        "share": [f"{share:.1%}" for share in ops["share"]],
        "rate": [number(rate, "FLOP/s") for rate in ops["achieved_flops_per_s"]],
        "of_peak": [f"{a / p:.0%}" for a, p in zip(ops["achieved_flops_per_s"], ops["peak_flops_per_s"], strict=True)],
    }  # fmt: skip
    roofs: Data = {
        "xs": [[low, roof.ridge, high] for roof in result],
        "ys": [[low * roof.bandwidth, roof.peak, roof.peak] for roof in result],
    }
    words = [(text, x, y) for text, x, y in series.roofline_labels(ops, 4)]
    lines = [
        (f"{roof.named}{roof.number_format} peak {number(roof.peak, 'FLOP/s')}", roof.ridge, roof.peak)
        for roof in result
    ]
    middle = float(np.sqrt(low * high))
    names: Data = {
        "x": [x for _, x, _ in (*words, *lines)], "y": [y for _, _, y in (*words, *lines)],
        "text": [text for text, _, _ in (*words, *lines)],
        "align": ["right" if x > middle else "left" for _, x, _ in words] + ["right"] * len(lines),
        "dy": [*_beneath(words, lines, marks, roofs, (low, high)), *[ABOVE_PX] * len(lines)],
    }  # fmt: skip
    return marks, roofs, names, (low, high)


def _beneath(
    words: Sequence[Named], ridges: Sequence[Named], marks: Data, roofs: Data, ends: tuple[float, float]
) -> list[float]:
    """Offset of each text from its mark, beneath marks and texts that it would cover, in pixels of a small chart.

    Args:
        words: text, and the place of its mark.
        ridges: of roofs, and where they begin.
        marks, roofs, ends: of the chart.
    """
    bottom, top = roof_ends(marks, roofs)
    across, up = PLOT_PX[0] / np.log(ends[1] / ends[0]), PLOT_PX[1] / np.log(top / bottom)
    x, y = across * np.log(np.array(marks["x"])), up * np.log(np.array(marks["y"]))
    taken = [(a - r, a + r, b - r, b + r) for a, b, r in zip(x, y, np.array(marks["size"]) / 2, strict=True)]
    for text, ridge, peak in ridges:  # left of where a roof begins, above it
        a, b = across * np.log(ridge), up * np.log(peak)
        taken += [(a, np.inf, b - 2, b + 2), (a - LETTER_PX * len(text), a, b + ABOVE_PX, b + ABOVE_PX + LINE_PX)]
    middle, result = across * np.log(ends[0] * ends[1]) / 2, list[float]()
    for text, intensity, rate in words:
        a, b = across * np.log(intensity), up * np.log(rate)
        left, right = (a - LETTER_PX * len(text), a) if a > middle else (a, a + LETTER_PX * len(text))
        beside, under = [one for one in taken if one[0] < right and one[1] > left], b - LINE_PX
        while covered := [one[2] for one in beside if one[2] < under + LINE_PX and one[3] > under]:
            under = min(covered) - LINE_PX - 1
        taken.append((left, right, under, under + LINE_PX))
        result.append(float(under - b))
    return result


def _sizes(ops: pd.DataFrame) -> np.ndarray:
    """Diameters of the marks in pixels: areas are shares of the time."""
    return 6 + 42 * np.sqrt(ops["share"].to_numpy(dtype=float))


def roof_ends(marks: Data, roofs: Data) -> tuple[float, float]:
    """Ends of the axis of rates: room for words above the highest roof."""
    return min(marks["y"]) / 6, 3.5 * max(top for each in roofs["ys"] for top in each)


def roofline_chart(run: RunFolder, height: int = 380) -> "tuple[figure, tuple[ColumnDataSource, ...]]":
    """Operations under the roofs of arithmetic and memory; a mark's area is its share of the time."""
    marks, roofs, names, ends = roofline_data(run)
    made = roofline_plot(height, marks, roofs, names, ends, roof_ends(marks, roofs))
    return made, tuple(_source(made, name) for name in ("marks", "roofs", "names"))


def roofline_plot(
    height: int, marks: Data, roofs: Data, names: Data, ends_x: tuple[float, float], ends_y: tuple[float, float]
) -> "figure":
    """The chart of what `roofline_data` and `roof_ends` return."""
    from bokeh.models import ColumnDataSource, HoverTool, LabelSet, Range1d

    made = plot("log", "log", height, "pan,wheel_zoom,box_zoom,reset")
    made.x_range, made.y_range = Range1d(*ends_x), Range1d(*ends_y)
    dots, lines, words = (
        ColumnDataSource(dict(each), name=name) for each, name in ((marks, "marks"), (roofs, "roofs"), (names, "names"))
    )
    made.multi_line("xs", "ys", source=lines, color=INK, line_width=1.4)
    drawn = made.scatter(
        "x", "y", source=dots, size="size", color="colour", line_color="white", line_width=0.7, fill_alpha=0.8,
        legend_field="kind",
    )  # fmt: skip
    made.add_layout(
        LabelSet(
            x="x", y="y", text="text", y_offset="dy", text_align="align", source=words, text_color=INK,
            text_font_size="11px",
        )
    )  # fmt: skip
    tips = [("", "@name"), ("share of op time", "@share"), ("rate", "@rate (@of_peak of peak)")]
    made.add_tools(HoverTool(renderers=[drawn], tooltips=tips))
    made.xaxis.axis_label = "Arithmetic intensity [FLOP per byte of memory traffic]"
    made.yaxis.axis_label = "Achieved per accelerator [FLOP/s]"
    quiet_legend(made)
    return made


def closing_plot(kind: str, label: str, best: Data, bound: Data) -> "figure":
    """Best design and bound over the time of a search, as `proof.closing_data` returns them."""
    from bokeh.models import ColumnDataSource, HoverTool

    made = plot("linear", kind, 220, "pan,wheel_zoom,box_zoom,reset")
    looks = ((best, "best", INK, "best design"), (bound, "bound", FRONT, "bound on every design"))
    for data, name, colour, words in looks:
        source = ColumnDataSource(dict(data), name=name)
        made.step(
            "s", name, source=source, mode="after", line_color=colour, line_width=1.6, legend_label=words
        )  # fmt: skip
        dots = made.scatter("s", name, source=source, size=5, color=colour)
        made.add_tools(HoverTool(renderers=[dots], tooltips=[(words, f"@{name}_told"), ("after", "@s{0.00} s")]))
    made.xaxis.axis_label, made.yaxis.axis_label = "seconds", label
    quiet_legend(made)
    return made
