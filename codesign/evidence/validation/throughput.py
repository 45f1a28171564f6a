"""The most an engine serves, its batch its own choice: the best static batch that fits.

Where the layout is not stated (MLPerf), every tensor-parallel degree of a node is tried, and of models with experts
attention by data with experts spread over it: submitters tune theirs.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...core.errors import ConfigError
from ..measurements import tables
from .closed_loop_rows import readable
from .hardware import measured_cluster
from .scores import Errors, Row, rows
from .served_jobs import Job, format_of, scenario
from .served_models import model_of
from .served_rows import fastest
from .suites import Suite

MOST = 4096.0  # sequences of a replica
DEGREES = (1.0, 2.0, 4.0, 8.0)
LENGTHS = ("input_tokens", "output_tokens")
DATA_SETS = {r"llama2-70b(-99|-99\.9)?": (294.45, 294.45), r"deepseek-r1": (800.0, 3886.2274)}
"""Benchmark -> mean tokens of a prompt and of an answer, where a table has no columns of them.

Answers as the reference implementations print them (tokens per sample; mean-output-tok-len), read again; prompts are
assumed, of benchmarks whose answers take most of the time. Of any other both must be columns: of llama3.1-405b answers
are printed (684.68) but prompts take most of the time, of llama3.1-8b neither is.
Source: [mlcommons_rules].
"""


def stated(row: Any) -> list[Job]:
    """The engine of a row with its layout.

    Raises:
        ConfigError: device, model, number format or layout is not known.
    """
    layout = re.fullmatch(r"(TP|DEP)(\d+)", row.parallelism)
    if layout is None or int(layout.group(2)) != row.num_gpus:
        raise ConfigError(f"parallelism {row.parallelism!r} is not TPn or DEPn of all num_gpus")
    count, alone = float(row.num_gpus), layout.group(1) == "TP"
    model = model_of(row.model)
    result = Job(
        measured_cluster(row.gpu), model, format_of(row.precision, row.model, model), count if alone else 1.0, 1.0,
        1.0 if alone else count, not alone, 1.0, row.input_tokens, row.output_tokens,
    )  # fmt: skip
    scenario(result, 1.0)
    return [result]


def tuned(row: Any) -> list[Job]:
    """List what a submitter may have chosen for an offline run.

    Raises:
        ConfigError: device, model, number format, scenario or unit is not known.
    """
    if row.scenario != "Offline" or row.result_units != "Tokens/s":
        raise ConfigError(f"scenario {row.scenario!r} in {row.result_units!r} is not modelled")
    cluster, model = measured_cluster(row.gpu), model_of(row.model)
    number_format = format_of(row.weight_dtype, row.model, model)
    layouts = [(tp, 1.0, False) for tp in DEGREES if tp <= row.num_accelerators]
    if hasattr(model.feed_forward, "experts"):
        layouts += [(1.0, ranks, True) for ranks in DEGREES[1:] if ranks <= row.num_accelerators]
    jobs = [
        Job(cluster, model, number_format, tp, 1.0, ranks, spread, 1.0, *_lengths(row)) for tp, ranks, spread in layouts
    ]
    scenario(jobs[0], 1.0)
    return jobs


def _lengths(row: Any) -> tuple[float, float]:
    """Mean tokens of a prompt and of an answer: as the row says, else of the benchmark's data set.

    Raises:
        ConfigError: neither.
    """
    if all(hasattr(row, name) for name in LENGTHS):
        return row.input_tokens, row.output_tokens
    for pattern, lengths in DATA_SETS.items():
        if re.fullmatch(pattern, row.model):
            return lengths
    raise ConfigError(f"{' and '.join(LENGTHS)} of the data set of {row.model!r} are no columns")


def best(table: pd.DataFrame, reader: Any, shown: str, messages: list[str]) -> pd.DataFrame:
    """Rows with `predicted`, tokens per second of a device at the best of the engines that a row may mean."""
    known, refused = readable(table, reader)
    messages += [f"{shown}: {count} rows set aside, {why}" for why, count in refused.items()]
    if not known:
        return table.iloc[:0].assign(predicted=[])
    rates = iter(fastest([job for jobs in known.values() for job in jobs], MOST))
    found = np.array([max(next(rates) for _ in jobs) for jobs in known.values()])
    if (found == 0).any():
        messages.append(f"{shown}: {int((found == 0).sum())} rows set aside, no batch fits the memory")
    result = table.loc[list(known)].assign(predicted=found)
    return result[result["predicted"] > 0]


def _by_device(stratum: str, table: pd.DataFrame, measured: pd.Series) -> Iterator[Errors]:
    for (gpu, model), part in table.groupby(["gpu", "model"], sort=True):
        ours, theirs = (column[part.index].to_numpy(dtype=float) for column in (table["predicted"], measured))
        yield Errors(stratum, f"{gpu} {model}", ours, theirs)


def throughput_errors(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Predicted and measured tokens per second and device."""
    for table in tables(directory, "maximum_throughput"):
        result = best(table.rows(messages), stated, table.shown, messages)
        yield from _by_device("engine's own batch", result, result["output_tokens_per_s_per_gpu"])
    for table in tables(directory, "mlperf_inference"):
        result = best(table.rows(messages), tuned, table.shown, messages)
        yield from _by_device("MLPerf offline", result, result["result"] / result["num_accelerators"])


def run_throughput(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of the most that engines serve."""
    return rows("maximum throughput", "output_tokens_per_s_per_gpu", throughput_errors(directory, messages))


THROUGHPUT = Suite("maximum throughput", ("maximum_throughput", "mlperf_inference"), run_throughput)
