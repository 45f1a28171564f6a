"""Request classes of a fleet: what each asks, how often, within which limits; of options, or of a labelled trace."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from ..core.errors import ConfigError, suggestion
from ..core.units import engineering
from ..simulation.serving import Requests, read_trace
from .plain_values import count_of, number, rate

__all__ = ["FleetClass", "classes_of", "fleet_class"]

TIMES, POINTS = ("ttft", "tpot"), {"p50": 0.5, "p90": 0.9, "p99": 0.99}
LIMITS = tuple(f"{time}_{point}" for time in TIMES for point in POINTS)
NUMBERS = ("cv", "input_cv", "output_cv", "cached")
KEYS = ("rate", "input", "output", *LIMITS, *NUMBERS)
LEAST_TRACED = 20
EXAMPLE = "write --class chat:rate=20/s,input=800,output=300,ttft_p99=500ms,tpot_p99=50ms"
MOST_CV = 10.0


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


def classes_of(texts: Sequence[str], trace: str | None = None) -> list[FleetClass]:
    """Classes of `--class NAME:key=value,...`, with rates, lengths and variations of a trace where there is one.

    Raises:
        ConfigError: no class, one that is named twice or lacks something, or that the trace does not have.
    """
    said = [_read(text) for text in texts]
    if not said:
        raise ConfigError(f"name a class of requests: {EXAMPLE}")
    names = [name for name, _ in said]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise ConfigError(f"--class {twice}: named twice: write each class once")
    if trace is None:
        return [fleet_class(name, values) for name, values in said]
    asked = read_trace(trace)
    measured = _measured(asked, trace)
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


def _value(name: str, key: str, text: str) -> float:
    option = f"--class {name}: {key}"
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
    limits = {time: [key for key in values if key.startswith(f"{time}_p")] for time in TIMES}
    for time, keys in limits.items():
        if len(keys) != 1:
            what = "is missing" if not keys else f"is there {len(keys)} times ({', '.join(keys)})"
            raise ConfigError(f"--class {name}: a limit {time}_p50, {time}_p90 or {time}_p99 {what}; {EXAMPLE}")
    points = {keys[0].rpartition("_")[2] for keys in limits.values()}
    if len(points) > 1:
        raise ConfigError(
            f"--class {name}: {limits['ttft'][0]} and {limits['tpot'][0]}: limits of one class are on one percentile"
        )
    more = {key: values[key] for key in ("cv", "input_cv", "output_cv", "cached") if key in values}
    return FleetClass(
        name, values["rate"], values["input"], values["output"], values[limits["ttft"][0]], values[limits["tpot"][0]],
        POINTS[points.pop()], **more,
    )  # fmt: skip


def _measured(asked: Requests, trace: str) -> dict[str, dict[str, float]]:
    """Class -> rate, lengths and variations of a trace with labels.

    Raises:
        ConfigError: no labels or times, or a class of too few requests.
    """
    if not asked.class_names:
        raise ConfigError(f"--trace {trace}: no column class says which class a request is of")
    assert asked.arrivals is not None
    span = float(asked.arrivals[-1] - asked.arrivals[0])
    result: dict[str, dict[str, float]] = {}
    for code, name in enumerate(asked.class_names):
        own = np.flatnonzero(asked.classes == code)
        if len(own) < LEAST_TRACED or span <= 0:
            raise ConfigError(
                f"--trace {trace}: class {name} has {len(own)} requests over {span:g} s: at least {LEAST_TRACED}"
                " over some time"
            )
        gaps = np.diff(asked.arrivals[own])
        prompts, outputs = asked.prompts[own], asked.outputs[own]
        result[name] = {
            "rate": len(own) / span, "input": float(prompts.mean()), "output": float(outputs.mean()),
            "cv": min(float(gaps.std() / gaps.mean()), MOST_CV),
            "input_cv": float(prompts.std() / prompts.mean()), "output_cv": float(outputs.std() / outputs.mean()),
        }  # fmt: skip
    return result
