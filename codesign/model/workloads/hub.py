"""Models as their hubs publish them: a `config.json` becomes a `Transformer`.

`hub_architectures` says how each architecture is read. Windows and chunks of attention are read here, for they stand in
the same keys whatever the architecture. What changes a model's cost but has no number here (multi-token prediction,
parallel residuals) is named in one warning.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError
from ...core.untrusted_io import read_json
from .attention import AbstractAttention
from .hub_architectures import ARCHITECTURES, SIDE_BY_SIDE, Architecture, Values
from .local_attention import LocalAttention
from .transformer import Transformer

LARGEST = 10**9  # no published size is near it; beyond it a number is a mistake
MOST_LAYERS = 10_000
MAY_BE_ZERO = {"q_rank", "rope_dim", "shared_experts", "shared_width", "first_dense"}
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


IGNORED: dict[str, tuple[str, Callable[[Values], Any]]] = {
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


def _optional(config: Values, key: str, kinds: tuple[type, ...], allowed: str) -> Any:
    """What a file says under a key that it may leave out; None where it says nothing.

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


CHECKS: dict[str, Callable[[str, str, Any], Any]] = {
    "tied": _flag, "dropout": _share, "dense_list": _layer_numbers, "kinds": _names,
}  # fmt: skip


def _read(config: Values, architecture: Architecture) -> Values:
    """Every number of the architecture, from the file or from its default."""
    values: Values = {}
    for name, key in architecture.names.items():
        value = None if config.get(key) == "auto" else config.get(key)
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


def _inside(config: Values, architecture: Architecture) -> Values:
    """The part of the file that describes the language model.

    Raises:
        ConfigError: there is none.
    """
    if not architecture.inside:
        return config
    part = config.get(architecture.inside)
    if not isinstance(part, dict):
        raise ConfigError(
            f"{architecture.inside} is missing" if part is None else f"{architecture.inside} is no object"
        )
    return part


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
        _optional(config, "model_type", (str,), "a word")
        architecture = _architecture(config)
        config = _inside(config, architecture)
        values = _read(config, architecture)
        attention = _placed(architecture.attention(values), config, values["layers"])
        feed_forward = architecture.feed_forward(values)
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
