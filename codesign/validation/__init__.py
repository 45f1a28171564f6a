"""Agreement with measurements and with peer models: one suite for each kind of table, whatever folder it lies in."""

import sys
from pathlib import Path

from ..errors import DataError
from .end_to_end import INFERENCE, TRAINING
from .measured import COLLECTIVES, KERNELS
from .peer import CALCULON
from .scores import Row, note
from .tables import Suite as Suite

SUITES: tuple[Suite, ...] = (KERNELS, COLLECTIVES, TRAINING, INFERENCE, CALCULON)
INPUTS = {"hardware_peaks.csv", "MANIFEST.csv"}  # read by suites, or describing the folder


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
            messages.append(f"{path.relative_to(directory)}: no suite uses this table")
    return result + [note(message) for message in dict.fromkeys(messages)]
