"""The model of a launch command: a hub's name, a folder or its `config.json`; formats of weights and cache."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from ...config import available
from ...config.hub_names import hub_name
from ...core.errors import ConfigError
from ...core.resources import conf_dir
from ...core.untrusted_io import read_text
from .switches import Switches

__all__ = ["LaunchedModel", "format_overrides", "model_of", "weight_format"]

QUANTIZATIONS = (
    (r"fp8.*|w8a8_fp8|ptpc_fp8|fbgemm_fp8", "fp8"),
    (r"mxfp8", "mxfp8"),
    (r"(modelopt_fp4|nvfp4|petit_nvfp4).*", "nvfp4"),
    (r"(mxfp4|gpt_oss_mxfp4|quark_mxfp4|quark_int4fp8_moe).*", "mxfp4"),
    (r"(awq|gptq|gptq_marlin|awq_marlin|moe_wna16|w4a8|w4afp8|qoq|bitsandbytes|marlin|int4).*", "int4"),
    (r"(int8|w8a8_int8|experts_int8|w8a8|blockwise_int8|smoothquant).*", "int8"),
)
"""Values of `--quantization` -> format of the weights; others take what the checkpoint says."""
DTYPES = {
    "auto": "",
    "bfloat16": "bf16",
    "bf16": "bf16",
    "half": "fp16",
    "float16": "fp16",
    "fp16": "fp16",
    "float": "fp32",
    "float32": "fp32",
    "fp32": "fp32",
}
IN_CHECKPOINT = re.compile('"(?:quant_method|quant_algo)": *"([A-Za-z0-9_-]+)"')
MODULES = re.compile(r'"(?:num_nextn_predict_layers|(?:num_)?mtp_(?:num_)?(?:hidden_)?(?:layers|modules))": *[1-9]')
"""Modules that predict ahead in a published file (`model.workloads.hub.AHEAD`)."""
OPTIONS = {"fp8": "fp8", "fp8_block": "fp8_block", "mxfp8": "fp8", "int8": "int8", "nvfp4": "nvfp4", "mxfp4": "mxfp4",
           "int4": "int4"}  # fmt: skip
"""Format -> option of the group `precision`, of which that of mxfp8 has coarser scales."""
ROUTED = ("nvfp4", "mxfp4", "int4")
"""Formats that published mixtures have in their experts alone, with attention as it was (`ignore` of their files)."""
FORMATS = re.compile(r"(?m)^formats:.*\n((?:[ ]+.*\n?)*)")


class LaunchedModel(NamedTuple):
    """Overrides that choose a model, whether it has experts, format of its published weights, layers (0: not known).

    published: the model's own file says the format of each class of its weights. ahead: it has modules that predict
    tokens ahead.
    """

    overrides: tuple[str, ...]
    experts: bool
    format: str
    layers: int
    published: bool = False
    ahead: bool = False


def model_of(name: str) -> LaunchedModel:
    """A model by a hub's name, the option of the catalogue, a folder with a `config.json`, or that file.

    Raises:
        ConfigError: none of these, or a model that no workload serves.
    """
    if not name:
        raise ConfigError("--from: the command names no model: 'vllm serve MODEL ...', or --model-path MODEL")
    path = Path(name)
    path = path if name.endswith(".json") else path / "config.json"
    if os.path.isfile(path):  # False of what can be no file: too long, or not printable
        text = read_text(path, "model")
        other = path.parent / "hf_quant_config.json"
        said = IN_CHECKPOINT.search(text) or (
            IN_CHECKPOINT.search(read_text(other, "model")) if other.is_file() else None
        )
        layers = re.search(r'"num_hidden_layers": *([0-9]{1,4})\b', text)
        result = weight_format(said[1].lower()) if said else "bf16"
        return LaunchedModel(
            ("model=hf_config", f"model.path={path}"),
            "experts" in text,
            result or "bf16",
            int(layers[1]) if layers else 0,
            published=True,
            ahead=bool(MODULES.search(text)),
        )
    if name in available("model"):
        return _of_catalogue(name, "bf16")
    try:
        row = hub_name(name)
    except ConfigError as error:
        raise ConfigError(f"--from: {error}") from None
    return _of_catalogue(row.model, row.format)


def _of_catalogue(option: str, published: str) -> LaunchedModel:
    path = conf_dir() / "model" / f"{option}.yaml"
    text = read_text(path, "model") if path.is_file() else ""
    layers = re.search(r"(?m)^layers: *([0-9]{1,4})\b", text)
    formats = FORMATS.search(text)
    own = set(re.findall(r":\s*(\w+)\s*$", formats[1], re.MULTILINE)) if formats else set[str]()
    return LaunchedModel(
        (f"model={option}",),
        "experts:" in text,
        published,
        int(layers[1]) if layers else 0,
        any(one.startswith(published) for one in own),
        "predicts_ahead:" in text,
    )


def weight_format(quantization: str) -> str:
    """Format that `--quantization` chooses; empty where the checkpoint's own holds."""
    return next((result for pattern, result in QUANTIZATIONS if re.fullmatch(pattern, quantization)), "")


def format_overrides(found: Switches, model: LaunchedModel, notes: list[str], workload: str) -> list[str]:
    """Overrides of the workload and its number formats; products are taken to be in the weights' format.

    Args:
        found: of a server's command.
        model: of that command.
        notes: lines of what was taken; more are added.
        workload: option of the group `workload`, without number formats.
    """
    asked = found.text("quantization").lower()
    dtype = DTYPES.get(found.text("dtype", default="auto").lower(), "")
    chosen = [f"workload={workload}"]
    cache = _cache(found, notes)
    kept = [f"workload.precision.kv_cache={cache}"] if cache else []
    if model.published:
        notes.append(f"the published checkpoint is in {model.format}: so are its weights here")
        return [*chosen, "precision=checkpoint", *kept]
    weights = weight_format(asked)
    if not weights and model.format not in ("bf16", ""):
        weights = model.format
        notes.append(f"the published checkpoint is in {weights}: so are its weights here")
    elif not weights and asked not in ("", "none", "auto"):
        notes.append(f"--quantization {asked} says no format that is known: weights are priced in two bytes")
    if weights in OPTIONS:
        found_cache = kept or (["workload.precision.kv_cache=bf16"] if weights in ("fp8", "mxfp8") else [])
        routed = [f"workload.precision.by_class.{name}=bf16" for name in ("attention", "linear_attention")]
        only = model.experts and weights in ROUTED and not asked
        return [*chosen, f"precision={OPTIONS[weights]}", *found_cache, *(routed if only else [])]
    if dtype in ("fp16", "fp32"):
        return [*chosen, *(f"workload.precision.{tensor}={dtype}" for tensor in ("compute", "weights")), *kept]
    return [*chosen, *kept]


def _cache(found: Switches, notes: list[str]) -> str:
    """Format of keys and values; empty where they are in two bytes."""
    text = found.text("kv-cache-dtype").lower()
    if not text:
        text = str(found.mapping("kv-cache-config").get("dtype", "")).lower()  # TensorRT-LLM
    if text in ("", "auto", "bf16", "bfloat16", "fp16", "float16", "half"):
        return ""
    if text.startswith(("fp8", "mxfp8")) and "mla" not in text:
        return "fp8"
    if text.startswith("fp8"):
        return "fp8"
    if text.startswith("int8"):
        return "int8"
    if "fp4" in text:
        return "fp4"
    notes.append(f"{found.shown('kv-cache-dtype')} {text}: keys and values are priced in two bytes")
    return ""
