"""Suites of served models: at a concurrency, under a rate of requests, at the most an engine serves, in two pools."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...config.starting import CLOSED
from ...core.errors import ConfigError
from ..calibration.serving_engines import FEWEST, FittedEngine, Service, left_out, slopes_of_errors
from ..measurements import tables
from .row_overrides import (
    PricedRun,
    accelerator_option,
    command,
    measured_cluster,
    model_of,
    option_of,
    predicted,
)
from .scores import Errors, Row, Suite, errors_by, read_rows, rows
from .served_rows import (
    BANDS,
    DRAWN,
    ENGINES,
    METHOD,
    MOST_CUT,
    PUBLISHED,
    SHORTEST,
    TIMES,
    Job,
    check_format,
    fastest,
    format_of,
    in_room,
    jobs_of,
    ranks,
    run_of,
    service,
    stored_serving,
)
from .serving_fit import seen

# Served models under a rate of requests, with what peer models predict for the same rows beside ours.
#
# A row is `codesign evaluate workload=at_rate` with its device, model, engine, layout and lengths (`run_of`). Prompts
# that came before are found in the prefix cache but for a block that is not full; new ones are those of a run's first
# stage. Engines of these tables plan a step ahead (asynchronous scheduling).


METRICS = {
    "itl_mean_ms": ("itl", "tpot_s"), "ttft_mean_ms": ("ttft", "ttft_s"), "e2e_mean_ms": ("e2e", "e2e_s"),
    "ttft_p90_ms": ("ttft p90", "ttft_p90_s"), "ttft_p99_ms": ("ttft p99", "ttft_p99_s"),
    "e2e_p90_ms": ("e2e p90", "e2e_p90_s"), "e2e_p99_ms": ("e2e p99", "e2e_p99_s"),
}  # fmt: skip
"""Column -> its quantity, and the metric of that name."""
OURS = "this model"
DEVICE = ("gpu", "model")

OPEN_LOOP_METHOD = "codesign evaluate workload=at_rate framework=vllm_async"

CONTRADICTION = 0.1  # of a whole request, beyond which first token and intervals do not add up to it (assumed)
HALF_A_BLOCK = 8.0  # tokens of a prompt that is in the cache but for its last block, of 16 (default of vLLM)


def open_loop_run(row: Any) -> PricedRun:
    """The overrides of a row; `cached_share` is the share of its prompts that came before.

    Raises:
        ConfigError: its device, model or number format is not known.
    """
    option = option_of(row.model)
    number_format = format_of(row.weights, row.model, model_of(row.model))
    if number_format not in ("bf16", "fp8", PUBLISHED):
        raise ConfigError(f"number format {row.weights!r} is not modelled at a rate")
    chosen = (
        f"accelerator={accelerator_option(row.gpu)}", f"model={option}",
        f"workload=at_rate{'_fp8' if number_format == 'fp8' else ''}", "framework=vllm_async",
        *(("precision=checkpoint",) if number_format == PUBLISHED else ()),
    )  # fmt: skip
    engine_tokens = getattr(row, "max_num_batched_tokens", None)
    return PricedRun(chosen, {
        "cluster.device_count": float(row.tp * row.dp), "plan.tp": float(row.tp),
        "plan.micro_batch": float(row.max_num_seqs),
        **({"plan.token_budget": float(engine_tokens)} if engine_tokens and engine_tokens == engine_tokens else {}),
        "workload.arrivals_per_s": float(row.request_rate_per_s), "workload.arrival_cv": 0.0,
        "workload.input_tokens": float(row.input_tokens), "workload.output_tokens": float(row.output_tokens),
        "workload.cached_ratio": max(1 - HALF_A_BLOCK / row.input_tokens, 0.0),
        "workload.retained_share": float(row.cached_share),
    })  # fmt: skip


def with_cached_share(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with the share of their prompts that came before: in the first stage of a run alone some are new."""
    new = table["distinct_prompts"] / (table["request_rate_per_s"] * table["duration_s"])
    first = table["request_rate_per_s"] == table.groupby("run")["request_rate_per_s"].transform("min")
    return table.assign(cached_share=(1 - new.where(first, 0.0)).clip(0.0, 1.0))


def contradicted(shown: str, table: pd.DataFrame) -> list[str]:
    """A line on rows whose times say that fewer or more tokens were written than the table does."""
    if not {"ttft_mean_ms", "itl_mean_ms", "e2e_mean_ms"} <= {*table}:
        return []
    ratio = (table["ttft_mean_ms"] + table["itl_mean_ms"] * (table["output_tokens"] - 1)) / table["e2e_mean_ms"]
    odd = (ratio - 1).abs() > CONTRADICTION
    if not odd.any():
        return []
    return [
        f"{shown}: {int(odd.sum())} rows ({', '.join(sorted(set(table['model'][odd])))}) contradict themselves: first"
        f" token and intervals add up to {ratio[odd].median():.0%} of the whole request; scored as they are"
    ]


def open_loop_rows(directory: Path, messages: list[str]) -> tuple[pd.DataFrame, list[PricedRun]]:
    """Rows of all tables of served models under a rate of requests, and their overrides."""
    return read_rows(directory, "open_loop", open_loop_run, messages, prepare=with_cached_share, remarks=contradicted)


def run_open_loop(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of served models under a rate, the peers' on the rows that we answer."""
    truth, runs = open_loop_rows(directory, messages)
    if not runs:
        messages += [f"{t.shown}: not used, no measured row is answered" for t in tables(directory, "open_loop_peers")]
        return []
    messages.append(f"open loop: priced by `{OPEN_LOOP_METHOD}`; prompts that came before are found in the cache")
    seconds = predicted(runs, [metric for _, metric in METRICS.values()])
    answers = {OURS: pd.DataFrame({column: seconds[metric] for column, (_, metric) in METRICS.items()})}
    answers |= _peers(directory, truth, messages)
    result: list[Row] = []
    for column, (quantity, _) in METRICS.items():
        for who, part in answers.items():
            if column in part:
                both = truth.join(part[column].rename("predicted_s"), how="inner")
                result += rows("open loop", quantity, errors_by(who, both, DEVICE, "predicted_s", column, scale=1e-3))
    return result


def _peers(directory: Path, truth: pd.DataFrame, messages: list[str]) -> dict[str, pd.DataFrame]:
    """Peer -> seconds of the measured rows that it answers."""
    keys, columns = ["run", "request_rate_per_s"], [*METRICS]
    frames = [table.rows(messages) for table in tables(directory, "open_loop_peers")]
    answers = dict[str, pd.DataFrame]()
    for name, part in pd.concat(frames, ignore_index=True).groupby("peer", sort=True) if frames else ():
        matched = truth[keys].reset_index().merge(part.drop_duplicates(keys), on=keys, how="inner").set_index("index")
        answers[f"peer {name}"] = 1e-3 * matched[[column for column in columns if column in matched]]
    return answers


OPEN_LOOP = Suite("open loop", ("open_loop", "open_loop_peers"), run_open_loop)


# The most an engine serves, its batch its own choice: the best static batch that fits.
#
# Where the layout is not stated (MLPerf), every tensor-parallel degree of a node is tried, and of models with experts
# attention by data with experts spread over it: submitters tune theirs.


MOST = 4096.0  # sequences of a replica
DEGREES = (1.0, 2.0, 4.0, 8.0)
LENGTHS = ("input_tokens", "output_tokens")
DATA_SETS = {r"llama2-70b(-99|-99\.9)?": (294.45, 294.45), r"deepseek-r1": (800.0, 3886.2274)}
"""Benchmark -> mean tokens of a prompt and of an answer, where a table has no columns of them.

Answers as the reference implementations print them (tokens per sample; mean-output-tok-len), read again; prompts are
assumed, of benchmarks whose answers take most of the time. Of any other both must be columns: of llama3.1-405b answers
are printed (684.68) but prompts take most of the time, of llama3.1-8b neither is.
Source: [mlcommons_rules].
"""


def stated(row: Any) -> list[Job]:
    """The engine of a row with its layout.

    Raises:
        ConfigError: device, model, number format or layout is not known.
    """
    layout = re.fullmatch(r"(TP|DEP)(\d+)", row.parallelism)
    if layout is None or int(layout.group(2)) != row.num_gpus:
        raise ConfigError(f"parallelism {row.parallelism!r} is not TPn or DEPn of all num_gpus")
    count, alone = float(row.num_gpus), layout.group(1) == "TP"
    model = model_of(row.model)
    result = Job(
        measured_cluster(row.gpu), model, format_of(row.precision, row.model, model), count if alone else 1.0, 1.0,
        1.0 if alone else count, not alone, 1.0, row.input_tokens, row.output_tokens,
    )  # fmt: skip
    check_format(result)
    return [result]


def tuned(row: Any) -> list[Job]:
    """List what a submitter may have chosen for an offline run.

    Raises:
        ConfigError: device, model, number format, scenario or unit is not known.
    """
    if row.scenario != "Offline" or row.result_units != "Tokens/s":
        raise ConfigError(f"scenario {row.scenario!r} in {row.result_units!r} is not modelled")
    cluster, model = measured_cluster(row.gpu), model_of(row.model)
    number_format = format_of(row.weight_dtype, row.model, model)
    layouts = [(tp, 1.0, False) for tp in DEGREES if tp <= row.num_accelerators]
    if hasattr(model.feed_forward, "experts"):
        layouts += [(1.0, ranks, True) for ranks in DEGREES[1:] if ranks <= row.num_accelerators]
    jobs = [
        Job(cluster, model, number_format, tp, 1.0, ranks, spread, 1.0, *_lengths(row)) for tp, ranks, spread in layouts
    ]
    check_format(jobs[0])
    return jobs


def _lengths(row: Any) -> tuple[float, float]:
    """Mean tokens of a prompt and of an answer: as the row says, else of the benchmark's data set.

    Raises:
        ConfigError: neither.
    """
    if all(hasattr(row, name) for name in LENGTHS):
        return row.input_tokens, row.output_tokens
    for pattern, lengths in DATA_SETS.items():
        if re.fullmatch(pattern, row.model):
            return lengths
    raise ConfigError(f"{' and '.join(LENGTHS)} of the data set of {row.model!r} are no columns")


OFFERED = (
    ("maximum_throughput", stated, "engine's own batch"),
    ("mlperf_inference", tuned, "MLPerf offline"),
)  # fmt: skip
"""Kind of table, how its rows are read, and the stratum."""


def throughput_errors(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Tokens per second and device at the best of the engines that a row may mean, and as measured."""
    for kind, reader, stratum in OFFERED:
        table, engines = read_rows(directory, kind, reader, messages)
        if not engines:
            continue
        rates = iter(fastest([job for jobs in engines for job in jobs], MOST))
        table["rate"] = [max(next(rates) for _ in jobs) for jobs in engines]
        if (table["rate"] == 0).any():
            messages.append(f"{kind}: {int((table['rate'] == 0).sum())} rows set aside, no batch fits the memory")
        if kind == "mlperf_inference":
            table["output_tokens_per_s_per_gpu"] = table["result"] / table["num_accelerators"]
        yield from errors_by(stratum, table[table["rate"] > 0], DEVICE, "rate", "output_tokens_per_s_per_gpu")


def run_throughput(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of the most that engines serve."""
    return rows("maximum throughput", "output_tokens_per_s_per_gpu", throughput_errors(directory, messages))


THROUGHPUT = Suite("maximum throughput", ("maximum_throughput", "mlperf_inference"), run_throughput)


# Served models at a concurrency: time to the first token, by concurrency, and time between tokens.
#
# Strata: TTFT apart for a concurrency to 4, to 16 and above; TPOT together. Each with constants fitted on all rows of
# the engine, with those of its rows but of the same device and model (`GPU and model left out`, to first order about
# the constants at hand: no fit is repeated), with those of its rows of other sources, and some rows with those of the
# engine that is taken where none is named.


ALONE = ", engine not named"
LEFT_OUT = ", GPU and model left out"
SOURCE_OUT = ", source left out"
RESULTS = ("ttft_ms", "tpot_ms", "origin")  # of a row; the rest is what was asked for
UNNAMED_ROWS = 200  # at least, that are also priced as if nobody had named their engine


def by_concurrency(suite: str, table: pd.DataFrame, suffix: str = "") -> list[Row]:
    """Rows of times to the first token by concurrency, and of times between tokens: `ttft_s` and `tpot_s` of a table.

    An engine, and a band of concurrencies, have spreads of their own.
    """
    sequences = table["concurrency"].fillna(table["batch_size"]) if "batch_size" in table else table["concurrency"]
    names = [name for _, name in BANDS]
    table = table.assign(band=np.take(names, np.searchsorted([high for high, _ in BANDS], sequences)))
    result: list[Row] = []
    for band in names:
        part, stratum = table[table["band"] == band], f"{band}{suffix}"
        errors = errors_by(stratum, part, DEVICE, "ttft_s", "ttft_ms", within=["backend"], scale=1e-3)
        result += rows(suite, "ttft", errors)
    stratum, within = f"every concurrency{suffix}", ["backend", "band"]
    errors = errors_by(stratum, table, DEVICE, "tpot_s", "tpot_ms", within=within, scale=1e-3)
    return result + rows(suite, "tpot", errors)


def repeats(table: pd.DataFrame) -> Iterator[str]:
    """A line for each time, of rows that agree in every column that a model may read: by how much runs differ.

    Ranks inside a group can be no better than one run tells another's.
    """
    inputs = [name for name in table.columns if name not in RESULTS]
    for name in ("ttft_ms", "tpot_ms"):
        once = table.drop_duplicates([*inputs, name])
        same = once.groupby(inputs, dropna=False)[name].agg(["size", "min", "max"])
        same = same[same["size"] > 1]
        if len(same):
            ratio, count = same["max"] / same["min"], int(same["size"].sum())
            yield (
                f"closed loop: {count} rows of {name} agree with others in every other column, {len(same)} conditions:"
                f" the slowest takes {ratio.median():.2f} times the fastest in the median, {ratio.max():.1f} at most"
            )


def run_closed_loop(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of served models at a concurrency: engine named, and of some of them as if it were not."""
    table, jobs = jobs_of(directory, messages)
    if not jobs:
        return []
    messages.append(f"closed loop: priced as {METHOD}")
    messages += repeats(table)
    jobs, crowded = in_room(jobs)

    def scored(suffix: str, service: Service, chosen: np.ndarray) -> list[Row]:
        answered = table.iloc[np.flatnonzero(chosen)].assign(ttft_s=service.first_s, tpot_s=service.between_s)
        return by_concurrency("closed loop", answered, suffix)

    named = scored("", service(jobs, crowded=crowded), np.full(len(jobs), True))
    drawn = table["origin"].astype(str).str.contains(DRAWN) if "origin" in table else np.zeros(len(table), dtype=bool)
    apart = {LEFT_OUT: (table["gpu"] + " " + table["model"]).to_numpy(), SOURCE_OUT: np.asarray(drawn)}
    for suffix, (others, enough) in others_say(table, jobs, crowded, apart).items():
        named += scored(suffix, Service(*(times[enough] for times in others)), enough)
    unfitted = [i for i, one in enumerate(jobs) if one.engine != CLOSED]  # which is taken where none is named
    few = unfitted[:: max(len(unfitted) // UNNAMED_ROWS, 1)]
    if not few:
        return named
    blank = [jobs[i]._replace(engine="", admission_steps=0.0) for i in few]
    return named + scored(ALONE, service(blank, crowded=crowded[few]), np.isin(np.arange(len(jobs)), few))


def others_say(
    table: pd.DataFrame, jobs: Sequence[Job], crowded: np.ndarray, groups: Mapping[str, np.ndarray]
) -> dict[str, tuple[Service, np.ndarray]]:
    """Name of a grouping -> service by constants without the rows of one's group, and which rows have enough others."""
    none = np.zeros(len(jobs))
    result = {name: (Service(none.copy(), none.copy()), np.zeros(len(jobs), dtype=bool)) for name in groups}
    for engine, constants in stored_serving().items():
        here = np.array([job.engine == engine for job in jobs])
        enough = dict[str, np.ndarray]()
        for name, theirs in groups.items():
            names, counts = np.unique(theirs[here], return_counts=True)
            enough[name] = here & np.isin(theirs, names[here.sum() - counts >= FEWEST])
        if not any(some.any() for some in enough.values()):
            continue
        measured = (table[name].to_numpy(dtype=float)[here] * 1e-3 for name in ("ttft_ms", "tpot_ms"))
        rows_seen = seen([job for job in jobs if job.engine == engine], crowded[here], *measured)
        fitted = FittedEngine(**{name: constants[name] for name in FittedEngine._fields})
        near = slopes_of_errors(rows_seen, fitted)
        for name, theirs in groups.items():
            times, rows_of = result[name]
            times.first_s[here], times.between_s[here] = left_out(rows_seen, fitted, theirs[here], near)
            np.logical_or(rows_of, enough[name], out=rows_of)
    return result


def closed_loop_rows(directory: Path, messages: list[str]) -> tuple[pd.DataFrame, list[PricedRun]]:
    """Rows of all tables of served models at a concurrency, and their overrides."""
    table, jobs = jobs_of(directory, messages)
    served = zip(*in_room(jobs), strict=True) if jobs else ()
    return table, [run_of(job, float(queued)) for job, queued in served]


CLOSED_LOOP = Suite("closed loop", ("closed_loop",), run_closed_loop)


# Served models whose prompts are computed on devices of their own: clients with one request open each.
#
# A row is `codesign evaluate workload=disaggregated_clients` with x prefill engines and y decode engines, under the
# constants of the engine, which were fitted on engines that do both; `handover_s` alone is fitted on these rows.
# Attention groups whose experts are spread over ranks, or would be cut in more parts than a node has devices, send each
# expert its tokens by the engine's library of exchange; other groups gather the tokens of all on all ranks. What is
# known to be missed: `MISSED`.


MISSED = (
    "disaggregated: some runs of few clients have first tokens after seconds, which no queue explains, and in pools "
    "that fill up they come later than ours; speculation is not stated, nor priced"
)
ROUNDS_OF_POOLS = 5.0
"""Requests of each client of InferenceX's pools behind a warm-up of as many, by `sa-bench` of Dynamo [inferencex].

Pools of TensorRT-LLM had scripts of their own: there as the engine was measured."""
OF_THE_POOL = ("tp", "pp", "ep", "etp", "attention_dp", "token_budget")
"""Fields of a plan that the prefill pool has of its own."""


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
    (count, groups, experts), model = ranks(part), model_of(row.model)
    heads = float(model.attention.heads)
    if heads % (count / groups):
        raise ConfigError(f"{count:g} ranks do not divide {heads:g} heads: no tensor-parallel engine")
    engine = str(row.backend) if row.backend in ENGINES else ""
    varied = DRAWN in str(getattr(row, "origin", ""))
    mean = (1 + SHORTEST) / 2 if varied else 1.0
    spread = part.moe_ep > 1 or part.moe_tp > MOST_CUT  # nobody cuts an expert in so many
    routed = hasattr(model.feed_forward, "experts")
    dispatched = groups > 1 and spread and routed
    result = Job(
        measured_cluster(row.gpu), model, format_of(row.precision, row.model, model), count,
        float(getattr(row, f"{pool}_pp_size")), 1.0, False, max(sequences, 1.0), mean * row.input_tokens,
        mean * row.output_tokens, engine, groups, varied, experts if routed else 1.0,
    )  # fmt: skip
    result = result._replace(tp=count / groups, replicas=groups, spread=True, groups=1.0) if dispatched else result
    check_format(result)
    return result


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
    stated_rounds = row.backend != "trtllm" and DRAWN in str(getattr(row, "origin", ""))
    there, here = prompts.numbers, answers.numbers
    return PricedRun((*chosen, "workload=disaggregated_clients", "prefill=same"), here | {
        **{f"plan.prefill_{name}": there[f"plan.{name}"] for name in OF_THE_POOL},
        "plan.prefill_devices": x * there["cluster.device_count"],
        "cluster.device_count": y * here["cluster.device_count"], "workload.concurrency": clients,
        "workload.clients.rounds": ROUNDS_OF_POOLS if stated_rounds else 0.0,
    })  # fmt: skip


def disaggregated_rows(directory: Path, messages: list[str]) -> tuple[pd.DataFrame, list[PricedRun]]:
    """Rows of all tables of two pools, and their overrides."""
    return read_rows(directory, "disaggregated", pools, messages)


def run_disaggregated(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of two pools."""
    table, runs = disaggregated_rows(directory, messages)
    if not runs:
        return []
    messages.append(MISSED)
    return by_concurrency("disaggregated", table.assign(**predicted(runs, TIMES)))


DISAGGREGATED = Suite("disaggregated", ("disaggregated",), run_disaggregated)


# The command of each row that can be priced, behind it what was measured.


OF_TIMES = {"ttft_ms": "ttft_s", "tpot_ms": "tpot_s"}
COMMANDED = (
    (open_loop_rows, {column: metric for column, (_, metric) in METRICS.items()}),
    (closed_loop_rows, OF_TIMES),
    (disaggregated_rows, OF_TIMES),
)


def served_commands(directory: Path, messages: list[str]) -> Iterator[str]:
    """The command of each row of served models below a folder."""
    for read, metrics in COMMANDED:
        table, runs = read(directory, messages)
        for run, measured in zip(runs, table.to_dict("records"), strict=True):
            values = (f"{metric} {measured[column] / 1e3:.6g}" for column, metric in metrics.items())
            yield f"{command(run)}  # {', '.join(values)}"
