"""Power and energy: boards while one kernel repeats, and served models in steady decoding.

kernels            what clocks, arithmetic and traffic of the table draw by energies that were fitted on the others
steady decoding    time and joules as the model predicts them for the batch that decodes, under vLLM with tokens
                   chosen by chance (`served_power`): board power, J/token; also with times and energies fitted
                   without the rows of the same device and model
"""

from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd

from ...core.errors import ConfigError
from ..calibration.board_power import FORMATS, LEAST_LATENCY_US, board_limits
from ..measurements import tables
from .closed_loop_rows import readable
from .hardware import board_cluster
from .power_fit import FAR, devices_of, left_out, seen_of
from .scores import Errors, Row, rows
from .served_power import ENGINE, Sampled, drawn, job, stored_sampled
from .suites import Suite

LEFT_OUT = ", GPU and model left out"
QUANTITIES = (
    ("board_power", "watts", "avg_power_w_per_gpu"), ("joules_per_token", "joules", "energy_j_per_output_token"),
)  # fmt: skip


def kernel_errors(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Watts of boards while a kernel repeats."""
    for table in tables(directory, "kernel_power"):
        result = table.rows(messages)
        brief, unknown = result["latency_us"] <= LEAST_LATENCY_US, ~result["dtype"].isin(FORMATS)
        for chosen, why in (
            (unknown, "of other number formats set aside"),
            (brief & ~unknown, f"of {LEAST_LATENCY_US:g} us or less set aside, a sensor does not resolve them"),
        ):
            if chosen.any():
                messages.append(f"{table.shown}: {int(chosen.sum())} rows {why}")
        for (gpu, kernel), part in result[~brief & ~unknown].groupby(["gpu", "kernel"], sort=True):
            try:
                accelerator = board_cluster(str(gpu), ENGINE, False).accelerator
            except ConfigError as error:
                messages.append(f"{table.shown}: {len(part)} rows set aside: {error}")
                continue
            per_flop = part["dtype"].map(
                lambda name, own=accelerator: float(own.energy_j_per_flop.get(FORMATS[name][0], np.nan))
            )
            known = per_flop.notna()
            idle, traffic = accelerator.idle_power_w(), float(accelerator.hbm.energy()) * part["achieved_tbytes_per_s"]
            watts = 1e12 * (per_flop * part["achieved_tflops"] + traffic)
            if accelerator.board is not None:  # of one second
                most = float(accelerator.board.most_j(jnp.asarray(1.0), idle))
                watts = np.minimum(watts + float(accelerator.board.working_w), most)
            watts = float(idle) + watts
            yield Errors("kernels", f"{gpu} {kernel}", watts[known].to_numpy(), part["power_w"][known].to_numpy())


def decoding(directory: Path, messages: list[str]) -> pd.DataFrame:
    """Rows of served models with watts of a board and joules a token, also by constants of other rows alone."""
    frames, asked = [], []
    for table in tables(directory, "serving_power"):
        result = table.rows(messages)
        jobs, refused = readable(result, job)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in refused.items()]
        frames.append(result.loc[list(jobs)])
        asked += jobs.values()
    if not asked:
        return pd.DataFrame()
    result, limits = pd.concat(frames, ignore_index=True), board_limits(directory)
    seen = drawn(asked, stored_sampled())
    watts = np.array([float(one.cluster.accelerator.idle_power_w()) for one in asked]) + seen.energy_j / seen.step_s
    apart = left_out(seen_of(result, asked, drawn(asked, Sampled()), drawn(asked, Sampled(prompt_tokens=FAR))), limits)
    return result.assign(
        watts=watts, joules=watts * seen.step_s * devices_of(asked), watts_apart=apart[0], joules_apart=apart[1]
    )


def _by_model(table: pd.DataFrame, stratum: str, predicted: str, measured: str) -> Iterator[Errors]:
    table = table[table[predicted].notna()]
    for (gpu, model), part in table.groupby(["gpu", "model"], sort=True):
        ours, theirs = (part[name].to_numpy(dtype=float) for name in (predicted, measured))
        yield Errors(stratum, f"{gpu} {model}", ours, theirs)


def run_power(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of power."""
    result = rows("power", "board_power", kernel_errors(directory, messages))
    table = decoding(directory, messages)
    for quantity, name, measured in QUANTITIES if len(table) else ():
        for suffix, end in (("", ""), (LEFT_OUT, "_apart")):
            errors = _by_model(table, f"steady decoding{suffix}", f"{name}{end}", measured)
            result += rows("power", quantity, errors)
    return result


POWER = Suite("power", ("kernel_power", "serving_power"), run_power)
