"""What a faster token costs: `python experiments/serve_deepseek_v3/front.py` writes front.csv and front.png beside it.

The front of dollars a million tokens against tokens/s of a user, proven over all plans and the whole box, with the
degrees of each point. `--draw` draws the kept table again.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from codesign import prepare_jax, study_from_config

prepare_jax()
HERE = Path(__file__).resolve().parent
STUDY = (
    "experiment=serve_deepseek_v3", "search=pareto", "~objective.limits.tpot_s", "search.levels=3", "search.between=4",
    "search.minimise=[usd_per_million_tokens]", "search.maximise=[tokens_per_s_per_user]",
)  # fmt: skip
MORE = ("tokens_per_s_per_device", "ttft_s")
PLAN = ("device_count", "tp", "pp", "ep", "attention_dp", "micro_batch", "chunk")


def front() -> pd.DataFrame:
    """One row a point: both metrics, how near it is proven, its plan."""
    found, trace = study_from_config(*STUDY).solve()
    assert trace.certificate is not None
    assert trace.certificate.front is not None
    rows = []
    for point in trace.certificate.front.points:
        away = sum(abs(found.designs[metric] / value - 1) for metric, value in point.values.items())
        design = found.designs.loc[away.idxmin()]
        row = point.values | {"gap": point.gap, "proven": point.certified}
        rows.append(row | {metric: design[metric] for metric in MORE} | {f: design[f"var.{f}"] for f in PLAN})
    print(pd.DataFrame(rows).to_string(), flush=True)
    return pd.DataFrame(rows).sort_values("tokens_per_s_per_user")


def draw(table: pd.DataFrame) -> None:
    """A colour for each number of accelerators that experts are spread over."""
    figure, axes = plt.subplots(figsize=(7.2, 4), layout="constrained")
    x, y = table["tokens_per_s_per_user"], table["usd_per_million_tokens"]
    axes.step(x, y, where="pre", lw=0.8, color="0.6")  # at least as fast a token: the price of the next point
    for experts, part in table.groupby("ep"):
        label = f"experts over {experts:g}"
        axes.plot(part[x.name], part[y.name], "o", ms=4, label=label)
    gaps = table.loc[table["proven"], "gap"]
    axes.set_yscale("log")
    axes.set_xlabel("tokens/s of a user")
    axes.set_ylabel(r"\$ per million output tokens")
    title = f"DeepSeek-V3, fp8 on 16 to 128 H200: {len(gaps)} of {len(table)} points proven within {gaps.max():.2%}"
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(HERE / "front.png", dpi=150)


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        front().to_csv(HERE / "front.csv", index=False, float_format="%.6g")
    draw(pd.read_csv(HERE / "front.csv"))
