"""Measured tables of kernels, chosen by their columns, and split into groups with a device each."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...core.errors import DataError
from ..measurements import SCHEMAS, survey, tables
from .gpus import FORMATS, Device, Peaks, device
from .kernels import TABLES, Columns, KernelTable

KINDS = {  # class of kernel -> kind of table; of attention, decode or not
    "gemm": ("gemm", None), "attention_prefill": ("attention", False), "attention_decode": ("attention", True),
    "mla_prefill": ("latent_attention", False), "mla_decode": ("latent_attention", True), "moe_gemm": ("experts", None),
    "elementwise": ("quantise", None),
}  # fmt: skip
LEAST_ROWS = 10  # of a group, for a fit whose held-out part says anything
PEAKS = ("dense_bf16_tflops", "dense_fp8_tflops", "dense_fp4_tflops", "hbm_tbytes_per_s")
LINK = "scaleup_link_gbytes_per_s_one_way"


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


def unknown(directory: Path) -> list[str]:
    """A line for every table below a folder that nothing is fitted on.

    Raises:
        DataError: no such folder, a file that is no table, or one that lacks columns of the kind it resembles.
    """
    result = survey(directory)
    fitted = {schema.name for schema in SCHEMAS if schema.fitted} | {"peaks", "manifest"}
    rest = [*result.others, *(table.shown for table in result.tables if table.schema.name not in fitted)]
    return [f"{shown}: nothing is fitted on this table" for shown in sorted(rest)]


def peak_rows(directory: Path) -> pd.DataFrame:
    """Every row of the tables of peaks below a folder; empty where there is none.

    Raises:
        DataError: a damaged table, or one device twice.
    """
    frames = [table.rows([]).assign(table=table.shown) for table in tables(directory, "peaks")]
    if not frames:
        return pd.DataFrame(columns=["gpu"])
    rows = pd.concat(frames, ignore_index=True)
    again = rows[rows["gpu"].duplicated()]
    if len(again):
        raise DataError(f"{again['table'].iloc[0]}: gpu {again['gpu'].iloc[0]} is described twice; allowed: once")
    return rows


def read_peaks(directory: Path) -> dict[str, Peaks]:
    """Device -> peaks, as the folder says them; empty where it does not.

    Raises:
        DataError: see `peak_rows`.
    """
    rows = peak_rows(directory)
    link = rows[LINK] if LINK in rows else pd.Series(np.nan, index=rows.index)
    rates = [rows[name].to_numpy(dtype=float) * 1e12 for name in PEAKS] if len(rows) else []
    columns = zip(*rates, link.to_numpy(dtype=float) * 1e9, strict=True) if len(rows) else ()
    return {str(gpu): Peaks(*row) for gpu, row in zip(rows["gpu"], columns, strict=True)}


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
    directory: Path, messages: list[str], classes: tuple[KernelTable, ...] = TABLES, least: int = 1
) -> Iterator[TableGroup]:
    """Every group of every kernel table below a folder.

    Args:
        messages: what was set aside and why is added here.
        least: rows that a group must have to be of use.
    """
    folder = read_peaks(directory)
    known: dict[str, pd.DataFrame] = {}  # kind -> rows: prefill and decode stand in the same tables
    for table in classes:
        kind, decode = KINDS[table.name]
        if kind not in known:
            frames = [result.rows(messages) for result in tables(directory, kind)]
            known[kind] = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
        rows = known[kind]
        if decode is not None and len(rows):
            rows = rows[is_decode(rows) == decode]
        if len(rows):
            for group in _split(table, rows, folder, messages):
                if len(group.measured_s) >= least:
                    yield group
                else:
                    few = f"{len(group.measured_s)} rows set aside, a fit needs {least}"
                    messages.append(f"{group.label}: {few}")


def is_decode(rows: pd.DataFrame) -> pd.Series:
    """Mask of attention rows that are decode steps: one query token before more than one key."""
    return (rows["q_len_tokens"] == 1) & (rows["kv_len_tokens"] > 1)


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
