"""Figures of fleets and engines: a stream on replicas, a day of load, a mixed fleet, an engine's timeline."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..simulation.fleet import FleetServed, LatencyLimits, TwoPoolsServed
from ..simulation.serving import TIMELINE, HandoverTimes
from .drawing import canvas, constrained, style
from .findings import BLUE, GREEN, GREY, ORANGE, beside, headline, panels

__all__ = [
    "PARTS", "day_figure", "fleet_figure", "fleet_headline", "fleet_mix_figure", "fleet_table", "pools_figure",
    "prompts_at", "timeline_figure", "timeline_of", "under_way",
]  # fmt: skip


# Picture of a mixed fleet: devices of each kind by the class that they serve.


COLOURS = (BLUE, ORANGE, GREEN, "#8c6bb1", "#b15928", "#1b7f79", "#c51b7d", "#666633")


def fleet_mix_figure(summary: Mapping[str, Any]) -> Figure:
    """A bar for each kind of device: what each class takes, and what stands spare in boxes."""
    with style():
        return _bars(summary)


def _bars(summary: Mapping[str, Any]) -> Figure:
    kinds, classes = [kind["name"] for kind in summary["kinds"]], [one["name"] for one in summary["classes"]]
    figure, ((axes,),) = panels(0.9 + 0.55 * len(kinds))
    left = np.zeros(len(kinds))
    for index, name in enumerate(classes):
        widths = np.array([
            sum(pool["devices"] for pool in summary["pools"] if pool["class"] == name and pool["kind"] == kind)
            for kind in kinds
        ], float)  # fmt: skip
        axes.barh(kinds, widths, left=left, color=COLOURS[index % len(COLOURS)], height=0.6, label=name)
        left = left + widths
    spare = np.array([kind["spare"] for kind in summary["kinds"]], float)
    axes.barh(kinds, spare, left=left, color="white", edgecolor=GREY, hatch="///", height=0.6, lw=0.6, label="spare")
    axes.invert_yaxis()
    axes.set_xlabel("devices")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35), ncols=min(len(classes) + 1, 5), frameon=False)
    headline(figure, f"Devices by class: {1e-3 * summary['usd_per_month']:,.3g} thousand USD a month")
    return figure


# A day of load: requests, replicas that run, watts with and without following.


def day_figure(table: pd.DataFrame) -> Figure:
    """Three rows over the hours of `commands.day.hours`, what following the load saves above them."""
    with style():
        return _drawn(table.assign(following=table["power_w"] / 1e3, on=table["power_all_on_w"] / 1e3))


def _drawn(table: pd.DataFrame) -> Figure:
    figure, rows = panels(4.6, 3, 1, sharex=True)
    load, replicas, power = (row[0] for row in rows)
    edges = [*table["hour"], len(table)]

    def steps(axes: Axes, name: str, colour: str, line: str = "-") -> None:
        values = [*table[name], table[name].iloc[-1]]
        axes.step(edges, values, where="post", color=colour, lw=1.4, linestyle=line)

    steps(load, "requests_per_s", BLUE)
    steps(replicas, "replicas", ORANGE)
    steps(power, "on", GREY, "--")
    steps(power, "following", GREEN)
    titles = {load: "requests a second", replicas: "replicas that run", power: "power of the cluster, kW"}
    for axes, label in titles.items():
        axes.set_title(label)
        axes.set_ylim(bottom=0)
    replicas.yaxis.get_major_locator().set_params(integer=True)
    power.set_xlim(0, len(table))
    power.set_xlabel("hour")
    low = int(table["following"].argmin())
    beside(power, "all on", float(table["hour"].iloc[low]), float(table["on"].iloc[low]), GREY, (0.1, -3))
    beside(
        power, "follow the load", float(table["hour"].iloc[low]), float(table["following"].iloc[low]), GREEN, (0.1, 3)
    )
    saved = 1 - float(table["following"].sum() / table["on"].sum())
    fewest, most = int(table["replicas"].min()), int(table["replicas"].max())
    headline(figure, f"Following the load with {fewest} to {most} replicas takes {saved:.0%} less energy over the "
             f"day than "
             f"all {most} on")  # fmt: skip
    return figure


# Timeline of engines: decodes, prompts, who waits, and the cache; of two pools also what is on its way.


SHOWN = 400  # steps in the middle of a simulation, enough to see single prompts
THIN = 4000  # points of a line over the whole simulation

STATE_COLOURS = ("#2f6fb0", "#e69f00", "#d55e00", "#009e73", "#56b4e9")

TIMELINE_PARTS = (
    ("decodes", "Sequences decoded together"),
    ("prompt_tokens", "Prompt tokens in a step"),
    ("waiting", "Requests that wait"),
    ("blocks", "Blocks of the cache in use"),
)
STAYS = (
    ("came", "began", "Prompts that wait, all engines"),
    ("began", "first", "Prompts that are computed, all engines"),
    ("first", "ready", "Caches on their way"),
)
APART = (("decodes", "Sequences decoded together, first engine"), ("blocks", "Blocks of its cache in use"))
Line = tuple[str, np.ndarray, np.ndarray]  # title, seconds, what holds from then on


def timeline_figure(timeline: Sequence[tuple[float, ...]], shown: int = SHOWN) -> Figure:
    """The whole simulation on the left, some steps of its middle on the right; one row a quantity."""
    table = _columns(timeline)
    near = _middle(table["start_s"], shown)
    return _timeline_drawn([(label, table["start_s"], table[name]) for name, label in TIMELINE_PARTS], near)


def pools_figure(timeline: Sequence[tuple[float, ...]], handed: HandoverTimes, shown: int = SHOWN) -> Figure:
    """Draw the timeline of two pools: prompts by where they are, then the steps of the first engine that decodes."""
    table = _columns(timeline)
    lines = [(label, *under_way(getattr(handed, enter), getattr(handed, leave))) for enter, leave, label in STAYS]
    lines += [(label, table["start_s"], table[name]) for name, label in APART]
    return _timeline_drawn(lines, _middle(table["start_s"], shown))


def under_way(enter: np.ndarray, leave: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times at which the number that have entered and not left changes, and the number from then on."""
    stays = leave > enter
    times = np.concatenate([leave[stays], enter[stays]])
    order = np.argsort(times, kind="stable")  # at one time who leaves makes room for who enters
    change = np.repeat([-1.0, 1.0], int(stays.sum()))
    return times[order], np.cumsum(change[order])


def _columns(timeline: Sequence[tuple[float, ...]]) -> dict[str, np.ndarray]:
    return dict(zip(TIMELINE, np.array(timeline, dtype=float).T, strict=True))


def _middle(start: np.ndarray, shown: int) -> tuple[float, float]:
    """From when to when so many steps of the middle are."""
    middle = len(start) // 2
    return float(start[max(middle - shown // 2, 0)]), float(start[min(middle + shown // 2, len(start) - 1)])


def _timeline_drawn(lines: Iterable[Line], near: tuple[float, float]) -> Figure:
    rows = list(lines)
    figure, first = canvas(1.55 * len(rows), layout=constrained())
    first[0].remove()
    axes = figure.subplots(len(rows), 2, sharex="col", width_ratios=(1, 1))
    for (panel, part), (label, times, values), colour in zip(axes, rows, STATE_COLOURS, strict=False):
        thin = slice(None, None, len(times) // THIN | 1)  # odd: entering and leaving alternate
        inside = slice(max(int(np.searchsorted(times, near[0])) - 1, 0), int(np.searchsorted(times, near[1])) + 1)
        panel.plot(times[thin], values[thin], lw=0.5, color=colour)
        part.step(times[inside], values[inside], where="post", lw=0.9, color=colour)
        part.set_xlim(*near)
        panel.set_title(label, fontsize=8, loc="left")
        for one in (panel, part):
            one.set_ylim(bottom=0)
    axes[-1][0].set_xlabel("seconds, all of the simulation")
    axes[-1][1].set_xlabel("seconds, of its middle")
    return figure


# Timeline of a fleet: requests that come, what each replica has to answer, replicas, and who keeps the limits.
#
# A simulation is kept as a table of equal parts of its time (`fleet_table`), which the picture beside it and the one
# on a run's page are drawn of.


PARTS = 60  # of the time


def fleet_figure(served: FleetServed, agreed: dict[str, LatencyLimits], pools: TwoPoolsServed | None = None) -> Figure:
    """Four rows over the seconds of a simulation; shares are of the requests that came in each part of it.

    Of two pools the third is of prompts at prefill replicas, in place of the number of replicas.
    """
    with style():
        return timeline_of(fleet_table(served, agreed, pools), fleet_headline(served, agreed))


def prompts_at(pools: TwoPoolsServed, when: np.ndarray) -> np.ndarray:
    """Prompts that each prefill replica has to compute at some times, [replicas, times]; in a queue of all: none."""
    handed, where = pools.handed, pools.prefill_replica
    rows: list[np.ndarray] = []
    for replica in range(int(where.max()) + 1):
        at_replica = where == replica
        begun = np.sort(handed.came[at_replica])
        ended = np.sort(handed.first[at_replica])
        rows.append(np.searchsorted(begun, when, side="right") - np.searchsorted(ended, when, side="right"))
    return np.array(rows)


def _good(served: FleetServed, agreed: dict[str, LatencyLimits]) -> np.ndarray:
    """True for each request that kept the limits of its class."""
    limits = agreed or {"": LatencyLimits()}
    good = np.zeros(len(served.came), bool)
    names = served.requests.class_names or ("",)
    codes = served.requests.classes if served.requests.class_names else np.zeros(len(served.came), int)
    for code, name in enumerate(names):
        of_class = codes == code
        good[of_class] = served.kept(limits.get(name, limits.get("", LatencyLimits())))[of_class]
    return good


def fleet_headline(served: FleetServed, agreed: dict[str, LatencyLimits]) -> str:
    """Sentence on a simulation: who keeps the limits, and what caches hold."""
    count, late = len(served.came), float(np.percentile(served.served.ttft_s, 99))
    text = f"{count:,} requests: {late:.3g} s to the first token at p99"
    if agreed:
        text = f"{100 * _good(served, agreed).mean():.1f} % of {count:,} requests keep their limits"
    return text + (f", {100 * served.hit_rate:.0f} % of prompt tokens come from a cache" if served.hit_rate else "")


def fleet_table(
    served: FleetServed, agreed: dict[str, LatencyLimits], pools: TwoPoolsServed | None = None
) -> pd.DataFrame:
    """A row for each part of the time: its begin and end, requests, what is at a replica, replicas, attainment."""
    edges = np.linspace(float(np.nanmin(served.came)), float(np.nanmax(served.came)), PARTS + 1)
    counts = np.histogram(served.came, edges)[0]
    bin_index = np.clip(np.searchsorted(edges, served.came, side="right") - 1, 0, PARTS - 1)
    share = np.bincount(bin_index, _good(served, agreed), PARTS) / np.maximum(
        np.bincount(bin_index, minlength=PARTS), 1
    )
    columns = {
        "begin_s": edges[:-1], "end_s": edges[1:], "requests_per_s": counts / np.diff(edges),
        "attainment": np.where(counts > 0, share, np.nan),
    }  # fmt: skip
    when = np.array([one[0] for one in served.samples])
    part = np.searchsorted(edges, when, side="right") - 1
    each = [np.array(one[4])[np.array(one[4]) >= 0] for one in served.samples]
    busy = [one if len(one) else np.zeros(1) for one in each]
    seen = {
        "requests_mean": ([one.mean() for one in busy], "mean"), "requests_least": ([one.min() for one in busy], "min"),
        "requests_most": ([one.max() for one in busy], "max"),
        "waiting": ([one[3] / max(one[1], 1) for one in served.samples], "mean"),
        "replicas": ([one[1] for one in served.samples], "mean"), "paid": ([one[2] for one in served.samples], "mean"),
    }  # fmt: skip
    if pools is not None:
        prompts = prompts_at(pools, when)
        seen |= {
            "prompts_mean": (prompts.mean(0).tolist(), "mean"), "prompts_least": (prompts.min(0).tolist(), "min"),
            "prompts_most": (prompts.max(0).tolist(), "max"),
        }  # fmt: skip
    frame = pd.DataFrame(columns)
    for name, (values, how) in seen.items():
        frame[name] = pd.Series(values, dtype=float).groupby(part).agg(how).reindex(range(PARTS)).to_numpy()
    return frame


def timeline_of(table: pd.DataFrame, finding: str) -> Figure:
    """Draw such a table, with what is told above."""
    figure, rows = panels(5.4, 4, 1, sharex=True)
    come, queue, replicas, attainment = (row[0] for row in rows)
    edges = [*table["begin_s"], float(table["end_s"].iloc[-1])]

    def stairs(axes: Axes, name: str, colour: str, line: str = "-", by: float = 1.0) -> None:
        axes.stairs(by * table[name].to_numpy(), edges, color=colour, baseline=None, linestyle=line, lw=1.2)

    def band(axes: Axes, name: str, colour: str) -> None:
        low, high = (table[f"{name}_{end}"].to_numpy() for end in ("least", "most"))
        axes.stairs(high, edges, baseline=low, fill=True, color=colour, alpha=0.25, lw=0)
        stairs(axes, f"{name}_mean", colour)

    stairs(come, "requests_per_s", BLUE)
    band(queue, "requests", BLUE)
    stairs(queue, "waiting", ORANGE)
    if "prompts_mean" in table:
        band(replicas, "prompts", ORANGE)
        queue.set_title("requests at a decode replica: mean, least and most; waiting for a slot (orange)")
        replicas.set_title("prompts at a prefill replica: mean, least and most")
    else:
        stairs(replicas, "replicas", ORANGE)
        stairs(replicas, "paid", GREY, "--")
        queue.set_title("requests at a replica: mean, least and most; waiting for their prompt (orange)")
        replicas.set_title("replicas that take requests, and that are paid (dashed)")
    replicas.yaxis.get_major_locator().set_params(integer=True)
    stairs(attainment, "attainment", GREEN, by=100.0)
    come.set_title("requests a second")
    attainment.set_title("requests that keep their limits, %")
    attainment.set_xlabel("seconds")
    for axes in (come, queue, replicas):
        axes.set_ylim(bottom=0)
    attainment.set_ylim(0, 103)
    headline(figure, finding)
    return figure
