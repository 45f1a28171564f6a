"""Device counts that a search chooses from, from a bound on what a demand needs.

No design does the job with fewer than `least_devices`: its arithmetic would need more than the peak of its number
format, or its weights more than the memory. The listed counts begin there and end at several times of it; where the
best design stands at the upper end, or none suffices, the search goes on with more (`more_devices`); then with the
counts beside the best one (`between`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.errors import ConfigError
from ..core.fields import check_ranges
from ..core.json_yaml import read_yaml
from ..core.resources import conf_dir
from ..model.scenario import Scenario
from ..model.workloads import AbstractServing, Training, TrainingRun
from ..model.workloads.continuous import AbstractContinuousServing
from .starting import names

COUNT = "device_count"
"""Plan field that says how many devices there are, where that varies."""
BOX = 8
"""Devices of the largest box that is sold: larger counts are whole boxes of it, smaller ones a part of one."""
PARTS = (1, 2, 4)
REACH = 10.0  # times the least: a tenth of the peak is what poor serving reaches
MOST = 5  # counts that are listed at first
PARTS_OF_MANY = 12  # devices above which a replica is looked for among up to twice the least, below among four times
RACKS = 3  # counts of whole racks beside them
MOST_LEFT_OUT = 16  # counts that are looked at where no listed one will do
BESIDE = 8  # counts below the best of them
LARGEST = 2**17
MOST_WRITTEN = 1e12  # devices that a message writes out
SIZES = 10  # powers of two of whole boxes that one training job is tried on


def least_devices(scenario: Scenario, flops_per_s: float) -> float:
    """A bound from below on the devices of a job.

    Args:
        scenario: its accelerator, model and number formats.
        flops_per_s: arithmetic of matrix products that the demand asks for, FLOP/s; 0 where there is none.

    Raises:
        ConfigError: the accelerator has no engine for the number format.
    """
    accelerator, workload = scenario.cluster.accelerator, scenario.workload
    precision = workload.precision
    peaks = accelerator.peak_flops_per_s
    if precision.compute not in peaks:
        raise ConfigError(f"{accelerator.name} computes no {precision.compute} (known: {', '.join(sorted(peaks))})")
    model = workload.model
    stored = getattr(model, "stored_bytes", None)
    weights = float(model.parameters() * precision.bytes_of("weights") if stored is None else stored(precision))
    room = float(getattr(accelerator.hbm, "capacity_bytes", math.inf))
    formats = () if precision.by_class is None else precision.by_class.products()
    peak = max(float(peaks[name]) for name in {precision.compute, *formats} if name in peaks)
    held = weights / room if room > 0 else 1.0  # without any memory nothing fits, which others say
    return max(flops_per_s / peak, held)


def serving_flops_per_s(workload: AbstractContinuousServing, requests_per_s: float) -> float:
    """A bound from below on the arithmetic of matrix products that a rate of requests asks for, FLOP/s.

    2 FLOPs a weight and token, without the head, which few tokens of a prompt meet.
    """
    layers = float(workload.model.active_parameters()) - float(workload.model.vocab * workload.model.hidden)
    return 2 * layers * requests_per_s * float(workload.computed_tokens() + workload.output_tokens)


def left_open(overrides: Iterable[str], resolved: Mapping[str, Any]) -> bool:
    """True if nothing says how many devices there are, so that the number is that of the base configuration.

    An experiment, a space with `device_count`, a file of the user's with another number are such a word.

    Args:
        overrides: as they were typed.
        resolved: the configuration that they compose to.
    """
    overrides = list(overrides)
    if any("device_count" in text for text in overrides) or names(overrides, "experiment"):
        return False
    if not names(overrides, "model", "workload", "accelerator"):
        return False
    usual = read_yaml((conf_dir() / "config.yaml").read_text(encoding="utf-8"))["cluster"]["device_count"]
    space: Mapping[str, Any] = resolved.get("space") or {}
    return COUNT not in (space.get("plan") or {}) and resolved["cluster"]["device_count"] == usual


def counts_of_job(scenario: Scenario) -> list[int]:
    """Device counts to choose from: those that the rate of a job that serves may need, or those of one replica.

    None for jobs that neither serve nor train a model of layers.

    Raises:
        ConfigError: a number outside its range, which no bound can be formed of.
    """
    check_ranges(scenario)
    workload = scenario.workload
    if isinstance(workload, Training | TrainingRun):
        least = max(least_devices(scenario, 0.0), BOX)
        return [BOX * 2**power for power in range(SIZES) if BOX * 2**power >= least]
    if not isinstance(workload, AbstractServing):
        return []
    arrivals = getattr(workload, "arrivals_per_s", None)
    if arrivals is None or not isinstance(workload, AbstractContinuousServing):
        return counts_of_replica(scenario, least_devices(scenario, 0.0))
    least = least_devices(scenario, serving_flops_per_s(workload, float(arrivals)))
    return device_counts(least, rack=rack_of(scenario))


def counts_of_replica(scenario: Scenario, least: float) -> list[int]:
    """Device counts to choose from for one replica that `least` devices can hold."""
    return device_counts(least, 2.0 if least > PARTS_OF_MANY else 4.0, rack=rack_of(scenario))


def rack_of(scenario: Scenario) -> int:
    """Devices of a rack that is one scale-up domain, where it is no whole number of the largest boxes' powers of two.

    0 where a domain is a box, or joins a power of two.
    """
    endpoints = getattr(scenario.cluster.network["scale_up"].fabric, "endpoints", None)
    count = 0 if endpoints is None else int(endpoints)
    return count if count > BOX and count & (count - 1) else 0


def device_counts(least: float, reach: float = REACH, batch: int = 0, rack: int = 0) -> list[int]:
    """Counts to choose from: parts of a box and whole boxes from a bound from below to `reach` times of it.

    Args:
        least: the bound.
        reach: times of it at which the list ends.
        batch: sequences of a training step, which replicas share evenly; 0 where there is none.
        rack: devices of a rack, whole ones of which are listed, too; 0 where there are none.

    Raises:
        ConfigError: more than any cluster has.
    """
    if least > LARGEST:
        needed = f"{least:,.0f}" if least < MOST_WRITTEN else f"{least:.3g}"
        raise ConfigError(
            f"the demand needs {needed} devices at their peak: more than {LARGEST:,}, the most that are searched; "
            f"they carry {LARGEST / least:.1e} of it"
        )
    top = max(BOX * math.ceil(reach * least / BOX), BOX)
    boxes = range(BOX * max(1, math.floor(least / BOX)), top + 1, BOX)
    every = [count for count in (*PARTS, *boxes) if count >= least and shares(count, batch)]
    racks: set[int] = (
        {count for count in range(rack, top + rack, rack) if count >= least and shares(count, batch)} if rack else set()
    )
    if len(every) <= MOST:
        return sorted({*every, *racks}) or [2 ** math.ceil(math.log2(least))]
    ratio = (every[-1] / every[0]) ** (1 / (MOST - 1))
    wanted = [every[0] * ratio**step for step in range(MOST)]
    racks = {*sorted(racks)[:: math.ceil(len(racks) / RACKS)]} if racks else racks
    return sorted({*racks, *(min(every, key=lambda count: abs(math.log(count / want))) for want in wanted)})


def shares(count: int, batch: int, stages: int = 1) -> bool:
    """True if replicas of up to so many stages can share a batch evenly on so many devices.

    The count's odd factors divide the batch, or the pipeline has as many stages; its layers need not divide evenly.
    """
    while count % 2 == 0:
        count //= 2
    return count // math.gcd(count, batch) <= stages


def more_devices(counts: list[int], batch: int = 0, rack: int = 0) -> list[int]:
    """The counts that follow where the largest of these is too few; none where nothing larger is built."""
    top = counts[-1]
    return [] if top >= LARGEST else device_counts(float(top), 4.0, batch, rack)


def left_out(counts: Sequence[int], batch: int = 0, stages: int = 1) -> list[int]:
    """Counts of whole boxes that a list leaves out between its ends, evenly where they are many."""
    every = [count for count in range(BOX * (counts[0] // BOX) + BOX, counts[-1], BOX) if shares(count, batch, stages)]
    return _some([count for count in every if count not in counts], MOST_LEFT_OUT)


def between(
    counts: Sequence[int], best: int, batch: int = 0, most_above: int = BESIDE // 2, stages: int = 1
) -> list[int]:
    """Counts of whole boxes that a list left out around its best: up to the listed ones below and above that."""
    if best <= BOX:
        return [best]
    smaller = max((count for count in counts if count < best), default=best)
    larger = min((count for count in counts if count > best), default=best)
    first = BOX * (smaller // BOX) + BOX
    below = [count for count in range(first, best + 1, BOX) if shares(count, batch, stages)]
    above = [count for count in range(BOX * (best // BOX) + BOX, larger, BOX) if shares(count, batch, stages)]
    return sorted({*_some(below[::-1], BESIDE), *_some(above, most_above), best})


def _some(counts: list[int], most: int) -> list[int]:
    """At most so many of these counts, evenly, the first among them."""
    return counts[:: math.ceil(len(counts) / most)] if counts else []


def listed(counts: Sequence[float]) -> str:
    """Counts in words: `8, 16, 24 ... 96`."""
    texts = [f"{count:,.0f}" for count in counts]
    return " or ".join(texts) if len(texts) < 5 else f"{', '.join(texts[:3])} ... {texts[-1]}"
