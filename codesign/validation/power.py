"""Power and energy: boards while one kernel repeats, and served models in steady decoding.

    kernels            idle power and joules of the arithmetic and traffic that the table states; they were fitted on
                       measurements of such boards
    steady decoding    time and joules as the model predicts them for the batch that decodes: board power, J/token

Assumes: prompts of steady decoding weigh nothing, which the tables do not state.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..calibration.board_power import FORMATS, LEAST_LATENCY_US
from ..errors import ConfigError
from ..measurements import tables
from ..metrics.evaluation import priced_ops
from ..scenario import Scenario
from .batches import batches, grouped, vectorised
from .closed_loop_rows import readable
from .hardware import measured_cluster
from .scores import Errors, Row, rows
from .served_models import model_of
from .served_rows import Job, format_of, scenario
from .suites import Suite


def kernel_errors(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Watts of boards while a kernel repeats."""
    for table in tables(directory, "kernel_power"):
        found = table.rows(messages)
        brief, unknown = found["latency_us"] <= LEAST_LATENCY_US, ~found["dtype"].isin(FORMATS)
        for chosen, why in (
            (unknown, "of other number formats set aside"),
            (brief & ~unknown, f"of {LEAST_LATENCY_US:g} us or less set aside, a sensor does not resolve them"),
        ):
            if chosen.any():
                messages.append(f"{table.shown}: {int(chosen.sum())} rows {why}")
        for (gpu, kernel), part in found[~brief & ~unknown].groupby(["gpu", "kernel"], sort=True):
            try:
                accelerator = measured_cluster(str(gpu)).accelerator
            except ConfigError as error:
                messages.append(f"{table.shown}: {len(part)} rows set aside: {error}")
                continue
            per_flop = part["dtype"].map(
                lambda name, own=accelerator: float(own.energy_j_per_flop.get(FORMATS[name][0], np.nan))
            )
            known = per_flop.notna()
            watts = (
                float(accelerator.idle_power_w())
                + per_flop * part["achieved_tflops"] * 1e12
                + float(accelerator.hbm.energy()) * part["achieved_tbytes_per_s"] * 1e12
            )
            yield Errors("kernels", f"{gpu} {kernel}", watts[known].to_numpy(), part["power_w"][known].to_numpy())


def job(row: Any) -> Job:
    """The engine of a row: attention on all devices of a replica, whether experts are cut or spread over them.

    Raises:
        ConfigError: its device, model, number format or layout is not known.
    """
    if row.num_gpus % row.dp:
        raise ConfigError(f"{row.dp} replicas do not divide {row.num_gpus} devices")
    tp = row.num_gpus / row.dp
    found = Job(
        measured_cluster(row.gpu), model_of(row.model), format_of(row.weight_precision, row.model), tp, 1.0, row.dp,
        row.ep > 1 and row.dp > 1, max(row.avg_batch_size, 1.0), 1.0, max(row.avg_output_tokens, 1.0),
    )  # fmt: skip
    scenario(found, 1.0)
    return found


def _watts_and_joules(one: Scenario):
    timeline = one.workload.timeline(priced_ops(one), one.layout)
    watts = timeline.energy_j / timeline.time_s + one.cluster.accelerator.idle_power_w()
    return watts, watts * one.cluster.device_count * timeline.time_s / timeline.tokens


_priced = vectorised(_watts_and_joules)


def decoding(directory: Path, messages: list[str]) -> pd.DataFrame:
    """Rows of served models with watts of a board and joules a token."""
    frames = []
    for table in tables(directory, "serving_power"):
        found = table.rows(messages)
        jobs, refused = readable(found, job)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in refused.items()]
        if jobs:
            drawn = [scenario(one, one.sequences, energies=True) for one in jobs.values()]
            watts, joules = grouped(batches(drawn), _priced)
            frames.append(found.loc[list(jobs)].assign(watts=watts, joules=joules))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _by_model(table: pd.DataFrame, predicted: str, measured: str) -> Iterator[Errors]:
    for (gpu, model), part in table.groupby(["gpu", "model"], sort=True):
        ours, theirs = (part[name].to_numpy(dtype=float) for name in (predicted, measured))
        yield Errors("steady decoding", f"{gpu} {model}", ours, theirs)


def run_power(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of power."""
    result = rows("power", "board_power", kernel_errors(directory, messages))
    table = decoding(directory, messages)
    if len(table):
        result += rows("power", "board_power", _by_model(table, "watts", "avg_power_w_per_gpu"))
        result += rows("power", "joules_per_token", _by_model(table, "joules", "energy_j_per_output_token"))
    return result


POWER = Suite("power", ("kernel_power", "serving_power"), run_power)
