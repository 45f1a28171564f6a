"""What serving engines add to kernels and all-reduce: four constants each, fitted on served models at a concurrency.

kernel_slowdown multiplies kernels and step_overhead_s is added to every step, both from times between tokens; then
request_overhead_s and burst_ratio from times to the first token (`served`). The first two are held near 1 and 0, so
that a few rows cannot pull them where other devices and models do not follow. Kept in
`conf/calibration/frameworks/serving.yaml`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from scipy.optimize import minimize

from ..calibration.constants import provenance_lines
from ..calibration.publish import publish
from .closed_loop import jobs_of
from .served_rows import BURST, service

__all__ = ["FittedEngine", "calibrate_serving", "fit_engine", "observations", "predicted"]

FIELDS = ("kernel_slowdown", "step_overhead_s", "request_overhead_s", BURST)
FEWEST = 20  # rows of an engine
FARTHEST = 0.5  # log error beyond which a row counts no more: runs with speculation are not marked as such
HELD_STEP_S = 5e-3  # step_overhead_s that costs as much as kernels a factor e slower
SLOWER = 1.25  # at which rows are priced again: times between tokens are linear in kernel_slowdown
HEADER = "# @package frameworks\n# What serving engines add to kernels; fitted by `codesign calibrate`.\n"


class FittedEngine(NamedTuple):
    """Constants of an engine."""

    kernel_slowdown: float = 1.0
    step_overhead_s: float = 0.0
    request_overhead_s: float = 0.0
    burst_ratio: float = 0.0


def observations(directory: Path, progress: Callable[[str], None] = lambda text: None) -> pd.DataFrame:
    """Rows with times as kernels alone make them (`first_s`, `between_s`) and what slower kernels add to them."""
    messages: list[str] = []
    table, jobs = jobs_of(directory, messages)
    for message in messages:
        progress(message)
    if not jobs:
        return pd.DataFrame()
    plain, slow = (
        service(jobs, {engine: {"kernel_slowdown": g} for engine in set(table["backend"])}) for g in (1.0, SLOWER)
    )
    return table.assign(
        first_s=plain.first_s, between_s=plain.between_s, sequences=[job.sequences for job in jobs],
        first_slope=(slow.first_s - plain.first_s) / (SLOWER - 1),
        between_slope=(slow.between_s - plain.between_s) / (SLOWER - 1),
    )  # fmt: skip


def predicted(rows: pd.DataFrame, engine: FittedEngine) -> tuple[np.ndarray, np.ndarray]:
    """Seconds to the first token and between tokens, as `service` has them."""
    slower = engine.kernel_slowdown - 1
    between = (rows["between_s"] + slower * rows["between_slope"] + engine.step_overhead_s).to_numpy(dtype=float)
    own = (rows["first_s"] + slower * rows["first_slope"] + engine.step_overhead_s).to_numpy(dtype=float)
    others = engine.burst_ratio * (rows["sequences"].to_numpy(dtype=float) - 1) / 2
    return engine.request_overhead_s + own + others * np.maximum(own - between, 0.0), between


def fit_engine(rows: pd.DataFrame) -> FittedEngine:
    """Constants of one engine's rows."""
    tpot, ttft = (rows[name].to_numpy(dtype=float) * 1e-3 for name in ("tpot_ms", "ttft_ms"))

    def missed(ours: np.ndarray, theirs: np.ndarray) -> float:
        return float(np.mean(np.minimum(np.abs(np.log(ours / theirs)), FARTHEST)))

    def steps(x: np.ndarray) -> float:
        engine = FittedEngine(float(np.exp(x[0])), abs(float(x[1])) * 1e-3)
        held = x[0] ** 2 + (engine.step_overhead_s / HELD_STEP_S) ** 2
        return missed(predicted(rows, engine)[1], tpot) + held

    def requests(x: np.ndarray) -> float:
        engine = known._replace(request_overhead_s=abs(x[0]) * 1e-2, burst_ratio=abs(x[1]))
        return missed(predicted(rows, engine)[0], ttft)

    x = minimize(steps, np.array([0.02, 0.2]), method="Nelder-Mead", options={"maxfev": 400}).x
    known = FittedEngine(_short(np.exp(x[0])), _short(abs(x[1]) * 1e-3))
    x = minimize(requests, np.array([5.0, 0.1]), method="Nelder-Mead", options={"maxfev": 400}).x
    return known._replace(request_overhead_s=_short(abs(x[0]) * 1e-2), burst_ratio=_short(abs(x[1])))


def _short(value: Any) -> float:
    return float(f"{float(value):.4g}")


def calibrate_serving(directory: Path, out: Path, progress: Callable[[str], None] = lambda text: None) -> list[Path]:
    """Fit every engine of tables below a folder and write `frameworks/serving.yaml` under `out`; the file, if any."""
    rows = observations(directory, progress)
    found: dict[str, dict[str, float]] = {}
    origins: dict[str, Any] = {}
    for name, part in rows.groupby("backend", sort=True) if len(rows) else ():
        if len(part) < FEWEST:
            progress(f"{name}: {len(part)} rows are too few to fit an engine on; allowed: at least {FEWEST}")
            continue
        engine = fit_engine(part)
        first, between = predicted(part, engine)
        errors = [
            100 * float(np.median(np.abs(ours / part[column].to_numpy(dtype=float) * 1e3 - 1)))
            for ours, column in ((between, "tpot_ms"), (first, "ttft_ms"))
        ]
        note = f"{len(part)} rows, median residual {errors[0]:.1f} % between tokens, {errors[1]:.1f} % to the first"
        progress(f"{name}: {note}")
        found[str(name)] = engine._asdict()
        origins[str(name)] = {"source": "aiconfigurator", "at": "serving_aggregated", "kind": "fitted", "note": note}
    if not found:
        return []
    content = HEADER + yaml.safe_dump(found, sort_keys=True) + "".join(provenance_lines(origins))
    return publish({out / "frameworks" / "serving.yaml": content})
