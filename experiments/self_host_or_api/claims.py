"""At which API price and load a fleet of one's own pays: the design of `serve_goodput`, at any price.

No API's price is assumed: what is found is the price at which both cost the same.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import Scenario, study_from_config
from codesign.commands.api_prices import ApiPrices, SelfHostedFleet, usd_per_request
from codesign.evidence.reproduction import Claim
from codesign.model.workloads import read_load
from codesign.report.findings import BLUE, GREY, ORANGE, beside, headline, panels
from codesign.search import numbers_of

NAME = "self_host_or_api"
LOAD = Path(__file__).resolve().parents[1] / "serve_by_the_hour" / "load.csv"
FOUND = {
    "tp": 8.0, "pp": 1.0, "micro_batch": 64.0, "token_budget": 1024.0, "scale_up_bandwidth": 1.8e12, "hbm_to_ddr": 0.64,
}  # fmt: skip
"""The best design of `codesign optimize experiment=serve_goodput`."""
ALIKE = ApiPrices(1.0, 1.0, 1.0)  # a dollar a million tokens of any kind
PRICES = np.geomspace(1.02, 8, 120)  # over that of a full replica
TRIED = 400_000


@cache
def design() -> Scenario:
    """64 H100 that serve Llama 3.1 405B under an SLO."""
    study = study_from_config("experiment=serve_goodput")
    return study.space.place(study.scenario, {name: np.asarray(value) for name, value in FOUND.items()})


@cache
def numbers() -> dict[str, float]:
    """Metrics at the largest rate that keeps the SLO."""
    return numbers_of(design())


@cache
def fleet() -> SelfHostedFleet:
    """Dollars and requests a second of one of its replicas."""
    replicas, result = float(design().layout.dp), numbers()
    usd = result["usd_per_million_tokens"] * result["tokens_per_s"] / 1e6
    return SelfHostedFleet(usd / replicas, result["requests_per_s"] / replicas)


def million_tokens(usd_a_request: float) -> float:
    """Dollars a million tokens, prompt and answer alike, that come to so many dollars a request."""
    return usd_a_request / usd_per_request(ALIKE, design())


def full() -> float:
    """Dollars a request of a replica that is full."""
    return fleet().usd_per_s / fleet().requests_per_s


def of_day() -> float:
    """Dollars a request of a fleet that is as large as the busiest hour of a day asks for."""
    rates = read_load(LOAD)
    return float(fleet().cost(np.array([rates.max()]))[0] / rates.mean())


def tried(usd_a_request: float) -> tuple[float, float]:
    """Loads from which owning pays, and always pays, among many loads."""
    load = np.linspace(0, 40 * fleet().requests_per_s, TRIED + 1)[1:]
    pays = fleet().cost(load) <= usd_a_request * load
    return float(load[pays][0]), float(load[~pays][-1])


def claims() -> list[Claim]:
    """Break-even prices and loads, and that the closed form has them."""
    result = [
        Claim(NAME, "USD a million tokens, prompt and answer alike, of a full replica", None, million_tokens(full()),
              None, "derived"),
        Claim(NAME, "the same over a day with its peak in the afternoon", None, million_tokens(of_day()), None,
              "derived"),
        Claim(NAME, "USD of a replica a month", None, fleet().usd_per_s * 365.25 * 86400 / 12, None, "derived"),
        Claim(NAME, "requests/s of a replica", None, fleet().requests_per_s, None, "derived"),
    ]  # fmt: skip
    for factor in (1.1, 1.5, 2.0, 4.0):
        first, always = tried(factor * full())
        price = f"at {factor:g} times the price of a full replica"
        result += [
            Claim(NAME, f"requests/s from which a replica pays {price} (paper: all loads tried)", first,
                  fleet().cheaper_from(factor * full()), 0.002, "derived: closed form beside all loads"),
            Claim(NAME, f"requests/s from which owning always pays {price} (paper: all loads tried)", always,
                  fleet().always_from(factor * full()), 0.002, "derived: closed form beside all loads"),
        ]  # fmt: skip
    return [
        *result,
        ordering("a day's peak raises the break-even price by more than a half", of_day() / full() > 1.5),
        ordering("below the price of a full replica owning pays at no load",
                 bool(np.isinf(fleet().always_from(0.99 * full())))),
    ]  # fmt: skip


def ordering(text: str, holds: bool) -> Claim:
    """A claim that holds or does not."""
    return Claim(NAME, text, 1.0, float(holds), 0.0, "derived", error=float(not holds))


def tables() -> dict[str, pd.DataFrame]:
    """Break-even loads along the API's price."""
    rows = []
    for factor in (1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0):
        usd = factor * full()
        rows.append({
            "price_over_full_replica": factor, "usd_per_million_tokens": million_tokens(usd),
            "one_replica_pays_from_requests_per_s": fleet().cheaper_from(usd),
            "always_pays_from_requests_per_s": fleet().always_from(usd),
        })  # fmt: skip
    return {"Break-even loads by the price of an API": pd.DataFrame(rows)}


def figures() -> dict[str, Figure]:
    """Loads at which owning pays, by price."""
    figure, ((axes,),) = panels(3.0)
    each = fleet().requests_per_s
    first = [fleet().cheaper_from(factor * full()) / each for factor in PRICES]
    always = [fleet().always_from(factor * full()) / each for factor in PRICES]
    price = [million_tokens(factor * full()) for factor in PRICES]
    axes.fill_between(price, always, 100, color=BLUE, alpha=0.12, lw=0)
    axes.plot(price, always, color=BLUE, lw=1.4)
    axes.plot(price, first, color=ORANGE, lw=1.4)
    axes.set(xscale="log", yscale="log", ylim=(0.1, 100), xlim=(million_tokens(0.8 * full()), price[-1]))
    axes.axvline(million_tokens(full()), color=GREY, lw=0.8, ls=":")
    axes.axvline(million_tokens(of_day()), color=GREY, lw=0.8, ls=":")
    beside(axes, "a full replica", million_tokens(full()), 0.11, GREY, (3, 4))
    beside(axes, "a day's peak", million_tokens(of_day()), 0.11, GREY, (3, 4))
    beside(axes, "owning pays at every larger load", price[-1], 20, BLUE, (-6, 4))
    beside(axes, "one replica pays", price[-1], first[-1], ORANGE, (-6, 6))
    axes.set_xlabel("price of the API, USD a million tokens of any kind")
    axes.set_ylabel("load, in full replicas")
    least, day = million_tokens(full()), million_tokens(of_day())
    headline(
        figure,
        f"Below {least:.2f} USD a million tokens no load pays for replicas of one's own; a day with a peak raises that"
        f" to {day:.2f}",
    )
    return {"Loads at which owning pays": figure}
