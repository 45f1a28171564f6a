"""Agreement with measurements and with peer models: one suite for each kind of table, whatever folder it lies in."""

import contextlib
import sys
import tempfile
from collections.abc import Collection, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.atomic_files import make_folder
from ...core.errors import ConfigError, DataError
from ...core.lazy import lazily
from ..measurements import survey, unread
from ..measurements.folder import FoundTable, Survey, as_folder, files
from .across_nodes import ACROSS, EXCHANGE, calibrate_exchange
from .compared_runs import commands, compared, run_rows, scored
from .end_to_end import INFERENCE, MLPERF_TRAINING, TRAINING
from .measured_kernels import COLLECTIVES, KERNELS, UNFITTED
from .measured_runs import run_tables
from .power import POWER
from .scores import Row, note
from .scores import Suite as Suite
from .served_suites import (
    CLOSED_LOOP,
    DISAGGREGATED,
    OPEN_LOOP,
    THROUGHPUT,
    served_commands,
)

if TYPE_CHECKING:  # peers, papers and what few ask for
    from . import published_training as published_training
    from .framework import adjustment as adjustment
    from .row_overrides import measured_cluster as measured_cluster
else:
    __getattr__, _ = lazily(__name__)

__all__ = [
    "SUITES", "Suite", "adjustment", "calibrate_frameworks", "measured_cluster", "published_training", "validate",
]  # fmt: skip

READ_BY_SUITES = ("peaks", "manifest")  # or describing the folder
SUITES: tuple[Suite, ...] = (
    KERNELS, COLLECTIVES, UNFITTED, ACROSS, EXCHANGE, TRAINING, MLPERF_TRAINING, INFERENCE, THROUGHPUT, CLOSED_LOOP,
    DISAGGREGATED, OPEN_LOOP, POWER,
)  # fmt: skip


def calibrate_frameworks(directory: str | Path, out: str | Path) -> list[Path]:
    """Fit what frameworks and libraries of expert exchange add on tables below a folder; the files written."""
    from ..calibration.board_power import board_limits
    from ..calibration.served_power import calibrate_serving_power
    from .framework import calibrate_training
    from .power import seen_rows
    from .row_overrides import measured_cluster
    from .served_suites import disaggregated_rows
    from .serving_fit import calibrate_serving

    def progress(text: str) -> None:
        print(text, file=sys.stderr)

    steps = calibrate_training(Path(directory), Path(out), measured_cluster, progress)
    served = calibrate_serving(Path(directory), Path(out), progress, disaggregated_rows(Path(directory), []))
    exchanged = calibrate_exchange(Path(directory), Path(out))
    power = calibrate_serving_power(seen_rows(Path(directory)), board_limits(Path(directory)), Path(out), progress)
    return steps + served + exchanged + power


def understood(folder_tables: Survey, directory: Path, suites: tuple[Suite, ...]) -> list[FoundTable]:
    """Tables of a folder that some of these suites read.

    Raises:
        DataError: there is none.
    """
    mine = [table for table in folder_tables.tables if any(table.schema.name in suite.kinds for suite in suites)]
    if not mine:
        names = ", ".join(suite.name for suite in suites)
        why = f"{directory} holds no table that a suite understands ({names})"
        first = next((f"; {shown}: {reason}" for shown, reason in folder_tables.others.items()), "")
        raise DataError(f"{why}{first}; `codesign validate --schema` prints the columns of each kind")
    return mine


def validate(directory: str | Path, suites: tuple[Suite, ...] = SUITES) -> list[Row]:
    """Errors of every table below a folder that a suite understands, and of measured runs in any other.

    Each row is {suite, stratum, quantity, group, n, median, mean, p90, bias, rank}: shares of |predicted/measured - 1|,
    bias its signed median, rank Spearman's inside the group. Files, columns and rows that were set aside are rows of
    the suite `note`, whose quantity says what and why: a damaged table is one line, the others are scored.

    Raises:
        DataError: no such folder, or no table that can be scored.
    """
    with as_folder(Path(directory)) as folder:
        return _validated(folder, suites)


def _validated(directory: Path, suites: tuple[Suite, ...]) -> list[Row]:
    paths = files(directory)
    damaged: dict[Path, str] = {}
    while True:
        try:
            return _scored(directory, suites, damaged)
        except DataError as error:
            guilty = [path for path in paths if _begins(str(error), path.relative_to(directory).as_posix())]
            if len(paths) - len(damaged) < 2 or not guilty or guilty[0] in damaged:
                if damaged:  # nothing else can be scored
                    raise DataError(next(iter(damaged.values()))) from error
                raise
            damaged[guilty[0]] = str(error)


def _begins(said: str, shown: str) -> bool:
    return said.startswith((f"{shown},", f"{shown}:", f"{shown} "))


def _scored(directory: Path, suites: tuple[Suite, ...], damaged: dict[Path, str]) -> list[Row]:
    """`validate` of a folder without these files, whose reasons are told.

    Raises:
        DataError: the first file that is damaged too.
    """
    with without(directory, damaged) as folder:
        folder_tables, messages = survey(folder), list[str]()
        runs = run_tables(folder, [table.path for table in folder_tables.tables], messages)
        aside = [message for message in messages if ": set aside, " in message]
        if aside and not runs and not folder_tables.tables:
            raise DataError(aside[0])  # no row of any run can be read
        mine = [] if runs else understood(folder_tables, directory, suites)
        mine = mine or [t for t in folder_tables.tables if any(t.schema.name in suite.kinds for suite in suites)]
        for table in folder_tables.tables:
            if table not in mine:  # suites check their own
                table.rows([])
        comparisons = compared(runs, messages)
        result: list[Row] = scored(comparisons) + run_rows(comparisons)
        messages = unread(folder) + messages
        for suite in suites:
            if any(table.schema.name in suite.kinds for table in mine):
                result += _of_suite(suite, folder, messages)
    read = {one.location.rpartition(", line ")[0] for one in runs}
    messages += [f"{shown}: no suite uses this table, {reason}" for shown, reason in folder_tables.others.items()
                 if shown not in read]  # fmt: skip
    messages += [
        f"{table.shown}: no suite uses this table, {table.schema.why}"
        for table in folder_tables.tables
        if table.schema.why and table.schema.name not in READ_BY_SUITES
    ]
    messages += [f"not used: {reason}" for reason in damaged.values()]
    return result + [note(message) for message in dict.fromkeys(messages)]


def _of_suite(suite: Suite, folder: Path, messages: list[str]) -> list[Row]:
    """Rows of one suite; none, and a message, where a design of its tables cannot be priced: the others are scored.

    Raises:
        DataError: a damaged file.
    """
    try:
        return suite.run(folder, messages)
    except ConfigError as error:
        messages.append(f"{suite.name}: not scored, {error}")
        return []


def commands_of(directory: str | Path) -> Iterator[str]:
    """The command that predicts each measured run of a folder; what is set aside is told on standard error.

    Raises:
        DataError: no such folder, or a damaged table.
    """
    messages = list[str]()
    with as_folder(Path(directory)) as folder:
        typed = [table.path for table in survey(folder).tables]
        yield from served_commands(folder, messages)
        yield from commands(run_tables(folder, typed, messages))
    for message in messages:
        print(f"codesign: {message}", file=sys.stderr)


@contextlib.contextmanager
def without(directory: Path, damaged: Collection[Path]) -> Generator[Path, None, None]:
    """The folder itself, or where files are damaged one of links to the others."""
    if not damaged:
        yield directory
        return
    with tempfile.TemporaryDirectory() as name:
        for path in files(directory):
            if path not in damaged:
                link = Path(name) / path.relative_to(directory)
                make_folder(link.parent)
                link.symlink_to(path.resolve())
        yield Path(name)
