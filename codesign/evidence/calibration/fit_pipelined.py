"""Phases of collectives pipelined inside and between nodes: three constants, fitted on nodes of several devices."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from scipy.optimize import minimize

from ...core.cost import Cost
from ...model.networks.collectives import Pipelined
from ..measurements import tables
from .collectives import OPERATIONS, CollectiveGroup, predict_collective, scale_out_rows
from .gpus import Device, device
from .kernel_tables import read_peaks

PHASES = ("all_reduce", "all_gather", "reduce_scatter")
"""Operations whose phases are pipelined; the blocks of an all-to-all are independent of each other."""
HOP_SCALE_S = 1e-6
START = (6.0, 3.0, 6.0)
Constants = Mapping[str, dict[str, float]]  # of `Measured`, by operation


class TwoLevels(NamedTuple):
    """Rows of devices on several nodes, with the seconds of both phases as fitted alone."""

    operation: np.ndarray
    members: np.ndarray
    domains: np.ndarray
    inside_s: np.ndarray
    outside_s: np.ndarray
    nbytes: np.ndarray
    measured_s: np.ndarray

    def some(self, chosen: np.ndarray) -> "TwoLevels":
        """Subset of the rows."""
        return TwoLevels(*(column[chosen] for column in self))

    def errors(self, constants: np.ndarray) -> np.ndarray:
        """log(predicted / measured) under `constants`, see `pipelined_of`."""
        law, predicted = pipelined_of(constants), np.zeros(len(self.measured_s))
        for operation in np.unique(self.operation):
            mine = self.operation == operation
            inside, outside, members, domains, nbytes = (
                column[mine] for column in (self.inside_s, self.outside_s, self.members, self.domains, self.nbytes)
            )
            phases = [Cost(seconds, 0 * seconds) for seconds in (inside, outside)]
            predicted[mine] = _cost(law, str(operation), *phases, members, domains, nbytes)
        return np.log(predicted / self.measured_s)


def pipelined_of(constants: np.ndarray) -> Pipelined:
    """Collective with these constants: (hop in `HOP_SCALE_S`, power of the norm, hops of a tree's level)."""
    hop, power, level = np.abs(constants)
    return Pipelined(norm=float(max(power, 1.0)), hop_s=float(hop * HOP_SCALE_S), tree_hops=float(max(level, 1.0)))


@functools.partial(eqx.filter_jit)
def _cost(law: Pipelined, operation: str, *of_rows: Any) -> jax.Array:
    """Seconds of rows of one operation."""
    return law.cost(operation, *of_rows).time_s


def two_levels(directory: Path, cluster: str, inside: Constants, outside: Constants) -> TwoLevels | None:
    """Rows of a cluster with more than one device on each of several nodes; None if there are none."""
    folder, parts = read_peaks(directory), []
    for table in tables(directory, "clusters"):
        rows = scale_out_rows(table, [])
        rows = rows[(rows["cluster"] == cluster) & (rows["gpus_per_node"] > 1) & (rows["num_nodes"] > 1)]
        rows = rows[rows["collective"].map(OPERATIONS).isin(PHASES)]
        for (gpu, collective, rate), part in rows.groupby(["gpu", "collective", "rate"], sort=True):
            operation, who = OPERATIONS[str(collective)], device(str(gpu), folder)
            members, domains, nbytes, measured = (
                part[name].to_numpy(dtype=float)
                for name in ("gpus_per_node", "num_nodes", "message_bytes", "latency_us")
            )
            within = _alone(inside[operation], operation, who, who.peaks.scale_up, members, nbytes)
            between = _alone(outside[operation], operation, who, float(rate), domains, nbytes / members)
            names = np.full(len(part), operation)
            parts.append(TwoLevels(names, members, domains, within, between, nbytes, measured * 1e-6))
    return TwoLevels(*(np.concatenate(column) for column in zip(*parts, strict=True))) if parts else None


def _alone(
    constants: dict[str, float], operation: str, who: Device, rate: float, members: np.ndarray, nbytes: np.ndarray
) -> np.ndarray:
    """Seconds of an operation on one level."""
    return predict_collective(constants, CollectiveGroup("", operation, who, "", rate, members, nbytes, nbytes))


def fit_pipelined(rows: TwoLevels) -> np.ndarray:
    """The least mean absolute log error, by Nelder-Mead."""
    return minimize(lambda x: float(np.mean(np.abs(rows.errors(x)))), np.array(START), method="Nelder-Mead").x


def pipelined(rows: TwoLevels) -> tuple[Pipelined, str]:
    """The constants, and in words the median error of these rows, of operations and of sizes of nodes left out."""
    result = fit_pipelined(rows)
    said = [f"{len(rows.members)} rows, median residual {_median(rows.errors(result)):.1f} %"]
    for what, groups in (("operations", rows.operation), ("devices a node", rows.members)):
        apart = [
            rows.some(groups == one).errors(fit_pipelined(rows.some(groups != one)))
            for one in np.unique(groups)
            if (groups != one).any()
        ]
        if apart:
            said.append(f"{_median(np.concatenate(apart)):.1f} % of {what} left out")
    return pipelined_of(result), ", ".join(said)


def _median(errors: np.ndarray) -> float:
    """Per cent."""
    return 100 * float(np.median(np.abs(np.expm1(errors))))
