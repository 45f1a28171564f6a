"""Measured tables: found by name anywhere below a folder, checked, and split into groups with a device each."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..errors import DataError
from .gpus import FORMATS, Device, Peaks, device, read_peaks
from .kernels import TABLES, Columns, KernelTable

OPTIONAL = {"framework_version", "bytes_moved", "source", "repeats"}
OTHERS = (  # fitted by other parts of a calibration, or describing the folder
    "nccl_scaleup*.csv", "custom_allreduce*.csv", "nccl_scaleout*.csv", "gpu_kernel_power*.csv", "mlenergy*.csv",
    "hardware_peaks.csv", "MANIFEST.csv", "korthikanti2022_recompute.csv", "megatron_sc21.csv",
    "vtrain_single_node.csv", "mosaicml_llm_foundry.csv", "nemo_megatron_bridge.csv",
)  # fmt: skip
NOT_KERNELS = ("gemm_published.csv", "moe_all_to_all.csv")  # other tables whose name fits a pattern


class TableGroup(NamedTuple):
    """Rows of one class, device, framework and number format, as work and measured seconds."""

    table: KernelTable
    device: Device
    framework: str
    number_format: str
    peak_flops_per_s: float
    operand_bytes: float
    works: list[Columns]
    measured_s: np.ndarray

    @property
    def label(self) -> str:
        """For progress and messages."""
        return f"{self.table.name} {self.number_format} {self.device.name} {self.framework}"


def matching(directory: Path, pattern: str) -> list[Path]:
    """Files of that name anywhere below the folder, sorted."""
    return [path for path in sorted(directory.rglob(pattern)) if path.name not in NOT_KERNELS]


def unknown(directory: Path) -> list[str]:
    """A line for every table below a folder that nothing is fitted on."""
    patterns = (*(table.pattern for table in TABLES), *OTHERS)
    known = {path for pattern in patterns for path in matching(directory, pattern)}
    rest = (path for path in sorted(directory.rglob("*.csv")) if path not in known)
    return [f"{path.relative_to(directory)}: nothing is fitted on this table" for path in rest]


def read(path: Path, required: tuple[str, ...]) -> pd.DataFrame:
    """A table with its required columns.

    Raises:
        DataError: not readable, columns missing, or a latency that is no positive number.
    """
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError, pd.errors.ParserError) as error:
        raise DataError(f"{path.name} cannot be read as CSV: {error}") from error
    missing = [column for column in required if column not in rows.columns]
    if missing:
        raise DataError(f"{path.name} lacks column(s) {', '.join(missing)} (has: {', '.join(rows.columns)})")
    for column in required:
        if column.endswith(("_us", "_bytes")) and not (pd.to_numeric(rows[column], errors="coerce") > 0).all():
            raise DataError(f"{path.name}: every {column} must be a positive number")
    return rows


def format_key(table: KernelTable, row_format: str, cache_format: str | None) -> str:
    """Our key for a number format; a different cache format is part of it."""
    ours = FORMATS[row_format][0] if row_format in FORMATS else row_format
    if table.name == "elementwise":
        return "any"
    if cache_format is None or cache_format == row_format:
        return ours
    cache = FORMATS[cache_format][0] if cache_format in FORMATS else cache_format
    return f"{ours}_kv_{cache}"


def kernel_groups(
    directory: Path, messages: list[str], tables: tuple[KernelTable, ...] = TABLES
) -> Iterator[TableGroup]:
    """Every group of every kernel table below a folder.

    Args:
        messages: what was set aside and why is added here.
    """
    folder = read_peaks(directory)
    for table in tables:
        frames = []
        for path in matching(directory, table.pattern):
            rows = read(path, table.required)
            extra = set(rows.columns) - set(table.required) - OPTIONAL
            if extra:
                messages.append(f"{path.name}: column(s) {', '.join(sorted(extra))} not used")
            frames.append(rows)
        if frames:
            yield from _split(table, pd.concat(frames, ignore_index=True), folder, messages)


def _split(
    table: KernelTable, rows: pd.DataFrame, folder: dict[str, Peaks], messages: list[str]
) -> Iterator[TableGroup]:
    keys = ["gpu", "framework", table.format_column]
    if "kv_cache_dtype" in table.required:
        keys.append("kv_cache_dtype")
    for key, group in rows.groupby(keys, sort=True):
        gpu, framework, row_format, *cache = key
        unknown = [name for name in (row_format, *cache) if name not in FORMATS]
        if unknown:
            messages.append(f"{table.name}: {len(group)} rows of {gpu} with number format {unknown[0]!r} set aside")
            continue
        try:
            who = device(str(gpu), folder)
        except DataError as error:
            messages.append(f"{table.name}: {len(group)} rows set aside: {error}")
            continue
        _, column, element = FORMATS[row_format]
        peak = who.peaks.flops(0 if table.name == "elementwise" else column)
        yield TableGroup(
            table, who, str(framework), format_key(table, row_format, cache[0] if cache else None), peak, element,
            table.works(group), group[table.latency].to_numpy(dtype=float) * 1e-6,
        )  # fmt: skip
