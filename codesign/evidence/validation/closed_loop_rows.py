"""Rows of served models at a concurrency: what each says of its engine and its clients.

A row says how its ranks share the model: `tp`, `attention_dp` (ranks that share attention by sequences) and `moe_ep`
(ranks that experts are spread over).
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...core.errors import ConfigError
from ..measurements import tables
from .hardware import engine_cluster
from .served_jobs import ENGINES, Job, check_format, format_of
from .served_models import model_of, option_of

DRAWN = "InferenceX"
"""Whose clients draw each length evenly from `SHORTEST` of what a row states up to all of it."""
SHORTEST = 0.8
MOST_CUT = 8.0
"""Ranks that share an expert in an engine (assumed: a node). Exports of 12 to 72 count devices of a whole system."""
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


def shared_out(row: Any, count: float, groups: float, experts: bool) -> tuple[float, float]:
    """Requests open at one engine, and its attention groups, where `concurrency` is several times `batch_size`.

    The clients are then those of several batches. Where no row says how many groups attend sequences of their own, a
    model with experts has as many in one engine; else they are engines beside each other, each with one batch.
    """
    clients = row.concurrency if row.concurrency == row.concurrency else row.batch_size
    batches = clients / row.batch_size
    if groups > 1 or batches <= 1 or batches % 1:
        return float(clients), groups
    if experts and row.attention_dp != row.attention_dp and count % batches == 0:
        return float(clients), float(batches)
    return float(row.batch_size), groups


def job(row: Any) -> Job:
    """The engine of a row.

    Raises:
        ConfigError: its device, model, number format or layout is not known.
    """
    (count, groups), model = ranks(row), model_of(row.model)
    routed = hasattr(model.feed_forward, "experts")
    sequences, groups = shared_out(row, count, groups, routed)
    if getattr(row, "moe_tp", 1.0) > MOST_CUT:
        raise ConfigError(f"{row.moe_tp:g} ranks cut every expert: no one engine, devices of a whole system")
    heads = float(model.attention.heads)
    if heads % (count / groups):
        raise ConfigError(f"{count:g} ranks do not divide {heads:g} heads: no tensor-parallel engine")
    engine = str(row.backend) if getattr(row, "backend", "") in ENGINES else ""
    varied = DRAWN in str(getattr(row, "origin", ""))
    mean = (1 + SHORTEST) / 2 if varied else 1.0
    cluster = engine_cluster(row.gpu, engine, option_of(row.model) if routed else "")
    result = Job(
        cluster, model, format_of(row.precision, row.model, model), count, row.pp, 1.0, False,
        sequences, mean * row.input_tokens, mean * row.output_tokens, engine, groups, varied,
    )  # fmt: skip
    check_format(result)
    return result


def jobs_of(directory: Path, messages: list[str]) -> tuple[pd.DataFrame, list[Job]]:
    """Rows of all tables that can be priced, and their engines."""
    frames, engines = [], []
    for table in tables(directory, "closed_loop"):
        result = table.rows(messages)
        jobs, refused = readable(result, job)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in refused.items()]
        if jobs:
            frames.append(result.loc[list(jobs)])
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
