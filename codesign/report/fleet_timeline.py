"""Timeline of a fleet: requests that come, what each replica has to answer, replicas, and who keeps the limits."""

import numpy as np
from matplotlib.figure import Figure

from ..simulation.fleet import Agreed, FleetServed, TwoPoolsServed
from .drawing import style
from .findings import BLUE, GREEN, GREY, ORANGE, headline, panels

__all__ = ["fleet_figure", "prompts_at"]

PARTS = 60  # of the time, that requests are counted in


def fleet_figure(found: FleetServed, agreed: dict[str, Agreed], pools: TwoPoolsServed | None = None) -> Figure:
    """Four rows over the seconds of a simulation; shares are of the requests that came in each part of it.

    Of two pools the third is of prompts at prefill replicas, in place of the number of replicas.
    """
    with style():
        return _drawn(found, agreed, pools)


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


def _drawn(found: FleetServed, agreed: dict[str, Agreed], pools: TwoPoolsServed | None) -> Figure:
    figure, rows = panels(5.4, 4, 1, sharex=True)
    come, queue, replicas, kept = (row[0] for row in rows)
    last = float(np.nanmax(found.came))
    edges = np.linspace(float(np.nanmin(found.came)), last, PARTS + 1)
    counts = np.histogram(found.came, edges)[0]
    come.stairs(counts / np.diff(edges), edges, color=BLUE)
    come.set_title("requests a second")
    when = np.array([one[0] for one in found.samples])
    each = [np.array(one[4])[np.array(one[4]) >= 0] for one in found.samples]
    if len(when):
        busy = [one if len(one) else np.zeros(1) for one in each]
        queue.fill_between(
            when, [one.min() for one in busy], [one.max() for one in busy], color=BLUE, alpha=0.25, lw=0, step="post"
        )
        queue.step(when, [one.mean() for one in busy], where="post", color=BLUE, lw=1.2)
        queue.step(when, [one[3] / max(one[1], 1) for one in found.samples], where="post", color=ORANGE, lw=1.0)
        if pools is not None:
            prompts = prompts_at(pools, when)
            replicas.fill_between(when, prompts.min(0), prompts.max(0), color=ORANGE, alpha=0.25, lw=0, step="post")
            replicas.step(when, prompts.mean(0), where="post", color=ORANGE, lw=1.2)
        else:
            replicas.step(when, [one[1] for one in found.samples], where="post", color=ORANGE, lw=1.2)
            replicas.step(when, [one[2] for one in found.samples], where="post", color=GREY, lw=1.0, linestyle="--")
    if pools is not None:
        queue.set_title("requests at a decode replica: mean, least and most; waiting for a slot (orange)")
        replicas.set_title("prompts at a prefill replica: mean, least and most")
    else:
        queue.set_title("requests at a replica: mean, least and most; waiting for their prompt (orange)")
        replicas.set_title("replicas that take requests, and that are paid (dashed)")
    replicas.yaxis.get_major_locator().set_params(integer=True)
    limits = agreed or {"": Agreed()}
    good = np.zeros(len(found.came), bool)
    names = found.requests.class_names or ("",)
    codes = found.requests.classes if found.requests.class_names else np.zeros(len(found.came), int)
    for code, name in enumerate(names):
        own = codes == code
        good[own] = found.kept(limits.get(name, limits.get("", Agreed())))[own]
    place = np.clip(np.searchsorted(edges, found.came, side="right") - 1, 0, PARTS - 1)
    share = np.bincount(place, good, PARTS) / np.maximum(np.bincount(place, minlength=PARTS), 1)
    kept.stairs(np.where(counts > 0, 100 * share, np.nan), edges, color=GREEN, baseline=None)
    kept.set_title("requests that keep their limits, %")
    kept.set_xlabel("seconds")
    for axes in (come, queue, replicas):
        axes.set_ylim(bottom=0)
    kept.set_ylim(0, 103)
    told = f"{100 * good.mean():.1f} % of {len(good):,} requests keep their limits" if agreed else (
        f"{len(good):,} requests: {float(np.percentile(found.served.ttft_s, 99)):.3g} s to the first token at p99"
    )  # fmt: skip
    hits = f", {100 * found.hit_rate:.0f} % of prompt tokens come from a cache" if found.hit_rate else ""
    headline(figure, told + hits)
    return figure
