"""Designs half-way between neighbours on a front: for one plan they are nearly as good as any, and cost one evaluation.

For a plan the logarithms of all metrics are convex in the coordinates, so that a blend of two designs keeps every
constraint that both keep and lies, in every metric, on the straight line between them or below it.

Source: see docs/optimisation.md, section 6.
"""

import numpy as np
from jaxtyping import Float, Int

from ..settings import FRONT


def neighbours(values: Float[np.ndarray, "designs metrics"]) -> tuple[np.ndarray, np.ndarray]:
    """(design, neighbour) of every pair, each both ways: next along a front of two metrics, nearest of three.

    Distances are in shares of each metric's range.
    """
    count = len(values)
    if values.shape[1] == 2:
        order = np.argsort(values[:, 0], kind="stable")
        one, other = order[:-1], order[1:]
    else:
        span = np.ptp(values, axis=0)
        scaled = values / np.where(span > 0, span, 1.0)
        apart = np.abs(scaled[:, None] - scaled[None]).max(axis=2)
        np.fill_diagonal(apart, np.inf)
        near = np.argsort(apart, axis=1, kind="stable")[:, : min(FRONT.nearest, count - 1)]
        one, other = np.repeat(np.arange(count), near.shape[1]), near.ravel()
    pairs = np.unique(np.stack([np.append(one, other), np.append(other, one)], axis=-1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def blends(
    values: Float[np.ndarray, "designs metrics"],
    plan: Int[np.ndarray, " designs"],
    u: Float[np.ndarray, "designs variables"],
) -> tuple[Int[np.ndarray, " blends"], Float[np.ndarray, "blends variables"]]:
    """(plans, coordinates): every design with its own plan, on the way to each neighbour's hardware."""
    one, other = neighbours(values)
    way = np.arange(1, FRONT.blends + 1) / (FRONT.blends + 1)
    mixed = u[one, None] + way[None, :, None] * (u[other] - u[one])[:, None]
    return np.repeat(plan[one], FRONT.blends), mixed.reshape(len(one) * FRONT.blends, u.shape[1])
