"""What training frameworks add to kernels: a few constants for each source of measured steps.

kernel_slowdown multiplies arithmetic, launch_s is the host's time to issue one kernel, step_overhead_s is added to
every step. They are fitted on one table and kept in `conf/calibration/frameworks/training.yaml` with their residual;
judged on another source, they say how well a framework's overhead carries over.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import yaml
from scipy.optimize import minimize

from ..calibration.constants import provenance_lines
from ..calibration.publish import publish
from ..config.groups import conf_dir
from ..errors import DataError
from ..fields import replace
from ..measurements import FoundTable, reader, tables
from ..plain_yaml import read_yaml
from ..scenario import Cluster, Scenario
from .published_training import prepare

__all__ = ["Sample", "adjustment", "calibrate_training", "fit_table", "judged", "stored"]

SCALES = {"kernel_slowdown": 1.0, "launch_s": 1e-5, "step_overhead_s": 1e-2}
LEAST = {"kernel_slowdown": 0.1}  # of a workload
CONSTANTS = {  # kind of table -> which constants it can tell: large models hide the host's time
    "recompute_steps": ("kernel_slowdown",),
    "achieved_rates": ("kernel_slowdown",),
    "layout_steps": ("kernel_slowdown", "launch_s", "step_overhead_s"),
    "sharded_rates": ("kernel_slowdown", "launch_s"),
    "named_model_rates": ("kernel_slowdown",),
}
FITTED_ON = {  # kind of table -> the source whose constants ship with the package
    "recompute_steps": "korthikanti2022_recompute",
    "achieved_rates": "megatron_sc21",
    "layout_steps": "vtrain_single_node",
    "sharded_rates": "mosaicml_llm_foundry",
    "named_model_rates": "nemo_megatron_bridge",
}
SOURCES = {  # source -> references.bib; of any other the file's name is its own reference
    "korthikanti2022_recompute": "korthikanti2022",
    "megatron_sc21": "narayanan2021",
    "vtrain_single_node": "bang2024vtrain",
    "mosaicml_llm_foundry": "mosaicml_llm_foundry",
    "nemo_megatron_bridge": "nvidia_megatron_bridge",
}
WORDS = "letters, digits, . _ + -"
HEADER = "# @package frameworks\n"
TITLE = "# What training frameworks add to kernels, one entry a source; fitted by `codesign calibrate`.\n"


def stored() -> dict[str, dict[str, float]]:
    """Constants per source, as last fitted."""
    path = conf_dir() / "calibration" / "frameworks" / "training.yaml"
    data = read_yaml(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {stem: constants for stem, constants in data.items() if stem != "provenance"}


def adjustment(constants: dict[str, float]) -> Callable[[Scenario], Scenario]:
    """A change of every scenario to these framework constants."""

    def change(batch: Scenario) -> Scenario:
        like = jnp.ones_like(batch.plan.tp)
        return replace(batch, {f"workload.{n}": value * like for n, value in constants.items() if n in SCALES})

    return change


def judged(frame: Any) -> Any:
    """Rows a fit may use: the comparison with another framework inside a table is not its own."""
    return frame[frame["scheme"].str.contains("PTD")] if "scheme" in frame else frame


def fit_table(
    table: FoundTable, clusters: Callable[[str], Cluster], progress: Callable[[str], None]
) -> tuple[dict[str, float], dict[str, str]]:
    """A table's constants and their origin: least mean absolute log error, by Nelder-Mead in their own scales."""
    names = CONSTANTS[table.schema.name]
    sample = Sample(table, clusters, progress)

    def loss(scaled: np.ndarray) -> float:
        constants = dict(zip(names, map(_legal, names, scaled), strict=True))
        return float(np.mean(np.abs(np.log(sample.ratios(constants)))))

    progress(f"{table.shown}: {', '.join(names)} on {sample.count} rows")
    start = np.array([1.05 if name == "kernel_slowdown" else 1.0 for name in names])
    found = minimize(loss, start, method="Nelder-Mead", options={"maxfev": 40 * len(names), "xatol": 1e-3})
    constants = {n: float(f"{_legal(n, x):.4g}") for n, x in zip(names, found.x, strict=True)}
    error = float(np.median(np.abs(sample.ratios(constants) - 1)))
    stem = table.path.stem
    note = f"{sample.count} rows, median residual {100 * error:.1f} %"
    return constants, {"source": SOURCES.get(stem, table.path.name), "at": stem, "kind": "fitted", "note": note}


def _legal(name: str, scaled: float) -> float:
    """A constant from its own scale; however the rows lie, it stays what a workload may have."""
    return max(abs(float(scaled)) * SCALES[name], LEAST.get(name, 0.0))


class Sample:
    """A table's rows, at most 200 of them evenly spread, priced again and again with other constants."""

    def __init__(self, table: FoundTable, clusters: Callable[[str], Cluster], progress: Callable[[str], None]) -> None:
        """Read once; what is set aside is told.

        Raises:
            DataError: no row can be priced.
        """
        messages: list[str] = []
        self.prepared = prepare(table, clusters, messages, most=200)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in self.prepared.refused.items()]
        for message in messages:
            progress(message)
        self.count = len(judged(self.prepared.predict().frame))
        if not self.count:
            raise DataError(f"{table.shown}: no row can be priced; allowed: at least one of a known device and format")

    def ratios(self, constants: dict[str, float]) -> np.ndarray:
        """Predicted over measured."""
        frame = judged(self.prepared.predict(adjustment(constants)).frame)
        return (frame["predicted_s"] / frame["measured_s"]).to_numpy()


def calibrate_training(
    directory: Path, out: Path, clusters: Callable[[str], Cluster], progress: Callable[[str], None] = lambda text: None
) -> list[Path]:
    """Fit every training table below a folder and write `frameworks/training.yaml` under `out`; the file, if any."""
    found: dict[str, Any] = {}
    origins: dict[str, Any] = {}
    for table in tables(directory, *CONSTANTS):
        stem = table.path.stem
        if not reader.is_word(stem):
            raise DataError(f"{table.shown}: its constants are called after it; allowed: {WORDS}.csv")
        if stem in found:
            raise DataError(f"{table.shown}: another table of steps is called {stem} too; allowed: one of a name")
        found[stem], origins[stem] = fit_table(table, clusters, progress)
    if not found:
        return []
    content = HEADER + TITLE + yaml.safe_dump(found, sort_keys=True) + "".join(provenance_lines(origins))
    return publish({out / "frameworks" / "training.yaml": content})
