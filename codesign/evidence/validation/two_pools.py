"""Served models whose prompts are computed on devices of their own: clients with one request open each.

A row is `codesign evaluate workload=disaggregated_clients` with x prefill engines and y decode engines, under the
constants of the engine, which were fitted on engines that do both: nothing is fitted here. Attention groups whose
experts are spread over ranks, or would be cut in more parts than a node has devices, send each expert its tokens by the
engine's library of exchange; other groups gather the tokens of all on all ranks. What is known to be missed: `KNOWN`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...core.errors import ConfigError
from ..measurements import tables
from .closed_loop import by_engine
from .closed_loop_rows import BANDS, DRAWN, MOST_CUT, SHORTEST, ranks, readable
from .hardware import engine_cluster
from .runs import PricedRun, command, predicted
from .scores import Row, rows
from .served_jobs import ENGINES, Job, check_format, format_of, run_of
from .served_models import model_of, option_of
from .suites import Suite

KNOWN = (
    "disaggregated: some runs of few clients have first tokens after seconds, which no queue explains, and in pools "
    "that fill up they come later than ours; speculation is not stated, nor priced"
)
OF_THE_POOL = ("tp", "pp", "ep", "attention_dp", "token_budget")  # of a plan, which the prefill pool has of its own


class _Part(NamedTuple):
    """Parallel layout of one pool's engine, by the names that `ranks` reads."""

    tp: float
    attention_dp: float
    moe_tp: float
    moe_ep: float


def engine_job(row: Any, pool: str, sequences: float) -> Job:
    """An engine of a pool with so many requests open.

    Raises:
        ConfigError: its device, model, number format or layout is not known.
    """
    part = _Part(*(getattr(row, f"{pool}_{name}") for name in ("tp_size", "attention_dp_size", "moe_tp_size",
                                                               "moe_ep_size")))  # fmt: skip
    (count, groups), model = ranks(part), model_of(row.model)
    heads = float(model.attention.heads)
    if heads % (count / groups):
        raise ConfigError(f"{count:g} ranks do not divide {heads:g} heads: no tensor-parallel engine")
    engine = str(row.backend) if row.backend in ENGINES else ""
    varied = DRAWN in str(getattr(row, "origin", ""))
    mean = (1 + SHORTEST) / 2 if varied else 1.0
    spread = part.moe_ep > 1 or part.moe_tp > MOST_CUT  # nobody cuts an expert in so many
    dispatched = groups > 1 and spread and hasattr(model.feed_forward, "experts")
    whole = Job(
        engine_cluster(row.gpu, engine, option_of(row.model) if dispatched else ""), model,
        format_of(row.precision, row.model, model), count, float(getattr(row, f"{pool}_pp_size")), 1.0, False,
        max(sequences, 1.0), mean * row.input_tokens, mean * row.output_tokens, engine, groups, varied,
    )  # fmt: skip
    whole = whole._replace(tp=count / groups, replicas=groups, spread=True, groups=1.0) if dispatched else whole
    check_format(whole)
    return whole


def pools(row: Any) -> PricedRun:
    """The overrides of a row: its prefill and its decode pool.

    Raises:
        ConfigError: how many engines there are is not stated, or an engine cannot be priced.
    """
    numbers = ("concurrency", "prefill_num_workers", "decode_num_workers")
    blank = [name for name in numbers if getattr(row, name) != getattr(row, name)]
    if blank:
        raise ConfigError(f"{', '.join(blank)} not stated")
    clients, x, y = (float(getattr(row, name)) for name in numbers)
    prompts, answers = (
        run_of(engine_job(row, pool, clients / count)) for pool, count in (("prefill", x), ("decode", y))
    )
    chosen = tuple(word for word in answers.chosen if word != "workload=continuous")
    there, here = prompts.numbers, answers.numbers
    return PricedRun((*chosen, "workload=disaggregated_clients", "prefill=same"), here | {
        **{f"plan.prefill_{name}": there[f"plan.{name}"] for name in OF_THE_POOL},
        "plan.prefill_devices": x * there["cluster.device_count"],
        "cluster.device_count": y * here["cluster.device_count"], "workload.concurrency": clients,
    })  # fmt: skip


def scored(found: pd.DataFrame) -> list[Row]:
    """Rows of times to the first token by concurrency, and of times between tokens."""
    names = [name for _, name in BANDS]
    table = found.assign(band=np.take(names, np.searchsorted([high for high, _ in BANDS], found["concurrency"])))
    result: list[Row] = []
    for band in names:
        part = table[table["band"] == band]
        if len(part):
            result += rows("disaggregated", "ttft", by_engine(band, part, "ttft_s", "ttft_ms"))
    return result + rows("disaggregated", "tpot", by_engine("every concurrency", table, "tpot_s", "tpot_ms"))


def run_disaggregated(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of two pools."""
    parts = [table.assign(**predicted(runs, ["ttft_s", "tpot_s"])) for table, runs in _tables(directory, messages)]
    if not parts:
        return []
    messages.append(KNOWN)
    return scored(pd.concat(parts, ignore_index=True))


def disaggregated_commands(directory: Path, messages: list[str]) -> Iterator[str]:
    """The command of each row that can be priced, behind it what was measured."""
    for table, runs in _tables(directory, messages):
        for run, first, between in zip(runs, table["ttft_ms"], table["tpot_ms"], strict=True):
            yield f"{command(run)}  # ttft_s {first / 1e3:.6g}, tpot_s {between / 1e3:.6g}"


def _tables(directory: Path, messages: list[str]) -> Iterator[tuple[pd.DataFrame, list[PricedRun]]]:
    for table in tables(directory, "disaggregated"):
        read = table.rows(messages)
        known, refused = readable(read, pools)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in refused.items()]
        if known:
            yield read.loc[list(known)], list(known.values())


DISAGGREGATED = Suite("disaggregated", ("disaggregated",), run_disaggregated)
