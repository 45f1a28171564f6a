"""Suites of served models: at a concurrency, under a rate of requests, at the most an engine serves, in two pools."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from ...config.starting import CLOSED
from ...core.errors import ConfigError
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
from .scores import Errors, Row, Suite, rows
from .served_rows import (
    BANDS,
    DRAWN,
    ENGINES,
    METHOD,
    MOST_CUT,
    PUBLISHED,
    SHORTEST,
    Job,
    Service,
    check_format,
    fastest,
    format_of,
    in_room,
    jobs_of,
    ranks,
    readable,
    run_of,
    service,
    stored_serving,
)
from .serving_fit import FEWEST, FittedEngine, around, left_out, seen

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

OPEN_LOOP_METHOD = "codesign evaluate workload=at_rate framework=vllm_async"

CONTRADICTION = 0.1  # of a whole request, beyond which first token and intervals do not add up to it (assumed)
HALF_A_BLOCK = 8.0  # tokens of a prompt that is in the cache but for its last block, of 16 (default of vLLM)


def open_loop_run(row: Any) -> PricedRun:
    """The overrides of a row; `found` is the share of its prompts that came before.

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
        "workload.retained_share": float(row.found),
    })  # fmt: skip


def with_found(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with the share of their prompts that came before: in the first stage of a run alone some are new."""
    new = table["distinct_prompts"] / (table["request_rate_per_s"] * table["duration_s"])
    first = table["request_rate_per_s"] == table.groupby("run")["request_rate_per_s"].transform("min")
    return table.assign(found=(1 - new.where(first, 0.0)).clip(0.0, 1.0))


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


def answers(table: pd.DataFrame, runs: list[PricedRun]) -> pd.DataFrame:
    """Milliseconds of every row, by the table's columns."""
    result = predicted(runs, [metric for _, metric in METRICS.values()])
    return pd.DataFrame({name: 1e3 * result[metric] for name, (_, metric) in METRICS.items()}, index=table.index)


def beside(predicted: pd.DataFrame, measured: pd.DataFrame, who: str, column: str) -> Iterator[Errors]:
    """Errors of one predictor in one column, by model and device, where it has an answer."""
    joined = measured.join(predicted[column].rename("predicted"), how="inner")
    joined = joined[joined["predicted"].notna()]
    for (gpu, model), part in joined.groupby(["gpu", "model"], sort=True):
        ours, theirs = (part[name].to_numpy(dtype=float) for name in ("predicted", column))
        yield Errors(who, f"{gpu} {model}", ours * 1e-3, theirs * 1e-3)


def run_open_loop(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of served models under a rate, the peers' on the rows that we answer."""
    measured, ours = list[pd.DataFrame](), list[pd.DataFrame]()
    for table in tables(directory, "open_loop"):
        found = with_found(table.rows(messages))
        jobs, refused = readable(found, open_loop_run)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in refused.items()]
        if jobs:
            found = found.loc[list(jobs)]
            messages += contradicted(table.shown, found)
            measured.append(found)
            ours.append(answers(found, list(jobs.values())))
    if not measured:
        messages += [f"{t.shown}: not used, no measured row is answered" for t in tables(directory, "open_loop_peers")]
        return []
    messages.append(f"open loop: priced by `{OPEN_LOOP_METHOD}`; prompts that came before are found in the cache")
    keys = ["run", "request_rate_per_s"]
    truth = pd.concat(measured, ignore_index=True)
    answered = {OURS: pd.concat(ours, ignore_index=True).set_index(truth.index)}
    for name, part in _peers(directory, keys, messages).items():
        matched = truth[keys].reset_index().merge(part, on=keys, how="inner").set_index("index")
        answered[f"peer {name}"] = matched
    result: list[Row] = []
    for column, (quantity, _) in METRICS.items():
        for who, part in answered.items():
            if column in part:
                result += rows("open loop", quantity, beside(part, truth, who, column))
    return result


def open_loop_commands(directory: Path, messages: list[str]) -> Iterator[str]:
    """The command of each row that can be priced, behind it what was measured."""
    for table in tables(directory, "open_loop"):
        result = with_found(table.rows(messages))
        runs, refused = readable(result, open_loop_run)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in refused.items()]
        for at, run in runs.items():
            row = cast(Any, result.loc[at])
            told = (f"{metric} {float(row[column]) / 1e3:.6g}" for column, (_, metric) in METRICS.items())
            yield f"{command(run)}  # {', '.join(told)}"


def _peers(directory: Path, keys: list[str], messages: list[str]) -> dict[str, pd.DataFrame]:
    """Peer -> its answers."""
    frames = [table.rows(messages) for table in tables(directory, "open_loop_peers")]
    if not frames:
        return {}
    every = pd.concat(frames, ignore_index=True)
    return {str(name): part.drop_duplicates(keys) for name, part in every.groupby("peer", sort=True)}


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


def best(table: pd.DataFrame, reader: Any, shown: str, messages: list[str]) -> pd.DataFrame:
    """Rows with `predicted`, tokens per second of a device at the best of the engines that a row may mean."""
    known, refused = readable(table, reader)
    messages += [f"{shown}: {count} rows set aside, {why}" for why, count in refused.items()]
    if not known:
        return table.iloc[:0].assign(predicted=[])
    rates = iter(fastest([job for jobs in known.values() for job in jobs], MOST))
    found = np.array([max(next(rates) for _ in jobs) for jobs in known.values()])
    if (found == 0).any():
        messages.append(f"{shown}: {int((found == 0).sum())} rows set aside, no batch fits the memory")
    result = table.loc[list(known)].assign(predicted=found)
    return result[result["predicted"] > 0]


def _by_device(stratum: str, table: pd.DataFrame, measured: pd.Series) -> Iterator[Errors]:
    for (gpu, model), part in table.groupby(["gpu", "model"], sort=True):
        ours, theirs = (column[part.index].to_numpy(dtype=float) for column in (table["predicted"], measured))
        yield Errors(stratum, f"{gpu} {model}", ours, theirs)


def throughput_errors(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Predicted and measured tokens per second and device."""
    for table in tables(directory, "maximum_throughput"):
        result = best(table.rows(messages), stated, table.shown, messages)
        yield from _by_device("engine's own batch", result, result["output_tokens_per_s_per_gpu"])
    for table in tables(directory, "mlperf_inference"):
        result = best(table.rows(messages), tuned, table.shown, messages)
        yield from _by_device("MLPerf offline", result, result["result"] / result["num_accelerators"])


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
    """Rows of all tables of served models at a concurrency: engine named, and of some of them as if it were not."""
    table, jobs = jobs_of(directory, messages)
    if not jobs:
        return []
    messages.append(f"closed loop: priced as {METHOD}")
    messages += repeats(table)
    jobs, crowded = in_room(jobs)
    served = service(jobs, crowded=crowded)
    named = banded("", table.assign(ttft_s=served.first_s, tpot_s=served.between_s))
    drawn = table["origin"].astype(str).str.contains(DRAWN) if "origin" in table else np.zeros(len(table), dtype=bool)
    apart = {LEFT_OUT: (table["gpu"] + " " + table["model"]).to_numpy(), SOURCE_OUT: np.asarray(drawn)}
    for suffix, (others, scored_rows) in others_say(table, jobs, crowded, apart).items():
        named += banded(suffix, table.assign(ttft_s=others.first_s, tpot_s=others.between_s)[scored_rows])
    unfitted = [i for i, one in enumerate(jobs) if one.engine != CLOSED]  # which is taken where none is named
    few = unfitted[:: max(len(unfitted) // UNNAMED_ROWS, 1)]
    blank = [jobs[i]._replace(engine="", admission_steps=0.0) for i in few]
    plain = service(blank, crowded=crowded[few]) if few else Service(np.zeros(0), np.zeros(0))
    return named + banded(ALONE, table.iloc[list(few)].assign(ttft_s=plain.first_s, tpot_s=plain.between_s))


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
        near = around(rows_seen, fitted)
        for name, theirs in groups.items():
            times, rows_of = result[name]
            times.first_s[here], times.between_s[here] = left_out(rows_seen, fitted, theirs[here], near)
            np.logical_or(rows_of, enough[name], out=rows_of)
    return result


def closed_loop_commands(directory: Path, messages: list[str]) -> Iterator[str]:
    """The command of each row that can be priced, behind it what was measured."""
    table, jobs = jobs_of(directory, messages)
    if jobs:
        jobs, crowded = in_room(jobs)
        told = zip(jobs, crowded, table["ttft_ms"], table["tpot_ms"], strict=True)
        for job, queued, first, between in told:
            yield f"{command(run_of(job, queued))}  # ttft_s {first / 1e3:.6g}, tpot_s {between / 1e3:.6g}"


CLOSED_LOOP = Suite("closed loop", ("closed_loop",), run_closed_loop)


# Served models whose prompts are computed on devices of their own: clients with one request open each.
#
# A row is `codesign evaluate workload=disaggregated_clients` with x prefill engines and y decode engines, under the
# constants of the engine, which were fitted on engines that do both: nothing is fitted here. Attention groups whose
# experts are spread over ranks, or would be cut in more parts than a node has devices, send each expert its tokens by
# the engine's library of exchange; other groups gather the tokens of all on all ranks. What is known to be missed:
# `KNOWN`.


KNOWN = (
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
    whole = Job(
        measured_cluster(row.gpu), model, format_of(row.precision, row.model, model), count,
        float(getattr(row, f"{pool}_pp_size")), 1.0, False, max(sequences, 1.0), mean * row.input_tokens,
        mean * row.output_tokens, engine, groups, varied, experts if routed else 1.0,
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
    stated_rounds = row.backend != "trtllm" and DRAWN in str(getattr(row, "origin", ""))
    there, here = prompts.numbers, answers.numbers
    return PricedRun((*chosen, "workload=disaggregated_clients", "prefill=same"), here | {
        **{f"plan.prefill_{name}": there[f"plan.{name}"] for name in OF_THE_POOL},
        "plan.prefill_devices": x * there["cluster.device_count"],
        "cluster.device_count": y * here["cluster.device_count"], "workload.concurrency": clients,
        "workload.clients.rounds": ROUNDS_OF_POOLS if stated_rounds else 0.0,
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
    parts = [table.assign(**predicted(runs, ["ttft_s", "tpot_s"])) for table, runs in pool_tables(directory, messages)]
    if not parts:
        return []
    messages.append(KNOWN)
    return scored(pd.concat(parts, ignore_index=True))


def disaggregated_commands(directory: Path, messages: list[str]) -> Iterator[str]:
    """The command of each row that can be priced, behind it what was measured."""
    for table, runs in pool_tables(directory, messages):
        for run, first, between in zip(runs, table["ttft_ms"], table["tpot_ms"], strict=True):
            yield f"{command(run)}  # ttft_s {first / 1e3:.6g}, tpot_s {between / 1e3:.6g}"


def pool_tables(directory: Path, messages: list[str]) -> Iterator[tuple[pd.DataFrame, list[PricedRun]]]:
    """Rows of all tables of two pools that can be priced, and their overrides."""
    for table in tables(directory, "disaggregated"):
        read = table.rows(messages)
        known, refused = readable(read, pools)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in refused.items()]
        if known:
            yield read.loc[list(known)], list(known.values())


DISAGGREGATED = Suite("disaggregated", ("disaggregated",), run_disaggregated)
