"""What one design does and costs, on the terminal: headline, time, memory, money, the longest operations."""

from collections.abc import Callable, Mapping

import pandas as pd
from rich.console import Console
from rich.table import Table

from ..no_end import between_text
from ..objective import feasible, share_text
from ..smooth import used_share
from ..uncertainty import Interval
from ..units import GB, engineering
from .terminal import counts_text, plain_table

PERCENTILES = {
    f"{name}_{share}_s": f"{label}, {share}"
    for name, label in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "whole request"))
    for share in ("p50", "p90", "p99")
}  # fmt: skip
"""Of what requests see where they come at a rate."""


def _group(numbers: dict[str, float], prefix: str) -> dict[str, float]:
    return {name[len(prefix) :]: value for name, value in numbers.items() if name.startswith(prefix)}


LIFE: dict[str, tuple[str, Callable[[float], str]]] = {
    "goodput": ("goodput", lambda value: f"{value:.2%}"),
    "availability": ("availability", lambda value: f"{value:.2%}"),
    "checkpoint_interval_s": ("work between checkpoints", lambda value: engineering(value, "s")),
    "time_to_train_s": ("time of the run", lambda value: f"{value / 86400:.3g} days"),
    "usd_to_train": ("cost of the run", lambda value: f"{engineering(value)} USD"),
    "loss": ("loss", lambda value: f"{value:.4g} nats a token"),
    "loss_beyond": ("beyond the law's range", lambda value: f"{value:.3g} times" if value > 1 else "no"),
    "carbon_g_per_million_tokens": ("carbon", lambda value: f"{engineering(value)}g per million tokens"),
    "carbon_to_train_kg": ("carbon of the run", lambda value: f"{engineering(1e3 * value)}g"),
}
"""Metrics of a whole run -> what they are called, and how they are written."""


def show_evaluation(
    out: Console,
    title: str,
    numbers: dict[str, float],
    uncertain: Mapping[str, Interval],
    ops: pd.DataFrame,
    capacity: dict[str, float],
    top: int,
    item: str,
) -> None:
    """Headline, time, memory, money and power, and the operations that take longest; with intervals where known."""
    out.print(f"[bold]{title}[/]")
    out.print(_headline(numbers, uncertain, item))
    out.print(_time(numbers))
    out.print(_memory(numbers, capacity))
    out.print(_money(numbers))
    out.print(_ops(ops, top))


def _headline(numbers: dict[str, float], uncertain: Mapping[str, Interval], what: str) -> Table:
    def seconds(name: str) -> tuple[str, str]:
        return engineering(numbers[name], "s"), interval_text(uncertain, name, lambda value: engineering(value, "s"))

    def of(name: str, shown: str, text: Callable[[float], str]) -> tuple[str, str]:
        return shown, interval_text(uncertain, name, text)

    paid = f"output {what}" if "tpot_s" in numbers else what
    texts = {
        "batch time" if "tpot_s" in numbers else "step time": seconds("time_s"),
        **({"time to first token": seconds("ttft_s")} if "ttft_s" in numbers else {}),
        **({"time per output token": seconds("tpot_s")} if "tpot_s" in numbers else {}),
        **{label: seconds(name) for name, label in PERCENTILES.items() if name in numbers},
        "throughput": of("tokens_per_s", f"{numbers['tokens_per_s']:,.0f} {what}s/s", lambda value: f"{value:,.0f}"),
        "MFU": of("mfu", f"{numbers['mfu']:.1%}", lambda value: f"{value:.1%}"),
        "energy": of("joules_per_token", f"{numbers['joules_per_token']:.3g} J/{what}", lambda value: f"{value:.3g}"),
        "power, mean / provisioned": (
            f"{engineering(numbers['power_w'], 'W')} / {engineering(numbers['provisioned_power_w'], 'W')}",
            interval_text(uncertain, "power_w", lambda value: engineering(value, "W")),
        ),
        "capex": (f"{engineering(numbers['capex_usd'])} USD", ""),
        "cost": of(
            "usd_per_million_tokens",
            f"{numbers['usd_per_million_tokens']:.4g} USD per million {paid}s",
            lambda value: f"{value:.4g}",
        ),
        **{name: (value, "") for name, value in (text.split(": ") for text in counts_text(numbers))},
        **{name: (text(numbers[key]), "") for key, (name, text) in LIFE.items() if key in numbers},
    }  # fmt: skip
    if "loss_low" in numbers:
        texts["loss"] = (texts["loss"][0], f"[{numbers['loss_low']:.3f}, {numbers['loss_high']:.3f}]")
    rows = [(name, *cells) if uncertain else (name, cells[0]) for name, cells in texts.items()]
    return plain_table("What it does and costs", rows, "metric", "value", *(["90 % interval"] if uncertain else []))


def interval_text(uncertain: Mapping[str, Interval], name: str, text: Callable[[float], str]) -> str:
    """An interval in brackets; nothing where there is none."""
    return between_text(*uncertain[name], text, "\\[{}, {}]") if name in uncertain else ""


def _time(numbers: dict[str, float]) -> Table:
    total = numbers["time_s"]
    parts = sorted(_group(numbers, "breakdown_s.").items(), key=lambda part: -part[1])
    rows = [(name, engineering(seconds, "s"), f"{seconds / total:.1%}") for name, seconds in parts if seconds > 0]
    return plain_table("Where the time goes", rows, "part", "time", "share")


def _memory(numbers: dict[str, float], capacity: dict[str, float]) -> Table:
    rows: list[tuple[str, ...]] = []
    used = _group(numbers, "memory_bytes.")
    for tier, size in capacity.items():
        for name, nbytes in used.items():
            if name.startswith(f"{tier}/") and nbytes > 0:
                rows.append((f"{tier}: {name.split('/')[1]}", f"{nbytes / GB:.2f} GB", _used(nbytes, size)))
        total = sum(nbytes for name, nbytes in used.items() if name.startswith(f"{tier}/"))
        rows.append((f"[bold]{tier}: all of {max(size, 0.0) / GB:.0f} GB", f"{total / GB:.2f} GB", _used(total, size)))
    for name, share in _group(numbers, "usage.").items():
        tier, _, part = name.partition(".")
        if tier in capacity and part and not part.startswith("placed."):
            rows.append((f"{tier}, share used: {part}", "", _marked(share)))
    return plain_table("What lies in memory, per device", rows, "class", "bytes", "share")


def _used(nbytes: float, size: float) -> str:
    """Share of a tier that is used."""
    return _marked(float(used_share(nbytes, size)))


def _marked(share: float) -> str:
    """A used share, red where it is too much."""
    return f"{'' if feasible(share - 1) else '[red]'}{share_text(share, 1)}"


def _money(numbers: dict[str, float]) -> Table:
    capex, power = _group(numbers, "capex."), _group(numbers, "power.")
    rows = [
        (
            part,
            engineering(capex[part]) if part in capex else "",
            engineering(power[part], "W") if part in power else "",
        )
        for part in {**capex, **power}
    ]
    return plain_table("Capex and provisioned power, whole cluster, before the facility", rows, "part", "USD", "power")


def _ops(ops: pd.DataFrame, top: int) -> Table:
    rows: list[tuple[str, ...]] = []
    for _, row in ops.sort_values("total_s", ascending=False).head(top).iterrows():
        if row["kind"] == "compute":
            peak = row["achieved_flops_per_s"] / row["peak_flops_per_s"]
            memory = row["nbytes"] / row["time_s"] / row["bandwidth_bytes_per_s"]
            busy = f"{peak:.0%} of peak" if peak >= memory else f"{memory:.0%} of the memory's rate"
            what = f"{row['kernel']} {row['number_format']}, {busy}"
        else:
            what = f"{row.get('operation', '')} {row.get('axis', '')}" if row["kind"] == "communication" else "transfer"
        rows.append(
            (f"{row['phase']}: {row['name']}", what, f"{row['count']:g}", engineering(row["time_s"], "s"),
             engineering(row["total_s"], "s"))
        )  # fmt: skip
    return plain_table(
        f"The {top} longest operations, per micro-batch or (gradients, parameters, optimizer) per step",
        rows,
        "operation",
        "kind",
        "times",
        "once",
        "in all",
    )
