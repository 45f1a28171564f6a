"""Columns of measured runs in tables of any source: what each chooses, and which metric of the model each holds.

A run names its device and holds at least one metric with its unit (`ttft_ms`, `Mean TPOT (ms)`, `step_time_s`,
`Output throughput (tok/s)`). All else that is known here, or is a path of the configuration (`plan.tp`,
`workload.input_cv`), chooses the design; the rest is carried along. Names are compared by their plain form
(`plain`), so that spelling does not matter.
"""

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

from ...core import short_names

__all__ = [
    "BATCH", "CLIENTS", "DATA_RANKS", "FLAGS_OF_ATTENTION", "FORMATS_OF_RUNS", "MEMORY", "SPECULATION", "YES",
    "RunMetric", "choice_of", "is_recognised", "lacks_unit", "metric_of", "names_devices", "not_stated", "number_path",
    "plain", "share_of_memory",
]  # fmt: skip


UNITS = {
    "seconds": "s", "second": "s", "secs": "s", "sec": "s", "milliseconds": "ms", "millisecond": "ms", "msec": "ms",
    "microseconds": "us", "usec": "us", "toks": "tokens", "tok": "tokens", "token": "tokens", "avg": "mean",
    "average": "mean", "tput": "throughput", "req": "requests", "reqs": "requests", "request": "requests",
}  # fmt: skip
"""Word of a column -> the word that is meant."""
PHRASES = (
    (r"time_to_first_tokens|first_tokens?_latency", "ttft"), (r"time_per_output_tokens", "tpot"),
    (r"inter_tokens_latency|inter_tokens_time|itl_latency", "itl"),
    (r"(end_to_end|e2e|e2el|requests)_latency|end_to_end(_time)?|e2el", "e2e"),
    (r"per_(gpu|device|accelerator|chip)|(?<=_)(gpu|device|accelerator|chip)$", "per_device"),
    (r"tokens_per_(gpu|device|accelerator|chip)_per_s", "tokens_per_s_per_device"),
)  # fmt: skip
"""Spellings of one thing, as plain forms write them."""


@functools.cache
def plain(column: str) -> str:
    """A column's name as all spellings of it are compared: `Mean TTFT (ms)` is `mean_ttft_ms`."""
    text = column.strip().lower().replace("#", " num ").replace("/", " per ").replace("%", " percent ")
    words = [UNITS.get(word, word) for word in re.split(r"[^a-z0-9.]+", text) if word]
    joined = "_".join(words)
    for pattern, meant in PHRASES:
        joined = re.sub(rf"(?:^|(?<=_))(?:{pattern})(?=_|$)", meant, joined)
    return joined


PATH = re.compile(r"(cluster|workload|plan)(\.\w+)+")
DATA_RANKS, BATCH = "data_ranks", "batch"
CHOICES = {plain(name): group for name, group in (short_names.CHOICES | {
    **dict.fromkeys((
        "hardware", "hw", "accelerator", "gpu_name", "gpu_type", "gpu_model", "device_name", "device_type", "chip",
        "accelerator_name", "accelerator_type", "accelerator_model", "chip_type", "sku",
    ), "accelerator"),
    **dict.fromkeys(("model", "model_id", "model_name", "model_path", "served_model_name", "model_names"), "model"),
    **dict.fromkeys((
        "framework", "runtime", "serving_engine", "inference_engine", "serving_framework", "inference_framework",
    ), "framework"),
    **{name: name for name in ("workload", "kernel_correction", "scale_out", "fabric", "engine_memory")},
    "kv_cache_dtype": "kv_cache", "kv_cache_format": "kv_cache", "kv_cache_precision": "kv_cache",
    "kv_dtype": "kv_cache",
}).items()}  # fmt: skip
"""Plain column -> group of options; `kv_cache` is a number format."""
FORMATS_OF_RUNS = tuple(plain(name) for name in (
    "quantization", "quantisation", "quant", "quantization_method", "precision", "weight_dtype", "weights_dtype",
    "weight_precision", "weight_format", "number_format", "compute_precision", "dtype", "data_type", "datatype",
))  # fmt: skip
"""Columns of number formats, of which the first that says one holds: the type of what is computed says least."""
NUMBERS = {plain(name): path for name, path in (short_names.NUMBERS | {
    **dict.fromkeys(("tensor_parallel_size", "tensor_parallelism", "tp_size", "tp_degree",
                     "tensor_model_parallel_size"), "plan.tp"),
    **dict.fromkeys(("pipeline_parallel_size", "pipeline_parallelism", "pp_size", "pp_degree",
                     "pipeline_model_parallel_size"), "plan.pp"),
    **dict.fromkeys(("context_parallel_size", "context_parallelism", "cp_size"), "plan.cp"),
    **dict.fromkeys(("expert_parallel_size", "expert_parallelism", "ep_size", "ep_degree",
                     "expert_model_parallel_size"), "plan.ep"),
    **dict.fromkeys(("virtual_pipeline_model_parallel_size", "virtual_pipeline_parallel_size", "vpp", "vp",
                     "vp_size"),
                    "plan.virtual_stages"),
    **dict.fromkeys(("conc", "max_running_requests", "max_batch_size", "users", "num_users", "concurrent_requests",
                     "num_concurrent_requests", "concurrent_users"), "plan.micro_batch"),
    **dict.fromkeys(("gpu_count", "num_devices", "n_gpus", "ngpus", "world_size", "total_gpus", "accelerator_count",
                     "accelerators", "num_chips", "chip_count", "num_of_accelerators", "num_of_gpus"),
                    "cluster.device_count"),
    **dict.fromkeys(("input_sequence_length", "input_length", "random_input_len", "random_input", "prompt_tokens",
                     "prompt_len", "prompt_length", "mean_input_tokens", "input_seq_len"), "workload.input_tokens"),
    **dict.fromkeys(("output_sequence_length", "output_length", "random_output_len", "random_output",
                     "completion_tokens", "generated_tokens", "generation_length", "mean_output_tokens",
                     "output_seq_len", "max_new_tokens", "gen_len", "gen_length"), "workload.output_tokens"),
    **dict.fromkeys(("qps", "rps", "arrival_rate", "requests_rate_rps"), "workload.arrivals_per_s"),
    **dict.fromkeys(("train_batch_size", "global_train_batch_size"), "workload.global_batch"),
    **dict.fromkeys(("seq_length", "seqlen", "max_seq_len", "max_sequence_length", "train_seq_len"),
                    "workload.sequence"),
    **dict.fromkeys(("recompute", "recompute_granularity", "activation_recompute"), "plan.recompute"),
    **dict.fromkeys(("batch", "batch_size"), BATCH),
    **dict.fromkeys(("num_prompts", "num_requests", "requests_count", "prompts"), "requests"),
    **dict.fromkeys(("dp", "dp_size", "data_parallel_size", "data_parallelism", "dp_degree"), DATA_RANKS),
}).items()}  # fmt: skip
"""Plain column -> path of the number that it states; `requests` are those of a run from its first to its last,
`data_ranks` replicas, or ranks that attend sequences of their own, `batch` sequences of a step or clients."""
CLIENTS = tuple(plain(name) for name in (
    "concurrency", "max_concurrency", "conc", "users", "num_users", "concurrent_requests", "num_concurrent_requests",
    "concurrent_users",
))  # fmt: skip
"""Columns that count clients of all replicas, not places of an engine."""
FLAGS_OF_ATTENTION = tuple(plain(name) for name in ("dp_attention", "enable_dp_attention", "dpa"))
"""Columns that say whether ranks of an engine attend sequences of their own."""
SPECULATION = "spec_decoding"
"""Column of the speculative decoding method: such a run has to state `workload.accepted_tokens` too."""
LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "tpot", "e2e": "e2e"}
SHARES = {"mean": "", "p50": "_p50", "median": "_p50", "p90": "_p90", "p99": "_p99"}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
STEPS = re.compile(
    r"(mean_|median_)?(step|step_time|iteration|iteration_time|iter_time|time_per_(step|iteration)|step_duration"
    r"|elapsed_time_per_iteration)_(s|ms|us)"
)
OF_OUTPUT = (
    "output_tokens_per_s", "tokens_per_s", "output_throughput", "output_tokens_throughput", "generation_throughput",
    "output_throughput_tokens_per_s", "output_tokens_throughput_tokens_per_s", "throughput_tokens_per_s",
    "generation_throughput_tokens_per_s", "generated_tokens_per_s", "output_tps",
)  # fmt: skip
OF_ALL_TOKENS = (
    "total_tokens_throughput", "total_tokens_per_s", "total_throughput", "total_tps",
    "total_tokens_throughput_tokens_per_s", "total_throughput_tokens_per_s", "total_tokens_throughput_per_s",
)  # fmt: skip
OF_REQUESTS = ("requests_per_s", "requests_throughput", "requests_throughput_requests_per_s")
OF_FLOPS = (
    "tflops", "tflops_per_device", "model_tflops_per_device", "achieved_tflops_per_device", "achieved_tflops",
    "throughput_per_device_tflops", "tflop_per_s_per_device", "model_tflop_per_s_per_device", "model_tflops",
    "throughput_per_device_tflop_per_s_per_device", "throughput_per_device_tflop_per_s",
)  # fmt: skip
RATES = {
    **dict.fromkeys(OF_OUTPUT, ("tokens_per_s", 1.0)),
    **dict.fromkeys((f"{name}_per_device" for name in OF_OUTPUT), ("tokens_per_s_per_device", 1.0)),
    "output_throughput_per_device_tokens_per_s_per_device": ("tokens_per_s_per_device", 1.0),
    **dict.fromkeys(OF_ALL_TOKENS, ("all_tokens_per_s", 1.0)),
    **dict.fromkeys((f"{name}_per_device" for name in OF_ALL_TOKENS), ("all_tokens_per_s_per_device", 1.0)),
    **dict.fromkeys(OF_REQUESTS, ("requests_per_s", 1.0)),
    **dict.fromkeys(OF_FLOPS, ("tflops_per_device", 1.0)),
    **dict.fromkeys(("samples_per_s", "sequences_per_s"), ("sequences_per_s", 1.0)),
    "mfu": ("mfu", 1.0), "mfu_percent": ("mfu", 0.01),
    **dict.fromkeys(("joules_per_tokens", "j_per_tokens", "energy_per_tokens_j", "joules_per_output_tokens",
                     "energy_j_per_output_tokens"), ("joules_per_token", 1.0)),
    "power_w": ("power_w", 1.0), "mean_power_w": ("power_w", 1.0),
}  # fmt: skip
GIB = 2.0**30
MEMORY = {
    **dict.fromkeys(("cache_gib", "cache_room_gib", "room_for_cache_gib", "kv_cache_gib"), ("cache_room_bytes", GIB)),
    **dict.fromkeys(("cache_tokens", "kv_cache_tokens", "room_for_cache_tokens"), ("cache_tokens", 1.0)),
    **dict.fromkeys(("peak_memory_gb", "hbm_gb", "max_memory_allocated_gb", "peak_memory_per_device_gb"),
                    ("peak_memory_bytes", 1e9)),
    **dict.fromkeys(("peak_memory_gib", "max_memory_allocated_gib", "hbm_gib"), ("peak_memory_bytes", GIB)),
    "fits": ("fits", 1.0),
}  # fmt: skip
"""Column of memory -> metric and unit: room for the cache and peak of a device, tokens of an engine, yes or no."""
SHARES_OF_MEMORY = (
    "gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction", "memory_utilisation",
)  # fmt: skip
"""Columns of the share of a device's memory that an engine takes."""
YES = {"yes": 1.0, "true": 1.0, "1": 1.0, "on": 1.0, "no": 0.0, "false": 0.0, "0": 0.0, "off": 0.0}


class RunMetric(NamedTuple):
    """A metric of the model, and how many of its units (SI) one of a column is."""

    name: str
    unit: float


@functools.cache
def metric_of(column: str) -> RunMetric | None:
    """The metric that a column holds, by its name and unit; None where it holds none."""
    name = plain(column)
    for table in (RATES, MEMORY):
        if name in table:
            return RunMetric(*table[name])
    words = name.split("_")
    units = [word for word in words if word in SECONDS]
    if STEPS.fullmatch(name):
        return RunMetric("time_s", SECONDS[units[-1]])
    named = [word for word in words if word in LATENCIES]
    shares = [word for word in words if word in SHARES]
    rest = len(words) - len(units) - len(named) - len(shares)
    if len(units) != 1 or len(named) != 1 or len(shares) > 1 or rest:
        return None
    return RunMetric(f"{LATENCIES[named[0]]}{SHARES[shares[0]] if shares else ''}_s", SECONDS[units[0]])


def lacks_unit(column: str) -> bool:
    """True if a column would hold a time if its name said in which unit."""
    return metric_of(column) is None and metric_of(f"{column}_ms") is not None


def not_stated(columns: Sequence[str], *, trains: bool = False) -> list[str]:
    """Columns that the runs of a table must state and do not, by their short names; of `a or b` one suffices.

    Args:
        columns: names of a table.
        trains: whether its runs say that they train.
    """
    paths = {number_path(name) for name in columns}
    metrics = {one.name for name in columns if (one := metric_of(name)) is not None}
    needed = [] if any(choice_of(name) == "model" for name in columns) else ["model"]
    if trains or metrics & TRAINED or "workload.global_batch" in paths:
        needs = {"global_batch": {"workload.global_batch", BATCH}, "seq_len": {"workload.sequence"}}
    elif any(name.startswith(SERVED) for name in metrics):
        needs = {
            "input_tokens": {"workload.input_tokens"}, "output_tokens": {"workload.output_tokens"},
            "concurrency or request_rate": {"plan.micro_batch", "workload.arrivals_per_s", BATCH},
        }  # fmt: skip
    else:
        needs = {}
    return needed + [name for name, stating in needs.items() if not stating & paths]


SERVED = ("ttft_", "tpot_", "e2e_", "tokens_per_s", "all_tokens_per_s", "requests_per_s")
TRAINED = {"time_s", "mfu", "tflops_per_device", "sequences_per_s"}


def number_path(column: str) -> str | None:
    """The path of the number that a column states; None where it states none."""
    return column if PATH.fullmatch(column) else NUMBERS.get(plain(column))


def choice_of(column: str) -> str | None:
    """The group of options that a column chooses from; `precision` of all columns of number formats."""
    name = plain(column)
    return "precision" if name in FORMATS_OF_RUNS else CHOICES.get(name)


def share_of_memory(column: str) -> bool:
    """True if a column states the share of a device's memory that an engine takes."""
    return column.lower() in SHARES_OF_MEMORY


def is_recognised(column: str) -> bool:
    """True if a column chooses or measures something."""
    other = share_of_memory(column) or plain(column) in (SPECULATION, *FLAGS_OF_ATTENTION)
    return other or choice_of(column) is not None or number_path(column) is not None or metric_of(column) is not None


def names_devices(columns: "list[str] | tuple[str, ...]") -> bool:
    """True if one of these columns says which device a run was measured on."""
    return any(choice_of(name) == "accelerator" for name in columns)
