"""Sections of the page of some runs alone: a proven front, a mix of workloads, a fleet."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from ..core.units import engineering
from ..model.workloads.plan_fields import plan_fields
from ..search.certificate import Certificate, FrontPoint, ProvenFront, Shared
from .drawing import ACCENT, INK, SOFT, canvas, constrained
from .figures import digits_apart
from .fleet_figures import day_figure, timeline_of
from .labels import DASH, TIMES, number, signed, variable
from .proof import goal_of_mix
from .run_folder import PLAN_PREFIX, MissingPart, RunFolder
from .text_tables import PageTable
from .wording import choices, constraint, degrees, inside

__all__ = [
    "fleet_by_hour", "fleet_over_time", "front_text", "hardware", "mix_text", "plans", "served_by",
    "sharing", "table", "workloads",
]  # fmt: skip


# A mix on the page: every workload with its plan, the hardware they share, and what sharing it costs.


COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7d7d7d")
MARKERS = ("o", "s", "D", "^", "v", "P", "X")

NEARLY_USED = 0.5  # share of a limit from which it is worth a word


def workloads(run: RunFolder) -> Sequence[Shared]:
    """The entries of the run's certificate.

    Raises:
        MissingPart: the search is no mix, or found nothing.
    """
    if run.certificate is None or not run.certificate.workloads:
        raise MissingPart("the search leaves no workloads")
    return run.certificate.workloads


def _certificate(run: RunFolder) -> Certificate:
    assert run.certificate is not None  # `workloads` says so
    return run.certificate


def mix_text(run: RunFolder) -> str:
    """Text on a mix's gap to the optimum, and on the bound with separate hardware for each workload."""
    result, goal_label, entries = _certificate(run), goal_of_mix(run), workloads(run)
    words = [f"{len(entries)} workloads share one hardware; each has a plan and limits of its own."]
    if not result.convex or result.bound is None:
        words.append(f"No proof: {result.reason or 'it was stopped early'}.")
    else:
        words.append(
            f"{goal_label.label}: {goal_label.text(result.best, 4)}; no hardware and no plans reach less than "
            f"{goal_label.text(result.bound, 4)}, {number(result.gap, '%', 4)} away."
        )
        separate_bound = result.bound_of_own_hardware
        if separate_bound:
            words.append(
                "Hardware of its own for each workload would bring it to"
                f" {goal_label.text(separate_bound, 4)} at the very least."
            )
    words.append(f"Key figures, budgets and all that shows one design are those of {entries[0].workload}.")
    return " ".join(words)


def plans(run: RunFolder) -> PageTable:
    """Every workload: goal, what it could have alone, plan, limits that are nearly used."""
    rows = []
    for entry in workloads(run):
        goal_label = run.metric(entry.goal)
        separate_best = entry.own_best
        design = {PLAN_PREFIX + name: value for name, value in entry.design.items()}
        design["tpot_s"] = "tpot_s" in entry.used
        used = [f"{constraint(n)} {number(share, '%', 3)}" for n, share in entry.used.items() if share > NEARLY_USED]
        rows.append((
            (entry.workload, f"weight {entry.weight:g}"), (goal_label.text(entry.value, 4), inside(goal_label.label)),
            goal_label.text(separate_best, 4) if separate_best is not None else DASH,
            f"{signed(100 * entry.costs, 1)} %" if entry.costs is not None else DASH,
            tuple(part for part in (degrees(design), choices(design)) if part) or (DASH,), tuple(used) or (DASH,),
        ))  # fmt: skip
    head = ("Workload", "Here", "On hardware of its own", "Sharing costs", "Plan", "Limits used")
    return PageTable(head, rows, frozenset({0, 4, 5}), "mix")


def hardware_names(entries: Sequence[Shared]) -> list[str]:
    """The variables that the workloads share."""
    return [name for name in entries[0].design if name not in plan_fields()]


def hardware(run: RunFolder) -> PageTable:
    """The common hardware beside what each workload would have taken."""
    entries = workloads(run)
    separate_entries = [entry for entry in entries if entry.own_design]
    designs = [entries[0].design, *(entry.own_design for entry in separate_entries)]
    rows = [
        (variable(name), *(number(design[name], run.unit(name)) for design in designs))
        for name in hardware_names(entries)
    ]
    return PageTable(("Hardware", "Common", *(f"Own of {entry.workload}" for entry in separate_entries)), rows)


def sharing(entries: Sequence[Shared]) -> Figure:
    """Draw what sharing costs each workload; and its own hardware over the common one.

    Raises:
        MissingPart: no workload was searched on hardware of its own.
    """
    separate_entries = [entry for entry in entries if entry.own_design]
    if not separate_entries:
        raise MissingPart("no workload was searched on hardware of its own (search.alone)")
    names = hardware_names(separate_entries)
    figure, (left, right) = canvas(1.5 + 0.3 * max(len(separate_entries), len(names)), 2)
    places = range(len(separate_entries))
    colours = [COLOURS[i % len(COLOURS)] for i in places]
    costs = [100 * (entry.costs or 0.0) for entry in separate_entries]
    left.barh(places, costs, height=0.55, color=colours)
    for y, cost in zip(places, costs, strict=True):
        left.annotate(f"{signed(cost, 1)} %", (max(cost, 0), y), (4, 0), textcoords="offset points", va="center")
    left.set_yticks(places, [entry.workload for entry in separate_entries])
    left.invert_yaxis()
    left.set_xlim(min(0.0, *costs), max(1.25 * max(costs), 0.1))
    left.set_xlabel("Dearer than on hardware of its own [%]")
    left.grid(axis="y", visible=False)
    step = 0.6 / max(len(separate_entries), 1)
    for i, entry in enumerate(separate_entries):
        ratio = [entry.own_design[name] / entry.design[name] for name in names]
        at = [index + step * (i - 0.5 * (len(separate_entries) - 1)) for index in range(len(names))]
        right.plot(ratio, at, MARKERS[i % len(MARKERS)], color=colours[i], markersize=5.5, label=entry.workload)
    right.axvline(1.0, color=INK, linewidth=1)
    right.set_yticks(range(len(names)), [variable(name) for name in names])
    right.set_ylim(len(names) - 0.5, -0.5)
    right.set_xscale("log")
    right.xaxis.set_major_locator(_ticks(separate_entries, names))
    right.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{TIMES}{value:.3g}"))
    right.xaxis.set_minor_formatter(NullFormatter())
    right.set_xlabel("Its own hardware over the common")
    right.tick_params(axis="both", which="both", colors=SOFT, labelcolor=INK)
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=min(len(separate_entries), 4))
    return figure


def _ticks(shares: Sequence[Shared], names: Sequence[str]) -> FixedLocator:
    """Round numbers over the range of the ratios."""
    ratios = [entry.own_design[name] / entry.design[name] for entry in shares for name in names]
    rounds = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    shown = [value for value in rounds if 0.6 * min(ratios) <= value <= 1.7 * max(ratios)]
    return FixedLocator(shown if len(shown) > 1 else [0.5, 1.0, 2.0])


# Fleet on a run's page: what `simulate --replicas` and `autoscale` left in its folder.


FLEET, FLEET_SUMMARY, TABLE = "simulation", "fleet.json", "fleet.csv"
DAY, HOURS = "day", "hours.csv"
SHOWN = 3  # replicas that are named of a class


def _frame(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    try:
        result = pd.read_csv(path)
        for name in columns:
            result[name] = result[name].astype(float)
    except (OSError, ValueError, KeyError) as error:
        raise MissingPart(f"{path.name} cannot be read: {str(error).splitlines()[0]}") from error
    if result.empty:
        raise MissingPart(f"{path.name} has no rows")
    return result


def fleet_summary(run: RunFolder) -> dict[str, Any]:
    """Numbers of the simulation.

    Raises:
        MissingPart: a file that cannot be read.
    """
    try:
        result: dict[str, Any] = json.loads((run.path / FLEET / FLEET_SUMMARY).read_text(encoding="utf-8"))
        _ = result["headline"], result["classes"], result["replicas"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MissingPart(f"{FLEET_SUMMARY} cannot be read: {str(error).splitlines()[0]}") from error
    return result


def fleet_over_time(run: RunFolder) -> Figure:
    """Picture of the simulation, drawn of its table as the one beside it."""
    columns = ("begin_s", "end_s", "requests_per_s", "requests_mean", "requests_least", "requests_most", "waiting",
               "replicas", "paid", "attainment")  # fmt: skip
    return timeline_of(_frame(run.path / FLEET / TABLE, columns), str(fleet_summary(run)["headline"]))


def fleet_by_hour(run: RunFolder) -> Figure:
    """Replicas, load and power by the hour."""
    columns = ("hour", "requests_per_s", "replicas", "power_w", "power_all_on_w")
    return day_figure(_frame(run.path / DAY / HOURS, columns))


def served_by(run: RunFolder) -> PageTable:
    """Class, what it sees and keeps, and which replicas serve it."""
    head = ("class", "requests", "kept", "agreed", "TTFT p99", "TPOT p99", "served by")
    rows: list[tuple[str | tuple[str, ...], ...]] = []
    try:
        for row in fleet_summary(run)["classes"]:
            rows.append((
                str(row["class"]), f"{row['requests']:,}", f"{row['attainment']:.2%}", f"{row['agreed']:.2%}",
                engineering(row["ttft_p99_s"], "s"), engineering(row["tpot_p99_s"], "s"), _replicas(row["by_replica"]),
            ))  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise MissingPart(f"{FLEET_SUMMARY} cannot be read: {str(error).splitlines()[0]}") from error
    return PageTable(head, rows, frozenset({0, 6}))


def _replicas(counts: list[int]) -> str:
    """Most of a class's replicas with their shares, or that all have about as many."""
    total, some = sum(counts), [(count, index) for index, count in enumerate(counts, 1) if count]
    if not total:
        return ""
    most = sorted(some, key=lambda one: (-one[0], one[1]))[:SHOWN]
    named = ", ".join(f"{replica} ({count / total:.0%})" for count, replica in most)
    return f"{len(some)} replicas, most of it by {named}" if len(some) > SHOWN else f"replica {named}"


# A proven front on the page: its designs with their bounds, and what no design can reach.


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


def front_text(run: RunFolder) -> str:
    """Text on the designs of a front, their certificates and its knee."""
    result, certificate = front(run), run.certificate
    names = [run.metric(name) for name in result.metrics]
    bend = result.points[result.knee].values
    knee = ", ".join(metric.text(bend[name]) for metric, name in zip(names, result.metrics, strict=True))
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
    metrics = [run.metric(name) for name in names]
    rows, count = [], len(result.points)
    for index in np.unique(np.linspace(0, count - 1, min(ROWS, count)).round().astype(int)):
        row = result.points[index]
        values = [entry.text(row.values[name], 4) for entry, name in zip(metrics, names, strict=True)]
        bound = metrics[0].text(row.bound, 4) if row.bound is not None else DASH
        gap = number(row.gap, "%", 4) if row.gap is not None else DASH
        rows.append((*values, bound, gap, _plan(run, names, row.values)))
    limit = "At most" if names[0] in result.maximised else "At least"
    head = (*(entry.label for entry in metrics), f"{limit} ({_inside(metrics[0].label)})", "Gap", "Plan")
    return PageTable(head, rows, frozenset({len(head) - 1}), "front")


def _plan(run: RunFolder, names: Sequence[str], values: dict[str, float]) -> str:
    """The plan of the design of the frame with these metrics."""
    plan_values = run.designs[list(names)].to_numpy(dtype=float)
    apart = np.abs(np.log(plan_values / np.array([values[name] for name in names]))).sum(axis=1)
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
    few, coordinates = len(points) <= CROWD, (values[:, 1], values[:, 0])
    if few:
        axes.errorbar(*coordinates, yerr=reach, fmt="none", ecolor=INK, elinewidth=1.4, capsize=2, zorder=3)
    if len(names) == 2:
        if not result.maximised:
            _staircase(axes, points, values, bound, names)
        axes.plot(*coordinates, "o", color=BLUE, markersize=5 if few else 2, zorder=4, label="design")
    else:
        third = run.metric(names[2])
        look = {"c": values[:, 2], "cmap": "viridis", "s": 34 if few else 12}
        dots = axes.scatter(*coordinates, **look, zorder=4, label="design")
        bar = figure.colorbar(dots, ax=axes, format=FuncFormatter(lambda value, _: third.text(value)))
        bar.set_label(third.label, color=SOFT)
    knee = values[result.knee]
    axes.scatter(
        knee[1], knee[0], s=150, marker="*", c=ACCENT, edgecolors="white", linewidths=0.8, zorder=5, label="knee"
    )
    for which, name, column in (("x", names[1], 1), ("y", names[0], 0)):
        metric = run.metric(name)
        if values[:, column].max() > 4 * values[:, column].min():
            getattr(axes, f"set_{which}scale")("log")
        digits = digits_apart(values[:, column])
        getattr(axes, f"{which}axis").set_major_formatter(
            FuncFormatter(lambda value, _, metric=metric, digits=digits: metric.text(value, digits))
        )
        getattr(axes, f"set_{which}label")(metric.label)
    axes.legend(loc="best")
    return figure


def _staircase(
    axes: Axes, points: Sequence[FrontPoint], values: np.ndarray, bound: np.ndarray, names: Sequence[str]
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
