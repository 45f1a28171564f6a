"""MLPerf training results whose configuration's name tells the layout; nothing is fitted on them.

What is not printed is taken as the fastest that fits: micro-batches of 1 or 2, stages interleaved up to 8 times.
Distributed optimizer, fused attention, sequence parallelism where tp > 1, nothing recomputed; tensor-parallel traffic
and messages between stages hidden, as in NeMo, which these runs share; so its constants are judged on them as well.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from ..measurements import tables
from .framework import predicted, stored
from .hardware import measured_cluster
from .published_training import Run, prepare_rows
from .scores import Errors, Row, rows
from .suites import Suite
from .trained_models import configured_model

NEMO = "nemo_megatron_bridge"
MODELS = {"llama31_8b": "llama31_8b", "llama31_405b": "llama31_405b"}
NUMBERS = ("seq_tokens", "tp", "pp", "cp", "median_step_time_s")
MICRO_BATCHES, INTERLEAVED = (1.0, 2.0), (1.0, 2.0, 4.0, 8.0)


def runs(row: Any) -> list[Run]:
    """List the runs that a row may mean.

    Raises:
        ConfigError: an adapter's training, no layout, or no one number format.
    """
    if row.benchmark not in MODELS:
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
                row.gpu, configured_model(MODELS[row.benchmark]), plan, row.num_gpus, row.seq_tokens, row.global_batch,
                row.median_step_time_s, number_format, "bf16",
            ))  # fmt: skip
    if not result:
        raise ConfigError("a replica has less than one sequence")
    return result


def mlperf_errors(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Predicted and measured step seconds."""
    for table in tables(directory, "mlperf_training"):
        prepared = prepare_rows(table.rows(messages), runs, measured_cluster)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in prepared.refused.items()]
        if not len(prepared.measured):
            continue
        kinds = {"": prepared.predict().frame}
        if NEMO in stored():
            kinds[", framework of NeMo"] = predicted(prepared, stored(), NEMO)
        for suffix, frame in kinds.items():
            for (gpu, name), part in frame.groupby(["gpu", "benchmark"], sort=True):
                ours, theirs = (part[column].to_numpy(dtype=float) for column in ("predicted_s", "measured_s"))
                yield Errors(f"MLPerf training{suffix}", f"{gpu} {name}", ours, theirs)


def run_mlperf(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of MLPerf training."""
    return rows("MLPerf training", "step_time", mlperf_errors(directory, messages))


MLPERF_TRAINING = Suite("MLPerf training", ("mlperf_training",), run_mlperf)
