"""The plan that this package finds in each of the peer model's four search spaces."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from codesign.evidence.reproduction import Claim
from codesign.report.findings import BLUE, GREY, headline, panels, plain_ticks

sys.path.insert(0, str(Path(__file__).parent))
from peer_search import execution, plan_text, priced
from peer_spaces import APPLICATIONS, DEGREES, SPACES

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
    """Step time of every plan that fits over that of the best, by tensor-parallel degree; the best of each named."""
    figure, ((*row,),) = panels(3.1, 1, len(SPACES), sharey=True)
    behind = []
    for axes, (name, space) in zip(row, SPACES.items(), strict=True):
        frame = priced(name)
        fits = frame[frame["feasible"]]
        over = fits["total_time"] / fits["total_time"].iloc[0]
        degrees = over.groupby(fits["exe_tensor_par"]).min().sort_values()
        behind.append(100 * (float(degrees.iloc[1]) - 1))
        for index, degree in enumerate(DEGREES):
            part = over[fits["exe_tensor_par"] == degree]
            if part.empty:
                axes.text(1.05, index, "none fits", fontsize=7.5, color=GREY, va="center")
                continue
            spread = 0.26 * np.sin(np.arange(len(part)) * 2.4)  # the same at every run
            axes.plot(part, index + spread, ".", color=GREY, markersize=2, alpha=0.5, markeredgewidth=0)
            least = float(part.min())
            axes.plot([least], [index], "o", color=BLUE, markersize=5)
            text = "the plan found" if least == 1 else f"+{100 * (least - 1):.2g} %"
            axes.annotate(text, (least, index), (-3, 9), textcoords="offset points", fontsize=7.5, color=BLUE,
                          bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.5})  # fmt: skip
        axes.set(xscale="log", xlabel="step time over the best", ylim=(-0.5, 3.6))
        plain_ticks(axes, "x", (1, 2, 4, 8, 16))
        axes.set_xlim(0.93, 1.1 * over.max())
        axes.set_yticks(range(4), [f"TP {degree}" for degree in DEGREES])
        axes.grid(axis="y", visible=False)
        axes.set_title(f"{name}, {space.processors} processors\n{APPLICATIONS[name].replace(' with', ',')}\n"
                       f"{len(fits):,} of {len(frame):,} plans fit", fontsize=7.5)  # fmt: skip
    headline(figure, "The best degree differs from space to space, and the next best costs "
             f"{min(behind):.2g} to {max(behind):.2g} % however the rest is chosen")  # fmt: skip
    return {"Every point of each space": figure}
