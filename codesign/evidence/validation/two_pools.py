"""Served models whose prompts are computed on devices of their own: a closed network of two pools.

C clients have one request open each. x prefill engines and y decode engines are those of the row, under the constants
of the engine, which were fitted on engines that do both: nothing is fitted here. Engines of the first pool take full
steps of prompts (`prompt_engines`, S and W there); with f0(B) a step of a decode engine with B requests and L tokens of
an answer,

    C / rate = S + W + L f0(B),  B = rate L f0(B) / y
    TTFT = request_overhead_s + client_overhead_s (H - 1) + max(S + W, expert_overhead_s),    TPOT = f0(B)

with H requests at an prefill engine at a time.

Assumes: caches cross behind the layers that write them; every engine takes its share; no wait for room at the decodes.
Attention groups whose experts are spread over ranks, or would be cut in more parts than a node has devices, send each
expert its tokens by the engine's library of exchange; other groups gather the tokens of all on all ranks. What is known
to be missed: see `KNOWN`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...core.errors import ConfigError
from ..measurements import tables
from .closed_loop import by_engine
from .closed_loop_rows import BANDS, DRAWN, MOST_CUT, SHORTEST, ranks, readable
from .hardware import engine_cluster
from .prompt_engines import Clients, closed_network, prompt_engines
from .scores import Row, rows
from .served_jobs import ENGINES, Job, check_format, format_of
from .served_models import model_of, option_of
from .served_rows import Service, parts_of, stored_serving
from .suites import Suite

KNOWN = (
    "disaggregated: some runs of few clients have first tokens after seconds, which no queue explains, and in pools "
    "that fill up they come later than ours; speculation is not stated, nor priced"
)
TRIED = 4.0 ** -np.arange(6)
"""Shares of the clients that a decode engine is priced with; between them steps are straight in logarithms."""


class TwoPools(NamedTuple):
    """The engines of a row: one that computes prompts, one that decodes, and how many of each."""

    prefill: Job
    decode: Job
    prefill_engines: float
    decode_engines: float
    clients: float


class _Part(NamedTuple):
    """Parallel layout of one pool's engine, by the names that `ranks` reads."""

    tp: float
    attention_dp: float
    moe_tp: float
    moe_ep: float


def _engine(row: Any, pool: str, sequences: float) -> Job:
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
    return whole._replace(tp=count / groups, replicas=groups, spread=True, groups=1.0) if dispatched else whole


def pools(row: Any) -> TwoPools:
    """Build the prefill and the decode pool of a row.

    Raises:
        ConfigError: how many engines there are is not stated, or an engine cannot be priced.
    """
    numbers = ("concurrency", "prefill_num_workers", "decode_num_workers")
    blank = [name for name in numbers if getattr(row, name) != getattr(row, name)]
    if blank:
        raise ConfigError(f"{', '.join(blank)} not stated")
    clients, x, y = (float(getattr(row, name)) for name in numbers)
    found = TwoPools(_engine(row, "prefill", clients / x), _engine(row, "decode", clients / y), x, y, clients)
    for job in found[:2]:
        check_format(job)
    return found


def service(known: Sequence[TwoPools]) -> Service:
    """Seconds to the first token and between tokens, by engines fitted on engines of one pool."""
    constants = stored_serving()
    prompts = [one.prefill for one in known]
    engine = prompt_engines(prompts, parts_of(prompts, constants).alone_s, constants)
    sizes = np.array([np.maximum(one.decode.sequences * TRIED, 1.0) for one in known])
    decodes = [one.decode._replace(sequences=float(n)) for one, row in zip(known, sizes, strict=True) for n in row]
    steps = parts_of(decodes, constants).decode_s.reshape(sizes.shape)
    tokens = np.array([max(one.decode.output_tokens, 2.0) for one in known])
    decoders = np.array([one.decode_engines for one in known])

    def decoding(requests: np.ndarray) -> np.ndarray:
        return tokens * step_of(requests / decoders, sizes, steps)

    added = [constants.get(one.prefill.engine, {}) for one in known]
    names = ("request_overhead_s", "expert_overhead_s", "client_overhead_s", "burst_ratio")
    host, experts, client, burst = (np.array([a.get(name, 0.0) for a in added]) for name in names)
    count, engines = (np.array([getattr(one, name) for one in known]) for name in ("clients", "prefill_engines"))
    first, answer, here = closed_network(Clients(count, engines, burst), engine, decoding)
    host = host + client * np.maximum(here - 1, 0.0)
    chosen = np.array([hasattr(job.model.feed_forward, "experts") for job in prompts])
    return Service(host + np.maximum(first, experts * chosen), answer / tokens)


def step_of(requests: np.ndarray, sizes: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Seconds of a decode step with so many requests [n]: straight in logarithms between sizes [n, m], which fall."""
    some = np.log(np.maximum(requests, 1.0))
    lines = zip(some, np.log(sizes[:, ::-1]), np.log(steps[:, ::-1]), strict=True)
    return np.exp([np.interp(*line) for line in lines])


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
    parts = list(_tables(directory, messages))
    if not parts:
        return []
    messages.append(KNOWN)
    return scored(pd.concat(parts, ignore_index=True))


def _tables(directory: Path, messages: list[str]) -> Iterator[pd.DataFrame]:
    for table in tables(directory, "disaggregated"):
        read = table.rows(messages)
        known, refused = readable(read, pools)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in refused.items()]
        if known:
            times = service(list(known.values()))
            yield read.loc[list(known)].assign(ttft_s=times.first_s, tpot_s=times.between_s)


DISAGGREGATED = Suite("disaggregated", ("disaggregated",), run_disaggregated)
