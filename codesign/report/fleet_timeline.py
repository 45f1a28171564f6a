"""Timeline of a fleet: requests that come, what each replica has to answer, replicas, and who keeps the limits.

A simulation is kept as a table of equal parts of its time (`fleet_table`), which the picture beside it and the one on a
run's page are drawn of.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..simulation.fleet import Agreed, FleetServed, TwoPoolsServed
from .drawing import style
from .findings import BLUE, GREEN, GREY, ORANGE, headline, panels

__all__ = ["PARTS", "fleet_figure", "fleet_table", "fleet_told", "prompts_at", "timeline_of"]

PARTS = 60  # of the time


def fleet_figure(found: FleetServed, agreed: dict[str, Agreed], pools: TwoPoolsServed | None = None) -> Figure:
    """Four rows over the seconds of a simulation; shares are of the requests that came in each part of it.

    Of two pools the third is of prompts at prefill replicas, in place of the number of replicas.
    """
    with style():
        return timeline_of(fleet_table(found, agreed, pools), fleet_told(found, agreed))


def prompts_at(pools: TwoPoolsServed, when: np.ndarray) -> np.ndarray:
    """Prompts that each prefill replica has to compute at some times, [replicas, times]; in a queue of all: none."""
    handed, where = pools.handed, pools.prefill_replica
    rows: list[np.ndarray] = []
    for replica in range(int(where.max()) + 1):
        own = where == replica
        begun = np.sort(handed.came[own])
        ended = np.sort(handed.first[own])
        rows.append(np.searchsorted(begun, when, side="right") - np.searchsorted(ended, when, side="right"))
    return np.array(rows)


def _good(found: FleetServed, agreed: dict[str, Agreed]) -> np.ndarray:
    """True for each request that kept the limits of its class."""
    limits = agreed or {"": Agreed()}
    good = np.zeros(len(found.came), bool)
    names = found.requests.class_names or ("",)
    codes = found.requests.classes if found.requests.class_names else np.zeros(len(found.came), int)
    for code, name in enumerate(names):
        own = codes == code
        good[own] = found.kept(limits.get(name, limits.get("", Agreed())))[own]
    return good


def fleet_told(found: FleetServed, agreed: dict[str, Agreed]) -> str:
    """Sentence on a simulation: who keeps the limits, and what caches hold."""
    count, late = len(found.came), float(np.percentile(found.served.ttft_s, 99))
    told = f"{count:,} requests: {late:.3g} s to the first token at p99"
    if agreed:
        told = f"{100 * _good(found, agreed).mean():.1f} % of {count:,} requests keep their limits"
    return told + (f", {100 * found.hit_rate:.0f} % of prompt tokens come from a cache" if found.hit_rate else "")


def fleet_table(found: FleetServed, agreed: dict[str, Agreed], pools: TwoPoolsServed | None = None) -> pd.DataFrame:
    """A row for each part of the time: its begin and end, requests, what is at a replica, replicas, attainment."""
    edges = np.linspace(float(np.nanmin(found.came)), float(np.nanmax(found.came)), PARTS + 1)
    counts = np.histogram(found.came, edges)[0]
    place = np.clip(np.searchsorted(edges, found.came, side="right") - 1, 0, PARTS - 1)
    share = np.bincount(place, _good(found, agreed), PARTS) / np.maximum(np.bincount(place, minlength=PARTS), 1)
    columns = {
        "begin_s": edges[:-1], "end_s": edges[1:], "requests_per_s": counts / np.diff(edges),
        "attainment": np.where(counts > 0, share, np.nan),
    }  # fmt: skip
    when = np.array([one[0] for one in found.samples])
    part = np.searchsorted(edges, when, side="right") - 1
    each = [np.array(one[4])[np.array(one[4]) >= 0] for one in found.samples]
    busy = [one if len(one) else np.zeros(1) for one in each]
    seen = {
        "requests_mean": ([one.mean() for one in busy], "mean"), "requests_least": ([one.min() for one in busy], "min"),
        "requests_most": ([one.max() for one in busy], "max"),
        "waiting": ([one[3] / max(one[1], 1) for one in found.samples], "mean"),
        "replicas": ([one[1] for one in found.samples], "mean"), "paid": ([one[2] for one in found.samples], "mean"),
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


def timeline_of(table: pd.DataFrame, told: str) -> Figure:
    """Draw such a table, with what is told above."""
    figure, rows = panels(5.4, 4, 1, sharex=True)
    come, queue, replicas, kept = (row[0] for row in rows)
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
    stairs(kept, "attainment", GREEN, by=100.0)
    come.set_title("requests a second")
    kept.set_title("requests that keep their limits, %")
    kept.set_xlabel("seconds")
    for axes in (come, queue, replicas):
        axes.set_ylim(bottom=0)
    kept.set_ylim(0, 103)
    headline(figure, told)
    return figure
