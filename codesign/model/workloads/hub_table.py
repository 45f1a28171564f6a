"""Table of published architectures and how to read them: entries made of the builders of layers, each of a few lines.

A plug-in adds its own: `ARCHITECTURES["TheirForCausalLM"] = general(...)` in the module that its entry point names.
"""

from collections.abc import Callable
from typing import Any

from .attention import AbstractAttention, GroupedQueryAttention
from .feed_forward import AbstractFeedForward, DenseFeedForward
from .hub_architectures import ARCHITECTURES as EXACT
from .hub_architectures import (
    DEEPSEEK,
    EVERY_HEAD,
    FOURTH,
    SIDE_BY_SIDE,
    SPARSE,
    Architecture,
    gated_delta,
    mixture,
    per_head,
    sparse,
)
from .hub_kinds import (
    block_sparse,
    compressed,
    delta_and_latent,
    every_nth_is_full,
    full_and_local,
    heads_of,
    latent_of,
    one_mixer_a_layer,
    one_network_a_layer,
    searched_attention,
    searched_feed_forward,
)

# Architectures read by their keys: each number has several names in published configurations, and one meaning.
#
# `general(...)` makes an entry of the table of an architecture that has no layers of its own kind; what it changes is
# a default or a builder.


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
    synonyms = {name: (key,) for name, key in (names or {}).items()}
    all_names = SYNONYMS | synonyms
    return Architecture(
        attention,
        feed_forward,
        read,
        DEFAULTS | defaults,
        norm_vectors,
        ignored,
        inside,
        all_names,
        windows,
        modules or {},
    )


def encoder(values: Values) -> AbstractAttention:
    """Attention of an encoder: every token sees all, and nothing is cached."""
    return GroupedQueryAttention(values["heads"], values["heads"], values["head_dim"], causal=0.0, cached=False)


PLAIN = general()
TIED = general(tied=True)
NO_GATE = {"gated": 0.0, "norm_vectors": 2.0}
GEMMA3 = general(
    full_and_local, windows=False, tied=True, vocab=262208, hidden=2304, layers=26, heads=8, kv_heads=4, head_dim=256,
    width=9216, window=4096, period=6, kinds=every_nth_is_full,
    names={"period": "sliding_window_pattern", "window": "sliding_window"},
)  # fmt: skip
GEMMA4 = general(
    full_and_local, windows=False, tied=True, vocab=262144, hidden=2304, layers=30, heads=8, kv_heads=4, head_dim=256,
    width=9216, window=512, period=6, kinds=every_nth_is_full, keys_are_values=0.0,
    shared_width=lambda values: values["width"] if values.get("experts") else 0,
    names={
        "window": "sliding_window", "global_head_dim": "global_head_dim",
        "global_kv_heads": "num_global_key_value_heads", "keys_are_values": "attention_k_eq_v",
    },
    modules={"experts": ("experts.0.gate_proj",), "shared_experts": ("mlp.gate_proj",)},
)  # fmt: skip
BERT = general(
    encoder, tied=True, vocab=30522, hidden=768, layers=12, heads=12, width=3072, **NO_GATE,
    names={"positions": "max_position_embeddings", "token_kinds": "type_vocab_size"}, positions=512, token_kinds=2,
    pooler=lambda values: values["hidden"],
    windows=False,
)  # fmt: skip
MIMO_FLASH = general(
    full_and_local, windows=False,
    names={
        "kinds": "hybrid_layer_pattern", "window": "sliding_window", "value_dim": "v_head_dim",
        "local_heads": "swa_num_attention_heads", "local_kv_heads": "swa_num_key_value_heads",
        "local_head_dim": "swa_head_dim", "local_value_dim": "swa_v_head_dim",
    },
)  # fmt: skip
KIMI_LINEAR = general(
    delta_and_latent, mixture, windows=False, gate=0.0, latent=None, convolution=4, full_gate=0.0, q_rank=0,
    names={
        "linear_heads": "linear_attn_config.num_heads", "linear_key_dim": "linear_attn_config.head_dim",
        "convolution": "linear_attn_config.short_conv_kernel_size", "gate": "mla_use_output_gate",
        "full_gate": "linear_attn_config.use_full_rank_gate", "latent": "routed_expert_hidden_size",
        "full_layers": "linear_attn_config.full_attn_layers",
    },
    modules={"linear_attention": ("self_attn.q_proj",)},
)  # fmt: skip
NEMOTRON_H = general(
    one_mixer_a_layer, one_network_a_layer, windows=False, gated=0.0, chunk=128, convolution=4, latent=None,
    shared_experts=0, shared_width=0, expert_width=0, experts=0, top_k=0,
    names={
        "pattern": "hybrid_override_pattern", "linear_heads": "mamba_num_heads", "linear_key_heads": "n_groups",
        "linear_key_dim": "ssm_state_size", "linear_value_dim": "mamba_head_dim", "convolution": "conv_kernel",
        "chunk": "chunk_size", "latent": "moe_latent_size",
    },
)  # fmt: skip
DEEPSEEK_V4 = Architecture(
    compressed, mixture,
    {
        name: key for name, key in DEEPSEEK.items()
        if name not in ("kv_rank", "nope_dim", "rope_dim", "v_dim", "width", "first_dense", "sparse_period")
    } | {
        "head_dim": "head_dim", "out_groups": "o_groups", "out_rank": "o_lora_rank", "window": "sliding_window",
        "ratios": "compress_ratios", "selected": "index_topk", "index_heads": "index_n_heads",
        "index_dim": "index_head_dim",
    },
    SPARSE | {"tied": False, "dropout": 0.0, "width": 0}, windows=False,
    ignored=("the streams of its residual connections (hyper-connections)",),
)  # fmt: skip
MINIMAX_M3 = general(
    block_sparse, windows=False,
    names={
        "index_heads": "sparse_attention_config.sparse_num_index_heads",
        "index_dim": "sparse_attention_config.sparse_index_dim",
        "index_block": "sparse_attention_config.sparse_block_size",
        "index_blocks": "sparse_attention_config.sparse_topk_blocks",
        "sparse_layers": "sparse_attention_config.sparse_attention_freq",
    },
)  # fmt: skip
DECI = general(
    searched_attention, searched_feed_forward, windows=False, kv_heads=lambda values: values["heads"],
    names={"blocks": "block_configs"},
)  # fmt: skip
STEP3 = general(
    full_and_local, windows=False, names={"window": "sliding_window", "local_heads": "num_sliding_attention_heads"}
)
FALCON = general(ignored=(SIDE_BY_SIDE,), kv_heads=lambda values: 1, **NO_GATE)
COHERE = general(tied=True, ignored=(SIDE_BY_SIDE,))
PHI = general(ignored=(SIDE_BY_SIDE,), **NO_GATE)

ARCHITECTURES: dict[str, Architecture] = {
    **EXACT,
    **dict.fromkeys(
        (
            "Phi3ForCausalLM", "PhiMoEForCausalLM", "OlmoForCausalLM", "Olmo2ForCausalLM", "Olmo3ForCausalLM",
            "OlmoeForCausalLM", "GraniteForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM",
            "GlmForCausalLM", "Glm4ForCausalLM", "Glm4MoeLiteForCausalLM", "InternLM2ForCausalLM",
            "InternLM3ForCausalLM", "InternLMForCausalLM", "ExaoneForCausalLM", "Exaone4ForCausalLM",
            "ExaoneMoEForCausalLM", "HunYuanDenseV1ForCausalLM", "HunYuanMoEV1ForCausalLM", "HYV3ForCausalLM",
            "SeedOssForCausalLM", "SmolLM3ForCausalLM", "ArceeForCausalLM", "SolarForCausalLM", "YiForCausalLM",
            "BaichuanForCausalLM", "AquilaForCausalLM", "OrionForCausalLM", "DeepseekForCausalLM",
            "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM", "Dots1ForCausalLM", "AfmoeForCausalLM",
            "Ernie4_5_MoeForCausalLM", "Ernie4_5_MoEForCausalLM", "MistralLarge3ForCausalLM", "MinistralForCausalLM",
            "Ministral3ForCausalLM", "ApertusForCausalLM", "FlexOlmoForCausalLM", "Lfm2ForCausalLM",
            "TeleChat2ForCausalLM", "XverseForCausalLM", "StableLmForCausalLM", "MiniCPMForCausalLM",
            "MiniCPM3ForCausalLM", "LongcatFlashForCausalLM", "Qwen2VLForConditionalGeneration",
            "Qwen2_5_VLForConditionalGeneration", "SolarOpenForCausalLM", "MellumForCausalLM", "JetMoeForCausalLM",
        ),
        PLAIN,
    ),
    **dict.fromkeys(("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM", "GemmaForCausalLM"), TIED),
    "Gemma2ForCausalLM": general(
        full_and_local, windows=False, tied=True, period=2, kinds=every_nth_is_full, window=4096,
        names={"window": "sliding_window"},
    ),
    **dict.fromkeys(("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"), GEMMA3),
    **dict.fromkeys(("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"), GEMMA4),
    **dict.fromkeys(
        (
            "BertModel", "BertForMaskedLM", "BertForSequenceClassification", "RobertaModel", "RobertaForMaskedLM",
            "XLMRobertaModel", "XLMRobertaForSequenceClassification", "XLMRobertaForMaskedLM",
        ),
        BERT,
    ),
    "FalconForCausalLM": FALCON,
    "RWForCausalLM": FALCON,
    **dict.fromkeys(("CohereForCausalLM", "Cohere2ForCausalLM"), COHERE),
    "PhiForCausalLM": PHI,
    "ChatGLMModel": PLAIN,
    "ChatGLMForConditionalGeneration": PLAIN,
    "Llama4ForCausalLM": EXACT["Llama4ForConditionalGeneration"]._replace(inside=""),
    "Qwen3_5ForCausalLM": EXACT["Qwen3_5ForConditionalGeneration"]._replace(inside=""),
    "Qwen3_5MoeForCausalLM": EXACT["Qwen3_5MoeForConditionalGeneration"]._replace(inside=""),
    "BloomForCausalLM": general(tied=True, **NO_GATE),
    "OPTForCausalLM": general(tied=True, names={"positions": "max_position_embeddings"}, **NO_GATE),
    "MPTForCausalLM": general(tied=True, **NO_GATE),
    "DbrxForCausalLM": general(
        names={
            "kv_heads": "attn_config.kv_n_heads", "experts": "ffn_config.moe_num_experts",
            "top_k": "ffn_config.moe_top_k", "expert_width": "ffn_config.ffn_hidden_size",
        },
    ),
    "GPTBigCodeForCausalLM": general(tied=True, kv_heads=1, dropout=0.0, **NO_GATE),
    "Starcoder2ForCausalLM": general(tied=True, **NO_GATE),
    "NemotronForCausalLM": general(**NO_GATE),
    "NemotronHForCausalLM": NEMOTRON_H,
    "DeciLMForCausalLM": DECI,
    "DeepseekV4ForCausalLM": DEEPSEEK_V4,
    **dict.fromkeys(
        ("MiniMaxM3ForCausalLM", "MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"), MINIMAX_M3
    ),
    **dict.fromkeys(("MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM"), EXACT["MiniMaxM2ForCausalLM"]),
    "MiMoV2FlashForCausalLM": MIMO_FLASH,
    **dict.fromkeys(("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration"), KIMI_LINEAR),
    **dict.fromkeys(
        ("Step3p5ForCausalLM", "Step3p7ForCausalLM", "Step3p7FlashForCausalLM", "Step3p7ForConditionalGeneration"),
        STEP3,
    ),
}  # fmt: skip


def by_model_type(kind: Any) -> str | None:
    """The causal language model of a `model_type`, as `qwen3_moe` is Qwen3MoeForCausalLM's."""
    if not isinstance(kind, str):
        return None
    bare = kind.lower().removesuffix("_text").replace("_", "").replace("-", "")
    for ending in ("forcausallm", "forconditionalgeneration", "model"):
        for name in ARCHITECTURES:
            if name.lower().replace("_", "") == bare + ending:
                return name
    return {"nemotronnas": "DeciLMForCausalLM", "gptbigcode": "GPTBigCodeForCausalLM"}.get(bare)
