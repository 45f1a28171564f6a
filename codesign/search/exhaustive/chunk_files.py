"""Chunks as files: one table of Parquet each, renamed into place, named by study and chunk.

A file has one row: which chunk it is, and columns of lists. `kind` says of each design kept why (the best plans, the
nearest to being feasible, the front); then come its plan and level, its numbers, and the values of its variables.
What is missing is what no file covers. A file is taken if it is whole and of the study, and computed again otherwise.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ...core.atomic_files import writing
from ...core.errors import ConfigError
from ...core.untrusted_io import UNREADABLE, checksum, read_frame
from .chunks import Portion, study_of
from .stream import BINS
from .sweep import Sweep

FOLDER = "chunks"  # of a run
BEST, NEAREST, FRONT = 0, 1, 2
NUMBERS = {"first": int, "blocks": int, "points": int, "feasible": int, "seconds": float, "keep": int}
WHOLE = ("kind", "plan", "level", "block", "histogram")
LISTS = (*WHOLE, "log_goal", "excess", "time_s", "usd_per_million_tokens", "by_value", "edges")
SHORT = 16  # characters of a study's hash in the name of a file


def name_of(study: str, first: int, blocks: int) -> str:
    """Name of the file of a chunk."""
    return f"{study[:SHORT]}-{first}-{blocks}.parquet"


def save_portion(portion: Portion, sweep: Sweep, folder: Path) -> Path:
    """The file of a portion of one chunk, whole or not at all.

    Raises:
        WriteError: it cannot be written.
    """
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    first, blocks = portion.chunks[0].tolist()
    path = folder / name_of(portion.study, first, blocks)
    row = _row(portion, sweep)
    table = pa.table({name: pa.array([value]) for name, value in row.items()})
    with writing(path) as file:
        parquet.write_table(table, file, write_page_checksum=True)
    return path


def _row(portion: Portion, sweep: Sweep) -> dict[str, Any]:
    """Numbers and lists of a portion of one chunk, with their checksum."""
    kept = (portion.best, portion.nearest, portion.front[:, 0])
    pairs = np.concatenate([portion.best_at, portion.nearest_at, portion.front_at])
    (first, blocks), (points, feasible, *histogram) = portion.chunks[0], portion.counts[0]
    none = [np.full(len(one), np.nan) for one in kept]
    numbers = [first, blocks, points, feasible, portion.seconds[0], portion.keep]
    lists = {
        "kind": np.repeat([BEST, NEAREST, FRONT], [len(one) for one in kept]),
        "plan": pairs[:, 0], "level": pairs[:, 1],
        "block": np.concatenate([np.zeros(len(kept[0]) + len(kept[1]), np.int64), portion.front_block]),
        "log_goal": np.concatenate([kept[0], *none[1:]]),
        "excess": np.concatenate([none[0], kept[1], none[2]]),
        "time_s": np.concatenate([*none[:2], portion.front[:, 0]]),
        "usd_per_million_tokens": np.concatenate([*none[:2], portion.front[:, 1]]),
        "by_value": portion.by_value, "edges": portion.edges, "histogram": np.asarray(histogram),
    }  # fmt: skip
    values = {f"var.{name}": column for name, column in sweep.axes.points(pairs).items()}
    row = dict(zip(NUMBERS, (kind(n) for kind, n in zip(NUMBERS.values(), numbers, strict=True)), strict=True))
    return {"study": portion.study, **row, **lists, **values, "checksum": _checksum(portion.study, row, lists | values)}


def _checksum(study: str, numbers: dict[str, Any], lists: dict[str, np.ndarray]) -> str:
    """Checksum of all that a file holds."""
    return checksum({name: np.asarray(value) for name, value in {"study": study, **numbers, **lists}.items()})


def load_portion(path: Path) -> Portion:
    """Read a portion from its file.

    Raises:
        ConfigError: it is no such file, or damaged.
    """
    what = f"chunk {str(path)!r}"
    frame = read_frame(path, what)
    try:
        row = {str(name): value for name, value in frame.iloc[0].items()}
        numbers = {name: kind(row[name]) for name, kind in NUMBERS.items()}
        values = {name: np.asarray(value) for name, value in row.items() if name in LISTS or name.startswith("var.")}
        whole = len(frame) == 1 and row["checksum"] == _checksum(str(row["study"]), numbers, values)
        if not whole or path.name != name_of(str(row["study"]), int(numbers["first"]), int(numbers["blocks"])):
            raise ValueError("its checksum is not that of its numbers, or it is named as another")
        return _portion(str(row["study"]), numbers, values)
    except UNREADABLE as error:
        raise ConfigError(f"{what} is damaged or no chunk: {error}") from error


def _portion(study: str, numbers: dict[str, Any], lists: dict[str, np.ndarray]) -> Portion:
    of = {kind: lists["kind"] == kind for kind in (BEST, NEAREST, FRONT)}
    pairs = np.stack([lists["plan"], lists["level"]], axis=-1)
    if len(lists["histogram"]) != BINS:
        raise ValueError("its histogram has another number of bins")
    return Portion(
        study=study, keep=numbers["keep"], chunks=np.array([[numbers["first"], numbers["blocks"]]]),
        counts=np.array([[numbers["points"], numbers["feasible"], *lists["histogram"]]]),
        seconds=np.array([numbers["seconds"]]),
        best=lists["log_goal"][of[BEST]], best_at=pairs[of[BEST]],
        nearest=lists["excess"][of[NEAREST]], nearest_at=pairs[of[NEAREST]],
        front=np.stack([lists[name][of[FRONT]] for name in ("time_s", "usd_per_million_tokens")], axis=-1),
        front_at=pairs[of[FRONT]], front_block=lists["block"][of[FRONT]],
        by_value=lists["by_value"], edges=lists["edges"],
    )  # fmt: skip


class Stored:
    """Chunks that files of a folder hold: those of one study that are whole, none overlapping another.

    Attributes: portions; paths of these; damaged: how many files of the study are not whole; others: of other studies.
    """

    def __init__(self, folders: Iterable[Path], sweep: Sweep):
        study, every = study_of(sweep), [path for folder in folders for path in sorted(folder.glob("*.parquet"))]
        self.damaged = 0
        result: list[tuple[int, int, Path, Portion]] = []
        ours = [path for path in every if path.name.startswith(study[:SHORT])]
        self.others = len(every) - len(ours)
        for path in ours:
            try:
                portion = load_portion(path)
                first, blocks = portion.chunks[0].tolist()
                result += [(first, blocks, path, portion)] if portion.study == study else []
            except ConfigError:
                self.damaged += 1
        self.portions: list[Portion] = []
        self.paths: list[Path] = []
        end = 0
        for first, blocks, path, portion in sorted(result, key=lambda one: one[:2]):
            alike = not self.portions or np.array_equal(portion.edges, self.portions[0].edges)
            if first >= end and first + blocks <= sweep.block_count and blocks > 0 and alike:
                end = first + blocks
                self.portions.append(portion)
                self.paths.append(path)

    def gaps(self, total: int) -> list[tuple[int, int]]:
        """Ranges [first, end) of blocks that no file covers."""
        ends = [(int(first), int(first + blocks)) for portion in self.portions for first, blocks in portion.chunks]
        starts = [0, *(end for _, end in ends)]
        return [(start, end) for start, end in zip(starts, [*(first for first, _ in ends), total], strict=True)
                if start < end]  # fmt: skip

    def link_into(self, folder: Path) -> None:
        """Have them in another folder too; what cannot be linked is copied."""
        for path in self.paths:
            there = folder / path.name
            if there.exists():
                continue
            with contextlib.suppress(OSError):
                try:
                    os.link(path, there)
                except OSError:
                    shutil.copyfile(path, there)
