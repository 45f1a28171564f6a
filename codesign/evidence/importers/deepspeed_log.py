"""Logs of DeepSpeed: its configuration as it prints it, and sequences per second every few steps."""

import re
import statistics

from .table_rows import ImportedRow, put

NAME = "log of DeepSpeed"
RATE = re.compile(r"RunningAvgSamplesPerSec=([\d.]+), CurrSamplesPerSec=([\d.]+)(?:.*?MaxMemAllocated=([\d.]+)GB)?")
ARGUMENTS = {
    "train_batch_size": "global_batch", "train_micro_batch_size_per_gpu": "micro_batch", "world_size": "num_gpus",
    "zero_optimization_stage": "zero",
}  # fmt: skip
ARGUMENT = re.compile(r"\b(\w+)[ \t]+\.{3,}[ \t]+(\d+)\b")
DEGREE = re.compile(r"--?(tensor|pipeline)-model-parallel-size['\",\s=]+(\d+)")
WORLD = re.compile(r"dist_world_size=(\d+)")


def reads(text: str) -> bool:
    """A line of its timer."""
    return RATE.search(text) is not None


def rows(text: str) -> list[ImportedRow]:
    """One run a log: the median of what the timer says of its steps, which leaves out the first ones by itself."""
    row: ImportedRow = {"workload": "training"}
    for name, value in ARGUMENT.findall(text):
        if name in ARGUMENTS:
            put(row, ARGUMENTS[name], value)
    if "num_gpus" not in row and (world := WORLD.search(text)):
        put(row, "num_gpus", world[1])
    row["framework"] = "deepspeed_zero3" if row.get("zero") == "3" else "deepspeed"
    degrees = {"tensor": "1", "pipeline": "1"} | dict(DEGREE.findall(text))
    row |= {"tp": degrees["tensor"], "pp": degrees["pipeline"]}
    steps = RATE.findall(text)
    put(row, "samples_per_s", statistics.median(float(current) for _, current, _ in steps))
    peaks = [float(peak) for _, _, peak in steps if peak]
    if peaks:  # GB of its lines are GiB
        put(row, "peak_memory_gib", max(peaks))
    return [row]
