"""Models as their hubs publish them: a `config.json` becomes a `Transformer`.

`hub_table` says how each architecture is read; what may stand in any file, a vision encoder and number formats, is read
here. Windows and chunks of attention are read here, for they stand in the same keys whatever the
architecture. What changes a model's cost but has no number here (parallel residuals) is named in one warning.
"""

import math
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError, suggestion
from ...core.untrusted_io import read_json
from .attention import AbstractAttention
from .feed_forward import AbstractFeedForward, MixtureOfExperts
from .hub_architectures import SIDE_BY_SIDE, Architecture, Values
from .hub_formats import formats_of
from .hub_table import ARCHITECTURES, by_model_type, general
from .number_formats import CLASSES
from .sparse_attention import LocalAttention
from .transformer import ExtraEmbeddings, Transformer, VisionEncoder

# Vision encoders of published configurations: the numbers under `vision_config`, by the names of their makers.


VISION_CONFIGS = ("vision_config", "vision_tower_config")

KEYS = {
    "hidden": ("hidden_size", "embed_dim", "vt_hidden_size", "width"),
    "layers": ("num_hidden_layers", "depth", "vt_num_hidden_layers", "layers"),
    "width": ("intermediate_size", "vt_intermediate_size"),
    "heads": ("num_attention_heads", "num_heads", "vt_num_attention_heads", "heads"),
    "head_dim": ("head_dim",),
    "attention_width": ("qkv_hidden_size",),
    "patch": ("patch_size", "spatial_patch_size"),
    "channels": ("in_channels", "num_channels", "in_chans"),
    "frames": ("temporal_patch_size",),
    "image": ("image_size",),
    "positions": ("num_position_embeddings", "position_embedding_size"),
    "tokens": ("default_output_length",),
    "rows": ("init_pos_emb_height",),
    "columns": ("init_pos_emb_width",),
    "out": ("out_hidden_size", "text_hidden_size", "projection_dim"),
}
GATED = {"gemma4_vision", "qwen2_5_vl", "pixtral"}
"""Kinds of encoder whose feed-forward networks have a gate; others say so by `hidden_act: silu`."""

LARGEST_OF_IMAGES = 10**7

HEAD = 64
"""Width of a head where a file says none: that of ViT-Base and ViT-Large. Source: [dosovitskiy2021], table 1."""


def _vision_count(config: Values, name: str) -> int | None:
    """A number of the encoder, by any of its names.

    Raises:
        ConfigError: no whole number of at least 1.
    """
    for key in KEYS[name]:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, list) and value and len(set(map(str, value))) == 1:
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_OF_IMAGES:
            raise ConfigError(f"vision_config.{key} = {value!r} is not a whole number in [1, {LARGEST_OF_IMAGES}]")
        return value
    return None


def _merge(config: Values, outer: Values) -> int:
    """Patches that become one token, the square of a side."""
    result = (config.get(key) for key in ("spatial_merge_size", "merge_kernel_size", "pooling_kernel_size"))
    kernel = next((value for value in (*result, outer.get("spatial_merge_size")) if value is not None), None)
    shuffled = config.get("pixel_shuffle_ratio")
    if kernel is None and isinstance(shuffled, float) and 1 / 64 <= shuffled <= 1:
        kernel = round(1 / shuffled)
    packed = config.get("img_token_compression_config")
    if kernel is None and isinstance(packed, dict):
        kernel = packed.get("spatial_merge_size")
    sides = kernel if isinstance(kernel, list) else [kernel, kernel]
    sides = [1 if side is None else side for side in sides]
    if not all(type(side) is int and 1 <= side <= 64 for side in sides):
        raise ConfigError(f"vision_config.spatial_merge_size = {kernel!r} is not a whole number in [1, 64]")
    return math.prod(sides)


def _patches(config: Values, numbers: dict[str, int | None], patch: int, merge: int) -> int:
    """Patches of an image: of the size that a file states, of the tokens that it asks for, or the grid of positions.

    Images of other sizes have others (`model.image_patches`); of a positional table that counts rows and columns
    apart the grid is not known.
    """
    if numbers["image"]:
        return (numbers["image"] // patch) ** 2
    if numbers["tokens"]:
        return numbers["tokens"] * merge
    if numbers["rows"] and numbers["columns"]:
        return numbers["rows"] * numbers["columns"]
    return numbers["positions"] or 0 if config.get("num_position_embeddings") else 0


def vision_of(config: Any, text_hidden: int) -> VisionEncoder | None:
    """The encoder that a configuration describes; none where it does not state its hidden size and layers.

    Its projection is what most have: two products round as many inputs as there are merged, again for each layer that
    also feeds the language model (`deepstack_visual_indexes`).

    Raises:
        ConfigError: numbers that are none.
    """
    result = next((config[key] for key in VISION_CONFIGS if isinstance(config.get(key), dict)), None)
    if result is None:
        return None
    numbers = {name: _vision_count(result, name) for name in KEYS}
    hidden, layers = numbers["hidden"], numbers["layers"]
    if hidden is None or layers is None:
        return None
    ratio = result.get("mlp_ratio")
    fitting = isinstance(ratio, int | float) and not isinstance(ratio, bool) and 0 < ratio < 100
    width = numbers["width"] or (round(ratio * hidden) if fitting else 4 * hidden)
    per_head = (numbers["heads"] or 0) * (numbers["head_dim"] or 0)
    merge, patch = _merge(result, config), numbers["patch"] or 14
    pooled = result.get("pooling_kernel_size") is not None  # pooled, not laid side by side
    tokens, image = config.get("mm_tokens_per_image"), numbers["image"]
    if type(tokens) is int and image and 0 < tokens <= (image // patch) ** 2:  # pooled to as many as are asked for
        merge, pooled = max((image // patch) ** 2 // tokens, 1), True
    gated = result.get("hidden_act") == "silu" or result.get("model_type") in GATED
    merged, deep = merge * hidden, result.get("deepstack_visual_indexes")
    ways = 1 + (len(deep) if isinstance(deep, list) else 0)
    projection = hidden * text_hidden if pooled else ways * merged * (merged + text_hidden)
    if result.get("model_type") == "pixtral":  # merged to the encoder's own width, then two products
        projection = (merged * hidden if merge > 1 else 0) + (hidden + text_hidden) * text_hidden
    attention_width = numbers["attention_width"] or per_head or hidden
    return VisionEncoder(
        hidden=hidden,
        layers=layers,
        width=width,
        attention_width=attention_width,
        gated=float(gated),
        patch_inputs=(numbers["channels"] or 3) * patch**2 * (numbers["frames"] or 1),
        positions=numbers["positions"] or 0,
        projection=float(projection),
        merge=merge,
        patches=_patches(result, numbers, patch, merge),
        heads=numbers["heads"] or max(attention_width // HEAD, 1),
    )


LARGEST = 10**9  # no published size is near it; beyond it a number is a mistake
MOST_LAYERS = 10_000
MAY_BE_ZERO = {
    "q_rank", "rope_dim", "shared_experts", "shared_width", "first_dense", "token_kinds", "experts", "top_k",
    "expert_width",
}  # fmt: skip
NULL_IS_ZERO = {"q_rank", "shared_experts"}  # how the file says "none of it"


def _near_layers(config: Values, layers: int, key: str) -> int:
    """Layers that attend a window (`sliding_window`) or a chunk (`attention_chunk_size`) alone."""
    kinds = config.get("layer_types")
    if kinds is not None:
        named = _names("", "layer_types", kinds)
        if len(named) != layers:
            raise ConfigError(f"layer_types names {len(named)} of {layers} layers")
        return named.count("sliding_attention" if key == "sliding_window" else "chunked_attention")
    if key == "attention_chunk_size":  # layers that know positions; every fourth does not where nothing is said
        listed: Any = _optional(config, "no_rope_layers", (list,), "a list of a 0 or 1 for each layer")
        if listed and (len(listed) != layers or not all(layer in (0, 1) for layer in listed)):
            raise ConfigError(f"no_rope_layers = {listed!r} is not a list of a 0 or 1 for each of {layers} layers")
        return sum(bool(layer) for layer in listed or [(layer + 1) % 4 for layer in range(layers)])
    period, full = config.get("sliding_window_pattern"), config.get("max_window_layers")
    if period is not None:
        period = _count("", "sliding_window_pattern", period)
        return layers - layers // period
    if full is not None:
        full = _count("first_dense", "max_window_layers", full)
    return max(layers - full, 0) if config.get("use_sliding_window") and full is not None else layers


def _placed(attention: AbstractAttention, config: Values, layers: int) -> AbstractAttention:
    """Attention with the windows or chunks that the file asks for, where they are shorter than its longest context."""
    longest = config.get("max_position_embeddings")
    if longest is not None:
        longest = _count("", "max_position_embeddings", longest)
    _optional(config, "use_sliding_window", (bool,), "true or false")
    for key in ("sliding_window", "attention_chunk_size"):
        window = config.get(key)
        if window is None or (key == "sliding_window" and not config.get("use_sliding_window", True)):
            continue
        window = _count(key, key, window)
        near = _near_layers(config, layers, key)
        if near and not (longest is not None and window >= longest):
            return LocalAttention(attention, window, near / layers, chunked=key != "sliding_window")
    return attention


OUTSIDE = ("tie_word_embeddings", "quantization_config")  # may stand beside the part that describes the language model
INSIDE = ("text_config", "language_config", "llm_config", "thinker_config", "language_model_config")
AHEAD = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers", "mtp_num_layers")


def _windowed(config: Values) -> bool:
    """Layers of a vision encoder that attend parts of an image: all count as if they attended the whole."""
    vision = config.get("vision_config")
    return isinstance(vision, dict) and bool(vision.get("window_size") and vision.get("fullatt_block_indexes"))


IGNORED: dict[str, tuple[str, Callable[[Values], Any]]] = {
    "use_parallel_residual": (SIDE_BY_SIDE, lambda c: c.get("use_parallel_residual")),
    "audio_config": ("the audio part", lambda c: c.get("audio_config")),
    "hidden_size_per_layer_input": ("the work of embeddings a layer", lambda c: c.get("hidden_size_per_layer_input")),
    "vision_config": ("windows of its vision encoder", _windowed),
    "num_kv_shared_layers": ("layers that share a cache", lambda c: c.get("num_kv_shared_layers")),
}
"""Keys that change what a model costs and that we do not read: key -> (what happens instead, whether it applies)."""


def _warn_of_ignored(config: Values, architecture: Architecture, name: str, guessed: str) -> None:
    notes = [f"{key}: {note}" for key, (note, applies) in IGNORED.items() if applies(config)]
    if notes or architecture.ignored:
        warnings.warn(f"model {name}: not modelled: {'; '.join([*notes, *architecture.ignored])}", stacklevel=3)
    if guessed:
        warnings.warn(f"model {name}: {guessed}", stacklevel=3)


def _count(name: str, key: str, value: Any) -> int:
    low, high = int(name not in MAY_BE_ZERO), MOST_LAYERS if name == "layers" else LARGEST
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{key} = {value!r} is not a whole number in [{low}, {high}]")
    return value


def _optional(config: Values, key: str, kinds: tuple[type, ...], allowed: str) -> Any:
    """Value of a key that a file may leave out; None where it is missing.

    Raises:
        ConfigError: something of another kind.
    """
    value = config.get(key)
    if value is None or (isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))):
        return value
    raise ConfigError(f"{key} = {value!r} is not {allowed}")


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


def _names(name: str, key: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(kind, str) for kind in value):
        raise ConfigError(f"{key} = {value!r} is not a list of kinds of layers")
    return value


def _any_numbers(name: str, key: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not value or len(value) > MOST_LAYERS:
        raise ConfigError(f"{key} = {value!r} is not a list with an entry a layer")
    if not all(
        type(entry) in (int, str, bool) and 0 <= (entry if type(entry) is int else 0) < LARGEST for entry in value
    ):
        raise ConfigError(f"{key} is not a list of whole numbers or kinds of layers")
    return value


def _period(name: str, key: str, value: Any) -> int | list[Any]:
    """One number, or a flag a layer."""
    return _any_numbers(name, key, value) if isinstance(value, list) else _count(name, key, value)


def _flags(name: str, key: str, value: Any) -> list[Any] | str:
    return value if isinstance(value, str) and len(value) < 10**5 else _any_numbers(name, key, value)


def _pattern(name: str, key: str, value: Any) -> list[str]:
    return list(value[: MOST_LAYERS + 1]) if isinstance(value, str) else _names(name, key, value)


def _blocks(name: str, key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(f"{key} is not a list with an entry a layer")
    return value


CHECKS: dict[str, Callable[[str, str, Any], Any]] = {
    "tied": _flag, "dropout": _share, "dense_list": _layer_numbers, "kinds": _any_numbers, "indexers": _names,
    "attention_list": _any_numbers, "gate": _flag, "keys_are_values": _flag, "full_gate": _flag, "ratios": _any_numbers,
    "sparse_period": _period, "sparse_flags": _flags, "sparse_layers": _any_numbers, "full_layers": _layer_numbers,
    "pattern": _pattern, "blocks": _blocks,
}  # fmt: skip
LISTED = {"experts", "top_k", "expert_width", "shared_experts", "width"}  # some files repeat one number a layer


def _found(config: Values, key: str) -> Any:
    """Value of a key, or of one below it where it leads to an object."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return None if value == "auto" else value


def _one(name: str, value: Any) -> Any:
    """The number that a list repeats, layer by layer: a list of one repeats nothing."""
    listed = isinstance(value, list) and len(value) > 1 and name in LISTED
    return value[0] if listed and all(entry == value[0] for entry in value) else value


def _read(config: Values, architecture: Architecture) -> Values:
    """Every number of the architecture, from the file or from its default."""
    values: Values = {}
    for name, first in architecture.names.items():
        keys = architecture.synonyms.get(name, (first,))
        key = next((key for key in keys if _found(config, key) is not None), first)
        value = _one(name, _found(config, key))
        if value is None and key in config and name in NULL_IS_ZERO:
            value = 0
        if value is not None:
            values[name] = CHECKS.get(name, _count)(name, key, value)
        elif name not in architecture.defaults and name in NEEDED | (set() if architecture.synonyms else {name}):
            raise ConfigError(f"{key} is missing")
    plain = {name: default for name, default in architecture.defaults.items() if not callable(default)}
    for name, default in (*plain.items(), *architecture.defaults.items()):
        if name not in values:
            values[name] = default(values) if callable(default) else default
    return values


NEEDED = {"hidden", "layers", "heads", "vocab"}
"""Numbers without which no model is one."""


def _architecture(config: Values) -> tuple[Architecture, str]:
    """The table entry that the file names, or its `model_type`; and a line where neither is in the table.

    Raises:
        ConfigError: no architecture named.
    """
    named = config.get("architectures")
    if named is not None and not (isinstance(named, list) and all(isinstance(one, str) for one in named)):
        raise ConfigError(f"architectures = {named!r} does not name one architecture")
    named = [str(one) for one in named or []]
    name = next((one for one in named if one in ARCHITECTURES), None) or by_model_type(config.get("model_type"))
    if name is not None:
        return ARCHITECTURES[name], ""
    if not named and config.get("model_type") is None:
        raise ConfigError("architectures and model_type are missing: which model is it")
    called = named[0] if named else str(config.get("model_type"))
    hint = suggestion(called, list(ARCHITECTURES))
    return general(), f"architecture {called[:60]!r} is not known{hint}: read by its keys alone"


def _inside(config: Values, architecture: Architecture) -> Values:
    """The part of the file that describes the language model.

    Raises:
        ConfigError: there is none.
    """
    key = architecture.inside or next((key for key in INSIDE if isinstance(config.get(key), dict)), "")
    if not key:
        return config
    part = config.get(key)
    if not isinstance(part, dict):
        raise ConfigError(f"{key} is missing" if part is None else f"{key} is no object")
    return {key: config[key] for key in OUTSIDE if key in config} | part


def _parts(config: Values) -> tuple[Architecture, Values, str]:
    """Architecture of a file, the part that describes the language model, and a line if its name is not known.

    A wrapper whose own name is not known is read as the model inside it.
    """
    architecture, guessed = _architecture(config)
    inner = _inside(config, architecture)
    if guessed and inner is not config and (inner.get("architectures") or inner.get("model_type")):
        architecture, guessed = _architecture(inner)
        architecture = architecture._replace(inside="")
    return architecture, inner, guessed


def _ahead(config: Values) -> int:
    """Modules that predict tokens ahead."""
    key = next((key for key in AHEAD if config.get(key) is not None), None)
    if key is None or config.get("use_mtp") is False:
        return 0
    return _count("first_dense", key, config[key])


def _extra(values: Values, config: Values) -> ExtraEmbeddings | None:
    """Embeddings of positions and kinds of token, or one of each layer."""
    each, layers = config.get("hidden_size_per_layer_input"), values["layers"]
    if each:
        rows = _count("vocab", "vocab_size_per_layer_input", config.get("vocab_size_per_layer_input", values["vocab"]))
        return ExtraEmbeddings(rows, layers * _count("width", "hidden_size_per_layer_input", each))
    rows = sum(values.get(name, 0) for name in ("positions", "token_kinds", "pooler"))  # a pooler is as wide as long
    return ExtraEmbeddings(rows, values["hidden"]) if rows else None


def _layers(architecture: Architecture, values: Values) -> tuple[AbstractAttention, AbstractFeedForward]:
    """Layers that the builders make of the numbers.

    Raises:
        ConfigError: a number that they need and the file does not state.
    """
    try:
        return architecture.attention(values), architecture.feed_forward(values)
    except KeyError as error:
        name = str(error.args[0])
        raise ConfigError(f"{architecture.names.get(name, name)} is missing") from None


def transformer_from_dict(config: Any, name: str, quantization: Any = None) -> Transformer:
    """The model that a published configuration describes.

    Args:
        config: the parsed `config.json`.
        name: what to call the model.
        quantization: what a `hf_quant_config.json` beside it says of number formats.

    Raises:
        ConfigError: not an object, an unknown architecture, a missing field or a senseless value.
    """
    try:
        if not isinstance(config, dict):
            raise ConfigError("not a JSON object")
        _optional(config, "model_type", (str,), "a word")
        document = config
        architecture, config, guessed = _parts(config)
        values = _read(config, architecture)
        attention, feed_forward = _layers(architecture, values)
        if architecture.windows:
            attention = _placed(attention, config, values["layers"])
        stored = config.get("quantization_config") or quantization
        model = Transformer(
            name=name,
            hidden=values["hidden"],
            layers=values["layers"],
            attention=attention,
            feed_forward=feed_forward,
            vocab=values["vocab"],
            tied_embeddings=values["tied"],
            norm_vectors=architecture.norm_vectors,
            dropout=values["dropout"] > 0,
            predicts_ahead=_ahead(config),
            vision=vision_of(document, values["hidden"]),
            extra_embeddings=_extra(values, config),
        )
        model = _with_formats(model, stored, config, architecture)
    except ConfigError as error:
        raise ConfigError(f"model {name}: {error}") from None
    _warn_of_ignored(document, architecture, name, guessed)
    return model


def _with_formats(model: Transformer, stored: Any, config: Values, architecture: Architecture) -> Transformer:
    """The model with the formats of the classes that it has.

    Experts may have one of their own that the file states beside (`expert_dtype`). A name that promises a format which
    no file states is told.
    """
    network, layers = model.feed_forward, int(float(model.layers))
    dense = int(float(network.dense_layers)) if isinstance(network, MixtureOfExperts) else None
    formats = formats_of(stored, layers, dense, architecture.modules)
    promised = PROMISED.search(model.name)
    if formats is None:
        if promised:
            warnings.warn(
                f"model {model.name}: its name says {promised[0]}, but neither config.json nor hf_quant_config.json"
                " states number formats: priced in bf16",
                stacklevel=4,
            )
        return model
    if config.get("expert_dtype") == "fp4":
        formats = replace(formats, experts="mxfp4_w4a8")
    there = {kind for kind, count in model.weights_by_class().items() if float(count) > 0}
    absent = {kind: "bf16" for kind in CLASSES if kind not in there}
    return replace(model, formats=replace(formats, **absent))


PROMISED = re.compile(r"(?i)(?<![a-z0-9])(nvfp4|mxfp4|fp8|awq|gptq|int4|int8|w4a16|w8a8)(?![a-z0-9])")


def from_config_json(path: str | Path, fused_loss: bool = True, image_patches: int = 0) -> Transformer:
    """The model that a hub's `config.json` (or the folder it lies in) describes, in the formats that it states.

    A `hf_quant_config.json` beside it is read for number formats too. `fused_loss` is the training framework's to say
    (see `Transformer`). `image_patches`: of an image, in place of those that the file says of its vision encoder.

    Raises:
        ConfigError: the file is missing, is not JSON, or describes no model we know; patches of none that sees.
    """
    file = Path(str(path))
    file = file / "config.json" if file.is_dir() else file
    config = read_json(file, f"model path {str(path)!r}", infinite=True)
    beside, quantization = file.with_name("hf_quant_config.json"), None
    if file.name == "config.json" and beside.is_file():
        quantization = read_json(beside, f"{str(beside)!r}", infinite=True)
        quantization = quantization.get("quantization") if isinstance(quantization, dict) else quantization
        if not isinstance(quantization, dict):
            raise ConfigError(f"{str(beside)!r}: quantization is missing or no object")
    name = file.resolve().parent.name if file.name == "config.json" else file.stem
    return _seeing(replace(transformer_from_dict(config, name, quantization), fused_loss=fused_loss), image_patches)


def _seeing(model: Transformer, patches: Any) -> Transformer:
    """The model with images of so many patches; 0 leaves what the file says."""
    if isinstance(patches, bool) or not isinstance(patches, int) or not 0 <= patches <= MOST_PATCHES:
        raise ConfigError(
            f"model {model.name}: image_patches = {patches!r} is not a whole number in [0, {MOST_PATCHES}]"
        )
    if not patches:
        return model
    if model.vision is None:
        raise ConfigError(f"model {model.name}: image_patches = {patches}, but it has no vision encoder; allowed: 0")
    return replace(model, vision=replace(model.vision, patches=float(patches)))


MOST_PATCHES = 10**6
