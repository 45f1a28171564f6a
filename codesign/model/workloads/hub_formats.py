"""Number formats of published checkpoints: `quantization_config` of a `config.json`, `hf_quant_config.json` beside it.

A checkpoint says one format, or one for each group of modules, and which modules it leaves alone. What is asked here is
the format of one module of each class in each layer; a class whose layers differ takes what most of them have.
"""

import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...core.errors import ConfigError, suggestion
from .number_formats import WeightFormats

Values = dict[str, Any]
Asked = Callable[[str], str | None]
"""Name of a module -> its format; none where it is left alone."""

MODULES = {
    "attention": ("self_attn.q_proj", "self_attn.q_b_proj", "self_attn.o_proj", "attn.wq_b", "mixer.q_proj"),
    "linear_attention": ("linear_attn.in_proj_qkv", "linear_attn.in_proj_qkvz", "mixer.in_proj", "mamba.in_proj"),
    "dense": ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    "experts": (
        "mlp.experts.0.gate_proj", "mlp.experts.0.up_proj", "block_sparse_moe.experts.0.w1", "mixer.experts.0.up_proj",
        "feed_forward.experts.0.gate_proj",
    ),
    "shared_experts": (
        "mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj", "block_sparse_moe.shared_experts.gate_proj",
        "mixer.shared_experts.up_proj", "feed_forward.shared_expert.gate_proj",
    ),
}  # fmt: skip
"""Class of weights -> names that its modules have below a layer, in various models."""

PREFIXES = ("model.", "model.language_model.", "language_model.model.", "language_model.", "backbone.")
ALGORITHMS = {
    "fp8": "fp8", "fp8_pb_wo": "fp8_block", "fp8_pb_real": "fp8_block", "fp8_per_channel_per_token": "fp8",
    "nvfp4": "nvfp4", "nvfp4_awq": "nvfp4", "w4a16_nvfp4": "nvfp4_w4a16", "w4a8_nvfp4_fp8": "nvfp4", "mxfp8": "mxfp8",
    "mxfp4": "mxfp4", "w4a8_mxfp4_fp8": "mxfp4_w4a8", "w4a16_mxfp4": "mxfp4", "w4a16": "int4", "w4a16_awq": "int4",
    "w4a8_awq": "int4_w4a8", "w8a16": "int8_w8a16", "int8_sq": "int8", "w8a8_sq_per_channel": "int8",
    "int4_awq": "int4", "int4_gptq": "int4",
}  # fmt: skip
"""`quant_algo` of ModelOpt -> our format."""

METHODS = (
    "fp8", "mxfp4", "mxfp8", "nvfp4", "awq", "gptq", "awq_marlin", "gptq_marlin", "auto-round", "compressed-tensors",
    "modelopt", "modelopt_fp4", "modelopt_mixed", "fbgemm_fp8", "quark", "bitsandbytes",
)  # fmt: skip
"""`quant_method`s that are read."""


def _words(value: Any, key: str) -> list[str]:
    """A list of names of modules.

    Raises:
        ConfigError: something else.
    """
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ConfigError(f"quantization_config.{key} is not a list of names of modules")
    return value


def _matches(pattern: str, module: str) -> bool:
    """Tell if a pattern of an ignore list covers a module: a name, a part of one, a `*`, or `re:` and an expression."""
    if pattern.startswith("re:"):
        try:
            return re.match(pattern[3:], module) is not None
        except (re.error, RecursionError, OverflowError) as error:
            raise ConfigError(f"quantization_config.ignore: {pattern[:60]!r} is no regular expression") from error
    if "*" in pattern:
        return fnmatch.fnmatchcase(module, pattern) or fnmatch.fnmatchcase(module, f"{pattern}.*")
    return module == pattern or module.startswith(f"{pattern}.") or f".{pattern}." in f".{module}."


class _IgnoredModules:
    """A list of modules that are left alone; plain names are looked up, not tried one by one."""

    def __init__(self, patterns: Iterable[str]) -> None:
        listed = list(patterns)
        self.plain = {one for one in listed if "*" not in one and not one.startswith("re:")}
        self.parts = {one for one in self.plain if one.count(".") < 2}  # names that stand anywhere in a module's
        self.patterns = [one for one in listed if one not in self.plain]

    def __call__(self, module: str) -> bool:
        """True if a module is left alone."""
        pieces = module.split(".")
        begun = {".".join(pieces[:n]) for n in range(1, len(pieces) + 1)}
        if begun & self.plain or any(_matches(part, module) for part in self.parts):
            return True
        return any(_matches(pattern, module) for pattern in self.patterns)


def _tensor(group: Any, key: str) -> tuple[str, int, Any, Any]:
    """(type, bits, group size, strategy) of a scheme of compressed-tensors or ModelOpt.

    Raises:
        ConfigError: no scheme.
    """
    if not isinstance(group, dict):
        raise ConfigError(f"quantization_config.{key} is no object")
    kind, bits = group.get("type", "int"), group.get("num_bits", 8)
    if kind not in ("int", "float") or type(bits) is not int:
        raise ConfigError(f"quantization_config.{key}: type {kind!r} with num_bits {bits!r} is no number format")
    return kind, bits, group.get("group_size"), group.get("strategy")


def _scheme(group: Values, key: str, packed: str) -> str:
    """The format of a group of modules.

    Raises:
        ConfigError: one that is not known.
    """
    kind, bits, size, strategy = _tensor(group.get("weights"), f"{key}.weights")
    inputs = group.get("input_activations")
    activations = None if inputs is None else _tensor(inputs, f"{key}.input_activations")[1]
    if kind == "float" and bits == 4:
        if size == 32 or "mxfp4" in packed:
            return {None: "mxfp4", 4: "mxfp4_w4a4", 8: "mxfp4_w4a8"}.get(activations, "mxfp4")
        return "nvfp4_w4a16" if activations is None else "nvfp4"
    if kind == "float" and bits == 8:
        if size == 32 or "mxfp8" in packed:
            return "mxfp8"
        if activations is None:
            return "fp8_w8a16"
        return "fp8_block" if strategy == "block" or group["weights"].get("block_structure") else "fp8"
    if kind == "int" and bits == 8:
        return "int8_w8a16" if activations is None else "int8"
    if kind == "int" and bits == 4:
        if activations == 8:
            return "int4_w4a8"
        return {32: "int4_group32", 64: "int4_group64", 128: "int4", None: "int4_channel", -1: "int4_channel"}.get(
            size, "int4"
        )
    raise ConfigError(f"number format {kind} of {bits} bits ({key}) is not known")


def _algorithm(name: Any) -> str | None:
    """Our format of a `quant_algo`.

    Raises:
        ConfigError: one that is not known.
    """
    if name is None:
        return None
    result = ALGORITHMS.get(str(name).lower())
    if result is None:
        names = ", ".join(sorted(ALGORITHMS))
        hint = suggestion(str(name).lower(), list(ALGORITHMS))
        raise ConfigError(f"quant_algo = {str(name)[:40]!r} is no number format that is known{hint} (known: {names})")
    return result


def _integers(config: Values, method: str) -> str:
    """AWQ, GPTQ and their kin."""
    bits, size = config.get("bits", config.get("w_bit", 4)), config.get("group_size", config.get("q_group_size", 128))
    if bits not in (4, 8) or isinstance(bits, bool):
        raise ConfigError(f"quantization_config: {method} of {bits!r} bits is not known; 4 and 8 are")
    if bits == 8:
        return "int8_w8a16"
    return {32: "int4_group32", 64: "int4_group64", -1: "int4_channel"}.get(size if type(size) is int else 0, "int4")


def _layered(config: Values) -> Asked:
    """ModelOpt's list of a format for each module, or one format and exclusions."""
    listed = config.get("quantized_layers")
    excluded = config.get("exclude_modules", config.get("ignore"))
    ignored = _IgnoredModules(_words(excluded, "exclude_modules"))
    if isinstance(listed, dict) and listed:
        result = {
            module: _algorithm(entry.get("quant_algo") if isinstance(entry, dict) else None)
            for module, entry in listed.items()
        }
        wholes = {module for module in result if module.endswith(".experts")}
        return lambda module: (
            None
            if ignored(module)
            else result.get(module) or next((result[one] for one in wholes if module.startswith(f"{one}.")), None)
        )
    one = _algorithm(config.get("quant_algo"))
    return lambda module: None if ignored(module) else one


def _grouped(config: Values) -> Asked:
    """Groups of compressed-tensors: targets are `Linear`, names or expressions."""
    groups, packed = config.get("config_groups"), str(config.get("format", ""))
    if not isinstance(groups, dict) or not groups:
        raise ConfigError("quantization_config.config_groups is missing or no object")
    ignored, rows = _IgnoredModules(_words(config.get("ignore"), "ignore")), []
    for name, group in groups.items():
        if not isinstance(group, dict):
            raise ConfigError(f"quantization_config.config_groups.{name} is no object")
        targets = _words(group.get("targets", ["Linear"]), f"config_groups.{name}.targets")
        scheme = _scheme(group, f"config_groups.{name}", str(group.get("format") or packed))
        rows.append(("Linear" in targets or "MoE" in targets, _IgnoredModules(targets), scheme))

    def of(module: str) -> str | None:
        if ignored(module):
            return None
        named = next((scheme for everything, targets, scheme in rows if not everything and targets(module)), None)
        return named or next((scheme for everything, _, scheme in rows if everything), None)

    return of


def _asked(config: Values) -> Asked:
    """Number format of each module of a checkpoint.

    Raises:
        ConfigError: a method or format that is not known.
    """
    method = config.get("quant_method")
    if method is None and ("quant_algo" in config or "quantized_layers" in config):
        method = "modelopt"
    if method is None and "config_groups" in config:
        method = "compressed-tensors"
    if method not in METHODS:
        names = f" (known: {', '.join(METHODS)})"
        raise ConfigError(f"quant_method = {str(method)[:40]!r} is no method that is known{names}")
    if method.startswith("modelopt"):
        if config.get("quant_algo") or config.get("quantized_layers"):
            return _layered(config)
        return _grouped(config)
    if method == "compressed-tensors":
        return _grouped(config)
    left = config.get("modules_to_not_convert", config.get("ignored_layers", config.get("exclude")))
    ignored = _IgnoredModules([*_words(left, "modules_to_not_convert"), "lm_head"])
    if method == "quark":
        scheme = config.get("global_quant_config")
        if not isinstance(scheme, dict) or not isinstance(scheme.get("weight"), dict):
            raise ConfigError("quantization_config.global_quant_config.weight is missing")
        dtype = str(scheme["weight"].get("dtype"))
        ours = {"fp4": "mxfp4_w4a4", "fp8_e4m3": "fp8", "int8": "int8", "int4": "int4", "uint4": "int4"}.get(dtype)
        if ours is None:
            raise ConfigError(f"dtype = {dtype[:40]!r} of quark is no number format that is known")
    elif method == "bitsandbytes":
        ours = "int8_w8a16" if config.get("load_in_8bit") else "int4_group64"
    elif method in ("fp8", "fbgemm_fp8"):
        ours = "fp8_block" if config.get("weight_block_size") else "fp8"
    elif method in ("mxfp4", "mxfp8", "nvfp4"):
        ours = method
    else:
        ours = _integers(config, method)
    if method == "mxfp4":  # gpt-oss: only the experts' matrices are packed
        return lambda module: ours if ".experts" in module and not ignored(module) else None
    return lambda module: None if ignored(module) else ours


def _cache(config: Values) -> str:
    """Format of the cache where the checkpoint says one.

    Raises:
        ConfigError: one that is not known.
    """
    scheme, name = config.get("kv_cache_scheme"), config.get("kv_cache_quant_algo")
    if name is not None:
        result = {"fp8": "fp8", "int8": "int8", "nvfp4": "fp4"}.get(str(name).lower())
        if result is None:
            raise ConfigError(f"kv_cache_quant_algo = {str(name)[:40]!r} is no format of a cache; fp8, int8, nvfp4 are")
        return result
    if scheme is None:
        return ""
    kind, bits, _, _ = _tensor(scheme, "kv_cache_scheme")
    result = {("float", 8): "fp8", ("int", 8): "int8", ("float", 4): "fp4"}.get((kind, bits))
    if result is None:
        raise ConfigError(f"kv_cache_scheme: {kind} of {bits} bits is no format of a cache that is known")
    return result


def _of_class(asked: Asked, names: tuple[str, ...], layers: range, *, listed: bool) -> str:
    """Number format that most of these layers have in a class.

    Which of the names a model has is not said. Where modules are listed one by one, those that are there speak for the
    class; where modules are left alone, those that are left alone do.
    """
    result = Counter()
    for name in names:
        for prefix in PREFIXES:
            of = Counter(asked(f"{prefix}layers.{layer}.{name}") for layer in layers)
            if listed:  # a layer of another kind has no module of that name
                of.pop(None, None)
            result[of.most_common(1)[0][0] if of else None] += 1
    if listed:
        result.pop(None, None)
    left_alone = not result or None in result
    return "bf16" if left_alone else str(result.most_common(1)[0][0])


def formats_of(
    config: Any, layers: int, dense: int | None = None, modules: Mapping[str, tuple[str, ...]] | None = None
) -> WeightFormats | None:
    """Formats of a checkpoint's classes of weights; none where it is not quantised.

    Args:
        config: its `quantization_config`, or the `quantization` of a `hf_quant_config.json`.
        layers: of the model.
        dense: first layers without experts, of a model that has some; else all are.
        modules: class of weights -> names of its modules, where they are not those of `MODULES`.

    Raises:
        ConfigError: a method or format that is not known, by name.
    """
    if config is None or config == {}:
        return None
    if not isinstance(config, dict):
        raise ConfigError("quantization_config is no object")
    asked = _asked(config)
    listed = isinstance(config.get("quantized_layers"), dict) or _names_targets(config)
    routed = range(min(dense or 0, layers - 1), layers)
    first = range(dense or layers)
    of = {"experts": routed, "shared_experts": routed, "dense": first}
    result = {
        kind: _of_class(asked, names, of.get(kind, range(layers)), listed=listed)
        for kind, names in (MODULES | dict(modules or {})).items()
    }
    heads = [asked(name) for name in ("lm_head", "language_model.lm_head")]
    head = next((one for one in heads if one), None) if listed else (heads[0] if None not in heads else None)
    return WeightFormats(**result, head=head or "bf16", kv_cache=_cache(config))


def _names_targets(config: Values) -> bool:
    """True if groups name modules one by one."""
    groups = config.get("config_groups")
    rows = groups.values() if isinstance(groups, dict) else ()
    targets = [group.get("targets") for group in rows if isinstance(group, dict)]
    return bool(targets) and all(isinstance(one, list) and "Linear" not in one for one in targets)
