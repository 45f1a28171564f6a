"""Published architectures: which key of a `config.json` holds which of our numbers, and what is built from them.

A new architecture is a new entry of `ARCHITECTURES`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ...core.errors import ConfigError
from .attention import AbstractAttention
from .feed_forward import AbstractFeedForward, DenseFeedForward, MixtureOfExperts
from .hub_kinds import experts_listed, heads_of, latent_of, lightning, shared_index
from .linear_attention import AlternatingAttention, LinearAttention
from .sparse_attention import SparseAttention

Values = dict[str, Any]


def per_head(values: Values) -> float:
    """Head dimension of a file that does not state it.

    Raises:
        ConfigError: the heads do not divide the hidden size.
    """
    if values["hidden"] % values["heads"]:
        raise ConfigError(
            f"hidden size {values['hidden']} is not a multiple of {values['heads']} heads, and head_dim is not given"
        )
    return values["hidden"] // values["heads"]


def grouped_query(values: Values) -> AbstractAttention:
    """Multi-head, grouped-query and multi-query attention in one fused kernel."""
    return heads_of(values)


def latent(values: Values) -> AbstractAttention:
    """Multi-head latent attention."""
    return latent_of(values)


def sparse(values: Values) -> AbstractAttention:
    """Multi-head latent attention to what an indexer chooses."""
    return SparseAttention(latent_of(values), values["selected"], values["index_heads"], values["index_dim"])


def alternating(linear: LinearAttention, kind: str, values: Values) -> AbstractAttention:
    """Grouped-query attention, with `linear` in the layers that the file lists as `kind`.

    Raises:
        ConfigError: not one kind a layer.
    """
    kinds = values["kinds"]
    if len(kinds) != values["layers"]:
        raise ConfigError(f"layer_types names {len(kinds)} of {values['layers']} layers")
    return AlternatingAttention(grouped_query(values), linear, kinds.count(kind) / len(kinds))


def gated_delta(values: Values) -> AbstractAttention:
    """Gated delta rule in most layers."""
    names = ("linear_heads", "linear_key_heads", "linear_key_dim", "linear_value_dim", "convolution")
    return alternating(LinearAttention(*(values[name] for name in names)), "linear_attention", values)


def state_space(values: Values) -> AbstractAttention:
    """Mamba-2 in most layers."""
    names = ("linear_heads", "linear_key_heads", "linear_key_dim", "linear_value_dim", "convolution", "chunk")
    return alternating(LinearAttention(*(values[name] for name in names), delta=False), "mamba", values)


def every_fourth_is_full(values: Values) -> list[str]:
    """Kinds of layers of a file that states how often one is full, or nothing."""
    every = values["interval"]
    return ["full_attention" if (layer + 1) % every == 0 else "linear_attention" for layer in range(values["layers"])]


def state_value_dim(values: Values) -> int:
    """Value dimension of state-space heads that share the expanded hidden size."""
    return values["expand"] * values["hidden"] // values["linear_heads"]


def gelu(values: Values) -> AbstractFeedForward:
    """Two matrices."""
    return DenseFeedForward(values["width"], gated=0.0)


def swiglu(values: Values) -> AbstractFeedForward:
    """Three matrices, one of them a gate."""
    return DenseFeedForward(values["width"], gated=1.0)


def dense_layers(values: Values) -> int:
    """Layers without experts: the first ones, the listed ones, and those that flags or periods leave out."""
    if values.get("sparse_flags") is not None:
        return experts_listed(values).count(False)
    if isinstance(values["sparse_period"], list):
        return experts_listed(values | {"sparse_flags": values["sparse_period"]}).count(False)

    def sparse(layer: int) -> bool:
        listed, early = layer in values["dense_list"], layer < values["first_dense"]
        return not (listed or early or (layer + 1) % values["sparse_step"] or layer % values["sparse_period"])

    return values["layers"] - sum(sparse(layer) for layer in range(values["layers"]))


def mixture(values: Values) -> AbstractFeedForward:
    """Routed and shared SwiGLU experts, some layers dense."""
    if values["top_k"] > values["experts"]:
        raise ConfigError(f"a token cannot visit {values['top_k']} of {values['experts']} experts")
    dense = dense_layers(values)
    if dense and not values["width"]:
        raise ConfigError(f"intermediate_size is missing, and {dense} layers have no experts")
    shared, width = values["shared_experts"], values["shared_width"] / values["expert_width"]
    return MixtureOfExperts(
        values["experts"],
        values["top_k"],
        values["expert_width"],
        shared_experts=(shared or 1) * width if width else shared,
        gated=float(values.get("gated", 1.0)),
        dense_layers=dense,
        dense_width=values["width"] if dense else 0.0,
        latent=values.get("latent"),
    )


NOTHING: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class Architecture(NamedTuple):
    """Reading rules of one published architecture.

    `names`: our number -> the file's key. `defaults`: our number -> its value where the file says nothing or null (a
    function reads it off the numbers before it). `ignored`: what every model of this architecture has and we do not.
    `inside`: the key under which all of it stands. `synonyms`: our number -> keys in the order in which they are asked.
    `windows`: whether windows are read from the keys that all architectures share, or its `attention` has them.
    `modules`: class of weights -> names of its modules, where they are not those of `hub_formats.MODULES`.
    """

    attention: Callable[[Values], AbstractAttention]
    feed_forward: Callable[[Values], AbstractFeedForward]
    names: dict[str, str]
    defaults: dict[str, Any]
    norm_vectors: float = 1.0
    ignored: tuple[str, ...] = ()
    inside: str = ""
    synonyms: Mapping[str, tuple[str, ...]] = NOTHING
    windows: bool = True
    modules: Mapping[str, tuple[str, ...]] = NOTHING


NAMES = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "vocab": "vocab_size",
    "tied": "tie_word_embeddings",
}
GROUPED = NAMES | {"kv_heads": "num_key_value_heads", "head_dim": "head_dim", "width": "intermediate_size"}
GPT2_NAMES = {
    "hidden": "n_embd",
    "layers": "n_layer",
    "heads": "n_head",
    "width": "n_inner",
    "vocab": "vocab_size",
    "tied": "tie_word_embeddings",
    "dropout": "resid_pdrop",
}
QWEN_MOE = GROUPED | {
    "experts": "num_experts",
    "top_k": "num_experts_per_tok",
    "expert_width": "moe_intermediate_size",
    "sparse_step": "decoder_sparse_step",
    "dense_list": "mlp_only_layers",
}
LOCAL_EXPERTS = {name: key for name, key in GROUPED.items() if name != "width"} | {
    "experts": "num_local_experts",
    "top_k": "num_experts_per_tok",
    "expert_width": "intermediate_size",
}
DEEPSEEK = NAMES | {
    "q_rank": "q_lora_rank",
    "kv_rank": "kv_lora_rank",
    "nope_dim": "qk_nope_head_dim",
    "rope_dim": "qk_rope_head_dim",
    "v_dim": "v_head_dim",
    "width": "intermediate_size",
    "experts": "n_routed_experts",
    "shared_experts": "n_shared_experts",
    "top_k": "num_experts_per_tok",
    "expert_width": "moe_intermediate_size",
    "first_dense": "first_k_dense_replace",
    "sparse_period": "moe_layer_freq",
}

SPARSE_DEEPSEEK = DEEPSEEK | {
    "selected": "index_topk",
    "index_heads": "index_n_heads",
    "index_dim": "index_head_dim",
}
GLM_MOE = GROUPED | {
    "experts": "n_routed_experts",
    "shared_experts": "n_shared_experts",
    "top_k": "num_experts_per_tok",
    "expert_width": "moe_intermediate_size",
    "first_dense": "first_k_dense_replace",
}
LLAMA4 = GROUPED | {
    "width": "intermediate_size_mlp",
    "experts": "num_local_experts",
    "top_k": "num_experts_per_tok",
    "expert_width": "intermediate_size",
    "sparse_step": "interleave_moe_layer_step",
}
MINIMAX = LOCAL_EXPERTS | {"shared_width": "shared_intermediate_size", "attention_list": "attn_type_list"}
DELTA = {
    "kinds": "layer_types",
    "interval": "full_attention_interval",
    "linear_heads": "linear_num_value_heads",
    "linear_key_heads": "linear_num_key_heads",
    "linear_key_dim": "linear_key_head_dim",
    "linear_value_dim": "linear_value_head_dim",
    "convolution": "linear_conv_kernel_dim",
    "gate": "attn_output_gate",
}
QWEN_NEXT = QWEN_MOE | DELTA | {"shared_width": "shared_expert_intermediate_size"}
GRANITE_HYBRID = LOCAL_EXPERTS | {
    "shared_width": "shared_intermediate_size",
    "kinds": "layer_types",
    "linear_heads": "mamba_n_heads",
    "linear_key_heads": "mamba_n_groups",
    "linear_key_dim": "mamba_d_state",
    "linear_value_dim": "mamba_d_head",
    "convolution": "mamba_d_conv",
    "chunk": "mamba_chunk_size",
    "expand": "mamba_expand",
}

PLAIN = {"tied": False, "dropout": 0.0}
EVERY_HEAD = PLAIN | {"kv_heads": lambda values: values["heads"], "head_dim": per_head}
GPT2_PLAIN = EVERY_HEAD | {"width": lambda values: 4 * values["hidden"]}
UNIFORM = {"shared_experts": 0, "shared_width": 0, "first_dense": 0, "sparse_step": 1, "sparse_period": 1}
SPARSE = UNIFORM | {"dense_list": []}
LOCAL = EVERY_HEAD | SPARSE | {"width": 0}
FOURTH = {"interval": 4, "kinds": every_fourth_is_full}
GATED = FOURTH | {"gate": 1.0}
SIDE_BY_SIDE = "attention and feed-forward side by side (priced one after the other)"


LLAMA = Architecture(grouped_query, swiglu, GROUPED, EVERY_HEAD)
QWEN3_MOE = Architecture(grouped_query, mixture, QWEN_MOE, EVERY_HEAD | SPARSE)
DEEPSEEK_V3 = Architecture(latent, mixture, DEEPSEEK, PLAIN | SPARSE)
ARCHITECTURES = {
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": LLAMA,
    "Qwen2ForCausalLM": LLAMA,
    "Qwen3ForCausalLM": LLAMA,
    "MiMoForCausalLM": LLAMA,
    "Qwen3VLForConditionalGeneration": LLAMA._replace(inside="text_config"),
    "GPT2LMHeadModel": Architecture(grouped_query, gelu, GPT2_NAMES, GPT2_PLAIN | {"tied": True}, norm_vectors=2.0),
    "GPTJForCausalLM": Architecture(
        grouped_query, gelu, GPT2_NAMES, GPT2_PLAIN, norm_vectors=2.0, ignored=(SIDE_BY_SIDE,)
    ),
    "GPTNeoXForCausalLM": Architecture(
        grouped_query,
        gelu,
        NAMES | {"width": "intermediate_size", "dropout": "hidden_dropout"},
        EVERY_HEAD,
        norm_vectors=2.0,
    ),
    "MixtralForCausalLM": Architecture(grouped_query, mixture, LOCAL_EXPERTS, LOCAL),
    "GptOssForCausalLM": Architecture(grouped_query, mixture, LOCAL_EXPERTS, LOCAL),
    "Qwen2MoeForCausalLM": Architecture(
        grouped_query, mixture, QWEN_MOE | {"shared_width": "shared_expert_intermediate_size"}, EVERY_HEAD | SPARSE
    ),
    "Qwen3MoeForCausalLM": QWEN3_MOE,
    "Qwen3VLMoeForConditionalGeneration": QWEN3_MOE._replace(inside="text_config"),
    "DeepseekV2ForCausalLM": Architecture(latent, mixture, DEEPSEEK, PLAIN | SPARSE),
    "DeepseekV3ForCausalLM": DEEPSEEK_V3,
    "KimiK25ForConditionalGeneration": DEEPSEEK_V3._replace(inside="text_config"),
    "DeepseekV32ForCausalLM": Architecture(sparse, mixture, SPARSE_DEEPSEEK, PLAIN | SPARSE),
    "GlmMoeDsaForCausalLM": Architecture(
        shared_index,
        mixture,
        SPARSE_DEEPSEEK | {"indexers": "indexer_types"},
        PLAIN | SPARSE | {"indexers": lambda values: ["full"] * values["layers"]},
    ),
    "MiniMaxM2ForCausalLM": Architecture(lightning, mixture, MINIMAX, LOCAL | {"attention_list": [1]}),
    "Glm4MoeForCausalLM": Architecture(grouped_query, mixture, GLM_MOE, EVERY_HEAD | SPARSE),
    "Llama4ForConditionalGeneration": Architecture(
        grouped_query,
        mixture,
        LLAMA4,
        EVERY_HEAD | SPARSE | {"shared_experts": 1},
        inside="text_config",
    ),
    "Qwen3NextForCausalLM": Architecture(gated_delta, mixture, QWEN_NEXT, EVERY_HEAD | SPARSE | GATED),
    "Qwen3_5ForConditionalGeneration": Architecture(
        gated_delta, swiglu, GROUPED | DELTA, EVERY_HEAD | GATED, inside="text_config"
    ),
    "Qwen3_5MoeForConditionalGeneration": Architecture(
        gated_delta,
        mixture,
        QWEN_NEXT,
        EVERY_HEAD | SPARSE | GATED | {"width": 0},
        inside="text_config",
    ),
    "GraniteMoeHybridForCausalLM": Architecture(
        state_space, mixture, GRANITE_HYBRID, LOCAL | {"expand": 2, "linear_value_dim": state_value_dim, "chunk": 256}
    ),
}
