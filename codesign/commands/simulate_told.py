"""Output of `codesign simulate`: a bar while requests are served, and the closed form beside the simulation."""

import math
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..core.interval_text import crowded_text
from ..core.units import engineering
from ..model.scenario import Scenario
from ..model.workloads.continuous import AbstractContinuousServing
from .terminal import job_text

TRUSTED = 0.9  # load to which the closed form of an open loop is shown without a word; its bars hold to 0.8
SHOWN = {"ttft_s": "time to first token", "tpot_s": "time per output token", "e2e_s": "whole request"}


class ServedBar:
    """Number of requests served."""

    def __init__(self, out: Console) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=out, disable=not out.is_terminal, transient=True,
        )  # fmt: skip
        self.task = self.bar.add_task("requests", total=None)

    def __enter__(self) -> "ServedBar":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def say(self, what: str) -> None:
        """Show what is done before requests are served."""
        self.bar.update(self.task, description=what)

    def begin(self, total: int) -> None:
        """So many requests from now on."""
        self.bar.reset(self.task, total=total, description="requests")

    def tell(self, done: int, total: int) -> None:
        """So many are served."""
        self.bar.update(self.task, completed=done, total=total)


def show_served(out: Console, scenario: Scenario, told: dict[str, Any], group: float) -> None:
    """Closed form, simulation, and what another seed differs by."""
    closed, first, second = told["closed_form"], told["simulated"], told["another_seed"]
    is_closed = told["loop"] == "closed"
    served = f"{told['requests']:,} requests of " + (f"one of {group:g} engines" if group != 1 else "all engines")
    title = f"{job_text(scenario)}: {served}, {told['loop']} loop"
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in ("", "closed form", "simulated", "difference", "p50", "p90", "p99", "another seed"):
        table.add_column(name, justify="right" if name else "left")

    def add(label: str, said: float, name: str, unit: str, factor: float = 1.0) -> None:
        values = [first.get(key, math.nan) * factor for key in (name, *(f"{name}.p{q}" for q in (50, 90, 99)))]
        other = second.get(name, math.nan) * factor / values[0] - 1 if second and values[0] else math.nan
        text = [written(value, unit) for value in values]
        gap = f"{said / values[0] - 1:+.1%}" if math.isfinite(said) and values[0] else ""
        table.add_row(
            label, written(said, unit), text[0], gap, *text[1:],
            f"{other:+.1%}" if math.isfinite(other) else "",
        )  # fmt: skip

    for name, label in SHOWN.items():
        add(label, closed[name], name, "s")
    add("requests a second", closed["requests_per_s"], "rate", "", group)
    add("decoded together", _batch(scenario) if is_closed else closed["decodes"], "decodes", "")
    add(
        "steps with prompts",
        closed["hybrid_step_share"] if is_closed and _alone(scenario) else math.nan,
        "hybrid_step_share",
        "%",
    )
    out.print(table)
    if not is_closed:
        said = [f"{label} {written(closed[f'{name}.p99'], 's')}" for name, label in SHOWN.items()]
        out.print(f"closed form, 99 of 100 requests below: {', '.join(said)}")
        out.print(doubt(closed["load"]), end="")
        if waits := crowded_text(closed):
            out.print(waits)
    bound = told["no_scheduler"]
    if bound and math.isfinite(bound["tpot_s"]):
        out.print(
            f"no order of serving brings a token below {written(bound['tpot_s'], 's')} on average at this rate,"
            f" or sustains more than {bound['requests_per_s']:.4g} requests/s on this design"
        )
    if first["preempted"]:
        out.print(f"{first['preempted']:,.0f} times a sequence lost its blocks and was computed again")


def doubt(load: float) -> str:
    """A line where queues are longer than closed forms of an open loop are held against simulations for."""
    if load <= TRUSTED:
        return ""
    return (
        f"engines are {load:.1%} busy: beyond {TRUSTED:.0%} trust the simulation, not the closed form, and more"
        " requests and seeds (--requests, --seed) rather than one\n"
    )


def written(value: float, unit: str) -> str:
    """A number as a reader wants it, nothing where there is none."""
    if not math.isfinite(value):
        return ""
    return f"{value:.1%}" if unit == "%" else engineering(value, unit) if unit else f"{value:.4g}"


def _batch(scenario: Scenario) -> float:
    """Sequences that an engine decodes by the plan."""
    work = scenario.workload
    assert isinstance(work, AbstractContinuousServing)
    return float(work.rhythm(scenario.layout).decodes)


def _alone(scenario: Scenario) -> bool:
    """True if an engine's steps wait for no other's."""
    return float(scenario.plan.ep * scenario.plan.attention_dp) == 1
