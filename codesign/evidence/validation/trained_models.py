"""Models of published training runs: by their numbers, or of the configuration."""

import functools
from typing import Any

from ...config import scenario_from_config
from ...core.errors import ConfigError
from ...model.workloads import DenseFeedForward, GroupedQueryAttention, Transformer

__all__ = ["NEMO_MODELS", "configured_model", "megatron_model", "mpt_model"]

NEMO_MODELS = {
    "LLAMA3.1_405B": "llama31_405b",
    "LLAMA3_70B": "llama31_70b",
    "LLAMA3_8B": "llama31_8b",
    "DeepSeekV3": "deepseek_v3",
    "Qwen3_235B_a22B": "qwen3_235b_a22b",
}
MPT_SHAPES = {  # hidden, heads, layers: the published configurations of the MPT family
    "125m": (768, 12, 12),
    "350m": (1024, 16, 24),
    "760m": (1536, 12, 24),
    "1b": (2048, 16, 24),
    "3b": (2560, 20, 32),
    "7b": (4096, 32, 32),
    "13b": (5120, 40, 40),
    "30b": (7168, 56, 48),
    "70b": (8192, 64, 80),
}


def megatron_model(row: Any) -> Transformer:
    """GPT with learned positions as Megatron trained it: unfused attention and loss, GELU, dropout, tied embeddings."""
    heads = float(row.num_heads)
    attention = GroupedQueryAttention(
        heads, heads, float(row.hidden) / heads, causal=0.0, fused=False, separate_projections=False
    )
    feed_forward = DenseFeedForward(4.0 * float(row.hidden))
    vocab = float(getattr(row, "vocab", 51200.0))
    return Transformer(
        name="gpt", hidden=float(row.hidden), layers=float(row.num_layers), attention=attention,
        feed_forward=feed_forward, vocab=vocab, tied_embeddings=1.0, norm_vectors=2.0, dropout=True,
        fused_loss=False,
    )  # fmt: skip


def mpt_model(size: str) -> Transformer:
    """A model of the MPT family.

    Raises:
        ConfigError: a size that is not known.
    """
    if size not in MPT_SHAPES:
        raise ConfigError(f"MPT size {size!r} is not known")
    hidden, heads, layers = (float(x) for x in MPT_SHAPES[size])
    attention = GroupedQueryAttention(heads, heads, hidden / heads, causal=1.0)
    return Transformer(
        name=f"mpt_{size}", hidden=hidden, layers=layers, attention=attention,
        feed_forward=DenseFeedForward(4 * hidden), vocab=50368.0, tied_embeddings=1.0, norm_vectors=1.0,
    )  # fmt: skip


@functools.cache
def configured_model(option: str) -> Transformer:
    """A model of the configuration."""
    return scenario_from_config("workload=training", f"model={option}", "plan=data_parallel").workload.model
