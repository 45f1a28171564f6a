"""`codesign simulate`: a design's closed form beside a simulation of its requests, one by one."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..config import check_memory, check_plan, study_from_resolved
from ..config.checks import check_outcome
from ..config.consistency import check_boxes
from ..config.study import scenario_from_config
from ..core.atomic_files import write_files
from ..core.errors import ConfigError
from ..core.fields import replace
from ..core.interval_text import crowded_text
from ..core.jax_typed import asarray
from ..core.json_yaml import dumps
from ..core.units import engineering
from ..jaxprs.evaluator import interpreted
from ..model.metrics import priced_ops
from ..model.metrics.cache_placement import has_prefix_cache
from ..model.metrics.simulated import (
    HOST,
    batch_of,
    drawn_requests,
    engine_of,
    finite_run,
    has_two_pools,
    tabulated_steps,
)
from ..model.scenario import Scenario
from ..model.workloads import ContinuousServing
from ..model.workloads.continuous import AbstractContinuousServing
from ..model.workloads.disaggregated import AbstractPromptPool
from ..model.workloads.goodput import AbstractOpenServing, check_stable, sustained
from ..model.workloads.open_loop import OpenLoop
from ..model.workloads.pools_apart import decodes_of, pools_apart
from ..model.workloads.schedule import KV_TRANSFER
from ..model.workloads.steady_state import Lockstep
from ..report.drawing import render
from ..report.fleet_figures import pools_figure, timeline_figure
from ..report.run_folder import note_folder, read_run
from ..search.results import numbers_of, placed
from ..simulation.serving import (
    LEAST_REQUESTS,
    Engine,
    Requests,
    ServedTimes,
    arrivals,
    read_trace,
    simulate_apart,
    simulate_closed,
    simulate_open,
)
from ..simulation.serving.serve import Report
from .setup import prepare_jax
from .simulate_forms import FEWEST, bounds, demand_of, form_numbers, open_form, traced, with_contexts
from .terminal import console, job_text, text_table

__all__ = [
    "FOLDER", "FULLEST", "MOST", "Pools", "checked_design", "design_of", "engine_of", "host_seconds",
    "pools_of", "simulate_design", "simulate_prompts",
]  # fmt: skip


# Output of `codesign simulate`: a bar while requests are served, and the closed form beside the simulation.


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


def show_served(out: Console, scenario: Scenario, summary: dict[str, Any], group: float) -> None:
    """Closed form, simulation, and what another seed differs by."""
    closed, first, second = summary["closed_form"], summary["simulated"], summary["another_seed"]
    is_closed = summary["loop"] == "closed"
    served = f"{summary['requests']:,} requests of " + (f"one of {group:g} engines" if group != 1 else "all engines")
    title = f"{job_text(scenario)}: {served}, {summary['loop']} loop"
    heads = ("", "closed form", "simulated", "difference", "p50", "p90", "p99", "another seed")
    table = text_table(title, heads, ())

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
    bound = summary["no_scheduler"]
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
    return float(scenario.layout.sharing * scenario.plan.attention_dp) == 1


# `codesign simulate` of a design whose prompts have a pool of their own.


@dataclasses.dataclass(frozen=True)
class Pools:
    """Engines of both pools, how many there are of each, seconds that the cache of one token crosses the link, and
    seconds that a prompt spends behind the first stage of its engine."""

    prefill: Engine
    decode: Engine
    counts: tuple[int, int]
    token_s: float
    drain_s: float

    def simulated(self, requests: Requests, report: Report, *, timeline: bool = False) -> ServedTimes:
        """Requests one by one."""
        return simulate_apart(
            self.prefill, self.decode, self.counts, requests, lambda prompts: self.token_s * prompts,
            drain_s=self.drain_s, report=report, timeline=timeline,
        )  # fmt: skip

    def reseeded(self, seed: int) -> "Pools":
        """Copy whose accepted tokens are drawn with another seed."""
        return dataclasses.replace(self, decode=dataclasses.replace(self.decode, seed=seed))

    def closed_form(self, requests: Requests) -> OpenLoop:
        """The closed form of these requests.

        Raises:
            ConfigError: prompts or decodes would pile up.
        """
        demand = demand_of(self.decode, float(self.prefill.chunk), requests)
        engines = (asarray(float(self.counts[0])), asarray(float(self.counts[1])))
        crossing, decode = (
            asarray(self.token_s * requests.prompts.mean()),
            with_contexts(traced(self.decode), requests, demand),
        )
        seen = 1.5 if self.decode.async_scheduling else 0.5
        result = _apart(traced(self.prefill), decode, demand, engines, crossing, asarray(seen))
        alone = decodes_of(demand, engines[1])
        prompts = demand.rate / result.load
        check_stable(result, demand, lambda: jnp.minimum(prompts, engines[1] * sustained(decode, alone)))
        return result.later(self.drain_s).accepting(self.decode.accepted)


_apart = interpreted(pools_apart, always=True)


def pools_of(scenario: Scenario, decode: Engine, groups: float) -> Pools:
    """Prefill and decode pool of a design, of which `decode` is an engine of one, `groups` in number."""
    work, pool, layout = scenario.workload, scenario.cluster.prefill, scenario.layout.prefill
    assert isinstance(work, AbstractPromptPool)
    assert pool is not None
    names = {field.name for field in dataclasses.fields(ContinuousServing)} & {
        one.name for one in dataclasses.fields(work)
    }
    fields = {name: getattr(work, name) for name in names}
    plan = dataclasses.replace(layout.plan, prefill_devices=asarray(0.0), device_count=layout.devices)
    alike = float(work.together(scenario.layout))
    steps = tabulated_steps(Scenario(pool.cluster, ContinuousServing(**fields), plan), alone=True, alike=alike)
    stages, chunk = float(plan.pp), round(float(plan.token_budget))
    prefill = Engine(steps.times(1 / stages), budget=10**9, chunk=chunk)
    token_s, step = (
        float(_crossing_s(scenario)) / float(work.prompt_tokens()),
        float(work.prompt(scenario.layout).largest()),
    )
    last = prefill.times.linear_s(0, step) + prefill.times.pair_s * step * float(work.attended())
    counts = (round(float(work.prompt_engines(scenario.layout))), round(groups))
    return Pools(prefill, decode, counts, token_s, (stages - 1) * last)


@interpreted
def _crossing_s(scenario: Scenario) -> jax.Array:
    """Seconds in which the cache of a mean prompt crosses the link."""
    return asarray(sum(cost.time_s for op, cost in priced_ops(scenario) if op.phase == KV_TRANSFER))


FOLDER = "simulation"  # in the run's
MOST = {"seed": 2**32 - 1, "rate": 1e12, "cv": 10.0}  # of options
FULLEST = 0.98  # of a rate that the design sustains, above which an open loop is refused


def check_options(seed: int, rate: float, cv: float | None) -> None:
    """Refuse numbers of the command line outside their ranges."""
    for name, value in (("seed", seed), ("rate", rate), ("cv", cv or 0.0)):
        if not 0 <= value <= MOST[name]:
            raise ConfigError(f"simulate: --{name} {value:g} is outside [0, {MOST[name]:g}]")


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
    run, scenario = _stated_design(what, design, requests, seed, rate, cv)
    out = Console(stderr=True, quiet=as_json)
    with ServedBar(out) as bar:
        bar.say("pricing the design")
        closed = checked_design(scenario)
        usual = 1.0
        if isinstance(scenario.workload, AbstractOpenServing):
            rate, usual = rate or closed["requests_per_s"], float(scenario.workload.arrival_cv)
        cv = usual if cv is None else cv
        host = host_seconds(scenario, closed)
        engine, group = engine_of(scenario)
        most = batch_of(scenario) if rate or trace else engine.sequences  # a closed loop has no more under way
        engine = dataclasses.replace(engine, seed=seed, sequences=most)
        pools = None
        if has_two_pools(scenario):
            pools = pools_of(scenario, dataclasses.replace(engine, sequences=batch_of(scenario)), group)
            group, rate = 1.0, rate or 0.99 * FULLEST * closed["requests_per_s"]  # both pools together, nearly full
        stream = _requests(scenario, closed, group, requests, seed, rate, cv, trace)
        more = None if trace else _requests(scenario, closed, group, requests, seed + 1, rate, cv, trace)
        if stream.arrivals is not None:
            cached = stream.prefix_tokens * float(np.mean(stream.prefixes >= 0)) if len(stream.prefixes) else 0.0
            form = pools.closed_form(stream) if pools else open_form(engine, stream, cached, group)
            closed |= form_numbers(form.later(host)) | _load(stream.arrivals, form, group, _sustained(scenario, closed))
        if pools is not None:
            bar.begin(len(stream))
            result = pools.simulated(stream, bar.tell, timeline=True)
            again = pools.reseeded(seed + 1).simulated(more, bar.tell) if more else None
        else:
            if stream.arrivals is None:
                engine = dataclasses.replace(engine, sequences=_under_way(closed, group, host))
            result = _simulated(engine, stream, bar, timeline=True)
            again = _simulated(dataclasses.replace(engine, seed=seed + 1), more, bar) if more else None
    result, again = result.later(host), again and again.later(host)
    summary: dict[str, Any] = {
        "closed_form": closed, "simulated": result.summary(), "another_seed": again.summary() if again else {},
        "no_scheduler": {} if pools else bounds(engine, stream, result, group),
        "requests": len(stream), "loop": "closed" if stream.arrivals is None else "open",
    }  # fmt: skip
    if as_json:
        print(dumps(summary, indent=2))
    else:
        show_served(console(), scenario, summary, group)
    _write(run, summary, result, out)
    return 0


def _stated_design(
    what: Sequence[str], design: int, requests: int, seed: int, rate: float, cv: float | None
) -> tuple[Path | None, Scenario]:
    """Check the options, then read the design: folder of its run, if it is of one, and scenario.

    Raises:
        ConfigError: an option outside its range, no such run or design.
    """
    if requests < FEWEST:
        raise ConfigError(f"simulate: --requests {requests} must be at least {FEWEST}")
    check_options(seed, rate, cv)
    prepare_jax()
    run, scenario = design_of(what, design)
    if cv is not None and not rate and not isinstance(scenario.workload, AbstractOpenServing):
        raise ConfigError(f"simulate: --cv {cv:g} is of an open loop: say its --rate, in requests/s")
    return run, scenario


def _sustained(scenario: Scenario, closed: dict[str, float]) -> float:
    """Largest rate of a closed loop; an open loop was refused before where its rate is not sustained."""
    return math.inf if isinstance(scenario.workload, AbstractOpenServing) else closed["requests_per_s"]


def _load(arrivals: np.ndarray, form: OpenLoop, group: float, most: float) -> dict[str, float]:
    """Requests a second of so many engines, how busy these are, and the share of their places that is taken."""
    came = (len(arrivals) - 1) / float(np.ptp(arrivals)) * group
    busy = max(float(form.load), float(form.fill), came / most)
    places = {"queued_share": float(form.places.late), "queue_wait_s": float(form.places.mean)}
    return {"requests_per_s": came, "load": busy, "slot_utilisation": float(form.fill)} | places


def host_seconds(scenario: Scenario, closed: dict[str, float]) -> float:
    """Host's share of first tokens, seconds: no simulation knows it, so as much as the closed form adds."""
    bare = replace(scenario, {f"workload.{name}": asarray(0.0) for name in HOST})
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


def _requests(
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
    recorded = _recorded(trace, group) if trace else None
    if recorded is not None:
        span = float(recorded.arrivals[-1]) if recorded.arrivals is not None else 0.0
        rate = len(recorded) / span * group if span > 0 else 0.0
    if rate and not isinstance(work, AbstractOpenServing):  # of others what their full batch sustains is known
        most = closed["requests_per_s"]  # with its batch always full
        if rate > FULLEST * most:
            raise ConfigError(
                f"{rate:.4g} requests/s are {rate / most - 1:+.1%} of the {most:.4g} that the design sustains with its"
                f" batch and chunk: ask for {FULLEST * most:.4g} or fewer, take a plan with a larger batch,"
                " or simulate a run of so many requests: --num-prompts N"
            )
    if recorded is not None:
        return recorded
    drawn = drawn_requests(scenario, count, rng)
    came = arrivals(rng, rate / group, cv, count) if rate else None
    if came is not None:
        came = came * ((count - 1) / (rate / group * np.ptp(came)))  # by chance they come faster or slower than asked
    return dataclasses.replace(drawn, arrivals=came)


def _recorded(trace: str, group: float) -> Requests:
    """Requests of a trace that come to one of so many engines, which take turns."""
    result = read_trace(trace)
    assert result.arrivals is not None
    mine = np.arange(0, len(result), max(round(group), 1))
    if len(mine) < LEAST_REQUESTS:
        raise ConfigError(f"trace {trace!r}: {len(result)} requests over {group:g} engines leave one to an engine")
    return Requests(result.prompts[mine], result.outputs[mine], result.arrivals[mine])


def _under_way(closed: dict[str, float], group: float, host: float) -> int:
    """Requests that one engine has at a time in a closed loop: those of its clients, but for those at the host."""
    return max(round((closed["concurrency"] - closed["requests_per_s"] * host) / group), 1)


def _simulated(engine: Engine, requests: Requests, bar: ServedBar, *, timeline: bool = False) -> ServedTimes:
    """Requests as they come, or in a closed loop as many at a time as the engine has sequences."""
    bar.begin(len(requests))
    if requests.arrivals is not None:
        return simulate_open(engine, requests, report=bar.tell, timeline=timeline)
    if engine.sequences * 4 > len(requests):
        least = f"{engine.sequences} at a time need at least {4 * engine.sequences}"
        raise ConfigError(f"--requests {len(requests)}: {least}")
    return simulate_closed(engine, requests, engine.sequences, report=bar.tell, timeline=timeline)


def _write(run: Path | None, summary: dict[str, Any], served: ServedTimes, out: Console) -> None:
    """Write numbers and timeline into the folder of the run, if it is of one."""
    if run is None:
        return
    folder = run / FOLDER
    line, handed = served.timeline, served.handed
    figure = timeline_figure(line) if handed is None else pools_figure(line, handed)
    write_files({folder / "summary.json": dumps(summary, indent=2), folder / "timeline.png": render(figure)})
    note_folder(run, FOLDER)
    out.print(f"kept: {folder}")


# `codesign simulate --num-prompts`: a benchmark's run on a design, from its first request to its last.


MOST_PROMPTS = 1_000_000
TIMES = {"ttft_s": "time to first token", "tpot_s": "time per output token", "e2e_s": "whole request"}


def simulate_prompts(
    what: Sequence[str], prompts: int, *, design: int, seed: int, rate: float, cv: float | None, as_json: bool
) -> int:
    """Simulate such a run and print its latencies and throughput.

    Raises:
        ConfigError: no such run or design, one that serves no continuous batches, or a request that never fits.
    """
    if not 1 <= prompts <= MOST_PROMPTS:
        raise ConfigError(f"simulate: --num-prompts {prompts} is outside [1, {MOST_PROMPTS}]")
    if not rate >= 0:
        raise ConfigError(f"simulate: --rate {rate:g} is no rate; allowed: requests/s from 0 on, inf for all at once")
    if not 0 <= (cv or 0.0) <= MOST["cv"] or not 0 <= seed <= MOST["seed"]:
        raise ConfigError(f"simulate: --cv is in [0, {MOST['cv']:g}] and --seed in [0, {MOST['seed']}]")
    if cv is not None and not 0 < rate < math.inf:
        raise ConfigError(f"simulate: --cv {cv:g} is of requests at a rate: say its --rate, in requests/s")
    prepare_jax()
    _, scenario = design_of(what, design)
    _check(scenario)
    work: Any = scenario.workload
    if isinstance(work, AbstractOpenServing):
        rate, cv = rate or numbers_of(scenario)["requests_per_s"], float(work.arrival_cv) if cv is None else cv
    clients = float(scenario.plan.micro_batch)
    result = finite_run(scenario, prompts, clients=clients, rate=rate, cv=1.0 if cv is None else cv, seed=seed)
    summary = result.summary()
    answers = float(work.output_tokens)
    summary |= {"requests": prompts, "duration_s": prompts / result.rate, "output_tokens_per_s": result.rate * answers}
    if as_json:
        print(dumps(summary, indent=2))
        return 0
    how = f"{clients:g} clients" if rate == 0 else "all at once" if math.isinf(rate) else f"{rate:g} requests/s"
    _show(console(), f"{job_text(scenario)}: a run of {prompts:,} requests, {how}, simulated", summary)
    return 0


def _check(scenario: Scenario) -> None:
    work = scenario.workload
    if not isinstance(work, AbstractContinuousServing):
        raise ConfigError(
            f"{type(work).__name__} serves no continuous batches: simulate needs workload=continuous or continuous_fp8"
        )
    if has_two_pools(scenario):
        raise ConfigError("simulate: --num-prompts is of one pool; leave it out for workload=disaggregated")
    check_plan(scenario)
    check_boxes(scenario)


def _show(out: Console, title: str, summary: dict[str, Any]) -> None:
    rows = (
        (label, *(_seconds(summary[key]) for key in (name, *(f"{name}.p{q}" for q in (50, 90, 99)))))
        for name, label in TIMES.items()
    )
    out.print(text_table(title, ("", "mean", "p50", "p90", "p99"), rows))
    out.print(
        f"from the first request to the last answer {engineering(summary['duration_s'], 's')}:"
        f" {summary['output_tokens_per_s']:,.4g} output tokens/s, {summary['rate']:.4g} requests/s"
    )
    if summary["preempted"]:
        out.print(f"{summary['preempted']:,.0f} times a sequence lost its blocks and was computed again")


def _seconds(value: float) -> str:
    return engineering(value, "s") if math.isfinite(value) else ""
