"""Suites of whole jobs: measured training steps and static-batch inference, against constants fitted on kernels.

Strata, each with the GPU's own kernel constants and with those of its nearest relative (`GPU left out`):

    training <table>                    kernels and collectives alone: nothing was fitted on a training step
    training <table>, framework fitted  with the overhead constants of `conf/calibration/frameworks/training.yaml`,
                                        fitted on the shared part of this very table
    training <table>, framework of ...  with those fitted on another source
    static-batch inference              kernels and collectives alone
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from ..measurements import FoundTable, tables
from . import inference, published_training
from .framework import FITTED_ON, ZERO, of_part, parts_of, predicted, stored
from .hardware import left_out_cluster, measured_cluster
from .scores import Errors, Row, rows
from .suites import Suite

SHORT = {  # sources by the name of their file; any other is called by that
    "korthikanti2022_recompute": "Korthikanti 2022",
    "megatron_sc21": "Megatron SC21",
    "vtrain_single_node": "vTrain",
    "mosaicml_llm_foundry": "MosaicML",
    "nemo_megatron_bridge": "NeMo",
    "frontier_runs": "frontier",
}
OTHER_SOURCE = {  # tables of the same framework: one's overhead judged on the other
    "korthikanti2022_recompute": "megatron_sc21",
    "megatron_sc21": "korthikanti2022_recompute",
    "frontier_runs": "nemo_megatron_bridge",
}


def _groups(stratum: str, frame: pd.DataFrame, predicted: str, measured: str, by: list[str]) -> Iterator[Errors]:
    for keys, part in frame.groupby(by, sort=True):
        label = " ".join(str(key) for key in (keys if isinstance(keys, tuple) else (keys,)))
        yield Errors(stratum, label, part[predicted].to_numpy(dtype=float), part[measured].to_numpy(dtype=float))


def _frameworks(table: FoundTable) -> Iterator[tuple[str, str]]:
    """(suffix of the stratum, source of the constants) of a training table."""
    constants, stem = stored(), table.path.stem
    if stem in constants:
        yield ", framework fitted", stem
    other = OTHER_SOURCE.get(stem, FITTED_ON.get(table.schema.name, ""))
    if other in constants and other != stem:
        yield f", framework of {SHORT.get(other, other)}", other


def training_errors(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Predicted and measured step seconds of every table."""
    for table in tables(directory, *published_training.TABLES):
        own = published_training.prepare(table, measured_cluster, messages)
        messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in own.refused.items()]
        if not len(own.measured):
            continue
        name = SHORT.get(table.path.stem, table.path.stem)
        yield from _by_gpu(name, "", own.predict().frame)
        for suffix, source in _frameworks(table):
            result = predicted(own, stored(), source)
            others = parts_of(result) == ZERO if of_part(source, ZERO) not in stored() else parts_of(result).isna()
            if others.any():
                messages.append(f"{table.shown}: {int(others.sum())} rows of {ZERO} set aside{suffix}: none of its own")
            yield from _by_gpu(name, suffix, result[~others])
        left_out = own.on(left_out_cluster)
        if len(left_out.measured):
            yield from _by_gpu(name, ", GPU left out", left_out.predict().frame)


def _by_gpu(name: str, suffix: str, frame: pd.DataFrame) -> Iterator[Errors]:
    stratum = f"training {name}"
    if "experiment" not in frame:
        yield from _groups(stratum + suffix, frame, "predicted_s", "measured_s", ["gpu"])
        return
    scheme = frame["experiment"].map({"table1_weak_scaling": "table 1"}).fillna(frame["scheme"])
    for part, chosen in frame.groupby(scheme):
        yield from _groups(f"{stratum} {part}{suffix}", chosen, "predicted_s", "measured_s", ["gpu"])


def run_training(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all training tables."""
    return rows("training", "step_time", training_errors(directory, messages))


def inference_rows(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all tables of static batches, a stratum for each quantity."""
    result: list[Row] = []
    for table in tables(directory, "static_batches"):
        for suffix, clusters in (("", measured_cluster), (", GPU left out", left_out_cluster)):
            found = inference.predict(table, clusters, [] if suffix else messages)
            if not suffix:
                messages += [f"{table.shown}: {count} rows set aside, {why}" for why, count in found.refused.items()]
            for quantity, part in found.frame.groupby("quantity"):
                stratum = f"static-batch inference{suffix}"
                by = _groups(stratum, part, "predicted", "measured", ["gpu", "software"])
                result += rows("inference", str(quantity), by)
    return result


TRAINING = Suite("training", tuple(published_training.TABLES), run_training)
INFERENCE = Suite("inference", ("static_batches",), inference_rows)
