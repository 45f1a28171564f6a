"""What training frameworks add to kernels: a few constants for each source of measured steps.

kernel_slowdown multiplies arithmetic, launch_s is the host's time to issue one kernel, step_overhead_s is added to
every step. They are fitted on one table and kept in `conf/calibration/training.yaml` with their residual; judged on
another source, they say how well a framework's overhead carries over.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import yaml
from scipy.optimize import minimize

from ..config.groups import conf_dir
from ..fields import replace
from ..scenario import Cluster, Scenario
from .training import TABLES, prepare

SCALES = {"kernel_slowdown": 1.0, "launch_s": 1e-5, "step_overhead_s": 1e-2}
CONSTANTS = {  # which constants a source can tell: large models hide the host's time
    "korthikanti2022_recompute.csv": ("kernel_slowdown",),
    "megatron_sc21.csv": ("kernel_slowdown",),
    "vtrain_single_node.csv": ("kernel_slowdown", "launch_s", "step_overhead_s"),
    "mosaicml_llm_foundry.csv": ("kernel_slowdown", "launch_s"),
    "nemo_megatron_bridge.csv": ("kernel_slowdown",),
}
HEADER = "# What training frameworks add to kernels, one entry a source; fitted by `codesign calibrate`.\n"


def stored() -> dict[str, dict[str, Any]]:
    """Constants per table, as last fitted."""
    path = conf_dir() / "calibration" / "frameworks" / "training.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}


def adjustment(constants: dict[str, float]) -> Callable[[Scenario], Scenario]:
    """A change of every scenario to these framework constants."""

    def change(batch: Scenario) -> Scenario:
        like = jnp.ones_like(batch.plan.tp)
        return replace(batch, {f"workload.{n}": value * like for n, value in constants.items() if n in SCALES})

    return change


def judged(frame: Any) -> Any:
    """Rows a fit may use: the comparison with another framework inside a table is not its own."""
    return frame[frame["scheme"].str.contains("PTD")] if "scheme" in frame else frame


def fit_table(path: Path, clusters: Callable[[str], Cluster], progress: Callable[[str], None]) -> dict[str, Any]:
    """Fit a table's constants: least mean absolute log error, by Nelder-Mead in the constants' own scales."""
    names = CONSTANTS[path.name]
    sample = Sample(path, clusters)

    def loss(scaled: np.ndarray) -> float:
        constants = {name: abs(x) * SCALES[name] for name, x in zip(names, scaled, strict=True)}
        return float(np.mean(np.abs(np.log(sample.ratios(constants)))))

    progress(f"{path.name}: {', '.join(names)} on {sample.count} rows")
    start = np.array([1.05 if name == "kernel_slowdown" else 1.0 for name in names])
    found = minimize(loss, start, method="Nelder-Mead", options={"maxfev": 40 * len(names), "xatol": 1e-3})
    constants = {n: float(f"{abs(x) * SCALES[n]:.4g}") for n, x in zip(names, found.x, strict=True)}
    error = np.abs(sample.ratios(constants) - 1)
    return constants | {"kind": "fitted", "rows": sample.count, "median_error": float(f"{np.median(error):.4g}")}


class Sample:
    """A table's rows, at most 200 of them evenly spread, priced again and again with other constants."""

    def __init__(self, path: Path, clusters: Callable[[str], Cluster]) -> None:
        """Read once."""
        self.prepared = prepare(path, clusters, most=200)
        self.count = len(judged(self.prepared.predict().frame))

    def ratios(self, constants: dict[str, float]) -> np.ndarray:
        """Predicted over measured."""
        frame = judged(self.prepared.predict(adjustment(constants)).frame)
        return (frame["predicted_s"] / frame["measured_s"]).to_numpy()


def calibrate_training(
    directory: Path, out: Path, clusters: Callable[[str], Cluster], progress: Callable[[str], None] = lambda text: None
) -> list[Path]:
    """Fit every training table below a folder and write `frameworks/training.yaml` under `out`; the file, if any."""
    found = {}
    for path in sorted(directory.rglob("*.csv")):
        if path.name in TABLES and path.name in CONSTANTS:
            found[path.name] = fit_table(path, clusters, progress)
    if not found:
        return []
    target = out / "frameworks" / "training.yaml"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(HEADER + yaml.safe_dump(found, sort_keys=True), encoding="utf-8")
    return [target]
