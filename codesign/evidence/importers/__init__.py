"""Measured runs, collectives and results of MLPerf from what benchmarks and trainers write: `codesign import FILE...`.

A module here is an importer: `NAME`, what it reads in a line; `reads(text)`, whether a file is such; `rows(text)`, its
runs as columns of `measurements.folder`, or sizes of messages as columns of `measurements.registry`. A
plug-in's are modules `importers` of its package, found by the same names.
"""

import csv
import importlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from ...config.plugins import plugins
from ...core.errors import ConfigError
from ...core.untrusted_io import read_text
from . import (
    aiperf,
    bench_json,
    bench_text,
    deepspeed_log,
    inferencex,
    maxtext_log,
    megatron_log,
    nccl_tests,
    offline_bench,
    published_tables,
    torchtitan_log,
    trtllm_bench,
)
from .table_rows import ImportedRow, is_typed, typed_rows

__all__ = ["IMPORTERS", "ImportedRow", "Importer", "as_csv", "imported", "is_typed", "typed_rows"]

MOST_BYTES = 256 * 2**20


class Importer(Protocol):
    """Interface of a module here."""

    @property
    def NAME(self) -> str:
        """Name of what it reads, in a line."""
        ...

    def reads(self, text: str) -> bool:
        """True if a file is of this kind."""
        ...

    def rows(self, text: str) -> list[ImportedRow]:
        """The runs that it holds."""
        ...


IMPORTERS: tuple[Importer, ...] = (
    bench_json, aiperf, bench_text, inferencex, offline_bench, trtllm_bench, nccl_tests, megatron_log, torchtitan_log,
    maxtext_log, deepspeed_log, published_tables,
)  # fmt: skip


def importers() -> Iterator[Importer]:
    """Ours, then those of plug-ins."""
    yield from IMPORTERS
    for plugin in plugins():
        try:
            module = importlib.import_module(f"{plugin.package}.importers")
        except ModuleNotFoundError:
            continue
        yield from module.IMPORTERS


def imported(path: Path) -> list[ImportedRow]:
    """The runs of a file.

    Raises:
        ConfigError: no importer reads it, or it holds no run; with its name.
    """
    text = read_text(path, f"{path}", MOST_BYTES)
    for one in importers():
        if one.reads(text):
            try:
                result = one.rows(text)
            except ConfigError as error:
                raise ConfigError(f"{path}: {error}") from error
            if not result:
                raise ConfigError(f"{path}: {one.NAME}, but no run in it has ended")
            return result
    formats = "; ".join(one.NAME for one in importers())
    raise ConfigError(f"{path}: nothing that is read here; known: {formats}")


def as_csv(rows: list[ImportedRow], added: Mapping[str, str]) -> str:
    """A table of runs, with these columns in every row.

    Raises:
        ConfigError: a value that a cell cannot hold.
    """
    completed = [dict(added) | {k: v for k, v in row.items() if k not in added} for row in rows]
    header = list(dict.fromkeys(name for row in completed for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(completed)
    return out.getvalue()
