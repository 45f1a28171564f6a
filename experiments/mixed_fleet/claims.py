"""Old and new accelerators in one fleet: which class of requests runs where, and what the mix saves.

64 H100 that are there already, B200 to buy, Llama 3.1 70B, three classes whose limits differ.
"""

import dataclasses
import time
from functools import cache

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import ConfigError
from codesign.commands import prepare_jax
from codesign.commands.mixed_fleet import (
    FleetClass,
    KindOptions,
    MixedFleet,
    ReplayedPool,
    classes_of,
    confirmed,
    fleet_summary,
    mixed_fleet,
    options_on,
    pool_options,
)
from codesign.evidence.reproduction import Claim
from codesign.report.findings import BLUE, GREEN, GREY, ORANGE, headline, panels
from codesign.search.assignment import AssignedFleet, AssignmentLimits, DeviceKind, assign
from codesign.verification import check_assignment

NAME = "mixed_fleet"
OLD, NEW, OWNED = "h100_sxm", "b200", 64
OVERRIDES = (
    "model=llama31_70b",
    "kernel_correction=null",
    "workload.kernel_slowdown=1",
)  # slowdown fitted without factors
CLASSES = (
    "chat:rate=40/s,input=1000,output=300,ttft_p99=1s,tpot_p99=40ms,input_cv=0.5,output_cv=0.5",
    "rag:rate=8/s,input=8000,output=400,ttft_p99=3s,tpot_p99=60ms,input_cv=0.5,output_cv=0.5",
    "batch:rate=20/s,input=2000,output=1000,ttft_p99=60s,tpot_p99=200ms,input_cv=0.5,output_cv=0.5",
)
SIZES = (1, 2, 4, 8, 16)
REQUESTS, SEED = 2000, 1
LOADS = np.round(np.geomspace(0.25, 4.0, 17), 4)
NODES = 200  # of the branch and bound at each load of the figure
STEP, MORE = 0.02, 1e-4  # relative: of a limit, of a rate
MONTH_S = 365.25 * 86400 / 12


def classes() -> list[FleetClass]:
    """Chat, retrieval and batch."""
    return classes_of(CLASSES)


@cache
def answer() -> tuple[MixedFleet, float]:
    """The fleet by the closed form, and CPU seconds that it took from classes to the proof."""
    prepare_jax()
    begun = time.process_time()
    result = mixed_fleet(classes(), (OLD, NEW), OVERRIDES, owned={OLD: OWNED}, sizes=SIZES)
    return result, time.process_time() - begun


@cache
def replayed() -> tuple[MixedFleet, list[ReplayedPool]]:
    """The fleet whose pools keep their limits request by request."""
    return confirmed(answer()[0], AssignmentLimits(), REQUESTS, SEED)


def kinds() -> list[DeviceKind]:
    """Old and new devices."""
    return [kind.kind for kind in answer()[0].kinds]


def rates(load: float = 1.0) -> dict[str, float]:
    """Requests/s of each class at a load."""
    return {one.name: load * one.rate for one in classes()}


def assigned(load: float, sorts: tuple[DeviceKind, ...] | None = None) -> AssignedFleet | None:
    """The cheapest fleet of these kinds at a load; none where there is none. Of one kind alone no bound is asked."""
    nodes = NODES if sorts is None else 1
    chosen = kinds() if sorts is None else list(sorts)
    names = {kind.name for kind in chosen}
    options = [one for one in pool_options(answer()[0].kinds) if one.kind in names]
    try:
        return assign(rates(load), options, chosen, most_nodes=nodes)
    except ConfigError:
        return None


def month(fleet: AssignedFleet | None) -> float:
    """Thousand dollars a month."""
    return np.nan if fleet is None else fleet.usd_per_s * MONTH_S / 1e3


@cache
def by_load() -> pd.DataFrame:
    """Cost and devices along the load: mixed, old alone (more of it is bought), new alone."""
    old, new = kinds()
    rows = []
    for load in LOADS:
        mix, both = assigned(float(load)), [assigned(float(load), (kind,)) for kind in (old, new)]
        assert mix is not None
        rows.append({
            "load": load, "mixed_kusd_per_month": month(mix), "h100_alone_kusd_per_month": month(both[0]),
            "b200_alone_kusd_per_month": month(both[1]), "h100": (mix.owned[0] + mix.bought[0]) * old.box,
            "b200": mix.bought[1] * new.box, "gap": mix.gap,
            **{f"{name}_on_h100": share_on_old(mix, name) for name in rates()},
        })  # fmt: skip
    return pd.DataFrame(rows)


def share_on_old(fleet: AssignedFleet, name: str) -> float:
    """Share of a class on the old devices, parts of replicas allowed: of whole ones several placements cost alike."""
    own = [(one, fleet.relaxed[index]) for index, one in enumerate(fleet.options) if one.request_class == name]
    total = sum(one.rate * count for one, count in own)
    return sum(one.rate * count for one, count in own if one.kind == OLD) / total


def gains() -> dict[str, float]:
    """Class -> requests/s of a new device over those of an old one, each in its best size."""
    options = pool_options(answer()[0].kinds)

    def best(name: str, kind: str) -> float:
        return max(one.rate / one.devices for one in options if (one.request_class, one.kind) == (name, kind))

    return {name: best(name, NEW) / best(name, OLD) for name in rates()}


def apart() -> float:
    """Thousand dollars a month where classes are placed one after the other, the largest load first on old devices.

    What a planner does who fills what is owned with the class that comes first, then buys.
    """
    best = np.inf
    for first in rates():
        left, total = OWNED // kinds()[0].box, 0.0
        for name in [first, *(each for each in rates() if each != first)]:
            old, new = kinds()
            options = [one for one in pool_options(answer()[0].kinds) if one.request_class == name]
            sorts = [dataclasses.replace(old, owned_boxes=left), new]
            result = assign({name: rates()[name]}, options, sorts, most_nodes=NODES)
            left -= result.owned[0]
            total += result.usd_per_s
        best = min(best, total)
    return best * MONTH_S / 1e3


def class_price(name: str) -> tuple[float, float]:
    """Dollars/s of a request/s more: the price, and by solving again with a little more and less."""
    fleet = answer()[0].fleet
    ends = [
        assign(rates() | {name: rates()[name] * (1 + sign * MORE)}, fleet.options, fleet.kinds, most_nodes=1)
        for sign in (1, -1)
    ]
    slope = (ends[0].relaxed_usd_per_s - ends[1].relaxed_usd_per_s) / (2 * MORE * rates()[name])
    return fleet.prices["class", name], slope


def _with_each(kind: KindOptions, changed: list[FleetClass]) -> list[KindOptions]:
    """The options of a kind with one class as each of these, priced together; those of the others stay."""
    anew = options_on(kind.kind.name, changed, OVERRIDES, "goodput", sizes=SIZES).classes
    own = [one.request_class.name for one in kind.classes].index(changed[0].name)
    return [kind._replace(classes=[*kind.classes[:own], one, *kind.classes[own + 1 :]]) for one in anew]


@cache
def limit_worth(name: str, limit: str) -> tuple[float, float]:
    """Dollars/s that a second more of a limit saves: the slope, and by pricing all plans again at other limits."""
    own = next(one for one in classes() if one.name == name)
    value = getattr(own, limit)
    changed = [dataclasses.replace(own, **{limit: value * (1 + sign * STEP)}) for sign in (1, -1)]
    result = [
        assign(rates(), pool_options(each), kinds(), most_nodes=1).relaxed_usd_per_s
        for each in zip(*(_with_each(kind, changed) for kind in answer()[0].kinds), strict=True)
    ]
    return answer()[0].worth[name, limit], (result[1] - result[0]) / (2 * STEP * value)


def claims() -> list[Claim]:
    """What the mix costs and saves, that it is proven and priced, and that its replay keeps the limits."""
    result, seconds = answer()
    best, (old, new) = result.fleet, kinds()
    told = fleet_summary(result, [], 0.0, [NAME])
    check_assignment(told["certificate"])
    proven, pools = replayed()
    both = [month(assigned(1.0, (kind,))) for kind in (old, new)]
    mix = month(best)
    listed = [
        Claim(NAME, "thousand USD a month of the mixed fleet, H100 owned", None, mix, None, "derived"),
        Claim(NAME, "thousand USD a month, H100 alone, more of them bought", None, both[0], None, "derived"),
        Claim(NAME, "thousand USD a month, B200 alone", None, both[1], None, "derived"),
        Claim(NAME, "thousand USD a month once all keep their limits in a replay", None, month(proven.fleet), None,
              "derived"),
        *[
            Claim(NAME, f"requests/s of a B200 over those of an H100, {name}", None, gain, None, "derived")
            for name, gain in gains().items()
        ],
        Claim(NAME, "the mix beside the bound that its certificate proves (paper: bound)", best.bound * MONTH_S / 1e3,
              mix, 0.005, "derived: branch and bound, checked in fractions"),
    ]  # fmt: skip
    for name in rates():
        price, slope = class_price(name)
        listed.append(
            Claim(NAME, f"USD a month of a request/s more of {name} (paper: solved again)", slope * MONTH_S,
                  price * MONTH_S, 0.001, "derived: dual price beside differences")
        )  # fmt: skip
    slope, again = limit_worth("rag", "tpot_s")
    listed.append(
        Claim(NAME, "USD a month of 1 ms more between tokens of rag (paper: all plans priced again)",
              again * MONTH_S / 1e3, slope * MONTH_S / 1e3, 0.03, "derived: slope beside differences")
    )  # fmt: skip
    kept = {
        one.name: min(pool.attainment for pool in pools if pool.request_class.name == one.name) for one in classes()
    }
    listed += [
        Claim(NAME, f"share of {name}'s requests that keep both limits in the replay", None, share, None, "derived")
        for name, share in kept.items()
    ]
    return [
        *listed,
        ordering("the mix costs less than either kind alone", mix < min(both)),
        ordering("classes placed one after the other, owned devices first, cost more than the mix", apart() > mix),
        ordering("each limit is kept by 99 % of the requests of every pool in the replay",
                 all(pool.meets for pool in pools)),
        ordering("at twice the load old devices serve most of the class that gains least from new ones", by_gain(2.0)),
        ordering("three classes, two kinds and over 10,000 plans from classes to the proof in under a CPU minute",
                 seconds < 60 and told["plans"] > 10_000),
    ]  # fmt: skip


def by_gain(load: float) -> bool:
    """True if shares on the old devices fall in the order of what classes gain from new ones."""
    fleet = assigned(load)
    assert fleet is not None
    shares = [share_on_old(fleet, name) for name in sorted(rates(), key=lambda name: gains()[name])]
    return shares == sorted(shares, reverse=True) and shares[0] > shares[-1]


def ordering(text: str, holds: bool) -> Claim:
    """A claim that holds or does not."""
    return Claim(NAME, text, 1.0, float(holds), 0.0, "derived", error=float(not holds))


def tables() -> dict[str, pd.DataFrame]:
    """Pools of the replayed fleet, prices, and cost along the load."""
    result, pools = replayed()
    told = fleet_summary(result, pools, 0.0, [NAME])
    where = pd.DataFrame([
        {name: pool[name] for name in ("class", "kind", "replicas", "devices", "requests_per_s")}
        | {"plan": " ".join(f"{key} {value:g}" for key, value in pool["plan"].items())}
        for pool in told["pools"]
    ])  # fmt: skip
    worth = pd.DataFrame([
        {"class": one["name"], **{key: one[key] for key in one if key.startswith("usd_per_month")}}
        for one in told["classes"]
    ])  # fmt: skip
    replay = pd.DataFrame(told["replay"]).drop(columns="doubt")
    return {"Pools": where, "Shadow prices": worth, "Replay": replay, "Cost along the load": by_load()}


def figures() -> dict[str, Figure]:
    """Cost along the load, and which share of each class runs on the old devices."""
    table = by_load()
    figure, ((cost, where),) = panels(3.2, 1, 2)
    for column, label, colour in (
        ("mixed_kusd_per_month", "mixed", BLUE), ("h100_alone_kusd_per_month", "H100 alone", ORANGE),
        ("b200_alone_kusd_per_month", "B200 alone", GREY),
    ):  # fmt: skip
        cost.plot(table["load"], table[column], color=colour, lw=1.4, label=label)
    cost.set(xscale="log", yscale="log", xlabel="load, over that of the question", ylabel="thousand USD a month")
    cost.legend(frameon=False)
    for name, colour in zip(rates(), (BLUE, ORANGE, GREEN), strict=True):
        where.plot(table["load"], 100 * table[f"{name}_on_h100"], color=colour, lw=1.4, label=name)
    where.set(xscale="log", ylim=(-3, 103), xlabel="load, over that of the question")
    where.set_ylabel("% of the class on H100, parts allowed")
    where.legend(frameon=False)
    for axes in (cost, where):
        axes.set_xticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
        axes.minorticks_off()
    at = table.iloc[int(np.argmin(np.abs(table["load"] - 1)))]
    saved = 1 - at["mixed_kusd_per_month"] / min(at["h100_alone_kusd_per_month"], at["b200_alone_kusd_per_month"])
    headline(
        figure,
        f"The class that gains least from B200 keeps the H100; mixed costs {100 * saved:.0f} % less than one kind",
    )
    return {"Cost along the load": figure}
