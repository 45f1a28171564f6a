"""The found design served request by request: what its SLO and its dollars are by the simulation."""

from functools import cache

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import Scenario, study_from_config
from codesign.commands.simulate import engine_of
from codesign.evidence.reproduction import Claim
from codesign.model.workloads import GoodputServing
from codesign.report.findings import BLUE, GREY, ORANGE, beside, headline, panels
from codesign.search import numbers_of
from codesign.simulation.serving import (
    Engine,
    Requests,
    arrivals,
    least_token_s,
    lengths,
    mean_request,
    most_rate,
    simulate_open,
)

NAME = "serve_goodput"
FOUND = {
    "tp": 8.0, "pp": 1.0, "micro_batch": 64.0, "token_budget": 1024.0, "scale_up_bandwidth": 1.8e12, "hbm_to_ddr": 0.64,
}  # fmt: skip
"""The best design of `codesign optimize experiment=serve_goodput`."""
REQUESTS, SEEDS, HALVINGS = 10_000, (0, 1, 2, 3), 7
TTFT_S, TPOT_S, SHARE = 2.0, 0.05, 99
BAR_TPOT, BAR_RATE = 0.06, 0.10  # of the 99th percentile at a rate; of the rate that a percentile leaves
RATES = (0.5, 0.7, 0.85, 1.0, 1.15, 1.3, 1.5)  # of the figure, over the closed form's


@cache
def design() -> Scenario:
    """The scenario of `FOUND`."""
    study = study_from_config(f"experiment={NAME}")
    return study.space.place(study.scenario, {name: np.asarray(value) for name, value in FOUND.items()})


@cache
def closed() -> dict[str, float]:
    """Its metrics in closed form, at the largest rate that meets the SLO."""
    return numbers_of(design())


@cache
def engine() -> tuple[Engine, float]:
    """One of its engines, and how many there are."""
    return engine_of(design())


def requests(rate: float, seed: int) -> Requests:
    """Of one engine, at so many requests/s of all."""
    work, rng = design().workload, np.random.default_rng(seed)
    assert isinstance(work, GoodputServing)
    prompts = lengths(rng, float(work.input_tokens), float(work.input_cv), REQUESTS)
    answers = lengths(rng, float(work.output_tokens), float(work.output_cv), REQUESTS, least=2)
    return Requests(prompts, answers, arrivals(rng, rate / engine()[1], float(work.arrival_cv), REQUESTS))


@cache
def served(rate: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """TTFT and TPOT of every request of one seed."""
    one = simulate_open(engine()[0], requests(rate, seed))
    return one.ttft_s, one.tpot_s


def seeded(rate: float, seed: int) -> tuple[float, float]:
    """99th percentiles of TTFT and TPOT of one seed."""
    ttft, tpot = served(rate, seed)
    return float(np.percentile(ttft, SHARE)), float(np.percentile(tpot, SHARE))


@cache
def simulated(rate: float) -> tuple[float, float]:
    """99th percentiles of TTFT and TPOT over all seeds."""
    ttft, tpot = (np.concatenate(each) for each in zip(*(served(rate, seed) for seed in SEEDS), strict=True))
    return float(np.percentile(ttft, SHARE)), float(np.percentile(tpot, SHARE))


@cache
def simulated_goodput() -> float:
    """Requests/s of all engines at which the simulation just meets the SLO, by bisection."""
    low, high = 0.7 * closed()["requests_per_s"], 1.4 * closed()["requests_per_s"]
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        ttft, tpot = simulated(middle)
        low, high = (middle, high) if ttft <= TTFT_S and tpot <= TPOT_S else (low, middle)
    return low


def claims() -> list[Claim]:
    """Percentiles at the rate, the rate itself and its dollars, and what no schedule beats."""
    result, (one, count) = closed(), engine()
    rate, usd = result["requests_per_s"], result["usd_per_million_tokens"]
    ttft, tpot = simulated(rate)
    goodput = simulated_goodput()
    asked = mean_request(requests(rate, SEEDS[0]), min(one.sequences, one.blocks))
    most, least = count * most_rate(one.times, asked, TPOT_S), least_token_s(one.times, asked, rate / count)
    beside = "derived: closed form beside the simulation"
    kept = ttft <= TTFT_S
    return [
        Claim(NAME, "TPOT p99 at the closed form's goodput, simulated, over the 50 ms agreed", TPOT_S, tpot, BAR_TPOT,
              beside),
        Claim(NAME, "TTFT p99 there, simulated, keeps the 2 s agreed", 1.0, float(kept), 0.0, beside,
              error=float(not kept)),
        Claim(NAME, "requests/s that meet the SLO: simulated (paper: closed form)", rate, goodput, BAR_RATE,
              beside),
        Claim(NAME, "USD a million output tokens: at the simulated goodput (paper: closed form)", usd,
              usd * rate / goodput, BAR_RATE, beside),
        Claim(NAME, "no order of serving sustains more requests/s on this design with 50 ms a token on average", None,
              most, None, "derived: certified by a linear programme over kinds of steps"),
        Claim(NAME, "no order of serving brings a token below, ms on average, at the goodput", None, 1e3 * least, None,
              "derived: certified by a linear programme over kinds of steps"),
        Claim(NAME, "the closed form's mean TPOT and goodput keep both bounds", 1.0,
              float(result["tpot_s"] >= least and rate <= most), 0.0, beside,
              error=float(result["tpot_s"] < least or rate > most)),
    ]  # fmt: skip


def tables() -> dict[str, pd.DataFrame]:
    """Percentiles along the rate."""
    rows = []
    for share in RATES:
        ttft, tpot = simulated(share * closed()["requests_per_s"])
        rows.append({"requests_per_s": share * closed()["requests_per_s"], "ttft_p99_s": ttft, "tpot_p99_s": tpot})
    return {"Simulated percentiles along the rate": pd.DataFrame(rows)}


def figures() -> dict[str, Figure]:
    """The same beside the SLO; bars over seeds."""
    table = next(iter(tables().values()))
    figure, (row,) = panels(3.1, 1, 2)
    shown = (
        ("tpot_p99_s", 1, TPOT_S, 1e3, "TPOT, 99th percentile, ms"),
        ("ttft_p99_s", 0, TTFT_S, 1.0, "TTFT, 99th percentile, s"),
    )
    rates = table["requests_per_s"].to_numpy()
    for axes, (name, at, limit, factor, label) in zip(row, shown, strict=True):
        each = factor * np.array([[seeded(rate, seed)[at] for seed in SEEDS] for rate in rates])
        middle = factor * table[name].to_numpy()
        axes.fill_between(rates, each.min(axis=1), each.max(axis=1), color=BLUE, alpha=0.2, linewidth=0)
        axes.plot(rates, middle, "o-", color=BLUE, linewidth=1.4, markersize=4)
        axes.axhline(factor * limit, color=ORANGE, linewidth=1.2)
        axes.axvline(closed()["requests_per_s"], color=GREY, linewidth=1, linestyle="--")
        axes.set(xlabel="requests a second", title=label)
        axes.set_ylim(0, None)
        beside(axes, f"agreed: {factor * limit:g}", rates[0], factor * limit, ORANGE, (0.1, 3))
        beside(axes, "goodput,\nclosed form", closed()["requests_per_s"], 0.18 * factor * limit, GREY, (4, 0))
    beside(row[0], "simulated (band: seeds)", rates[0], float(1e3 * table["tpot_p99_s"].iloc[0]), BLUE, (4, -8))
    result, goodput = closed()["requests_per_s"], simulated_goodput()
    if goodput >= result:
        kept = f"meet the SLO when each is simulated; the simulation allows {goodput / result - 1:.1%} more"
    else:
        kept = f"are {goodput:.1f} where each is simulated, {1 - goodput / result:.1%} fewer"
    headline(figure, f"The closed form's {result:.1f} requests a second {kept}, and tokens, not prompts, end it")
    return {"What the simulation says of the SLO": figure}
