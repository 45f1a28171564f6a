"""The plan that this package finds in each of the peer model's four search spaces."""

import sys
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

from codesign.reproduce import Claim

sys.path.insert(0, str(Path(__file__).parent))
from peer_search import execution, plan_text, priced
from peer_spaces import APPLICATIONS, SPACES

NAME = "calculon_search"
PRICE_IT = "not determined: the peer's best is not published; price `found` with the peer"
SHOWN = ("total_time", "hbm_share", "second_share", "bubble_time", "tp_comm_time", "dp_comm_time")


def claims() -> list[Claim]:
    """Of each space its size, as the peer counts it, and the plan found."""
    result = []
    for name, space in SPACES.items():
        best = priced(name).iloc[0]
        found = {"space": name, "application": APPLICATIONS[name], "system": space.system, **execution(best)}
        found |= {"total_time": float(best["total_time"]), "sample_rate": space.batch / float(best["total_time"])}
        found |= {"proc_mem_tier1_cap_req": float(best["first_tier_memory"])}
        found |= {"proc_mem_tier2_cap_req": float(best["second_tier_memory"])}
        text = f"{name}: points of the space of {APPLICATIONS[name]} on {space.processors} processors"
        result.append(Claim(NAME, text, space.points, len(priced(name)), 0.0, "published"))
        text = f"{name}: step time of the best plan, s: {plan_text(best)}"
        result.append(Claim(NAME, text, None, float(best["total_time"]), None, PRICE_IT, found=found))
    return result


def tables() -> dict[str, pd.DataFrame]:
    """The five best plans of each space."""
    rows = []
    for name in SPACES:
        for rank, (_, row) in enumerate(priced(name).head(5).iterrows(), start=1):
            rows.append({"space": name, "rank": rank, "plan": plan_text(row)} | {key: row[key] for key in SHOWN})
    return {"Best plans": pd.DataFrame(rows)}


def figures() -> dict[str, Figure]:
    """Step time against used memory of every point, by tensor-parallel degree."""
    figure = Figure(figsize=(9.0, 6.5), layout="constrained")
    colours = {1: "#009e73", 2: "#0072b2", 4: "#e69f00", 8: "#cc79a7"}
    for axes, (name, space) in zip(figure.subplots(2, 2).flat, SPACES.items(), strict=True):
        frame = priced(name)
        for degree, part in frame.groupby("exe_tensor_par"):
            axes.plot(part["hbm_share"], part["total_time"], ".", color=colours[degree], markersize=3, alpha=0.5)
            axes.plot([], [], "o", color=colours[degree], label=f"TP {degree}")
        best = frame.iloc[0]
        axes.plot(best["hbm_share"], best["total_time"], "*", color="black", markersize=13, label="plan found")
        axes.axvline(1.0, color="0.4", linewidth=1)
        axes.set(xscale="log", yscale="log", title=f"{name}: {APPLICATIONS[name]}, {space.processors} processors")
        for axis, ticks in (
            (axes.xaxis, (0.1, 0.3, 1, 3, 10, 30, 100)),
            (axes.yaxis, (4, 6, 10, 20, 40, 100, 200, 400)),
        ):
            axis.set_major_locator(FixedLocator(ticks))
            axis.set_major_formatter(FormatStrFormatter("%g"))
            axis.set_minor_locator(NullLocator())
        axes.set_xlabel("used share of the first memory tier")
        axes.set_ylabel("step time, s")
        axes.grid(alpha=0.3)
    figure.axes[1].legend(fontsize=8)
    return {"Every point of each space": figure}
