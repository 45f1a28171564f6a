"""Architectures read by their keys: each number has several names in published configurations, and one meaning.

`general(...)` makes an entry of the table of an architecture that has no layers of its own kind; what it changes is a
default or a builder.
"""

from collections.abc import Callable
from typing import Any

from .attention import AbstractAttention, GroupedQueryAttention
from .feed_forward import AbstractFeedForward, DenseFeedForward
from .hub_architectures import (
    EVERY_HEAD,
    FOURTH,
    SPARSE,
    Architecture,
    gated_delta,
    mixture,
    per_head,
    sparse,
)
from .hub_kinds import heads_of, latent_of

Values = dict[str, Any]

SYNONYMS: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "n_embed", "d_model", "dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "tied": ("tie_word_embeddings",),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups"),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "width": (
        "dense_intermediate_size", "intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "n_inner",
        "ffn_dim",
    ),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    "top_k": (
        "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_top_k", "moe_topk", "moe_k",
        "experts_per_token",
    ),
    "expert_width": ("moe_intermediate_size", "expert_ffn_hidden_size", "expert_hidden_dim", "intermediate_size"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "shared_width": (
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim",
        "shared_intermediate_size",
    ),
    "first_dense": ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"),
    "sparse_step": ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"),
    "sparse_period": ("moe_layer_freq",),
    "sparse_flags": ("mlp_layer_types", "moe_layers_enum"),
    "dense_list": ("mlp_only_layers",),
    "q_rank": ("q_lora_rank",),
    "kv_rank": ("kv_lora_rank",),
    "nope_dim": ("qk_nope_head_dim",),
    "rope_dim": ("qk_rope_head_dim",),
    "v_dim": ("v_head_dim",),
    "selected": ("index_topk",),
    "index_heads": ("index_n_heads",),
    "index_dim": ("index_head_dim",),
    "interval": ("full_attention_interval",),
    "kinds": ("layer_types",),
    "linear_heads": ("linear_num_value_heads",),
    "linear_key_heads": ("linear_num_key_heads",),
    "linear_key_dim": ("linear_key_head_dim",),
    "linear_value_dim": ("linear_value_head_dim",),
    "convolution": ("linear_conv_kernel_dim",),
    "gate": ("attn_output_gate", "attention_output_gate"),
    "dropout": ("hidden_dropout", "resid_pdrop", "hidden_dropout_prob"),
}  # fmt: skip
"""Our number -> its names in published files, the more particular one first."""

LINEAR = ("linear_heads", "linear_key_heads", "linear_key_dim", "linear_value_dim", "convolution")
MOE = ("experts", "top_k", "expert_width")


def attention_by_keys(values: Values) -> AbstractAttention:
    """Linear, latent (with an index: sparse) or grouped-query attention, as the numbers say that are there."""
    if values.get("kv_rank"):
        return sparse(values) if values.get("selected") else latent_of(values)
    return gated_delta(values) if values.get("linear_heads") else heads_of(values)


def feed_forward_by_keys(values: Values) -> AbstractFeedForward:
    """Experts where there are more than one, else a dense network."""
    if values.get("experts", 0) > 1 and values.get("top_k"):
        return mixture(values)
    return DenseFeedForward(values["width"], float(values.get("gated", 1.0)))


def _head_dim(values: Values) -> float:
    """Head dimension of a file that does not state it; latent attention has none."""
    return 0.0 if values.get("kv_rank") else per_head(values)


DEFAULTS = (
    EVERY_HEAD
    | SPARSE
    | FOURTH
    | {"head_dim": _head_dim, "width": lambda values: 4 * values["hidden"], "gate": 0.0, "q_rank": 0}
)


def general(
    attention: Callable[[Values], AbstractAttention] = attention_by_keys,
    feed_forward: Callable[[Values], AbstractFeedForward] = feed_forward_by_keys,
    names: dict[str, str] | None = None,
    *,
    norm_vectors: float = 1.0,
    ignored: tuple[str, ...] = (),
    inside: str = "",
    windows: bool = True,
    modules: dict[str, tuple[str, ...]] | None = None,
    **defaults: Any,
) -> Architecture:
    """An entry of the table whose numbers are found under any of their names.

    Args:
        attention, feed_forward: builders of its layers.
        names: numbers that stand under names of its own.
        norm_vectors, ignored, inside, windows, modules: as of `Architecture`.
        defaults: of numbers that a file may leave out.
    """
    read = {**{name: keys[0] for name, keys in SYNONYMS.items()}, **(names or {})}
    own = {name: (key,) for name, key in (names or {}).items()}
    known = SYNONYMS | own
    return Architecture(
        attention, feed_forward, read, DEFAULTS | defaults, norm_vectors, ignored, inside, known, windows, modules or {}
    )


def encoder(values: Values) -> AbstractAttention:
    """Attention of an encoder: every token sees all, and nothing is cached."""
    return GroupedQueryAttention(values["heads"], values["heads"], values["head_dim"], causal=0.0, cached=False)
