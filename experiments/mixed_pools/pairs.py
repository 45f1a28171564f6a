"""Which accelerators for prompts, which for decodes: `python experiments/mixed_pools/pairs.py`, to pairs.csv and .png.

Every pair of a list is a certified study of experiment=mixed_pools; beside each pair stands the same accelerator
doing both together.
"""

import math
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from codesign import ConfigError, study_from_config
from codesign.report import style
from codesign.report.findings import headline, panels

jax.config.update("jax_enable_x64", True)
HERE = Path(__file__).resolve().parent
DEVICES = ("h100_sxm", "h200", "h20", "b200")
COMMON = (
    "experiment=mixed_pools", "~space.hardware.hbm", "~space.hardware.scale_up_bandwidth", "space.plan.tp=[8]",
    "space.plan.pp=[1]", "space.plan.prefill_tp=[4,8]", "space.plan.prefill_pp=[1]",
    "space.plan.prefill_max_utilisation=[0.5,0.7,0.8,0.9]", "space.plan.device_count=[8,16,24,32,48,64]",
    "space.plan.token_budget=[256,512,1024,2048]", "objective.limits.tpot_s=0.05",
)  # fmt: skip
ONE = ("space.plan.prefill_devices=[0]", "space.plan.prefill_tp=[8]", "space.plan.prefill_max_utilisation=[0.8]")
TWO = ("space.plan.prefill_devices=[8,16,24,32,48,64]",)


def best(decode: str, prefill: str, *overrides: str) -> pd.Series | None:
    """The best design of a pair, proven; None where nothing keeps the limits."""
    pair = (f"accelerator={decode}", f"cluster.prefill.like.accelerator={prefill}")
    try:
        result, trace = study_from_config(*COMMON, *pair, *overrides).solve()
    except ConfigError as error:
        print(decode, prefill, error, file=sys.stderr)
        return None
    if not result.best["feasible"]:
        return None
    assert trace.certificate is not None
    assert trace.certificate.gap is not None
    assert trace.certificate.gap < 2e-3
    return result.best


def pairs() -> pd.DataFrame:
    """Dollars per million tokens, watts and pool sizes; `prefill` is empty where one pool does both."""
    rows = []
    for decode in DEVICES:
        for prefill in ("", *DEVICES):
            one = best(decode, prefill or decode, *(TWO if prefill else ONE))
            row = {"decode": decode, "prefill": prefill, "usd_per_million_tokens": math.nan}
            if one is not None:
                names = ("usd_per_million_tokens", "joules_per_token", "ttft_s", "tpot_s", "requests_per_s")
                row |= {name: one[name] for name in names}
                row |= {
                    f: one[f"var.{f}"]
                    for f in ("prefill_devices", "device_count", "micro_batch", "prefill_max_utilisation")
                }
            print(row, flush=True)
            rows.append(row)
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame) -> None:
    """A square for each pair, the column of one pool first."""
    columns = ["", *DEVICES]
    named = table.fillna({"prefill": ""}).set_index(["decode", "prefill"])["usd_per_million_tokens"]
    grid = np.array([[float(named[row, column]) for column in columns] for row in DEVICES])
    one, two = np.nanmin(grid[:, 0]), np.nanmin(grid[:, 1:])
    row, column = np.argwhere(grid == two)[0]
    pair = {True: f"{DEVICES[row]} for both", False: f"{DEVICES[row]} behind {columns[column]}"}
    with style():
        figure, ((axes,),) = panels(3.6)
        image = axes.imshow(np.log(grid), cmap="viridis_r", aspect="auto")
        middle = float(np.nanmean(np.log(grid)))
        for (down, right), value in np.ndenumerate(grid):
            text = "none" if math.isnan(value) else f"${value:.2f}".replace("$", r"\$")
            dark = not math.isnan(value) and math.log(value) > middle
            axes.text(right, down, text, ha="center", va="center", color="white" if dark else "black")
        axes.set_xticks(range(len(columns)), ["one pool", *DEVICES])
        axes.set_yticks(range(len(DEVICES)), DEVICES)
        axes.set_xlabel("prompts on")
        axes.set_ylabel("decodes on")
        axes.set_facecolor("0.9")
        axes.grid(visible=False)
        axes.axvline(0.5, color="white", lw=3)
        bar = figure.colorbar(image, ticks=np.log([2.5, 5, 10]))
        bar.ax.set_yticklabels([r"\$2.5", r"\$5", r"\$10"])
        bar.set_label("a million tokens")
        headline(
            figure,
            f"Two pools cost {two / one:.0%} of the cheapest one; best is {pair[DEVICES[row] == columns[column]]}"
            " (2,048 : 512 tokens, first token in 1 s, 50 ms a token)",
        )
        figure.savefig(HERE / "pairs.png", metadata={"Software": None})


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        pairs().to_csv(HERE / "pairs.csv", index=False, float_format="%.6g")
    draw(pd.read_csv(HERE / "pairs.csv"))
