"""What the rates of three kinds of cables should be to each other: the found design, its neighbours, today's cables."""

from functools import cache
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from codesign import Scenario, evaluate, scenario_from_config
from codesign.evidence.reproduction import Claim
from codesign.report.findings import BLUE, GREEN, GREY, ORANGE, Label, beside, headline, name_ends, panels, plain_ticks
from codesign.uncertainty import intervals

NAME = "fabrex_cables"
LINKS = "cluster.network.scale_up.fabric.links"
CABLES = ("port", "cascade", "uplink")
FOUND = (15.95e9, 31.89e9, 63.78e9)  # transfers/s of each: certified by `codesign optimize experiment=fabrex_cables`
PLAN = (
    "plan.tp=8", "plan.pp=1", "plan.virtual_stages=1", "plan.micro_batch=8", "plan.recompute=none",
    "plan.sequence_parallel=1", "plan.zero=1", "plan.offload_optimizer=0",
)  # fmt: skip
OTHERS = ((1.0, 1.0, 2.0), (1.0, 2.0, 2.0), (1.0, 1.0, 4.0), (1.0, 4.0, 4.0), (1.0, 2.0, 8.0))  # instead of 1 : 2 : 4
GEN = {"PCIe 4 everywhere": 16e9, "PCIe 5 everywhere": 32e9, "PCIe 6 everywhere": 64e9}


@cache
def cabled(rates: tuple[float, ...]) -> Scenario:
    """The found plan with cables of these rates: ports of accelerators, between boxes, to the switch."""
    cables = (f"{LINKS}.{kind}.transfers_per_s={rate}" for kind, rate in zip(CABLES, rates, strict=True))
    return scenario_from_config(f"experiment={NAME}", *PLAN, *cables)


@cache
def priced(rates: tuple[float, ...]) -> dict[str, Any]:
    """Metrics of the found plan with cables of these rates."""
    return evaluate(cabled(rates)).flat()


def dollars(rates: tuple[float, ...]) -> float:
    """USD a million tokens."""
    return float(priced(rates)["usd_per_million_tokens"])


def changed(kind: str, factor: float) -> tuple[float, ...]:
    """The found rates, one of them changed."""
    return tuple(rate * (factor if name == kind else 1) for name, rate in zip(CABLES, FOUND, strict=True))


def claims() -> list[Claim]:
    """Orderings first, then what each choice of cables costs."""
    best = dollars(FOUND)
    same = {name: dollars((rate,) * 3) for name, rate in GEN.items()}
    slower = {kind: dollars(changed(kind, 0.8)) for kind in CABLES}
    faster = {kind: dollars(changed(kind, 1.25)) for kind in CABLES}
    moved = [float(priced(changed(kind, 1.25))["time_s"]) / float(priced(FOUND)["time_s"]) - 1 for kind in CABLES]

    def ordering(text: str, holds: bool) -> Claim:
        return Claim(NAME, text, 1.0, float(holds), 0.0, "derived", error=float(not holds))

    return [
        ordering("no kind of cable is better a fifth slower or a quarter faster",
                 min(*slower.values(), *faster.values()) >= best),
        ordering("no other ratio of port : cascade : uplink is cheaper than 1 : 2 : 4, of five near it",
                 min(dollars(tuple(FOUND[0] * ratio for ratio in ratios)) for ratios in OTHERS) > best),
        ordering("a quarter more of one kind alone brings no time (below 0.01 %): the others hold the group back",
                 min(moved) > -1e-4),
        ordering("cables of one generation everywhere are dearer, whichever it is", min(same.values()) > best),
        Claim(NAME, "balanced cables, USD a million tokens", None, best, None, "derived"),
        *(Claim(NAME, f"{name}, USD a million tokens", None, value, None, "derived") for name, value in same.items()),
        *(Claim(NAME, f"{kind} a fifth slower, per cent dearer", None, 100 * (value / best - 1), None, "derived")
          for kind, value in slower.items()),
        *(Claim(NAME, f"balanced cables, seconds a step, {end} end of the 90 % interval", None, value, None, "derived")
          for end, value in zip(("lower", "upper"), intervals(cabled(FOUND))["time_s"], strict=True)),
    ]  # fmt: skip


@cache
def sweep() -> pd.DataFrame:
    """Cost over each kind's rate, the other two as found."""
    rows = [
        {"cable": kind, "over_found": factor, "usd_per_million_tokens": dollars(changed(kind, factor))}
        for kind in CABLES for factor in (0.5, 0.7, 0.85, 1.0, 1.4, 2.0)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def tables() -> dict[str, pd.DataFrame]:
    """The sweep behind the figure."""
    return {"Cost over the rate of each kind": sweep()}


def figures() -> dict[str, Figure]:
    """Cost over each kind's rate, and with one generation everywhere."""
    figure, ((axes,),) = panels(3.3)
    axes.set(xscale="log", xlabel="rate of one kind of cable over the found one", ylabel="USD a million tokens")
    parts = [part for _, part in sweep().groupby("cable", sort=False)]
    for part, colour, width in zip(parts, (BLUE, ORANGE, GREEN), (5.0, 2.8, 1.0), strict=True):
        axes.plot(part["over_found"], part["usd_per_million_tokens"], "-", color=colour, linewidth=width, alpha=0.8)
    x, y = (parts[0][name].to_numpy() for name in ("over_found", "usd_per_million_tokens"))
    beside(axes, f"{', '.join(CABLES[:-1])} or {CABLES[-1]} alone: one line", x[1], y[1], "0.3", (12, 3))
    same = {name: dollars((rate,) * 3) for name, rate in GEN.items()}
    for value in same.values():
        axes.axhline(value, color=GREY, linewidth=0.9, linestyle="--")
    plain_ticks(axes, "x", (0.5, 0.7, 1, 1.4, 2))
    name_ends(axes, [Label(x[-1], value, name) for name, value in same.items()])
    best = dollars(FOUND)
    half = max(float(part["usd_per_million_tokens"].iloc[0]) for part in parts)
    headline(figure, f"Cables are cheapest in balance, 1 : 2 : 4: one kind at half its rate costs "
             f"{half / best - 1:.0%} more, whichever it is, a faster one buys nothing, and the best single "
             f"generation costs {min(same.values()) / best - 1:.0%} more")  # fmt: skip
    return {"What each kind of cable should be": figure}
