"""Published architectures: which key of a `config.json` holds which of our numbers, and what is built from them.

A new architecture is a new entry of `ARCHITECTURES`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ...core.errors import ConfigError
from .attention import AbstractAttention, GroupedQueryAttention, LatentAttention
from .feed_forward import AbstractFeedForward, DenseFeedForward, MixtureOfExperts
from .linear_attention import AlternatingAttention, LinearAttention
from .sparse_attention import SparseAttention

Values = dict[str, Any]


def _per_head(values: Values) -> float:
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
    heads, kv_heads = values["heads"], values["kv_heads"]
    if kv_heads > heads or heads % kv_heads:
        raise ConfigError(f"{kv_heads} key-value heads cannot be shared evenly by {heads} query heads")
    return GroupedQueryAttention(heads, kv_heads, values["head_dim"])


def latent(values: Values) -> AbstractAttention:
    """Multi-head latent attention."""
    return LatentAttention(*(values[name] for name in ("heads", "q_rank", "kv_rank", "nope_dim", "rope_dim", "v_dim")))


def sparse(values: Values) -> AbstractAttention:
    """Multi-head latent attention to what an indexer chooses."""
    own = LatentAttention(*(values[name] for name in ("heads", "q_rank", "kv_rank", "nope_dim", "rope_dim", "v_dim")))
    return SparseAttention(own, values["selected"], values["index_heads"], values["index_dim"])


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
    """Layers without experts: the first ones, the listed ones, and those that the periods leave out."""

    def sparse(layer: int) -> bool:
        listed, early = layer in values["dense_list"], layer < values["first_dense"]
        return not (listed or early or (layer + 1) % values["sparse_step"] or layer % values["sparse_period"])

    return values["layers"] - sum(sparse(layer) for layer in range(values["layers"]))


def mixture(values: Values) -> AbstractFeedForward:
    """Routed and shared SwiGLU experts, some layers dense."""
    if values["top_k"] > values["experts"]:
        raise ConfigError(f"a token cannot visit {values['top_k']} of {values['experts']} experts")
    dense = dense_layers(values)
    return MixtureOfExperts(
        values["experts"],
        values["top_k"],
        values["expert_width"],
        shared_experts=values["shared_experts"] + values["shared_width"] / values["expert_width"],
        dense_layers=dense,
        dense_width=values["width"] if dense else 0.0,
    )


class Architecture(NamedTuple):
    """How one published architecture is read.

    `names`: our number -> the file's key. `defaults`: our number -> its value where the file says nothing or null (a
    function reads it off the numbers before it). `ignored`: what every model of this architecture has and we do not.
    `inside`: the key under which all of it stands.
    """

    attention: Callable[[Values], AbstractAttention]
    feed_forward: Callable[[Values], AbstractFeedForward]
    names: dict[str, str]
    defaults: dict[str, Any]
    norm_vectors: float = 1.0
    ignored: tuple[str, ...] = ()
    inside: str = ""


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
QWEN_NEXT = QWEN_MOE | {
    "shared_width": "shared_expert_intermediate_size",
    "kinds": "layer_types",
    "interval": "full_attention_interval",
    "linear_heads": "linear_num_value_heads",
    "linear_key_heads": "linear_num_key_heads",
    "linear_key_dim": "linear_key_head_dim",
    "linear_value_dim": "linear_value_head_dim",
    "convolution": "linear_conv_kernel_dim",
}
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
EVERY_HEAD = PLAIN | {"kv_heads": lambda values: values["heads"], "head_dim": _per_head}
GPT2_PLAIN = EVERY_HEAD | {"width": lambda values: 4 * values["hidden"]}
UNIFORM = {"shared_experts": 0, "shared_width": 0, "first_dense": 0, "sparse_step": 1, "sparse_period": 1}
SPARSE = UNIFORM | {"dense_list": []}
LOCAL = EVERY_HEAD | SPARSE | {"width": 0}
FOURTH = {"interval": 4, "kinds": every_fourth_is_full}
SIDE_BY_SIDE = "attention and feed-forward side by side (priced one after the other)"


LLAMA = Architecture(grouped_query, swiglu, GROUPED, EVERY_HEAD)
ARCHITECTURES = {
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": LLAMA,
    "Qwen2ForCausalLM": LLAMA,
    "Qwen3ForCausalLM": LLAMA,
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
    "Qwen3MoeForCausalLM": Architecture(grouped_query, mixture, QWEN_MOE, EVERY_HEAD | SPARSE),
    "DeepseekV2ForCausalLM": Architecture(latent, mixture, DEEPSEEK, PLAIN | SPARSE),
    "DeepseekV3ForCausalLM": Architecture(latent, mixture, DEEPSEEK, PLAIN | SPARSE),
    "DeepseekV32ForCausalLM": Architecture(sparse, mixture, SPARSE_DEEPSEEK, PLAIN | SPARSE),
    "Glm4MoeForCausalLM": Architecture(grouped_query, mixture, GLM_MOE, EVERY_HEAD | SPARSE),
    "Llama4ForConditionalGeneration": Architecture(
        grouped_query,
        mixture,
        LLAMA4,
        EVERY_HEAD | SPARSE | {"shared_experts": 1},
        ignored=("the vision part",),
        inside="text_config",
    ),
    "Qwen3NextForCausalLM": Architecture(
        gated_delta, mixture, QWEN_NEXT, EVERY_HEAD | SPARSE | FOURTH, ignored=("the gate on full attention's output",)
    ),
    "GraniteMoeHybridForCausalLM": Architecture(
        state_space, mixture, GRANITE_HYBRID, LOCAL | {"expand": 2, "linear_value_dim": state_value_dim, "chunk": 256}
    ),
}
