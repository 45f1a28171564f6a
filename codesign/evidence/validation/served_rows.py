"""The one place where served rows at a concurrency are predicted: as `evaluate` does with the row's engine.

A row is a scenario of `ContinuousServing` on the kernels and the all-reduce of its engine, with what
`calibration/frameworks/serving.yaml` adds, which is what `framework=` brings to any study: host, clients in step
(`Lockstep`), and clients without a place where the cache has room for fewer than all (below).
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from ...config.groups import conf_dir
from ...config.parts_built import published
from ...core.errors import ConfigError
from ...core.json_yaml import read_yaml
from ...model.metrics import evaluate
from ...model.scenario import Cluster, Scenario
from ...model.workloads import ContinuousServing, Lockstep, Plan, Precision, StaticBatch, Transformer
from ...model.workloads.steady_state import RoomTaken, fitting
from ..measurements import tables
from .row_overrides import PricedRun, engine_cluster, model_of, option_of
from .vectorise import Same, Sheet, anonymous, batches, grouped, sheet_of, sized, vectorised

# An engine of a served row: its model, layout and number format, and the scenario that it stands for.
#
# Scenarios of rows are sheets (`sheets`): a table asks for thousands that differ in lengths, layout and concurrency.


CHUNK = 8192.0  # prompt tokens of a step: what the engines' server modes take (assumed)
ENGINES = ("vllm", "sglang", "trtllm")
OF_STEPS = ("kernel_slowdown", "step_overhead_s", "sampling_s", "expert_layer_s")
OF_REQUESTS = ("request_overhead_s", "prompt_token_s", "expert_overhead_s", "expert_launch_s")
OF_CLIENTS = ("burst_ratio", "cohort_prompts", "client_overhead_s", "queued_ratio")
"""Constants of an engine by who sees them: its steps, its requests, the clients of a closed loop."""
EVEN_CV = 0.1 / 0.9 / 3**0.5
"""Variation of lengths drawn evenly from 0.8 to all of what a row states."""
FORMATS = {
    "bf16": "bf16", "bfloat16": "bf16", "fp16": "bf16", "float16": "bf16", "fp8": "fp8", "fp4": "fp4", "nvfp4": "fp4",
}  # fmt: skip

PUBLISHED = "checkpoint"
"""Formats of each class of weights as a model was published (`precision=checkpoint`)."""
PUBLISHED_AS = {"fp8": "fp8_block", "fp4": "mxfp4", "mxfp4": "mxfp4", "int4": "int4"}
"""Number format that a row states -> beginning of the format of experts in a checkpoint that it means."""


class Job(NamedTuple):
    """One engine: its model and layout on a cluster, and what is asked of it. `sequences` is what all decode together.

    `replicas` share the sequences (attention by data); where `spread`, they share the experts too. `groups` are ranks
    of `tp` that attend sequences of their own. `engine` is a framework; none prices by the reference kernels.
    Lengths of `varied` requests are means.
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
    return FORMATS[stated] if stated else "bf16"


def precision_of(job: Job) -> Precision:
    """Weights and products in a job's format, the cache in 8 bits or more.

    Assumes: an engine that serves 8 or 4 bits keeps its cache in 8.
    """
    named = job.number_format
    cache = "fp8" if named in ("fp8", "fp4", PUBLISHED) else named
    if named == PUBLISHED:
        return published(Precision(kv_cache=cache, checkpoint=True), job.model, [job.cluster.accelerator])
    return Precision(compute=named, weights=named, kv_cache=cache)


def scenario(job: Job, sequences: float) -> Sheet:
    """The job with so many sequences decoding together.

    Assumes: where experts are spread over ranks that share every sequence, each rank holds a part of every expert.

    Raises:
        ConfigError: the device has no such number format.
    """
    named, model = precision_of(job), job.model

    def build(numbers: Mapping[str, float]) -> Scenario:
        cluster, precision = anonymous(job.cluster, named)
        lengths = {name: numbers[name] for name in ("input_tokens", "output_tokens")}
        served = StaticBatch(replace(model, name=""), **lengths, precision=precision)
        plan = Plan(**{name: numbers[name] for name in ("tp", "pp", "ep", "micro_batch")})
        return Scenario(sized(cluster, numbers["devices"]), served, plan)

    return sheet_of(("static", Same(job.cluster), Same(model), job.number_format), build, {
        "input_tokens": float(job.input_tokens), "output_tokens": float(job.output_tokens), "tp": float(job.tp),
        "pp": float(job.pp), "ep": float(job.replicas if job.spread else 1.0),
        "micro_batch": float(max(sequences / job.replicas, 1.0)), "devices": float(job.tp * job.pp * job.replicas),
    })  # fmt: skip


def _with_energies(plain: Cluster, own: Cluster, precision: Precision) -> Cluster:
    """An anonymous cluster with the joules per FLOP of the formats that its parts stand for."""
    formats = {"compute": precision.compute, "attention": precision.attention, "vector": "vector"}
    known, chip = own.accelerator.energy_j_per_flop, own.accelerator
    joules = {
        part: known.get(chip.arithmetic(formats.get(part, part)), jnp.asarray(0.0))
        for part in plain.accelerator.peak_flops_per_s
    }
    return replace(plain, accelerator=replace(plain.accelerator, energy_j_per_flop=joules))


def check_format(job: Job) -> None:
    """Refuse a job that no scenario can be made of.

    Raises:
        ConfigError: the device has no such number format.
    """
    anonymous(job.cluster, precision_of(job))


def continuous_sheet(job: Job, added: Mapping[str, float], energies: bool = False) -> Sheet:
    """The job as its engine serves it, `sequences` requests open at a time.

    Args:
        added: constants of the engine; others than those listed above are seen by nobody here.
        energies: joules of arithmetic too, which `anonymous` leaves out.

    Raises:
        ConfigError: the device has no such number format.
    """
    named, model = precision_of(job), job.model
    own = {name: float(value) for name, value in added.items() if name in OF_STEPS + OF_REQUESTS}
    crowd = {name: float(value) for name, value in added.items() if name in OF_CLIENTS}

    def build(numbers: Mapping[str, float]) -> Scenario:
        plain, precision = anonymous(job.cluster, named)
        cluster = _with_energies(plain, job.cluster, named) if energies else plain
        values = {name: numbers[name] for name in ("input_tokens", "output_tokens", "input_cv", "output_cv", *own)}
        clients = Lockstep(**{name: numbers[name] for name in crowd})
        served = ContinuousServing(replace(model, name=""), **values, precision=precision, clients=clients)
        plan = Plan(
            **{name: numbers[name] for name in ("tp", "pp", "ep", "attention_dp", "micro_batch")}, token_budget=CHUNK
        )
        return Scenario(sized(cluster, numbers["devices"]), served, plan)

    ranks = float(job.tp * job.replicas)
    layout = {"tp": float(job.tp), "ep": float(job.replicas), "attention_dp": 1.0}
    if not job.spread:
        layout = {"tp": ranks, "ep": 1.0, "attention_dp": float(job.groups * job.replicas)}
    mine = job.sequences / job.replicas if job.spread else job.sequences
    return sheet_of(("continuous", Same(job.cluster), Same(model), job.number_format, energies), build, {
        "input_tokens": float(job.input_tokens), "output_tokens": float(max(job.output_tokens, 2.0)), **layout,
        "input_cv": EVEN_CV * job.varied, "output_cv": EVEN_CV * job.varied,
        "pp": float(job.pp), "micro_batch": float(max(mine, 1.0)), "devices": ranks * float(job.pp), **own, **crowd,
    })  # fmt: skip


def continuous(job: Job, added: Mapping[str, float], energies: bool = False) -> Scenario:
    """`continuous_sheet` as a scenario."""
    sheet = continuous_sheet(job, added, energies)
    scenario: Scenario = jax.tree.unflatten(sheet.structure, [jnp.asarray(leaf) for leaf in sheet.leaves])
    return scenario


def run_of(job: Job, queued: float = 0.0) -> PricedRun:
    """The overrides of a job as its engine serves it; what `continuous_sheet` is made of, as on the command line.

    Args:
        queued: clients without a place for each that has one.
    """
    precision = precision_of(job)
    formats = {"compute": precision.compute, "weights": precision.weights, "kv_cache": precision.kv_cache}
    stored = ("precision=checkpoint",) if precision.checkpoint else ()
    chosen = (
        f"accelerator={job.cluster.accelerator.name}", f"model={job.model.name}",
        "workload=continuous", f"framework={job.engine or 'none'}",
        *stored, *(f"workload.precision.{part}={name}" for part, name in formats.items() if name != "bf16"),
    )  # fmt: skip
    ranks = float(job.tp * job.replicas)
    layout = {"tp": float(job.tp), "ep": float(job.replicas), "attention_dp": 1.0}
    if not job.spread:
        layout = {"tp": ranks, "ep": 1.0, "attention_dp": float(job.groups * job.replicas)}
    mine = job.sequences / job.replicas if job.spread else job.sequences
    return PricedRun(chosen, {
        "cluster.device_count": ranks * float(job.pp), "plan.pp": float(job.pp),
        **{f"plan.{name}": value for name, value in layout.items()},
        "plan.micro_batch": float(max(mine, 1.0)), "plan.token_budget": CHUNK,
        "workload.input_tokens": float(job.input_tokens),
        "workload.output_tokens": float(max(job.output_tokens, 2.0)),
        "workload.input_cv": EVEN_CV * job.varied, "workload.output_cv": EVEN_CV * job.varied,
        **({"workload.clients.queued_ratio": queued} if queued else {}),
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
BANDS = ((4.0, "concurrency to 4"), (16.0, "concurrency to 16"), (np.inf, "concurrency above 16"))


def ranks(row: Any) -> tuple[float, float]:
    """Accelerators of an engine, and groups of them that attend sequences of their own.

    Exports state a degree twice where experts are spread: `tp` x `attention_dp` = `moe_tp` x `moe_ep` counts the
    accelerators squared where both degrees of the experts are the same, and where both of attention are.
    """
    groups = row.attention_dp if row.attention_dp >= 1 else 1.0
    product = row.tp * groups
    experts = row.moe_ep if row.moe_ep == row.moe_ep else 1.0
    if experts > 1 and getattr(row, "moe_tp", 1.0) == experts and product == experts**2:
        product = experts
    elif groups > 1 and row.tp == groups and experts == product:
        product = row.tp
    return float(product), float(min(groups, product))


def shared_out(row: Any, count: float, groups: float, experts: bool) -> tuple[float, float]:
    """Requests open at one engine, and its attention groups, where `concurrency` is several times `batch_size`.

    The clients are then those of several batches. Where no row says how many groups attend sequences of their own, a
    model with experts has as many in one engine; else they are engines beside each other, each with one batch.
    """
    clients = row.concurrency if row.concurrency == row.concurrency else row.batch_size
    batches = clients / row.batch_size
    if groups > 1 or batches <= 1 or batches % 1:
        return float(clients), groups
    if experts and row.attention_dp != row.attention_dp and count % batches == 0:
        return float(clients), float(batches)
    return float(row.batch_size), groups


def job(row: Any) -> Job:
    """The engine of a row.

    Raises:
        ConfigError: its device, model, number format or layout is not known.
    """
    (count, groups), model = ranks(row), model_of(row.model)
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
    cluster = engine_cluster(row.gpu, engine, option_of(row.model) if routed else "")
    result = Job(
        cluster, model, format_of(row.precision, row.model, model), count, row.pp, 1.0, False,
        sequences, mean * row.input_tokens, mean * row.output_tokens, engine, groups, varied,
    )  # fmt: skip
    check_format(result)
    return result


def jobs_of(directory: Path, messages: list[str]) -> tuple[pd.DataFrame, list[Job]]:
    """Rows of all tables that can be priced, and their engines."""
    frames, engines = [], []
    for table in tables(directory, "closed_loop"):
        result = table.rows(messages)
        jobs, refused = readable(result, job)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in refused.items()]
        if jobs:
            frames.append(result.loc[list(jobs)])
            engines += jobs.values()
    return (pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()), engines


def readable(table: pd.DataFrame, reader: Any) -> tuple[dict[Any, Any], dict[str, int]]:
    """Row -> what a reader makes of it, and how often it refused for which reason."""
    known: dict[Any, Any] = {}
    refused: dict[str, int] = {}
    for row in table.itertuples():
        try:
            known[row.Index] = reader(row)
        except ConfigError as error:
            refused[str(error)] = refused.get(str(error), 0) + 1
    return known, refused


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
    whole = job.kv_bytes(layout, job.input_tokens + job.output_tokens + block)
    return one.cluster.accelerator.hbm.usable_bytes(), parts["weights"][0], taken, mean, whole


_held = vectorised(_memory)


def room_of(jobs: Sequence[Job]) -> np.ndarray:
    """Requests that each job's engine has room for at once; infinite where the default leaves next to nothing.

    Raises:
        ConfigError: a device lacks a number format.
    """
    usable, weights, taken, mean, whole = grouped(batches([continuous_sheet(job, {}) for job in jobs]), _held)
    promised = np.array([job.engine in PROMISING for job in jobs])
    room = np.where(promised, MEMORY_SHARE * (usable - taken), MEMORY_SHARE * usable - taken)
    sharing = np.array([job.groups * job.replicas for job in jobs])
    result = sharing * fitting(RoomTaken(room, np.zeros(len(jobs)), mean, whole), promised)
    known = (MEMORY_SHARE * usable - weights > (1 - MEMORY_SHARE) * usable) & (result >= 1)
    return np.where(known, result, np.inf)


def in_room(jobs: Sequence[Job]) -> tuple[list[Job], np.ndarray]:
    """The jobs with as many sequences as are served at a time, and how many clients wait for each of these."""
    clients = np.array([job.sequences for job in jobs])
    served = np.minimum(clients, room_of(jobs))
    kept = [job._replace(sequences=float(count)) for job, count in zip(jobs, served, strict=True)]
    return kept, clients / served - 1


METHOD = "continuous batching at the concurrency, prompts beside decodes in steps of 8192 tokens"
ALONE = {
    "kernel_slowdown": 1.0, "step_overhead_s": 0.0, "request_overhead_s": 0.0, "prompt_token_s": 0.0,
    "expert_launch_s": 0.0, "client_overhead_s": 0.0, "burst_ratio": 0.0, "cohort_prompts": 1.0,
}  # fmt: skip
"""Constants of no engine: kernels alone, clients that are not in step."""


class Service(NamedTuple):
    """Seconds of jobs to the first token and between tokens."""

    first_s: np.ndarray
    between_s: np.ndarray


def _rate_and_share(one: Scenario):
    metrics = evaluate(one)
    return metrics.tokens_per_s / one.cluster.device_count, metrics.usage["hbm"]


_rated = vectorised(_rate_and_share)


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
