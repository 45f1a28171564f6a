"""A proven front on the page: its designs with their bounds, and what no design can reach."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ..search.certificate import OnFront, ProvenFront
from .drawing import ACCENT, INK, SOFT, canvas, constrained
from .figures import digits_apart
from .labels import DASH, number
from .run_folder import MissingPart, RunFolder
from .text_tables import PageTable
from .wording import degrees

BLUE, EMPTY = "#0072b2", "#f3d9c8"
ROWS, CROWD = 40, 150  # rows of the table; designs drawn as large dots
DEPTH = 0.25  # of the front's height, drawn below it


def front(run: RunFolder) -> ProvenFront:
    """The front of the run's certificate.

    Raises:
        MissingPart: the search leaves none.
    """
    if run.certificate is None or run.certificate.front is None or not run.certificate.front.points:
        raise MissingPart("the search leaves no front")
    return run.certificate.front


def text(run: RunFolder) -> str:
    """Text on the designs of a front, their certificates and its knee."""
    result, certificate = front(run), run.certificate
    names = [run.metric(name) for name in result.metrics]
    bend = result.points[result.knee].values
    knee = ", ".join(known.text(bend[name]) for known, name in zip(names, result.metrics, strict=True))
    words = [f"{len(result.points)} designs of which none is better in everything. The front bends at {knee}."]
    if certificate is None or not certificate.convex:
        return " ".join([*words, f"No proof: {certificate.reason if certificate else 'none'}."])
    gaps = [row.gap for row in result.points if row.gap is not None]
    first = _inside(names[0].label)
    words.append(
        f"For each, no design that is no worse in the other metrics has a {first} lower by more than its gap, "
        f"{number(max(gaps), '%', 4)} at most."
        if names[0].label and result.metrics[0] not in result.maximised
        else f"For each, no design that is no worse in the other metrics is better in {first} by more than its gap."
    )
    if result.hypervolume is not None and result.hypervolume_at_most:
        words.append(
            f"Together they dominate {number(result.hypervolume / result.hypervolume_at_most, '%', 3)} of the "
            "volume that any front could at most (of the logarithms, up to a tenth of their range beyond the worst)."
        )
    if len(result.points) > ROWS:
        words.append(f"The table has {ROWS} of them, evenly spread.")
    return " ".join(words)


def table(run: RunFolder) -> PageTable:
    """Every design of the front: metrics, bound, gap and plan."""
    result = front(run)
    names = result.metrics
    known = [run.metric(name) for name in names]
    rows, count = [], len(result.points)
    for place in np.unique(np.linspace(0, count - 1, min(ROWS, count)).round().astype(int)):
        row = result.points[place]
        values = [entry.text(row.values[name], 4) for entry, name in zip(known, names, strict=True)]
        bound = known[0].text(row.bound, 4) if row.bound is not None else DASH
        gap = number(row.gap, "%", 4) if row.gap is not None else DASH
        rows.append((*values, bound, gap, _plan(run, names, row.values)))
    limit = "At most" if names[0] in result.maximised else "At least"
    head = (*(entry.label for entry in known), f"{limit} ({_inside(known[0].label)})", "Gap", "Plan")
    return PageTable(head, rows, frozenset({len(head) - 1}), "front")


def _plan(run: RunFolder, names: Sequence[str], values: dict[str, float]) -> str:
    """The plan of the design of the frame with these metrics."""
    known = run.designs[list(names)].to_numpy(dtype=float)
    apart = np.abs(np.log(known / np.array([values[name] for name in names]))).sum(axis=1)
    return degrees(run.designs.iloc[int(np.argmin(apart))].to_dict())


def certified_front(run: RunFolder) -> Figure:
    """Two metrics: designs, the staircase they dominate, and below it what is proven empty; three: the third in colour.

    A bar below a design reaches down to its bound, where the designs are no crowd.
    """
    result = front(run)
    names, points = result.metrics, result.points
    values = np.array([[row.values[name] for name in names] for row in points])
    bound = np.array([np.nan if row.bound is None else row.bound for row in points])
    figure, (axes,) = canvas(3.8, layout=constrained() if len(names) > 2 else None)
    reach = np.abs(np.stack([values[:, 0] - bound, np.zeros(len(bound))]))
    if names[0] in result.maximised:
        reach = reach[::-1]
    few, place = len(points) <= CROWD, (values[:, 1], values[:, 0])
    if few:
        axes.errorbar(*place, yerr=reach, fmt="none", ecolor=INK, elinewidth=1.4, capsize=2, zorder=3)
    if len(names) == 2:
        if not result.maximised:
            _staircase(axes, points, values, bound, names)
        axes.plot(*place, "o", color=BLUE, markersize=5 if few else 2, zorder=4, label="design")
    else:
        third = run.metric(names[2])
        look = {"c": values[:, 2], "cmap": "viridis", "s": 34 if few else 12}
        dots = axes.scatter(*place, **look, zorder=4, label="design")
        bar = figure.colorbar(dots, ax=axes, format=FuncFormatter(lambda value, _: third.text(value)))
        bar.set_label(third.label, color=SOFT)
    knee = values[result.knee]
    axes.scatter(
        knee[1], knee[0], s=150, marker="*", c=ACCENT, edgecolors="white", linewidths=0.8, zorder=5, label="knee"
    )
    for which, name, column in (("x", names[1], 1), ("y", names[0], 0)):
        known = run.metric(name)
        if values[:, column].max() > 4 * values[:, column].min():
            getattr(axes, f"set_{which}scale")("log")
        digits = digits_apart(values[:, column])
        getattr(axes, f"{which}axis").set_major_formatter(
            FuncFormatter(lambda value, _, known=known, digits=digits: known.text(value, digits))
        )
        getattr(axes, f"set_{which}label")(known.label)
    axes.legend(loc="best")
    return figure


def _staircase(
    axes: Axes, points: Sequence[OnFront], values: np.ndarray, bound: np.ndarray, names: Sequence[str]
) -> None:
    """Draw what the designs dominate and what is proven empty: within a design's level nothing lies below its bound."""
    order = np.argsort(values[:, 1], kind="stable")
    axes.step(values[order, 1], values[order, 0], where="post", color=BLUE, linewidth=0.8, alpha=0.6)
    most = values[:, 1].max()  # the first design's programme had no level
    levels = sorted((row.levels.get(names[1], most), low) for row, low in zip(points, bound, strict=True) if low == low)
    if not levels:
        return
    edge = min(values[:, 1].min(), levels[0][0])
    proven = np.maximum.accumulate([low for _, low in levels[::-1]])[::-1]  # a bound holds at every tighter level
    x, y = [edge, *(level for level, _ in levels)], [proven[0], *proven]
    lowest = float(np.nanmin(bound))
    floor = lowest * (lowest / values[:, 0].max()) ** DEPTH
    axes.fill_between(x, y, floor, step="pre", color=EMPTY, edgecolor="0.75", zorder=1, label="proven empty")
    axes.set_ylim(bottom=floor)


def _inside(label: str) -> str:
    return label if label[:2].isupper() else label[:1].lower() + label[1:]
