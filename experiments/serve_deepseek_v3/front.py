"""What a faster token costs: `python experiments/serve_deepseek_v3/front.py` writes front.csv and front.png beside it.

The front of dollars a million tokens against tokens/s of a user, proven over all plans and the whole box, with the
degrees of each point. `--draw` draws the kept table again.
"""

import sys
from pathlib import Path

import pandas as pd

from codesign import prepare_jax, study_from_config
from codesign.report import style
from codesign.report.findings import BLUE, GREEN, ORANGE, beside, headline, panels, plain_ticks

prepare_jax()
HERE = Path(__file__).resolve().parent
STUDY = (
    "experiment=serve_deepseek_v3", "search=pareto", "~objective.limits.tpot_s", "search.levels=3", "search.between=4",
    "search.minimise=[usd_per_million_tokens]", "search.maximise=[tokens_per_s_per_user]",
)  # fmt: skip
MORE = ("tokens_per_s_per_device", "ttft_s")
PLAN = ("device_count", "tp", "pp", "ep", "etp", "attention_dp", "micro_batch", "token_budget")
LAYOUTS = {-1: "attention DP, experts EP", 0: "attention TP, experts TP", 1: "attention TP, experts EP"}


def front() -> pd.DataFrame:
    """One row a point: both metrics, how near it is proven, its plan."""
    result, trace = study_from_config(*STUDY).solve()
    assert trace.certificate is not None
    assert trace.certificate.front is not None
    rows = []
    for point in trace.certificate.front.points:
        away = sum(abs(result.designs[metric] / value - 1) for metric, value in point.values.items())
        design = result.designs.loc[away.idxmin()]
        row = point.values | {"gap": point.gap, "proven": point.certified}
        rows.append(row | {metric: design[metric] for metric in MORE} | {f: design[f"var.{f}"] for f in PLAN})
    print(pd.DataFrame(rows).to_string(), flush=True)
    return pd.DataFrame(rows).sort_values("tokens_per_s_per_user")


def draw(table: pd.DataFrame) -> None:
    """A colour for each way to lay out attention and experts."""
    x, y = table["tokens_per_s_per_user"], table["usd_per_million_tokens"]
    gaps = table.loc[table["proven"], "gap"]
    with style():
        figure, ((axes,),) = panels(3.6)
        axes.step(x, y, where="pre", lw=0.8, color="0.6")  # at least as fast a token: the price of the next point
        layout = table["etp"].where(table["tp"] > 1, -1)
        for (etp, part), colour in zip(table.groupby(layout), (ORANGE, GREEN, BLUE)[: layout.nunique()], strict=True):
            axes.plot(part[x.name], part[y.name], "o", ms=4, color=colour)
            at = part.iloc[0 if etp == 0 else -1]
            beside(axes, LAYOUTS[int(etp)], at[x.name], at[y.name], colour, (10, -8))
        axes.set_yscale("log")
        plain_ticks(axes, "y", (0.3, 0.5, 1, 2, 5, 10, 20))
        axes.set_xlabel("tokens/s of a user")
        axes.set_ylabel("USD per million output tokens")
        headline(
            figure,
            f"DeepSeek-V3 on H200: {x.max():.0f} instead of {x.min():.1f} tokens/s a user cost {y.max() / y.min():.0f}"
            f" times as much ({len(gaps)} of {len(table)} points proven within {gaps.max():.2%})",
        )
        figure.savefig(HERE / "front.png", metadata={"Software": None})


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        front().to_csv(HERE / "front.csv", index=False, float_format="%.6g")
    draw(pd.read_csv(HERE / "front.csv"))
