"""Served models at a concurrency: time to the first token, by concurrency, and time between tokens.

Strata: TTFT apart for a concurrency to 4, to 16 and above; TPOT together. Each with constants fitted on all rows of the
engine, with those of its rows but of the same device and model (`GPU and model left out`, to first order about the
constants at hand: no fit is repeated), and some rows with none.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from .closed_loop_rows import BANDS, jobs_of
from .hardware import engine_cluster
from .runs import command
from .scores import Errors, Row, rows
from .served_jobs import Job, run_of
from .served_room import in_room
from .served_rows import METHOD, Service, service, stored_serving
from .serving_fit import FEWEST, FittedEngine, left_out, seen
from .suites import Suite

ALONE = ", engine not named"
LEFT_OUT = ", GPU and model left out"
RESULTS = ("ttft_ms", "tpot_ms", "origin")  # of a row; the rest is what was asked for
UNNAMED_ROWS = 200  # at least, that are also priced by kernels alone


def by_engine(stratum: str, part: pd.DataFrame, predicted: str, measured: str) -> Iterator[Errors]:
    """Errors of milliseconds by model and device; an engine, and a band of concurrencies, have spreads of their own."""
    for (gpu, model, engine, band), group in part.groupby(["gpu", "model", "backend", "band"], sort=True):
        ours, theirs = (group[name].to_numpy(dtype=float) for name in (predicted, measured))
        detail = str(engine) if stratum.startswith(str(band)) else f"{engine}, {band}"
        yield Errors(stratum, f"{gpu} {model}", ours, theirs * 1e-3, detail=detail)


def banded(suffix: str, table: pd.DataFrame) -> list[Row]:
    """Rows of times to the first token by concurrency, and of times between tokens."""
    sequences = table["concurrency"].fillna(table["batch_size"])
    names = [name for _, name in BANDS]
    table = table.assign(band=np.take(names, np.searchsorted([high for high, _ in BANDS], sequences)))
    result: list[Row] = []
    for band in names:
        part = table[table["band"] == band]
        result += rows("closed loop", "ttft", by_engine(f"{band}{suffix}", part, "ttft_s", "ttft_ms"))
    return result + rows("closed loop", "tpot", by_engine(f"every concurrency{suffix}", table, "tpot_s", "tpot_ms"))


def repeats(table: pd.DataFrame) -> Iterator[str]:
    """A line for each time, of rows that agree in every column that a model may read: by how much runs differ.

    Ranks inside a group can be no better than one run tells another's.
    """
    told = [name for name in table.columns if name not in RESULTS]
    for name in ("ttft_ms", "tpot_ms"):
        once = table.drop_duplicates([*told, name])
        same = once.groupby(told, dropna=False)[name].agg(["size", "min", "max"])
        same = same[same["size"] > 1]
        if len(same):
            ratio, count = same["max"] / same["min"], int(same["size"].sum())
            yield (
                f"closed loop: {count} rows of {name} agree with others in every other column, {len(same)} conditions:"
                f" the slowest takes {ratio.median():.2f} times the fastest in the median, {ratio.max():.1f} at most"
            )


def run_closed_loop(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of served models at a concurrency: engine named, and of some of them kernels alone."""
    table, jobs = jobs_of(directory, messages)
    if not jobs:
        return []
    messages.append(f"closed loop: priced as {METHOD}")
    messages += repeats(table)
    jobs, crowded = in_room(jobs)
    served = service(jobs, crowded=crowded)
    named = banded("", table.assign(ttft_s=served.first_s, tpot_s=served.between_s))
    apart, told = others_say(table, jobs, crowded)
    named += banded(LEFT_OUT, table.assign(ttft_s=apart.first_s, tpot_s=apart.between_s)[told])
    few = list(range(0, len(jobs), max(len(jobs) // UNNAMED_ROWS, 1)))
    plain = service([jobs[i]._replace(engine="", cluster=engine_cluster(table["gpu"].iloc[i], "")) for i in few],
                    crowded=crowded[few])  # fmt: skip
    return named + banded(ALONE, table.iloc[list(few)].assign(ttft_s=plain.first_s, tpot_s=plain.between_s))


def others_say(table: pd.DataFrame, jobs: Sequence[Job], crowded: np.ndarray) -> tuple[Service, np.ndarray]:
    """Service by constants without the rows of the same engine, device and model; which rows have enough others."""
    first, between, told = np.zeros(len(jobs)), np.zeros(len(jobs)), np.zeros(len(jobs), dtype=bool)
    groups = (table["gpu"] + " " + table["model"]).to_numpy()
    for engine, constants in stored_serving().items():
        here = np.array([job.engine == engine for job in jobs])
        known, counts = np.unique(groups[here], return_counts=True)
        enough = here & np.isin(groups, known[here.sum() - counts >= FEWEST])
        if not enough.any():
            continue
        theirs = (table[name].to_numpy(dtype=float)[here] * 1e-3 for name in ("ttft_ms", "tpot_ms"))
        rows_seen = seen([job for job in jobs if job.engine == engine], crowded[here], *theirs)
        first[here], between[here] = left_out(rows_seen, FittedEngine(**constants), groups[here])
        told |= enough
    return Service(first, between), told


def closed_loop_commands(directory: Path, messages: list[str]) -> Iterator[str]:
    """The command of each row that can be priced, behind it what was measured."""
    table, jobs = jobs_of(directory, messages)
    if jobs:
        jobs, crowded = in_room(jobs)
        told = zip(jobs, crowded, table["ttft_ms"], table["tpot_ms"], strict=True)
        for job, queued, first, between in told:
            yield f"{command(run_of(job, queued))}  # ttft_s {first / 1e3:.6g}, tpot_s {between / 1e3:.6g}"


CLOSED_LOOP = Suite("closed loop", ("closed_loop",), run_closed_loop)
