"""Overhead of training frameworks over kernels: a few constants for each source of measured steps.

kernel_slowdown multiplies arithmetic, launch_s is the host's time to issue one kernel, step_overhead_s is added to
every step. They are fitted on one table and kept in `conf/calibration/frameworks/training.yaml` with their residual;
judged on another source, they say how well a framework's overhead carries over.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import yaml
from scipy.optimize import least_squares, minimize

from ...config.groups import conf_dir
from ...core.errors import DataError
from ...core.fields import replace
from ...core.json_yaml import read_yaml
from ...model.scenario import Cluster, Scenario
from ..calibration.constants import provenance_lines, publish
from ..calibration.learned_factors import generation_of
from ..measurements import FoundTable, schema, tables
from .published_training import OF_CLASSES, Prepared, prepare, with_slowdowns
from .row_overrides import accelerator_option
from .scores import set_aside

__all__ = [
    "Sample",
    "adjustment",
    "calibrate_training",
    "fit_table",
    "judged",
    "of_part",
    "parts_of",
    "predicted",
    "stored",
]

SCALES = {
    "launch_s": 1e-5,
    "step_overhead_s": 1e-2,
    "hop_s": 1e-5,
    "expert_s": 1e-5,
}  # of a constant in a fit; one of all others
LEAST = 0.1  # of a factor
CONSTANTS = {  # kind of table -> which constants it can tell: large models hide the host's time
    "recompute_steps": ("kernel_slowdown",),
    "achieved_rates": ("kernel_slowdown",),
    "layout_steps": ("kernel_slowdown", "launch_s", "step_overhead_s", "elementwise"),
    "sharded_rates": ("kernel_slowdown", "attention", "elementwise"),
    "named_model_rates": ("kernel_slowdown", "attention", "elementwise", "experts", "dispatch"),
}
ZERO = "zero3"  # of a table with other frameworks beside its own
SINCE = "26.06"
FUSED = ("DeepSeekV3", "GPT OSS 120B", "Qwen3_235B_a22B")
"""Models whose recipes fuse the products of experts and replay a step as one graph on racks, from that release on.

Nemotron 3 and Kimi K2 run as before. Source: [nvidia2026bridge_releases].
"""
RACK = "GB"  # how their devices' names begin
UNFUSED_AGAIN = {"GPT OSS 120B": "26.06.01"}  # one release lost the fused products of one model, as its notes say
LATER = f"since_{SINCE.replace('.', '_')}"
HOPPER = "hopper"  # whose kernels are all slower by one factor, and whose passes over memory come nearer to its rate
APART = {
    "achieved_rates": {ZERO: ("exchange", "hop_s")},
    "sharded_rates": {"": CONSTANTS["sharded_rates"]},
    "named_model_rates": {
        LATER: ("experts",),
        HOPPER: ("kernel_slowdown", "elementwise", "experts", "expert_s", "dispatch"),
    },
}
"""Kind of table -> part (any: "") -> constants that it has of its own (see `parts_of`), the others as of the whole."""
AT_ONE = {HOPPER: ("attention",)}
"""Part -> constants of the whole table that it has not: few rows of long kernels cannot tell attention from others."""
MOST_ROWS = 1000  # of a table that are drawn for a fit
SHARP, SLOPE_STEP, MOST_STEPS = 0.02, 1e-3, 20  # of a fit without some rows: width of its loss, differences, calls
FEW_ROWS = 20  # up to which rows of one device are left out one by one
FEWEST_APART = {"achieved_rates": 3, "sharded_rates": 20, "named_model_rates": 5}
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


def judged(frame: Any) -> Any:
    """Rows that the constants of a whole table are fitted on: another framework inside it is not its own."""
    return frame[parts_of(frame) != ZERO]


def adjustment(constants: dict[str, float]) -> Callable[[Scenario], Scenario]:
    """A change of every scenario to these framework constants."""

    def change(batch: Scenario) -> Scenario:
        like = jnp.ones_like(batch.plan.tp)
        batch = with_slowdowns(batch, {n: value for n, value in constants.items() if n in OF_CLASSES})
        others = {n: value * like for n, value in constants.items() if n not in OF_CLASSES}
        return replace(batch, {f"workload.{n}": value for n, value in others.items()})

    return change


def of_part(stem: str, part: str) -> str:
    """Name of the constants of a part of a source."""
    return f"{stem}-{part}"


def parts_of(frame: Any) -> "pd.Series[str]":
    """Part of its table that a row belongs to: another framework's sharding, a generation of devices, a release."""
    if "scheme" in frame:
        return frame["scheme"].astype(str).str.contains("ZeRO").map({True: ZERO, False: ""})
    family = frame["gpu"].map({gpu: generation_of(accelerator_option(str(gpu))) for gpu in set(frame["gpu"])})
    if {"release", "model"} <= {*frame}:
        numbers = frame["release"].astype(str).str.extract(r"^(\d\d\.\d\d(?:\.\d\d)?)")[0].fillna("")
        models = frame["model"].astype(str).str.split(" [", regex=False).str[0]
        fused = (numbers >= SINCE) & models.isin(FUSED) & frame["gpu"].astype(str).str.startswith(RACK)
        fused &= numbers != models.map(UNFUSED_AGAIN)
        return fused.map({True: LATER, False: ""}).where(family != HOPPER, HOPPER)
    return family


def predicted(prepared: Prepared, constants: dict[str, dict[str, float]], stem: str) -> Any:
    """Rows under the constants of a source, each under those of its part where it has some."""
    frame = prepared.predict(adjustment(constants[stem])).frame
    result = parts_of(frame)
    for part in sorted(set(result) - {""}):
        of_the_part = constants.get(of_part(stem, part))
        if of_the_part is not None:
            mine = result == part
            frame.loc[mine, "predicted_s"] = prepared.predict(adjustment(of_the_part)).frame["predicted_s"][mine]
    return frame


def _apart(kind: str, part: str) -> Sequence[str]:
    """Constants that a part of a table has of its own."""
    of_kind = APART.get(kind, {})
    return of_kind.get(part, of_kind.get("", ()))


def fit_table(
    table: FoundTable, clusters: Callable[[str], Cluster], progress: Callable[[str], None]
) -> Iterator[tuple[str, dict[str, float], dict[str, str]]]:
    """A table's constants and those of its parts: a name, numbers, their origin with the error of devices left out."""
    sample, kind, stem = Sample(table, clusters, progress), table.schema.name, table.path.stem
    result = parts_of(sample.frame)
    rest = (result == "") if (result == "").any() else result != ZERO
    if not rest.any():
        raise DataError(f"{table.shown}: only rows of {ZERO}; allowed: some of the framework that the table is of")
    cases: list[tuple[str, pd.Series[bool], Sequence[str], Sequence[str]]] = [(stem, rest, CONSTANTS[kind], ())]
    for part in sorted(set(result) - {""}):
        separate = _apart(kind, part)
        if separate and (result == part).sum() >= FEWEST_APART[kind]:
            cases.append((of_part(stem, part), result == part, separate, AT_ONE.get(part, ())))
    shared: dict[str, float] = {}
    for name, rows, names, ones in cases:
        held = {n: value for n, value in shared.items() if n not in (*names, *ones)}
        progress(f"{table.shown}: {name}: {', '.join(names)} on {int(rows.sum())} rows")
        constants = fit(sample.some(rows), names, held)
        shared = shared or constants
        error = float(np.median(np.abs(sample.some(rows).ratios(constants) - 1)))
        apart = left_out(sample, rows, constants, names)
        least = [each for each in names if each not in SCALES and constants[each] <= LEAST]
        bound = f", {' and '.join(least)} at the least allowed" if least else ""
        note = f"{int(rows.sum())} rows, median residual {100 * error:.1f} %{apart}{bound}"
        progress(f"{name}: {note}")
        source = SOURCES.get(stem, table.path.name)
        yield name, constants, {"source": source, "at": stem, "kind": "fitted", "note": note}


def fit(sample: "Sample", names: Sequence[str], held: Mapping[str, float]) -> dict[str, float]:
    """Least mean absolute log error, by Nelder-Mead in the constants' own scales; `held` stay as they are.

    Args:
        sample: rows.
        names: constants that are fitted.
        held: others.
    """

    def constants_of(x: np.ndarray) -> dict[str, float]:
        return {**held, **dict(zip(names, map(_legal, names, x), strict=True))}

    def loss(x: np.ndarray) -> float:
        return float(np.mean(np.abs(np.log(sample.ratios(constants_of(x))))))

    start = [1.0 if name in SCALES else 1.05 for name in names]
    options = {"maxfev": 40 * len(names), "xatol": 1e-3}
    result = minimize(loss, np.array(start), method="Nelder-Mead", options=options)
    result = minimize(loss, result.x, method="Nelder-Mead", options=options)  # a simplex may have shrunk on its way
    return {name: float(f"{value:.4g}") for name, value in constants_of(result.x).items()}


def left_out(sample: "Sample", rows: "pd.Series[bool]", constants: Mapping[str, float], names: Sequence[str]) -> str:
    """Held-out errors as text: rows by a fit on other devices and on other models, or on other rows if they are few."""
    frame = sample.frame
    groups = {"devices": frame["gpu"]}
    if "model" in frame:
        groups["models"] = frame["model"].astype(str).str.split(" [", regex=False).str[0]
    groups = {what: column.where(rows) for what, column in groups.items()}
    groups = {what: column for what, column in groups.items() if column.nunique() > 1}
    if not groups and rows.sum() <= FEW_ROWS:
        groups = {"rows": pd.Series(frame.index, index=frame.index).where(rows)}
    return "".join(f", {_error_left_out(sample, rows, column, constants, names):.1f} % of {what} left out"
                   for what, column in groups.items())  # fmt: skip


def _error_left_out(
    sample: "Sample", rows: "pd.Series[bool]", groups: "pd.Series[Any]", constants: Mapping[str, float],
    names: Sequence[str],
) -> float:  # fmt: skip
    """Median error in percent of each group's rows by a fit on the others."""
    held = {name: value for name, value in constants.items() if name not in names}
    ratios: list[float] = []
    for one in sorted(groups.dropna().unique()):
        others = refit(sample.some(rows & (groups != one)), names, held, constants)
        ratios += sample.some(groups == one).ratios(others).tolist()
    return 100 * float(np.median(np.abs(np.asarray(ratios) - 1)))


def refit(
    sample: "Sample", names: Sequence[str], held: Mapping[str, float], near: Mapping[str, float]
) -> dict[str, float]:
    """Fit from constants that are not far, by trust regions on slopes: a tenth of the calls of `fit`.

    The loss is nearly that of `fit`: linear in errors above `SHARP`.
    """

    def constants_of(x: np.ndarray) -> dict[str, float]:
        return {**held, **dict(zip(names, map(_legal, names, x), strict=True))}

    start = np.array([near[name] / SCALES.get(name, 1.0) for name in names])
    result = least_squares(
        lambda x: np.log(sample.ratios(constants_of(x))), start, loss="soft_l1", f_scale=SHARP, diff_step=SLOPE_STEP,
        bounds=([0.0 if name in SCALES else LEAST for name in names], np.inf), max_nfev=MOST_STEPS,
    )  # fmt: skip
    return constants_of(result.x)


def _legal(name: str, scaled: float) -> float:
    """A constant from its own scale; however the rows lie, it stays what a workload may have."""
    return max(abs(float(scaled)) * SCALES.get(name, 1.0), 0.0 if name in SCALES else LEAST)


class Sample:
    """A table's rows, at most `MOST_ROWS` of them, priced again and again with other constants."""

    def __init__(self, table: FoundTable, clusters: Callable[[str], Cluster], progress: Callable[[str], None]) -> None:
        """Read once; what is set aside is told.

        Raises:
            DataError: no row can be priced.
        """
        messages: list[str] = []
        self.clusters, self.prepared = clusters, prepare(table, clusters, messages, most=MOST_ROWS)
        messages += set_aside(table.shown, self.prepared.refused)
        for message in messages:
            progress(message)
        self.frame = self.prepared.predict().frame
        if not len(self.frame):
            raise DataError(f"{table.shown}: no row can be priced; allowed: at least one of a known device and format")

    def some(self, chosen: "pd.Series[bool]") -> "Sample":
        """Subset of the rows."""
        part = object.__new__(Sample)
        part.clusters, part.frame = self.clusters, self.frame[chosen]
        part.prepared = self.prepared.some(set(part.frame.index), self.clusters)
        return part

    def ratios(self, constants: dict[str, float]) -> np.ndarray:
        """Predicted over measured."""
        frame = self.prepared.predict(adjustment(constants)).frame
        return (frame["predicted_s"] / frame["measured_s"]).to_numpy()


def calibrate_training(
    directory: Path, out: Path, clusters: Callable[[str], Cluster], progress: Callable[[str], None] = lambda text: None
) -> list[Path]:
    """Fit every training table below a folder and write `frameworks/training.yaml` under `out`; the file, if any."""
    result: dict[str, Any] = {}
    origins: dict[str, Any] = {}
    for table in tables(directory, *CONSTANTS):
        stem = table.path.stem
        if not schema.is_word(stem):
            raise DataError(f"{table.shown}: its constants are called after it; allowed: {WORDS}.csv")
        if stem in result:
            raise DataError(f"{table.shown}: another table of steps is called {stem} too; allowed: one of a name")
        for name, constants, origin in fit_table(table, clusters, progress):
            result[name], origins[name] = constants, origin
    if not result:
        return []
    content = HEADER + TITLE + yaml.safe_dump(result, sort_keys=True) + "".join(provenance_lines(origins))
    return publish({out / "frameworks" / "training.yaml": content})
