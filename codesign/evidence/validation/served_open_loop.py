"""Served models under a rate of requests, with what peer models predict for the same rows beside ours.

How many sequences decode together follows from Little's law: rate x (TTFT + output x time between tokens) of them,
where the time s between tokens is that of so many. A request comes somewhere in a step, u of it before its end; the
scheduler plans one step ahead, and the prompt is found in the cache, so that its own step is like any other:

    TTFT = (u + 2) s + host          mean u = 1/2, 90th percentile u = 0.9, 99th u = 0.99

Where more than one in a hundred prompts of a run's first stage is new, the 99th percentile is one that is computed,
2 s + its own prefill + host. `HOST_S` is fitted on these rows, nothing else is.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..measurements import tables
from .closed_loop_rows import readable
from .hardware import measured_cluster
from .scores import Errors, Row, rows
from .served_jobs import Job, format_of, scenario
from .served_models import model_of
from .served_rows import STATIC as METHOD
from .served_rows import static_service as service
from .suites import Suite

QUANTITIES = {"itl_mean_ms": "itl", "ttft_mean_ms": "ttft", "e2e_mean_ms": "e2e"}
PERCENTILES = {
    "ttft_p90_ms": "ttft p90", "ttft_p99_ms": "ttft p99", "e2e_p90_ms": "e2e p90", "e2e_p99_ms": "e2e p99",
}  # fmt: skip
OURS = "this model"
HOST_S = 8e-3  # of a request beside its steps: fitted, one constant on 15 rows of vLLM 0.15 (serving_open_loop)


def job(row: Any) -> Job:
    """The engine of a row, at one sequence.

    Raises:
        ConfigError: its device, model or number format is not known.
    """
    found = Job(
        measured_cluster(row.gpu), model_of(row.model), format_of(row.weights, row.model), row.tp, 1.0, row.dp, False,
        1.0, row.input_tokens, row.output_tokens,
    )  # fmt: skip
    scenario(found, 1.0)
    return found


def answers(table: pd.DataFrame, jobs: list[Job]) -> pd.DataFrame:
    """Mean milliseconds of every row, by the least number of sequences that its rate keeps decoding.

    The number rises from one until rate x time of a request no longer exceeds it, or the engine's slots are full.
    """
    slots = table["max_num_seqs"].to_numpy(dtype=float) * table["dp"].to_numpy(dtype=float)
    sizes = 2.0 ** np.arange(np.ceil(np.log2(slots.max())) + 1)
    found = service([one._replace(sequences=size) for one in jobs for size in sizes])
    between = found.between_s.reshape(len(jobs), len(sizes))
    first = found.first_s.reshape(len(jobs), len(sizes))[:, 0]
    rate, length = (table[name].to_numpy(dtype=float) for name in ("request_rate_per_s", "output_tokens"))
    result = []
    for at, curve in enumerate(between):
        fine = np.geomspace(1.0, slots[at], 512)
        step = np.interp(fine, sizes, curve)
        wanted = rate[at] * (first[at] + (length[at] - 1) * step)
        enough = np.flatnonzero(wanted <= fine)
        result.append(step[enough[0]] if len(enough) else step[-1])
    itl = np.asarray(result)
    found = {"itl_mean_ms": itl}
    whole_prompt = 2 * itl + first + HOST_S
    for name, share in (("mean", 0.5), ("p90", 0.9), ("p99", 0.99)):
        waited = (share + 2) * itl + HOST_S
        ttft = np.where(computed(table, 1 - share), whole_prompt, waited) if name == "p99" else waited
        found |= {f"ttft_{name}_ms": ttft, f"e2e_{name}_ms": ttft + (length - 1) * itl}
    return pd.DataFrame({name: 1e3 * values for name, values in found.items()}, index=table.index)


def computed(table: pd.DataFrame, rarest: float) -> np.ndarray:
    """Whether more than such a share of a row's prompts is not in the cache: in the first stage of its run alone."""
    new = table["distinct_prompts"] / (table["request_rate_per_s"] * table["duration_s"])
    first = table["request_rate_per_s"] == table.groupby("run")["request_rate_per_s"].transform("min")
    return ((new > rarest) & first).to_numpy()


def beside(predicted: pd.DataFrame, measured: pd.DataFrame, who: str, column: str) -> Iterator[Errors]:
    """Errors of one predictor in one column, by model and device, where it has an answer."""
    joined = measured.join(predicted[column].rename("predicted"), how="inner")
    joined = joined[joined["predicted"].notna()]
    for (gpu, model), part in joined.groupby(["gpu", "model"], sort=True):
        ours, theirs = (part[name].to_numpy(dtype=float) for name in ("predicted", column))
        yield Errors(who, f"{gpu} {model}", ours * 1e-3, theirs * 1e-3)


def run_open_loop(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of served models under a rate, the peers' on the rows that we answer."""
    measured, ours = [], []
    for table in tables(directory, "open_loop"):
        found = table.rows(messages)
        jobs, refused = readable(found, job)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in refused.items()]
        if jobs:
            found = found.loc[list(jobs)]
            measured.append(found)
            ours.append(answers(found, list(jobs.values())))
    if not measured:
        messages += [f"{t.shown}: not used, no measured row is answered" for t in tables(directory, "open_loop_peers")]
        return []
    messages.append(f"open loop: priced as {METHOD}; prompts found in the cache")
    keys = ["run", "request_rate_per_s"]
    truth = pd.concat(measured, ignore_index=True)
    answered = {OURS: pd.concat(ours, ignore_index=True).set_index(truth.index)}
    for name, part in _peers(directory, keys, messages).items():
        matched = truth[keys].reset_index().merge(part, on=keys, how="inner").set_index("index")
        answered[f"peer {name}"] = matched
    result: list[Row] = []
    for column, quantity in (QUANTITIES | PERCENTILES).items():
        for who, part in answered.items():
            if column in part:
                result += rows("open loop", quantity, beside(part, truth, who, column))
    return result


def _peers(directory: Path, keys: list[str], messages: list[str]) -> dict[str, pd.DataFrame]:
    """Peer -> its answers."""
    frames = [table.rows(messages) for table in tables(directory, "open_loop_peers")]
    if not frames:
        return {}
    every = pd.concat(frames, ignore_index=True)
    return {str(name): part.drop_duplicates(keys) for name, part in every.groupby("peer", sort=True)}


OPEN_LOOP = Suite("open loop", ("open_loop", "open_loop_peers"), run_open_loop)
