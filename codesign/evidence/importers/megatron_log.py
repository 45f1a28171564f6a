"""Logs of Megatron-LM, Megatron-Bridge and what is built on them: a line an interval of iterations."""

import re
import statistics

from .table_rows import ImportedRow, put

NAME = "log of Megatron-LM or Megatron-Bridge"
STEP = re.compile(r"elapsed time per iteration \(ms\):\s*([\d.]+)")
BATCH = re.compile(r"global batch size:\s*(\d+)")
ARGUMENTS = {
    "seq_length": "seq_len", "global_batch_size": "global_batch", "micro_batch_size": "micro_batch",
    "tensor_model_parallel_size": "tp", "pipeline_model_parallel_size": "pp", "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep", "expert_tensor_parallel_size": "etp", "world_size": "num_gpus",
    "virtual_pipeline_model_parallel_size": "virtual_stages",
}  # fmt: skip
WORLD = re.compile(
    r"using world size: (\d+),.*?tensor-model-parallel size: (\d+).*?pipeline-model-parallel size: (\d+)"
)
RECOMPUTED = ("full", "selective")
ARGUMENT = re.compile(r"^\s*(?:\[\w+\]:)?\s*(\w+)\s*\.{3,}\s*(\S+)\s*$", re.MULTILINE)
WARM_UP = 3
"""Lines at the start that are left out where there are more: kernels are chosen, memory grows."""


def reads(text: str) -> bool:
    """A line of an iteration."""
    return STEP.search(text) is not None


def rows(text: str) -> list[ImportedRow]:
    """One run a log: the median of its steps once it is warm."""
    steps = [float(value) for value in STEP.findall(text)]
    row: ImportedRow = {}
    for name, value in ARGUMENT.findall(text):
        if name in ARGUMENTS:
            put(row, ARGUMENTS[name], value)
        elif name == "recompute_granularity" and value in RECOMPUTED:
            row["plan.recompute"] = value
        elif name in ("fp8", "fp4") and value not in ("None", "False"):  # fp8 ... hybrid
            row["precision"] = name
    if world := WORLD.search(text):  # where no arguments are printed
        row = dict(zip(("num_gpus", "tp", "pp"), world.groups(), strict=True)) | row
    if "global_batch" not in row and (batches := BATCH.findall(text)):
        put(row, "global_batch", batches[-1])
    warm = steps[WARM_UP:] if len(steps) > WARM_UP else steps
    put(row, "step_time_ms", statistics.median(warm))
    row["workload"] = "training"
    return [row]
