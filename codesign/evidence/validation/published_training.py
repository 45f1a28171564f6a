"""Measured training steps: what the model predicts for published runs, with constants fitted on kernels alone.

Each table is read into `Run`s (a model, a plan, a number of devices, a measured step time), which are priced together
(see `batches`). What a table does not say is assumed here, by name:

    achieved_rates     micro-batch not printed: the fastest that fits, as a tuner would choose; the default schedule,
                       not interleaved; unfused attention, dropout, no sequence parallelism, gradients not hidden,
                       under ZeRO-3 behind half of the work
    recompute_steps    the same, with its sequence parallelism and selective recomputation
    layout_steps       the same, without recomputation, one node
    sharded_rates      fully sharded data parallel (ZeRO 3, or 2 for SHARD_GRAD_OP), fused attention
    named_model_rates  fused attention, distributed optimizer, sequence parallelism where tp > 1, nothing recomputed;
                       tensor-parallel traffic and messages between stages hidden, as its recipes do
    frontier_rates     the same, tensor-parallel traffic and what context ranks gather not hidden, gradients summed in
                       32 bits (3.3.2 of [grattafiori2024llama3])
"""

import functools
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from ...core.errors import ConfigError
from ...model.metrics import evaluate
from ...model.scenario import Cluster, Scenario
from ...model.workloads import Plan, Precision, Slowdowns, Training, Transformer
from ..measurements import FoundTable
from .row_overrides import configured_model, megatron_model, model_of, mpt_model
from .scores import readable
from .vectorise import Adjust, Batch, anonymous, batches, grouped, sized, vectorised

__all__ = [
    "Clusters", "Predicted", "Prepared", "Run", "frontier", "korthikanti", "mosaic", "nemo", "prepare", "prepare_rows",
    "sc21", "sc21_seconds", "vtrain",
]  # fmt: skip

SC21_MICRO_BATCHES = (1, 2, 4, 8, 16)
OF_CLASSES = tuple(field.name for field in fields(Slowdowns))
DRAWN = 0  # seed of rows that stand for a long table
FORMATS = {
    "bf16": "bf16",
    "fp8": "fp8",
    "mxfp8": "fp8",
    "fp8-cs": "fp8",
    "fp8-mx": "fp8",
    "nvfp4": "fp4",
    "fp16": "bf16",
}


@dataclass(frozen=True)
class Run:
    """One measured step."""

    gpu: str
    model: Transformer
    plan: dict[str, float]
    devices: float
    sequence: float
    global_batch: float
    measured_s: float
    compute: str = "bf16"
    gradients: str = "fp32"

    @functools.cached_property
    def job(self) -> tuple[Training, Plan]:
        """The step and its layout."""
        precision = Precision(compute=self.compute, gradients=self.gradients)
        model = replace(self.model, name="")
        job = Training(model, sequence=self.sequence, global_batch=self.global_batch, precision=precision)
        return job, Plan(**self.plan)

    def scenario(self, cluster: Cluster) -> Scenario:
        """The run on a cluster of its size, without the names in it (see `anonymous`)."""
        job, plan = self.job
        plain, precision = anonymous(cluster, job.precision)
        return Scenario(sized(plain, self.devices), replace(job, precision=precision), plan)


def korthikanti(row: Any) -> list[Run]:
    """Iteration times with full and with selective recomputation."""
    selective = "selective" in row.method
    plan = dict(
        tp=row.tp, pp=row.pp, virtual_stages=row.virtual_pp, micro_batch=row.micro_batch,
        recompute=1.0 if selective else 2.0, sequence_parallel=1.0 if selective else 0.0, dp_overlap=0.0,
    )  # fmt: skip
    model = megatron_model(row)
    return [Run(row.gpu, model, plan, row.num_gpus, row.seq_tokens, row.global_batch, row.iteration_time_s)]


def sc21_seconds(row: Any) -> float:
    """Step time from achieved TFLOP/s: 96 B s L h^2 (1 + s/6h + V/16Lh), recomputation counted.

    Source: [narayanan2021] equation 3.
    """
    s, h, layers = row.seq_tokens, row.hidden, row.num_layers
    flops = 96 * row.global_batch * s * layers * h**2 * (1 + s / (6 * h) + row.vocab / (16 * layers * h))
    return flops / (row.achieved_tflops_per_gpu_hw * 1e12 * row.num_gpus)


def sc21(row: Any) -> list[Run]:
    """Weak scaling and the comparison with ZeRO-3; what is not printed is chosen as the fastest candidate."""
    model, sharded = megatron_model(row), "ZeRO" in str(row.scheme)
    printed = row.micro_batch == row.micro_batch
    runs = []
    for micro_batch in [row.micro_batch] if printed else SC21_MICRO_BATCHES:
        if (row.global_batch / row.dp) % micro_batch:
            continue
        plan = dict(
            tp=row.tp, pp=row.pp, micro_batch=micro_batch, recompute=2.0,
            zero=3.0 if sharded else 0.0, dp_overlap=0.5 if sharded else 0.0,
        )  # fmt: skip
        runs.append(Run(row.gpu, model, plan, row.num_gpus, row.seq_tokens, row.global_batch, sc21_seconds(row)))
    if not runs:
        raise ConfigError("no micro-batch divides what a replica is given")
    return runs


def vtrain(row: Any) -> list[Run]:
    """One node of A100, no recomputation."""
    model = megatron_model(row)
    plan = dict(tp=row.tp, pp=row.pp, micro_batch=row.micro_batch, dp_overlap=0.0)
    return [Run(row.gpu, model, plan, row.num_gpus, row.seq_tokens, row.global_batch, row.iteration_time_ms * 1e-3)]


def mosaic(row: Any) -> list[Run]:
    """MPT under fully sharded data parallelism."""
    model = mpt_model(str(row.model).split()[-1].lower())
    checkpointed = str(row.activation_checkpointing) == "True"
    plan = dict(
        micro_batch=row.micro_batch, recompute=2.0 if checkpointed else 0.0,
        zero=3.0 if row.sharding == "FULL_SHARD" else 2.0,
    )  # fmt: skip
    seconds = row.global_batch * row.seq_tokens / row.tokens_per_s_total
    gradients = "bf16" if row.fsdp_mixed_precision == "PURE" else "fp32"
    compute = FORMATS.get(str(row.precision), str(row.precision))
    return [Run(row.gpu, model, plan, row.num_gpus, row.seq_tokens, row.global_batch, seconds, compute, gradients)]


def nemo(row: Any) -> list[Run]:
    """Pre-training of the models that ship as configuration."""
    model = model_of(str(row.model).split(" [")[0])
    if row.phase != "Pre-Training":
        raise ConfigError(f"phase {row.phase!r} is not modelled")
    tp, pp, cp = float(row.tp), float(row.pp), float(row.cp)
    ep = 1.0 if row.ep != row.ep else float(row.ep)
    vp = 1.0 if row.vp != row.vp else max(float(row.vp), 1.0)
    sharded = row.fsdp == row.fsdp and float(row.fsdp) > 0
    plan = dict(
        tp=tp, pp=pp, cp=cp, ep=ep, virtual_stages=vp, micro_batch=row.micro_batch, zero=3.0 if sharded else 1.0,
        sequence_parallel=1.0 if tp > 1 else 0.0, tp_overlap=1.0, pp_overlap=1.0,
    )  # fmt: skip
    seconds = row.global_batch * row.seq_tokens / (row.tokens_per_s_per_gpu * row.num_gpus)
    compute = FORMATS.get(str(row.precision), str(row.precision))
    return [Run(row.gpu, model, plan, row.num_gpus, row.seq_tokens, row.global_batch, seconds, compute, "bf16")]


def frontier(row: Any) -> list[Run]:
    """Published runs of frontier models with a printed throughput."""
    if "405B" not in row.model:
        raise ConfigError(f"{row.model!r} prints no step time with its layout")
    numbers = ("tp", "pp", "cp", "seq_tokens", "global_batch", "tflops_per_gpu")
    if any(getattr(row, name) != getattr(row, name) for name in numbers):
        raise ConfigError(f"blank among {', '.join(numbers)}")
    model = configured_model("llama31_405b")
    plan = dict(
        tp=row.tp, pp=row.pp, cp=row.cp, virtual_stages=8.0, micro_batch=1.0, sequence_parallel=1.0, zero=1.0,
        pp_overlap=1.0, cp_overlap=0.0,
    )  # fmt: skip
    flops = (
        3 * row.global_batch * row.seq_tokens * float(model.forward_flops_per_token(jnp.asarray(row.seq_tokens / 2)))
    )
    seconds = flops / (row.tflops_per_gpu * 1e12 * row.num_gpus)
    return [Run(row.gpu, model, plan, row.num_gpus, row.seq_tokens, row.global_batch, seconds, "bf16", "fp32")]


TABLES: dict[str, Callable[[Any], list[Run]]] = {
    "recompute_steps": korthikanti,
    "achieved_rates": sc21,
    "layout_steps": vtrain,
    "sharded_rates": mosaic,
    "named_model_rates": nemo,
    "frontier_rates": frontier,
}
"""Kind of table -> how its rows are read."""


@dataclass
class Predicted:
    """Rows of one table with a prediction, and why others have none."""

    frame: pd.DataFrame  # columns of the table + measured_s, predicted_s
    refused: dict[str, int]


def _seconds_and_share(scenario: Scenario):
    metrics = evaluate(scenario)
    return metrics.time_s, metrics.usage["hbm"]


_priced = vectorised(_seconds_and_share)


def with_slowdowns(batch: Scenario, factors: Mapping[str, float] | None = None) -> Scenario:
    """A batch with factors on classes of operations: those known, else one and no hop, which change nothing.

    Steps with and without a framework are then of one structure, and traced once.
    """
    like = jnp.ones_like(batch.plan.tp)
    slowdowns = jax.tree.map(lambda factor: factor * like, Slowdowns(**dict(factors or {})))
    return replace(batch, workload=replace(batch.workload, slowdowns=slowdowns))


Clusters = Callable[[str], Cluster]


@dataclass
class Prepared:
    """Rows of a table ready to be priced, again and again with other constants."""

    table: pd.DataFrame
    measured: pd.DataFrame  # columns row, measured_s
    owner: np.ndarray  # which row of `measured` each scenario belongs to
    scenarios: list[Batch]
    refused: dict[str, int]
    read: list[tuple[Any, list[Run]]]  # row, the runs it may mean

    def on(self, clusters: Clusters) -> "Prepared":
        """Copy on other clusters, its rows read once."""
        return _prepared(self.table, self.read, {}, clusters)

    def some(self, rows: Container[Any], clusters: Clusters) -> "Prepared":
        """Some of the rows, by their place in the table."""
        return _prepared(self.table, [one for one in self.read if one[0] in rows], {}, clusters)

    def predict(self, adjust: Adjust = with_slowdowns) -> Predicted:
        """Predict; `adjust` is the last change to every batch of scenarios (a fitted constant)."""
        seconds, used = grouped(self.scenarios, _priced, adjust)
        frame = self.measured.copy()
        frame["predicted_s"] = [_fastest(seconds, used, self.owner == i) for i in range(len(frame))]
        return Predicted(self.table.join(frame.set_index("row"), how="inner"), self.refused)


def prepare(source: FoundTable, clusters: Clusters, messages: list[str], most: int | None = None) -> Prepared:
    """Read a table of one of the kinds of `TABLES`, or `most` of its rows drawn at random.

    Every so many rows would not do: tables list layouts in an order of their own, which may keep step.
    """
    table = source.rows(messages)
    chosen = table if most is None or len(table) <= most else table.sample(most, random_state=DRAWN).sort_index()
    return prepare_rows(chosen, TABLES[source.schema.name], clusters)


def prepare_rows(table: pd.DataFrame, reader: Callable[[Any], list[Run]], clusters: Clusters) -> Prepared:
    """Read the rows of a table.

    Args:
        table: rows as `reader` understands them.
        reader: row -> the runs it may mean, of which the fastest that fits is taken.
        clusters: GPU name of the table -> cluster.
    """
    understood, refused = readable(table, reader)
    return _prepared(table, [*understood.items()], refused, clusters)


def _prepared(
    table: pd.DataFrame, read: list[tuple[Any, list[Run]]], refused: dict[str, int], clusters: Clusters
) -> Prepared:
    refused, scenarios, owner = dict(refused), [], []
    rows: list[dict[str, Any]] = []
    for index, runs in read:
        try:
            candidates = [run.scenario(clusters(run.gpu)) for run in runs]
        except ConfigError as error:
            refused[str(error)] = refused.get(str(error), 0) + 1
            continue
        owner += [len(rows)] * len(candidates)
        scenarios += candidates
        rows.append({"row": index, "measured_s": runs[0].measured_s})
    measured = pd.DataFrame(rows, columns=["row", "measured_s"])
    return Prepared(table, measured, np.array(owner, dtype=int), batches(scenarios), refused, read)


def _fastest(seconds: np.ndarray, used: np.ndarray, mine: np.ndarray) -> float:
    """The fastest candidate that fits, or the one that comes closest to fitting."""
    fits = mine & (used <= 1.0)
    if fits.any():
        return float(seconds[fits].min())
    return float(seconds[mine][np.argmin(used[mine])])
