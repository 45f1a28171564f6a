"""Collectives of several devices a node across nodes, and published logs.

A group of g devices on each of N nodes is priced as the hierarchical collective of the model: the scale-up domain's
fitted curves inside, the scale-out network's (fitted on one device a node) outside, and both at once (`Pipelined`, two
constants fitted on the sums and gathers of the first stratum). Racks of 72 count as nodes. Strata:

    across nodes        nccl-tests on clusters, more than one device a node
    inside one node     the same source, one node: the scale-up curves, fitted on another source
    published logs      other people's nccl-tests; GB200 racks joined by 400 Gb/s InfiniBand a device
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from ...config.engines import BYTES, EXCHANGE_KEYS, FILE, Exchange, fitted_exchanges, reached
from ...core.errors import ConfigError, DataError
from ...model.networks.collectives import NetworkLevel, hierarchical
from ...model.networks.collectives.levels import Stage
from ...model.networks.fabrics import Group
from ..calibration.collectives import OPERATIONS
from ..calibration.constants import publish
from ..calibration.exchange import FEWEST, fit_exchange, table_of
from ..calibration.gpus import device
from ..measurements import tables
from .row_overrides import measured_cluster
from .scores import Errors, Row, Suite, rows

__all__ = ["ACROSS", "EXCHANGE", "calibrate_exchange", "predicted"]


PADDED = 64  # rows: few lengths of a table are compiled
RATED = "400G"  # of the name of a cluster whose network the configuration has
RACK = {"GB200": 72, "GB300": 72}  # devices of one scale-up domain, where it is not a node
UNNAMED = "see source"  # a fabric that a table does not name


@functools.partial(eqx.filter_jit)
def _seconds(levels: list[NetworkLevel], operation: str, inner: jax.Array, outer: jax.Array, nbytes: jax.Array):
    def one(inside: jax.Array, outside: jax.Array, size: jax.Array) -> jax.Array:
        parts = [Stage(levels[0], Group(inside)), Stage(levels[1], Group(outside, inside))]
        return hierarchical(operation, size, parts).time_s

    return jax.vmap(one)(inner, outer, nbytes)


def predicted(gpu: str, operation: str, inner: np.ndarray, outer: np.ndarray, nbytes: np.ndarray) -> np.ndarray:
    """Seconds of an operation among `inner` devices of each of `outer` domains.

    Raises:
        ConfigError: an unknown device.
    """
    cluster = measured_cluster(gpu)
    levels, count = [cluster.network[name] for name in cluster.levels], len(nbytes)
    index = np.resize(np.arange(count), count + -count % PADDED)
    arrays = (jnp.asarray(np.asarray(column, dtype=float)[index]) for column in (inner, outer, nbytes))
    return np.asarray(_seconds(levels, operation, *arrays))[:count]


def _errors(stratum: str, label: str, part: pd.DataFrame, inner: Any, outer: Any, messages: list[str]):
    """Errors of rows of one device and operation, or a message."""
    gpu, name = str(part["gpu"].iloc[0]), str(part["collective"].iloc[0])
    if name not in OPERATIONS:
        messages.append(f"{label}: {len(part)} rows set aside, collective {name!r} is not known")
        return
    nbytes = part["message_bytes"].to_numpy(dtype=float)
    try:
        result = predicted(gpu, OPERATIONS[name], np.asarray(inner), np.asarray(outer), nbytes)
    except ConfigError as error:
        messages.append(f"{label}: {len(part)} rows set aside: {error}")
        return
    yield Errors(stratum, label, result, part["latency_us"].to_numpy(dtype=float) * 1e-6)


def clusters(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Rows of clusters that no curve was fitted on."""
    for result in tables(directory, "clusters"):
        table = result.rows(messages)
        table = table[(table["gpus_per_node"] > 1)]
        unrated = ~table["cluster"].astype(str).str.contains(RATED) & (table["num_nodes"] > 1)
        if unrated.any():
            messages.append(f"{result.shown}: {int(unrated.sum())} rows across nodes set aside, no such network")
        for (gpu, name, nodes), part in table[~unrated].groupby(["gpu", "collective", "num_nodes"], sort=True):
            stratum = "inside one node" if nodes == 1 else "across nodes"
            label = f"{gpu} {name}" + ("" if nodes == 1 else f" {nodes:g} nodes")
            yield from _errors(stratum, label, part, part["gpus_per_node"], part["num_nodes"], messages)


def _latency_us(table: pd.DataFrame) -> pd.Series:
    """The printed latency out of place, else in place."""
    return table["latency_us"].fillna(table["inplace_latency_us"])


def published(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Rows of logs."""
    for result in tables(directory, "published_logs"):
        table = result.rows(messages)
        table = table.assign(latency_us=_latency_us(table))
        untimed = table["latency_us"].isna()
        if untimed.any():
            messages.append(f"{result.shown}: {int(untimed.sum())} rows without a latency set aside")
        table = table[~untimed]
        for (source, gpu, fabric, name), part in table.groupby(["source", "gpu", "fabric", "collective"], sort=True):
            label = f"{gpu} {name}, {fabric}"
            if UNNAMED in str(fabric):
                messages.append(f"{result.shown}: {len(part)} rows of {source} set aside, the network is not named")
                continue
            inner = np.minimum(part["num_gpus"], RACK.get(str(gpu), part["gpus_per_node"]))
            yield from _errors("published logs", label, part, inner, part["num_gpus"] / inner, messages)


def run_across(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all of these tables."""
    result = rows("across nodes", "latency", clusters(directory, messages))
    return result + rows("across nodes", "latency", published(directory, messages))


ACROSS = Suite("across nodes", ("clusters", "published_logs"), run_across)


# Dispatch and combine of experts: constants of the library where it was measured, else the model's all-to-all.
#
# A token goes once to each rank that has an expert for it. Strata of suite `expert exchange`, own and with the GPU
# left out of the fit:
#
#     inside nodes, across nodes           a library and format whose constants are known
#     ... , as all-to-all                  what the model takes for it in a study: nothing is fitted on these rows


UNSTATED = "default"  # a format that the source does not name: its constants are its own
DISPATCHED, COMBINED = "fp8", "bfloat16"  # of the library that says both phases in a row
NODE = 8.0
SMALLER = {"GB200": 4.0, "GB300": 4.0}  # devices of a node
USUAL = 24.0  # processors, where none are stated

REACH = ("inside nodes", "across nodes")


def _formats(rows: pd.DataFrame, shown: str, messages: list[str]) -> pd.DataFrame:
    """Rows whose payload has a weight, in bytes an element."""
    unnamed = rows["comm_dtype"] == UNSTATED
    if unnamed.any():
        messages.append(f"{shown}: what a payload weighs is not stated in {int(unnamed.sum())} rows, taken as 16 bits")
    element = rows["comm_dtype"].map(BYTES)
    if element.isna().any():
        lost = int(element.isna().sum())
        messages.append(f"{shown}: {lost} rows set aside, what a payload weighs is not stated")
    rows = rows.assign(element=element, format=rows["comm_dtype"])
    return rows[element.notna()]


def observations(directory: Path, messages: list[str]) -> pd.DataFrame:
    """Every phase of every table: library, phase, across, gpu, nbytes, link, node, processors, measured_s."""
    frames = []
    for table in tables(directory, "expert_exchange"):
        result = table.rows(messages)
        result = _formats(result, table.shown, messages)
        frames.append(result.assign(library=result["comm_backend"], ranks=result["ep_size"].astype(float),
                                   measured_s=result["latency_us"] * 1e-6))  # fmt: skip
    for table in tables(directory, "dispatch_combine"):
        result = table.rows(messages)
        ranks = result["num_nodes"] * result["gpu"].map(SMALLER).fillna(NODE)
        for phase, form in (("dispatch", DISPATCHED), ("combine", COMBINED)):
            frames.append(result.assign(library="deepep_" + result["mode"], phase=phase, ranks=ranks, format=form,
                                       element=BYTES[form], measured_s=result[f"{phase}_us"] * 1e-6))  # fmt: skip
    if not frames:
        return pd.DataFrame()
    every = pd.concat(frames, ignore_index=True)
    links = {gpu: _link(str(gpu), messages) for gpu in every["gpu"].unique()}
    every = every.assign(
        link=every["gpu"].map(links), across=every["num_nodes"] > 1, node=every["ranks"] / every["num_nodes"],
        processors=every["num_sms"].where(every["num_sms"] > 0, USUAL).fillna(USUAL),
        experts=every["num_experts"].astype(float), arrivals=every["num_tokens"] * every["topk"] / every["num_experts"],
    )  # fmt: skip
    every = _weighed(every)
    return every[every["link"].notna()].reset_index(drop=True)


def _weighed(every: pd.DataFrame) -> pd.DataFrame:
    """With the bytes that leave a rank, a token counted for each rank, expert or node that it goes to."""
    ranks, nodes = every["ranks"], every["num_nodes"]
    token = every["element"] * every["num_tokens"] * every["hidden_size"]
    sent, others = token * reached(ranks, every["topk"]), (ranks - 1) / ranks
    return every.assign(
        sent=sent, ranks_bytes=sent * others, copies_bytes=token * every["topk"] * others,
        nodes_bytes=token * reached(nodes, every["topk"]) * np.where(nodes > 1, (nodes - 1) / nodes, others),
    )  # fmt: skip


def _link(gpu: str, messages: list[str]) -> float:
    try:
        return device(gpu, {}).peaks.scale_up
    except DataError as error:
        messages.append(f"expert exchange: {error}")
        return float("nan")


def exchange_errors(every: pd.DataFrame, messages: list[str]) -> Iterator[Errors]:
    """Predicted and measured seconds, own constants and those of a fit without the GPU, and as an all-to-all."""
    stored = fitted_exchanges()
    for (library, phase, form, across), part in every.groupby(EXCHANGE_KEYS, sort=True):
        stratum, fitted = REACH[int(across)], _constants(stored, str(library), str(phase), str(form), bool(across))
        for gpu, mine in part.groupby("gpu", sort=True):
            label, theirs = f"{gpu} {library} {phase} {form}", mine["measured_s"].to_numpy(dtype=float)
            others = part[part["gpu"] != gpu]
            lent = fit_exchange(others) if len(others) >= FEWEST else None
            if fitted is not None and (library, phase, form, bool(across)) not in stored:
                messages.append(f"{label}: this format was not fitted, taken as another of the library")
            if fitted is None:
                messages.append(f"{label}: no constants of this library, taken as an all-to-all")
            else:
                yield Errors(stratum, label, fitted.seconds(mine), theirs)
            if lent is not None:
                yield Errors(f"{stratum}, GPU left out", label, lent.seconds(mine), theirs)
            yield from _as_all_to_all(f"{stratum}, as all-to-all", label, str(gpu), mine, messages)


def _constants(stored: dict[tuple[str, str, str, bool], Exchange], *key: str | bool) -> Exchange | None:
    """Constants of this key, or of the library's first format where this one was not measured."""
    library, phase, _, across = key
    others = (one for entry, one in stored.items() if (*entry[:2], entry[3]) == (library, phase, across))
    return next((one for entry, one in stored.items() if entry == key), next(others, None))


def _as_all_to_all(stratum: str, label: str, gpu: str, mine: pd.DataFrame, messages: list[str]) -> Iterator[Errors]:
    members = mine["ranks"].to_numpy(dtype=float)
    inner = np.minimum(members, RACK.get(gpu, NODE))
    try:
        result = predicted(gpu, "all_to_all", inner, members / inner, mine["sent"].to_numpy(dtype=float))
    except ConfigError as error:
        messages.append(f"{label}: {len(mine)} rows set aside: {error}")
        return
    yield Errors(stratum, label, result, mine["measured_s"].to_numpy(dtype=float))


def calibrate_exchange(directory: Path, out: Path) -> list[Path]:
    """Fit every library of the tables below a folder and write `exchange.csv` under `out`; the file, if any."""
    every = observations(directory, [])
    text = table_of(every) if len(every) else ""
    return publish({out / FILE: text}) if text else []


def run_exchange(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all of these tables."""
    every = observations(directory, messages)
    return rows("expert exchange", "latency", exchange_errors(every, messages)) if len(every) else []


EXCHANGE = Suite("expert exchange", ("expert_exchange", "dispatch_combine"), run_exchange)
