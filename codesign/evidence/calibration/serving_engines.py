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

__all__ = [
    "FARTHEST", "FEWEST", "FittedEngine", "SeenRows", "Service", "SlopesOfErrors", "errors_text", "fit_engine",
    "left_out", "slopes_of_errors", "standard_errors",
]  # fmt: skip

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
        identified: mask of the constants that some row tells; the others keep their least.
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


class SlopesOfErrors(NamedTuple):
    """Log errors of rows about fitted constants [rows, 2], their slopes [constants, rows, 2], and what a row counts."""

    here: np.ndarray
    slopes: np.ndarray
    counts: np.ndarray

    def curve(self, some: np.ndarray, held: np.ndarray) -> np.ndarray:
        """Curvature of the sum of errors of some rows."""
        slopes = self.slopes[:, some]
        return np.einsum("arq,brq,rq->ab", slopes, slopes, self.counts[some]) + held

    def pushed(self, some: np.ndarray) -> np.ndarray:
        """Slope of that sum."""
        return np.einsum("arq,rq,rq->a", self.slopes[:, some], self.here[some], self.counts[some])


def slopes_of_errors(rows: SeenRows, engine: FittedEngine) -> SlopesOfErrors:
    """Errors to first order about constants, counted as least absolute errors have it."""
    at = np.array(engine)
    here = rows.missed(at)
    steps = 1e-3 * np.maximum(at, np.array(SCALES) * 0.1)
    slopes = np.stack(
        [(rows.missed(at + step * unit) - here) / step for step, unit in zip(steps, np.eye(len(at)), strict=True)]
    )
    return SlopesOfErrors(here, slopes, (rows.weights[:, None] / np.maximum(np.abs(here), 0.02)) * (np.abs(here) < 1))


def _holding(at: np.ndarray) -> np.ndarray:
    """Curvature of what is held."""
    return np.diag([HOLD / at[0] ** 2, 1 / HELD_STEP_S**2, *[0.0] * (len(at) - 2)])


def _ridge(near: SlopesOfErrors, at: np.ndarray) -> np.ndarray:
    curvature = near.curve(np.ones(len(near.here), dtype=bool), _holding(at))
    return 1e-3 * np.diag(np.diag(curvature)) + np.diag(1e-12 / np.array(SCALES) ** 2)


def left_out(rows: SeenRows, engine: FittedEngine, groups: np.ndarray, near: SlopesOfErrors | None = None) -> Service:
    """Seconds of each row by constants fitted without the rows of its group, to first order about the fitted ones.

    Args:
        rows: of the engine.
        engine: constants fitted on all of them.
        groups: of each row.
        near: `slopes_of_errors` of these rows and constants, where they were taken before.
    """
    at, near = np.array(engine), near or slopes_of_errors(rows, engine)
    pull = np.array([HOLD * np.log(at[0]) / at[0], at[1] / HELD_STEP_S**2, *[0.0] * (len(at) - 2)])
    away, ridge = np.zeros_like(near.here), _ridge(near, at)
    for group in np.unique(groups):
        others = groups != group
        moved = -np.linalg.solve(near.curve(others, _holding(at)) + ridge, near.pushed(others) + pull)
        moved = np.clip(at + moved, LOWEST, HIGHEST) - at
        away[~others] = np.einsum("a,arq->rq", moved, near.slopes[:, ~others])
    log = (near.here + away) * np.array(FARTHEST)
    return Service(rows.first_s * np.exp(log[:, 0]), rows.between_s * np.exp(log[:, 1]))


def standard_errors(rows: SeenRows, engine: FittedEngine, groups: np.ndarray) -> dict[str, float]:
    """Constant -> its standard error, as a share of it: from the Jacobian, rows of one group erring together.

    Args:
        rows: of the engine.
        engine: constants fitted on them.
        groups: of each row.
    """
    at, near = np.array(engine), slopes_of_errors(rows, engine)
    usual = np.median(np.abs(near.here), axis=0)  # below it errors count by their squares, beyond by their size
    weights = rows.weights[:, None] / usual
    inner = near._replace(counts=weights * (np.abs(near.here) < usual))
    beyond = near._replace(here=np.clip(near.here, -usual, usual), counts=weights * np.ones_like(near.here))
    pushed = np.stack([beyond.pushed(groups == group) for group in np.unique(groups)])
    curvature = inner.curve(np.ones(len(groups), dtype=bool), _holding(at))
    inverse = np.linalg.inv(curvature + np.diag(1e-12 / np.array(SCALES) ** 2))
    spread = np.sqrt(np.diag(inverse @ pushed.T @ pushed @ inverse))
    spread[~near.slopes.any(axis=(1, 2))] = np.inf  # nothing here depends on it
    return {name: float(one / value) for name, one, value in zip(engine._fields, spread, at, strict=True) if value > 0}


def errors_text(errors: dict[str, float]) -> str:
    """Standard errors in words; a constant whose error is as large as itself is not determined."""
    parts = [f"{name} {'not determined' if one > 1 else f'{100 * one:.0f} %'}" for name, one in errors.items()]
    return "standard errors, rows of one device and model together: " + ", ".join(parts)
