"""What sums in switches, light paths and a photonic memory bring to who serves tokens under limits on their times."""

import math
from functools import cache

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign import ConfigError, solve, study_from_config
from codesign.evidence.reproduction import Claim
from codesign.report.findings import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    YELLOW,
    Label,
    headline,
    name_ends,
    panels,
    plain_ticks,
)

NAME = "serve_fabrics"
FABRIC, SUMS = "cluster.network.scale_up.fabric", "cluster.network.scale_up.collectives.all_reduce"
WAYS = {
    "NVSwitch, rings": ("collective=nccl_h100_sxm",),
    "NVSwitch, sums in it": ("collective=nvls",),
    "SCIN": ("fabric=scin", "collective=scin"),
    "NVSwitch, sums, 32 endpoints": ("collective=nvls", f"{FABRIC}.endpoints=32"),
    "SCIN, 32 endpoints": (
        "fabric=scin",
        "collective=scin",
        f"{FABRIC}.endpoints=32",
        f"{FABRIC}.switches=9",
        f"{SUMS}.switches=9",
    ),
    "LUMORPH, circuits that stay": ("fabric=lightpath_optics", "collective=static_all_to_all"),
    "LUMORPH, circuits that move": ("fabric=lightpath_optics", "collective=lumorph"),
    "HBM and a photonic pool": ("memory=hbm_and_photonic_pool",),
    "photonic memory alone": ("memory=photonic_pool",),
}
"""Fabric and memory, each as its file has it."""

SHORT, LONG = "prompts of 2,048 tokens", "prompts of 32,768 tokens"
ASKED = {SHORT: (), LONG: ("workload.input_tokens=32768", "objective.limits.ttft_s=15")}
TPOT_S = (0.02, 0.025, 0.03, 0.035, 0.04, 0.05, 0.07, 0.1)
TICKS = {SHORT: (2, 5, 10, 20, 50, 100, 200), LONG: (50, 100, 200, 500, 1000)}  # USD of the figure
COLOURS = (GREY, "0.1", BLUE, "0.1", BLUE, GREEN, YELLOW, PURPLE, ORANGE)


@cache
def designs(way: str, asked: str) -> pd.DataFrame:
    """Every legal plan of the list that fits and keeps the limit on TTFT."""
    overrides = (*WAYS[way], *ASKED[asked], f"objective.limits.tpot_s={max(TPOT_S)}")
    try:
        solution = solve(study_from_config(f"experiment={NAME}", *overrides))
    except ConfigError:
        return pd.DataFrame()
    frame = solution.designs
    assert len(solution.trace.method) < 2000  # all were kept
    return frame.loc[frame["feasible"].to_numpy(dtype=bool)]


def cheapest(way: str, asked: str, tpot_s: float) -> pd.Series | None:
    """The least dollars a token under a limit on TPOT, of every plan; None where none keeps it."""
    frame = designs(way, asked)
    kept = frame[frame["tpot_s"] <= tpot_s] if len(frame) else frame
    return kept.sort_values("usd_per_million_tokens").iloc[0] if len(kept) else None


def usd(way: str, asked: str, tpot_s: float) -> float:
    """Dollars a million tokens; infinite where no plan keeps the limit."""
    best = cheapest(way, asked, tpot_s)
    return math.inf if best is None else float(best["usd_per_million_tokens"])


def fastest_s(way: str, asked: str) -> float:
    """The least TPOT of any plan."""
    frame = designs(way, asked)
    return float(frame["tpot_s"].min()) if len(frame) else math.inf


def claims() -> list[Claim]:
    """Orderings, then dollars at 40 ms."""
    rings, sums, scin, wide_sums, wide_scin, stay, move, pool, alone = WAYS
    nodes = (rings, sums, scin)

    def ordering(text: str, holds: bool) -> Claim:
        return Claim(NAME, text, 1.0, float(holds), 0.0, "derived: every plan of the list", error=float(not holds))

    def no_dearer(one: str, other: str, asked: str = SHORT) -> bool:
        return all(usd(one, asked, limit) <= usd(other, asked, limit) * (1 + 1e-9) for limit in TPOT_S)

    def keeps(way: str, tpot_s: float) -> bool:
        return math.isfinite(usd(way, SHORT, tpot_s))

    result = [
        ordering("sums in a switch are cheaper than rings at every limit, whatever the prompts",
                 no_dearer(sums, rings) and no_dearer(sums, rings, LONG)),
        ordering("SCIN is no dearer than NVSwitch with its own sums at any limit, in nodes of 8 and of 32 endpoints",
                 all(no_dearer(*pair, asked) for pair in ((scin, sums), (wide_scin, wide_sums)) for asked in ASKED)),
        ordering("light paths that stay are cheaper than those that move at every limit", no_dearer(stay, move)),
        ordering("no node of 8 keeps 25 ms; every domain of 32 or more does",
                 not any(keeps(way, 0.025) for way in nodes)
                 and all(keeps(way, 0.025) for way in (wide_sums, wide_scin, stay, move))),
        ordering("in a domain of 32 endpoints SCIN is no dearer than light paths at any limit",
                 no_dearer(wide_scin, stay)),
        ordering("a pool beside HBM is cheaper than HBM alone at 30 and 35 ms, dearer at 70 and 100 ms",
                 all(usd(pool, SHORT, limit) < usd(sums, SHORT, limit) for limit in (0.03, 0.035))
                 and all(usd(pool, SHORT, limit) > usd(sums, SHORT, limit) for limit in (0.07, 0.1))),
        ordering("photonic memory alone costs more than ten times as much at every limit",
                 all(usd(alone, SHORT, one) > 10 * usd(sums, SHORT, one) for one in TPOT_S if keeps(sums, one))),
    ]  # fmt: skip
    for asked in ASKED:
        for way in WAYS:
            value = usd(way, asked, 0.04)
            standing = "derived: every plan of the list" if math.isfinite(value) else "derived: no plan keeps it"
            text = f"{way}, {asked}: least USD a million tokens at 40 ms a token"
            result.append(Claim(NAME, text, None, value if math.isfinite(value) else None, None, standing))
    return result


def tables() -> dict[str, pd.DataFrame]:
    """Dollars along the limit, and the design at 40 ms."""
    along = {
        f"USD a million tokens by limit on TPOT {asked.replace(',', '')}": pd.DataFrame(
            [{"way": way} | {f"{1e3 * limit:g} ms": _number(usd(way, asked, limit)) for limit in TPOT_S}
             for way in WAYS]
        )
        for asked in ASKED
    }  # fmt: skip
    rows = []
    for way in WAYS:
        best = cheapest(way, SHORT, 0.04)
        if best is not None:
            plan = {name: best[f"var.{name}"] for name in ("tp", "pp", "micro_batch", "token_budget")}
            seen = {name: best[name] for name in ("ttft_s", "tpot_s", "tokens_per_s_per_device", "capex_usd")}
            rows.append({"way": way} | plan | seen)
    return along | {"Best plans at 40 ms": pd.DataFrame(rows)}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _style(way: str) -> str:
    return "--" if "32 endpoints" in way else "-"


def figures() -> dict[str, Figure]:
    """Dollars against the limit on TPOT, a line from the first limit that a way keeps; dashed: 32 endpoints."""
    figure, (row,) = panels(4.4, 1, 2)
    limits = np.geomspace(min(TPOT_S) * 0.8, max(TPOT_S), 80)
    for axes, (asked, ticks) in zip(row, TICKS.items(), strict=True):
        starts = []
        shown = [1e3 * limit for limit in TPOT_S if limit not in (0.025, 0.035)]
        axes.set(xscale="log", yscale="log", xlabel="limit on the time per token, ms", ylim=(ticks[0], ticks[-1]))
        axes.set(title=asked, xlim=(1e3 * limits[0], 1e3 * limits[-1]))
        for way, colour in zip(WAYS, COLOURS, strict=True):
            values = np.array([usd(way, asked, limit) for limit in limits])
            kept = np.isfinite(values) & (values < ticks[-1])
            if kept.any():
                axes.plot(1e3 * limits[kept], values[kept], color=colour, lw=1.4, ls=_style(way))
                starts.append(Label(1e3 * limits[-1], float(values[kept][-1]), way, colour))
        plain_ticks(axes, "x", shown)
        plain_ticks(axes, "y", ticks)
        if axes is row[-1]:
            name_ends(axes, starts, 1.06)
    row[0].set_ylabel("USD a million tokens, least of every plan")
    rings, sums, *_ = WAYS
    at_40 = {way: usd(way, SHORT, 0.04) for way in WAYS}
    least = min(at_40, key=lambda way: at_40[way])
    headline(figure, f"At 40 ms a token rings cost {at_40[rings] / at_40[sums]:.1f} times what sums in the switch do; "
             f"{least} is cheapest, {at_40[sums] / at_40[least] - 1:.0%} below a node of 8, and only wide domains keep "
             "25 ms")  # fmt: skip
    return {"Cost along the limit of TPOT": figure}
