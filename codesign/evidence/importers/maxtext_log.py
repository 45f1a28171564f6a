"""Logs of MaxText: a line a step with seconds, TFLOP/s and tokens per second of a device."""

import re
import statistics

from .table_rows import ImportedRow, number_of, put

NAME = "log of MaxText"
STEP = re.compile(r"completed step: (\d+), seconds: ([\d.]+), TFLOP/s/device: ([\d.]+)(?:, Tokens/s/device: ([\d.]+))?")
DEVICES = re.compile(r"Num_devices: (\d+)")
PARAMETER = re.compile(r"Config param (\w+): (\S+)")
PARALLELISM = re.compile(r"(?:ici|dcn)_(tensor|pipeline|expert|context)_parallelism")
DEGREES = {"tensor": "tp", "pipeline": "pp", "expert": "ep", "context": "cp"}
WARM_UP = 2
"""Steps at the start that are left out where there are more: programs are compiled, input pipelines fill."""


def reads(text: str) -> bool:
    """A line of a step."""
    return STEP.search(text) is not None


def rows(text: str) -> list[ImportedRow]:
    """One run a log: the medians of its steps once it is warm."""
    steps = STEP.findall(text)
    warm = steps[WARM_UP:] if len(steps) > WARM_UP else steps
    parameters = dict(PARAMETER.findall(text))
    row: ImportedRow = {"workload": "training", "framework": "maxtext"}
    if parameters.get("model_name", "default") != "default":
        row["model"] = parameters["model_name"]
    devices = DEVICES.search(text)
    put(row, "num_gpus", devices[1] if devices else parameters.get("num_devices"))
    put(row, "seq_len", parameters.get("max_target_length"))
    put(row, "global_batch", _sequences(parameters, number_of(row.get("num_gpus"))))
    degrees: dict[str, float] = {}
    for name, value in parameters.items():
        ranks = number_of(value) or 1.0
        if (axis := PARALLELISM.fullmatch(name)) and ranks > 1:
            degrees[axis[1]] = degrees.get(axis[1], 1.0) * ranks
    if any(PARALLELISM.fullmatch(name) or name == "ici_fsdp_parallelism" for name in parameters):
        for axis, column in DEGREES.items():
            put(row, column, degrees.get(axis, 1.0))
    put(row, "step_time_s", statistics.median(float(seconds) for _, seconds, _, _ in warm))
    put(row, "tflops_per_gpu", statistics.median(float(rate) for _, _, rate, _ in warm))
    return [row]


def _sequences(parameters: dict[str, str], devices: float | None) -> float | None:
    """Sequences of a step: those of a device times the devices, unless a size of the whole batch is stated."""
    batch, each = (number_of(parameters.get(f"{name}")) for name in ("global_batch_size_to_train_on",
                                                                     "per_device_batch_size"))  # fmt: skip
    return batch or (each * devices if each and devices else None)
