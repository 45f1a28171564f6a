"""The tables below a folder and of which kind each is."""

import contextlib
import re
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ...core import short_names
from ...core.errors import DataError
from . import schema as reader
from .registry import SCHEMAS
from .schema import RULE, Column, Schema, choose, nearest

__all__ = [
    "CHOICES", "MEMORY", "NUMBERS", "SHARES_OF_MEMORY", "SPECULATION", "YES", "FoundTable", "RunMetric",
    "Survey", "as_data", "as_folder", "as_text", "files", "is_runs", "metric_of", "number_path", "survey",
    "tables", "unread",
]  # fmt: skip


# Columns of measured runs in tables of any source: what each chooses, and which metric of the model each holds.
#
# A run names its device and holds at least one metric with its unit (`ttft_ms`, `step_time_s`,
# `output_tokens_per_s`). All else that is known here, or is a path of the configuration (`plan.tp`,
# `workload.input_cv`), chooses the design; the rest is carried along.


CHOICES = short_names.CHOICES | {"hardware": "accelerator"} | {
    name: name for name in ("accelerator", "model", "framework", "workload", "precision", "kernel_correction",
                            "scale_out", "fabric", "engine_memory")
} | {"kv_cache_dtype": "kv_cache", "kv_cache_format": "kv_cache"}  # fmt: skip
"""Column -> group of options; `precision` and `kv_cache` are number formats."""
NUMBERS = short_names.NUMBERS | {"num_prompts": "requests"}
"""Column -> path of the number that it states; `requests` are those of a run from its first to its last."""
SPECULATION = "spec_decoding"
"""Column of the speculative decoding method: such a run has to state `workload.accepted_tokens` too."""
LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "tpot", "e2e": "e2e", "e2el": "e2e"}
SHARES = {"": "", "mean": "", "p50": "_p50", "median": "_p50", "p90": "_p90", "p99": "_p99"}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
RATES = {
    "output_tokens_per_s": "tokens_per_s", "tokens_per_s": "tokens_per_s", "requests_per_s": "requests_per_s",
    "tokens_per_s_per_device": "tokens_per_s_per_device", "tokens_per_s_per_gpu": "tokens_per_s_per_device",
    "output_tokens_per_s_per_gpu": "tokens_per_s_per_device", "mfu": "mfu", "joules_per_token": "joules_per_token",
    "power_w": "power_w",
}  # fmt: skip
GIB = 2.0**30
MEMORY = {
    **dict.fromkeys(("cache_gib", "cache_room_gib", "room_for_cache_gib", "kv_cache_gib"), ("cache_room_bytes", GIB)),
    **dict.fromkeys(("cache_tokens", "kv_cache_tokens", "room_for_cache_tokens"), ("cache_tokens", 1.0)),
    "peak_memory_gb": ("peak_memory_bytes", 1e9), "peak_memory_gib": ("peak_memory_bytes", GIB),
    "fits": ("fits", 1.0),
}  # fmt: skip
"""Column of memory -> metric and unit: room for the cache and peak of a device, tokens of an engine, yes or no."""
SHARES_OF_MEMORY = ("gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction", "memory_utilisation")
"""Columns of the share of a device's memory that an engine takes."""
YES = {"yes": 1.0, "true": 1.0, "1": 1.0, "no": 0.0, "false": 0.0, "0": 0.0}
PATH = re.compile(r"(cluster|workload|plan)(\.\w+)+")


class RunMetric(NamedTuple):
    """A metric of the model, and how many of its units (SI) one of a column is."""

    name: str
    unit: float


def metric_of(column: str) -> RunMetric | None:
    """The metric that a column holds, by its name and unit; None where it holds none."""
    plain = column.lower()
    if plain in RATES:
        return RunMetric(RATES[plain], 1.0)
    if plain in MEMORY:
        return RunMetric(*MEMORY[plain])
    what, _, unit = plain.rpartition("_")
    if unit not in SECONDS:
        return None
    if what in ("step_time", "step", "iteration", "iteration_time"):
        return RunMetric("time_s", SECONDS[unit])
    words = what.split("_")
    named = [word for word in words if word in LATENCIES]
    shares = [word for word in words if word not in LATENCIES]
    if len(named) != 1 or len(shares) > 1 or (shares and shares[0] not in SHARES):
        return None
    return RunMetric(f"{LATENCIES[named[0]]}{SHARES[shares[0] if shares else '']}_s", SECONDS[unit])


def number_path(column: str) -> str | None:
    """The path of the number that a column states; None where it states none."""
    return NUMBERS.get(column.lower()) or (column if PATH.fullmatch(column) else None)


def is_runs(header: list[str]) -> bool:
    """True if a table of these columns holds measured runs."""
    devices = [name for name in header if CHOICES.get(name.lower()) == "accelerator"]
    return bool(devices) and any(metric_of(name) for name in header)


# The kinds of tables as text and as data: what `codesign validate --schema` prints.


def _column(column: Column) -> dict[str, Any]:
    result = {
        "name": column.name, "kind": column.kind, "required": not column.optional, "meaning": column.meaning,
        "allowed": column.allowed,
    }  # fmt: skip
    if column.kind in ("number", "whole"):
        result |= {"unit": column.unit, "most": column.most, "zero": column.zero}
    if column.options:
        result |= {"options": list(column.options)}
    return result | ({"blank": column.blank} if column.blank else {})


def _kind(schema: Schema) -> dict[str, Any]:
    return {
        "name": schema.name, "title": schema.title, "suite": schema.suite or None, "why_not": schema.why or None,
        "fitted": schema.fitted, "columns": [_column(column) for column in schema.columns],
        "without": list(schema.without), "not_read": list(schema.carried),
        "checks": [{"columns": list(check.columns), "allowed": check.says} for check in schema.checks],
    }  # fmt: skip


def as_data() -> dict[str, Any]:
    """The rule of choice and every kind."""
    return {"rule": RULE, "kinds": [_kind(schema) for schema in SCHEMAS]}


def as_text() -> str:
    """Text of the rule of choice and every kind, for reading."""
    lines = [RULE, ""]
    for schema in SCHEMAS:
        used = [f"scored by {schema.suite}"] if schema.suite else [f"not scored: {schema.why}"]
        used += ["fitted by calibrate"] if schema.fitted else []
        lines.append(f"{schema.name}: {schema.title} ({'; '.join(used)})")
        width = max(len(column.name) for column in schema.columns)
        for column in schema.columns:
            optional = " (may be missing)" if column.optional else ""
            lines.append(f"    {column.name:{width}}  {column.meaning} ({column.allowed}){optional}")
        lines += [f"    together: {check.says}" for check in schema.checks]
        lines += [f"    never with: {', '.join(schema.without)}"] if schema.without else []
        lines.append("")
    return "\n".join(lines).rstrip()


class FoundTable(NamedTuple):
    """A file of a kind: `shown` is its path as messages say it."""

    path: Path
    shown: str
    schema: Schema

    def rows(self, messages: list[str]) -> pd.DataFrame:
        """Its checked columns; what was set aside is added to the messages.

        Raises:
            DataError: whatever the schema does not allow.
        """
        return reader.read(self.path, self.schema, self.shown, messages)


class Survey(NamedTuple):
    """Tables of known kinds, and files that resemble none, with the reason."""

    tables: list[FoundTable]
    others: dict[str, str]


@contextlib.contextmanager
def as_folder(path: Path) -> Generator[Path, None, None]:
    """The folder, or one that holds nothing but this table."""
    if not path.is_file():
        yield path
        return
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / path.name).symlink_to(path.resolve())
        yield Path(made)


def files(directory: Path) -> list[Path]:
    """All *.csv files below a folder, except hidden ones, sorted.

    Raises:
        DataError: no such folder.
    """
    if not directory.is_dir():
        raise DataError(f"{directory} is no folder and no table")
    return sorted(p for p in directory.rglob("*") if p.suffix.lower() == ".csv" and not p.name.startswith("."))


def survey(directory: Path) -> Survey:
    """The kind of every table below a folder, by its columns alone.

    Raises:
        DataError: no such folder, a file that is no CSV, or a table that lacks columns of the kind it resembles.
    """
    tables, others = list[FoundTable](), dict[str, str]()
    for path in files(directory):
        shown = path.relative_to(directory).as_posix()
        header = reader.cells(path, shown, only_header=True).header
        try:
            schema = choose(header, SCHEMAS, shown)
        except DataError:
            if not is_runs(header):
                raise
            schema = None
        if schema is None:
            others[shown] = nearest(header, SCHEMAS)
        else:
            tables.append(FoundTable(path, shown, schema))
    return Survey(tables, others)


def tables(directory: Path, *names: str) -> list[FoundTable]:
    """The tables of these kinds below a folder, sorted by path.

    Raises:
        DataError: see `survey`.
    """
    return [table for table in survey(directory).tables if table.schema.name in names]


def unread(directory: Path) -> list[str]:
    """A line for every table with columns that nobody knows.

    Raises:
        DataError: see `survey`.
    """
    lines: list[str] = []
    for table in survey(directory).tables:
        extra = table.schema.unread(reader.cells(table.path, table.shown, only_header=True).header)
        if extra:
            lines.append(f"{table.shown}: column(s) {', '.join(sorted(extra))} not used")
    return lines
