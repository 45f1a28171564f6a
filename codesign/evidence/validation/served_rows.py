"""The one place where served rows at a concurrency are predicted: as `evaluate` does with the row's engine.

A row is a scenario of `ContinuousServing` on the kernels and the all-reduce of its engine, with what
`calibration/frameworks/serving.yaml` adds, which is what `framework=` brings to any study: host, clients in step
(`Lockstep`), and clients without a place where the cache has room for fewer than all (`served_room`).
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...config.groups import conf_dir
from ...core.yaml_io import read_yaml
from ...model.metrics import evaluate
from ...model.scenario import Scenario
from ...model.workloads import ContinuousServing
from .batches import batches, grouped, vectorised
from .served_jobs import Job, continuous_sheet, scenario
from .sheets import Sheet

METHOD = "continuous batching at the concurrency, prompts beside decodes in steps of 8192 tokens"
STATIC = "static batches: no waiting, no prompts between decode steps"
ALONE = {
    "kernel_slowdown": 1.0, "step_overhead_s": 0.0, "request_overhead_s": 0.0, "prompt_token_s": 0.0,
    "expert_launch_s": 0.0, "client_overhead_s": 0.0, "burst_ratio": 0.0, "cohort_prompts": 1.0,
}  # fmt: skip
"""Constants of no engine: kernels alone, clients that are not in step."""


class Service(NamedTuple):
    """Seconds of jobs to the first token and between tokens."""

    first_s: np.ndarray
    between_s: np.ndarray


def _first_and_between(one: Scenario):
    metrics = evaluate(one)
    return metrics.extra["ttft_s"], metrics.extra["tpot_s"]


def _rate_and_share(one: Scenario):
    metrics = evaluate(one)
    return metrics.tokens_per_s / one.cluster.device_count, metrics.usage["hbm"]


_priced, _rated = vectorised(_first_and_between), vectorised(_rate_and_share)


def static_service(jobs: Sequence[Job]) -> Service:
    """Service of static batches of `sequences`: the first token of one prompt alone.

    Raises:
        ConfigError: a device lacks a number format.
    """
    together = [scenario(job, job.sequences) for job in jobs]
    alone = [scenario(job, 1.0) for job in jobs]
    first, between = grouped(batches([*together, *alone]), _priced)
    count = len(jobs)
    return Service(first[count:], between[:count])


@functools.cache
def stored_serving() -> dict[str, dict[str, float]]:
    """Constants of engines, as last fitted."""
    path = conf_dir() / "calibration" / "frameworks" / "serving.yaml"
    data = read_yaml(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {engine: dict(constants) for engine, constants in data.items() if engine != "provenance"}


def _times(one: Scenario):
    """First token, and between tokens: as `evaluate` says, without memory and money."""
    layout, job = one.layout, one.workload
    assert isinstance(job, ContinuousServing)
    ops = job.lower(layout)
    costs = one.cluster.price(ops, layout, job.repeats(layout))
    priced = list(zip(ops, costs, strict=True))
    extra = job.timeline(priced, layout).extra
    return extra["ttft_s"], extra["tpot_s"]


timed = vectorised(_times)
"""Stacked scenarios -> seconds to the first token, and between tokens."""


def sheets(jobs: Sequence[Job], constants: Mapping[str, dict[str, float]], crowded: np.ndarray) -> list[Sheet]:
    """Scenarios of jobs under their engines; `crowded`: clients without a place for each request that has one.

    Raises:
        ConfigError: a device lacks a number format.
    """
    return [
        continuous_sheet(job, ALONE | constants.get(job.engine, {}) | {"queued_ratio": float(queued)})
        for job, queued in zip(jobs, crowded, strict=True)
    ]


def service(
    jobs: Sequence[Job], constants: Mapping[str, dict[str, float]] | None = None, crowded: np.ndarray | None = None
) -> Service:
    """Predicted service of jobs under a concurrency of `sequences`.

    Args:
        jobs: what is served.
        constants: of engines, in place of those last fitted.
        crowded: as of `sheets`.

    Raises:
        ConfigError: a device lacks a number format.
    """
    known = stored_serving() if constants is None else constants
    queued = np.zeros(len(jobs)) if crowded is None else crowded
    first, between = grouped(batches(sheets(jobs, known, queued)), timed)
    return Service(first, between)


def fastest(jobs: Sequence[Job], most: float) -> np.ndarray:
    """Tokens per second and device at the best static batch, a power of two up to `most`, that fits; 0 if none does.

    Raises:
        ConfigError: a device lacks a number format.
    """
    sizes = 2.0 ** np.arange(np.log2(most) + 1)
    candidates = [scenario(job, size * job.replicas) for job in jobs for size in sizes]
    rate, share = grouped(batches(candidates), _rated)
    return np.where(share <= 1.0, rate, 0.0).reshape(len(jobs), len(sizes)).max(axis=1)
