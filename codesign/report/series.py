"""The data behind each figure: from the run folder to small frames in SI units, nothing drawn.

Each function raises `MissingPart` where the folder lacks what it needs.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from .labels import MEMORY_CLASSES, PARTS, TIERS, kernel_class
from .run_folder import PLAN_PREFIX, MissingPart, RunFolder
from .wording import degrees

SHOWN_DESIGNS = 8
SHOWN_ELASTICITIES = 15
NEGLIGIBLE = 5e-4  # share of a bar, or elasticity, that no reader could see
CHOSEN = ("variable", "override")
VISIBLE = 5e-3  # elasticity that a figure shows as more than 0.00
LABELLED = 0.02  # share of time from which a mark has a label
NEAR = 0.25  # decades; marks of a log-log figure closer than this share a label


def _in_order(names: list[str], order: Mapping[str, object]) -> list[str]:
    return [name for name in order if name in names] + sorted(set(names) - set(order))


def design_labels(run: RunFolder, count: int = SHOWN_DESIGNS) -> list[str]:
    """`#1  TP 8 · PP 8` for the best designs."""
    plans = run.designs[[f"{PLAN_PREFIX}{name}" for name in run.columns(PLAN_PREFIX)]]
    return [f"#{index + 1}  {degrees(row)}" for index, row in enumerate(_rows(plans.head(count)))]


def _rows(frame: pd.DataFrame) -> list[dict]:
    return frame.to_dict(orient="records")


def time_breakdown(run: RunFolder, count: int = SHOWN_DESIGNS) -> pd.DataFrame:
    """Seconds of each part of the best designs: one row per design, parts in the order of the bar.

    What the parts leave of the time is `other`; parts that no shown design has are dropped.
    """
    names = run.columns("breakdown_s.")
    if not names:
        raise MissingPart("designs.parquet has no column breakdown_s.*")
    top = run.designs.head(count)
    table = top[[f"breakdown_s.{name}" for name in names]].fillna(0.0).set_axis(names, axis="columns")
    rest = top["time_s"] - table.sum(axis="columns")
    if (rest.abs() > NEGLIGIBLE * top["time_s"]).any():
        table["other"] = rest
    table = table[_in_order(list(table.columns), PARTS)]
    visible = table.abs().max() > NEGLIGIBLE * top["time_s"].max()
    return table[[name for name in table if visible[name]]]


def roofline(run: RunFolder) -> pd.DataFrame:
    """Arithmetic ops of the best design: intensity (FLOP/B), achieved FLOP/s, share of all op time, class, peak."""
    needed = ("number_format", "intensity", "achieved_flops_per_s", "peak_flops_per_s", "bandwidth_bytes_per_s")
    table = operations(run)
    run.require("ops", *needed)
    table = table[(table["intensity"] > 0) & (table["achieved_flops_per_s"] > 0) & (table["total_s"] > 0)]
    if table.empty or table["share"].isna().all():  # of no time at all no operation has a share
        raise MissingPart("ops.parquet has no op that computes")
    kernels = table["kernel"].fillna("") if "kernel" in table else pd.Series("", index=table.index)
    return table.assign(family=[kernel_class(str(kernel)) for kernel in kernels]).sort_values(
        ["share", "name"], ascending=[False, True], kind="stable"
    )


class RooflineLimits(NamedTuple):
    """Roofline of a chip in a number format: FLOP/s, B/s of its memory; `device` where there are two."""

    device: str
    number_format: str
    peak: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """FLOP per byte where arithmetic takes over."""
        return self.peak / self.bandwidth

    @property
    def named(self) -> str:
        """Prefix of its label: the device, where there are two."""
        return f"{self.device} " if self.device else ""


def roofline_ends(ops: pd.DataFrame) -> tuple[float, float]:
    """Ends of the axis of intensities: operations and ridges, with room."""
    ridges = ops["peak_flops_per_s"] / ops["bandwidth_bytes_per_s"]
    return min(ops["intensity"].min(), ridges.min()) / 2.5, max(ops["intensity"].max(), ridges.max()) * 4


def roofs(ops: pd.DataFrame) -> list[RooflineLimits]:
    """The roofs of what `roofline` returns, the highest first; of each chip where prompts have one of their own."""
    result = [
        RooflineLimits(
            str(row.get("device", "")), row["number_format"], row["peak_flops_per_s"], row["bandwidth_bytes_per_s"]
        )
        for row in _rows(ops)
    ]
    alone = len({each._replace(device="") for each in result}) == len({each.number_format for each in result})
    if alone and len({each.bandwidth for each in result}) == 1:
        result = [each._replace(device="") for each in result]
    return sorted(dict.fromkeys(result), key=lambda each: (-each.peak, each.device))


def roofline_labels(ops: pd.DataFrame, count: int = 6) -> list[tuple[str, float, float]]:
    """(text, intensity, achieved FLOP/s) for the heaviest groups of marks of one family that lie close together."""
    groups: list[list[dict]] = []
    for row in _rows(ops):
        for group in groups:
            first = group[0]
            apart = [abs(np.log10(row[name] / first[name])) for name in ("intensity", "achieved_flops_per_s")]
            if row["family"] == first["family"] and max(apart) < NEAR:
                group.append(row)
                break
        else:
            groups.append([row])
    groups.sort(key=lambda group: -sum(row["share"] for row in group))
    labels = []
    for group in groups[:count]:
        names = list(dict.fromkeys(str(row["name"]) for row in group))
        text = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        share = sum(row["share"] for row in group)
        if share < LABELLED:
            break
        labels.append((f"{text}: {share:.0%}", group[0]["intensity"], group[0]["achieved_flops_per_s"]))
    return labels


def time_against_cost(run: RunFolder) -> pd.DataFrame:
    """Time and cost of every kept design; `feasible`, and `front` where no other feasible design is better in both."""
    designs = run.require("designs", "time_s", "usd_per_million_tokens")
    table = designs[["time_s", "usd_per_million_tokens"]].copy()
    table["feasible"] = designs["feasible"].astype(bool) if "feasible" in designs else True
    table = table[np.isfinite(table["time_s"]) & np.isfinite(table["usd_per_million_tokens"])]
    if "design" in designs and "design" in run.pareto:
        front = designs["design"].isin(run.pareto["design"])
    else:
        front = _front(table)
    table["front"] = front.reindex(table.index, fill_value=False) & table["feasible"]
    if table.empty:
        raise MissingPart("designs.parquet has no design with a finite time and cost")
    return table


def _front(table: pd.DataFrame) -> pd.Series:
    """Feasible designs that no other is better than in both time and cost."""
    ordered = table[table["feasible"]].sort_values(["time_s", "usd_per_million_tokens"], kind="stable")
    costs = ordered["usd_per_million_tokens"]
    better = costs < costs.cummin().shift(fill_value=np.inf)
    return better.reindex(table.index, fill_value=False)


def memory_by_tier(run: RunFolder, count: int = SHOWN_DESIGNS) -> dict[str, tuple[pd.DataFrame, pd.Series]]:
    """Tier -> (bytes per class of the best designs, capacity of each); tiers that stay empty are left out.

    The capacity is what `usage` implies, bytes used over share used.
    """
    names = run.columns("memory_bytes.")
    if not names:
        raise MissingPart("designs.parquet has no column memory_bytes.*")
    top, tiers = run.designs.head(count), {}
    for tier in _in_order(list({name.split("/")[0] for name in names}), TIERS):
        of_tier = [name.split("/", 1)[1] for name in names if name.split("/")[0] == tier]
        table = top[[f"memory_bytes.{tier}/{name}" for name in of_tier]].fillna(0.0).set_axis(of_tier, axis="columns")
        used = table.sum(axis="columns")
        if not (used > 0).any():
            continue
        share = top.get(f"usage.{tier}", pd.Series(np.nan, index=top.index))
        capacity = (used / share).where(share > 0)
        table = table[_in_order(of_tier, MEMORY_CLASSES)]
        tiers[tier] = (table.loc[:, table.max() > NEGLIGIBLE * used.max()], capacity)
    if not tiers:
        raise MissingPart("no memory is used by the designs kept")
    return tiers


def elasticity_metric(run: RunFolder) -> str:
    """The column of `elasticities` that answers for the objective: the goal's, or the time's."""
    table = run.require("elasticities", "path")
    for name in (run.goal, "time_s"):
        if name in table:
            return name
    raise MissingPart(f"elasticities.parquet has no column {run.goal}")


def elasticities(run: RunFolder, count: int = SHOWN_ELASTICITIES) -> pd.DataFrame:
    """The constants that the goal depends on most: path, kind, elasticity; largest magnitude first."""
    name = elasticity_metric(run)
    table = run.elasticities
    result = pd.DataFrame({"path": table["path"], "kind": kinds(run), "elasticity": table[name]})
    result = result[result["elasticity"].abs() >= VISIBLE]
    if result.empty:
        raise MissingPart(f"no constant moves {name}")
    order = result["elasticity"].abs().sort_values(ascending=False, kind="stable").index
    return result.loc[order].head(count).reset_index(drop=True)


def kinds(run: RunFolder) -> list[str]:
    """Provenance kind of each row of `elasticities`: what this study chose is no constant of a source any more."""
    table, varied = run.elasticities, run.varied_paths
    given = table["kind"] if "kind" in table else [None] * len(table)
    changed = {text.lstrip("+").split("=")[0] for text in run.overrides}
    result = []
    for path, kind in zip(table["path"], given, strict=True):
        origin = kind if isinstance(kind, str) and kind else "unstated"
        result.append("variable" if path in varied else "override" if path in changed else origin)
    return result


def operations(run: RunFolder) -> pd.DataFrame:
    """Ops of the best design with their time in the whole step or batch, `whole_s`, and its share of all ops.

    `repeats` says how often a phase runs (micro-batches of a step, tokens of an answer); 1 where it is not recorded.
    """
    ops = run.require("ops", "name", "total_s")
    totals_s = ops["total_s"] * (ops["repeats"].fillna(1.0) if "repeats" in ops else 1.0)
    return ops.assign(whole_s=totals_s, share=totals_s / totals_s.sum())


def parts(run: RunFolder, prefix: str) -> pd.Series:
    """Capex or power of the best design by part, largest first; `prefix` is `capex.` or `power.`.

    What the parts leave of the whole (overhead power, the price of provisioned watts) is the facility's.
    """
    names = run.columns(prefix)
    values = pd.Series({name: float(run.best[prefix + name]) for name in names}, dtype=float)
    total = run.best.get({"capex.": "capex_usd", "power.": "provisioned_power_w"}[prefix], float("nan"))
    if names and total - values.sum() > NEGLIGIBLE * values.sum():
        values["facility"] = total - values.sum()
    values = values[values > 0].sort_values(ascending=False, kind="stable")
    if values.empty:
        raise MissingPart(f"designs.parquet has no column {prefix}* above zero")
    return values
