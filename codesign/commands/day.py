"""`codesign autoscale`: replicas of a design, of each pool, by the hour, and what following the load saves."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track

from ..config.consistency import at_rate
from ..core.atomic_files import write_files
from ..core.errors import ConfigError
from ..core.fields import replace
from ..core.jax_typed import asarray
from ..core.json_yaml import dumps
from ..core.units import HOUR_S, KWH, engineering
from ..model.metrics.cache_placement import has_prefix_cache
from ..model.metrics.simulated import batch_of, drawn_requests, engine_of, has_two_pools, host_s
from ..model.scenario import Scenario
from ..model.workloads.daily_load import MOST_PER_S, replicas_by_hour
from ..model.workloads.goodput import ENGINE, AbstractGoodputServing
from ..report.drawing import render
from ..report.fleet_figures import day_figure
from ..search.results import numbers_of
from ..simulation.fleet import (
    KeepSLO,
    LatencyLimits,
    Modulation,
    Scaling,
    ScheduledScaling,
    TargetUtilisation,
    by_profile,
    least_replicas,
    simulate_fleet,
)
from ..simulation.serving import Engine
from .plain_values import DAY, load_of, modulation_of, number
from .setup import prepare_jax
from .simulate import design_of
from .simulate_fleet import page_anew
from .terminal import console, job_text, text_table

__all__ = ["BOUND", "Size", "day", "day_of_design", "hours", "replica_devices", "served", "sizes", "steepest"]


# Replica sizing: the fewest engines of one pool, or of each of two, that meet an SLO at a rate.
#
# With two pools the times to a first token follow from the prefill engines alone and those between tokens from the
# decoding ones (`workloads.pools_apart`: a queue, the way of a cache that is the same for any number, a decode
# engine's share of the rate), and neither grows with more of its pool. So the fewest of each, found by halving, are
# the fewest accelerators of both together.


QUIET = 1e-6  # requests/s of an hour in which nobody asks
MOST = 2**14  # replicas of a pool


class Size(NamedTuple):
    """Accelerators that decode (or do all), and those for prompts."""

    decode: float
    prefill: float = 0.0

    @property
    def accelerators(self) -> float:
        """Accelerators of both pools together."""
        return self.decode + self.prefill


def replica_devices(scenario: Scenario) -> Size:
    """Accelerators that serve on their own: of replicas that share experts all; and of an prefill engine."""
    plan = scenario.plan
    layout = scenario.layout
    pool = layout.prefill
    prompts = max(float(pool.sharing), 1.0) * float(plan.prefill_tp * plan.prefill_pp)
    sharing = max(float(layout.sharing), 1.0)
    return Size(float(plan.tp * plan.cp * plan.pp) * sharing, prompts if float(plan.prefill_devices) > 0 else 0.0)


def sized(scenario: Scenario, size: Size) -> Scenario:
    """Copy of the design on so many accelerators."""
    path = "cluster.device_count" if scenario.plan.device_count is None else "plan.device_count"
    return replace(scenario, {path: asarray(float(size.decode)), "plan.prefill_devices": asarray(float(size.prefill))})


def served(scenario: Scenario, rate: float, size: Size) -> dict[str, float]:
    """Metrics at a rate on so many accelerators, of a design under an SLO."""
    work = scenario.workload
    assert isinstance(work, AbstractGoodputServing)
    return numbers_of(sized(dataclasses.replace(scenario, workload=at_rate(work, max(rate, QUIET))), size))


def sizes(scenario: Scenario, rates: np.ndarray) -> list[Size]:
    """The fewest accelerators that meet the SLO, hour by hour.

    Raises:
        ConfigError: an SLO that no number of replicas keeps.
    """
    one = replica_devices(scenario)
    if not one.prefill:
        good_for = float(numbers_of(sized(scenario, one))["requests_per_s"])
        return [Size(count * one.decode) for count in replicas_by_hour(rates, good_for).replicas]
    by_rate = {rate: _of_two(scenario, rate, one) for rate in np.unique(rates).tolist()}
    return [by_rate[rate] for rate in rates.tolist()]


def _of_two(scenario: Scenario, rate: float, one: Size) -> Size:
    """The fewest of both pools at a rate: decodes first, since who finds no place there has a late first token."""
    work = scenario.workload
    assert isinstance(work, AbstractGoodputServing)
    agreed, share = work.slo, f"p{100 * work.slo.attainment:.0f}"

    def meets_limit(size: Size, name: str, part: str, limit: float) -> bool:
        result = served(scenario, rate, size)
        return result[f"usage.{ENGINE}.{part}"] < 1 and result[f"{name}_{share}_s"] <= limit

    decode = one.decode * _fewest(
        lambda count: meets_limit(Size(count * one.decode, one.prefill), "tpot", "decodes", float(agreed.tpot_s)),
        f"workload.slo.tpot_s = {float(agreed.tpot_s):g}",
    )
    prefill = one.prefill * _fewest(
        lambda count: meets_limit(Size(decode, count * one.prefill), "ttft", "prompts", float(agreed.ttft_s)),
        f"workload.slo.ttft_s = {float(agreed.ttft_s):g}",
    )
    return Size(decode, prefill)


def _fewest(keeps: Callable[[int], bool], limit: str) -> int:
    """The least number that keeps a limit, which every larger one keeps too."""
    high = 1
    while not keeps(high):
        high *= 2
        if high > MOST:
            raise ConfigError(f"{limit} s is kept by no {MOST:,} replicas of the pool: allow more or take another plan")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


# Autoscaling policies through a day of load, simulated request by request, and the bound that none beats.


MOST_REQUESTS = 150_000  # that are simulated: the hours between which the load changes most
LEAST_HOURS = 2  # of them; where these have more a share is simulated, on as much smaller a fleet
EVERY_S, SEED = 15.0, 0
SHARES = (0.9, 0.7)  # of what replicas are good for
BOUND = "no policy below"


def policies_of_day(
    scenario: Scenario,
    rates: np.ndarray,
    start_s: float,
    held_usd_per_s: float,
    modulation: Modulation | None = None,
) -> pd.DataFrame:
    """One row a policy: replica-hours, share of the requests that keep the SLO, dollars; the bound last.

    Args:
        scenario: a design of one pool that serves under an SLO.
        rates: requests/s of each hour.
        start_s: from when a replica is started to when it takes requests.
        held_usd_per_s: cost of a replica without electricity.
        modulation: rates that follow each other within the hours, around each hour's.

    Raises:
        ConfigError: a design of two pools, or whose replicas have several engines.
    """
    work, one = scenario.workload, replica_devices(scenario)
    assert isinstance(work, AbstractGoodputServing)
    engine = _engine_of_replica(scenario, one)
    good_for = float(numbers_of(sized(scenario, one))["requests_per_s"])
    hours = steepest(rates)
    part = min(1.0, MOST_REQUESTS / max(float(rates[hours].sum()) * HOUR_S, 1.0))
    hourly, rng = np.maximum(rates[hours] * part, QUIET), np.random.default_rng(SEED)
    came = by_profile(rng, hourly, HOUR_S, float(work.arrival_cv), modulation=modulation)
    stream = dataclasses.replace(drawn_requests(scenario, len(came), rng), arrivals=came)
    host = host_s(scenario)
    agreed = LatencyLimits(max(float(work.slo.ttft_s) - host, 1e-9), float(work.slo.tpot_s), float(work.slo.attainment))
    sizes = replicas_by_hour(hourly, good_for).replicas
    policies: dict[str, Any] = {
        "as many as the busiest hour needs": ScheduledScaling([float(sizes.max())], HOUR_S, 1.0, 1.0)
    }
    policies["hours known, 90% full"] = ScheduledScaling(hourly.tolist(), HOUR_S, good_for, SHARES[0], EVERY_S)
    policies |= {f"follow the rate, {share:.0%} full": TargetUtilisation(good_for, share) for share in SHARES}
    policies["more where requests are late"] = KeepSLO(1 - agreed.share)
    of = {"simulated_share": part, "first_hour": int(hours[0]), "hours": len(hours)}
    rows: list[dict[str, Any]] = []
    for name, policy in policies.items():
        scaling = Scaling(policy, EVERY_S, start_s, slo=(agreed.ttft_s, agreed.tpot_s))
        first = max(int(sizes.max() if not rows else sizes[0]), 1)
        result = simulate_fleet(engine, stream, "least_outstanding", replicas=first, scaling=scaling)
        rows.append({
            "policy": name, "replica_hours": result.replica_s / HOUR_S / part, "kept": result.attainment(agreed, 0.0),
            "ttft_p99_s": float(np.percentile(result.served.ttft_s, 99)) + host,
            "tpot_p99_s": float(np.percentile(result.served.tpot_s, 99)),
            "usd": result.replica_s / part * held_usd_per_s, "starts": result.starts, **of
        })  # fmt: skip
    scaling = Scaling(KeepSLO(), EVERY_S, start_s)
    bound = least_replicas(engine, stream, agreed, scaling, initial=int(sizes.max()))
    rows.append({
        "policy": BOUND, "replica_hours": bound.replica_s / HOUR_S / part, "kept": agreed.share,
        "usd": bound.replica_s / part * held_usd_per_s, **of
    })  # fmt: skip
    return pd.DataFrame(rows)


def _engine_of_replica(scenario: Scenario, one: Size) -> Engine:
    """The engine of a replica.

    Raises:
        ConfigError: a design of two pools, whose replicas have several engines, or whose requests share prefixes.
    """
    engine, engines = engine_of(scenario)
    if has_two_pools(scenario) or engines * one.decode != float(scenario.layout.devices):
        raise ConfigError(
            "autoscale: --start simulates replicas of one engine: one pool, plan.pp=1, plan.attention_dp=1"
        )
    if has_prefix_cache(scenario):
        raise ConfigError(
            "autoscale: --start draws requests, of which none begins as another: leave out workload.prefix_cache"
            " (workload.cached_ratio= prices a hit rate that is known)"
        )
    return dataclasses.replace(engine, sequences=batch_of(scenario))


def steepest(rates: np.ndarray) -> np.ndarray:
    """Hours in a row, as many as are simulated, in which the load differs most."""
    count = int(np.clip(MOST_REQUESTS / max(float(rates.mean()) * HOUR_S, 1e-9), LEAST_HOURS, len(rates)))
    count = min(count, len(rates))
    ranges = [float(np.ptp(rates[at : at + count])) for at in range(len(rates) - count + 1)]
    return np.arange(count) + int(np.argmax(ranges))


def show_policies(out: Console, table: pd.DataFrame, start_s: float) -> None:
    """One row a policy."""
    title = f"policies, replicas that take {engineering(start_s, 's')} to start, simulated"
    heads = ("", "replica-hours", "kept the SLO", "TTFT p99", "TPOT p99", "$ accelerators", "starts")
    rows = [
        (
            row["policy"], f"{row['replica_hours']:,.1f}", f"{row['kept']:.2%}",
            *(["", ""] if row["policy"] == BOUND else [engineering(row[f"{name}_p99_s"], "s") for name in SHOWN]),
            f"{row['usd']:,.0f}", "" if row["policy"] == BOUND else f"{row['starts']:.0f}",
        )
        for row in table.to_dict("records")
    ]  # fmt: skip
    out.print(text_table(title, heads, rows))
    first = table.iloc[0]
    last = int(first["first_hour"]) + int(first["hours"])
    part = float(first["simulated_share"])
    share = "" if part == 1 else f" ({part:.1%} of their requests on as much smaller a fleet, which bursts cost more)"
    out.print(f"of the hours from {int(first['first_hour'])} to {last}, between which the load changes most{share}")


SHOWN = ("ttft", "tpot")
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
    summary = day(scenario, table)
    policies = None
    if start_s is not None:
        policies = policies_of_day(
            scenario, rates, start_s, _held_usd_per_s(scenario, replica_devices(scenario)), modulation
        )
    if as_json:
        more = {} if policies is None else {"policies": policies.to_dict("records")}
        print(dumps({"day": summary, "hours": table.to_dict("records")} | more, indent=2))
    else:
        _show(console(), scenario, table, summary)
        if policies is not None and start_s is not None:
            show_policies(console(), policies, start_s)
    if run:
        folder = run / FOLDER
        write_files({
            folder / "summary.json": dumps(summary, indent=2),
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
    one, hourly_sizes = replica_devices(scenario), sizes(scenario, rates)
    most, rows = (
        Size(max(size.decode for size in hourly_sizes), max(size.prefill for size in hourly_sizes)),
        list[dict[str, Any]](),
    )
    quiet = Console(quiet=True) if out is None else out
    for hour, (rate, size) in enumerate(
        track(list(zip(rates, hourly_sizes, strict=True)), "hours", console=quiet, transient=True)
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
    nothing = asarray(0.0)
    result: dict[str, dict[str, float]] = {}
    for way in WAYS:
        watts = table["power_all_on_w" if way == "peak" else "power_w"]
        joules = float(watts.sum()) * HOUR_S
        held_sizes = size if way == "hourly" else [most] * len(size)
        on = [most] * len(size) if way == "peak" else size
        electricity = float(facility.usd(nothing, nothing, nothing, asarray(joules)))
        machines = sum(held[one] for one in held_sizes) * HOUR_S
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
    capex, nothing = asarray(numbers_of(sized(scenario, size))["capex_usd"]), asarray(0.0)
    return float(scenario.cluster.facility.usd(capex, asarray(size.accelerators), asarray(1.0), nothing))


def _show(out: Console, scenario: Scenario, table: pd.DataFrame, summary: dict[str, Any]) -> None:
    """Print both tables."""
    one = replica_devices(scenario)
    apart = f", prefill engines of {one.prefill:g}" if one.prefill else ""
    title = f"{job_text(scenario)}: replicas of {one.decode:g}{apart} by the hour"
    prompts = ("prefill",) if one.prefill else ()
    heads = ("hour", "requests/s", "replicas", *prompts, "TTFT p99", "TPOT p99", "power", "power, all on")
    hours = [
        (
            f"{row['hour']:.0f}", f"{row['requests_per_s']:.4g}", f"{row['replicas']:.0f}",
            *((f"{row['prompt_engines']:.0f}",) if one.prefill else ()),
            *(engineering(row[f"{name}_p99_s"], "s") for name in SHOWN),
            *(engineering(row[name], "W") for name in ("power_w", "power_all_on_w")),
        )
        for _, row in table.iterrows()
    ]  # fmt: skip
    out.print(text_table(title, heads, hours))
    ways = [
        (
            label, f"{summary[way]['accelerator_hours']:,.0f}", f"{summary[way]['kwh']:,.0f}",
            *(f"{summary[way][name]:,.0f}" for name in ("usd_electricity", "usd_accelerators", "usd")),
            f"{summary[way]['usd_per_million_tokens']:.4g}",
        )
        for way, label in WAYS.items()
    ]  # fmt: skip
    heads = ("", "accelerator-hours on", "kWh", "$ electricity", "$ accelerators", "$ together", "$/M tokens")
    out.print(text_table(f"{len(table)} hours", heads, ways))
