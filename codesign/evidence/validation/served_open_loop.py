"""Served models under a rate of requests, with what peer models predict for the same rows beside ours.

A row is `codesign evaluate workload=at_rate` with its device, model, engine, layout and lengths (`run_of`). Prompts
that came before are found in the prefix cache but for a block that is not full; new ones are those of a run's first
stage. Engines of these tables plan a step ahead (asynchronous scheduling).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from ...core.errors import ConfigError
from ..measurements import tables
from .closed_loop_rows import readable
from .hardware import accelerator_option
from .runs import PricedRun, command, predicted
from .scores import Errors, Row, rows
from .served_jobs import PUBLISHED, format_of
from .served_models import model_of, option_of
from .suites import Suite

METRICS = {
    "itl_mean_ms": ("itl", "tpot_s"), "ttft_mean_ms": ("ttft", "ttft_s"), "e2e_mean_ms": ("e2e", "e2e_s"),
    "ttft_p90_ms": ("ttft p90", "ttft_p90_s"), "ttft_p99_ms": ("ttft p99", "ttft_p99_s"),
    "e2e_p90_ms": ("e2e p90", "e2e_p90_s"), "e2e_p99_ms": ("e2e p99", "e2e_p99_s"),
}  # fmt: skip
"""Column -> its quantity, and the metric of that name."""
OURS = "this model"
METHOD = "codesign evaluate workload=at_rate framework=vllm_async"
HALF_A_BLOCK = 8.0  # tokens of a prompt that is in the cache but for its last block, of 16 (default of vLLM)


def run_of(row: Any) -> PricedRun:
    """The overrides of a row; `found` is the share of its prompts that came before.

    Raises:
        ConfigError: its device, model or number format is not known.
    """
    option = option_of(row.model)
    number_format = format_of(row.weights, row.model, model_of(row.model))
    if number_format not in ("bf16", "fp8", PUBLISHED):
        raise ConfigError(f"number format {row.weights!r} is not modelled at a rate")
    chosen = (
        f"accelerator={accelerator_option(row.gpu)}", f"model={option}",
        f"workload=at_rate{'_fp8' if number_format == 'fp8' else ''}", "framework=vllm_async",
        *(("precision=checkpoint",) if number_format == PUBLISHED else ()),
    )  # fmt: skip
    engine_tokens = getattr(row, "max_num_batched_tokens", None)
    return PricedRun(chosen, {
        "cluster.device_count": float(row.tp * row.dp), "plan.tp": float(row.tp),
        "plan.micro_batch": float(row.max_num_seqs),
        **({"plan.token_budget": float(engine_tokens)} if engine_tokens and engine_tokens == engine_tokens else {}),
        "workload.arrivals_per_s": float(row.request_rate_per_s), "workload.arrival_cv": 0.0,
        "workload.input_tokens": float(row.input_tokens), "workload.output_tokens": float(row.output_tokens),
        "workload.cached_ratio": max(1 - HALF_A_BLOCK / row.input_tokens, 0.0),
        "workload.retained_share": float(row.found),
    })  # fmt: skip


def with_found(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with the share of their prompts that came before: in the first stage of a run alone some are new."""
    new = table["distinct_prompts"] / (table["request_rate_per_s"] * table["duration_s"])
    first = table["request_rate_per_s"] == table.groupby("run")["request_rate_per_s"].transform("min")
    return table.assign(found=(1 - new.where(first, 0.0)).clip(0.0, 1.0))


def answers(table: pd.DataFrame, runs: list[PricedRun]) -> pd.DataFrame:
    """Milliseconds of every row, by the table's columns."""
    result = predicted(runs, [metric for _, metric in METRICS.values()])
    return pd.DataFrame({name: 1e3 * result[metric] for name, (_, metric) in METRICS.items()}, index=table.index)


def beside(predicted: pd.DataFrame, measured: pd.DataFrame, who: str, column: str) -> Iterator[Errors]:
    """Errors of one predictor in one column, by model and device, where it has an answer."""
    joined = measured.join(predicted[column].rename("predicted"), how="inner")
    joined = joined[joined["predicted"].notna()]
    for (gpu, model), part in joined.groupby(["gpu", "model"], sort=True):
        ours, theirs = (part[name].to_numpy(dtype=float) for name in ("predicted", column))
        yield Errors(who, f"{gpu} {model}", ours * 1e-3, theirs * 1e-3)


def run_open_loop(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of served models under a rate, the peers' on the rows that we answer."""
    measured, ours = [], []
    for table in tables(directory, "open_loop"):
        found = with_found(table.rows(messages))
        jobs, refused = readable(found, run_of)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in refused.items()]
        if jobs:
            found = found.loc[list(jobs)]
            measured.append(found)
            ours.append(answers(found, list(jobs.values())))
    if not measured:
        messages += [f"{t.shown}: not used, no measured row is answered" for t in tables(directory, "open_loop_peers")]
        return []
    messages.append(f"open loop: priced by `{METHOD}`; prompts that came before are found in the cache")
    keys = ["run", "request_rate_per_s"]
    truth = pd.concat(measured, ignore_index=True)
    answered = {OURS: pd.concat(ours, ignore_index=True).set_index(truth.index)}
    for name, part in _peers(directory, keys, messages).items():
        matched = truth[keys].reset_index().merge(part, on=keys, how="inner").set_index("index")
        answered[f"peer {name}"] = matched
    result: list[Row] = []
    for column, (quantity, _) in METRICS.items():
        for who, part in answered.items():
            if column in part:
                result += rows("open loop", quantity, beside(part, truth, who, column))
    return result


def open_loop_commands(directory: Path, messages: list[str]) -> Iterator[str]:
    """The command of each row that can be priced, behind it what was measured."""
    for table in tables(directory, "open_loop"):
        result = with_found(table.rows(messages))
        runs, refused = readable(result, run_of)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in refused.items()]
        for at, run in runs.items():
            row: Any = result.loc[at]
            told = (f"{metric} {float(row[column]) / 1e3:.6g}" for column, (_, metric) in METRICS.items())
            yield f"{command(run)}  # {', '.join(told)}"


def _peers(directory: Path, keys: list[str], messages: list[str]) -> dict[str, pd.DataFrame]:
    """Peer -> its answers."""
    frames = [table.rows(messages) for table in tables(directory, "open_loop_peers")]
    if not frames:
        return {}
    every = pd.concat(frames, ignore_index=True)
    return {str(name): part.drop_duplicates(keys) for name, part in every.groupby("peer", sort=True)}


OPEN_LOOP = Suite("open loop", ("open_loop", "open_loop_peers"), run_open_loop)
