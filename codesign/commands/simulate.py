"""`codesign simulate`: a design's closed form beside a simulation of its requests, one by one."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from omegaconf import OmegaConf
from rich.console import Console

from ..config import check_memory, check_plan, study_from_resolved
from ..config.consistency import check_boxes
from ..config.outcome_checks import check_outcome
from ..config.study import scenario_from_config
from ..core.atomic_files import write_files
from ..core.errors import ConfigError
from ..core.fields import replace
from ..core.json_io import dumps
from ..model.metrics.prefix_room import has_prefix_cache
from ..model.metrics.simulated import HOST, batch_of, drawn_requests, engine_of, has_two_pools
from ..model.scenario import Scenario
from ..model.workloads.continuous import AbstractContinuousServing, ContinuousServing
from ..model.workloads.lockstep import Lockstep
from ..model.workloads.open_loop import OpenLoop
from ..model.workloads.under_load import AbstractOpenServing
from ..report.drawing import render
from ..report.run_folder import note_folder, read_run
from ..report.simulation import pools_figure, timeline_figure
from ..search.results import numbers_of, placed
from ..simulation.serving import (
    LEAST_REQUESTS,
    Engine,
    Requests,
    Served,
    arrivals,
    read_trace,
    simulate_closed,
    simulate_open,
)
from .setup import prepare_jax
from .simulate_forms import bounds, open_form
from .simulate_forms import told as form_told
from .simulate_pools import pools_of
from .simulate_told import ServedBar, show_served
from .terminal import console

__all__ = ["checked_design", "design_of", "engine_of", "host_seconds", "simulate_design"]

FOLDER = "simulation"  # in the run's
FEWEST = 100  # requests that a simulation says anything of
MOST = {"seed": 2**32 - 1, "rate": 1e12, "cv": 10.0}  # of options
FULLEST = 0.98  # of a rate that the design sustains, above which an open loop is refused


def simulate_design(
    what: Sequence[str],
    *,
    design: int,
    requests: int,
    seed: int,
    rate: float,
    cv: float | None,
    trace: str,
    as_json: bool,
) -> int:
    """Simulate a design of a run, or that of overrides, and print what came of it beside the closed form.

    Raises:
        ConfigError: no such run or design, one that serves no continuous batches, a load that it cannot sustain.
    """
    if requests < FEWEST:
        raise ConfigError(f"simulate: --requests {requests} must be at least {FEWEST}")
    for name, value in (("seed", seed), ("rate", rate), ("cv", cv or 0.0)):
        if not 0 <= value <= MOST[name]:
            raise ConfigError(f"simulate: --{name} {value:g} is outside [0, {MOST[name]:g}]")
    prepare_jax()
    run, scenario = design_of(what, design)
    if cv is not None and not rate and not isinstance(scenario.workload, AbstractOpenServing):
        raise ConfigError(f"simulate: --cv {cv:g} is of an open loop: say its --rate, in requests/s")
    out = Console(stderr=True, quiet=as_json)
    with ServedBar(out) as bar:
        bar.say("pricing the design")
        closed = checked_design(scenario)
        if isinstance(scenario.workload, AbstractOpenServing):
            rate, cv = rate or closed["requests_per_s"], float(scenario.workload.arrival_cv) if cv is None else cv
        cv = 1.0 if cv is None else cv
        host = host_seconds(scenario, closed)
        engine, group = engine_of(scenario)
        engine = dataclasses.replace(engine, seed=seed)
        if rate or trace:  # a closed loop has no more under way than are asked for
            engine = dataclasses.replace(engine, sequences=batch_of(scenario))
        pools = None
        if has_two_pools(scenario):
            pools = pools_of(scenario, dataclasses.replace(engine, sequences=batch_of(scenario)), group)
            group, rate = 1.0, rate or 0.99 * FULLEST * closed["requests_per_s"]  # both pools together, nearly full
        asked = _asked(scenario, closed, group, requests, seed, rate, cv, trace)
        more = None if trace else _asked(scenario, closed, group, requests, seed + 1, rate, cv, trace)
        if asked.arrivals is not None:
            cached = asked.prefix_tokens * float(np.mean(asked.prefixes >= 0)) if len(asked.prefixes) else 0.0
            form = pools.closed_form(asked) if pools else open_form(engine, asked, cached, group)
            most = math.inf if isinstance(scenario.workload, AbstractOpenServing) else closed["requests_per_s"]
            closed |= form_told(form.later(host)) | _load(asked.arrivals, form, group, most)
        if pools is not None:
            bar.begin(len(asked))
            result = pools.simulated(asked, bar.tell, timeline=True)
            again = pools.reseeded(seed + 1).simulated(more, bar.tell) if more else None
        else:
            if asked.arrivals is None:
                engine = dataclasses.replace(engine, sequences=_under_way(closed, group, host))
            result = _simulated(engine, asked, bar, timeline=True)
            other = dataclasses.replace(engine, seed=seed + 1)
            again = _simulated(other, more, bar) if more else None
    result, again = result.later(host), again and again.later(host)
    told = {"closed_form": closed, "simulated": result.summary(), "another_seed": again.summary() if again else {}}
    told["no_scheduler"] = {} if pools else bounds(engine, asked, result, group)
    told["requests"], told["loop"] = len(asked), "closed" if asked.arrivals is None else "open"
    if as_json:
        print(dumps(told, indent=2))
    else:
        show_served(console(), scenario, told, group)
    if run:
        _write(run, told, result)
        out.print(f"kept: {run / FOLDER}")
    return 0


def _load(arrivals: np.ndarray, form: OpenLoop, group: float, most: float) -> dict[str, float]:
    """Requests a second of so many engines, how busy these are, and the share of their places that is taken."""
    came = (len(arrivals) - 1) / float(np.ptp(arrivals)) * group
    busy = max(float(form.load), float(form.fill), came / most)
    places = {"queued_share": float(form.places.late), "queue_wait_s": float(form.places.mean)}
    return {"requests_per_s": came, "load": busy, "slot_utilisation": float(form.fill)} | places


def host_seconds(scenario: Scenario, closed: dict[str, float]) -> float:
    """Host's share of first tokens, seconds: no simulation knows it, so as much as the closed form adds."""
    bare = replace(scenario, {f"workload.{name}": jnp.asarray(0.0) for name in HOST})
    if isinstance(bare.workload, ContinuousServing):  # what is simulated is beyond its start
        bare = dataclasses.replace(bare, workload=dataclasses.replace(bare.workload, clients=Lockstep()))
    return closed["ttft_s"] - numbers_of(bare)["ttft_s"]


def design_of(what: Sequence[str], design: int) -> tuple[Path | None, Scenario]:
    """The folder and a design of a run, or the design of overrides.

    Raises:
        ConfigError: no such run or design, or wrong overrides.
    """
    run = Path(what[0]) if len(what) == 1 and "=" not in what[0] else None
    return run, _of_run(run, design) if run else scenario_from_config(*what)


def _of_run(run: Path, design: int) -> Scenario:
    """The scenario of a design, by its rank."""
    folder = read_run(run)
    rows = folder.designs[folder.designs["rank"] == design] if "rank" in folder.designs else folder.designs.iloc[:0]
    if not len(rows):
        raise ConfigError(f"{str(run)!r} has no design {design}: 1 to {len(folder.designs)}")
    study = study_from_resolved(OmegaConf.create(folder.config), folder.overrides, folder.conf)
    return placed(study.problem, rows.iloc[0])


def checked_design(scenario: Scenario, *, replicas: bool = False) -> dict[str, float]:
    """The closed form of a design that can be simulated, by itself or as replicas of a fleet."""
    work = scenario.workload
    if not isinstance(work, AbstractContinuousServing):
        raise ConfigError(
            f"{type(work).__name__} serves no continuous batches: simulate needs workload=continuous or continuous_fp8"
        )
    accepted, verified = float(work.accepted_tokens), float(work.verified_tokens)
    if verified % 1 or accepted > verified:
        raise ConfigError(
            f"workload.accepted_tokens = {accepted:g} of workload.verified_tokens = {verified:g} cannot be drawn:"
            f" take a whole number of {max(math.ceil(accepted), 1)} or more that are verified"
        )
    if has_two_pools(scenario) and float(work.cached_ratio) > 0:
        raise ConfigError(
            f"workload.cached_ratio = {float(work.cached_ratio):g}: a prefix cache before a prefill pool is not"
            " simulated: take 0"
        )
    if has_prefix_cache(scenario) and not replicas:
        raise ConfigError(
            "workload.prefix_cache: requests that are drawn begin alike or not at all: simulate it with --replicas N"
            " and --trace FILE with hash_ids"
        )
    check_plan(scenario)
    check_boxes(scenario)
    check_memory(scenario)
    numbers = numbers_of(scenario)
    if not isinstance(work, AbstractOpenServing):  # whose load is that of the command
        check_outcome(scenario, numbers)
    return numbers


def _asked(
    scenario: Scenario,
    closed: dict[str, float],
    group: float,
    count: int,
    seed: int,
    rate: float,
    cv: float,
    trace: str,
) -> Requests:
    """Requests of one engine: of a trace, drawn with arrivals at a rate, or without."""
    work, rng = scenario.workload, np.random.default_rng(seed)
    assert isinstance(work, AbstractContinuousServing)
    if trace:
        result = read_trace(trace)
        assert result.arrivals is not None
        mine = np.arange(0, len(result), max(round(group), 1))  # by turns over the engines
        if len(mine) < LEAST_REQUESTS:
            raise ConfigError(f"trace {trace!r}: {len(result)} requests over {group:g} engines leave one to an engine")
        result = Requests(result.prompts[mine], result.outputs[mine], result.arrivals[mine])
        span = float(result.arrivals[-1]) if result.arrivals is not None else 0.0
        rate = len(mine) / span * group if span > 0 else 0.0
    if rate and not isinstance(work, AbstractOpenServing):  # of others what their full batch sustains is known
        most = closed["requests_per_s"]  # with its batch always full
        if rate > FULLEST * most:
            raise ConfigError(
                f"{rate:.4g} requests/s are {rate / most - 1:+.1%} of the {most:.4g} that the design sustains with its"
                f" batch and chunk: ask for {FULLEST * most:.4g} or fewer, take a plan with a larger batch,"
                " or simulate a run of so many requests: --num-prompts N"
            )
    if trace:
        return result
    drawn = drawn_requests(scenario, count, rng)
    came = arrivals(rng, rate / group, cv, count) if rate else None
    if came is not None:
        came = came * ((count - 1) / (rate / group * np.ptp(came)))  # by chance they come faster or slower than asked
    return dataclasses.replace(drawn, arrivals=came)


def _under_way(closed: dict[str, float], group: float, host: float) -> int:
    """Requests that one engine has at a time in a closed loop: those of its clients, but for those at the host."""
    return max(round((closed["concurrency"] - closed["requests_per_s"] * host) / group), 1)


def _simulated(engine: Engine, asked: Requests, bar: ServedBar, *, timeline: bool = False) -> Served:
    """Requests as they come, or in a closed loop as many at a time as the engine has sequences."""
    bar.begin(len(asked))
    if asked.arrivals is not None:
        return simulate_open(engine, asked, report=bar.tell, timeline=timeline)
    if engine.sequences * 4 > len(asked):
        least = f"{engine.sequences} at a time need at least {4 * engine.sequences}"
        raise ConfigError(f"--requests {len(asked)}: {least}")
    return simulate_closed(engine, asked, engine.sequences, report=bar.tell, timeline=timeline)


def _write(run: Path, told: dict[str, Any], found: Served) -> None:
    folder = run / FOLDER
    line, handed = found.timeline, found.handed
    figure = timeline_figure(line) if handed is None else pools_figure(line, handed)
    write_files({folder / "summary.json": dumps(told, indent=2), folder / "timeline.png": render(figure)})
    note_folder(run, FOLDER)
