"""SLO with measurements and with peer models: one suite for each kind of table, whatever folder it lies in."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import DataError
from ...core.lazy import lazily
from ..measurements import survey, unread
from ..measurements.folder import FoundTable, Survey
from .across_nodes import ACROSS
from .closed_loop import CLOSED_LOOP
from .end_to_end import INFERENCE, TRAINING
from .exchange import EXCHANGE, calibrate_exchange
from .measured_kernels import COLLECTIVES, KERNELS
from .mlperf_training import MLPERF_TRAINING
from .peer import CALCULON
from .power import POWER
from .scores import Row, note
from .served_open_loop import OPEN_LOOP
from .suites import Suite as Suite
from .throughput import THROUGHPUT
from .two_pools import DISAGGREGATED
from .unfitted import UNFITTED

if TYPE_CHECKING:  # peers, papers and what few ask for
    from . import calculon as calculon
    from . import published_training as published_training
    from .framework import adjustment as adjustment
    from .hardware import measured_cluster as measured_cluster
    from .many import at_many as at_many
else:
    __getattr__, _ = lazily(
        __name__,
        {"framework": ("adjustment",), "hardware": ("measured_cluster",), "many": ("at_many",)},
        modules=("calculon", "published_training"),
    )

__all__ = [
    "SUITES", "Suite", "adjustment", "at_many", "calculon", "calibrate_frameworks", "measured_cluster",
    "published_training", "validate",
]  # fmt: skip

READ_BY_SUITES = ("peaks", "manifest")  # or describing the folder
SUITES: tuple[Suite, ...] = (
    KERNELS, COLLECTIVES, UNFITTED, ACROSS, EXCHANGE, TRAINING, MLPERF_TRAINING, INFERENCE, THROUGHPUT, CLOSED_LOOP,
    DISAGGREGATED, OPEN_LOOP, POWER, CALCULON,
)  # fmt: skip


def calibrate_frameworks(directory: str | Path, out: str | Path) -> list[Path]:
    """Fit what frameworks and libraries of expert exchange add on tables below a folder; the files written."""
    from .framework import calibrate_training
    from .hardware import measured_cluster
    from .power_fit import calibrate_serving_power
    from .serving_fit import calibrate_serving

    def told(text: str) -> None:
        print(text, file=sys.stderr)

    steps = calibrate_training(Path(directory), Path(out), measured_cluster, told)
    served = calibrate_serving(Path(directory), Path(out), told)
    exchanged = calibrate_exchange(Path(directory), Path(out))
    return steps + served + exchanged + calibrate_serving_power(Path(directory), Path(out), told)


def understood(found: Survey, directory: Path, suites: tuple[Suite, ...]) -> list[FoundTable]:
    """Tables of a folder that some of these suites read.

    Raises:
        DataError: there is none.
    """
    mine = [table for table in found.tables if any(table.schema.name in suite.kinds for suite in suites)]
    if not mine:
        names = ", ".join(suite.name for suite in suites)
        why = f"{directory} holds no table that a suite understands ({names})"
        first = next((f"; {shown}: {reason}" for shown, reason in found.others.items()), "")
        raise DataError(f"{why}{first}; `codesign validate --schema` prints the columns of each kind")
    return mine


def validate(directory: str | Path, suites: tuple[Suite, ...] = SUITES) -> list[Row]:
    """Errors of every table below a folder that a suite understands.

    Each row is {suite, stratum, quantity, group, n, median, mean, p90, bias, rank}: shares of |predicted/measured - 1|,
    bias its signed median, rank Spearman's inside the group. Files, columns and rows that were set aside are rows of
    the suite `note`, whose quantity says what and why.

    Raises:
        DataError: no such folder, no table any suite understands, or a damaged table.
    """
    directory = Path(directory)
    found = survey(directory)
    mine = understood(found, directory, suites)
    for table in found.tables:
        if table not in mine:  # suites check their own
            table.rows([])
    result: list[Row] = []
    messages = unread(directory)
    for suite in suites:
        if any(table.schema.name in suite.kinds for table in mine):
            result += suite.run(directory, messages)
    messages += [f"{shown}: no suite uses this table, {reason}" for shown, reason in found.others.items()]
    messages += [
        f"{table.shown}: no suite uses this table, {table.schema.why}"
        for table in found.tables
        if table.schema.why and table.schema.name not in READ_BY_SUITES
    ]
    return result + [note(message) for message in dict.fromkeys(messages)]
