"""Rows of engines at a concurrency as the fit of their constants takes them: `calibration.serving_engines`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from ...core.fields import get_path, replace
from ...model.scenario import Scenario
from ..calibration.constants import provenance_lines, publish
from ..calibration.serving_engines import (
    FARTHEST,
    FEWEST,
    FittedEngine,
    SeenRows,
    errors_text,
    fit_engine,
    standard_errors,
)
from .row_overrides import PricedRun, metrics_of, predicted, scenarios_of
from .served_rows import BANDS, TIMES, Job, in_room, jobs_of, run_of
from .vectorise import batches, grouped

__all__ = ["calibrate_serving", "handover_s", "identified_by", "seen", "weights_of"]

OF_CLIENTS = ("burst_ratio", "cohort_prompts", "client_overhead_s")
"""Constants of an engine that the clients of a closed loop see."""
HEADER = "# @package frameworks\n# What serving engines add to kernels; fitted by `codesign calibrate`.\n"


def _with_constants(scenarios: Scenario, engine: FittedEngine) -> Scenario:
    """Stacked scenarios with these constants in every row."""
    paths = {name: f"workload.{'clients.' if name in OF_CLIENTS else ''}{name}" for name in engine._fields}
    values = {path: np.full_like(get_path(scenarios, path), getattr(engine, name)) for name, path in paths.items()}
    return replace(scenarios, values)


def seen(jobs: Sequence[Job], crowded: np.ndarray, first_s: np.ndarray, between_s: np.ndarray) -> SeenRows:
    """Rows of one engine.

    Raises:
        ConfigError: a device lacks a number format.
    """
    weights = weights_of(np.array([job.sequences for job in jobs]))
    runs = [run_of(job, float(queued)) for job, queued in zip(jobs, crowded, strict=True)]
    prepared = batches(scenarios_of(runs))

    def price(engine: FittedEngine) -> tuple[np.ndarray, np.ndarray]:
        first, between = grouped(prepared, metrics_of(*TIMES), lambda stacked: _with_constants(stacked, engine))
        return first, between

    return SeenRows(price, first_s, between_s, weights / weights.sum())


def weights_of(sequences: np.ndarray) -> np.ndarray:
    """Weights of rows, so that each band of concurrencies that `served_suites` scores counts alike."""
    band = np.searchsorted([high for high, _ in BANDS], sequences)
    return 1 / np.bincount(band)[band]


def identified_by(jobs: Sequence[Job]) -> list[bool]:
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
    pools: tuple[pd.DataFrame, list[PricedRun]] | None = None,
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
        engine = fit_engine(rows, identified_by(few))
        ours = rows.under(engine)
        errors = [
            100 * float(np.median(np.abs(a / b - 1)))
            for a, b in ((ours.between_s, rows.between_s), (ours.first_s, rows.first_s))
        ]
        note = f"{len(engine)} constants on {len(few)} rows, median residual {errors[0]:.1f} % between tokens,"
        note += f" {errors[1]:.1f} % to the first; "
        note += errors_text(standard_errors(rows, engine, (table["gpu"] + " " + table["model"]).to_numpy()[mine]))
        progress(f"{name}: {note}")
        result[name] = engine._asdict()
        apart = [(row, run) for row, run in zip(pools[0].itertuples(), pools[1], strict=True)
                 if row.backend == name] if pools else []  # fmt: skip
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
