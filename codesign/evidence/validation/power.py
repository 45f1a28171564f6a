"""Power and energy: boards while one kernel repeats, and served models in steady decoding.

kernels            what clocks, arithmetic and traffic of the table draw by energies that were fitted on the others
steady decoding    time and joules as the model predicts them for the batch that decodes, under vLLM with tokens
                   chosen by chance (below): board power, J/token; also with times and energies fitted
                   without the rows of the same device and model
"""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd

from ...config.groups import conf_dir
from ...core.errors import ConfigError
from ...core.json_yaml import read_yaml
from ...model.metrics.evaluation import drawn_j, priced_ops
from ...model.scenario import Scenario
from ...model.workloads import CommOp, ComputeOp, ContinuousServing
from ..calibration.board_power import FORMATS, LEAST_LATENCY_US, board_limits
from ..calibration.served_power import ENGINE, FAR, DecodedJobs, DrawnPower, PowerRows, Sampled, left_out
from ..measurements import tables
from .row_overrides import PricedRun, board_cluster, model_of, scenarios_of
from .scores import Errors, Row, Suite, errors_by, read_rows, rows
from .served_rows import BLOCKS, Job, check_format, format_of, precision_of
from .served_rows import run_of as served_run
from .vectorise import batches, grouped, vectorised

# Power of served models in steady decoding: times and joules of an engine that chooses tokens by chance.
#
# Clients of these tables ask for what models recommend, top-p: vLLM then sorts all scores of every sequence in every
# step, with PyTorch where its other sampler was not chosen (vLLM pull request 11394: a fifth of the throughput).
# A step takes what the engine's kernels take, and
#
#     step_overhead_s + sampling_s words B + expert_layer_s layers with experts
#
# with B sequences. Prompts, which the tables do not state, are `prompt_tokens` long. The four are fitted
# (`codesign calibrate`) and kept in `conf/calibration/frameworks/sampled.yaml`.


@functools.cache
def stored_sampled() -> Sampled:
    """Constants of token sampling as last fitted."""
    path = conf_dir() / "calibration" / "frameworks" / "sampled.yaml"
    data: Any = read_yaml(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return Sampled(**data.get(ENGINE, {}))


def job(row: Any) -> Job:
    """The engine of a row: attention on all devices of a replica, whether experts are cut or spread over them.

    Raises:
        ConfigError: its device, model, number format or layout is not known.
    """
    if row.num_gpus % row.dp:
        raise ConfigError(f"{row.dp} replicas do not divide {row.num_gpus} devices")
    model = model_of(row.model)
    named = format_of(row.weight_precision, row.model, model)
    result = Job(
        board_cluster(row.gpu), model, named, row.num_gpus / row.dp, 1.0, row.dp,
        False, max(row.avg_batch_size, 1.0), 1.0, max(row.avg_output_tokens, 2.0), ENGINE,
    )  # fmt: skip
    check_format(result)
    return result


def _loads(one: Scenario):
    """Fields of `DrawnPower`, from the operations as they are priced."""
    job, layout = one.workload, one.layout
    assert isinstance(job, ContinuousServing)
    priced, often = priced_ops(one), job.repeats(layout)
    timeline = job.timeline(priced, layout)
    board, energy = one.cluster.accelerator.board, drawn_j(one.cluster, timeline)
    none = jnp.asarray(0.0)
    flops = {"compute": none, "attention": none, "vector": none}
    kernels, nbytes, links = none, none, none
    for op, cost in priced:
        if isinstance(op, ComputeOp):
            times = often[op.phase]
            kernels = kernels + times * cost.time_s
            part = op.number_format if op.number_format in flops else "compute"  # classes of weights have their own
            flops[part] = flops[part] + times * op.count * op.work.flops
            nbytes = nbytes + times * op.count * op.work.nbytes
        elif isinstance(op, CommOp):
            clocks = 0.0 if board is None else board.working_w * cost.time_s
            kernels, links = kernels + often[op.phase] * cost.time_s, links + often[op.phase] * (cost.energy_j - clocks)
    steps = timeline.tokens / (layout.plan.micro_batch * layout.dp)  # that a whole answer stands for
    return tuple(value / steps for value in (timeline.time_s, energy, kernels, *flops.values(), nbytes, links))


_priced = vectorised(_loads)


def drawn(jobs: list[Job], sampled: Sampled) -> DrawnPower:
    """Times and energies of jobs.

    Raises:
        ConfigError: a device lacks a number format.
    """
    return DrawnPower(*grouped(batches(scenarios_of([run_of(one, sampled) for one in jobs], energies=True)), _priced))


def run_of(one: Job, sampled: Sampled) -> PricedRun:
    """The overrides of a job, under vLLM that chooses tokens by chance."""
    chosen, numbers = served_run(one)
    measured = (conf_dir() / "calibration" / "power" / f"{one.cluster.accelerator.name}.yaml").is_file()
    words = [word.replace(f"framework={ENGINE}", f"framework={ENGINE}_sampled") for word in chosen]
    words += [f"+calibration/power={one.cluster.accelerator.name}"] if measured else []
    added = {f"workload.{name}": value for name, value in sampled._asdict().items() if name != "prompt_tokens"}
    return PricedRun(tuple(words), numbers | added | {"workload.input_tokens": sampled.prompt_tokens})


def decoded(jobs: Sequence[Job]) -> DecodedJobs:
    """Work of jobs that decode."""
    products, attention = np.array([formats(one) for one in jobs]).T
    return DecodedJobs(
        np.array([float(one.model.vocab) * one.sequences / one.replicas for one in jobs]),
        np.array([float(one.model.layers) * hasattr(one.model.feed_forward, "experts") for one in jobs]),
        products, attention,
        np.array([float(one.cluster.accelerator.energy_j_per_flop.get("vector", 0.0)) for one in jobs]),
    )  # fmt: skip


def formats(job: Job) -> tuple[str, str]:
    """Number formats of products and of attention."""
    precision = precision_of(job)
    return "fp8" if job.number_format == BLOCKS else precision.compute, precision.attention


def seen_rows(directory: Path) -> PowerRows | None:
    """Rows of all tables below a folder that can be priced; None where there are none."""
    rows, jobs = read_rows(directory, "serving_power", job, [])
    if not jobs:
        return None
    return seen_of(rows, jobs, drawn(jobs, Sampled()), drawn(jobs, Sampled(prompt_tokens=FAR)))


def seen_of(rows: pd.DataFrame, jobs: list[Job], near: DrawnPower, far: DrawnPower) -> PowerRows:
    """Rows of a table with their prices."""
    step = (rows["avg_batch_size"] / rows["output_tokens_per_s"]).to_numpy(dtype=float)
    return PowerRows(
        decoded(jobs), rows["gpu"].to_numpy(), rows["model"].to_numpy(), step,
        rows["avg_power_w_per_gpu"].to_numpy(dtype=float), rows["energy_j_per_output_token"].to_numpy(dtype=float),
        devices_of(jobs), near, far,
    )  # fmt: skip


def devices_of(jobs: Sequence[Job]) -> np.ndarray:
    """Devices over sequences that decode together: what joules a token are of."""
    return np.array([one.tp * one.replicas / one.sequences for one in jobs])


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
                accelerator = board_cluster(str(gpu)).accelerator
            except ConfigError as error:
                messages.append(f"{table.shown}: {len(part)} rows set aside: {error}")
                continue
            per_flop = part["dtype"].map(
                lambda name, device=accelerator: float(device.energy_j_per_flop.get(FORMATS[name][0], np.nan))
            )
            priced = per_flop.notna()
            idle, traffic = accelerator.idle_power_w(), float(accelerator.hbm.energy()) * part["achieved_tbytes_per_s"]
            watts = 1e12 * (per_flop * part["achieved_tflops"] + traffic)
            if accelerator.board is not None:  # of one second
                most = float(accelerator.board.most_j(jnp.asarray(1.0), idle))
                watts = np.minimum(watts + float(accelerator.board.working_w), most)
            watts = float(idle) + watts
            yield Errors("kernels", f"{gpu} {kernel}", watts[priced].to_numpy(), part["power_w"][priced].to_numpy())


def decoding(directory: Path, messages: list[str]) -> pd.DataFrame:
    """Rows of served models with watts of a board and joules a token, also by constants of other rows alone."""
    result, jobs = read_rows(directory, "serving_power", job, messages)
    if not jobs:
        return result
    seen, limits = drawn(jobs, stored_sampled()), board_limits(directory)
    watts = np.array([float(one.cluster.accelerator.idle_power_w()) for one in jobs]) + seen.energy_j / seen.step_s
    apart = left_out(seen_of(result, jobs, drawn(jobs, Sampled()), drawn(jobs, Sampled(prompt_tokens=FAR))), limits)
    return result.assign(
        watts=watts, joules=watts * seen.step_s * devices_of(jobs), watts_apart=apart[0], joules_apart=apart[1]
    )


def run_power(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of power."""
    result = rows("power", "board_power", kernel_errors(directory, messages))
    table = decoding(directory, messages)
    for quantity, name, measured in QUANTITIES if len(table) else ():
        for suffix, end in (("", ""), (LEFT_OUT, "_apart")):
            errors = errors_by(f"steady decoding{suffix}", table, ["gpu", "model"], f"{name}{end}", measured)
            result += rows("power", quantity, errors)
    return result


POWER = Suite("power", ("kernel_power", "serving_power"), run_power)
