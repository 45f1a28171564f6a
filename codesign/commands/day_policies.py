"""Autoscaling policies through a day of load, simulated request by request, and the bound that none beats."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from ..core.errors import ConfigError
from ..core.units import HOUR_S, engineering
from ..model.metrics.prefix_room import has_prefix_cache
from ..model.metrics.simulated import batch_of, drawn_requests, engine_of, has_two_pools, host_s
from ..model.scenario import Scenario
from ..model.workloads.daily_load import replicas_by_hour
from ..model.workloads.under_load import AbstractGoodputServing
from ..search.results import numbers_of
from ..simulation.fleet import (
    Agreed,
    KeepSLO,
    Modulation,
    Scaling,
    Scheduled,
    TargetUtilisation,
    by_profile,
    least_replicas,
    simulate_fleet,
)
from .day_sizes import QUIET, replica_devices, sized

__all__ = ["BOUND", "policies_of_day", "show_policies"]

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
    engine = dataclasses.replace(engine, sequences=batch_of(scenario))
    good_for = float(numbers_of(sized(scenario, one))["requests_per_s"])
    hours = steepest(rates)
    part = min(1.0, MOST_REQUESTS / max(float(rates[hours].sum()) * HOUR_S, 1.0))
    hourly, rng = np.maximum(rates[hours] * part, QUIET), np.random.default_rng(SEED)
    came = by_profile(rng, hourly, HOUR_S, float(work.arrival_cv), modulation=modulation)
    asked = dataclasses.replace(drawn_requests(scenario, len(came), rng), arrivals=came)
    host = host_s(scenario)
    agreed = Agreed(max(float(work.slo.ttft_s) - host, 1e-9), float(work.slo.tpot_s), float(work.slo.attainment))
    sizes = replicas_by_hour(hourly, good_for).replicas
    policies: dict[str, Any] = {"as many as the busiest hour needs": Scheduled([float(sizes.max())], HOUR_S, 1.0, 1.0)}
    policies["hours known, 90% full"] = Scheduled(hourly.tolist(), HOUR_S, good_for, SHARES[0], EVERY_S)
    policies |= {f"follow the rate, {share:.0%} full": TargetUtilisation(good_for, share) for share in SHARES}
    policies["more where requests are late"] = KeepSLO(1 - agreed.share)
    of = {"simulated_share": part, "first_hour": int(hours[0]), "hours": len(hours)}
    rows: list[dict[str, Any]] = []
    for name, policy in policies.items():
        scaling = Scaling(policy, EVERY_S, start_s, slo=(agreed.ttft_s, agreed.tpot_s))
        first = max(int(sizes.max() if not rows else sizes[0]), 1)
        result = simulate_fleet(engine, asked, "least_outstanding", replicas=first, scaling=scaling)
        rows.append({
            "policy": name, "replica_hours": result.replica_s / HOUR_S / part, "kept": result.attainment(agreed, 0.0),
            "ttft_p99_s": float(np.percentile(result.served.ttft_s, 99)) + host,
            "tpot_p99_s": float(np.percentile(result.served.tpot_s, 99)),
            "usd": result.replica_s / part * held_usd_per_s, "starts": result.starts, **of
        })  # fmt: skip
    scaling = Scaling(KeepSLO(), EVERY_S, start_s)
    bound = least_replicas(engine, asked, agreed, scaling, initial=int(sizes.max()))
    rows.append({
        "policy": BOUND, "replica_hours": bound.replica_s / HOUR_S / part, "kept": agreed.share,
        "usd": bound.replica_s / part * held_usd_per_s, **of
    })  # fmt: skip
    return pd.DataFrame(rows)


def steepest(rates: np.ndarray) -> np.ndarray:
    """Hours in a row, as many as are simulated, in which the load differs most."""
    count = int(np.clip(MOST_REQUESTS / max(float(rates.mean()) * HOUR_S, 1e-9), LEAST_HOURS, len(rates)))
    count = min(count, len(rates))
    ranges = [float(np.ptp(rates[at : at + count])) for at in range(len(rates) - count + 1)]
    return np.arange(count) + int(np.argmax(ranges))


def show_policies(out: Console, table: pd.DataFrame, start_s: float) -> None:
    """One row a policy."""
    title = f"policies, replicas that take {engineering(start_s, 's')} to start, simulated"
    shown = Table(title=title, title_justify="left", header_style="bold")
    for name in ("", "replica-hours", "kept the SLO", "TTFT p99", "TPOT p99", "$ accelerators", "starts"):
        shown.add_column(name, justify="right" if name else "left")
    for row in table.to_dict("records"):
        bound = row["policy"] == BOUND
        shown.add_row(
            row["policy"], f"{row['replica_hours']:,.1f}", f"{row['kept']:.2%}",
            "" if bound else engineering(row["ttft_p99_s"], "s"), "" if bound else engineering(row["tpot_p99_s"], "s"),
            f"{row['usd']:,.0f}", "" if bound else f"{row['starts']:.0f}",
        )  # fmt: skip
    out.print(shown)
    first = table.iloc[0]
    last = int(first["first_hour"]) + int(first["hours"])
    part = float(first["simulated_share"])
    share = "" if part == 1 else f" ({part:.1%} of their requests on as much smaller a fleet, which bursts cost more)"
    out.print(f"of the hours from {int(first['first_hour'])} to {last}, between which the load changes most{share}")
