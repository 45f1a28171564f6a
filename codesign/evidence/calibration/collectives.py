"""Collectives: the curves of each operation on each device's scale-up fabric, and on a scale-out network."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from ...core.errors import DataError
from ...model.hardware import Link
from ...model.networks.collectives import AbstractCollective, Measured
from ...model.networks.fabrics import Group as Members
from ..measurements import FoundTable, tables
from .gpus import Device, device
from .kernel_tables import read_peaks

OPERATIONS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
              "alltoall": "all_to_all", "all_to_all": "all_to_all", "sendrecv": "send"}  # fmt: skip
LINK_LATENCY_S = 1e-6  # of the fabric measured; what a table shows beyond it is the library's own time
SCALE, SMALL_BYTES, SMALL_WEIGHT, PULL, TIE = 0.03, 2.0**20, 0.5, 0.03, 0.02
BUCKETS = (64, 256, 1024, 4096)

US = 1e-6
RANGES = {
    "base_2_s": (8 * US, 0.5 * US, 100 * US), "base_4_s": (10 * US, 0.5 * US, 200 * US),
    "base_8_s": (15 * US, 0.5 * US, 400 * US), "base_16_s": (30 * US, 0.5 * US, 800 * US),
    "base_64_s": (60 * US, 0.5 * US, 3000 * US), "ratio_2": (0.6, 1e-2, 4), "ratio_4": (0.7, 1e-2, 4),
    "ratio_8": (0.8, 1e-2, 4), "ratio_16": (0.8, 1e-2, 4), "ratio_64": (0.8, 1e-2, 4), "ramp": (1, 1e-2, 30),
    "ramp_power": (0.4, 0.02, 0.75), "switch_bytes": (3e5, 1e3, 1e8),
}  # fmt: skip
MAY_EXCEED_WIRE = "all_reduce"  # in-switch reduction sends less than a ring; no other operation can beat the wire


def _bounds(operation: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logarithms of start, least and largest value of each constant, in the order of `RANGES`."""
    start, low, high = np.log(np.asarray(list(RANGES.values()), dtype=float).T)
    is_ratio = np.asarray([name.startswith("ratio_") for name in RANGES])
    return start, low, high if operation == MAY_EXCEED_WIRE else np.where(is_ratio, 0.0, high)


class CollectiveGroup(NamedTuple):
    """Rows of one operation on one device's fabric."""

    suite: str
    operation: str
    device: Device
    variant: str
    bandwidth_bytes_per_s: float
    members: np.ndarray
    nbytes: np.ndarray
    measured_s: np.ndarray


def rounds(operation: str) -> float:
    """Times the buffer goes round."""
    return 2.0 if operation == "all_reduce" else 1.0


def scale_up_groups(directory: Path, messages: list[str], kind: str = "scale_up") -> Iterator[CollectiveGroup]:
    """Groups of collectives inside one scale-up domain: the library's (`scale_up`), or `custom_all_reduce`."""
    folder = read_peaks(directory)
    own = kind == "custom_all_reduce"
    for table in tables(directory, kind):
        rows = table.rows(messages)
        rows = rows.assign(collective="all_reduce") if own else rows
        keys = ["gpu", "collective"] + (["kernel_source"] if own else [])
        for (gpu, collective, *kernel), group in rows.groupby(keys, sort=True):
            if collective not in OPERATIONS:
                messages.append(f"{table.shown}: {len(group)} rows of collective {collective!r} set aside")
                continue
            try:
                who = device(str(gpu), folder)
            except DataError as error:
                messages.append(f"{table.shown}: {len(group)} rows set aside: {error}")
                continue
            yield CollectiveGroup(
                "custom" if own else "scale_up", OPERATIONS[collective], who, str(kernel[0]) if kernel else "nccl",
                who.peaks.scale_up, *_arrays(group),
            )  # fmt: skip


def _arrays(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        rows["num_gpus"].to_numpy(dtype=float), rows["message_bytes"].to_numpy(dtype=float),
        rows["latency_us"].to_numpy(dtype=float) * 1e-6,
    )  # fmt: skip


def seconds(collective: AbstractCollective, members: jax.Array, nbytes: jax.Array, bandwidth: jax.Array) -> jax.Array:
    """Predicted seconds of rows."""
    link = Link(LINK_LATENCY_S, 1 / bandwidth)
    return jax.vmap(lambda n, b: collective.cost(b, Members(n), link).time_s)(members, nbytes)


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float, float]


@lru_cache
def _functions() -> tuple[Callable[..., jax.Array], Callable[..., jax.Array]]:
    def residual(theta, members, nbytes, log_measured, weight, bandwidth, turns):
        constants = dict(zip(RANGES, jnp.exp(theta), strict=True))
        predicted = seconds(Measured(**constants, rounds=turns), members, nbytes, bandwidth)
        return (jnp.log(predicted) - log_measured) * weight

    return jax.jit(residual), jax.jit(jax.jacfwd(residual))


def _padded(group: CollectiveGroup) -> Arrays:
    count = len(group.nbytes)
    size = next((b for b in BUCKETS if b >= count), count)
    index = np.concatenate([np.arange(count), np.zeros(size - count, dtype=int)])
    weight = np.where(group.nbytes >= SMALL_BYTES, 1.0, SMALL_WEIGHT)[index] * (np.arange(size) < count)
    arrays = group.members[index], group.nbytes[index], np.log(group.measured_s[index]), weight
    return *arrays, group.bandwidth_bytes_per_s, rounds(group.operation)


def _links(relative: dict[str, float] | None) -> tuple[np.ndarray, np.ndarray]:
    """Weak rows that tie neighbouring knots of a curve: equal, or in the proportion they have on a relative."""
    names = list(RANGES)
    pairs = [
        (f"{kind}_{x}{end}", f"{kind}_{y}{end}")
        for kind, end in (("base", "_s"), ("ratio", ""))
        for x, y in ((2, 4), (4, 8), (8, 16), (16, 64))
    ]
    rows, target = np.zeros((len(pairs), len(names))), np.zeros(len(pairs))
    for row, (a, b) in enumerate(pairs):
        rows[row, names.index(a)], rows[row, names.index(b)] = TIE, -TIE
        target[row] = TIE * np.log(relative[a] / relative[b]) if relative else 0.0
    return rows, target


def fit_collective(group: CollectiveGroup, relative: dict[str, float] | None = None) -> dict[str, float]:
    """Constants of `Measured` that explain these rows.

    Args:
        relative: constants of a device with more group sizes; curves beyond the sizes measured follow its shape.
    """
    start, low, high = _bounds(group.operation)
    residual, jacobian = _functions()
    arrays, names = _padded(group), list(RANGES)
    ties, target = _links(relative)
    ends = [names.index(name) for name in ("ramp", "ramp_power", "switch_bytes")]
    pull = PULL * np.eye(len(names))[ends]

    def values(theta: np.ndarray) -> np.ndarray:
        measured = np.asarray(residual(theta, *arrays))
        return np.concatenate([measured, ties @ theta - target, pull @ (theta - start)])

    def slopes(theta: np.ndarray) -> np.ndarray:
        return np.concatenate([np.asarray(jacobian(theta, *arrays)), ties, pull])

    best = None
    for power in (0.2, 0.6):  # the curve has several local fits
        first = start.copy()
        first[names.index("ramp_power")] = np.log(power)
        done = least_squares(values, first, jac=slopes, bounds=(low, high), loss="soft_l1", f_scale=SCALE, max_nfev=40)
        best = done if best is None or done.cost < best.cost else best
    return dict(zip(names, np.exp(best.x).tolist(), strict=True))


def predict_collective(constants: dict[str, float], group: CollectiveGroup) -> np.ndarray:
    """Predicted seconds of every row."""
    collective = Measured(**constants, rounds=rounds(group.operation))
    bandwidth = jnp.asarray(group.bandwidth_bytes_per_s)
    return np.asarray(seconds(collective, jnp.asarray(group.members), jnp.asarray(group.nbytes), bandwidth))


SCALE_OUT_RATES = {"100G": 13.6e9, "400G": 50e9}  # payload per device: what sends reach, and the class of its name


def scale_out_rows(table: FoundTable, messages: list[str]) -> pd.DataFrame:
    """A table of collectives across nodes, with `rate` of each cluster's network; unknown clusters are set aside."""
    rows = table.rows(messages)
    rate = rows["cluster"].map(lambda name: next((v for k, v in SCALE_OUT_RATES.items() if k in str(name)), np.nan))
    if rate.isna().any():
        names = ", ".join(sorted({str(name) for name in rows["cluster"][rate.isna()]}))
        messages.append(f"{table.shown}: {int(rate.isna().sum())} rows set aside, no rate known for cluster(s) {names}")
    return rows.assign(rate=rate)[rate.notna()]


def scale_out_groups(directory: Path, messages: list[str]) -> Iterator[CollectiveGroup]:
    """Groups with one device a node: nothing but the scale-out network between them."""
    folder = read_peaks(directory)
    for table in tables(directory, "clusters"):
        rows = scale_out_rows(table, messages)
        alone = rows[(rows["gpus_per_node"] == 1) & (rows["num_nodes"] > 1)]
        for (gpu, cluster, collective, rate), group in alone.groupby(
            ["gpu", "cluster", "collective", "rate"], sort=True
        ):
            if collective not in OPERATIONS:
                messages.append(f"{table.shown}: {len(group)} rows of collective {collective!r} set aside")
                continue
            try:
                who = device(str(gpu), folder)
            except DataError as error:
                messages.append(f"{table.shown}: {len(group)} rows set aside: {error}")
                continue
            yield CollectiveGroup("scale_out", OPERATIONS[collective], who, str(cluster), rate, *_arrays(group))
