"""Layers of several kinds, from the lists that published configurations have for attention and feed-forward."""

import itertools
from collections.abc import Callable
from typing import Any

from ...core.errors import ConfigError
from ...core.json_yaml import is_mapping
from .attention import AbstractAttention, GroupedQueryAttention, LatentAttention
from .feed_forward import AbstractFeedForward, DenseFeedForward, MixtureOfExperts
from .layer_kinds import MixedAttention, MixedFeedForward
from .linear_attention import LinearAttention
from .sparse_attention import CompressedAttention, EntryIndex, LocalAttention, SparseAttention

Values = dict[str, Any]
MOST_KINDS = 24
NONE = "none"
"""Layers without attention, or without a feed-forward network."""


def per_layer(values: Values, name: str, key: str) -> list[Any]:
    """A list of the file with an entry a layer.

    Raises:
        ConfigError: of another length.
    """
    listed = values[name]
    if len(listed) != values["layers"]:
        raise ConfigError(f"{key} names {len(listed)} of {values['layers']} layers")
    return list(listed)


def _counted(kinds: list[str], built: dict[str, Callable[[], Any]]) -> tuple[dict[str, Any], dict[str, float]]:
    """Parts of the kinds that occur, and how many layers are of each, in alphabetical order."""
    counts = {name: float(kinds.count(name)) for name in sorted(set(kinds))}
    if len(counts) > MOST_KINDS:
        raise ConfigError(f"layers are of {len(counts)} kinds; allowed: at most {MOST_KINDS}")
    return {name: built[name]() for name in counts if name != NONE}, counts


def mixed_attention(kinds: list[str], built: dict[str, Callable[[], AbstractAttention]]) -> AbstractAttention:
    """Attention of layers of these kinds; of one kind as it is.

    Raises:
        ConfigError: no layer has any.
    """
    parts, counts = _counted(kinds, built)
    if not parts:
        raise ConfigError("no layer has attention or a state")
    return next(iter(parts.values())) if len(counts) == 1 else MixedAttention(parts, counts)


def mixed_feed_forward(kinds: list[str], built: dict[str, Callable[[], AbstractFeedForward]]) -> AbstractFeedForward:
    """Feed-forward networks of layers of these kinds; of one kind as it is.

    Raises:
        ConfigError: no layer has one.
    """
    parts, counts = _counted(kinds, built)
    if not parts:
        raise ConfigError("no layer has a feed-forward network")
    return next(iter(parts.values())) if len(counts) == 1 else MixedFeedForward(parts, counts)


def heads_of(values: Values, prefix: str = "", **changes: Any) -> GroupedQueryAttention:
    """Grouped-query attention of the numbers whose names begin so, else of those without.

    Raises:
        ConfigError: heads that cannot share the key-value heads evenly.
    """

    def value(name: str) -> Any:
        return values.get(prefix + name) or values.get(name)

    heads, kv_heads, head_dim, value_dim = (value(name) for name in ("heads", "kv_heads", "head_dim", "value_dim"))
    if kv_heads > heads or heads % kv_heads:
        raise ConfigError(f"{kv_heads} key-value heads cannot be shared evenly by {heads} query heads")
    options: dict[str, Any] = {"value_dim": value_dim} if value_dim and value_dim != head_dim else {}
    if values.get("gate"):
        options["gated_output"] = True
    return GroupedQueryAttention(heads, kv_heads, head_dim, **(options | changes))


def latent_of(values: Values) -> LatentAttention:
    """Multi-head latent attention."""
    attention = LatentAttention(
        *(values[name] for name in ("heads", "q_rank", "kv_rank", "nope_dim", "rope_dim", "v_dim"))
    )
    if not values.get("gate"):
        return attention
    return LatentAttention(
        attention.heads,
        attention.q_rank,
        attention.kv_rank,
        attention.nope_dim,
        attention.rope_dim,
        attention.value_dim,
        1.0,
        True,
    )


def full_and_local(values: Values) -> AbstractAttention:
    """Full attention in some layers, and in the others a window with heads of their own (`local_...`)."""
    kinds = [
        "local" if "sliding" in str(kind) or kind == 1 else "full" for kind in per_layer(values, "kinds", "layers")
    ]
    window = values["window"]
    shared = {"values_from_keys": True} if values.get("keys_are_values") else {}
    full = {"full": lambda: heads_of(values, "global_", **shared)}
    return mixed_attention(kinds, {**full, "local": lambda: LocalAttention(heads_of(values, "local_"), window)})


def every_nth_is_full(values: Values) -> list[str]:
    """Layers with a window but for every so many (`period`)."""
    every = values["period"]
    return ["full_attention" if (n + 1) % every == 0 else "sliding_attention" for n in range(values["layers"])]


def shared_index(values: Values) -> AbstractAttention:
    """Sparse latent attention where some layers take the choice of one before them."""
    numbers = (latent_of(values), values["selected"], values["index_heads"], values["index_dim"])
    kinds = ["shared" if kind == "shared" else "full" for kind in per_layer(values, "indexers", "indexer_types")]
    built = {"full": lambda: SparseAttention(*numbers), "shared": lambda: SparseAttention(*numbers, own=False)}
    return mixed_attention(kinds, built)


def block_sparse(values: Values) -> AbstractAttention:
    """Grouped-query attention to blocks that an indexer chooses, in the layers that the file lists."""
    heads, tokens = heads_of(values), values["index_blocks"] * values["index_block"]
    flags = per_layer(values, "sparse_layers", "sparse_attention_freq")
    built = {
        "full": lambda: heads,
        "sparse": lambda: SparseAttention(heads, tokens, values["index_heads"], values["index_dim"]),
    }
    return mixed_attention(["sparse" if flag else "full" for flag in flags], built)


def compressed(values: Values) -> AbstractAttention:
    """Windows with contexts that are compressed by so much in each layer: chosen by an index where by less than 64."""
    ratios = values["ratios"][: values["layers"]]
    numbers = [values[name] for name in ("heads", "head_dim", "q_rank", "out_groups", "out_rank", "window")]
    index = EntryIndex(*(values[name] for name in ("selected", "index_heads", "index_dim")))
    built: dict[str, Callable[[], AbstractAttention]] = {"window": lambda: CompressedAttention(*numbers)}
    for ratio in set(ratios):
        more = [ratio, index] if ratio < 64 else [ratio]
        built[f"compressed_{ratio}"] = lambda more=more: CompressedAttention(*numbers, *more)
    if len(ratios) != values["layers"]:
        raise ConfigError(f"compress_ratios names {len(ratios)} of {values['layers']} layers")
    return mixed_attention([f"compressed_{ratio}" if ratio else "window" for ratio in ratios], built)


def delta_and_latent(values: Values) -> AbstractAttention:
    """Kimi delta attention, and latent attention in the layers that the file numbers from 1."""
    dim, heads = values["linear_key_dim"], values["linear_heads"]
    rank = None if values.get("full_gate") else dim
    full = values["full_layers"]
    kinds = ["latent" if layer + 1 in full else "linear" for layer in range(values["layers"])]
    linear = LinearAttention(heads, heads, dim, dim, values["convolution"], gate_rank=rank, forget_rank=dim)
    return mixed_attention(kinds, {"latent": lambda: latent_of(values), "linear": lambda: linear})


def lightning(values: Values) -> AbstractAttention:
    """Full attention in the layers listed as 1, lightning attention (a decaying state) in the others."""
    heads, dim = values["heads"], values["head_dim"]
    kinds = ["full" if kind in (1, "full_attention") else "linear" for kind in values["attention_list"]]
    kinds = kinds * (values["layers"] if len(kinds) == 1 else 1)
    if len(kinds) != values["layers"]:
        raise ConfigError(f"attn_type_list names {len(kinds)} of {values['layers']} layers")
    linear = LinearAttention(heads, heads, dim, dim, 1, 256, delta=False)
    return mixed_attention(kinds, {"full": lambda: heads_of(values), "linear": lambda: linear})


MIXERS = {"M": "state_space", "*": "full", "mamba": "state_space", "attention": "full", "full_attention": "full"}
NETWORKS = {"E": "experts", "-": "dense", "moe": "experts", "mlp": "dense"}
"""Nemotron-H: a layer is one mixer or one network."""


def _pattern(values: Values) -> list[str]:
    pattern = list(values["pattern"])
    unknown = set(pattern) - set(MIXERS) - set(NETWORKS)
    if unknown:
        raise ConfigError(
            f"hybrid_override_pattern has {sorted(unknown)[0]!r}; allowed: {', '.join(MIXERS | NETWORKS)}"
        )
    if len(pattern) != values["layers"]:
        raise ConfigError(f"hybrid_override_pattern names {len(pattern)} of {values['layers']} layers")
    return pattern


def one_mixer_a_layer(values: Values) -> AbstractAttention:
    """Mamba-2, full attention, or none of both."""
    names = ("linear_heads", "linear_key_heads", "linear_key_dim", "linear_value_dim", "convolution", "chunk")
    state = LinearAttention(*(values[name] for name in names), delta=False)
    kinds = [MIXERS.get(kind, NONE) for kind in _pattern(values)]
    return mixed_attention(kinds, {"full": lambda: heads_of(values), "state_space": lambda: state})


def one_network_a_layer(values: Values) -> AbstractFeedForward:
    """Experts, a dense network, or none of both."""
    gated = values["gated"]

    def experts() -> AbstractFeedForward:
        width = values["expert_width"]
        latent = {"latent": values["latent"]} if values.get("latent") else {}
        shared = values["shared_experts"] * values["shared_width"] / width
        return MixtureOfExperts(values["experts"], values["top_k"], width, shared, gated, **latent)

    kinds = [NETWORKS.get(kind, NONE) for kind in _pattern(values)]
    built = {"experts": experts, "dense": lambda: DenseFeedForward(values["width"], gated)}
    return mixed_feed_forward(kinds, built)


def _blocks(values: Values, part: str) -> list[dict[str, Any]]:
    blocks = per_layer(values, "blocks", "block_configs")
    result: list[dict[str, Any]] = []
    for block in blocks:
        part_block = block.get(part) if is_mapping(block) else None
        if not is_mapping(part_block):
            raise ConfigError(f"block_configs: a block without {part}")
        result.append(dict(part_block))
    return result


def _none(block: dict[str, Any]) -> bool:
    if block.get("replace_with_linear"):
        raise ConfigError("block_configs: layers replaced by one product (replace_with_linear) are not modelled")
    return bool(block.get("no_op"))


def searched_attention(values: Values) -> AbstractAttention:
    """Attention of layers that an architecture search chose: groups of query heads, or none."""
    groups = [None if _none(block) else block.get("n_heads_in_group") for block in _blocks(values, "attention")]
    for group in set(groups) - {None}:
        if type(group) is not int or group < 1 or values["heads"] % group:
            raise ConfigError(f"block_configs: n_heads_in_group = {group!r} does not divide {values['heads']} heads")
    built = {
        f"full_{group}": (lambda group=group: heads_of(values | {"kv_heads": values["heads"] // group}))
        for group in set(groups) - {None}
    }
    return mixed_attention([NONE if group is None else f"full_{group}" for group in groups], built)


def searched_feed_forward(values: Values) -> AbstractFeedForward:
    """Feed-forward networks that a search chose: 2/3 of `ffn_mult` hidden sizes, up to a multiple of 256."""
    widths: list[int | None] = []
    for block in _blocks(values, "ffn"):
        times, width = block.get("ffn_mult"), block.get("intermediate_size")
        if _none(block):
            widths.append(None)
        elif type(width) is int and width > 0:
            widths.append(width)
        elif isinstance(times, int | float) and not isinstance(times, bool) and 0 < times < 1000:
            exact = int(2 * times * values["hidden"] / 3)
            widths.append(-(-exact // 256) * 256)
        else:
            raise ConfigError(f"block_configs: ffn_mult = {times!r} is no multiple of the hidden size")
    built = {f"dense_{width}": (lambda width=width: DenseFeedForward(width, 1.0)) for width in set(widths) - {None}}
    return mixed_feed_forward([NONE if width is None else f"dense_{width}" for width in widths], built)


def experts_listed(values: Values) -> list[bool]:
    """True if each layer has experts, where the file lists it."""
    flags = values["sparse_flags"]
    if isinstance(flags, str):
        chosen = {int(word) for word in flags.replace(",", " ").split() if word.isdigit()}
        return [layer in chosen for layer in range(values["layers"])]
    listed = per_layer(values, "sparse_flags", "the list of layers with experts")
    return [flag in (1, True, "sparse", "moe") for flag in listed]


def runs(kinds: list[str]) -> str:
    """A list of kinds in short: `3 x full, 57 x sparse`."""
    return ", ".join(f"{len(list(group))} x {kind}" for kind, group in itertools.groupby(kinds))
