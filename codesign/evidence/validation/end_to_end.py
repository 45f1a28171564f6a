"""Suites of whole jobs: measured training steps and static-batch inference, against constants fitted on kernels.

Strata, each with the GPU's own kernel constants and with those of its nearest relative (`GPU left out`):

    training <table>                    kernels and collectives alone: nothing was fitted on a training step
    training <table>, framework fitted  with the overhead constants of `conf/calibration/frameworks/training.yaml`,
                                        fitted on the shared part of this very table
    training <table>, framework of ...  with those fitted on another source
    static-batch inference              kernels and collectives alone
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ...core.errors import ConfigError
from ...model.metrics import evaluate
from ...model.scenario import Cluster, Scenario
from ...model.workloads import Plan, Precision, StaticBatch
from ..measurements import FoundTable, tables
from . import published_training
from .framework import FITTED_ON, ZERO, of_part, parts_of, predicted, stored
from .published_training import FORMATS, Run, prepare_rows
from .row_overrides import configured_model, left_out_cluster, measured_cluster
from .scores import Errors, Row, Suite, errors_by, read_rows, rows, set_aside
from .vectorise import anonymous, batches, grouped, sized, vectorised

# Measured static-batch inference: fixed batch, fixed input and output lengths.
#
# A row with a throughput is compared by its output tokens per second and GPU, a row with only a first-token latency
# by that. Kernels take the reference framework's constants whatever engine served the row; nothing is fitted here.


INFERENCE_MODELS = {
    "GPT-J 6B": "gpt_j_6b",
    "LLaMA 7B": "llama2_7b",
    "LLaMA-2 7B": "llama2_7b",
    "LLaMA 13B": "llama2_13b",
    "LLaMA-2 13B": "llama2_13b",
    "LLaMA 70B": "llama2_70b",
    "LLaMA-2 70B": "llama2_70b",
    "Llama-3.1-70B": "llama31_70b",
    "Llama-3.1-8B": "llama31_8b",
    "Falcon 180B": "falcon_180b",
    "DBRX-Instruct": "dbrx",
}


def static_batch(row: Any, cluster: Cluster) -> Scenario:
    """One measured batch."""
    if row.model not in INFERENCE_MODELS:
        raise ConfigError(f"model {row.model!r} has no configuration")
    number_format = FORMATS.get(str(row.precision), str(row.precision))
    precision = Precision(compute=number_format, weights=number_format, kv_cache=number_format)
    model = replace(configured_model(INFERENCE_MODELS[row.model]), name="")
    plain, precision = anonymous(cluster, precision)
    answered = 1.0 if row.output_tokens != row.output_tokens else row.output_tokens
    job = StaticBatch(model, input_tokens=max(row.input_tokens, 1.0), output_tokens=answered, precision=precision)
    return Scenario(sized(plain, row.tp), job, Plan(tp=row.tp, micro_batch=row.batch_size))


def _rate_and_first(scenario: Scenario):
    metrics = evaluate(scenario)
    return metrics.tokens_per_s / scenario.cluster.device_count, metrics.extra["ttft_s"]


_priced = vectorised(_rate_and_first)


def inference_rows(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of static batches, a stratum for each quantity."""
    result: list[Row] = []
    for suffix, clusters in (("", measured_cluster), (", GPU left out", left_out_cluster)):

        def scenario(row: Any, clusters: Callable[[str], Cluster] = clusters) -> Scenario:
            return static_batch(row, clusters(row.gpu))

        table, scenarios = read_rows(directory, "static_batches", scenario, [] if suffix else messages)
        if not scenarios:
            continue
        table["rate"], table["first_s"] = grouped(batches(scenarios), _priced)
        table["first_token_latency_s"] = 1e-3 * table["first_token_latency_ms"]
        only_first = table["output_tokens_per_s_per_gpu"].isna()
        for quantity, part, ours, theirs in (
            ("first_token_latency", table[only_first], "first_s", "first_token_latency_s"),
            ("output_tokens_per_s_per_gpu", table[~only_first], "rate", "output_tokens_per_s_per_gpu"),
        ):
            stratum = f"static-batch inference{suffix}"
            result += rows("inference", quantity, errors_by(stratum, part, ["gpu", "software"], ours, theirs))
    return result


INFERENCE = Suite("inference", ("static_batches",), inference_rows)


# MLPerf training results whose configuration's name tells the layout; nothing is fitted on them.
#
# What is not printed is taken as the fastest that fits: micro-batches of 1 or 2, stages interleaved up to 8 times.
# Distributed optimizer, fused attention, sequence parallelism where tp > 1, nothing recomputed; tensor-parallel
# traffic and messages between stages hidden, as in NeMo, which these runs share; so its constants are judged on them
# as well.


NEMO = "nemo_megatron_bridge"

MLPERF = {"llama31_8b": "llama31_8b", "llama31_405b": "llama31_405b"}

NUMBERS = ("seq_tokens", "tp", "pp", "cp", "median_step_time_s")
MICRO_BATCHES, INTERLEAVED = (1.0, 2.0), (1.0, 2.0, 4.0, 8.0)


def runs(row: Any) -> list[Run]:
    """List the runs that a row may mean.

    Raises:
        ConfigError: an adapter's training, no layout, or no one number format.
    """
    if row.benchmark not in MLPERF:
        raise ConfigError(f"benchmark {row.benchmark!r} is not modelled")
    blank = [name for name in NUMBERS if getattr(row, name) != getattr(row, name)]
    if blank:
        raise ConfigError(f"{', '.join(blank)} not stated")
    number_format = str(row.precision_from_config_name)[:3]
    if number_format not in ("fp8", "fp4"):
        raise ConfigError(f"precision {row.precision_from_config_name!r} is not one format")
    result = []
    share = row.global_batch / (row.num_gpus / (row.tp * row.pp * row.cp))
    for micro_batch in MICRO_BATCHES:
        for stages in INTERLEAVED if row.pp > 1 else (1.0,):
            if share % micro_batch:
                continue
            plan = dict(
                tp=row.tp, pp=row.pp, cp=row.cp, virtual_stages=stages, micro_batch=micro_batch, zero=1.0,
                sequence_parallel=1.0 if row.tp > 1 else 0.0, tp_overlap=1.0, pp_overlap=1.0,
            )  # fmt: skip
            result.append(Run(
                row.gpu, configured_model(MLPERF[row.benchmark]), plan, row.num_gpus, row.seq_tokens, row.global_batch,
                row.median_step_time_s, number_format, "bf16",
            ))  # fmt: skip
    if not result:
        raise ConfigError("a replica has less than one sequence")
    return result


def mlperf_errors(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Predicted and measured step seconds."""
    for table in tables(directory, "mlperf_training"):
        prepared = prepare_rows(table.rows(messages), runs, measured_cluster)
        messages += set_aside(table.shown, prepared.refused)
        if not len(prepared.measured):
            continue
        kinds = {"": prepared.predict().frame}
        if NEMO in stored():
            kinds[", framework of NeMo"] = predicted(prepared, stored(), NEMO)
        for suffix, frame in kinds.items():
            stratum = f"MLPerf training{suffix}"
            yield from errors_by(stratum, frame, ["gpu", "benchmark"], "predicted_s", "measured_s")


def run_mlperf(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of MLPerf training."""
    return rows("MLPerf training", "step_time", mlperf_errors(directory, messages))


MLPERF_TRAINING = Suite("MLPerf training", ("mlperf_training",), run_mlperf)


SHORT = {  # sources by the name of their file; any other is called by that
    "korthikanti2022_recompute": "Korthikanti 2022",
    "megatron_sc21": "Megatron SC21",
    "vtrain_single_node": "vTrain",
    "mosaicml_llm_foundry": "MosaicML",
    "nemo_megatron_bridge": "NeMo",
    "frontier_runs": "frontier",
}
OTHER_SOURCE = {  # tables of the same framework: one's overhead judged on the other
    "korthikanti2022_recompute": "megatron_sc21",
    "megatron_sc21": "korthikanti2022_recompute",
    "frontier_runs": "nemo_megatron_bridge",
}


def _frameworks(table: FoundTable) -> Iterator[tuple[str, str]]:
    """(suffix of the stratum, source of the constants) of a training table."""
    constants, stem = stored(), table.path.stem
    if stem in constants:
        yield ", framework fitted", stem
    other = OTHER_SOURCE.get(stem, FITTED_ON.get(table.schema.name, ""))
    if other in constants and other != stem:
        yield f", framework of {SHORT.get(other, other)}", other


def training_errors(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Predicted and measured step seconds of every table."""
    for table in tables(directory, *published_training.TABLES):
        prepared = published_training.prepare(table, measured_cluster, messages)
        messages += set_aside(table.shown, prepared.refused)
        if not len(prepared.measured):
            continue
        name = SHORT.get(table.path.stem, table.path.stem)
        yield from _by_gpu(name, "", prepared.predict().frame)
        for suffix, source in _frameworks(table):
            result = predicted(prepared, stored(), source)
            others = parts_of(result) == ZERO if of_part(source, ZERO) not in stored() else parts_of(result).isna()
            if others.any():
                messages.append(f"{table.shown}: {int(others.sum())} rows of {ZERO} set aside{suffix}: none of its own")
            yield from _by_gpu(name, suffix, result[~others])
        left_out = prepared.on(left_out_cluster)
        if len(left_out.measured):
            yield from _by_gpu(name, ", GPU left out", left_out.predict().frame)


def _by_gpu(name: str, suffix: str, frame: pd.DataFrame) -> Iterator[Errors]:
    stratum = f"training {name}"
    if "experiment" not in frame:
        yield from errors_by(stratum + suffix, frame, ["gpu"], "predicted_s", "measured_s")
        return
    scheme = frame["experiment"].map({"table1_weak_scaling": "table 1"}).fillna(frame["scheme"])
    for part, chosen in frame.groupby(scheme):
        yield from errors_by(f"{stratum} {part}{suffix}", chosen, ["gpu"], "predicted_s", "measured_s")


def run_training(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all training tables."""
    return rows("training", "step_time", training_errors(directory, messages))


TRAINING = Suite("training", tuple(published_training.TABLES), run_training)
