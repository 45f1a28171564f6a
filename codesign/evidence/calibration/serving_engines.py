"""Overhead of serving engines over kernels and all-reduce: eight constants each, of served models at a concurrency.

Least squares in logarithms over `evaluate` itself: every trial prices all rows of an engine anew. kernel_slowdown and
step_overhead_s are held near 1 and 0, so that a few rows cannot pull them where other devices and models do not follow.
Errors beyond `FARTHEST` count little: runs with speculation are not marked as such. Kept in
`conf/calibration/frameworks/serving.yaml`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

__all__ = ["FEWEST", "FittedEngine", "SeenRows", "Service", "fit_engine", "left_out"]

FEWEST = 20  # rows of an engine
FARTHEST = (0.7, 0.5)  # log error of a first token, and between tokens, beyond which a row counts little
HELD_STEP_S = 5e-3  # step_overhead_s that costs as much as kernels a factor e slower
HOLD = 0.3  # of the squared log of kernel_slowdown
SCALES = (1.0, 1e-3, 1e-2, 1e-6, 1e-6, 1e-3, 0.1, 1.0)
LOWEST = (0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
HIGHEST = (2.0, 0.1, 1.0, 2e-5, 1e-4, 0.1, 1.0, 1e3)
STARTS = ((1.05, 2e-4, 0.02, 5e-6, 2e-6, 1e-3, 0.15, 5.0), (1.05, 1e-4, 0.03, 1e-6, 1e-5, 1e-3, 0.1, 5.0))
"""Prompts that wait for the host and prompts that do not are minima of their own."""
EVALUATIONS = 15


class Service(NamedTuple):
    """Seconds of jobs to the first token and between tokens."""

    first_s: np.ndarray
    between_s: np.ndarray


class FittedEngine(NamedTuple):
    """Constants of an engine."""

    kernel_slowdown: float = 1.0
    step_overhead_s: float = 0.0
    request_overhead_s: float = 0.0
    prompt_token_s: float = 0.0
    expert_launch_s: float = 0.0
    client_overhead_s: float = 0.0
    burst_ratio: float = 0.0
    cohort_prompts: float = 1.0


Price = Callable[[FittedEngine], tuple[np.ndarray, np.ndarray]]
"""Seconds of rows to the first token, and between tokens, with constants of their engine."""


class SeenRows(NamedTuple):
    """Rows of one engine: how they are priced, measured seconds, and weights that sum to one."""

    price: Price
    first_s: np.ndarray
    between_s: np.ndarray
    weights: np.ndarray

    def under(self, engine: Sequence[float]) -> Service:
        """Seconds that the model says with these constants."""
        return Service(*self.price(FittedEngine(*engine)))

    def missed(self, engine: Sequence[float]) -> np.ndarray:
        """Log errors of both times, each over what counts little, [rows, 2]."""
        result = self.under(engine)
        return np.stack([np.log(result.first_s / self.first_s) / FARTHEST[0],
                         np.log(result.between_s / self.between_s) / FARTHEST[1]], axis=1)  # fmt: skip


def _held(engine: np.ndarray) -> np.ndarray:
    """Residuals that hold the first two constants near 1 and 0."""
    return np.array([HOLD**0.5 * np.log(engine[0]), engine[1] / HELD_STEP_S])


def _residuals(missed: np.ndarray, weights: np.ndarray, engine: np.ndarray) -> np.ndarray:
    """Residuals of all rows, such that their squares are sums of errors that flatten out, and of what is held."""
    flat = np.sign(missed) * np.sqrt(np.log1p(np.abs(missed) / 0.1) * 0.1)
    return np.concatenate([(flat * np.sqrt(weights)[:, None]).ravel(), _held(engine)])


def fit_engine(rows: SeenRows, identified: Sequence[bool] = (True,) * len(SCALES)) -> FittedEngine:
    """Constants of one engine's rows.

    Args:
        rows: of the engine.
        told: which constants some row tells; the others keep their least.
    """
    free = np.flatnonzero(identified)

    def full(x: np.ndarray) -> np.ndarray:
        engine = np.array(LOWEST)
        engine[0] = 1.0
        engine[free] = x * np.array(SCALES)[free]
        return engine

    def residuals(x: np.ndarray) -> np.ndarray:
        engine = full(x)
        return _residuals(rows.missed(engine), rows.weights, engine)

    low, high = (np.array(edge)[free] / np.array(SCALES)[free] for edge in (LOWEST, HIGHEST))
    tried = [
        least_squares(
            residuals, np.array(start)[free] / np.array(SCALES)[free], bounds=(low, high), diff_step=1e-3,
            max_nfev=EVALUATIONS,
        )
        for start in STARTS
    ]  # fmt: skip
    best = full(min(tried, key=lambda one: one.cost).x)
    return FittedEngine(*(float(f"{value:.4g}") for value in best))


def left_out(rows: SeenRows, engine: FittedEngine, groups: np.ndarray) -> Service:
    """Seconds of each row by constants fitted without the rows of its group, to first order about the fitted ones.

    Args:
        rows: of the engine.
        engine: constants fitted on all of them.
        groups: of each row.
    """
    at, weights = np.array(engine), rows.weights
    here = rows.missed(at)
    steps = 1e-3 * np.maximum(at, np.array(SCALES) * 0.1)
    slopes = np.stack(
        [(rows.missed(at + step * unit) - here) / step for step, unit in zip(steps, np.eye(len(at)), strict=True)]
    )
    held = np.diag([HOLD / at[0] ** 2, 1 / HELD_STEP_S**2, *[0.0] * (len(at) - 2)])
    pull = np.array([HOLD * np.log(at[0]) / at[0], at[1] / HELD_STEP_S**2, *[0.0] * (len(at) - 2)])
    away = np.zeros_like(here)
    counts = (weights[:, None] / np.maximum(np.abs(here), 0.02)) * (
        np.abs(here) < 1
    )  # as least absolute errors have it
    curvature = np.einsum("arq,brq,rq->ab", slopes, slopes, counts) + held
    ridge = 1e-3 * np.diag(np.diag(curvature)) + np.diag(1e-12 / np.array(SCALES) ** 2)
    for group in np.unique(groups):
        others = groups != group
        some = counts[others]
        curve = np.einsum("arq,brq,rq->ab", slopes[:, others], slopes[:, others], some) + held
        pushed = np.einsum("arq,rq,rq->a", slopes[:, others], here[others], some) + pull
        moved = -np.linalg.solve(curve + ridge, pushed)
        moved = np.clip(at + moved, LOWEST, HIGHEST) - at
        away[~others] = np.einsum("a,arq->rq", moved, slopes[:, ~others])
    log = (here + away) * np.array(FARTHEST)
    return Service(rows.first_s * np.exp(log[:, 0]), rows.between_s * np.exp(log[:, 1]))
