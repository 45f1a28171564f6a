"""Logs of torchtitan: a line each few steps with tokens per second of a device and utilisation."""

import math
import re
import statistics

from .table_rows import ImportedRow, put

NAME = "log of torchtitan"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LINE = re.compile(r"step:\s*(\d+).*?tps:\s*([\d,]+)(?:.*?mfu:\s*([\d.]+)%)?")
WORLD = re.compile(r"world[ _]size[^\d]{0,6}(\d+)")
MESH = re.compile(r"device mesh with \[([^\]]*)\], \[([\d, ]+)\]")
DEVICE = re.compile(r"\b(?:CUDA|GPU|XPU) capacity: (.+?)(?: \(\d+\))? with ")
SIZES = {"global_batch": "global batch size", "seq_len": "sequence length", "micro_batch": "local batch size"}
DEGREES = {"tp": "tp", "pp": "pp", "cp": "cp"}
WARM_UP = 1
"""Lines at the start that are left out where there are more: the first has what is compiled in it."""


def reads(text: str) -> bool:
    """A line of a step."""
    return LINE.search(COLOUR.sub("", text)) is not None


def rows(text: str) -> list[ImportedRow]:
    """One run a log: the medians of its steps once it is warm."""
    plain = COLOUR.sub("", text)
    steps = LINE.findall(plain)
    warm = steps[WARM_UP:] if len(steps) > WARM_UP else steps
    row: ImportedRow = {"workload": "training", "framework": "torchtitan"}
    put(row, "tokens_per_s_per_gpu", statistics.median(float(tps.replace(",", "")) for _, tps, _ in warm))
    shares = [float(mfu) / 100 for _, _, mfu in warm if mfu]
    if shares:
        put(row, "mfu", statistics.median(shares))
    if device := DEVICE.search(plain):
        row["gpu"] = device[1]
    for column, words in SIZES.items():
        if said := re.search(rf"{words} (\d+)", plain):
            put(row, column, said[1])
    if mesh := MESH.search(plain):
        axes = dict(zip(re.findall(r"\w+", mesh[1]), map(int, mesh[2].split(",")), strict=False))
        put(row, "num_gpus", math.prod(axes.values()))
        row |= {column: str(axes.get(name, 1)) for name, column in DEGREES.items()}  # axes of one rank are left out
        if axes.get("dp_shard", 1) > 1:
            row["plan.zero"] = "3"
    if world := WORLD.search(plain):
        put(row, "num_gpus", world[1])
    return [row]
