"""Request classes of a fleet: what each asks, how often, within which limits; of options, or of a labelled trace."""

import dataclasses
import math
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..config.consistency import at_rate
from ..core.errors import ConfigError, suggestion
from ..core.fields import replace
from ..core.units import engineering
from ..model.metrics.simulated import batch_of, drawn_requests, engine_of
from ..model.scenario import Scenario
from ..model.workloads.goodput import AbstractGoodputServing
from ..search.results import numbers_of
from ..simulation.fleet import simulate_fleet
from ..simulation.serving import Engine, Requests, arrivals, read_trace
from .plain_values import count_of, number, rate
from .simulate import host_seconds

__all__ = [
    "FLEET_FILE",
    "ChosenPool",
    "FleetClass",
    "ReplayedPool",
    "classes_of",
    "fleet_class",
    "replay",
    "said_classes",
    "sustained_load",
]


FLEET_FILE = "fleet.json"
TIMES, POINTS = ("ttft", "tpot"), {"p50": 0.5, "p90": 0.9, "p99": 0.99}
LIMITS = tuple(f"{time}_{point}" for time in TIMES for point in POINTS)
NUMBERS = ("cv", "input_cv", "output_cv", "cached")
KEYS = ("rate", "input", "output", *LIMITS, *NUMBERS)
LEAST_TRACED = 20
EXAMPLE = "write --class chat:rate=20/s,input=800,output=300,ttft_p99=500ms,tpot_p99=50ms"
MOST_CV = 10.0
ONE_KIND = "--rate 20/s --input 800 --output 300 --ttft-p99 500ms --tpot-p99 50ms"
ONLY = "requests"  # name of the class that options make up


@dataclasses.dataclass(frozen=True)
class FleetClass:
    """Requests of one kind.

    rate: a second; input, output: tokens; ttft_s, tpot_s: limits on the percentile `attainment` of each; cv, input_cv,
    output_cv: variation of gaps and lengths; cached: share of prompt tokens found in a cache.
    """

    name: str
    rate: float
    input: float
    output: float
    ttft_s: float
    tpot_s: float
    attainment: float = 0.99
    cv: float = 1.0
    input_cv: float = 0.0
    output_cv: float = 0.0
    cached: float = 0.0

    @property
    def leaves(self) -> dict[str, float]:
        """Dotted path -> number of a scenario that serves the class."""
        return {
            "workload.input_tokens": self.input, "workload.output_tokens": self.output,
            "workload.input_cv": self.input_cv, "workload.output_cv": self.output_cv,
            "workload.arrival_cv": self.cv, "workload.cached_ratio": self.cached,
            "workload.slo.ttft_s": self.ttft_s, "workload.slo.tpot_s": self.tpot_s,
        }  # fmt: skip

    def text(self) -> str:
        """The class on one line."""
        share = f"p{100 * self.attainment:.0f}"
        return (
            f"{self.rate:.4g}/s, {self.input:,.0f} tokens in, {self.output:,.0f} out, TTFT {share}"
            f" {engineering(self.ttft_s, 's')}, TPOT {share} {engineering(self.tpot_s, 's')}"
        )


def said_classes(options: Namespace) -> list[str]:
    """Texts of `--class`; of requests of one kind, said by options of their own, the one that they make up.

    Raises:
        ConfigError: such an option beside `--class`, or one that is missing.
    """
    said = {key: getattr(options, key) for key in ("rate", "input", "output", *LIMITS)}
    said_options = [f"{key}={value}" for key, value in said.items() if value is not None]
    if said_options and options.classes:
        key, _, value = said_options[0].partition("=")
        raise ConfigError(
            f"--{key.replace('_', '-')} {value} beside --class: write it there, as in --class chat:{said_options[0]}"
        )
    missing = [key for key in ("rate", "input", "output") if said_options and said[key] is None and not options.trace]
    if missing:
        raise ConfigError(f"--{missing[0]} is missing, as in {ONE_KIND}")
    return [f"{ONLY}:{','.join(said_options)}"] if said_options else options.classes


def classes_of(texts: Sequence[str], trace: str | None = None) -> list[FleetClass]:
    """Classes of `--class NAME:key=value,...`, with rates, lengths and variations of a trace where there is one.

    Raises:
        ConfigError: no class, one that is named twice or lacks something, or that the trace does not have.
    """
    said = [_read(text) for text in texts]
    if not said:
        raise ConfigError(f"name a class of requests: {EXAMPLE}; of one kind alone {ONE_KIND}")
    names = [name for name, _ in said]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise ConfigError(f"--class {twice}: named twice: write each class once")
    if trace is None:
        return [fleet_class(name, values) for name, values in said]
    stream = read_trace(trace)
    measured = _measured(stream, trace)
    unknown = [name for name in names if name not in measured]
    if unknown:
        raise ConfigError(
            f"--class {unknown[0]}: the trace has no such class (it has {', '.join(measured)})"
            f"{suggestion(unknown[0], measured)}"
        )
    silent = [name for name in measured if name not in names]
    if silent:
        raise ConfigError(
            f"--trace {trace}: no limits for its class {silent[0]}: add --class {silent[0]}:ttft_p99=1s,..."
        )
    return [fleet_class(name, measured[name] | values) for name, values in said]


def _read(text: str) -> tuple[str, dict[str, float]]:
    name, colon, rest = text.partition(":")
    name = name.strip()
    if not colon or not name:
        raise ConfigError(f"--class {text!r} has no name before a colon; {EXAMPLE}")
    values: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in rest.split(","))):
        key, sign, value = (each.strip() for each in part.partition("="))
        if not sign or key not in KEYS:
            raise ConfigError(
                f"--class {name}: {part!r} is none of {', '.join(KEYS)}{suggestion(key, KEYS)}; {EXAMPLE}"
            )
        if key in values:
            raise ConfigError(f"--class {name}: {key} twice: write it once")
        values[key] = _value(name, key, value)
    return name, values


def _option(name: str, key: str) -> str:
    """The words that said a number of a class; requests of one kind have options of their own."""
    return f"--{key.replace('_', '-')}" if name == ONLY else f"--class {name}: {key}"


def _value(name: str, key: str, text: str) -> float:
    option = _option(name, key)
    if key == "rate":
        try:
            return rate(text)
        except ConfigError:
            raise ConfigError(f"{option} = {text!r} is no rate of requests; write 30/s, 1800/min or 2M/day") from None
    if key in ("input", "output"):
        return count_of(text, option)
    if key in LIMITS:
        return number(text, "s", option, "2s or 50ms")
    try:
        result = float(text)
    except ValueError:
        result = math.nan
    most = 0.99 if key == "cached" else MOST_CV
    if not 0 <= result <= most:
        raise ConfigError(f"{option} = {text!r} is no number in [0, {most:g}]")
    return result


def fleet_class(name: str, values: dict[str, float]) -> FleetClass:
    """A class of what was said and measured of it.

    Raises:
        ConfigError: what it lacks, or limits on different percentiles.
    """
    for key in ("rate", "input", "output"):
        if key not in values:
            raise ConfigError(f"--class {name}: {key} is missing; {EXAMPLE}, or take them from --trace FILE")
    lacks, example = (f"--class {name}:", EXAMPLE) if name != ONLY else ("requests of one kind:", ONE_KIND)
    limits = {time: [key for key in values if key.startswith(f"{time}_p")] for time in TIMES}
    for time, keys in limits.items():
        if len(keys) != 1:
            what = "is missing" if not keys else f"is there {len(keys)} times ({', '.join(keys)})"
            raise ConfigError(f"{lacks} a limit {time}_p50, {time}_p90 or {time}_p99 {what}; {example}")
    points = {keys[0].rpartition("_")[2] for keys in limits.values()}
    if len(points) > 1:
        raise ConfigError(f"{lacks} {limits['ttft'][0]} and {limits['tpot'][0]}: both are to be on one percentile")
    more = {key: values[key] for key in ("cv", "input_cv", "output_cv", "cached") if key in values}
    return FleetClass(
        name, values["rate"], values["input"], values["output"], values[limits["ttft"][0]], values[limits["tpot"][0]],
        POINTS[points.pop()], **more,
    )  # fmt: skip


def _measured(requests: Requests, trace: str) -> dict[str, dict[str, float]]:
    """Class -> rate, lengths and variations of a trace with labels.

    Raises:
        ConfigError: no labels or times, or a class of too few requests.
    """
    if not requests.class_names:
        raise ConfigError(f"--trace {trace}: no column class says which class a request is of")
    assert requests.arrivals is not None
    span = float(requests.arrivals[-1] - requests.arrivals[0])
    result: dict[str, dict[str, float]] = {}
    for code, name in enumerate(requests.class_names):
        rows = np.flatnonzero(requests.classes == code)
        if len(rows) < LEAST_TRACED or span <= 0:
            raise ConfigError(
                f"--trace {trace}: class {name} has {len(rows)} requests over {span:g} s: at least {LEAST_TRACED}"
                " over some time"
            )
        gaps = np.diff(requests.arrivals[rows])
        prompts, outputs = requests.prompts[rows], requests.outputs[rows]
        result[name] = {
            "rate": len(rows) / span, "input": float(prompts.mean()), "output": float(outputs.mean()),
            "cv": min(float(gaps.std() / gaps.mean()), MOST_CV),
            "input_cv": float(prompts.std() / prompts.mean()), "output_cv": float(outputs.std() / outputs.mean()),
        }  # fmt: skip
    return result


# Replay of a chosen fleet: each pool's part of its class's requests, served one by one, beside the closed form.


ROUTER = "round_robin"
TRUSTED_LOAD = 0.8
WARM = 0.2  # of the requests, which are not measured
UNDER_WAY = 10.0  # times as many requests as are under way at once, at least: a fleet that starts empty fills up first


class ChosenPool(NamedTuple):
    """A pool of the fleet: its class, kind, one replica as a scenario, replicas and requests/s of all of them."""

    request_class: FleetClass
    kind: str
    scenario: Scenario
    replicas: int
    rate: float


@dataclasses.dataclass(frozen=True)
class ReplayedPool:
    """Times at the percentile of the class's limits, closed form and simulated, and the share that kept both limits."""

    request_class: FleetClass
    kind: str
    requests: int
    ttft_closed_s: float
    ttft_simulated_s: float
    tpot_closed_s: float
    tpot_simulated_s: float
    attainment: float
    ttft_kept: float
    tpot_kept: float
    load: float

    @property
    def meets(self) -> bool:
        """True if each limit is kept by the agreed share of the requests."""
        return min(self.ttft_kept, self.tpot_kept) >= self.request_class.attainment

    def summary(self) -> dict[str, Any]:
        """Numbers by name."""
        measured = {name: getattr(self, name) for name in REPLAYED}
        doubt = ""
        if self.load > TRUSTED_LOAD:
            doubt = (
                f"{self.request_class.name} on {self.kind}: engines are {self.load:.0%} busy, where queues are longer"
                " than closed forms are held against simulations for: believe the simulation"
            )
        return {
            "class": self.request_class.name, "kind": self.kind, **measured, "agreed": self.request_class.attainment,
            "meets": self.meets, "doubt": doubt,
        }  # fmt: skip


REPLAYED = (
    "requests", "ttft_closed_s", "ttft_simulated_s", "tpot_closed_s", "tpot_simulated_s", "attainment", "ttft_kept",
    "tpot_kept", "load",
)  # fmt: skip


LOWER, MOST_LOWER = 0.93, 10  # of a rate that does not keep the limits in a replay, and how often it is lowered


def sustained_load(pool: ChosenPool, requests: int, seed: int) -> float:
    """Share of a pool's requests/s, below 1, at which a replay keeps the limits; 0: at none that is tried."""
    priced, share = _Priced.of(pool), 1.0
    for _ in range(MOST_LOWER):
        share *= LOWER
        ttft, tpot = priced.served(pool.request_class, share * pool.rate, requests, seed)
        if min(_share(ttft, pool.request_class.ttft_s), _share(tpot, pool.request_class.tpot_s)) >= (
            pool.request_class.attainment
        ):
            return share
    return 0.0


def replay(pools: Sequence[ChosenPool], requests: int, seed: int) -> list[ReplayedPool]:
    """Serve so many requests on each pool, dealt to its engines by turns; more where answers are long."""
    return [_replayed(pool, requests, seed) for pool in pools]


def _share(times: np.ndarray, limit: float) -> float:
    return float((times <= limit).mean())


class _Priced(NamedTuple):
    """A pool whatever its requests/s: an engine, how many there are, the host's part of a first token.

    closed: the closed form's numbers at the pool's own requests/s.
    """

    loaded: Scenario
    closed: dict[str, float]
    host_s: float
    engine: Engine
    engines: int

    @classmethod
    def of(cls, pool: ChosenPool) -> "_Priced":
        """Price a pool."""
        path = "cluster.device_count" if pool.scenario.plan.device_count is None else "plan.device_count"
        replicated = replace(pool.scenario, {path: float(pool.scenario.layout.devices) * pool.replicas})
        work = replicated.workload
        assert isinstance(work, AbstractGoodputServing)
        loaded = dataclasses.replace(replicated, workload=at_rate(work, pool.rate))
        closed = numbers_of(loaded)
        engine, engines = engine_of(loaded)
        engine = dataclasses.replace(engine, sequences=batch_of(loaded))
        return cls(loaded, closed, host_seconds(loaded, closed), engine, round(engines))

    def requests(self, rate: float, least: int) -> int:
        """Requests of a replay: `least`, or more where many are under way at once."""
        return max(least, round(UNDER_WAY * rate * self.closed["e2e_s"]))

    def served(self, one: FleetClass, rate: float, least: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Times to a first token and between tokens of the requests after the warm-up, at so many requests/s."""
        rng, count = np.random.default_rng(seed), self.requests(rate, least)
        requests = drawn_requests(self.loaded, count, rng)
        if one.cv == 1.0:
            came = arrivals(rng, rate, 1.0, count)
        else:  # the class's variation is that of the gaps at an engine, as in the closed form
            each = -(-count // self.engines)
            parts = [arrivals(rng, rate / self.engines, one.cv, each) for _ in range(self.engines)]
            came = np.sort(np.concatenate(parts))[:count]
        requests = dataclasses.replace(requests, arrivals=came * ((count - 1) / (rate * np.ptp(came))))
        engine = dataclasses.replace(self.engine, seed=seed)
        result = simulate_fleet(engine, requests, ROUTER, replicas=self.engines, seed=seed)
        measured = slice(int(WARM * count), None)
        first, last, came = result.first[measured], result.last[measured], result.came[measured] - self.host_s
        return first - came, (last - first) / np.maximum(requests.outputs[measured] - 1, 1)


def _replayed(pool: ChosenPool, least: int, seed: int) -> ReplayedPool:
    one, priced = pool.request_class, _Priced.of(pool)
    ttft, tpot = priced.served(one, pool.rate, least, seed)
    closed, point = priced.closed, f"p{100 * one.attainment:.0f}"
    return ReplayedPool(
        one, pool.kind, priced.requests(pool.rate, least), closed[f"ttft_{point}_s"],
        float(np.percentile(ttft, 100 * one.attainment)), closed[f"tpot_{point}_s"],
        float(np.percentile(tpot, 100 * one.attainment)),
        float(((ttft <= one.ttft_s) & (tpot <= one.tpot_s)).mean()), _share(ttft, one.ttft_s), _share(tpot, one.tpot_s),
        max(closed["prefill_utilisation"], closed["slot_utilisation"]),
    )  # fmt: skip
