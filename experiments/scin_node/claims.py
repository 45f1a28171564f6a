"""The found node with other bits, chips and domains: what accuracy costs, and what the ports decide."""

from functools import cache
from itertools import pairwise
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from codesign import evaluate
from codesign.config import scenario_from_config
from codesign.evidence.reproduction import Claim
from codesign.report.findings import BLUE, beside, headline, panels, plain_ticks

NAME = "scin_node"
FABRIC, SUMS = "cluster.network.scale_up.fabric", "cluster.network.scale_up.collectives.all_reduce"
LIMIT = 0.01  # of log perplexity, at the far end of its interval
BITS = (4, 5, 6, 7, 8)


@cache
def node(bits: int, endpoints: int = 32, chips: int = 9) -> dict[str, Any]:
    """The certified design of `codesign optimize experiment=scin_node` with some of its numbers changed."""
    scenario = scenario_from_config(
        f"experiment={NAME}", "plan.tp=32", "plan.pp=1", "plan.micro_batch=64",
        f"{FABRIC}.endpoints={endpoints}", f"{FABRIC}.switches={chips}", f"{SUMS}.inner.switches={chips}",
        f"{SUMS}.plain.switches={chips}", f"{SUMS}.bits={bits}", f"{SUMS}.inner.buffer_bytes=67584",
    )  # fmt: skip
    return evaluate(scenario).flat()


def penalty(bits: int) -> float:
    """Log perplexity, far end of the interval."""
    return float(node(bits)["log_perplexity_penalty_high"])


def claims() -> list[Claim]:
    """Orderings that an architect would stake the node on, then dollars by bits."""
    within = [bits for bits in BITS if penalty(bits) <= LIMIT]
    cost = {bits: float(node(bits)["usd_per_million_tokens"]) for bits in BITS}
    ports = {(ends, chips): float(node(6, ends, chips)["usage.scale_up.switch_ports"])
             for ends, chips in ((32, 9), (64, 9), (64, 18))}  # fmt: skip
    large = float(node(6, 64, 18)["usd_per_million_tokens"])

    def ordering(text: str, holds: bool) -> Claim:
        return Claim(NAME, text, 1.0, float(holds), 0.0, "derived", error=float(not holds))

    return [
        ordering("fewer bits cost less and lose more, at every step", all(
            cost[few] < cost[more] and penalty(few) > penalty(more) for few, more in pairwise(BITS))),
        ordering("6 is the fewest bits that keep perplexity within 1 % at the far end of its interval",
                 min(within) == 6),
        ordering("5 bits break it at the middle of the interval already",
                 float(node(5)["log_perplexity_penalty"]) > LIMIT),
        ordering("ports decide the domain: 32 endpoints fill 9 chips, 64 do not fit them and fill 18",
                 abs(ports[32, 9] - 1) < 1e-9 and ports[64, 9] > 1 and abs(ports[64, 18] - 1) < 1e-9),
        ordering("64 endpoints on 18 chips are no cheaper for the same plan than 32 on 9", large >= cost[6]),
        Claim(NAME, "64 endpoints on 18 chips, 6 bits, USD a million tokens", None, large, None, "derived"),
        Claim(NAME, "what the limit on perplexity costs, per cent", None, 100 * (cost[6] / cost[4] - 1), None,
              "derived"),
        *(Claim(NAME, f"{bits} bits, USD a million tokens", None, cost[bits], None, "derived") for bits in BITS),
        *(Claim(NAME, f"{bits} bits, rise of log perplexity at the far end, per cent", None, 100 * penalty(bits),
                None, "derived") for bits in BITS),
    ]  # fmt: skip


def tables() -> dict[str, pd.DataFrame]:
    """Accuracy and cost by bits."""
    rows = [
        {"bits": bits, "log_perplexity_penalty_low": float(node(bits)["log_perplexity_penalty_low"]),
         "log_perplexity_penalty": float(node(bits)["log_perplexity_penalty"]),
         "log_perplexity_penalty_high": penalty(bits),
         "usd_per_million_tokens": float(node(bits)["usd_per_million_tokens"])}
        for bits in BITS
    ]  # fmt: skip
    return {"Accuracy and cost by bits": pd.DataFrame(rows)}


def figures() -> dict[str, Figure]:
    """Cost against the rise of log perplexity with its interval."""
    result = tables()["Accuracy and cost by bits"]
    figure, ((axes,),) = panels(3.4)
    middle = 100 * result["log_perplexity_penalty"]
    reach = [middle - 100 * result["log_perplexity_penalty_low"], 100 * result["log_perplexity_penalty_high"] - middle]
    axes.errorbar(middle, result["usd_per_million_tokens"], xerr=reach, fmt="o", color=BLUE, capsize=3)
    for place, bits in zip(zip(middle, result["usd_per_million_tokens"], strict=True), result["bits"], strict=True):
        beside(axes, f"{bits} bits, ${place[1]:.2f}", *place, BLUE, (0, 5))
    axes.margins(y=0.14)
    axes.axvline(100 * LIMIT, color="0.4", linewidth=1, linestyle="--")
    beside(axes, f"limit, {100 * LIMIT:g} %", 100 * LIMIT, float(result["usd_per_million_tokens"].max()), "0.3", (4, 0))
    axes.set(xscale="log", xlabel="rise of log perplexity, % (90 % interval)", ylabel="USD a million tokens")
    plain_ticks(axes, "x", (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10))
    kept = result[result["log_perplexity_penalty_high"] <= LIMIT]
    fewest = kept.loc[kept["bits"].idxmin()]
    eight = result.loc[result["bits"].idxmax()]
    saved = 1 - float(fewest["usd_per_million_tokens"]) / float(eight["usd_per_million_tokens"])
    headline(figure, f"{int(fewest['bits'])} bits are the fewest that keep the limit at the far end of what is "
             f"known, and "
             f"they save {saved:.1%} against {int(eight['bits'])}: fewer bits buy little on this node")  # fmt: skip
    return {"What accuracy costs": figure}
