"""Agreement with measurements and with peer models: one suite for each kind of table, whatever folder it lies in."""

import sys
from pathlib import Path

from ..errors import DataError
from .across_nodes import ACROSS
from .end_to_end import INFERENCE, TRAINING
from .measured import COLLECTIVES, KERNELS
from .peer import CALCULON
from .scores import Row, note
from .tables import Suite as Suite
from .unfitted import UNFITTED

SUITES: tuple[Suite, ...] = (KERNELS, COLLECTIVES, UNFITTED, ACROSS, TRAINING, INFERENCE, CALCULON)
INPUTS = {"hardware_peaks.csv", "MANIFEST.csv"}  # read by suites, or describing the folder

REASONS = {  # beginning of a file's name -> why no suite scores it
    "gpu_kernel_power": "board power is fitted by `codesign calibrate`, its residual stands beside the constants",
    "mlenergy": "board power is fitted by `codesign calibrate`, its residual stands beside the constants",
    "energy_per_bit": "single figures; they are sources of the configuration",
    "system_power": "single figures; they are sources of the configuration",
    "public_prices": "prices; they are sources of the configuration",
    "korthikanti2022_memory": "read off a figure, without the run it belongs to",
    "serving_": "served queues: concurrency and scheduling are not modelled",
    "trtllm_max_throughput": "the engine chose the batch, which is not stated",
    "mlperf_inference": "whole systems under load: batch and scheduling are not stated",
    "mlperf_training": "the layout of the run is not stated",
}


def calibrate_frameworks(directory: str | Path, out: str | Path) -> list[Path]:
    """Fit what training frameworks add to kernels on the training tables below a folder; the file written, if any."""
    from .framework import calibrate_training
    from .hardware import measured_cluster

    return calibrate_training(Path(directory), Path(out), measured_cluster, lambda text: print(text, file=sys.stderr))


def validate(directory: str | Path, suites: tuple[Suite, ...] = SUITES) -> list[Row]:
    """Errors of every table below a folder that a suite understands.

    Each row is {suite, stratum, quantity, group, n, median, mean, p90, bias, rank}: shares of |predicted/measured - 1|,
    bias its signed median, rank Spearman's inside the group. Files, columns and rows that were set aside are rows of
    the suite `note`, whose quantity says what and why.

    Raises:
        DataError: no such folder, no table any suite understands, or a table that lacks columns.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise DataError(f"{directory} is no folder")
    result: list[Row] = []
    messages: list[str] = []
    known: set[Path] = set()
    for suite in suites:
        files = suite.files(directory)
        known.update(files)
        if files:
            result += suite.run(directory, messages)
    if not known:
        raise DataError(f"{directory} holds no table that a suite understands ({', '.join(s.name for s in suites)})")
    for path in sorted(directory.rglob("*.csv")):
        if path not in known and path.name not in INPUTS:
            why = next((text for start, text in REASONS.items() if path.name.startswith(start)), "")
            messages.append(f"{path.relative_to(directory)}: no suite uses this table{why and ', ' + why}")
    return result + [note(message) for message in dict.fromkeys(messages)]
