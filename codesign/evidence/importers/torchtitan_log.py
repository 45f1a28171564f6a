"""Logs of torchtitan: a line each few steps with tokens per second of a device and utilisation."""

import re
import statistics

from .table_rows import ImportedRow, put

NAME = "log of torchtitan"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LINE = re.compile(r"step:\s*(\d+).*?tps:\s*([\d,]+)(?:.*?mfu:\s*([\d.]+)%)?")
WORLD = re.compile(r"world[ _]size[^\d]{0,6}(\d+)")
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
    row: ImportedRow = {"workload": "training"}
    put(row, "tokens_per_s_per_gpu", statistics.median(float(tps.replace(",", "")) for _, tps, _ in warm))
    shares = [float(mfu) / 100 for _, _, mfu in warm if mfu]
    if shares:
        put(row, "mfu", statistics.median(shares))
    if world := WORLD.search(plain):
        put(row, "num_gpus", world[1])
    return [row]
