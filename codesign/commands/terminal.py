"""Output on the terminal: tables of designs, of one design's breakdown, what binds, where to look next."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from ..config import Study
from ..core.interval_text import UNBOUNDED, between_text, remarks_text
from ..model.scenario import Scenario
from ..model.workloads.base import OTHERS, FamilyVocabulary
from ..model.workloads.plan import PREFILL
from ..model.workloads.plan_fields import plan_fields
from ..report.labels import THIN, metric, number, per_bit, unit_of, variable
from ..report.proof import explained
from ..report.wording import notable_choices
from ..search import Certificate
from ..study.design_space import Continuous, DesignSpace, shown

SHORT: dict[str, tuple[str, float | None]] = {  # plan field -> abbreviation, and the value that goes without saying
    "device_count": ("devices ", None),
    "tp": ("tp", None), "pp": ("pp", None), "cp": ("cp", 1.0), "ulysses": ("ulysses", 1.0),
    "ep": ("ep", 1.0), "etp": ("etp", 0.0), "capacity_factor": ("capacity ", 0.0),
    "virtual_stages": ("v", 1.0), "first_stage_less": ("first stage -", 0.0), "last_stage_less": ("last stage -", 0.0),
    "row_shards": ("rows", 1.0), "column_shards": ("cols", 1.0),
    "attention_dp": ("adp", 1.0), "decode_cp": ("decode cp", 1.0), "micro_batch": ("mb", None),
    "token_budget": ("budget", None),
    "zero": ("zero", 0.0), "sequence_parallel": ("sp", 0.0), "prefetch": ("prefetch", 1.0),
    "loss_chunks": ("loss chunks", 1.0),
    "prefill_devices": ("prefill pool ", 0.0), "prefill_tp": ("by tp", 1.0), "prefill_pp": ("pp", 1.0),
    "prefill_ep": ("ep", 1.0), "prefill_etp": ("etp", 0.0),
    "prefill_attention_dp": ("attention dp", 1.0), "prefill_token_budget": ("budget ", 0.0),
    "prefill_max_utilisation": ("load ", None),
    "ffn_devices": ("ffn pool ", 0.0), "ffn_tp": ("by tp", 1.0), "ffn_ep": ("ep", 1.0),
    "ffn_micro_batches": ("micro-batches ", 1.0),
}  # fmt: skip
PLAIN_WIDTH = 160  # columns where the output is no terminal
INTERVALS = (
    ("time_s", "step", "s"),
    ("ttft_s", "TTFT", "s"),
    ("tpot_s", "TPOT", "s"),
    ("usd_per_million_tokens", "cost", "$"),
)
"""Metrics whose intervals are told: name, label, unit."""


def console(*, stderr: bool = False) -> Console:
    """A console that does not squeeze tables when its output goes to a file."""
    result = Console(stderr=stderr, highlight=False)
    return result if result.is_terminal else Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH)


def job_text(scenario: Scenario, device: str = "") -> str:
    """Job and devices: `gpt3_175b, training on 1024 x h100_sxm`; `device` where it is called otherwise."""
    cluster, job = scenario.cluster, re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(scenario.workload).__name__).lower()
    name = device or cluster.accelerator.name
    pool = float(getattr(scenario.layout.plan, "prefill_devices", 0.0))
    networks = float(getattr(scenario.layout.plan, "ffn_devices", 0.0))
    apart = f" and {pool:g} for prefill" if pool else ""
    apart += f" and {networks:g} for feed-forward networks" if networks else ""
    return f"{scenario.workload.model.name}, {job} on {float(scenario.layout.devices):g} x {name}{apart}"


def plan_text(row: Any, family: FamilyVocabulary = OTHERS) -> str:
    """A plan on one line: `tp8 pp8 dp16 v3 mb1 selective sp zero1`, and what else its family says."""
    choices = notable_choices(row, family)
    words = []
    for name, (short, usual) in SHORT.items():
        value = row.get(f"var.{name}")
        pool = "prefill" if name in PREFILL else "ffn" if name.startswith("ffn_") else ""
        if pool and not row.get(f"var.{pool}_devices"):
            continue
        if value is not None and value != usual:
            words.append(short if name == "sequence_parallel" else f"{short}{value:g}")
        if name == "pp" and "var.dp" in row:
            words.append(f"dp{row['var.dp']:g}")
    if "var.recompute" in row:
        words.append("recompute " + shown("recompute", row["var.recompute"]))
        if row["var.recompute"] > 1 and row.get("var.recompute_share", 1.0) < 1:
            words.append(f"of {row['var.recompute_share']:.0%} of the layers")
    for name in ("recompute_modules", "schedule", "cp_order"):
        if row.get(f"var.{name}"):
            words.append(f"{name.replace('_', ' ')} {shown(name, row[f'var.{name}'])}")
    for name in ("tp_algorithm", "data_algorithm"):
        if f"var.{name}" in row:
            words.append(f"{name.removesuffix('_algorithm')} by {shown(name, row[f'var.{name}'])}")
    for name in ("offload_weights", "offload_activations", "offload_optimizer", "offload_kv_cache"):
        if row.get(f"var.{name}", 0.0) > 0:
            share = row[f"var.{name}"]
            words.append(f"{name.replace('_', ' ')}" + (f" {share:.0%}" if share < 1 else ""))
    if row.get("var.offload_modules"):
        words.append(f"of {shown('offload_modules', row['var.offload_modules'])}")
    return ", ".join([" ".join(words), *choices])


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
        return UNBOUNDED if value == math.inf else f"{value}"
    unit = units[name] if name in units else metric(name).unit if name.replace(".", "").isidentifier() else ""
    return quantity_text(value, unit, digits)


def texts(study: Study, digits: int = 4) -> Callable[[str, float], str]:
    """(name, value) -> the value of a goal, limit or variable of the study with its unit."""
    units = units_of(study.space)
    return lambda name, value: goal_text(name, value, units, digits=digits)


def text_table(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], left: Collection[str] = ("",), **how: Any
) -> Table:
    """Rows of text below a title.

    Args:
        title: above the table.
        heads: of the columns.
        rows: cells, as many as there are columns or fewer.
        left: heads of the columns that are words; all others are numbers.
        how: further settings of the table.
    """
    table = Table(title=title, title_justify="left", header_style="bold", **how)
    for head in heads:
        table.add_column(head, justify="left" if head in left else "right")
    for row in rows:
        table.add_row(*row)
    return table


def plain_table(title: str, rows: Iterable[Sequence[str]], *columns: str) -> Table:
    """Rows of text below a title, as wide as that at least; all columns but the first are numbers."""
    return text_table(title, columns, rows, left=columns[:1], min_width=len(title))


def show_certificate(out: Console, certificate: Certificate, text: Callable[[str, float], str]) -> None:
    """Bounds, what binds, what more of it would bring; or by how much constraints must give.

    Args:
        out: where to.
        certificate: the certificate of a trace.
        text: (name, value) -> the value with its unit.
    """
    if certificate.best is not None and certificate.bound is not None and certificate.gap is not None:
        better = "below" if certificate.sense == "minimise" else "above"
        away = f"{certificate.gap:.2%}" if certificate.gap >= 5e-5 else "less than 0.01%"
        best, bound = (text(certificate.goal, value) for value in (certificate.best, certificate.bound))
        out.print(f"{certificate.goal}: best {best}, no design {better} {bound}, {away} away")
    table = explained(certificate)
    if table is not None and table.name == "infeasible":
        out.print(plain_table("Why nothing is feasible", table.rows, *table.head))
    elif table is not None:
        out.print(binding_text(table.rows), highlight=False)
    if certificate.at_bounds:
        edges = ", ".join(f"{variable(edge.variable)} ({edge.at})" for edge in certificate.at_bounds)
        out.print(f"at the edge of their range: {edges}")


def intervals_text(row: Any) -> str:
    """Ends of the 90 % intervals of a design's times and cost; empty where they are not known."""
    lines = []
    for name, label, unit in INTERVALS:
        low, high = (row.get(f"{name}_{end}", math.nan) for end in ("low", "high"))
        text = between_text(low, high, lambda value, unit=unit: quantity_text(value, unit))
        if text and (name != "time_s" or "tpot_s" not in row):
            lines.append(f"{label} {text}")
    line = f"The best design's 90 % intervals: {', '.join(lines)}." if lines else ""
    return " ".join(part for part in (line, remarks_text(dict(row))) if part)


def next_steps(folder: str, *, proven: bool) -> str:
    """Commands to run next on a run folder.

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
    """Sentence on what holds the best design back, and what a tenth more of it would bring."""
    moving = [row for row in rows if row[-1] != "nothing" or any(side != "0" for side in row[2:4])]
    if not moving:
        near = max(rows, key=lambda row: float(row[1].split()[0]))
        return f"No constraint is active; the nearest is {near[0]}, {near[1]} used."
    parts = (f"{row[0]}, {row[1]} used (10 % more brings {row[-1]})" for row in moving)
    return f"Active constraints: {'; '.join(parts)}."
