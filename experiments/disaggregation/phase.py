"""When two pools pay: `python experiments/disaggregation/phase.py` writes phase.csv and phase.png beside this file.

Prompts and answers of 2,560 tokens together, divided in several ways; limits on the time per token; links between the
pools. Each cell is two certified studies of experiment=disaggregation, with two pools left out of one.
"""

import math
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from codesign import ConfigError, study_from_config
from codesign.report import style
from codesign.report.findings import headline, panels

jax.config.update("jax_enable_x64", True)
HERE = Path(__file__).resolve().parent
TOKENS = 2560  # of a prompt and its answer: the default of workload=disaggregated
RATIOS = {"1:4": 0.2, "1:1": 0.5, "4:1": 0.8, "16:1": 16 / 17, "64:1": 64 / 65}  # prompt to answer: share of prompts
TPOTS_MS = (20, 30, 40, 60, 100)
LINKS_GB_S = (0.5, 5.0, 50.0)
APART = "space.plan.prefill_devices=[8,16,24,32,48,64]"
COMMON = (
    "experiment=disaggregation", "~space.hardware.hbm", "~space.hardware.pool_link_bandwidth",
    "space.plan.tp=[4,8]", "space.plan.pp=[1]", "space.plan.prefill_tp=[4,8]", "space.plan.prefill_pp=[1]",
    "space.plan.prefill_max_utilisation=[0.5,0.7,0.8,0.9]", "space.plan.device_count=[8,16,24,32,48,64]",
    "space.plan.token_budget=[64,128,256,512,1024,2048,4096]",
)  # fmt: skip
LINK = "cluster.prefill.link.fabric.bandwidth_bytes_per_s"


def best(*overrides: str) -> pd.Series | None:
    """The best design, proven; None where nothing keeps the limits."""
    study = study_from_config(*COMMON, *overrides)
    try:
        result, trace = study.solve()
    except ConfigError as error:
        print(error, file=sys.stderr)
        return None
    if not result.best["feasible"]:
        return None
    assert trace.certificate is not None
    assert trace.certificate.gap is not None
    assert trace.certificate.gap < 2e-3
    return result.best


def cells() -> pd.DataFrame:
    """One row a cell: dollars per million tokens together and apart, and the plan of the latter."""
    rows = []
    for ratio, share in RATIOS.items():
        prompt = round(share * TOKENS)
        lengths = (f"workload.input_tokens={prompt}", f"workload.output_tokens={TOKENS - prompt}")
        for tpot in TPOTS_MS:
            limits = (*lengths, f"objective.limits.tpot_s={tpot / 1000}")
            one = best(*limits, "space.plan.prefill_devices=[0]", "space.plan.prefill_tp=[8]",
                       "space.plan.prefill_max_utilisation=[0.8]", "space.plan.device_count=[8]")  # fmt: skip
            for link in LINKS_GB_S:
                two = best(*limits, APART, f"{LINK}={link * 1e9:g}")
                row = {"prompt_to_answer": ratio, "input_tokens": prompt, "tpot_ms": tpot, "link_gb_per_s": link}
                row["together_usd"] = math.nan if one is None else one["usd_per_million_tokens"]
                row["apart_usd"] = math.nan if two is None else two["usd_per_million_tokens"]
                if two is not None:
                    row["prefill_share"] = two["var.prefill_devices"] / (
                        two["var.prefill_devices"] + two["var.device_count"]
                    )
                    row["batch"], row["load"] = two["var.micro_batch"], two["var.prefill_max_utilisation"]
                print(row, flush=True)
                rows.append(row)
    return pd.DataFrame(rows)


def finding(table: pd.DataFrame) -> str:
    """Where two pools pay, in a sentence."""
    ratio = table["together_usd"] / table["apart_usd"]
    both, most = table[ratio.notna()], table.loc[ratio.idxmax()]
    alone = int((table["together_usd"].isna() & table["apart_usd"].notna()).sum())
    return (
        f"Two pools pay in {int((ratio > 1).sum())} of {len(both)} cells, most ({ratio.max():.1f} times) at"
        f" {most['prompt_to_answer']} and {most['tpot_ms']:g} ms a token; in {alone} more they alone keep the limits"
    )


def draw(table: pd.DataFrame) -> None:
    """A panel for each link: cost together over cost apart."""
    with style():
        figure, (panels_of_links,) = panels(3.3, columns=len(LINKS_GB_S), sharey=True)
        image = None
        for axes, link in zip(panels_of_links, LINKS_GB_S, strict=True):
            image = cells_of(axes, table[table["link_gb_per_s"] == link])
            axes.set_title(f"{link:g} GB/s a device")
            axes.set_xlabel("prompt : answer tokens")
        panels_of_links[0].set_ylabel("most ms per token")
        bar = figure.colorbar(image, ax=panels_of_links, ticks=[-1, -0.5, 0, 0.5, 1])
        bar.ax.set_yticklabels(["0.5", "0.71", "1", "1.41", "2"])
        bar.set_label("cost together / apart")
        headline(figure, finding(table))
        figure.savefig(HERE / "phase.png", metadata={"Software": None})


def cells_of(axes: Any, part: pd.DataFrame) -> Any:
    """The cells of one link, a number in each."""
    grid = np.full((len(TPOTS_MS), len(RATIOS)), np.nan)
    for row in part.to_dict("records"):
        at = TPOTS_MS.index(row["tpot_ms"]), list(RATIOS).index(row["prompt_to_answer"])
        together, apart = float(row["together_usd"]), float(row["apart_usd"])
        grid[at] = together / apart
        only = {(True, False): "two\nonly", (False, True): "one\nonly", (True, True): "none"}
        text = only.get((math.isnan(together), math.isnan(apart)), f"{grid[at]:.2f}")
        dark = abs(np.nan_to_num(np.log2(grid[at]))) > 0.6
        axes.text(at[1], at[0], text, ha="center", va="center", fontsize=6.5, color="white" if dark else "black")
    axes.set_facecolor("0.9")
    axes.set_xticks(range(len(RATIOS)), list(RATIOS), fontsize=7.5)
    axes.set_yticks(range(len(TPOTS_MS)), [str(tpot) for tpot in TPOTS_MS])
    axes.grid(visible=False)
    return axes.imshow(np.log2(grid), cmap="RdBu", vmin=-1, vmax=1, origin="lower", aspect="auto")


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        cells().to_csv(HERE / "phase.csv", index=False, float_format="%.6g")
    draw(pd.read_csv(HERE / "phase.csv"))
