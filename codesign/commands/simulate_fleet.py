"""`codesign simulate --replicas`: a fleet of a design under one stream of requests, beside its closed form."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from ..config.traced_requests import doubts
from ..core.atomic_files import write_files
from ..core.errors import ConfigError
from ..core.json_yaml import dumps
from ..core.units import engineering
from ..model.metrics.cache_placement import OWN, has_prefix_cache, hits_of
from ..model.metrics.simulated import batch_of, drawn_requests, engine_of, has_two_pools
from ..model.scenario import Cluster, Scenario
from ..model.workloads import Layout
from ..model.workloads.continuous import AbstractContinuousServing
from ..model.workloads.goodput import AbstractGoodputServing, AbstractOpenServing
from ..model.workloads.open_loop import OpenLoop
from ..report.build import build_report
from ..report.drawing import render, style
from ..report.fleet_figures import fleet_headline, fleet_table, timeline_of
from ..report.run_folder import PAGE, note_folder
from ..simulation.fleet import (
    ONE_QUEUE,
    FleetServed,
    LatencyLimits,
    dispersion,
    router_of,
    simulate_fleet,
    traffic_measures,
)
from ..simulation.serving import Engine, Requests, arrivals, read_trace
from .plain_values import VaryingTraffic, number, varying_traffic
from .setup import prepare_jax
from .simulate import FOLDER, ServedBar, check_options, checked_design, design_of, doubt, host_seconds
from .simulate_forms import FEWEST, Cached, form_numbers, in_closed_form, load_of
from .simulate_two_pools import TwoPoolFleet, replicas_of, routers_of, two_pool_fleet, untrusted_pools
from .terminal import console, text_table

__all__ = ["page_anew", "replica_devices_of", "simulate_replicas", "store_of", "untrusted"]

REQUESTS = 10_000
MOST_REPLICAS = 1024
BUSY = {"prefill_busy": "prefill replicas at work", "link_busy": "their links to the decode pool at work"}
SHOWN = {"ttft_s": "time to first token", "tpot_s": "time per output token"}
MEASURED = {
    "requests_per_s": ("requests a second", ""), "arrival_cv": ("variation of gaps", ""),
    "dispersion": ("variance of a minute's requests over their mean", ""), "input_tokens": ("prompt tokens", ""),
    "input_tokens_p99": ("  99 of 100 below", ""), "output_tokens": ("output tokens", ""),
    "output_tokens_p99": ("  99 of 100 below", ""), "sessions": ("conversations", ""), "turns": ("turns of each", ""),
    "reused_ratio": ("prompt tokens in blocks seen before", "%"), "working_set_tokens": ("different tokens", ""),
    "reuse_age_p50": ("tokens asked for between two uses, median", ""),
}  # fmt: skip
TRUSTED_CV, TRUSTED_LOAD, TRUSTED_QUEUE, TRUSTED_DRIFT = (0.8, 1.6), 0.3, 0.02, 2.0
"""Variation of gaps at a replica, load, and share of the requests that wait for a slot, up to which the closed form's
99th percentile of first tokens is within 15 % of simulations; `benchmarks/fleet_forms.py` has errors beyond."""


class FleetPicture(NamedTuple):
    """Table that a fleet's picture is drawn of, and what it says."""

    table: pd.DataFrame
    headline: str


def page_anew(run: Path, folder: str) -> None:
    """Note what stands in a folder of a run, and write the run's page again, where it has one, with it."""
    note_folder(run, folder)
    if (run / PAGE).is_file():
        build_report(run)


class AnswerPlace(NamedTuple):
    """Place of an answer: the run's folder, the terminal, as JSON or not; the trace that requests are of."""

    run: Path | None
    out: Console
    as_json: bool
    trace: str


def simulate_replicas(
    what: Sequence[str],
    *,
    design: int,
    replicas: str | None,
    router: str,
    prefix_cache: str | None,
    slo: Sequence[str],
    requests: int | None,
    seed: int,
    rate: float,
    cv: float | None,
    trace: str,
    as_json: bool,
    priority: str | None = None,
    admit: Sequence[str] = (),
    profile: str = "",
    markov: str = "",
) -> int:
    """Simulate the fleet and print what came of it beside the closed form.

    Raises:
        ConfigError: no such run, router or trace; limits that nobody can keep; a load that the fleet cannot sustain.
    """
    if replicas is not None:
        replicas_of(replicas, MOST_REPLICAS, two_pools="," in replicas)
    routers = routers_of(router) if "," in router or router == ONE_QUEUE else (router, router)
    _check_numbers(requests, seed, rate, cv, trace)
    varying = varying_traffic(profile, markov, rate, trace=trace)
    agreed, admitted = agreed_of(slo), admitted_of(admit)
    stream = _read(trace, priority, routers, agreed, admitted)
    by_class = bool(priority or admit)
    prepare_jax()
    run, scenario = design_of(what, design)
    two_pools = has_two_pools(scenario)
    counts = _checked_counts(replicas, router, routers, two_pools=two_pools, by_class=by_class)
    out = Console(stderr=True, quiet=as_json)
    with ServedBar(out) as bar:
        bar.say("pricing the design")
        closed = checked_design(scenario, replicas=True)
        host = host_seconds(scenario, closed)
        engine, group = engine_of(scenario)
        engine = dataclasses.replace(engine, seed=seed, sequences=batch_of(scenario))
        pair = two_pool_fleet(scenario, closed, counts, seed) if two_pools else None
        count = counts[0] if counts else round(group)
        if stream is None:
            usual = pair.rate if pair else closed.get("requests_per_s", 0.0) / group * count
            stream = _sampled(scenario, varying, requests, rate, usual, cv, seed)
            _check_served(stream, routers, agreed)
        engine, pair, shared = _with_store(scenario, engine, pair, stream, prefix_cache)
        agreed = agreed or _of_workload(scenario)
        bar.begin(len(stream))
        reply = AnswerPlace(run, out, as_json, trace)
        if pair is not None:
            return _two_pools(scenario, pair, stream, routers, agreed, reply, host, seed, bar)
        share, form, cache_hits = in_closed_form(engine, stream, router, count)
        result = simulate_fleet(
            engine, stream, router, replicas=count, shared_store=shared, seed=seed, report=bar.tell, admitted=admitted
        )
    result = dataclasses.replace(result, came=result.came - host, served=result.served.later(host))
    devices = replica_devices_of(scenario)
    summary: dict[str, Any] = {
        **_measures(stream, result, agreed, form.later(host), cache_hits), "replicas": count, "router": router,
        "accelerators_per_replica": devices, "store_tokens": engine.store_blocks * stream.hash_tokens,
        "requests_per_engine": len(share),
        "doubts": _notes(stream, trace, share, form, router, by_class=by_class),
    }  # fmt: skip
    on = f"{count} replicas of {devices:g} x {scenario.cluster.accelerator.name}, {router}"
    line = FleetPicture(fleet_table(result, agreed), fleet_headline(result, agreed))
    return _answered(scenario, summary, agreed, on, reply, line)


def _sampled(
    scenario: Scenario,
    varying: VaryingTraffic | None,
    requests: int | None,
    rate: float,
    usual: float,
    cv: float | None,
    seed: int,
) -> Requests:
    """Random requests at a rate that varies, or at one rate: `usual` where none is stated."""
    if varying is not None:
        return _varying(scenario, varying, requests, rate, cv, seed)
    return _drawn(scenario, requests or REQUESTS, rate or usual, cv, seed)


def _measures(
    requests: Requests, result: FleetServed, agreed: dict[str, LatencyLimits], form: OpenLoop, hits: Cached
) -> dict[str, Any]:
    """Traffic, closed form and simulation in numbers, all classes together and each by its limits."""
    return {
        "traffic": traffic_measures(requests),
        "closed_form": form_numbers(form) | {"hit_rate": hits.hit_rate, "load": load_of(form)},
        "simulated": result.served.summary() | {"hit_rate": result.hit_rate},
        "classes": result.by_class(agreed),
    }


def _notes(stream: Requests, trace: str, share: Requests, form: Any, router: str, *, by_class: bool) -> list[str]:
    """Lines on what the closed form leaves out, and on a trace that may not be what it seems."""
    lines = [doubts(stream, trace)] if trace else []
    lines = [line for line in lines if line] + untrusted(share, form, router)
    return lines + ["the closed form serves whoever came first and turns nobody away"] * by_class


def _check_numbers(requests: int | None, seed: int, rate: float, cv: float | None, trace: str) -> None:
    """Refuse numbers of the command line outside their ranges, and rates beside a trace."""
    if requests is not None and requests < FEWEST:
        raise ConfigError(f"simulate: --requests {requests} must be at least {FEWEST}")
    check_options(seed, rate, cv)
    if trace and (rate or cv is not None):
        raise ConfigError("simulate: --trace says when requests come: leave out --rate and --cv")


def _read(
    trace: str,
    priority: str | None,
    routers: tuple[str, str],
    agreed: Mapping[str, object],
    admitted: Mapping[str, object],
) -> Requests | None:
    """Requests of a trace, ranked; classes and routers that it has not are refused before anything is priced."""
    stream = read_trace(trace) if trace else None
    if (priority or admitted) and (stream is None or not stream.class_names):
        raise ConfigError("simulate: --priority and --admit are of classes: take a --trace with a column class")
    if stream is None:
        return None
    if priority:
        stream = stream.served_first([name.strip() for name in priority.split(",") if name.strip()])
    _require_classes(admitted, stream, "--admit")
    _check_served(stream, routers, agreed)
    return stream


def _check_served(requests: Requests, routers: tuple[str, str], agreed: Mapping[str, object]) -> None:
    """Refuse routers that these requests cannot have, and limits of classes that are not among them."""
    for name in {*routers} - {ONE_QUEUE}:
        router_of(name, requests)
    _require_classes(agreed, requests)


def _with_store(
    scenario: Scenario, engine: Engine, pair: TwoPoolFleet | None, requests: Requests, size: str | None
) -> tuple[Engine, TwoPoolFleet | None, bool]:
    """Engine, or both pools, with the prefix cache of this size or of the design; True if all replicas share it."""
    if size is not None and pair is not None:
        return engine, pair.with_store(store_of, size, scenario, requests), False
    if size is not None:
        return store_of(scenario, engine, requests, size), pair, False
    shared = False
    if has_prefix_cache(scenario):
        engine, shared = stored_by_design(scenario, engine, requests)
    return engine, pair, shared


def _checked_counts(
    replicas: str | None, router: str, routers: tuple[str, str], *, two_pools: bool, by_class: bool
) -> tuple[int, ...]:
    """Read the numbers of replicas; refuse options of one pool for a design of two, and the other way round."""
    if two_pools and by_class:
        raise ConfigError("simulate: --priority and --admit are of one pool: leave them out, or take workload=serving")
    if not two_pools and router != routers[0]:
        raise ConfigError(f"--router {router}: two routers are of two pools: choose workload=disaggregated, or one")
    if not two_pools and router == ONE_QUEUE:
        router_of(router, Requests(np.ones(1, int), np.ones(1, int)))  # says which there are
    return tuple(replicas_of(replicas, MOST_REPLICAS, two_pools=two_pools))


def _answered(
    scenario: Scenario,
    summary: dict[str, Any],
    agreed: dict[str, LatencyLimits],
    on: str,
    reply: AnswerPlace,
    line: "FleetPicture",
) -> int:
    """Print what came of a simulation, and keep it in the run's folder where there is one."""
    if reply.as_json:
        print(dumps(summary, indent=2))
    else:
        _show(console(), scenario, summary, agreed, on)
    if reply.run:
        folder = reply.run / FOLDER
        with style():
            picture = render(timeline_of(line.table, line.headline))
        write_files({
            folder / "fleet.json": dumps(summary | {"headline": line.headline}, indent=2),
            folder / "fleet.png": picture,
            folder / "fleet.csv": line.table.to_csv(index=False, float_format="%.6g"),
        })  # fmt: skip
        page_anew(reply.run, FOLDER)
        reply.out.print(f"kept: {folder}")
    return 0


def _two_pools(
    scenario: Scenario,
    pair: TwoPoolFleet,
    requests: Requests,
    routers: tuple[str, str],
    agreed: dict[str, LatencyLimits],
    reply: AnswerPlace,
    host: float,
    seed: int,
    bar: ServedBar,
) -> int:
    """Simulate prefill and decode replicas, and print and keep what came of it."""
    closed, load = pair.closed_form(requests)
    pools = pair.simulated(requests, routers, seed, bar.tell)
    result = dataclasses.replace(pools.fleet, came=pools.fleet.came - host, served=pools.fleet.served.later(host))
    closed = {name: value + host * name.startswith(("ttft_s", "e2e_s")) for name, value in closed.items()}
    prefill, decode = pair.replicas
    summary = {
        "traffic": traffic_measures(requests), "closed_form": closed | {"hit_rate": 0.0, "load": load},
        "simulated": result.served.summary() | {
            "hit_rate": result.hit_rate, "prefill_busy": pools.prefill_busy, "link_busy": pools.link_busy,
        },
        "classes": result.by_class(agreed), "replicas": list(pair.replicas), "router": list(routers),
        "accelerators_per_replica": list(pair.devices),
        "store_tokens": pair.pools.prefill.store_blocks * requests.hash_tokens,
        "doubts": [line for line in [doubts(requests, reply.trace) if reply.trace else ""] if line]
        + untrusted_pools(load, routers, TRUSTED_LOAD, requests),
    }  # fmt: skip
    assert scenario.cluster.prefill is not None
    names = ", ".join(dict.fromkeys(routers))
    on = (
        f"{prefill} prefill replicas of {pair.devices[0]:g} x {scenario.cluster.prefill.cluster.accelerator.name} and"
        f" {decode} decode replicas of {pair.devices[1]:g} x {scenario.cluster.accelerator.name}, {names}"
    )
    return _answered(
        scenario,
        summary,
        agreed,
        on,
        reply,
        FleetPicture(fleet_table(result, agreed, pools), fleet_headline(result, agreed)),
    )


def agreed_of(texts: Sequence[str]) -> dict[str, LatencyLimits]:
    """Limits of each class, of all under an empty name: `ttft=2s,tpot=50ms,share=0.99`, `chat:ttft=1s`.

    Raises:
        ConfigError: what cannot be read, or is none.
    """
    result: dict[str, LatencyLimits] = {}
    for text in texts:
        name, _, limits = text.rpartition(":")
        values: dict[str, float] = {}
        for part in limits.split(","):
            key, sign, value = part.partition("=")
            key = key.strip()
            if not sign or key not in ("ttft", "tpot", "share"):
                raise ConfigError(
                    f"--slo {text!r}: {part!r} is no limit; write ttft=2s,tpot=50ms,share=0.99, or CLASS: before it"
                )
            if key == "share":
                try:
                    values["share"] = float(value)
                except ValueError:
                    raise ConfigError(f"--slo {text!r}: share = {value!r} is no number in (0, 1]") from None
            else:
                values[f"{key}_s"] = number(value, "s", f"--slo {key}", "2s or 50ms")
        if name in result:
            raise ConfigError(f"--slo {text!r}: limits of {name or 'all requests'} twice: write them once")
        result[name] = LatencyLimits(**values)
    return result


def admitted_of(texts: Sequence[str]) -> dict[str, int]:
    """Class -> requests under way at a replica from which on the class is turned away: `batch=32`.

    Raises:
        ConfigError: what cannot be read, or is none.
    """
    result: dict[str, int] = {}
    for text in texts:
        name, sign, count = text.partition("=")
        if not sign or not name or not count.isdigit() or int(count) < 1 or name in result:
            raise ConfigError(f"--admit {text!r}: a class once with a whole number from 1 on, as in --admit batch=32")
        result[name] = int(count)
    return result


def _require_classes(agreed: Mapping[str, object], requests: Requests, option: str = "--slo") -> None:
    unknown = sorted(set(agreed) - {""} - set(requests.class_names))
    if unknown:
        classes = ", ".join(requests.class_names) or "none"
        raise ConfigError(f"{option}: the requests have no class {', '.join(unknown)} (they have {classes})")


def _of_workload(scenario: Scenario) -> dict[str, LatencyLimits]:
    """The SLO of the design's workload, where it has one."""
    work = scenario.workload
    if not isinstance(work, AbstractGoodputServing):
        return {}
    return {"": LatencyLimits(float(work.slo.ttft_s), float(work.slo.tpot_s), float(work.slo.attainment))}


def _varying(
    scenario: Scenario, traffic: VaryingTraffic, count: int | None, rate: float, cv: float | None, seed: int
) -> Requests:
    """Requests of a stream whose rate varies; all of a profile, else 10,000 where no number is said."""
    rng = np.random.default_rng(seed)
    most = count if traffic.hours is not None else count or REQUESTS
    came = traffic.arrivals(rng, most, rate, _cv_of(scenario, cv))
    if len(came) < FEWEST:
        raise ConfigError(f"simulate: {len(came)} requests of --profile are fewer than {FEWEST}: take a larger --rate")
    return dataclasses.replace(drawn_requests(scenario, len(came), rng), arrivals=came)


def _cv_of(scenario: Scenario, cv: float | None) -> float:
    work = scenario.workload
    if cv is not None:
        return cv
    return float(work.arrival_cv) if isinstance(work, AbstractOpenServing) else 1.0


def _drawn(scenario: Scenario, count: int, rate: float, cv: float | None, seed: int) -> Requests:
    rng, cv = np.random.default_rng(seed), _cv_of(scenario, cv)
    drawn = drawn_requests(scenario, count, rng)
    came = arrivals(rng, rate, cv, count)
    return dataclasses.replace(drawn, arrivals=came * ((count - 1) / (rate * np.ptp(came))))


def replica_devices_of(scenario: Scenario) -> float:
    """Accelerators that one engine of a design takes up, its share where stages have several under way."""
    return float(scenario.layout.devices) / engine_of(scenario)[1]


def store_of(
    scenario: Scenario,
    engine: Engine,
    requests: Requests,
    size: str,
    cluster: Cluster | None = None,
    layout: Layout | None = None,
) -> Engine:
    """The engine with a prefix cache of so many bytes for each replica, in its host's memory.

    Args:
        scenario: the design.
        engine: of one replica.
        requests: requests.
        size: with a unit.
        cluster, layout: of a pool, those of the design without.

    Raises:
        ConfigError: no size, requests whose blocks are not known, or less room than a block.
    """
    if not requests.hashed:
        raise ConfigError(
            f"--prefix-cache {size}: these requests do not say which blocks they begin with: take a trace with hash_ids"
            " (workload.cached_ratio= prices a hit rate that is known)"
        )
    work, layout = scenario.workload, layout or scenario.layout
    assert isinstance(work, AbstractContinuousServing)
    plan = layout.plan
    on_device = float(work.kv_bytes_per_token(layout))
    spread = float(plan.tp * plan.cp * plan.pp / plan.attention_dp)
    room = number(size, "B", "--prefix-cache", "200GB")
    blocks = int(room / (on_device * spread * requests.hash_tokens))
    if blocks < 1:
        need = on_device * spread * requests.hash_tokens
        raise ConfigError(
            f"--prefix-cache {size}: one block of {requests.hash_tokens} tokens has {engineering(need, 'B')}"
        )
    seconds = on_device * float((cluster or scenario.cluster).host.link.beta_s_per_byte)  # devices load side by side
    return dataclasses.replace(engine, store_blocks=blocks, store_token_s=seconds)


def stored_by_design(scenario: Scenario, engine: Engine, requests: Requests) -> tuple[Engine, bool]:
    """The engine with the caches of its design as one, and whether all replicas share it.

    Of several tiers that are far, blocks come at their mean speed; a pool or store that finds most stands for all.

    Raises:
        ConfigError: requests whose blocks are not known.
    """
    if not requests.hashed:
        raise ConfigError(
            "workload.prefix_cache: these requests do not say which blocks they begin with: take --trace FILE with"
            " hash_ids"
        )
    hits = hits_of(scenario)
    shared = {tier: room for tier, room in hits.room_tokens.items() if tier not in OWN and hits.tiers[tier] > 0}
    local_tokens = sum(hits.room_tokens[tier] for tier in OWN)
    tokens = max(shared.values()) if shared else local_tokens
    result = hits.share * float(requests.prompts.mean())
    blocks = int(tokens / requests.hash_tokens)
    return dataclasses.replace(
        engine, store_blocks=blocks, store_token_s=hits.fetch_s / result if result > 0 else 0.0
    ), bool(shared)  # fmt: skip


def untrusted(share: Requests, form: Any, router: str) -> list[str]:
    """Lines that say where the closed form is not to be trusted, of what comes to one replica."""
    assert share.arrivals is not None
    gaps = np.diff(share.arrivals)
    varies, load = float(gaps.std() / gaps.mean()), load_of(form)
    queued = float(form.places.late)
    result = [doubt(load).strip()] if doubt(load) else []
    if load > TRUSTED_LOAD or queued > TRUSTED_QUEUE or not TRUSTED_CV[0] <= varies <= TRUSTED_CV[1]:
        result.append(
            f"closed form's 99th percentile of first tokens: not trusted at a load of {load:.2g}, gaps at a replica"
            f" that vary by {varies:.2g} and {queued:.1%} who wait for a slot (checked to 15 % up to {TRUSTED_LOAD:g},"
            f" {TRUSTED_CV[0]:g} to {TRUSTED_CV[1]:g} and {TRUSTED_QUEUE:.0%}): believe the simulation"
        )
    drift = dispersion(share.arrivals) / max(varies**2, 1.0)
    if drift > TRUSTED_DRIFT:
        result.append(
            f"a minute's requests at a replica vary by {drift:.2g} times what their gaps alone bring: the rate drifts,"
            " and no wait of the closed form is to be trusted where it fills an engine for a time"
        )
    if router != "round_robin":
        result.append(
            f"the closed form deals requests by turns: of {router} trust the simulation for times to a first token"
        )
    return result


def _show(out: Console, scenario: Scenario, summary: dict[str, Any], agreed: dict[str, LatencyLimits], on: str) -> None:
    closed, first = summary["closed_form"], summary["simulated"]
    traffic = (
        (label, f"{summary['traffic'][name]:.1%}" if unit == "%" else f"{summary['traffic'][name]:,.4g}")
        for name, (label, unit) in MEASURED.items()
        if name in summary["traffic"]
    )
    out.print(text_table("requests, as measured", ("", " "), traffic))
    title = f"{scenario.workload.model.name}: {summary['traffic']['requests']:,.0f} requests on {on}"
    heads = ("", "closed form", "simulated", "difference", "closed form p99", "simulated p50", "p90", "p99")
    times = (
        (
            label, engineering(closed[name], "s"), engineering(first[name], "s"),
            f"{closed[name] / first[name] - 1:+.1%}",
            engineering(closed[f"{name}.p99"], "s"), *(engineering(first[f"{name}.p{q}"], "s") for q in (50, 90, 99)),
        )
        for name, label in SHOWN.items()
    )  # fmt: skip
    table = text_table(title, heads, times)
    came = summary["traffic"]["requests_per_s"]
    table.add_row("requests a second", f"{came:.4g}", f"{first['rate']:.4g}", f"{came / first['rate'] - 1:+.1%}")
    if summary["store_tokens"] or closed["hit_rate"]:
        has_form = "prefill_busy" not in first  # of two pools no closed form knows caches
        gap = f"{100 * (closed['hit_rate'] - first['hit_rate']):+.1f} points" if has_form else ""
        said = f"{closed['hit_rate']:.1%}" if has_form else ""
        table.add_row("prompt tokens from the cache", said, f"{first['hit_rate']:.1%}", gap)
    for name, label in BUSY.items():
        if name in first:
            table.add_row(label, "", f"{first[name]:.1%}")
    out.print(table)
    if agreed:
        away = any(row["refused"] for row in summary["classes"])
        heads = ("class", "requests", "kept", "agreed", "TTFT p99", "TPOT p99", "", *(["turned away"] * away))
        rows = (
            (
                row["class"], f"{row['requests']:,}", f"{row['attainment']:.2%}", f"{row['agreed']:.2%}",
                engineering(row["ttft_p99_s"], "s"), engineering(row["tpot_p99_s"], "s"),
                "yes" if row["meets"] else "no", *([f"{row['refused']:.2%}"] * away),
            )
            for row in summary["classes"]
        )  # fmt: skip
        out.print(text_table("requests that kept their limits", heads, rows, left=("class", "")))
    for line in summary["doubts"]:
        out.print(line)
    if first["preempted"]:
        out.print(f"{first['preempted']:,.0f} times a sequence lost its blocks and was computed again")
    if not math.isfinite(first["rate"]):
        out.print("too few requests for a rate")
