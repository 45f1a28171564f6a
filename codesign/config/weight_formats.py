"""Number formats of weights by class: those of a checkpoint taken, arithmetic that the devices lack widened."""

import dataclasses
from collections.abc import Sequence

from ..core.errors import ConfigError
from ..core.fields import replace
from ..model.hardware import Accelerator
from ..model.scenario import Scenario
from ..model.workloads import AbstractServing, Precision, Transformer

__all__ = ["format_lines", "published", "with_weight_formats"]

BLOCK_SCALED = ("blackwell",)
"""Generations whose engines multiply mxfp4 experts by mxfp8 activations; others expand them [trtllm_gpt_oss]."""

UNTOUCHED = {"weights": "bf16", "compute": "bf16"}
"""Precision where nobody chose one: a checkpoint's formats then take its place."""


def with_weight_formats(scenario: Scenario) -> Scenario:
    """The scenario with the formats of its checkpoint, where its precision asks for them, and arithmetic that is there.

    Raises:
        ConfigError: formats by class of a model that has no such classes.
    """
    precision = getattr(scenario.workload, "precision", None)
    if not isinstance(precision, Precision) or (precision.by_class is None and not precision.checkpoint):
        return scenario
    if precision.by_class is None and not isinstance(scenario.workload, AbstractServing):
        return scenario  # what is trained is not what was published
    model = getattr(scenario.workload, "model", None)
    if precision.by_class is not None and not isinstance(model, Transformer):
        raise ConfigError(
            f"workload.precision.by_class: {type(model).__name__} has no classes of weights; take weights and compute"
        )
    chosen = published(precision, model, _devices(scenario))
    return scenario if chosen == precision else replace(scenario, {"workload.precision": chosen})


def published(precision: Precision, model: object, devices: Sequence[Accelerator]) -> Precision:
    """The precision with the formats of its model's checkpoint, where it asks for them, as these devices multiply."""
    chosen = _of_checkpoint(precision, model)
    if chosen is not precision and all(a.generation in BLOCK_SCALED for a in devices):
        chosen = _block_scaled(chosen)
    if chosen.by_class is None:
        return chosen
    absent = tuple(one for one in chosen.by_class.products() if not all(_has(a, one) for a in devices))
    return dataclasses.replace(chosen, lacking=absent)


def _of_checkpoint(precision: Precision, model: object) -> Precision:
    """Formats that the model was published in, unless others were chosen."""
    formats = getattr(model, "formats", None)
    untouched = all(getattr(precision, name) == value for name, value in UNTOUCHED.items())
    if not precision.checkpoint or precision.by_class is not None or formats is None or not untouched:
        return precision
    cache = {"kv_cache": formats.kv_cache} if formats.kv_cache and precision.kv_cache == "bf16" else {}
    return dataclasses.replace(precision, by_class=formats, **cache)


def _block_scaled(precision: Precision) -> Precision:
    """Precision whose experts in mxfp4 meet activations of 8 bits."""
    formats = precision.by_class
    if formats is None or formats.experts != "mxfp4":
        return precision
    return dataclasses.replace(precision, by_class=dataclasses.replace(formats, experts="mxfp4_w4a8"))


def _devices(scenario: Scenario) -> list[Accelerator]:
    cluster = scenario.cluster
    others = [pool.cluster.accelerator for pool in (cluster.prefill, cluster.later_stages) if pool is not None]
    return [cluster.accelerator, *others]


def _has(accelerator: Accelerator, number_format: str) -> bool:
    return number_format in accelerator.peak_flops_per_s


def format_lines(scenario: Scenario) -> list[str]:
    """Lines on formats by class: which they are, those that the devices lack, those that were not measured."""
    precision = getattr(scenario.workload, "precision", None)
    formats = getattr(precision, "by_class", None)
    model = getattr(scenario.workload, "model", None)
    if precision is None or formats is None or not isinstance(model, Transformer):
        return []
    classes = {kind for kind, count in model.weights_by_class().items() if kind and float(count) > 0}
    lines = [f"weights: {formats.told(classes)}; KV cache {precision.kv_cache}"]
    for accelerator in _devices(scenario):
        name, wide = accelerator.name, precision.compute
        lines += [f"{name} has no {one}: products in it run in {wide}" for one in precision.lacking]
        for one in formats.products():
            kernels = accelerator.kernels.get("moe_gemm" if "experts" in classes else "gemm") or {}
            if one not in precision.lacking and kernels and one not in kernels and "any" not in kernels:
                lines.append(f"{name}: products in {one} were not measured; kernels of the nearest format stand in")
    return list(dict.fromkeys(lines))
