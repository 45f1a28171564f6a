"""What serving engines add to kernels and all-reduce: seven constants each, fitted on served models at a concurrency.

kernel_slowdown multiplies kernels and step_overhead_s is added to every step; request_overhead_s, expert_overhead_s,
client_overhead_s, burst_ratio and cohort_prompts are what requests wait for before their first token, and no more
between tokens (`served_rows`). All are fitted at once on both times; the first two are held near 1 and 0, so that a few
rows cannot pull them where other devices and models do not follow. Kept in `conf/calibration/frameworks/serving.yaml`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from scipy.optimize import minimize

from ..calibration.constants import provenance_lines
from ..calibration.publish import publish
from .closed_loop_rows import BANDS, jobs_of
from .served_room import in_room
from .served_rows import WAITING, Service, SteadyTimes, Waiters, parts_of, requests_of, waiting

__all__ = ["FittedEngine", "SeenRows", "calibrate_serving", "fit_engine", "fit_seen", "observations", "predicted"]

FEWEST = 20  # rows of an engine
FARTHEST = (0.7, 0.5)  # log error of a first token, and between tokens, beyond which a row counts no more: runs with
# speculation are not marked as such
HELD_STEP_S = 5e-3  # step_overhead_s that costs as much as kernels a factor e slower
HOLD = 0.3  # of the squared log of kernel_slowdown
SLOWER = 1.25  # at which rows are priced again: times of steps are linear in kernel_slowdown
SCALES = (1.0, 1e-3, 1e-2, 1e-2, 1e-3, 1.0, 1.0)
STARTS = (
    (1.05, 0.2, 5.0, 5.0, 1.0, 0.15, 2.0), (1.05, 0.2, 5.0, 0.0, 1.0, 0.8, 4.0), (1.05, 0.2, 5.0, 10.0, 1.0, 0.15, 6.0),
)  # fmt: skip
EVALUATIONS = 1500
HEADER = "# @package frameworks\n# What serving engines add to kernels; fitted by `codesign calibrate`.\n"


class FittedEngine(NamedTuple):
    """Constants of an engine."""

    kernel_slowdown: float = 1.0
    step_overhead_s: float = 0.0
    request_overhead_s: float = 0.0
    expert_overhead_s: float = 0.0
    client_overhead_s: float = 0.0
    burst_ratio: float = 0.0
    cohort_prompts: float = 1.0


PARTS = tuple(f"{name}_s" for name in ("alone", "between", "decode"))


def observations(directory: Path, progress: Callable[[str], None] = lambda text: None) -> pd.DataFrame:
    """Rows with times as kernels alone make them (`PARTS`), what slower kernels add to them, and what waiting sees."""
    messages: list[str] = []
    table, jobs = jobs_of(directory, messages)
    for message in messages:
        progress(message)
    if not jobs:
        return pd.DataFrame()
    jobs, crowded = in_room(jobs)
    plain, slow = (parts_of(jobs, {engine: {"kernel_slowdown": g} for engine in set(table["backend"])})
                   for g in (1.0, SLOWER))  # fmt: skip
    slopes = {f"{name}_slope": (b - a) / (SLOWER - 1) for name, a, b in zip(PARTS, plain, slow, strict=True)}
    return table.assign(
        **plain._asdict(), **slopes, **{f"of_{k}": v for k, v in requests_of(jobs, crowded)._asdict().items()}
    )


class SeenRows(NamedTuple):
    """Rows as arrays."""

    parts: SteadyTimes
    slopes: SteadyTimes
    requests: Waiters

    def under(self, engine: FittedEngine) -> Service:
        """Seconds under an engine, as `service` has them."""
        slower = engine.kernel_slowdown - 1
        both = zip(self.parts, self.slopes, strict=True)
        steps = SteadyTimes(*(plain + slower * slope + engine.step_overhead_s for plain, slope in both))
        return waiting(steps, self.requests, {name: getattr(engine, name) for name in WAITING})

    def some(self, chosen: np.ndarray) -> "SeenRows":
        """These rows."""
        return SeenRows(*(type(part)(*(np.asarray(column)[chosen] for column in part)) for part in self))


def arrays_of(rows: pd.DataFrame) -> SeenRows:
    """Rows of `observations`."""

    def those(names: Iterable[str]) -> Iterator[np.ndarray]:
        return (rows[name].to_numpy(dtype=float) for name in names)

    requests = Waiters(*those(f"of_{name}" for name in Waiters._fields))
    seen = SeenRows(SteadyTimes(*those(PARTS)), SteadyTimes(*those(f"{name}_slope" for name in PARTS)), requests)
    return seen._replace(requests=requests._replace(varied=requests.varied > 0, experts=requests.experts > 0))


def predicted(rows: pd.DataFrame, engine: FittedEngine) -> Service:
    """Seconds to the first token and between tokens, as `service` has them."""
    return arrays_of(rows).under(engine)


def fit_engine(rows: pd.DataFrame) -> FittedEngine:
    """Constants of one engine's rows."""
    return fit_seen(arrays_of(rows), [rows[name].to_numpy(dtype=float) * 1e-3 for name in ("ttft_ms", "tpot_ms")])


def fit_seen(seen: SeenRows, theirs: Sequence[np.ndarray]) -> FittedEngine:
    """Constants from seconds to the first token and between tokens; not those that no row tells."""
    told = np.array([1.0, 1.0, 1.0, seen.requests.experts.any(), 1.0, 1.0, not seen.requests.varied.all()])

    alike = weights_of(seen.requests.sequences)

    def engine_of(x: np.ndarray) -> FittedEngine:
        slowdown, *others, cohort = np.abs(x) * told * SCALES
        return FittedEngine._make([slowdown, *others, max(float(cohort), 1.0)])

    def missed(x: np.ndarray) -> float:
        engine = engine_of(x)
        held = HOLD * np.log(engine.kernel_slowdown) ** 2 + (engine.step_overhead_s / HELD_STEP_S) ** 2
        return held + sum(
            float(np.average(np.minimum(np.abs(np.log(ours / measured)), farthest), weights=alike))
            for ours, measured, farthest in zip(seen.under(engine), theirs, FARTHEST, strict=True)
        )

    options = {"maxfev": EVALUATIONS, "xatol": 1e-4, "fatol": 1e-6}
    tried = [minimize(missed, np.array(start), method="Nelder-Mead", options=options) for start in STARTS]
    best = engine_of(min(tried, key=lambda one: one.fun).x)
    return FittedEngine(**{name: _short(value) for name, value in best._asdict().items()})


def weights_of(sequences: np.ndarray) -> np.ndarray:
    """Of rows, so that each band of concurrencies that `closed_loop` scores counts alike."""
    band = np.searchsorted([high for high, _ in BANDS], sequences)
    return 1 / np.bincount(band)[band]


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
