"""What the terminal shows: tables of designs, of one design's breakdown, and the progress of a search."""

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..config import Study
from ..objective import feasible, share_text
from ..report.labels import THIN, metric, number, per_bit, unit_of, variable
from ..report.proof import explained
from ..scenario import Scenario
from ..search import Certificate
from ..search import Progress as SearchProgress
from ..smooth import used_share
from ..space import Continuous, DesignSpace, shown
from ..uncertainty import Interval
from ..units import GB, engineering
from ..workloads.plan import PREFILL
from ..workloads.plan_fields import plan_fields
from ..workloads.words import OTHERS, Words

SHORT = {  # plan fields in a design's line: abbreviation, and the value that goes without saying
    "device_count": ("devices ", None),
    "tp": ("tp", None), "pp": ("pp", None), "cp": ("cp", 1.0), "ep": ("ep", 1.0), "virtual_stages": ("v", 1.0),
    "row_shards": ("rows", 1.0), "column_shards": ("cols", 1.0),
    "attention_dp": ("adp", 1.0), "micro_batch": ("mb", None), "chunk": ("chunk", None),
    "zero": ("zero", 0.0), "sequence_parallel": ("sp", 0.0),
    "prefill_devices": ("prompts apart on ", 0.0), "prefill_tp": ("by tp", 1.0), "prefill_pp": ("pp", 1.0),
    "prefill_ep": ("ep", 1.0), "prefill_load": ("load ", None),
}  # fmt: skip
PLAIN_WIDTH = 160  # columns where the output is no terminal
INTERVALS = (
    ("time_s", "step", "s"),
    ("ttft_s", "TTFT", "s"),
    ("tpot_s", "TPOT", "s"),
    ("usd_per_million_tokens", "cost", "$"),
)
"""Metrics whose intervals are told: name, label, unit."""
PERCENTILES = {
    f"{name}_{share}_s": f"{label}, {share}"
    for name, label in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "whole request"))
    for share in ("p50", "p90", "p99")
}  # fmt: skip
"""Of what requests see where they come at a rate."""


def console(*, stderr: bool = False) -> Console:
    """A console that does not squeeze tables when its output goes to a file."""
    found = Console(stderr=stderr, highlight=False)
    return found if found.is_terminal else Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH)


def job_text(scenario: Scenario, device: str = "") -> str:
    """What runs on what: `gpt3_175b, training on 1024 x h100_sxm`; `device` where it is called otherwise."""
    cluster, job = scenario.cluster, re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(scenario.workload).__name__).lower()
    name = device or cluster.accelerator.name
    return f"{scenario.workload.model.name}, {job} on {float(scenario.layout.devices):g} x {name}"


def plan_text(row: Any, family: Words = OTHERS) -> str:
    """A plan on one line: `tp8 pp8 dp16 v3 mb1 selective sp zero1`, and what else its family says."""
    own = [text.format(row[f"var.{name}"]) for name, text in family.plan.items() if row.get(f"var.{name}", 0.0) > 1]
    words = []
    for name, (short, usual) in SHORT.items():
        value = row.get(f"var.{name}")
        if name in PREFILL and not row.get("var.prefill_devices"):
            continue
        if value is not None and value != usual:
            words.append(short if name == "sequence_parallel" else f"{short}{value:g}")
        if name == "pp" and "var.dp" in row:
            words.append(f"dp{row['var.dp']:g}")
    if "var.recompute" in row:
        words.append("recompute " + shown("recompute", row["var.recompute"]))
    for name in ("tp_algorithm", "data_algorithm"):
        if f"var.{name}" in row:
            words.append(f"{name.removesuffix('_algorithm')} by {shown(name, row[f'var.{name}'])}")
    for name in ("offload_weights", "offload_activations", "offload_optimizer"):
        if row.get(f"var.{name}", 0.0) > 0:
            share = row[f"var.{name}"]
            words.append(f"{name.replace('_', ' ')}" + (f" {share:.0%}" if share < 1 else ""))
    return ", ".join([" ".join(words), *own])


def hardware_names(frame: pd.DataFrame) -> list[str]:
    """Hardware variables of a frame of designs."""
    names = [str(name)[4:] for name in frame.columns if str(name).startswith("var.")]
    return [name for name in names if name not in (*plan_fields(), "dp")]


def units_of(space: DesignSpace) -> dict[str, str]:
    """Hardware variable -> its unit, which the name of its leaf carries; a ratio has none."""
    return {name: unit_of(v.path) if isinstance(v, Continuous) else "" for name, v in space.hardware.items()}


def hardware_text(name: str, value: float, unit: str = "") -> str:
    """A hardware variable as a reader wants it."""
    return f"{variable(name)} {quantity_text(value, unit)}{per_bit(value, unit).replace(THIN, ' ')}"


def counts_text(row: Any) -> list[str]:
    """A line for each network level whose parts are counted: `scale out: 640 switches, 24,576 cables, 3 tiers`."""
    levels: dict[str, list[str]] = {}
    for name, value in row.items():
        if str(name).startswith("count.") and math.isfinite(value):  # of a sweep, other jobs may count other parts
            _, level, part = str(name).split(".")
            levels.setdefault(level, []).append(f"{value:,.0f} {part}")
    return [f"{level.replace('_', ' ')}: {', '.join(parts)}" for level, parts in levels.items()]


def quantity_text(value: float, unit: str, digits: int = 3) -> str:
    """A number with its unit; time per byte as the rate that it is."""
    if unit == "s/B" and value > 0:
        value, unit = 1 / value, "B/s"
    shown = number(value, unit or ("count" if abs(value) >= 1e4 else ""), digits)
    return shown.replace(THIN, " ")


def goal_text(name: str, value: float, units: Mapping[str, str], *, digits: int = 3) -> str:
    """A value of a goal, a limit or a hardware variable, with its unit."""
    if not math.isfinite(value):
        return f"{value}"
    unit = units[name] if name in units else metric(name).unit if name.replace(".", "").isidentifier() else ""
    return quantity_text(value, unit, digits)


def texts(study: Study, digits: int = 4) -> Callable[[str, float], str]:
    """(name, value) -> the value of a goal, limit or variable of the study with its unit."""
    units = units_of(study.space)
    return lambda name, value: goal_text(name, value, units, digits=digits)


def _plain_table(title: str, rows: Iterable[tuple[str, ...]], *columns: str) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", min_width=len(title))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    return table


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
            "usd_per_million_tokens", f"{numbers['usd_per_million_tokens']:.4g} USD per million {what}s",
            lambda value: f"{value:.4g}",
        ),
        **{name: (value, "") for name, value in (text.split(": ") for text in counts_text(numbers))},
        **{name: (text(numbers[key]), "") for key, (name, text) in LIFE.items() if key in numbers},
    }  # fmt: skip
    if "loss_low" in numbers:
        texts["loss"] = (texts["loss"][0], f"[{numbers['loss_low']:.3f}, {numbers['loss_high']:.3f}]")
    rows = [(name, *cells) if uncertain else (name, cells[0]) for name, cells in texts.items()]
    return _plain_table("What it does and costs", rows, "metric", "value", *(["90 % interval"] if uncertain else []))


def interval_text(uncertain: Mapping[str, Interval], name: str, text: Callable[[float], str]) -> str:
    """An interval in brackets; nothing where there is none."""
    return f"\\[{', '.join(map(text, uncertain[name]))}]" if name in uncertain else ""


def _time(numbers: dict[str, float]) -> Table:
    total = numbers["time_s"]
    parts = sorted(_group(numbers, "breakdown_s.").items(), key=lambda part: -part[1])
    rows = [(name, engineering(seconds, "s"), f"{seconds / total:.1%}") for name, seconds in parts if seconds > 0]
    return _plain_table("Where the time goes", rows, "part", "time", "share")


def _memory(numbers: dict[str, float], capacity: dict[str, float]) -> Table:
    rows = []
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
    return _plain_table("What lies in memory, per device", rows, "class", "bytes", "share")


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
    return _plain_table("Capex and provisioned power, whole cluster, before the facility", rows, "part", "USD", "power")


def _ops(ops: pd.DataFrame, top: int) -> Table:
    rows = []
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
    return _plain_table(
        f"The {top} longest operations, per micro-batch or (gradients, parameters, optimizer) per step",
        rows,
        "operation",
        "kind",
        "times",
        "once",
        "in all",
    )


def show_certificate(out: Console, found: Certificate, text: Callable[[str, float], str]) -> None:
    """Bounds, what binds, what more of it would bring; or by how much constraints must give.

    Args:
        out: where to.
        found: the certificate of a trace.
        text: (name, value) -> the value with its unit.
    """
    if found.best is not None and found.bound is not None and found.gap is not None:
        better = "below" if found.sense == "minimise" else "above"
        away = f"{found.gap:.2%}" if found.gap >= 5e-5 else "less than 0.01%"
        best, bound = (text(found.goal, value) for value in (found.best, found.bound))
        out.print(f"{found.goal}: best {best}, no design {better} {bound}, {away} away")
    table = explained(found)
    if table is not None and table.name == "infeasible":
        out.print(_plain_table("Why nothing is feasible", table.rows, *table.head))
    elif table is not None:
        out.print(binding_text(table.rows), highlight=False)
    if found.at_bounds:
        edges = ", ".join(f"{variable(edge.variable)} ({edge.at})" for edge in found.at_bounds)
        out.print(f"at the edge of their range: {edges}")


def intervals_text(row: Any) -> str:
    """Ends of the 90 % intervals of a design's times and cost; empty where they are not known."""
    told = []
    for name, label, unit in INTERVALS:
        low, high = (row.get(f"{name}_{end}", math.nan) for end in ("low", "high"))
        if math.isfinite(low) and (name != "time_s" or "tpot_s" not in row):
            told.append(f"{label} {quantity_text(low, unit)} to {quantity_text(high, unit)}")
    return f"The best design's 90 % intervals: {', '.join(told)}." if told else ""


def next_steps(folder: str, *, proven: bool) -> str:
    """Where to look next, in commands on a run folder.

    Args:
        folder: of the run.
        proven: whether it holds what a proof rests on.
    """
    steps = {f"codesign verify {folder}": "derives the bound anew"} if proven else {}
    steps |= {
        f"codesign explore {folder}": "moves numbers and limits",
        f"codesign export {folder} --to ...": "writes launch commands",
    }
    return "\n".join(("Next:", *(f"  {command}   {what}" for command, what in steps.items())))


def binding_text(rows: Sequence[Sequence[str]]) -> str:
    """What holds the best design back, and what a tenth more of it would bring, in a sentence."""
    moving = [row for row in rows if row[-1] != "nothing" or any(side != "0" for side in row[2:4])]
    if not moving:
        near = max(rows, key=lambda row: float(row[1].split()[0]))
        return f"Nothing binds: nearest is {near[0]}, {near[1]} used."
    told = (f"{row[0]}, {row[1]} used (10 % more brings {row[-1]})" for row in moving)
    return f"What holds it back: {'; '.join(told)}."


def gap_text(progress: SearchProgress) -> str:
    """How far the best design may be from the bound; a bound that may not hold is not called proven."""
    return f"proven within {progress.gap:.2%}" if progress.proven else f"gap to bound {progress.gap:.2%}, not proven"


class Watch:
    """A progress bar for a search: its pace and the best goal so far; one line a stage without a terminal."""

    def __init__(self, out: Console, text: Callable[[str, float], str]):
        self.out, self.text, self.stage, self.started = out, text, "", 0.0
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[note]}"), console=out, disable=not out.is_terminal, transient=True,
        )  # fmt: skip
        self.task = self.bar.add_task("compiling", total=None, note="")

    def __enter__(self) -> "Watch":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, progress: SearchProgress) -> None:
        """Take a report of the search."""
        now = time.perf_counter()
        if progress.stage != self.stage:
            self.stage, self.started = progress.stage, now
        elapsed = now - self.started
        rate = progress.done / elapsed if elapsed > 0.05 else 0.0
        notes = [f"{engineering(rate)}/s"] if rate >= 1 else []
        notes += (
            [f"best {progress.goal} {self.text(progress.goal, progress.best)}"] if math.isfinite(progress.best) else []
        )
        notes += [gap_text(progress)] if math.isfinite(progress.gap) else []
        note = ", ".join(notes)
        self.bar.update(self.task, description=progress.stage, completed=progress.done, total=progress.total, note=note)
        if progress.done >= progress.total and not self.out.is_terminal:
            self.out.print(f"{progress.stage}: {progress.done:,} of {progress.total:,}{f'; {note}' if note else ''}")
