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

from ...core.errors import ConfigError
from ...model.networks.collectives import NetworkLevel, hierarchical
from ...model.networks.collectives.levels import Stage
from ...model.networks.fabrics import Group
from ..calibration.collectives import OPERATIONS
from ..measurements import tables
from .hardware import measured_cluster
from .scores import Errors, Row, rows
from .suites import Suite

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
