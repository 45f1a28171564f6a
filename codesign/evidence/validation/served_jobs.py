"""An engine of a served row: its model, layout and number format, and the scenario that it stands for.

Scenarios of rows are sheets (`sheets`): a table asks for thousands that differ in lengths, layout and concurrency.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...config.weight_formats import published
from ...core.errors import ConfigError
from ...model.scenario import Cluster, Scenario
from ...model.workloads import ContinuousServing, Lockstep, Plan, Precision, StaticBatch, Transformer
from .batches import anonymous, sized
from .runs import PricedRun
from .sheets import Same, Sheet, sheet_of

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
        f"accelerator={job.cluster.accelerator.name}", "kernel_correction=learned", f"model={job.model.name}",
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
