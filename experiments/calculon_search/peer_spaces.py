"""The four search spaces of the peer model in small, in its own words."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

DEGREES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Space:
    """An application on a system, and how much of the peer's choices is tried.

    shape: hidden, feedforward, sequence, heads, head size, blocks.
    """

    shape: tuple[int, int, int, int, int, int]
    system: str
    processors: int
    batch: int
    points: int
    offload: bool = False


SPACES = {
    "S1": Space((6144, 24576, 2048, 64, 96, 48), "a100_80g", 32, 64, 2328),
    "S2": Space((12288, 49152, 2048, 96, 128, 96), "a100_80g", 128, 128, 3408),
    "S3": Space((25600, 102400, 2048, 160, 160, 128), "a100_80g", 512, 512, 4728),
    "S4": Space((12288, 49152, 2048, 96, 128, 96), "h100_80g_nvl8", 64, 64, 5760, offload=True),
}
APPLICATIONS = {"S1": "megatron-22B", "S2": "gpt3-175B", "S3": "megatron-1T", "S4": "gpt3-175B with offload"}


def _layouts(space: Space) -> Iterator[dict[str, int]]:
    """Degrees, interleaving and micro-batch."""
    blocks = space.shape[5]
    for tensor in DEGREES:
        ranks = space.processors // tensor
        for pipeline in (p for p in range(1, ranks + 1) if ranks % p == 0 and blocks % p == 0):
            data = ranks // pipeline
            if space.batch % data:
                continue
            chunks = sorted({1, blocks // pipeline}) if pipeline > 1 else [1]
            for chunk, micro in itertools.product(chunks, DEGREES):
                if (space.batch // data) % micro == 0:
                    yield {
                        "tensor_par": tensor, "pipeline_par": pipeline, "data_par": data,
                        "pipeline_interleaving": chunk, "microbatch_size": micro,
                    }  # fmt: skip


def points(name: str) -> pd.DataFrame:
    """Every point of a space, one row each, with the peer's input columns."""
    space = SPACES[name]
    shape = dict(
        zip(("hidden", "feedforward", "seq_size", "attn_heads", "attn_size", "num_blocks"), space.shape, strict=True)
    )
    fixed = {f"app_{key}": value for key, value in shape.items()} | {
        "system": space.system, "exe_num_procs": space.processors, "exe_batch_size": space.batch,
        "exe_tensor_par_net": 0, "exe_pipeline_par_net": 1, "exe_data_par_net": 1, "exe_datatype": "float16",
        "exe_fused_activation": True, "exe_attention_type": "multihead", "exe_tensor_par_overlap": "none",
        "exe_seq_par_ag_redo": False, "exe_training": True,
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    for layout in _layouts(space):
        shared = (False, True) if layout["data_par"] > 1 else (False,)
        tiers = (False, True) if space.offload else (False,)
        choices = itertools.product(("none", "attn_only", "full"), ("ar", "rs_ag"), shared, shared, tiers)
        for recompute, scheme, sharding, overlap, far in choices:
            rows.append(
                layout
                | {
                    "activation_recompute": recompute,
                    "tensor_par_comm_type": scheme,
                    "optimizer_sharding": sharding,
                    "data_par_overlap": overlap,
                    "weight_offload": far,
                    "optimizer_offload": far,
                    "activations_offload": far and recompute != "full",
                }
            )
    return pd.DataFrame(rows).add_prefix("exe_").assign(**fixed)
