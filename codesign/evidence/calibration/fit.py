"""Robust fits of kernel constants through the kernel classes themselves.

Loss: soft absolute value of log(predicted / measured), rows of 10 us and below at weight 0.3 (launch noise), and a weak
pull of the log constants towards a prior, so that a constant the rows do not determine stays where its relatives are.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares
from scipy.stats import spearmanr

from ...model.hardware import AbstractKernel, Chip, Routing, Work
from .kernels import ROOFLINES, TABLES, KernelTable, TableGroup

# Errors of predictions against measurements.


class Score(NamedTuple):
    """Shares: median, mean and 90th percentile of |predicted / measured - 1|, signed median, rank correlation."""

    n: int
    median: float
    mean: float
    p90: float
    bias: float
    rank: float


def score(predicted: np.ndarray, measured: np.ndarray) -> Score:
    """Score of one group; not-a-number where there is nothing to score or to rank."""
    if not len(measured):
        return Score(0, *[float("nan")] * 5)
    error = predicted / measured - 1
    size = np.abs(error)
    rank = float("nan")
    if len(measured) > 2 and np.ptp(measured) > 0 and np.ptp(predicted) > 0:
        rank = float(spearmanr(predicted, measured)[0])
    return Score(
        len(measured), float(np.median(size)), float(size.mean()), float(np.quantile(size, 0.9)),
        float(np.median(error)), rank,
    )  # fmt: skip


NOISY_S, NOISY_WEIGHT, SCALE = 10e-6, 0.3, 0.03
BUCKETS = (128, 384, 1024, 2304)  # row counts a fit is compiled for; longer groups are thinned at random
WORK = ("flops", "nbytes", "rows", "cols", "depth", "batch", "groups")


class Rows(NamedTuple):
    """Padded arrays of one or several groups: work [n, parts, 7], device [n, 7], log measured [n], weight [n]."""

    work: np.ndarray
    device: np.ndarray
    log_measured: np.ndarray
    weight: np.ndarray


def work_array(group: TableGroup) -> np.ndarray:
    """Work of every launch of every row: [rows, launches, 7], columns as in `WORK`."""
    parts = []
    for columns in group.works:
        ones = np.ones_like(columns["flops"])
        parts.append(np.stack([columns.get(name, ones) for name in WORK], axis=-1))
    return np.stack(parts, axis=1)


def described_array(group: TableGroup) -> np.ndarray:
    """`work_array` with what is known of routing behind it, where the group's launches say it."""
    names = [field.name for field in dataclasses.fields(Routing) if field.name in group.works[0]]
    more = [np.stack([columns[name] for columns in group.works], axis=1) for name in names]
    return np.concatenate([work_array(group), *(part[..., None] for part in more)], axis=-1)


def work_of(columns: Any) -> Work:
    """Work from columns as in `described_array`, one after the other along the first axis."""
    routing = Routing(*columns[len(WORK) :]) if len(columns) > len(WORK) else None
    return Work(*columns[: len(WORK)], routing=routing)


def _device_array(group: TableGroup) -> np.ndarray:
    """Peak, bandwidth now; processors, cache, peak and bandwidth of the chip; operand bytes."""
    who = group.device
    row = (group.peak_flops_per_s, who.peaks.memory, who.processors, who.cache_bytes, group.peak_flops_per_s,
           who.peaks.memory, group.operand_bytes)  # fmt: skip
    return np.tile(np.asarray(row), (len(group.measured_s), 1))


def rows_of(groups: Sequence[TableGroup], seed: int = 0) -> Rows:
    """Rows of these groups, thinned to the largest bucket and padded (weight 0) to the next."""
    work = np.concatenate([work_array(group) for group in groups])
    device = np.concatenate([_device_array(group) for group in groups])
    measured = np.concatenate([group.measured_s for group in groups])
    if len(measured) > BUCKETS[-1]:
        sample = np.sort(np.random.default_rng(seed).choice(len(measured), BUCKETS[-1], replace=False))
        work, device, measured = work[sample], device[sample], measured[sample]
    size = next(bucket for bucket in BUCKETS if bucket >= len(measured))
    index = np.concatenate([np.arange(len(measured)), np.zeros(size - len(measured), dtype=int)])
    weight = np.where(measured > NOISY_S, 1.0, NOISY_WEIGHT)
    weight = np.where(np.arange(size) < len(measured), weight[index], 0.0)
    return Rows(work[index], device[index], np.log(measured[index]), weight)


def seconds(table: KernelTable, log_constants: jax.Array, work: jax.Array, device: jax.Array) -> jax.Array:
    """Predicted seconds of rows; arrays as in `Rows`."""
    constants = dict(zip(table.ranges, jnp.exp(log_constants), strict=True))

    def row(work_row: jax.Array, device_row: jax.Array) -> jax.Array:
        inputs = {"chip": Chip(*device_row[2:6])} if table.chip else {}
        inputs |= {"operand_bytes": device_row[6]} if table.operand else {}
        kernel = table.model(**inputs, **table.fixed, **constants)
        parts = (kernel.time_s(Work(*part), device_row[0], device_row[1]) for part in work_row)
        return sum(parts, start=jnp.asarray(0.0))

    return jax.vmap(row)(work, device)


Function = Callable[[np.ndarray, Rows], jax.Array]


@lru_cache
def functions(name: str) -> tuple[Function, Function]:
    """Weighted log residuals of a table's rows and their Jacobian, compiled."""
    table = next(table for table in (*TABLES, *ROOFLINES) if table.name == name)

    def residual(theta: jax.Array, rows: Rows) -> jax.Array:
        return (jnp.log(seconds(table, theta, rows.work, rows.device)) - rows.log_measured) * rows.weight

    return jax.jit(residual), jax.jit(jax.jacfwd(residual))


def bounds(table: KernelTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log of start, low and high of every constant."""
    start, low, high = np.log(np.asarray(list(table.ranges.values()), dtype=float).T)
    return start, low, high


def fit(
    table: KernelTable, rows: Rows, prior: np.ndarray | None = None, pull: float = 0.03, steps: int = 40
) -> np.ndarray:
    """Log constants that explain these rows.

    Args:
        prior: log constants to start from and to stay near; the table's own start where None.
        pull: residual per e-fold away from the prior.
        steps: function evaluations at most.
    """
    start, low, high = bounds(table)
    prior = start if prior is None else prior
    residual, jacobian = functions(table.name)

    def values(theta: np.ndarray) -> np.ndarray:
        return np.concatenate([np.asarray(residual(theta, rows)), pull * (theta - prior)])

    def slopes(theta: np.ndarray) -> np.ndarray:
        return np.concatenate([np.asarray(jacobian(theta, rows)), pull * np.eye(len(theta))])

    first = np.clip(prior, low + 1e-6, high - 1e-6)
    done = least_squares(
        values, first, jac=slopes, bounds=(low, high), loss="soft_l1", f_scale=SCALE, max_nfev=steps, x_scale=1.0
    )
    return done.x


@lru_cache
def _predictor(name: str) -> Callable[[np.ndarray, np.ndarray, np.ndarray], jax.Array]:
    table = next(table for table in (*TABLES, *ROOFLINES) if table.name == name)
    return jax.jit(lambda theta, work, device: seconds(table, theta, work, device))


def predict(table: KernelTable, theta: np.ndarray, group: TableGroup) -> np.ndarray:
    """Predicted seconds of every row of a group, in pieces of the largest bucket."""
    work, device, size, parts = work_array(group), _device_array(group), BUCKETS[-1], []
    for start in range(0, len(work), size):
        piece = slice(start, start + size)
        count = len(work[piece])
        bucket = next(b for b in BUCKETS if b >= count)
        index = np.concatenate([np.arange(count), np.zeros(bucket - count, dtype=int)])
        parts.append(np.asarray(_predictor(table.name)(theta, work[piece][index], device[piece][index]))[:count])
    return np.concatenate(parts)


@eqx.filter_jit
def _launched(kernel: AbstractKernel, work: jax.Array, peak: jax.Array, bandwidth: jax.Array) -> jax.Array:
    return jax.vmap(lambda part: kernel.time_s(Work(*part), peak, bandwidth))(work)


def unlabelled(kernel: AbstractKernel) -> AbstractKernel:
    """Without the name of what it was fitted on: one program then serves all kernels of a class."""
    chip: Chip | None = getattr(kernel, "chip", None)
    if chip is None:
        return kernel
    return eqx.tree_at(lambda one: one.chip, kernel, dataclasses.replace(chip, label=""))


def in_buckets(rows: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Pieces of rows, repeated up to few lengths so that few shapes are compiled, and how many of each are rows."""
    for start in range(0, len(rows), BUCKETS[-1]):
        piece = rows[start : start + BUCKETS[-1]]
        size = next(bucket for bucket in BUCKETS if bucket >= len(piece))
        yield piece[np.resize(np.arange(len(piece)), size)], len(piece)


def launch_seconds(kernel: AbstractKernel, group: TableGroup) -> np.ndarray:
    """Predicted seconds of every launch of every row [rows, launches] by a kernel model."""
    work, plain = work_array(group), unlabelled(kernel)
    peak, bandwidth = jnp.asarray(group.peak_flops_per_s), jnp.asarray(group.device.peaks.memory)
    result = [
        np.asarray(_launched(plain, jnp.asarray(piece), peak, bandwidth))[:count]
        for piece, count in in_buckets(work.reshape(-1, work.shape[-1]))
    ]
    return np.concatenate(result).reshape(work.shape[:2])


def kernel_seconds(kernel: AbstractKernel, group: TableGroup) -> np.ndarray:
    """Predicted seconds of every row by a kernel model."""
    return launch_seconds(kernel, group).sum(axis=1)
