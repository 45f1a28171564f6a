"""Rows of imported runs: cells as texts and numbers; rows of collectives and of MLPerf as tables of their suites."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import ConfigError, suggestion
from ..measurements.columns import DATA_RANKS, FLAGS_OF_ATTENTION, choice_of, number_path, plain, share_of_memory
from ..measurements.registry import CLUSTERS, MLPERF_INFERENCE, SCALE_UP

__all__ = ["ImportedRow", "is_typed", "layout_of", "number_of", "put", "put_rate", "typed_rows"]


# Cells of an imported run: texts of columns, and numbers as they were written.


ImportedRow = dict[str, str]


def number_of(value: Any) -> float | None:
    """A finite number, or None where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except ValueError:
        return None
    return result if math.isfinite(result) else None


def put(row: ImportedRow, column: str, value: Any, least: float = 0.0) -> None:
    """Set a cell to a number above `least`; leave it out where there is none.

    Raises:
        ConfigError: a number below zero.
    """
    result = number_of(value)
    if result is not None and result < 0:
        raise ConfigError(f"{column} = {result:g} is negative")
    if result is not None and result > least:
        row[column] = f"{result:.12g}"


def put_rate(row: ImportedRow, rate: Any, clients: Any) -> None:
    """Set the load: a rate of requests, else the clients of a closed loop, else `inf`, where all come at once."""
    put(row, "request_rate", rate)
    if "request_rate" not in row:
        put(row, "concurrency", clients)
    if "concurrency" not in row and str(rate).lower() in ENDLESS:
        row["request_rate"] = "inf"


ENDLESS = ("inf", "infinity")
LAYOUT = ("plan.tp", "plan.pp", "plan.cp", "plan.ep", "plan.attention_dp", "cluster.device_count", DATA_RANKS)
CHOSEN = ("accelerator", "precision", "kv_cache")
KINDS_OF_DEVICES = ("cuda", "rocm", "hip", "cpu", "xpu", "hpu", "tpu", "npu", "auto", "gpu")
"""Devices that a server says and that are no product."""


def layout_of(record: Mapping[str, Any]) -> ImportedRow:
    """Columns of a record that say device, format or layout: what people add by `--metadata`, options of a server."""
    row: ImportedRow = {}
    for name, value in record.items():
        text = str(value).strip()
        if value is None or not isinstance(value, str | int | float) or text.lower() in (*KINDS_OF_DEVICES, ""):
            continue
        said = number_path(name) in LAYOUT or choice_of(name) in CHOSEN
        if said or share_of_memory(name) or plain(name) in FLAGS_OF_ATTENTION:
            row[name] = text
    return row


# Rows of collectives and of MLPerf as tables of their kinds: one node, or several of a named cluster.


def is_typed(rows: Sequence[ImportedRow]) -> bool:
    """True for rows of collectives or MLPerf; runs have a metric with a share or a rate instead.

    Raises:
        ConfigError: rows of several kinds: they belong in tables of their own.
    """
    kinds = {next((mark for mark in MARKS if mark in row), "") for row in rows}
    if len(kinds) > 1:
        raise ConfigError(
            f"import: {' and '.join(sorted(MARKS.get(kind, 'runs') for kind in kinds))} are tables of different kinds: "
            "import them one after the other"
        )
    return kinds != {""}


MARKS = {"message_bytes": "collectives", "result_units": "results of MLPerf"}
"""Column by which a kind is known -> what its rows are."""


def typed_rows(rows: Sequence[ImportedRow], added: Mapping[str, str]) -> list[ImportedRow]:
    """The rows with what was added: of kind `clusters` where a cluster is named, else `scale_up`; or of MLPerf.

    Raises:
        ConfigError: a column that the kind lacks, or one that no file says and nobody added.
    """
    mark = next(mark for mark in MARKS if mark in rows[0])
    what = MARKS[mark]
    kinds = (MLPERF_INFERENCE,) if mark == "result_units" else (SCALE_UP, CLUSTERS)
    columns = {name for kind in kinds for name in (*(column.name for column in kind.columns), *kind.carried)}
    for key in added:
        if key not in columns:
            raise ConfigError(f"import: {key} is no column of {what}{suggestion(key, columns)}")
    completed = [row | dict(added) for row in rows]
    across = next((row for row in completed if row.get("num_nodes", "1") != "1"), None)
    if mark == "message_bytes" and across is not None and "cluster" not in added:
        nodes = across["num_nodes"]
        raise ConfigError(
            f"import: collectives on {nodes} nodes: add cluster=NAME, which says the class of their network: "
            "cluster=mine-400G"
        )
    schema = kinds[-1] if "cluster" in added else kinds[0]
    for row in completed:
        missing = [name for name in schema.required if name not in row]
        if missing:
            column = next(one for one in schema.columns if one.name == missing[0])
            raise ConfigError(
                f"import: no file says {missing[0]} of these {what}; add {missing[0]}=... ({column.meaning})"
            )
    return [{name: value for name, value in row.items() if name not in schema.without} for row in completed]
