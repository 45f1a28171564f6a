"""Models as their hubs publish them: a `config.json` becomes a `Transformer`.

Each architecture is one entry of `ARCHITECTURES`: which key of the file holds which of our numbers, and who builds
attention and feed-forward from them. A new architecture is a new entry. What changes a model's cost but has no number
here (attention windows, multi-token prediction, parallel residuals) is named in one warning.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ConfigError
from ..foreign import read_json
from .attention import AbstractAttention, GroupedQueryAttention, LatentAttention
from .feed_forward import AbstractFeedForward, DenseFeedForward, MixtureOfExperts
from .transformer import Transformer

LARGEST = 10**9  # no published size is near it; beyond it a number is a mistake
MOST_LAYERS = 10_000
MAY_BE_ZERO = {"q_rank", "rope_dim", "shared_experts", "shared_width", "first_dense"}
NULL_IS_ZERO = {"q_rank", "shared_experts"}  # how the file says "none of it"

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
    """

    attention: Callable[[Values], AbstractAttention]
    feed_forward: Callable[[Values], AbstractFeedForward]
    names: dict[str, str]
    defaults: dict[str, Any]
    norm_vectors: float = 1.0
    ignored: tuple[str, ...] = ()


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

PLAIN = {"tied": False, "dropout": 0.0}
EVERY_HEAD = PLAIN | {"kv_heads": lambda values: values["heads"], "head_dim": _per_head}
GPT2_PLAIN = EVERY_HEAD | {"width": lambda values: 4 * values["hidden"]}
UNIFORM = {"shared_experts": 0, "shared_width": 0, "first_dense": 0, "sparse_step": 1, "sparse_period": 1}
SPARSE = UNIFORM | {"dense_list": []}
LOCAL = EVERY_HEAD | SPARSE | {"width": 0}
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
}


def _windowed(config: Values) -> bool:
    """Whether the file asks for attention windows that are shorter than the context it allows."""
    window, longest = config.get("sliding_window"), config.get("max_position_embeddings")
    if not isinstance(window, int) or not config.get("use_sliding_window", True):
        return False
    return not isinstance(longest, int) or window < longest


IGNORED: dict[str, tuple[str, Callable[[Values], Any]]] = {
    "sliding_window": ("every layer is priced with full attention", _windowed),
    "attention_chunk_size": ("every layer is priced with full attention", lambda c: c.get("attention_chunk_size")),
    "num_nextn_predict_layers": ("multi-token prediction is left out", lambda c: c.get("num_nextn_predict_layers")),
    "use_parallel_residual": (SIDE_BY_SIDE, lambda c: c.get("use_parallel_residual")),
    "quantization_config": ("number formats are the workload's precision", lambda c: c.get("quantization_config")),
}
"""Keys that change what a model costs and that we do not read: key -> (what happens instead, whether it applies)."""


def _warn_of_ignored(config: Values, architecture: Architecture, name: str) -> None:
    notes = [f"{key}: {note}" for key, (note, applies) in IGNORED.items() if applies(config)]
    if notes or architecture.ignored:
        warnings.warn(f"model {name}: not modelled: {'; '.join([*notes, *architecture.ignored])}", stacklevel=3)


def _count(name: str, key: str, value: Any) -> int:
    low, high = int(name not in MAY_BE_ZERO), MOST_LAYERS if name == "layers" else LARGEST
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{key} = {value!r} is not a whole number in [{low}, {high}]")
    return value


def _flag(name: str, key: str, value: Any) -> float:
    if not isinstance(value, bool):
        raise ConfigError(f"{key} = {value!r} is not true or false")
    return float(value)


def _share(name: str, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ConfigError(f"{key} = {value!r} is not a number in [0, 1)")
    return float(value)


def _layer_numbers(name: str, key: str, value: Any) -> set[int]:
    if not isinstance(value, list) or not all(type(layer) is int and layer >= 0 for layer in value):
        raise ConfigError(f"{key} = {value!r} is not a list of layer numbers")
    return set(value)


CHECKS: dict[str, Callable[[str, str, Any], Any]] = {"tied": _flag, "dropout": _share, "dense_list": _layer_numbers}


def _read(config: Values, architecture: Architecture) -> Values:
    """Every number of the architecture, from the file or from its default."""
    values: Values = {}
    for name, key in architecture.names.items():
        value = config.get(key)
        if value is None and key in config and name in NULL_IS_ZERO:
            value = 0
        if value is not None:
            values[name] = CHECKS.get(name, _count)(name, key, value)
        elif name not in architecture.defaults:
            raise ConfigError(f"{key} is missing")
    for name, default in architecture.defaults.items():
        if name not in values:
            values[name] = default(values) if callable(default) else default
    return values


def _architecture(config: Values) -> Architecture:
    """The table entry that the file names.

    Raises:
        ConfigError: no architecture named, or one that is not known.
    """
    named = config.get("architectures")
    if not isinstance(named, list) or len(named) != 1 or not isinstance(named[0], str):
        raise ConfigError(f"architectures = {named!r} does not name one architecture")
    if named[0] not in ARCHITECTURES:
        raise ConfigError(f"architecture {named[0]!r} is not known (known: {', '.join(sorted(ARCHITECTURES))})")
    return ARCHITECTURES[named[0]]


def transformer_from_dict(config: Any, name: str) -> Transformer:
    """The model that a published configuration describes.

    Args:
        config: the parsed `config.json`.
        name: what to call the model.

    Raises:
        ConfigError: not an object, an unknown architecture, a missing field or a senseless value.
    """
    try:
        if not isinstance(config, dict):
            raise ConfigError("not a JSON object")
        architecture = _architecture(config)
        values = _read(config, architecture)
        attention, feed_forward = architecture.attention(values), architecture.feed_forward(values)
    except ConfigError as error:
        raise ConfigError(f"model {name}: {error}") from None
    _warn_of_ignored(config, architecture, name)
    return Transformer(
        name=name,
        hidden=values["hidden"],
        layers=values["layers"],
        attention=attention,
        feed_forward=feed_forward,
        vocab=values["vocab"],
        tied_embeddings=values["tied"],
        norm_vectors=architecture.norm_vectors,
        dropout=values["dropout"] > 0,
    )


def from_config_json(path: str | Path) -> Transformer:
    """The model that a hub's `config.json` (or the folder it lies in) describes.

    Raises:
        ConfigError: the file is missing, is not JSON, or describes no model we know.
    """
    file = Path(str(path))
    file = file / "config.json" if file.is_dir() else file
    config = read_json(file, f"model path {str(path)!r}")
    return transformer_from_dict(config, file.resolve().parent.name if file.name == "config.json" else file.stem)
