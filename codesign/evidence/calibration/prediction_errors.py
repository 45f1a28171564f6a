"""Errors of predictions against measurements."""

from typing import NamedTuple

import numpy as np
from scipy.stats import spearmanr


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
