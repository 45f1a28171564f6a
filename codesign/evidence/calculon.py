"""The peer model Calculon [isaev2023] through configuration: its runs, priced by this package's own model.

    python -m codesign.evidence.calculon DIR      each run with its errors

What Calculon does                                          where it is said here
----------------------------------------------------------  ------------------------------------------------------------
peaks, efficiency steps, time = arithmetic + traffic        accelerator=calculon_*: Stepped kernels, serial collective =
latency + bytes x scalar (1 + offset / n)      collective=calculon_*, scale_out=calculon_*: ScaledVolume each mesh axis
on one network tier                          cluster.placement local pass and reduction with a tensor-parallel
collective  workload.copy_before_collective materialised scores, separate projections, no mask credit   model.attention:
fused, separate_projections, causal selective recomputation without the values product
model.attention.redo_values no embedding, no head                                       model.vocab 0 optimizer 12 B
traffic, 12 B state, one launch a weight     workload.optimizer one layer's gradients in fp32, the rest in 2 bytes
workload.precision.gradient_buffer, gradients all activation gradients of one layer at once
workload.release_gradients optimizer_sharding                                          plan.zero 2,
reduce_grads_every_microbatch 0 tensor_par_comm_type ar, p2p_rs_ag, rs_ag                   plan.sequence_parallel,
scatter_gather_p2p: (0 0), (0 1), (1 1) seq_par_ag_redo
plan.sequence_parallel_regather full recomputation keeps the undivided layer input          plan.partition_activations 0
tensor_par_overlap                                          plan.tp_overlap (a share, see `TENSOR_OVERLAPS`)
data_par_overlap, and what hides offload                    plan.dp_overlap, offload_overlap (see below)
weight, activations, optimizer offload                      plan.offload_*; the optimizer's takes the gradients along
optimizer state offloaded with every backward               workload.state_every_pass inference
workload.forward_only
"""

import dataclasses
import sys
from dataclasses import replace as change
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from ..config import scenario_from_config
from ..core.errors import ConfigError, DataError, suggestion
from ..core.fields import replace
from ..core.smooth import at_least, at_most, floor, ratio
from ..model.metrics import evaluate, priced_ops
from ..model.scenario import Cluster, Scenario
from ..model.workloads import CommOp, ComputeOp, Plan, Training
from ..model.workloads.schedule import Pass, Priced, one_pass, total
from ..staging import at_many
from .measurements import schema as reader
from .measurements.schema import EVERYTHING, Schema, flag, integer, number, text

__all__ = [
    "QUANTITIES", "errors", "main", "numbers", "predict", "predict_alike", "quantities", "read", "run",
    "scenario", "system",
]  # fmt: skip


# Overlap in the peer model Calculon [isaev2023]: shares hidden behind a pass, as a plan of this package takes them.


def hidden_shares(candidate: Scenario) -> dict[str, Array]:
    """Plan fields that say how much of a pass hides offload and data-parallel traffic, by the peer's own windows.

    Neither goes beside memory traffic. Gradients and gathered weights of all chunks but the last go beside p passes of
    a chunk, less a send for every chunk that they outlast; those of the last beside its own pass without one block.
    The peer takes the traffic of what is recomputed off as a running sum (its own bug); under full recomputation
    nothing remains of the window.
    """
    layout, job = candidate.layout, candidate.workload
    if not isinstance(job, Training) or job.forward_only:
        return {}
    peaks = {
        f"cluster.accelerator.peak_flops_per_s.{kind}": 1e30 for kind in candidate.cluster.accelerator.peak_flops_per_s
    }
    priced, moved = priced_ops(candidate), priced_ops(replace(candidate, peaks))
    exposed = dataclasses.replace(candidate.plan, offload_overlap=jnp.asarray(0.0), dp_overlap=jnp.asarray(0.0))

    def passed(phase: str, plan: Plan = exposed) -> Pass:
        return one_pass(priced, phase, plan, job.kernel_slowdown, job.launch_s)

    again, back = passed("recompute"), passed("backward")
    traffic, sends = total(moved, "backward", ComputeOp).time_s, back.exposed_s["pp"]
    alone_s = back.busy_s - back.exposed_s["offload"] - sends
    offload = ratio(again.busy_s + alone_s - traffic, alone_s)
    forward = passed("forward", dataclasses.replace(exposed, offload_overlap=offload))
    busy = at_least(again.busy_s + alone_s, traffic + back.exposed_s["offload"]) + sends

    v, pp, blocks = layout.plan.virtual_stages, layout.plan.pp, job.layers_per_stage(layout)
    sync, gather = (total(priced, phase, CommOp).time_s for phase in ("gradients", "parameters"))
    window = (busy - traffic - _redone_traffic(moved, candidate.cluster)) / v
    outlasted = at_most(floor((sync + gather) / busy), pp)
    chunks = (v - 1) * at_least(pp * window - outlasted * sends / v, 0.0)
    last = jnp.where(blocks > v, at_least(window - sends / v - busy / blocks, 0.0), 0.0)
    ours = (1 + (v - 1) * at_most(pp, job.micro_batches(layout))) / v * busy, forward.busy_s
    share = _hiding(at_most(chunks + last, (sync + gather) * (1 - 1 / blocks)), sync * (1 - 1 / blocks), gather, *ours)
    share = jnp.where(layout.plan.recompute < 2, share, 0.0)  # above 1: the gathering too goes beside backward passes
    return {"plan.offload_overlap": offload, "plan.dp_overlap": layout.plan.dp_overlap * share}


def _hiding(hidden: Array, sync: Array, gather: Array, backward: Array, forward: Array) -> Array:
    """The share o of a pass at which min(o backward, sync) + min(o forward, gather) is what the peer hides."""
    both = hidden / (backward + forward)
    return at_least(at_least(both, (hidden - sync) / forward), (hidden - gather) / backward)


def _redone_traffic(moved: Priced, cluster: Cluster) -> Array:
    """Memory time of the operations that are recomputed, each with all that come before it in the layer."""
    gathers = [
        op for op, _ in moved if isinstance(op, CommOp) and op.phase == "forward" and op.operation == "all_gather"
    ]
    running = jnp.asarray(0.0)
    for op in gathers[:1]:
        if op.local is not None:
            running = (
                running
                + cluster.accelerator.compute(op.local, op.count, kind="elementwise", number_format="vector").time_s
            )
    forward = [(op, cost) for op, cost in moved if isinstance(op, ComputeOp) and op.phase == "forward"]
    again = [op for op, _ in moved if isinstance(op, ComputeOp) and op.phase == "recompute"]
    redone = jnp.asarray(0.0)
    for (op, cost), repeat in zip(forward, again, strict=False):
        running = running + cost.time_s
        redone = redone + running * ratio(repeat.count, op.count)
    return redone


SYSTEMS = {"a100_80g": "a100", "a100_80e": "a100", "h100_80g_nvl8": "h100"}
"""Calculon's systems and the outer network they stand in."""

FORMATS = {"float16": "fp16", "bfloat16": "fp16", "float8": "fp8", "float32": "fp32"}
RECOMPUTE = {"none": 0.0, "attn_only": 1.0, "full": 2.0}
TIERS = {0: "scale_up", 1: "scale_out"}
TENSOR_OVERLAPS = {"none": 0.0, "ring": 0.7, "pipe": 0.2}
"""Share of the covering work that hides communication: one number for an accounting operation by operation."""

SHAPE = ("hidden", "feedforward", "seq_size", "attn_heads", "attn_size", "num_blocks")
SWITCHES = (
    "fused_activation", "optimizer_sharding", "seq_par_ag_redo", "data_par_overlap", "weight_offload",
    "activations_offload", "optimizer_offload", "training",
)  # fmt: skip
NUMBERS = (
    "num_procs", "tensor_par", "pipeline_par", "data_par", "tensor_par_net", "pipeline_par_net", "data_par_net",
    "batch_size", "microbatch_size", "pipeline_interleaving",
)  # fmt: skip
CHOICES = {
    "datatype": tuple(FORMATS),
    "attention_type": ("multihead", "multiquery"),
    "activation_recompute": tuple(RECOMPUTE),
    "tensor_par_comm_type": ("ar", "p2p_rs_ag", "rs_ag"),
    "tensor_par_overlap": tuple(TENSOR_OVERLAPS),
}
INPUTS = {f"app_{key}" for key in SHAPE} | {f"exe_{key}" for key in (*SWITCHES, *NUMBERS, *CHOICES)} | {"system"}
QUANTITIES = {
    "total_time": ("total_time",),
    "first_tier_memory": ("proc_mem_tier1_cap_req",),
    "second_tier_memory": ("proc_mem_tier2_cap_req",),
    "fw_time": ("fw_time",),
    "bw_time": ("bw_time",),
    "recompute_time": ("recompute_time",),
    "optimizer_time": ("optim_step_time",),
    "bubble_time": ("bubble_time",),
    "tp_comm_time": ("tp_comm_exposed_time", "recomm_exposed_time"),
    "pp_comm_time": ("pp_comm_exposed_time",),
    "dp_comm_time": ("dp_comm_exposed_time",),
}
"""Compared quantities and the columns that add up to each; of communication what stays exposed."""


ANSWERS = tuple(
    dict.fromkeys(column for columns in QUANTITIES.values() for column in columns if column != "total_time")
)
TABLE = Schema(
    "calculon", "runs of Calculon with their inputs",
    (text("id", "of the run"), text("system", "of Calculon"),
     *(integer(f"app_{name}", "of the model") for name in SHAPE),
     *(integer(f"exe_{name}", "of the execution") for name in NUMBERS if not name.endswith("_net")),
     *(integer(f"exe_{name}", "which network", 1.0, zero=True) for name in NUMBERS if name.endswith("_net")),
     *(flag(f"exe_{name}", "of the execution") for name in SWITCHES),
     *(text(f"exe_{name}", "of the execution") for name in CHOICES), number("total_time", "s", "Calculon's answer"),
     *(number(name, "bytes" if name.startswith("proc") else "s", "Calculon's answer", zero=True).if_there()
       for name in ANSWERS)),
    carried=EVERYTHING,
)  # fmt: skip


def read(folder: Path) -> pd.DataFrame:
    """The runs of a table, or of `runs.csv` in a folder, one row each.

    Raises:
        DataError: no such table, an input column that is missing or unknown, a value that is no option.
    """
    path = Path(folder) / "runs.csv" if Path(folder).is_dir() else Path(folder)
    if not path.is_file():
        raise DataError(f"{path}: no such table of Calculon runs")
    header = reader.cells(path, str(path), only_header=True).header
    given = {column for column in header if column.startswith(("app_", "exe_")) or column == "system"}
    for column in sorted(INPUTS ^ given):
        fault = "is missing" if column in INPUTS else f"is no input of Calculon{suggestion(column, INPUTS)}"
        raise DataError(f"{path}: column {column} {fault}")
    frame = _checked(path)
    for column, options in {"system": tuple(SYSTEMS), **{f"exe_{k}": v for k, v in CHOICES.items()}}.items():
        for value in set(frame[column]) - set(options):
            raise DataError(f"{path}: {column} = {value!r} is unknown{suggestion(str(value), options)}")
    return frame


def _checked(path: Path) -> pd.DataFrame:
    """All columns as they stand, once those that are compared are known to be whole."""
    reader.read(path, TABLE, str(path), [])
    return pd.read_csv(path)


@cache
def system(name: str) -> Scenario:
    """A scenario on one of Calculon's systems, its execution still the default."""
    beside = SYSTEMS[name]
    return scenario_from_config("experiment=calculon", f"accelerator=calculon_{name}", f"scale_out=calculon_{beside}")


def scenario(row: Any) -> Scenario:
    """The scenario of one run.

    Raises:
        ConfigError: the system has no peak for the run's number format.
    """
    return replace(_structure(row), numbers(row))


def _structure(row: Any) -> Scenario:
    """Scenario that runs of one batch share: system, networks of the axes, number format, training or inference."""
    base = system(row["system"])
    number_format = FORMATS[row["exe_datatype"]]
    accelerator = base.cluster.accelerator
    peaks = {kind: accelerator.peak(kind) for kind in (number_format, "vector")}
    accelerator = change(accelerator, name="calculon", peak_flops_per_s=peaks)  # one structure for all systems
    axes = {"tp": "tensor_par_net", "pp": "pipeline_par_net", "dp": "data_par_net"}
    placement = tuple(sorted((axis, TIERS[int(row[f"exe_{key}"])]) for axis, key in axes.items()))
    tensors = ("compute", "weights", "activations", "gradients", "kv_cache", "attention", "dispatch")
    workload = change(
        base.workload,
        precision=change(base.workload.precision, **dict.fromkeys(tensors, number_format)),
        forward_only=not row["exe_training"],
    )
    return Scenario(change(base.cluster, accelerator=accelerator, placement=placement), workload, base.plan)


def numbers(row: Any) -> dict[str, float]:
    """Dotted path -> value of every number that a run's inputs set."""
    exe = {key: row[f"exe_{key}"] for key in (*SWITCHES, *NUMBERS, *CHOICES)}
    app = {key: float(row[f"app_{key}"]) for key in SHAPE}
    optimizer = 8.0 if exe["datatype"] == "float32" else 12.0
    values = (
        _model(app, exe)
        | _plan(exe)
        | {
            "cluster.device_count": exe["num_procs"],
            "workload.sequence": app["seq_size"],
            "workload.global_batch": exe["batch_size"],
            "workload.optimizer.state_bytes": optimizer,
            "workload.optimizer.traffic_bytes": optimizer,
        }
    )
    return {path: float(value) for path, value in values.items()}


def _model(app: dict[str, float], exe: dict[str, Any]) -> dict[str, float]:
    heads = app["attn_heads"]
    shape = {
        "hidden": app["hidden"],
        "layers": app["num_blocks"],
        "attention.heads": heads,
        "attention.kv_heads": heads if exe["attention_type"] == "multihead" else 1.0,
        "attention.head_dim": app["attn_size"],
        "feed_forward.width": app["feedforward"],
        "feed_forward.fused_activation": exe["fused_activation"],
    }
    return {f"workload.model.{key}": value for key, value in shape.items()}


def _plan(exe: dict[str, Any]) -> dict[str, float]:
    scheme = exe["tensor_par_comm_type"]
    choices = {
        "tp": exe["tensor_par"],
        "pp": exe["pipeline_par"],
        "virtual_stages": exe["pipeline_interleaving"],
        "micro_batch": exe["microbatch_size"],
        "recompute": RECOMPUTE[exe["activation_recompute"]],
        "sequence_parallel": scheme == "rs_ag",
        "scatter_gather_p2p": scheme != "ar",
        "sequence_parallel_regather": exe["seq_par_ag_redo"],
        "zero": 2.0 * exe["optimizer_sharding"],
        "offload_weights": exe["weight_offload"],
        "offload_activations": exe["activations_offload"],
        "offload_optimizer": exe["optimizer_offload"],
        "offload_gradients": exe["optimizer_offload"],
        "tp_overlap": TENSOR_OVERLAPS[exe["tensor_par_overlap"]],
        "dp_overlap": exe["data_par_overlap"],
    }
    return {f"plan.{key}": value for key, value in choices.items()}


def quantities(candidate: Scenario) -> dict[str, Array]:
    """This model's answers under the names of `QUANTITIES`."""
    metrics = evaluate(replace(candidate, hidden_shares(candidate)))
    times, nothing = metrics.breakdown_s, jnp.zeros_like(metrics.time_s)
    return {
        "total_time": metrics.time_s,
        "first_tier_memory": _tier(metrics.memory_bytes, "hbm"),
        "second_tier_memory": _tier(metrics.memory_bytes, "ddr"),
        "fw_time": times["forward"],
        "bw_time": times.get("backward", nothing),
        "recompute_time": times.get("recompute", nothing),
        "optimizer_time": times["optimizer"],
        "bubble_time": times["bubble"],
        "tp_comm_time": times["tp"],
        "pp_comm_time": times["pp"],
        "dp_comm_time": times["dp"],
    }


def _tier(memory: dict[str, Array], tier: str) -> Array:
    return sum((nbytes for name, nbytes in memory.items() if name.startswith(tier)), jnp.asarray(0.0))


_answers = at_many(quantities)
_swept = at_many(lambda base, values: quantities(replace(base, values)), in_axes=(None, 0))


def predict(frame: pd.DataFrame) -> pd.DataFrame:
    """This model's answer to every run; runs of one structure are one batch, what cannot be said here is NaN."""
    answers = pd.DataFrame(np.nan, index=frame.index, columns=list(QUANTITIES))
    kinds: dict[Any, dict[Any, Scenario]] = {}
    for index, row in frame.iterrows():
        try:
            candidate = scenario(row)
        except ConfigError:
            continue
        kinds.setdefault(jax.tree.structure(candidate), {})[index] = candidate
    for group in kinds.values():
        batch = jax.tree.map(lambda *leaves: np.stack(leaves), *group.values())
        for name, values in _answers(batch).items():
            answers.loc[list(group), name] = values
    return answers


def predict_alike(frame: pd.DataFrame, block: int = 1024) -> pd.DataFrame:
    """This model's answer to many runs that differ in numbers only (one system, format and kind), in blocks."""
    base = _structure(frame.iloc[0])
    columns = pd.DataFrame([numbers(row) for row in frame.to_dict(orient="records")])
    parts = []
    for first in range(0, len(frame), block):
        values = {path: column.to_numpy()[first : first + block] for path, column in columns.items()}
        parts.append(pd.DataFrame(_swept(base, values)))
    return pd.concat(parts, ignore_index=True).set_axis(frame.index)


def errors(frame: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """Long table: run, system, quantity, Calculon's value, this model's, error = model / Calculon - 1."""
    parts = []
    for name, columns in QUANTITIES.items():
        if not set(columns) <= set(frame):
            continue
        theirs = frame[list(columns)].astype(float).sum(axis=1)
        part = pd.DataFrame({"run": frame["id"], "system": frame["system"], "theirs": theirs, "ours": answers[name]})
        part["quantity"] = name
        # a quantity that is no part of a run says nothing; below 1e-4 of the total it is noise
        if name.endswith("time"):
            part = part[theirs > 1e-4 * frame["total_time"]]
        parts.append(part[part["theirs"] > 0])
    table = pd.concat(parts, ignore_index=True).dropna(subset=["ours"])
    table["error"] = table["ours"] / table["theirs"] - 1
    return table


def run(folder: Path) -> list[dict[str, Any]]:
    """Error rows of `codesign validate` for Calculon runs, of all systems together and of each."""
    frame = read(folder)
    table = errors(frame, predict(frame))
    rows = []
    for name in QUANTITIES:
        mine = table[table["quantity"] == name]
        groups = {"all": mine} | {str(key): part for key, part in mine.groupby("system")}
        rows += [_summary(name, group, part) for group, part in groups.items() if len(part)]
    return rows


def _summary(quantity: str, group: str, part: pd.DataFrame) -> dict[str, Any]:
    size = part["error"].abs()
    rank = part["ours"].corr(part["theirs"], method="spearman") if len(part) > 1 else np.nan
    return {
        "suite": "calculon", "stratum": "peer model", "quantity": quantity, "group": group, "n": len(part),
        "median": float(size.median()), "mean": float(size.mean()), "p90": float(size.quantile(0.9)),
        "bias": float(part["error"].median()), "rank": None if np.isnan(rank) else float(rank),
        "coverage": None, "left_out": None, "width": None,
    }  # fmt: skip


def main(directory: str) -> None:
    """Print every run with the errors of each quantity, in per cent of Calculon's value."""
    frame = read(Path(directory))
    table = errors(frame, predict(frame))
    wide = table.pivot(index="run", columns="quantity", values="error") * 100
    labels = frame.set_index("id")[["app", "system", "group"]] if {"app", "group"} <= set(frame) else None
    wide = wide[[name for name in QUANTITIES if name in wide]]
    wide = wide.map(lambda value: "" if pd.isna(value) else f"{value:.2f}")
    print((wide if labels is None else labels.join(wide)).to_string())


if __name__ == "__main__":
    main(sys.argv[1])
