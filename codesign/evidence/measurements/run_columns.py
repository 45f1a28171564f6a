"""Columns of measured runs in tables of any source: what each chooses, and which metric of the model each holds.

A run names its device and holds at least one metric with its unit (`ttft_ms`, `step_time_s`, `output_tokens_per_s`).
All else that is known here, or is a path of the configuration (`plan.tp`, `workload.input_cv`), chooses the design; the
rest is carried along.
"""

import re
from typing import NamedTuple

from ...core import short_names

__all__ = [
    "CHOICES",
    "MEMORY",
    "NUMBERS",
    "SHARES_OF_MEMORY",
    "SPECULATION",
    "YES",
    "RunMetric",
    "is_runs",
    "metric_of",
    "number_path",
]

CHOICES = short_names.CHOICES | {"hardware": "accelerator"} | {
    name: name for name in ("accelerator", "model", "framework", "workload", "precision", "kernel_correction",
                            "scale_out", "fabric", "engine_memory")
} | {"kv_cache_dtype": "kv_cache", "kv_cache_format": "kv_cache"}  # fmt: skip
"""Column -> group of options; `precision` and `kv_cache` are number formats."""
NUMBERS = short_names.NUMBERS | {"num_prompts": "requests"}
"""Column -> path of the number that it states; `requests` are those of a run from its first to its last."""
SPECULATION = "spec_decoding"
"""Column of the speculative decoding method: such a run has to state `workload.accepted_tokens` too."""
LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "tpot", "e2e": "e2e", "e2el": "e2e"}
SHARES = {"": "", "mean": "", "p50": "_p50", "median": "_p50", "p90": "_p90", "p99": "_p99"}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
RATES = {
    "output_tokens_per_s": "tokens_per_s", "tokens_per_s": "tokens_per_s", "requests_per_s": "requests_per_s",
    "tokens_per_s_per_device": "tokens_per_s_per_device", "tokens_per_s_per_gpu": "tokens_per_s_per_device",
    "output_tokens_per_s_per_gpu": "tokens_per_s_per_device", "mfu": "mfu", "joules_per_token": "joules_per_token",
    "power_w": "power_w",
}  # fmt: skip
GIB = 2.0**30
MEMORY = {
    **dict.fromkeys(("cache_gib", "cache_room_gib", "room_for_cache_gib", "kv_cache_gib"), ("cache_room_bytes", GIB)),
    **dict.fromkeys(("cache_tokens", "kv_cache_tokens", "room_for_cache_tokens"), ("cache_tokens", 1.0)),
    "peak_memory_gb": ("peak_memory_bytes", 1e9), "peak_memory_gib": ("peak_memory_bytes", GIB),
    "fits": ("fits", 1.0),
}  # fmt: skip
"""Column of memory -> metric and unit: room for the cache and peak of a device, tokens of an engine, yes or no."""
SHARES_OF_MEMORY = ("gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction", "memory_utilisation")
"""Columns of the share of a device's memory that an engine takes."""
YES = {"yes": 1.0, "true": 1.0, "1": 1.0, "no": 0.0, "false": 0.0, "0": 0.0}
PATH = re.compile(r"(cluster|workload|plan)(\.\w+)+")


class RunMetric(NamedTuple):
    """A metric of the model, and how many of its units (SI) one of a column is."""

    name: str
    unit: float


def metric_of(column: str) -> RunMetric | None:
    """The metric that a column holds, by its name and unit; None where it holds none."""
    plain = column.lower()
    if plain in RATES:
        return RunMetric(RATES[plain], 1.0)
    if plain in MEMORY:
        return RunMetric(*MEMORY[plain])
    what, _, unit = plain.rpartition("_")
    if unit not in SECONDS:
        return None
    if what in ("step_time", "step", "iteration", "iteration_time"):
        return RunMetric("time_s", SECONDS[unit])
    words = what.split("_")
    named = [word for word in words if word in LATENCIES]
    shares = [word for word in words if word not in LATENCIES]
    if len(named) != 1 or len(shares) > 1 or (shares and shares[0] not in SHARES):
        return None
    return RunMetric(f"{LATENCIES[named[0]]}{SHARES[shares[0] if shares else '']}_s", SECONDS[unit])


def number_path(column: str) -> str | None:
    """The path of the number that a column states; None where it states none."""
    return NUMBERS.get(column.lower()) or (column if PATH.fullmatch(column) else None)


def is_runs(header: list[str]) -> bool:
    """True if a table of these columns holds measured runs."""
    devices = [name for name in header if CHOICES.get(name.lower()) == "accelerator"]
    return bool(devices) and any(metric_of(name) for name in header)
