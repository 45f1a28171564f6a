"""The one place where served rows at a concurrency are predicted: as `evaluate` does with the row's engine.

A row is a scenario of `ContinuousServing` on the kernels and the all-reduce of its engine, with what
`calibration/frameworks/serving.yaml` adds, which is what `framework=` brings to any study: host, clients in step
(`Lockstep`), and clients without a place where the cache has room for fewer than all (below).
"""

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...config.groups import conf_dir
from ...config.model_names import hub_names
from ...config.parts_built import published
from ...config.starting import usual_framework
from ...core.errors import ConfigError
from ...core.json_yaml import read_yaml
from ...model.scenario import Cluster
from ...model.workloads import ContinuousServing, Precision, Transformer
from ...model.workloads.number_formats import everywhere
from ...model.workloads.steady_state import RoomTaken, fitting
from ..calibration.serving_engines import Service
from .row_overrides import PricedRun, measured_cluster, model_of, predicted, scenarios_of
from .scores import read_rows
from .vectorise import anonymous, batches, grouped, vectorised

# An engine of a served row: its model, layout and number format, and the overrides that it stands for.


CHUNK = 8192.0  # prompt tokens of a step: what the engines' server modes take (assumed)
ENGINES = ("vllm", "sglang", "trtllm")
EVEN_CV = 0.1 / 0.9 / 3**0.5
"""Variation of lengths drawn evenly from 0.8 to all of what a row states."""
FORMATS = {
    "bf16": "bf16", "bfloat16": "bf16", "fp16": "bf16", "float16": "bf16", "fp8": "fp8", "fp4": "fp4", "nvfp4": "fp4",
}  # fmt: skip

BLOCKS = "fp8_block"
PUBLISHED = "checkpoint"
"""Formats of each class of weights as a model was published (`precision=checkpoint`)."""
PUBLISHED_AS = {"fp8": "fp8_block", "fp4": "mxfp4", "mxfp4": "mxfp4", "int4": "int4"}
"""Number format that a row states -> beginning of the format of experts in a checkpoint that it means."""


class Job(NamedTuple):
    """One engine: its model and layout on a cluster, and what is asked of it. `sequences` is what all decode together.

    `replicas` share the sequences (attention by data); where `spread`, they share the experts too. `groups` are ranks
    of `tp` that attend sequences of their own, `experts` of them those over which whole experts are spread. `engine`
    is a framework; none is the one that `framework=auto` takes.
    Lengths of `varied` requests are means. `admission_steps` as of a workload.
    """

    cluster: Cluster
    model: Transformer
    number_format: str
    tp: float
    pp: float
    replicas: float
    spread: bool
    sequences: float
    input_tokens: float
    output_tokens: float
    engine: str = ""
    groups: float = 1.0
    varied: bool = False
    experts: float = 1.0
    admission_steps: float = 0.0


def format_of(precision: Any, name: str, model: Transformer) -> str:
    """The number format of a row: as stated, else as the name of the weights says, else 16 bits.

    `PUBLISHED` where the model was published with its experts in it: its classes of weights have formats of their own.

    Raises:
        ConfigError: one that is not known.
    """
    ending = re.search(r"fp8|fp4", name.lower())
    stated = str(precision).lower() if precision == precision else ending.group() if ending else ""
    published = "" if model.formats is None else model.formats.experts
    if stated in PUBLISHED_AS and published.startswith(PUBLISHED_AS[stated]):
        return PUBLISHED
    if stated and stated not in FORMATS:
        raise ConfigError(f"number format {precision!r} is not modelled")
    named = FORMATS[stated] if stated else "bf16"
    return BLOCKS if named == "fp8" and in_blocks(name) else named


def in_blocks(name: str) -> bool:
    """True if a model's published 8-bit weights have a scale every block, by its own name or that of its 8-bit twin."""
    entry = hub_names().get(name.lower())
    if entry is not None and entry.format != "bf16":
        return entry.format == BLOCKS
    twin = f"{name.lower().rpartition('/')[2].removesuffix('-fp8')}-fp8"
    return any(key.rpartition("/")[2] == twin and one.format == BLOCKS for key, one in hub_names().items())


def precision_of(job: Job) -> Precision:
    """Weights and products in a job's format, the cache in 8 bits or more.

    Assumes: an engine that serves 8 or 4 bits keeps its cache in 8.
    """
    named = job.number_format
    cache = "fp8" if named in ("fp8", "fp4", BLOCKS, PUBLISHED) else named
    if named == BLOCKS:
        return published(Precision(kv_cache=cache, by_class=everywhere(BLOCKS)), job.model, [job.cluster.accelerator])
    if named == PUBLISHED:
        return published(Precision(kv_cache=cache, checkpoint=True), job.model, [job.cluster.accelerator])
    return Precision(compute=named, weights=named, kv_cache=cache)


def check_format(job: Job) -> None:
    """Refuse a job that no scenario can be made of.

    Raises:
        ConfigError: the device has no such number format.
    """
    anonymous(job.cluster, precision_of(job))


def layout_of(job: Job) -> dict[str, float]:
    """Degrees of a plan; experts that are spread over some of the tensor ranks are cut over the others."""
    ranks = float(job.tp * job.replicas)
    tp, groups = (float(job.tp), 1.0) if job.spread else (ranks, float(job.groups * job.replicas))
    ep = job.experts if job.experts > 1 else float(job.replicas) if job.spread else 1.0
    cut = ranks / ep
    return {"tp": tp, "ep": ep, "etp": cut if cut != tp else 0.0, "attention_dp": groups}


def formats_of(job: Job) -> tuple[str, ...]:
    """Words for a job's number formats."""
    precision = precision_of(job)
    parts = {"compute": precision.compute, "weights": precision.weights, "kv_cache": precision.kv_cache}
    return (
        *(f"precision={one}" for one in (BLOCKS, PUBLISHED) if job.number_format == one),
        *(f"workload.precision.{part}={name}" for part, name in parts.items() if name != "bf16"),
    )


def run_of(job: Job, queued: float = 0.0) -> PricedRun:
    """The overrides of a job as its engine serves it, as on the command line.

    Args:
        job: `sequences` requests of it are open at a time.
        queued: clients without a place for each that has one.
    """
    chosen = (
        f"accelerator={job.cluster.accelerator.name}", f"model={job.model.name}",
        "workload=continuous", *formats_of(job),
    )  # fmt: skip
    chosen = (*chosen, f"framework={job.engine or usual_framework(chosen)}")
    mine = job.sequences / job.replicas if job.spread else job.sequences
    return PricedRun(chosen, {
        "cluster.device_count": float(job.tp * job.replicas * job.pp), "plan.pp": float(job.pp),
        **{f"plan.{name}": value for name, value in layout_of(job).items()},
        "plan.micro_batch": float(max(mine, 1.0)), "plan.token_budget": CHUNK,
        "workload.input_tokens": float(job.input_tokens),
        "workload.output_tokens": float(max(job.output_tokens, 2.0)),
        "workload.input_cv": EVEN_CV * job.varied, "workload.output_cv": EVEN_CV * job.varied,
        "workload.admission_steps": job.admission_steps, "workload.clients.queued_ratio": queued,
    })  # fmt: skip


def batch_of(job: Job, sequences: float) -> PricedRun:
    """The overrides of a job with so many sequences on each replica that begin together."""
    chosen = (
        f"accelerator={job.cluster.accelerator.name}", f"model={job.model.name}",
        "workload=static_batch", "framework=none", *formats_of(job),
    )  # fmt: skip
    return PricedRun(chosen, {
        "cluster.device_count": float(job.tp * job.pp * job.replicas), "plan.tp": float(job.tp),
        "plan.pp": float(job.pp), "plan.ep": float(job.replicas if job.spread else 1.0),
        "plan.micro_batch": float(max(sequences, 1.0)), "workload.input_tokens": float(job.input_tokens),
        "workload.output_tokens": float(job.output_tokens),
    })  # fmt: skip


# Rows of served models at a concurrency: what each says of its engine and its clients.
#
# A row says how its ranks share the model: `tp`, `attention_dp` (ranks that share attention by sequences) and
# `moe_ep` (ranks that experts are spread over).


DRAWN = "InferenceX"
"""Whose clients draw each length evenly from `SHORTEST` of what a row states up to all of it."""
SHORTEST = 0.8
MOST_CUT = 8.0
"""Ranks that share an expert in an engine (assumed: a node). Exports of 12 to 72 count devices of a whole system."""
WAIT_ITERATIONS, DELAY_ITERATIONS, BALANCE_ITERATIONS = 20.0, 40.0, 60.0
"""`batch_wait_timeout_iters` of Llama 70B and of DeepSeek, `timeout_iters` of attention by data, of TensorRT-LLM."""
POLLS = (10.0, 30.0)
"""`--scheduler-recv-interval` of SGLang below 16 clients, and from 16 on."""
BANDS = ((4.0, "concurrency to 4"), (16.0, "concurrency to 16"), (np.inf, "concurrency above 16"))


def ranks(row: Any) -> tuple[float, float, float]:
    """Accelerators of an engine, groups of them that attend sequences of their own, and ranks of whole experts.

    Exports state a degree twice where experts are spread: `tp` x `attention_dp` = `moe_tp` x `moe_ep` counts the
    accelerators squared where both degrees of the experts are the same, and where both of attention are. Runs that
    another export of the same measurement has too say which: of the latter `tp` ranks attend together.
    """
    groups = row.attention_dp if row.attention_dp >= 1 else 1.0
    product = row.tp * groups
    experts = row.moe_ep if row.moe_ep == row.moe_ep else 1.0
    if experts > 1 and getattr(row, "moe_tp", 1.0) == experts and product == experts**2:
        product = experts
    elif groups > 1 and row.tp == groups and experts == product:
        product, groups = row.tp, 1.0
    return float(product), float(min(groups, product)), float(min(max(experts, 1.0), product))


def shared_out(row: Any, count: float, groups: float, experts: bool) -> tuple[float, float]:
    """Requests open at one engine, and its attention groups, where `concurrency` is several times `batch_size`.

    The clients are then those of several batches. Where no row says how many groups attend sequences of their own, a
    model with experts has as many in one engine; else they are engines beside each other, each with one batch.
    """
    clients = row.concurrency if row.concurrency == row.concurrency else row.batch_size
    batches = clients / row.batch_size
    if row.attention_dp > 1 or batches <= 1 or batches % 1:  # or the batch is that of a group
        return float(clients), groups
    if experts and row.attention_dp != row.attention_dp and count % batches == 0:
        return float(clients), float(batches)
    return float(row.batch_size), groups


def admission_steps(row: Any, count: float, groups: float) -> float:
    """Steps until an engine of `count` ranks admits a request, by the launch scripts that InferenceX publishes.

    SGLang looks for requests every n-th decode step, so that they wait (n - 1) / 2 of them; TensorRT-LLM lets a prompt
    wait so many steps for others, less where others have waited before it. Source: [inferencex].
    """
    clients = row.concurrency if row.concurrency == row.concurrency else row.batch_size
    short = row.input_tokens == row.output_tokens == 1024
    arrivals = clients / row.output_tokens
    deepseek, low = "DeepSeek" in row.model, str(row.precision).lower()
    if row.backend == "sglang" and (deepseek or "Qwen3.5" in row.model) and str(row.gpu).startswith(("B200", "B300")):
        version = str(getattr(row, "backend_version", ""))
        rare = clients >= 16 and not (deepseek and low == "fp8" and count == 4)
        rare = rare or (low == "fp4" and not deepseek)  # Qwen3.5 in 4 bits polls as rarely below 16
        rare = rare and not (low == "fp8" and not deepseek and version.startswith("0.5.10"))
        return (POLLS[rare] - 1) / 2
    if row.backend != "trtllm":
        return 0.0
    iterations = 0.0
    if deepseek and groups > 1:  # until each group has a prompt
        iterations = min(BALANCE_ITERATIONS, groups / arrivals)
    elif "Llama-3.1-70B" in row.model and short and count < 8:
        iterations = WAIT_ITERATIONS
    elif deepseek and low == "fp8" and short and 64 <= clients < 256:
        iterations = DELAY_ITERATIONS
    return iterations * (1 + arrivals * iterations / 2) / (1 + arrivals * iterations)


def job(row: Any) -> Job:
    """The engine of a row.

    Raises:
        ConfigError: its device, model, number format or layout is not known.
    """
    (count, groups, experts), model = ranks(row), model_of(row.model)
    routed = hasattr(model.feed_forward, "experts")
    sequences, groups = shared_out(row, count, groups, routed)
    if getattr(row, "moe_tp", 1.0) > MOST_CUT:
        raise ConfigError(f"{row.moe_tp:g} ranks cut every expert: no one engine, devices of a whole system")
    heads = float(model.attention.heads)
    if heads % (count / groups):
        raise ConfigError(f"{count:g} ranks do not divide {heads:g} heads: no tensor-parallel engine")
    engine = str(row.backend) if getattr(row, "backend", "") in ENGINES else ""
    varied = DRAWN in str(getattr(row, "origin", ""))
    mean = (1 + SHORTEST) / 2 if varied else 1.0
    result = Job(
        measured_cluster(row.gpu), model, format_of(row.precision, row.model, model), count, row.pp, 1.0, False,
        sequences, mean * row.input_tokens, mean * row.output_tokens, engine, groups, varied,
        experts if routed else 1.0, admission_steps(row, count, groups) if varied else 0.0,
    )  # fmt: skip
    check_format(result)
    return result


def jobs_of(directory: Path, messages: list[str]) -> tuple[pd.DataFrame, list[Job]]:
    """Rows of all tables that can be priced, and their engines."""
    return read_rows(directory, "closed_loop", job, messages, prepare=true_origins)


def true_origins(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with their true `origin`: those of an engine's version on a device and model that InferenceX ran are its.

    Other exports list its runs again, as theirs.
    """
    if not {"origin", "backend_version"} <= set(table.columns):
        return table
    drawn = table["origin"].astype(str).str.contains(DRAWN)
    stated = table["backend_version"].notna()
    runs = pd.MultiIndex.from_frame(table[["gpu", "model", "backend", "backend_version"]])
    again = ~drawn & stated & runs.isin(runs[drawn & stated])
    return table.assign(origin=table["origin"].mask(again, f"{DRAWN}, as listed by another"))


# Served rows whose clients do not all fit: how many requests an engine has room for, and who waits (`steady_state`).
#
# Engines fill `MEMORY_SHARE` of a device, or of what weights and activations leave, with cache; TensorRT-LLM promises
# a request the room of its whole answer before it begins (`GUARANTEED_NO_EVICT`), the others take room back. An
# engine serves B = min(clients, room) at a time and is priced with them; of a row `crowded` = clients / B - 1 says
# who waits.
#
# Assumes: nobody shares a prompt, no table states one; an engine whose weights would leave less of its default share
# than it keeps back of the device was given more, as it was measured: nobody waits there. Source: defaults of vLLM
# and TensorRT-LLM in their documentation; those of SGLang, which differ by device, are taken alike.


MEMORY_SHARE = 0.9
"""Share of a device's memory: `gpu_memory_utilization` (vLLM), `free_gpu_memory_fraction` (TensorRT-LLM), published."""
PROMISING = ("trtllm",)
"""Engines that promise the whole answer, and whose share is one of what is free once weights are there."""


def _memory(one):
    """Bytes of a device: all, weights, and with activations; what one request holds on average, and at its end."""
    job, layout = one.workload, one.layout
    assert isinstance(job, ContinuousServing)
    parts = job.footprint(layout)
    taken = parts["weights"][0] + parts["working"][0]
    block = 0.5 * job.block_tokens
    mean = job.kv_bytes(layout, job.context() + block)
    at_end = job.kv_bytes(layout, job.input_tokens + job.output_tokens + block)
    return one.cluster.accelerator.hbm.usable_bytes(), parts["weights"][0], taken, mean, at_end


_held = vectorised(_memory)


def room_of(jobs: Sequence[Job]) -> np.ndarray:
    """Requests that each job's engine has room for at once; infinite where the default leaves next to nothing.

    Raises:
        ConfigError: a device lacks a number format.
    """
    usable, weights, taken, mean, at_end = grouped(batches(scenarios_of([run_of(job) for job in jobs])), _held)
    promised = np.array([job.engine in PROMISING for job in jobs])
    room = np.where(promised, MEMORY_SHARE * (usable - taken), MEMORY_SHARE * usable - taken)
    sharing = np.array([job.groups * job.replicas for job in jobs])
    result = sharing * fitting(RoomTaken(room, np.zeros(len(jobs)), mean, at_end), promised)
    limited = (MEMORY_SHARE * usable - weights > (1 - MEMORY_SHARE) * usable) & (result >= 1)
    return np.where(limited, result, np.inf)


def in_room(jobs: Sequence[Job]) -> tuple[list[Job], np.ndarray]:
    """The jobs with as many sequences as are served at a time, and how many clients wait for each of these."""
    clients = np.array([job.sequences for job in jobs])
    served = np.minimum(clients, np.floor(room_of(jobs)))
    served_jobs = [job._replace(sequences=float(count)) for job, count in zip(jobs, served, strict=True)]
    return served_jobs, clients / served - 1


METHOD = "continuous batching at the concurrency, prompts beside decodes in steps of 8192 tokens"


@functools.cache
def stored_serving() -> dict[str, dict[str, float]]:
    """Constants of engines, as last fitted."""
    path = conf_dir() / "calibration" / "frameworks" / "serving.yaml"
    data = read_yaml(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {engine: dict(constants) for engine, constants in data.items() if engine != "provenance"}


TIMES = "ttft_s", "tpot_s"


def service(jobs: Sequence[Job], crowded: np.ndarray | None = None) -> Service:
    """Service of jobs under a concurrency of `sequences`, as `evaluate` predicts it.

    Args:
        jobs: what is served.
        crowded: clients without a place for each that has one.

    Raises:
        ConfigError: a device lacks a number format.
    """
    queued = np.zeros(len(jobs)) if crowded is None else crowded
    runs = [run_of(job, float(more)) for job, more in zip(jobs, queued, strict=True)]
    return Service(*predicted(runs, TIMES).values())


def fastest(jobs: Sequence[Job], most: float) -> np.ndarray:
    """Tokens per second and device at the best static batch, a power of two up to `most`, that fits; 0 if none does.

    Raises:
        ConfigError: a device lacks a number format.
    """
    sizes = 2.0 ** np.arange(np.log2(most) + 1)
    metrics = predicted([batch_of(job, size) for job in jobs for size in sizes], ["tokens_per_s", "fits"])
    devices = np.repeat([job.tp * job.pp * job.replicas for job in jobs], len(sizes))
    rates = np.where(metrics["fits"] > 0, metrics["tokens_per_s"] / devices, 0.0)
    return rates.reshape(len(jobs), len(sizes)).max(axis=1)
