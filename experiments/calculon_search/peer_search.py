"""Exhaustive search of the peer's spaces: every point priced by this package's model, the best that fits."""

import functools
from typing import Any

import numpy as np
import pandas as pd
from peer_spaces import SPACES, points

from codesign.evidence.calculon import predict_alike, system

LEAST_BLOCKS = 3  # of a processor that offloads: one at work, one coming, one going
FIELDS = (
    "tensor_par", "pipeline_par", "data_par", "pipeline_interleaving", "microbatch_size", "activation_recompute",
    "tensor_par_comm_type", "optimizer_sharding", "data_par_overlap", "weight_offload", "activations_offload",
    "optimizer_offload",
)  # fmt: skip


@functools.cache
def priced(name: str) -> pd.DataFrame:
    """Every point of a space with time, memory per tier, used shares, and whether it fits, fastest feasible first."""
    space = SPACES[name]
    frame = points(name)
    frame = frame.join(predict_alike(frame))
    cluster = system(space.system).cluster
    frame["hbm_share"] = frame["first_tier_memory"] / float(cluster.accelerator.hbm.usable_bytes())
    frame["second_share"] = frame["second_tier_memory"] / float(cluster.host.memory.usable_bytes())
    blocks = space.shape[5] / frame["exe_pipeline_par"]
    room = (frame["hbm_share"] <= 1) & (frame["second_share"] <= 1)
    frame["feasible"] = room & ~(frame["exe_weight_offload"] & (blocks < LEAST_BLOCKS))
    order = np.lexsort((frame["total_time"], ~frame["feasible"]))
    return frame.iloc[order].reset_index(drop=True)


def execution(row: pd.Series) -> dict[str, Any]:
    """One point as the peer's execution file has it."""
    values = {str(key).removeprefix("exe_"): row[key] for key in row.index if str(key).startswith("exe_")}
    return {key: value.item() if isinstance(value, np.generic) else value for key, value in values.items()}


def plan_text(row: pd.Series) -> str:
    """A point in a line, in the peer's words, switches only where they are on."""
    words = []
    for field in FIELDS:
        value = row[f"exe_{field}"]
        if isinstance(value, bool | np.bool_):
            words += [field] if value else []
        else:
            words.append(f"{field} {value}")
    return ", ".join(words)
