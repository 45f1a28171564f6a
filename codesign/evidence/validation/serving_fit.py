"""Overhead of serving engines over kernels and all-reduce: eight constants each, of served models at a concurrency.

Least squares in logarithms over the model itself (`served_rows.timed`): every trial prices all rows of an engine anew.
kernel_slowdown and step_overhead_s are held near 1 and 0, so that a few rows cannot pull them where other devices and
models do not follow. Errors beyond `FARTHEST` count little: runs with speculation are not marked as such. Kept in
`conf/calibration/frameworks/serving.yaml`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
import pandas as pd
import yaml
from scipy.optimize import least_squares

from ...model.scenario import Scenario
from ..calibration.constants import provenance_lines, publish
from .row_overrides import PricedRun, predicted, scenarios_of
from .served_rows import BANDS, Job, Service, in_room, jobs_of, run_of, timed
from .vectorise import Batch, batches, grouped

__all__ = [
    "FittedEngine", "SeenRows", "around", "calibrate_serving", "fit_engine", "left_out", "standard_errors",
    "weights_of",
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
OF_CLIENTS = ("burst_ratio", "cohort_prompts", "client_overhead_s")
"""Constants of an engine that the clients of a closed loop see."""
HEADER = "# @package frameworks\n# What serving engines add to kernels; fitted by `codesign calibrate`.\n"


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


class SeenRows(NamedTuple):
    """Rows of one engine: stacked scenarios, measured seconds, and weights that sum to one."""

    scenarios: Sequence[Batch]
    first_s: np.ndarray
    between_s: np.ndarray
    weights: np.ndarray

    def under(self, engine: Sequence[float]) -> Service:
        """Seconds that the model says with these constants."""

        def with_constants(scenarios: Scenario) -> Scenario:
            return _with_constants(scenarios, FittedEngine(*engine))

        first, between = grouped(self.scenarios, timed, with_constants)
        return Service(first, between)

    def missed(self, engine: Sequence[float]) -> np.ndarray:
        """Log errors of both times, each over what counts little, [rows, 2]."""
        result = self.under(engine)
        return np.stack([np.log(result.first_s / self.first_s) / FARTHEST[0],
                         np.log(result.between_s / self.between_s) / FARTHEST[1]], axis=1)  # fmt: skip


def _with_constants(scenarios: Scenario, engine: FittedEngine) -> Scenario:
    """Stacked scenarios with these constants in every row."""
    for name, value in engine._asdict().items():
        inside = name in OF_CLIENTS

        def place(one: Scenario, name: str = name, inside: bool = inside) -> Any:
            work: Any = one.workload
            return getattr(work.clients if inside else work, name)

        scenarios = eqx.tree_at(place, scenarios, np.full_like(place(scenarios), value))
    return scenarios


def seen(jobs: Sequence[Job], crowded: np.ndarray, first_s: np.ndarray, between_s: np.ndarray) -> SeenRows:
    """Rows of one engine.

    Raises:
        ConfigError: a device lacks a number format.
    """
    weights = weights_of(np.array([job.sequences for job in jobs]))
    runs = [run_of(job, float(queued)) for job, queued in zip(jobs, crowded, strict=True)]
    return SeenRows(batches(scenarios_of(runs)), first_s, between_s, weights / weights.sum())


def _held(engine: np.ndarray) -> np.ndarray:
    """Residuals that hold the first two constants near 1 and 0."""
    return np.array([HOLD**0.5 * np.log(engine[0]), engine[1] / HELD_STEP_S])


def _residuals(missed: np.ndarray, weights: np.ndarray, engine: np.ndarray) -> np.ndarray:
    """Residuals of all rows, such that their squares are sums of errors that flatten out, and of what is held."""
    flat = np.sign(missed) * np.sqrt(np.log1p(np.abs(missed) / 0.1) * 0.1)
    return np.concatenate([(flat * np.sqrt(weights)[:, None]).ravel(), _held(engine)])


def fit_engine(rows: SeenRows, told: Sequence[bool] = (True,) * len(SCALES)) -> FittedEngine:
    """Constants of one engine's rows.

    Args:
        rows: of the engine.
        told: which constants some row tells; the others keep their least.
    """
    free = np.flatnonzero(told)

    def whole(x: np.ndarray) -> np.ndarray:
        engine = np.array(LOWEST)
        engine[0] = 1.0
        engine[free] = x * np.array(SCALES)[free]
        return engine

    def residuals(x: np.ndarray) -> np.ndarray:
        engine = whole(x)
        return _residuals(rows.missed(engine), rows.weights, engine)

    low, high = (np.array(edge)[free] / np.array(SCALES)[free] for edge in (LOWEST, HIGHEST))
    tried = [
        least_squares(
            residuals, np.array(start)[free] / np.array(SCALES)[free], bounds=(low, high), diff_step=1e-3,
            max_nfev=EVALUATIONS,
        )
        for start in STARTS
    ]  # fmt: skip
    best = whole(min(tried, key=lambda one: one.cost).x)
    return FittedEngine(*(float(f"{value:.4g}") for value in best))


class Around(NamedTuple):
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


def around(rows: SeenRows, engine: FittedEngine) -> Around:
    """Errors to first order about constants, counted as least absolute errors have it."""
    at = np.array(engine)
    here = rows.missed(at)
    steps = 1e-3 * np.maximum(at, np.array(SCALES) * 0.1)
    slopes = np.stack(
        [(rows.missed(at + step * unit) - here) / step for step, unit in zip(steps, np.eye(len(at)), strict=True)]
    )
    return Around(here, slopes, (rows.weights[:, None] / np.maximum(np.abs(here), 0.02)) * (np.abs(here) < 1))


def _holding(at: np.ndarray) -> np.ndarray:
    """Curvature of what is held."""
    return np.diag([HOLD / at[0] ** 2, 1 / HELD_STEP_S**2, *[0.0] * (len(at) - 2)])


def _ridge(near: Around, at: np.ndarray) -> np.ndarray:
    whole = near.curve(np.ones(len(near.here), dtype=bool), _holding(at))
    return 1e-3 * np.diag(np.diag(whole)) + np.diag(1e-12 / np.array(SCALES) ** 2)


def left_out(rows: SeenRows, engine: FittedEngine, groups: np.ndarray, near: Around | None = None) -> Service:
    """Seconds of each row by constants fitted without the rows of its group, to first order about the fitted ones.

    Args:
        rows: of the engine.
        engine: constants fitted on all of them.
        groups: of each row.
        near: `around`, where it is known.
    """
    at, near = np.array(engine), near or around(rows, engine)
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
    at, near = np.array(engine), around(rows, engine)
    usual = np.median(np.abs(near.here), axis=0)  # below it errors count by their squares, beyond by their size
    weights = rows.weights[:, None] / usual
    inner = near._replace(counts=weights * (np.abs(near.here) < usual))
    beyond = near._replace(here=np.clip(near.here, -usual, usual), counts=weights * np.ones_like(near.here))
    pushed = np.stack([beyond.pushed(groups == group) for group in np.unique(groups)])
    whole = inner.curve(np.ones(len(groups), dtype=bool), _holding(at))
    inverse = np.linalg.inv(whole + np.diag(1e-12 / np.array(SCALES) ** 2))
    spread = np.sqrt(np.diag(inverse @ pushed.T @ pushed @ inverse))
    spread[~near.slopes.any(axis=(1, 2))] = np.inf  # nothing here depends on it
    return {name: float(one / value) for name, one, value in zip(engine._fields, spread, at, strict=True) if value > 0}


def said_of(errors: dict[str, float]) -> str:
    """Standard errors in words; a constant whose error is as large as itself is not determined."""
    parts = [f"{name} {'not determined' if one > 1 else f'{100 * one:.0f} %'}" for name, one in errors.items()]
    return "standard errors, rows of one device and model together: " + ", ".join(parts)


def weights_of(sequences: np.ndarray) -> np.ndarray:
    """Weights of rows, so that each band of concurrencies that `served_suites` scores counts alike."""
    band = np.searchsorted([high for high, _ in BANDS], sequences)
    return 1 / np.bincount(band)[band]


def told_by(jobs: Sequence[Job]) -> list[bool]:
    """Mask of the constants that these jobs identify: expert layers need routed experts, cohorts equal lengths."""
    experts = any(hasattr(job.model.feed_forward, "experts") for job in jobs)
    return [True, True, True, True, experts, True, True, not all(job.varied for job in jobs)]


def handover_s(runs: Sequence[PricedRun], engine: FittedEngine, first_s: np.ndarray, sequences: np.ndarray) -> float:
    """Seconds between two pools that make the absolute log errors of their first tokens least, to three digits.

    Args:
        runs: rows of one engine with two pools.
        engine: its constants.
        first_s: as measured.
        sequences: clients of each row.
    """
    inside = {name: "clients." if name in OF_CLIENTS else "" for name in engine._fields}
    at = {f"workload.{inside[name]}{name}": value for name, value in engine._asdict().items()}
    with_them = [run._replace(numbers=run.numbers | at | {"workload.clients.handover_s": 0.0}) for run in runs]
    said, weights = predicted(with_them, ["ttft_s"])["ttft_s"], weights_of(sequences)
    tried = np.arange(0.0, 0.5, 1e-3)
    missed = np.abs(np.log((said + tried[:, None]) / first_s))
    return float(tried[np.argmin((weights * np.minimum(missed, FARTHEST[0])).sum(axis=1))])


def calibrate_serving(
    directory: Path,
    out: Path,
    progress: Callable[[str], None] = lambda text: None,
    pools: Sequence[tuple[pd.DataFrame, list[PricedRun]]] = (),
) -> list[Path]:
    """Fit every engine of tables below a folder and write `frameworks/serving.yaml` under `out`; the file, if any.

    Args:
        directory: of the tables.
        out: folder of constants.
        progress: is told what was fitted.
        pools: rows of two pools and their overrides, which tell `handover_s` of their engines.
    """
    messages: list[str] = []
    table, jobs = jobs_of(directory, messages)
    for message in messages:
        progress(message)
    jobs, crowded = in_room(jobs) if jobs else ([], np.zeros(0))
    result: dict[str, dict[str, float]] = {}
    origins: dict[str, Any] = {}
    for name in sorted({job.engine for job in jobs} - {""}):
        mine = np.array([job.engine == name for job in jobs])
        if mine.sum() < FEWEST:
            progress(f"{name}: {mine.sum()} rows are too few to fit an engine on; allowed: at least {FEWEST}")
            continue
        few = [job for job in jobs if job.engine == name]
        theirs = (table[column].to_numpy(dtype=float)[mine] * 1e-3 for column in ("ttft_ms", "tpot_ms"))
        rows = seen(few, crowded[mine], *theirs)
        engine = fit_engine(rows, told_by(few))
        ours = rows.under(engine)
        errors = [
            100 * float(np.median(np.abs(a / b - 1)))
            for a, b in ((ours.between_s, rows.between_s), (ours.first_s, rows.first_s))
        ]
        note = f"{len(engine)} constants on {len(few)} rows, median residual {errors[0]:.1f} % between tokens,"
        note += f" {errors[1]:.1f} % to the first; "
        note += said_of(standard_errors(rows, engine, (table["gpu"] + " " + table["model"]).to_numpy()[mine]))
        progress(f"{name}: {note}")
        result[name] = engine._asdict()
        apart = [(row, run) for table_of, runs in pools for row, run in zip(table_of.itertuples(), runs, strict=True)
                 if row.backend == name]  # fmt: skip
        if apart:
            first = np.array([row.ttft_ms for row, _ in apart]) * 1e-3
            clients = np.array([row.concurrency for row, _ in apart])
            result[name]["handover_s"] = handover_s([run for _, run in apart], engine, first, clients)
            note += f"; handover_s on {len(apart)} rows of two pools"
            progress(f"{name}: handover_s {result[name]['handover_s']:.3f} on {len(apart)} rows of two pools")
        origins[name] = {"source": "aiconfigurator", "at": "serving_aggregated", "kind": "fitted", "note": note}
    if not result:
        return []
    content = HEADER + yaml.safe_dump(result, sort_keys=True) + "".join(provenance_lines(origins))
    return publish({out / "frameworks" / "serving.yaml": content})
