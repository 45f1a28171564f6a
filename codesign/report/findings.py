"""Figures that state what was found: a headline, panels of one size, names beside what they name."""

# matplotlib leaves the types of many arguments open
# pyright: reportUnknownMemberType=false

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..core.units import percent
from ..model.networks.topology import Topology, link_columns
from ..model.workloads.base import OTHERS, FamilyVocabulary
from ..model.workloads.plan_fields import words_of
from . import series
from .drawing import DPI, INK, PAD_IN, SOFT, WIDTH_IN, canvas, constrained, style
from .labels import MEMORY_CLASSES, MINUS, PARTS, TIERS, component, metric, number, signed, unit_of
from .proof import certificate, closing, goal
from .run_folder import MissingPart, RunFolder

__all__ = [
    "BLUE", "CLEAR", "GREEN", "GREY", "ORANGE", "PURPLE", "SENTENCES", "SKY", "YELLOW", "Label", "agreement",
    "beside", "found", "headline", "name_ends", "panels", "phase_diagram", "phases_of", "plain_ticks", "varied",
]  # fmt: skip


BLUE, ORANGE, GREEN, SKY, GREY = "#0072b2", "#d55e00", "#009e73", "#56b4e9", "#8a939c"
PURPLE, YELLOW = "#b0609b", "#b07d00"
APART_IN = 0.13  # between the middles of two names, at least
LETTERS = 94  # of a headline that fit into a line


CLEAR = [withStroke(linewidth=2.4, foreground="white")]
"""Halo of words that may stand on lines and marks."""


class Label(NamedTuple):
    """A line's end and what is written there."""

    x: float
    y: float
    text: str
    colour: str = GREY


def panels(height_in: float, rows: int = 1, columns: int = 1, *, sharex: bool = False, sharey: bool = False):
    """A figure of the page's width, and its axes in rows.

    Args:
        height_in: of the figure, headline included.
        rows, columns: of axes.
        sharex, sharey: whether all axes have the same ones.
    """
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout=constrained())
    axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
    return figure, [list(row) for row in axes]


def headline(figure: Figure, finding: str) -> None:
    """The finding in a sentence or two above everything, broken into lines by its words."""
    lines = [""]
    for word in finding.split(" "):  # a hard space holds a number and its unit together
        if len(lines[-1]) + len(word) >= LETTERS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    figure.suptitle("\n".join(lines), x=PAD_IN / WIDTH_IN, ha="left", fontsize=9.5, fontweight="bold")


def name_ends(axes: Axes, ends: Sequence[Label], where: float = 1.015) -> None:
    """Names of lines to the right of the axes, moved apart where lines end close to each other.

    Scales of the axes, and limits where they are set, must be as they will be.

    Args:
        axes: that the lines are in.
        ends: where each line ends.
        where: left end of the names, as a share of the axes.
    """
    height = axes.get_window_extent().height / axes.get_figure(root=True).dpi  # pyright: ignore[reportOptionalMemberAccess]
    axes.get_ylim()  # limits that follow the lines are worked out now
    least = APART_IN / max(0.75 * height, APART_IN)
    to_share = axes.transData + axes.transAxes.inverted()
    wanted = np.array([to_share.transform((one.x, one.y))[1] for one in ends])
    order = np.argsort(wanted, kind="stable")
    heights = wanted[order].copy()
    for at in range(1, len(heights)):
        heights[at] = max(heights[at], heights[at - 1] + least)
    heights -= (heights - wanted[order]).mean()
    for index, height in zip(order, heights, strict=True):
        one = ends[int(index)]
        axes.annotate(
            one.text, (one.x, one.y), (where, height), textcoords="axes fraction", color=one.colour, va="center",
            ha="left", fontsize=7.5, annotation_clip=False, path_effects=CLEAR, zorder=6,
        )  # fmt: skip


def beside(axes: Axes, text: str, x: float, y: float, colour: str = GREY, shift: tuple[float, float] = (5, 0)) -> None:
    """Words beside a place: to its right, or to its left or middle where the shift goes there.

    Args:
        axes: that the place is in.
        text: what is written.
        x, y: the place.
        colour: of the words.
        shift: points to the right and up; words end there where it is negative, and are centred where it is 0.
    """
    side = "left" if shift[0] > 0 else "right" if shift[0] < 0 else "center"
    height = "bottom" if shift[1] > 0 else "top" if shift[1] < 0 else "center"
    axes.annotate(
        text, (x, y), shift, textcoords="offset points", color=colour, ha=side, va=height, fontsize=7.5,
        annotation_clip=False, path_effects=CLEAR, zorder=6,
    )  # fmt: skip


def plain_ticks(axes: Axes, which: str, places: Sequence[float], texts: Sequence[str] | None = None) -> None:
    """A logarithmic axis that carries these numbers, written out, and no others."""
    axis = getattr(axes, f"{which}axis")
    by_tick = dict(zip(places, texts or [f"{tick:g}" for tick in places], strict=True))
    axis.set_major_locator(FixedLocator(list(places)))
    axis.set_minor_locator(NullLocator())

    def named(value: float, _: object) -> str:
        return by_tick.get(value, f"{value:g}")

    axis.set_major_formatter(FuncFormatter(named))


# Headlines of the pictures of a run: a sentence above each on what it shows.


HEAD_IN = 0.42  # height that a headline adds
MEET = 1e-6  # relative gap below which a design is its bound
SHOWN, LITTLE = 0.005, 0.0005  # shares of the time, and of the cost, below which a number would read 0
FULL = 0.995  # share of a memory from which it counts as full


def found(figure: Figure, name: str, run: RunFolder) -> Figure:
    """The figure with its finding above it; as it is where there is none.

    Args:
        figure: drawn.
        name: of the function that drew it.
        run: that it shows.
    """
    say = SENTENCES.get(name)
    try:
        sentence = say(run) if say else ""
    except MissingPart:
        sentence = ""
    if sentence:
        figure.set_figheight(figure.get_figheight() + HEAD_IN)
        headline(figure, sentence)
    return figure


def _time(run: RunFolder) -> str:
    table = series.time_breakdown(run)
    best = table.iloc[0] / table.iloc[0].sum()
    parts = run.labels(PARTS, run.words.parts)
    first, *rest = best.sort_values(ascending=False, kind="stable").head(3).items()

    def words(name: object) -> str:
        return parts.get(str(name), (str(name).replace("_", " "),))[0].replace("comm.", "communication")

    others = " and ".join(f"{share:.0%} {words(name)}" for name, share in rest if share >= SHOWN)
    text = f"{first[1]:.0%} of the best {run.words.step} is {words(first[0])}" + (f", {others}" if others else "")
    if len(table) < 2:
        return text
    more = 100 * float(table.iloc[1].sum() / table.iloc[0].sum() - 1)
    share = signed(abs(more), 1).removeprefix("+")
    longer = f"{share} % longer" if more > 0 else f"{share} % less time"
    return f"{text}; the next design takes {'as long' if share == '0' else longer}"


def _cost(run: RunFolder) -> str:
    table = series.time_against_cost(run)
    front = table[table["front"]].sort_values("time_s", kind="stable")
    if front.empty:
        return "No design keeps all limits"
    feasible_count = int(table["feasible"].sum())
    fast, cheap = front.iloc[0], front.iloc[-1]
    if len(front) == 1:
        text = (
            f"The fastest of {feasible_count:,} feasible designs is the cheapest too"
            if feasible_count > 1
            else "One design is kept"
        )
        return f"{text}: {number(fast['time_s'], 's')}, {number(fast['usd_per_million_tokens'], '$')} a million tokens"
    less = 1 - float(cheap["usd_per_million_tokens"] / fast["usd_per_million_tokens"])
    if less < LITTLE:
        return f"Of {feasible_count:,} feasible designs {len(front)} are worth a choice, all within {less:.2%} of cost"
    times = float(cheap["time_s"] / fast["time_s"])
    slower = f"{times - 1:.1%} more time" if times < 2 else f"{times:.3g} times the time"
    return f"Of {feasible_count:,} feasible designs {len(front)} are worth a choice: {slower} saves {less:.1%} of cost"


def _roofline(run: RunFolder) -> str:
    ops = series.roofline(run)
    ridge = ops["peak_flops_per_s"] / ops["bandwidth_bytes_per_s"]
    bound = float(ops["share"][ops["intensity"] < ridge].sum())
    heavy = ops.iloc[0]
    reached = float(heavy["achieved_flops_per_s"] / heavy["peak_flops_per_s"])
    return (
        f"Memory bandwidth limits {bound:.0%} of the time of all operations; the heaviest, {heavy['name']}, takes "
        f"{float(heavy['share']):.0%} and reaches {reached:.0%} of the peak"
    )


def _memory(run: RunFolder) -> str:
    parts = list[str]()
    for tier, (table, capacity) in series.memory_by_tier(run).items():
        used, best = float(table.iloc[0].sum()), table.iloc[0]
        if used <= 0:
            continue
        share = used / float(capacity.iloc[0]) if capacity.iloc[0] == capacity.iloc[0] else float("nan")
        classes = run.labels(MEMORY_CLASSES, run.words.memory)
        most = str(best.idxmax())
        label = classes.get(most, (most.replace("_", " "),))[0]
        full = "is full" if share > FULL else f"is {share:.0%} full" if share == share else "is in use"
        parts.append(f"{TIERS.get(tier, tier)} {full}, {float(best.max()) / used:.0%} of it {label}")
    return f"In the best design {'; '.join(parts)}" if parts else ""


def _money(run: RunFolder) -> str:
    capex, power = series.parts(run, "capex."), series.parts(run, "power.")
    parts = [f"{component(str(one.index[0]))} {one.iloc[0] / one.sum():.0%}" for one in (capex, power)]
    totals = number(float(capex.sum()), "$"), number(float(power.sum()), "W")
    return f"Of {totals[0]} {parts[0]}; of {totals[1]} {parts[1]}: no other part takes as much"


def _elasticities(run: RunFolder) -> str:
    table = series.elasticities(run)
    first = table.iloc[0]
    guessed = int(table["kind"].isin(["assumed", "unstated"]).sum())
    name = run.metric(series.elasticity_metric(run)).label
    return (
        f"{name}: 1 % more {first['path'].removeprefix('cluster.')} changes it by {signed(first['elasticity'])} %, "
        f"more than any other constant; of the {len(table)} that matter most {guessed or 'none'} "
        f"{'is' if guessed < 2 else 'are'} assumed"
    )


def _closing(run: RunFolder) -> str:
    _, best, bound = closing(run)[-1]
    if not bound:
        return ""
    final = certificate(run).gap  # what was polished after the last step of the history counts
    gap = abs(best / bound - 1) if final is None else final
    ending = "the two meet" if gap < MEET else f"{percent(gap)} lie between them"
    ways = ("falls", "rises") if certificate(run).sense == "minimise" else ("rises", "falls")
    return f"{goal(run).label}: the best design {ways[0]}, the bound on every design {ways[1]}, until {ending}"


SENTENCES = {
    "time_breakdown": _time, "time_against_cost": _cost, "roofline": _roofline, "memory_by_tier": _memory,
    "capex_and_power": _money, "elasticities": _elasticities, "convergence": _closing,
}  # fmt: skip


# Phase diagram of the best design along varied parameters: the goal above, plan and hardware below.


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


def phases_of(
    frame: pd.DataFrame, goal: str, units: Mapping[str, str], words: FamilyVocabulary = OTHERS
) -> Figure | None:
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


# Figure of a model's deviations from a paper, claim by claim.


COPIED = ("input", "transcription")  # kinds of claims that agree by themselves
SAME_PER_CENT = 0.05  # that no figure shows
FAR = 12.0  # times what nine of ten rows are apart: beyond it the rest would be a column of dots

CLAIM_LETTERS, LINES = 62, 3  # of what a claim is called

LONGEST_FIGURE = 40  # claims that a figure shows; of more those farthest apart
HARD = "\N{NO-BREAK SPACE}"


def agreement(claims: pd.DataFrame) -> Figure | None:
    """Deviations of the model from the paper, in per cent, if predicted or fitted; the bar shaded; worst first.

    Rows that are the same are counted and not drawn. None where nothing is, or nothing differs: numbers that were put
    in, or formulas that were copied, agree anyhow.

    Args:
        claims: with columns claim, paper, model, error, tolerance; evidence and ok where they are known.
    """
    every = claims[claims["paper"].notna() & claims["model"].notna() & (claims["paper"] != 0)]
    if "evidence" in every:
        every = every[~every["evidence"].isin(COPIED)]
    every = every.assign(apart=100 * (every["model"].astype(float) / every["paper"].astype(float) - 1))
    every = every.loc[every["apart"].abs().sort_values(kind="stable").index]
    shown = every[every["apart"].abs() >= SAME_PER_CENT].tail(LONGEST_FIGURE)
    if shown.empty:
        return None
    names = [_called(str(text)) for text in shown["claim"]]
    with style():
        figure, ((axes,),) = panels(1.25 + 0.2 * len(shown) + 0.13 * sum(name.count("\n") for name in names))
        places = _places(names)
        far = _scale(axes, shown["apart"])
        _drawn(axes, shown, places)
        axes.set_yticks(places, names, fontsize=7, linespacing=1.1)
        axes.set_ylim(-0.9, places[-1] + 0.9)
        axes.grid(axis="y", visible=False)
        bars = "; shaded: the bar" if _bars(shown).notna().any() else ""
        axes.set_xlabel(f"model over paper, less 1 [%]{bars}{far}")
        headline(figure, _agreement_finding(every, shown))
    return figure


def _bars(shown: pd.DataFrame) -> Any:
    """Bars (tolerances) of rows whose error is this one, and not of a kind of its own, such as points."""
    stated_otherwise = (100 * shown["error"] - shown["apart"].abs()).abs() > 1e-7
    return shown["tolerance"].astype(float).where(~stated_otherwise)


def _places(names: list[str]) -> list[float]:
    """Heights of rows, of which each has the room that its name needs."""
    result, at = list[float](), 0.0
    for name in names:
        at += 0.33 * name.count("\n")
        result.append(at)
        at += 1 + 0.33 * name.count("\n")
    return result


def _scale(axes: Axes, apart: Any) -> str:
    """Logarithmic beyond what nine of ten rows keep, where the farthest is far beyond; says so."""
    usual, most = float(apart.abs().quantile(0.9)), float(apart.abs().max())
    if most < FAR * usual:
        axes.margins(x=0.24)  # for the numbers of the farthest
        return ""
    end = max(float(f"{usual:.1g}"), 1.0)
    axes.set_xscale("symlog", linthresh=end, linscale=2.0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", MINUS))
    axes.margins(x=0.13)
    return f"; logarithmic beyond {end:g} %"


def _drawn(axes: Axes, shown: pd.DataFrame, places: list[float]) -> None:
    """Bars, marks and numbers, each on the far side of its mark."""
    axes.axvline(0.0, color="0.4", linewidth=1)
    for height, bar in zip(places, _bars(shown), strict=True):
        if bar == bar:
            axes.barh(height, 200 * bar, left=-100 * bar, height=0.8, color=BLUE, alpha=0.15)
    axes.plot(shown["apart"], places, "o", color=ORANGE, markersize=4.5)
    for height, value in zip(places, shown["apart"], strict=True):
        text = f"{signed(value, 1 if abs(value) >= 1 else 2)}{HARD}%"
        beside(axes, text, value, height, "0.2", (5 if value >= 0 else -5, 0))


def _agreement_finding(every: pd.DataFrame, shown: pd.DataFrame) -> str:
    """The finding in a sentence."""
    missed = int((every["ok"].astype(str) == "False").sum()) if "ok" in every else 0
    apart = every["apart"].abs()
    near, far = (f"{v:.2g}" if v < 10 else f"{v:.0f}" for v in (max(float(apart.median()), 0.01), float(apart.max())))
    text = f", {missed} of {len(every)} miss their bar" if missed else ""
    same, rest = int((apart < SAME_PER_CENT).sum()), len(every) - len(shown)
    parts = [f"the farthest {len(shown)} are shown"] if rest > same else []
    parts += [f"{same} agree within {SAME_PER_CENT:g}{HARD}%"] if same and rest == same else []
    part = f" ({'; '.join(parts)})" if parts else ""
    return (
        f"Half of {len(every)} predicted or fitted numbers lie within {near}{HARD}% of the paper's, the farthest at"
        f" {far}{HARD}%{text}{part}"
    )


def _called(claim: str) -> str:
    """A claim without its remark on errors, in lines; of one that is longer than these its beginning and its end."""
    text = re.sub(r" \(error[^)]*\)", "", claim)
    most = CLAIM_LETTERS * LINES - 12
    text = text if len(text) <= most else f"{text[: most // 2]} ... {text[-(most // 2 - 5) :]}"
    return "\n".join(textwrap.wrap(text, CLAIM_LETTERS, break_long_words=False))


# A topology drawn with every link coloured by its load.


NAMED = 40  # nodes up to which a drawing says their names
NAMED_IN_LAYER = 4
COLOURS = "plasma_r"


def links_frame(topology: Topology, load: np.ndarray) -> pd.DataFrame:
    """One row per directed link; see `topology.link_columns`."""
    return pd.DataFrame(link_columns(topology, load))


def draw_links(axes: Axes, links: pd.DataFrame, title: str) -> LineCollection:
    """Links on axes, the busiest last and thickest; links inside a layer hang below it as arcs."""
    shown = links.sort_values("used", kind="stable")
    few = len(shown) < 2000
    segments = [_curve(*row) for row in shown[["x0", "y0", "x1", "y1"]].itertuples(index=False)]
    widths = (0.5 if few else 0.15) + (2.2 if few else 0.8) * shown["used"].to_numpy()
    lines = LineCollection(segments, cmap=COLOURS, linewidths=widths, array=shown["used"].to_numpy(), clim=(0.0, 1.0))
    axes.add_collection(lines)
    nodes = links.drop_duplicates("source")
    if len(nodes) <= NAMED:
        axes.plot(nodes["x0"], nodes["y0"], "o", color="white", markeredgecolor=INK, markersize=4, zorder=3)
        crowded = nodes.groupby("y0")["source"].transform("size") > NAMED_IN_LAYER
        for _, node in nodes[~crowded].iterrows():
            axes.annotate(
                node["source"], (node["x0"], node["y0"]), (0, 5), textcoords="offset points", ha="center",
                fontsize=5.5, color=SOFT, zorder=4, path_effects=CLEAR,
            )  # fmt: skip
    axes.set_title(title, fontsize=8)
    axes.autoscale_view()
    axes.set_axis_off()
    return lines


def _curve(x0: float, y0: float, x1: float, y1: float) -> np.ndarray:
    """A straight line between layers, an arc inside one."""
    if y0 != y1 or y0 != 0:
        return np.array([(x0, y0), (x1, y1)])
    along = np.linspace(0.0, 1.0, 12)
    dip = -min(0.75, 0.12 * abs(x1 - x0)) * 4 * along * (1 - along)
    return np.column_stack([x0 + along * (x1 - x0), y0 + dip])


def topology_figure(parts: dict[str, pd.DataFrame], height_in: float = 2.6, found: str = "") -> Figure:
    """Topologies side by side (title -> links), three to a row, with one scale of load; above them what was found."""
    rows = -(-len(parts) // 3)
    columns = min(3, len(parts))
    figure, first = canvas(height_in * rows, layout=constrained())
    first[0].remove()
    if found:
        headline(figure, found)
    lines = None
    for index, (title, links) in enumerate(parts.items()):
        axes = figure.add_subplot(rows, columns, index + 1)
        lines = draw_links(axes, links, title)
    if lines is not None:
        bar = figure.colorbar(lines, ax=figure.axes, shrink=0.6, aspect=30, pad=0.01)
        bar.set_label("share of the link's rate in use", fontsize=7)
        bar.ax.tick_params(labelsize=7)
    return figure


def topology_load(run: RunFolder) -> Figure:
    """The routed topologies of the best design, at most three of its groups.

    Raises:
        MissingPart: the design has none.
    """
    links = run.require("links", "level", "axis", "used")
    groups = list(links.groupby(["level", "axis"], sort=False))[:3]
    return topology_figure({f"{level}, {axis}": part for (level, axis), part in groups})
