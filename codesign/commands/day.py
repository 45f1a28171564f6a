"""`codesign autoscale`: replicas of a design, of each pool, by the hour, and what following the load saves."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ..core.atomic_files import write_files
from ..core.errors import ConfigError
from ..core.json_io import dumps
from ..core.units import HOUR_S, KWH, engineering
from ..model.scenario import Scenario
from ..model.workloads.daily_load import MOST_PER_S
from ..model.workloads.under_load import AbstractGoodputServing
from ..report.drawing import render
from ..report.replicas import day_figure
from ..search.results import numbers_of
from .day_policies import policies_of_day, show_policies
from .day_sizes import Size, replica_devices, served, sized, sizes
from .drawn_traffic import DAY, load_of, modulation_of
from .plain_values import number
from .setup import prepare_jax
from .simulate import design_of
from .simulate_fleet import page_anew
from .terminal import console, job_text

__all__ = ["day", "day_of_design", "hours"]

FOLDER = "day"  # in the run's
WAYS = {
    "peak": "all replicas on all day",
    "owned": "replicas follow the load, all are owned",
    "hourly": "replicas follow the load, paid by the hour",
}


def day_of_design(
    what: list[str],
    load: str,
    *,
    design: int,
    busiest: float,
    as_json: bool,
    start: str | None = None,
    markov: str = "",
) -> int:
    """Print replicas, times and watts of each hour, money and energy of the day, and policies where a start is given.

    Raises:
        ConfigError: no such run or load, or a design without an SLO.
    """
    if not 0 <= busiest <= MOST_PER_S:
        raise ConfigError(f"autoscale: --busiest {busiest:g} must be requests/s above 0, at most {MOST_PER_S:g}")
    start_s = None if start is None else number(start, "s", "--start", "2min or 90s")
    modulation = modulation_of(markov) if markov else None
    if modulation is not None and start_s is None:
        raise ConfigError("autoscale: --markov is of requests that are simulated: say --start, as in 2min")
    rates = load_of(load)
    if load.startswith(DAY) and not busiest:
        raise ConfigError(f"autoscale: --load {load} says how the day goes: say its busiest hour, --busiest R")
    rates = rates * busiest / rates.max() if busiest else rates
    prepare_jax()
    run, scenario = design_of(what, design)
    out = Console(stderr=True, quiet=as_json)
    table = hours(scenario, rates, out)
    told = day(scenario, table)
    policies = None
    if start_s is not None:
        policies = policies_of_day(
            scenario, rates, start_s, _held_usd_per_s(scenario, replica_devices(scenario)), modulation
        )
    if as_json:
        more = {} if policies is None else {"policies": policies.to_dict("records")}
        print(dumps({"day": told, "hours": table.to_dict("records")} | more, indent=2))
    else:
        _show(console(), scenario, table, told)
        if policies is not None and start_s is not None:
            show_policies(console(), policies, start_s)
    if run:
        folder = run / FOLDER
        write_files({
            folder / "summary.json": dumps(told, indent=2),
            folder / "hours.csv": table.to_csv(index=False, float_format="%.6g"),
            folder / "day.png": render(day_figure(table)),
        })  # fmt: skip
        page_anew(run, FOLDER)
        out.print(f"kept: {folder}")
    return 0


def hours(scenario: Scenario, rates: np.ndarray, out: Console | None = None) -> pd.DataFrame:
    """One row an hour: replicas that meet the SLO, what requests see, watts; and watts with all replicas on.

    Args:
        scenario: a design that serves under an SLO, from one pool or from two.
        rates: requests/s of each hour.
        out: where progress is shown.

    Raises:
        ConfigError: it serves without an SLO.
    """
    work = scenario.workload
    if not isinstance(work, AbstractGoodputServing):
        raise ConfigError(
            f"{type(work).__name__} has no SLO that says how much a replica is good for: day needs"
            " workload=goodput, goodput_fp8, disaggregated_goodput or disaggregated_goodput_fp8"
        )
    one, kept = replica_devices(scenario), sizes(scenario, rates)
    most, rows = Size(max(size.decode for size in kept), max(size.prefill for size in kept)), []
    quiet = Console(quiet=True) if out is None else out
    for hour, (rate, size) in enumerate(
        track(list(zip(rates, kept, strict=True)), "hours", console=quiet, transient=True)
    ):
        result, all_on = served(scenario, rate, size), served(scenario, rate, most)
        apart = {"prompt_engines": size.prefill / one.prefill} if one.prefill else {}
        rows.append({
            "hour": hour, "requests_per_s": rate, "replicas": size.decode / one.decode, **apart,
            "accelerators": size.accelerators,
            "ttft_p99_s": result["ttft_p99_s"], "tpot_p99_s": result["tpot_p99_s"],
            "power_w": result["power_w"], "power_all_on_w": all_on["power_w"],
        })  # fmt: skip
    return pd.DataFrame(rows)


def day(scenario: Scenario, table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Accelerator-hours, kWh and dollars of each way to run a day."""
    facility = scenario.cluster.facility
    assert isinstance(scenario.workload, AbstractGoodputServing)
    answered = float((table["requests_per_s"] * HOUR_S).sum()) * float(scenario.workload.output_tokens)
    size = _sizes_in(scenario, table)
    most = Size(max(one.decode for one in size), max(one.prefill for one in size))
    held = {one: _held_usd_per_s(scenario, one) for one in {*size, most}}
    nothing = jnp.asarray(0.0)
    result = {}
    for way in WAYS:
        watts = table["power_all_on_w" if way == "peak" else "power_w"]
        joules = float(watts.sum()) * HOUR_S
        kept = size if way == "hourly" else [most] * len(size)
        on = [most] * len(size) if way == "peak" else size
        electricity = float(facility.usd(nothing, nothing, nothing, jnp.asarray(joules)))
        machines = sum(held[one] for one in kept) * HOUR_S
        result[way] = {
            "accelerator_hours": sum(one.accelerators for one in on),
            "kwh": joules / KWH, "usd_electricity": electricity,
            "usd_accelerators": machines, "usd": electricity + machines,
            "usd_per_million_tokens": 1e6 * (electricity + machines) / answered,
        }  # fmt: skip
    return result


def _sizes_in(scenario: Scenario, table: pd.DataFrame) -> list[Size]:
    """Accelerators of each pool, hour by hour."""
    one = replica_devices(scenario)
    prompts = table["prompt_engines"] if one.prefill else 0 * table["replicas"]
    return [Size(*both) for both in zip(table["replicas"] * one.decode, prompts * one.prefill, strict=True)]


def _held_usd_per_s(scenario: Scenario, size: Size) -> float:
    """Cost of so many accelerators without electricity, $/s."""
    capex, nothing = jnp.asarray(numbers_of(sized(scenario, size))["capex_usd"]), jnp.asarray(0.0)
    return float(scenario.cluster.facility.usd(capex, jnp.asarray(size.accelerators), jnp.asarray(1.0), nothing))


def _show(out: Console, scenario: Scenario, table: pd.DataFrame, told: dict[str, Any]) -> None:
    """Print both tables."""
    one = replica_devices(scenario)
    apart = f", prefill engines of {one.prefill:g}" if one.prefill else ""
    title = f"{job_text(scenario)}: replicas of {one.decode:g}{apart} by the hour"
    by_hour = Table(title=title, title_justify="left", header_style="bold")
    prompts = ("prefill",) if one.prefill else ()
    for name in ("hour", "requests/s", "replicas", *prompts, "TTFT p99", "TPOT p99", "power", "power, all on"):
        by_hour.add_column(name, justify="right")
    for _, row in table.iterrows():
        by_hour.add_row(
            f"{row['hour']:.0f}", f"{row['requests_per_s']:.4g}", f"{row['replicas']:.0f}",
            *((f"{row['prompt_engines']:.0f}",) if one.prefill else ()),
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
