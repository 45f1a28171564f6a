"""Served models at a concurrency: time to the first token, by concurrency, and time between tokens.

Strata: TTFT apart for a concurrency to 4, to 16 and above; TPOT together. A row says how its ranks share the model:
`tp`, `attention_dp` (ranks that share attention by sequences) and `moe_ep` (ranks that experts are spread over).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import ConfigError
from ..measurements import tables
from .hardware import engine_cluster
from .scores import Errors, Row, rows
from .served_rows import ENGINES, METHOD, Job, continuous, format_of, model_of, service
from .suites import Suite

ALONE = ", engine not named"
UNNAMED_ROWS = 200  # at least, that are also priced by kernels alone
BANDS = ((4.0, "concurrency to 4"), (16.0, "concurrency to 16"), (np.inf, "concurrency above 16"))


def ranks(row: Any) -> tuple[float, float]:
    """Accelerators of an engine, and groups of them that attend sequences of their own.

    Exports state a degree twice where experts are spread: `tp` x `attention_dp` = `moe_tp` x `moe_ep` counts the
    accelerators squared where both degrees of the experts are the same, and where both of attention are.
    """
    groups = row.attention_dp if row.attention_dp >= 1 else 1.0
    product = row.tp * groups
    experts = row.moe_ep if row.moe_ep == row.moe_ep else 1.0
    if experts > 1 and getattr(row, "moe_tp", 1.0) == experts and product == experts**2:
        product = experts
    elif groups > 1 and row.tp == groups and experts == product:
        product = row.tp
    return float(product), float(min(groups, product))


def job(row: Any) -> Job:
    """The engine of a row.

    Raises:
        ConfigError: its device, model, number format or layout is not known.
    """
    sequences = row.concurrency if row.concurrency == row.concurrency else row.batch_size
    (count, groups), model = ranks(row), model_of(row.model)
    heads = float(model.attention.heads)
    if heads % (count / groups):
        raise ConfigError(f"{count:g} ranks do not divide {heads:g} heads: no tensor-parallel engine")
    engine = str(row.backend) if getattr(row, "backend", "") in ENGINES else ""
    found = Job(
        engine_cluster(row.gpu, engine), model, format_of(row.precision, row.model), count, row.pp, 1.0, False,
        sequences, row.input_tokens, row.output_tokens, engine, groups,
    )  # fmt: skip
    continuous(found, {})
    return found


def jobs_of(directory: Path, messages: list[str]) -> tuple[pd.DataFrame, list[Job]]:
    """Rows of all tables that can be priced, and their engines."""
    frames, engines = [], []
    for table in tables(directory, "closed_loop"):
        found = table.rows(messages)
        jobs, refused = readable(found, job)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in refused.items()]
        if jobs:
            frames.append(found.loc[list(jobs)])
            engines += jobs.values()
    return (pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()), engines


def readable(table: pd.DataFrame, reader: Any) -> tuple[dict[Any, Any], dict[str, int]]:
    """Row -> what a reader makes of it, and how often it refused for which reason."""
    known: dict[Any, Any] = {}
    refused: dict[str, int] = {}
    for row in table.itertuples():
        try:
            known[row.Index] = reader(row)
        except ConfigError as error:
            refused[str(error)] = refused.get(str(error), 0) + 1
    return known, refused


def by_engine(stratum: str, part: pd.DataFrame, predicted: str, measured: str) -> Iterator[Errors]:
    """Errors of milliseconds by model and device."""
    for (gpu, model), group in part.groupby(["gpu", "model"], sort=True):
        ours, theirs = (group[name].to_numpy(dtype=float) for name in (predicted, measured))
        yield Errors(stratum, f"{gpu} {model}", ours, theirs * 1e-3)


def banded(suffix: str, table: pd.DataFrame) -> list[Row]:
    """Rows of times to the first token by concurrency, and of times between tokens."""
    sequences = table["concurrency"].fillna(table["batch_size"])
    result: list[Row] = []
    low = 0.0
    for high, band in BANDS:
        part = table[(sequences > low) & (sequences <= high)]
        result += rows("closed loop", "ttft", by_engine(f"{band}{suffix}", part, "ttft_s", "ttft_ms"))
        low = high
    return result + rows("closed loop", "tpot", by_engine(f"every concurrency{suffix}", table, "tpot_s", "tpot_ms"))


def run_closed_loop(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of served models at a concurrency: engine named, and of some of them kernels alone."""
    table, jobs = jobs_of(directory, messages)
    if not jobs:
        return []
    messages.append(f"closed loop: priced as {METHOD}")
    served = service(jobs)
    named = banded("", table.assign(ttft_s=served.first_s, tpot_s=served.between_s))
    few = list(range(0, len(jobs), max(len(jobs) // UNNAMED_ROWS, 1)))
    plain = service([jobs[i]._replace(engine="", cluster=engine_cluster(table["gpu"].iloc[i], "")) for i in few])
    return named + banded(ALONE, table.iloc[list(few)].assign(ttft_s=plain.first_s, tpot_s=plain.between_s))


CLOSED_LOOP = Suite("closed loop", ("closed_loop",), run_closed_loop)
