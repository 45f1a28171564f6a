"""What a faster token costs: `python experiments/serve_llama31_405b/front.py` writes front.csv and front.png beside it.

The front of dollars a million tokens against tokens/s of a user, once with the caches in HBM and once where half or all
of them may lie in the host's memory, proven over all plans and the whole box. `--draw` draws the kept table again.
"""

import sys
from pathlib import Path

import pandas as pd

from codesign import prepare_jax, study_from_config
from codesign.report import style
from codesign.report.findings import headline, panels, plain_ticks

prepare_jax()
HERE = Path(__file__).resolve().parent
COMMON = (
    "experiment=serve_llama31_405b", "search=pareto", "~objective.limits.tpot_s", "search.levels=8", "search.between=8",
    "search.minimise=[usd_per_million_tokens]", "search.maximise=[tokens_per_s_per_user]",
    "space.plan.micro_batch=[1,2,4,8,16,32,64,128,256]", "space.plan.token_budget=[128,256,512,1024,2048]",
)  # fmt: skip
NEAR = "caches in HBM"
SPACES = {NEAR: (), "half or all of them in the host's memory": ("space.plan.offload_kv_cache=[0,0.5,1]",)}
MORE = ("tokens_per_s_per_device", "ttft_s")
PLAN = ("tp", "pp", "micro_batch", "token_budget", "offload_kv_cache")
COLOURS = ("#2f6fb0", "#d55e00")


def fronts() -> pd.DataFrame:
    """One row a point of either front: both metrics, how near it is proven, its plan."""
    rows = []
    for name, overrides in SPACES.items():
        result, trace = study_from_config(*COMMON, *overrides).solve()
        assert trace.certificate is not None
        assert trace.certificate.front is not None
        for point in trace.certificate.front.points:
            away = sum(abs(result.designs[metric] / value - 1) for metric, value in point.values.items())
            design = result.designs.loc[away.idxmin()]
            row = {"caches": name} | point.values | {"gap": point.gap, "proven": point.certified}
            rows.append(row | {metric: design[metric] for metric in MORE} | {f: design.get(f"var.{f}") for f in PLAN})
        print(pd.DataFrame(rows).to_string(), flush=True)
    return pd.DataFrame(rows).sort_values(["caches", "tokens_per_s_per_user"])


def draw(table: pd.DataFrame) -> None:
    """Both fronts on one pair of axes."""
    with style():
        figure, ((axes,),) = panels(3.6)
        for (name, part), colour in zip(table.groupby("caches"), COLOURS, strict=True):
            gaps = part.loc[part["proven"], "gap"]
            label = f"{name}: {len(gaps)} of {len(part)} points proven within {gaps.max():.2%}"
            x, y = part["tokens_per_s_per_user"], part["usd_per_million_tokens"]
            line = "-" if name == NEAR else "--"  # at least as fast a token: the price of the next point
            axes.step(x, y, where="pre", marker="o", ms=3, lw=1, ls=line, color=colour, label=label)
        axes.set_yscale("log")
        plain_ticks(axes, "y", (3, 5, 10, 20, 50, 100))
        axes.set_xlabel("tokens/s of a user")
        axes.set_ylabel("USD per million output tokens")
        axes.legend()
        near = table[table["caches"] == NEAR]
        moved = table["offload_kv_cache"].fillna(0).gt(0).sum()
        users, usd = near["tokens_per_s_per_user"], near["usd_per_million_tokens"]
        headline(
            figure,
            f"Llama 3.1 405B on H100: {users.max():.0f} instead of {users.min():.1f} tokens/s a user cost"
            f" {usd.max() / usd.min():.0f} times as much;"
            f" {moved or 'no'} best designs keep caches in the host's memory",
        )
        figure.savefig(HERE / "front.png", metadata={"Software": None})


if __name__ == "__main__":
    if "--draw" not in sys.argv:
        fronts().to_csv(HERE / "front.csv", index=False, float_format="%.6g")
    draw(pd.read_csv(HERE / "front.csv"))
