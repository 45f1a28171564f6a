"""Vision encoders of published configurations: the numbers under `vision_config`, by the names of their makers."""

import math
from typing import Any

from ...core.errors import ConfigError
from .beside_layers import VisionEncoder

Values = dict[str, Any]
INSIDE = ("vision_config", "vision_tower_config")
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
LARGEST = 10**7
HEAD = 64
"""Width of a head where a file says none: that of ViT-Base and ViT-Large. Source: [dosovitskiy2021], table 1."""


def _count(config: Values, name: str) -> int | None:
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
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
            raise ConfigError(f"vision_config.{key} = {value!r} is not a whole number in [1, {LARGEST}]")
        return value
    return None


def _merge(config: Values, whole: Values) -> int:
    """Patches that become one token, the square of a side."""
    result = (config.get(key) for key in ("spatial_merge_size", "merge_kernel_size", "pooling_kernel_size"))
    kernel = next((value for value in (*result, whole.get("spatial_merge_size")) if value is not None), None)
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
    result = next((config[key] for key in INSIDE if isinstance(config.get(key), dict)), None)
    if result is None:
        return None
    numbers = {name: _count(result, name) for name in KEYS}
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
