"""Dispatch and combine of experts, as the all-to-all that the model takes for them; nothing is fitted on them.

A token goes once to each rank that has an expert for it. Strata of suite `expert exchange`:

    8 and 4 bits           a phase a row, payloads in 8 or 4 bits with their scales
    low_latency, normal    both phases in a row; dispatched in 8 bits, combined in 16, as the library does by default
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from ..calibration.gpus import FORMATS
from ..errors import ConfigError
from ..measurements import tables
from .across_nodes import RACK, predicted
from .scores import Errors, Row, rows
from .suites import Suite

SCALED = {"bfloat16": 2.0, "fp8": 1.0 + 4 / 128, "nvfp4": FORMATS["nvfp4"][2], "fp4": FORMATS["nvfp4"][2]}
"""Bytes an element; of 8 bits with a scale of 4 bytes to 128 elements."""
DISPATCHED, COMBINED = SCALED["fp8"], SCALED["bfloat16"]
NODE = 8.0
SMALLER = {"GB200": 4.0, "GB300": 4.0}  # devices of a node


def ranks_reached(ranks: pd.Series, top_k: pd.Series) -> pd.Series:
    """Ranks that a token goes to: each is missed by every one of its experts, or it is not."""
    return ranks * (1 - (1 - 1 / ranks) ** top_k)


def _errors(stratum: str, label: str, part: pd.DataFrame, ranks: pd.Series, element: float, column: str,
            messages: list[str]) -> Iterator[Errors]:  # fmt: skip
    gpu = str(part["gpu"].iloc[0])
    nbytes = element * part["num_tokens"] * part["hidden_size"] * ranks_reached(ranks, part["topk"])
    members = ranks.to_numpy(dtype=float)
    inner = np.minimum(members, RACK.get(gpu, NODE))
    try:
        found = predicted(gpu, "all_to_all", inner, members / inner, nbytes.to_numpy(dtype=float))
    except ConfigError as error:
        messages.append(f"{label}: {len(part)} rows set aside: {error}")
        return
    yield Errors(stratum, label, found, part[column].to_numpy(dtype=float) * 1e-6)


def phases(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Rows of one phase each, payloads of fewer than 16 bits (those of 16: suite `across nodes`)."""
    for table in tables(directory, "expert_exchange"):
        found = table.rows(messages)
        unknown = ~found["comm_dtype"].isin(SCALED)
        if unknown.any():
            messages.append(f"{table.shown}: {int(unknown.sum())} rows set aside, what a payload weighs is not stated")
        small = found[~unknown & (found["comm_dtype"] != "bfloat16")]
        for (gpu, phase, name), part in small.groupby(["gpu", "phase", "comm_dtype"], sort=True):
            label = f"{gpu} {phase} {name}"
            yield from _errors("8 and 4 bits", label, part, part["ep_size"], SCALED[name], "latency_us", messages)


def pairs(directory: Path, messages: list[str]) -> Iterator[Errors]:
    """Rows of both phases."""
    for table in tables(directory, "dispatch_combine"):
        for (gpu, mode, nodes), part in table.rows(messages).groupby(["gpu", "mode", "num_nodes"], sort=True):
            ranks = part["num_nodes"] * SMALLER.get(str(gpu), NODE)
            for phase, element in (("dispatch", DISPATCHED), ("combine", COMBINED)):
                label = f"{gpu} {phase}, {nodes:g} node(s)"
                yield from _errors(str(mode), label, part, ranks, element, f"{phase}_us", messages)


def run_exchange(directory: Path, messages: list[str]) -> list[Row]:
    """Rows of all of these tables."""
    return rows("expert exchange", "latency", [*phases(directory, messages), *pairs(directory, messages)])


EXCHANGE = Suite("expert exchange", ("expert_exchange", "dispatch_combine"), run_exchange)
