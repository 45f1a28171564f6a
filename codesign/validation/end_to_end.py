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

from . import inference, training
from .framework import adjustment, stored
from .hardware import left_out_cluster, measured_cluster
from .scores import Errors, Row, rows
from .tables import Suite, named

SHORT = {
    "korthikanti2022_recompute.csv": "Korthikanti 2022",
    "megatron_sc21.csv": "Megatron SC21",
    "vtrain_single_node.csv": "vTrain",
    "mosaicml_llm_foundry.csv": "MosaicML",
    "nemo_megatron_bridge.csv": "NeMo",
    "frontier_runs.csv": "frontier",
}
OTHER_SOURCE = {  # tables of the same framework: one's overhead judged on the other
    "korthikanti2022_recompute.csv": "megatron_sc21.csv",
    "megatron_sc21.csv": "korthikanti2022_recompute.csv",
    "frontier_runs.csv": "nemo_megatron_bridge.csv",
}


def _groups(stratum: str, frame: pd.DataFrame, predicted: str, measured: str, by: list[str]) -> Iterator[Errors]:
    for keys, part in frame.groupby(by, sort=True):
        label = " ".join(str(key) for key in (keys if isinstance(keys, tuple) else (keys,)))
        yield Errors(stratum, label, part[predicted].to_numpy(dtype=float), part[measured].to_numpy(dtype=float))


def _adjustments(name: str) -> Iterator[tuple[str, training.Adjust]]:
    """(suffix of the stratum, change of constants) of a training table."""
    constants, other = stored(), OTHER_SOURCE.get(name)
    yield "", lambda scenario: scenario
    if name in constants:
        yield ", framework fitted", adjustment(constants[name])
    if other in constants:
        yield f", framework of {SHORT[other]}", adjustment(constants[other])


def training_errors(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Predicted and measured step seconds of every table."""
    for path in training.known_tables(directory):
        own = training.prepare(path, measured_cluster)
        messages += [f"{path.name}: {count} rows set aside, {why}" for why, count in own.refused.items()]
        for suffix, adjust in _adjustments(path.name):
            yield from _by_gpu(path.name, suffix, own.predict(adjust).frame)
        left_out = own.on(left_out_cluster).predict().frame
        yield from _by_gpu(path.name, ", GPU left out", left_out)


def _by_gpu(name: str, suffix: str, frame: pd.DataFrame) -> Iterator[Errors]:
    stratum = f"training {SHORT[name]}"
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
    for path in named(inference.TABLE)(directory):
        for suffix, clusters in (("", measured_cluster), (", GPU left out", left_out_cluster)):
            found = inference.predict(path, clusters)
            if not suffix:
                messages += [f"{path.name}: {count} rows set aside, {why}" for why, count in found.refused.items()]
            for quantity, part in found.frame.groupby("quantity"):
                stratum = f"static-batch inference{suffix}"
                by = _groups(stratum, part, "predicted", "measured", ["gpu", "software"])
                result += rows("inference", str(quantity), by)
    return result


TRAINING = Suite("training", named(*training.TABLES), run_training)
INFERENCE = Suite("inference", named(inference.TABLE), inference_rows)
