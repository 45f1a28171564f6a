"""Number formats of weights by class: bytes with their scales, and the arithmetic of a product with them."""

from collections.abc import Iterable
from typing import NamedTuple

from ...core.errors import ConfigError, suggestion
from ...core.fields import Module, static


class WeightFormat(NamedTuple):
    """One format of weights.

    `nbytes`: of a weight, scales included; `product`: format of the arithmetic ("": that of the activations, as
    weights are expanded before it). Engines have kernels of their own for some: `kernel` names the measured ones of
    that product, `expanding` those that expand the weights ("": the kernels of the arithmetic alone). Source:
    [ocp_mx] for mx formats, [nvidia_nvfp4] for nvfp4, layouts of the checkpoints for the others.
    """

    nbytes: float
    product: str
    kernel: str = ""
    expanding: str = ""


EXPANDING = "mxfp4_w4a16"
"""Kernels that expand weights of 4 bits; those of other groupings (AWQ, GPTQ, nvfp4) were not measured (assumed)."""

WEIGHT_FORMATS = {
    "fp32": WeightFormat(4.0, ""),
    "bf16": WeightFormat(2.0, ""),
    "fp16": WeightFormat(2.0, ""),
    "fp8": WeightFormat(1.0, "fp8"),  # a scale a tensor or a channel: below a thousandth
    "fp8_block": WeightFormat(1.0 + 4 / 128**2, "fp8", "fp8_block"),  # fp32 a block of 128 x 128
    "fp8_w8a16": WeightFormat(1.0, ""),
    "mxfp8": WeightFormat(1.0 + 1 / 32, "fp8"),  # 8 bits of exponent every 32
    "int8": WeightFormat(1.0, "int8"),
    "int8_w8a16": WeightFormat(1.0, ""),
    # int4 of AWQ and GPTQ: groups of 128 with an fp16 scale and 4 bits of zero point
    "int4": WeightFormat(0.5 + 2.5 / 128, "", "", EXPANDING),
    "int4_group32": WeightFormat(0.5 + 2 / 32, "", "", EXPANDING),
    "int4_group64": WeightFormat(0.5 + 2.5 / 64, "", "", EXPANDING),
    "int4_channel": WeightFormat(0.5, "", "", EXPANDING),
    "int4_w4a8": WeightFormat(0.5 + 2.5 / 128, "fp8", "", EXPANDING),
    "nvfp4": WeightFormat(0.5 + 1 / 16, "fp4", "", EXPANDING),  # fp8 scale every 16, one a tensor
    "nvfp4_w4a16": WeightFormat(0.5 + 1 / 16, "", "", EXPANDING),
    "mxfp4": WeightFormat(0.5 + 1 / 32, "", "", EXPANDING),  # 8 bits of exponent every 32; W4A16, as gpt-oss is served
    "mxfp4_w4a8": WeightFormat(0.5 + 1 / 32, "fp8", "mxfp4_w4a8", EXPANDING),
    "mxfp4_w4a4": WeightFormat(0.5 + 1 / 32, "fp4", "", EXPANDING),
}
"""Formats that checkpoints are published in."""

CLASSES = ("attention", "linear_attention", "dense", "experts", "shared_experts", "head", "embedding")
"""Classes of weights that have a format of their own; all others (routers, norms) stay as activations are."""

OP_CLASSES = (
    ("attention", "attention"), ("index", "attention"), ("linear", "linear_attention"), ("mlp", "dense"),
    ("moe_shared", "shared_experts"), ("moe_up", "experts"), ("moe_down", "experts"), ("head", "head"),
)  # fmt: skip
"""Beginning of an operation's name -> class of its weights: names begin with their sub-layer."""


def class_of(operation: str) -> str:
    """Class of the weights of an operation; empty for what is never stored in a format of its own."""
    return next((kind for start, kind in OP_CLASSES if operation.startswith(start)), "")


class WeightFormats(Module):
    """The format of each class of weights, and of the cache where a checkpoint says it (empty: it does not)."""

    attention: str = static(default="bf16")
    linear_attention: str = static(default="bf16")
    dense: str = static(default="bf16")
    experts: str = static(default="bf16")
    shared_experts: str = static(default="bf16")
    head: str = static(default="bf16")
    embedding: str = static(default="bf16")
    kv_cache: str = static(default="")

    def __check_init__(self) -> None:
        """Refuse a format that is not known."""
        for name in CLASSES:
            value = getattr(self, name)
            if value not in WEIGHT_FORMATS:
                names = f"known: {', '.join(WEIGHT_FORMATS)}"
                hint = suggestion(str(value), list(WEIGHT_FORMATS))
                raise ConfigError(f"precision.by_class.{name} = {value!r} is no format of weights{hint} ({names})")

    def of(self, operation: str) -> WeightFormat | None:
        """The format of an operation's weights; none where it has none of its own."""
        kind = class_of(operation)
        return WEIGHT_FORMATS[getattr(self, kind)] if kind else None

    def products(self) -> tuple[str, ...]:
        """Formats of arithmetic that these weights ask for, beside that of the activations."""
        products = {WEIGHT_FORMATS[getattr(self, name)].product for name in CLASSES}
        return tuple(sorted(products - {""}))

    def told(self, classes: Iterable[str] = CLASSES) -> str:
        """One line: those of the classes that are in each format."""
        by_format: dict[str, list[str]] = {}
        for name in (name for name in CLASSES if name in set(classes)):
            by_format.setdefault(getattr(self, name), []).append(name.replace("_", " "))
        return "; ".join(f"{number_format}: {', '.join(names)}" for number_format, names in by_format.items())


def everywhere(number_format: str, kv_cache: str = "") -> WeightFormats:
    """Layers in one format; embedding and head as they are mostly left, in bf16."""
    layers = dict.fromkeys(CLASSES[:5], number_format)
    return WeightFormats(**layers, kv_cache=kv_cache)
