"""`codesign day`: how many replicas of a design run in which hour, and what following the load saves."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ..errors import ConfigError
from ..fields import replace
from ..report.drawing import render
from ..report.replicas import day_figure
from ..results import numbers_of
from ..scenario import Scenario
from ..strict_json import dumps
from ..units import HOUR_S, KWH, engineering
from ..workloads.daily_load import read_load, replicas_by_hour
from ..workloads.under_load import AbstractOpenServing, GoodputServing, ServingAtRate
from .left_files import write_text
from .setup import prepare_jax
from .simulate import design_of
from .terminal import console, job_text

__all__ = ["day", "day_of_design", "hours", "replica_devices", "sized"]

FOLDER = "day"  # in the run's
QUIET = 1e-6  # requests/s of an hour in which nobody asks
WAYS = {
    "peak": "all replicas on all day",
    "bought": "replicas follow the load, all are owned",
    "hourly": "replicas follow the load, paid by the hour",
}


def day_of_design(what: list[str], load: str, *, design: int, busiest: float, as_json: bool) -> int:
    """Print replicas, times and watts of each hour, and money and energy of the day.

    Raises:
        ConfigError: no such run or load, or a design without an agreement.
    """
    if not 0 <= busiest < np.inf:
        raise ConfigError(f"day: --busiest {busiest:g} must be requests/s above 0")
    rates = read_load(load)
    rates = rates * busiest / rates.max() if busiest else rates
    prepare_jax()
    run, scenario = design_of(what, design)
    out = Console(stderr=True, quiet=as_json)
    table = hours(scenario, rates, out)
    told = day(scenario, table)
    if as_json:
        print(dumps({"day": told, "hours": table.to_dict("records")}, indent=2))
    else:
        _show(console(), scenario, table, told)
    if run:
        folder = run / FOLDER
        folder.mkdir(exist_ok=True)
        write_text(folder / "summary.json", dumps(told, indent=2))
        write_text(folder / "hours.csv", table.to_csv(index=False, float_format="%.6g"))
        (folder / "day.png").write_bytes(render(day_figure(table)))
        out.print(f"kept: {folder}")
    return 0


def replica_devices(scenario: Scenario) -> float:
    """Accelerators that serve on their own: of replicas that share experts all."""
    plan = scenario.plan
    return float(plan.tp * plan.cp * plan.pp * plan.ep)


def hours(scenario: Scenario, rates: np.ndarray, out: Console | None = None) -> pd.DataFrame:
    """One row an hour: replicas that keep the agreement, what requests see, watts; and watts with all replicas on.

    Args:
        scenario: a design that serves under an agreement.
        rates: requests/s of each hour.
        out: where progress is shown.

    Raises:
        ConfigError: it serves without an agreement.
    """
    work = scenario.workload
    if not isinstance(work, GoodputServing):
        raise ConfigError(
            f"{type(work).__name__} has no agreement that says how much a replica is good for: day needs"
            " workload=goodput or goodput_fp8"
        )
    own = {field.name: getattr(work, field.name) for field in dataclasses.fields(AbstractOpenServing)}
    one, agreed = replica_devices(scenario), sized(scenario, replica_devices(scenario))
    replicas = replicas_by_hour(rates, float(numbers_of(agreed)["requests_per_s"])).replicas

    def served(rate: float, count: float) -> dict[str, float]:
        at_rate = ServingAtRate(**own, arrivals_per_s=jnp.asarray(max(rate, QUIET)))
        return numbers_of(sized(dataclasses.replace(scenario, workload=at_rate), count * one))

    rows = []
    quiet = Console(quiet=True) if out is None else out
    for hour, (rate, count) in enumerate(
        track(list(zip(rates, replicas, strict=True)), "hours", console=quiet, transient=True)
    ):
        found, all_on = served(rate, count), served(rate, replicas.max())
        rows.append({
            "hour": hour, "requests_per_s": rate, "replicas": count, "accelerators": count * one,
            "ttft_p99_s": found["ttft_p99_s"], "tpot_p99_s": found["tpot_p99_s"],
            "power_w": found["power_w"], "power_all_on_w": all_on["power_w"],
        })  # fmt: skip
    return pd.DataFrame(rows)


def sized(scenario: Scenario, devices: float) -> Scenario:
    """The same design on so many accelerators."""
    path = "cluster.device_count" if scenario.plan.device_count is None else "plan.device_count"
    return replace(scenario, {path: jnp.asarray(float(devices))})


def day(scenario: Scenario, table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Accelerator-hours, kWh and dollars of each way to run a day."""
    facility = scenario.cluster.facility
    assert isinstance(scenario.workload, GoodputServing)
    answered = float((table["requests_per_s"] * HOUR_S).sum()) * float(scenario.workload.output_tokens)
    held = {count: _held_usd_per_s(scenario, count) for count in table["accelerators"].unique()}
    most = table["accelerators"].max()
    nothing = jnp.asarray(0.0)
    found = {}
    for way in WAYS:
        watts = table["power_all_on_w" if way == "peak" else "power_w"]
        joules = float(watts.sum()) * HOUR_S
        kept = table["accelerators"] if way == "hourly" else pd.Series(most, table.index)
        on = pd.Series(most, table.index) if way == "peak" else table["accelerators"]
        electricity = float(facility.usd(nothing, nothing, nothing, jnp.asarray(joules)))
        machines = sum(held[count] for count in kept) * HOUR_S
        found[way] = {
            "accelerator_hours": float(on.sum()), "kwh": joules / KWH, "usd_electricity": electricity,
            "usd_accelerators": machines, "usd": electricity + machines,
            "usd_per_million_tokens": 1e6 * (electricity + machines) / answered,
        }  # fmt: skip
    return found


def _held_usd_per_s(scenario: Scenario, devices: float) -> float:
    """What so many accelerators cost a second without electricity."""
    here = sized(scenario, devices)
    capex, nothing = jnp.asarray(numbers_of(here)["capex_usd"]), jnp.asarray(0.0)
    return float(scenario.cluster.facility.usd(capex, here.layout.devices, jnp.asarray(1.0), nothing))


def _show(out: Console, scenario: Scenario, table: pd.DataFrame, told: dict[str, Any]) -> None:
    """Both tables."""
    title = f"{job_text(scenario)}: replicas of {replica_devices(scenario):g} by the hour"
    by_hour = Table(title=title, title_justify="left", header_style="bold")
    for name in ("hour", "requests/s", "replicas", "TTFT p99", "TPOT p99", "power", "power, all on"):
        by_hour.add_column(name, justify="right")
    for _, row in table.iterrows():
        by_hour.add_row(
            f"{row['hour']:.0f}", f"{row['requests_per_s']:.4g}", f"{row['replicas']:.0f}",
            engineering(row["ttft_p99_s"], "s"), engineering(row["tpot_p99_s"], "s"),
            engineering(row["power_w"], "W"), engineering(row["power_all_on_w"], "W"),
        )  # fmt: skip
    out.print(by_hour)
    ways = Table(title=f"{len(table)} hours", title_justify="left", header_style="bold")
    for name in ("", "accelerator-hours on", "kWh", "$ electricity", "$ accelerators", "$ together", "$/M tokens"):
        ways.add_column(name, justify="right" if name else "left")
    for way, label in WAYS.items():
        row = told[way]
        ways.add_row(
            label, f"{row['accelerator_hours']:,.0f}", f"{row['kwh']:,.0f}",
            *(f"{row[name]:,.0f}" for name in ("usd_electricity", "usd_accelerators", "usd")),
            f"{row['usd_per_million_tokens']:.4g}",
        )  # fmt: skip
    out.print(ways)
