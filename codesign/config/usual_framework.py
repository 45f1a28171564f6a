"""`framework=auto`: the framework that people run on an accelerator for a job.

Serving engines were measured on Hopper and Blackwell; elsewhere the same constants stand in, with the intervals of jobs
whose framework is not named (`uncertainty.draws`). Training frameworks are taken where their steps were measured.

A study that starts from catalogue products takes it unless it names a framework; an experiment keeps what it says.
`framework=none` prices kernels alone, a bound that nobody reaches.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..core.yaml_io import is_mapping
from .groups import accelerator_option, files, read_yaml
from .model_names import model_option

AUTO, NONE = "auto", "none"
TRAINING = {"ampere": "megatron", "hopper": "nemo_h100", "blackwell": "nemo_26_06"}
"""Generation -> framework whose training steps were measured there."""
STATIC = "StaticBatch"
CLOSED, OPEN = "vllm", "vllm_async"
SERVING = {
    "ContinuousServing": CLOSED, "ServingAtRate": OPEN, "GoodputServing": OPEN, "DisaggregatedServing": CLOSED,
    "DisaggregatedClients": CLOSED,
    "DisaggregatedAtRate": OPEN, "DisaggregatedGoodput": OPEN,
}  # fmt: skip
"""Class of a workload -> engine: vLLM runs on every accelerator here; closed and open loops were fitted apart."""
NAMED = {"accelerator": accelerator_option, "model": model_option}
"""Group -> option that another name of it means."""
DEFAULTS = {"accelerator": "h100_sxm", "workload": "training"}
"""Defaults of `conf/config.yaml`."""


def usual_framework(overrides: Iterable[str]) -> str:
    """The option of `framework` for the accelerator and the workload that these overrides choose.

    `none` where nothing was measured, or where several are chosen that have none in common.
    """
    result = usual_frameworks(overrides)
    return result[0] if len(result) == 1 else NONE


def usual_frameworks(overrides: Iterable[str]) -> list[str]:
    """The framework of every combination of accelerator and workload that these overrides list, each once."""
    chosen = dict(DEFAULTS)
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        if key in DEFAULTS:
            chosen[key] = value
    return sorted({
        _of(accelerator.strip(), workload.strip())
        for accelerator in chosen["accelerator"].split(",")
        for workload in chosen["workload"].split(",")
    })  # fmt: skip


def serves_published_formats(overrides: Iterable[str]) -> bool:
    """True if these overrides serve a model in the base formats whose checkpoint was published in others."""
    chosen = {"workload": "", "model": ""}
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        if key in chosen:
            chosen[key] = value
        elif key.startswith(("precision", "workload.precision")):
            return False
    workloads = [_told("workload", name.strip()) for name in chosen["workload"].split(",")]
    served = all(str(told.get("_target_", "")).rpartition(".")[2] in {*SERVING, STATIC} for told in workloads)
    plain = all(set(told.get("precision") or {}) <= {"_target_"} for told in workloads)
    return served and plain and any(_told("model", name.strip()).get("formats") for name in chosen["model"].split(","))


def _of(accelerator: str, workload: str) -> str:
    kind = str(_told("workload", workload).get("_target_", "")).rpartition(".")[2]
    if kind == "Training":
        return TRAINING.get(str(_told("accelerator", accelerator).get("generation", "")), NONE)
    return SERVING.get(kind, NONE)


def _told(group: str, option: str) -> dict[str, Any]:
    """Read the file of an option, with those that it is made from."""
    paths: dict[str, Path] = {path.stem: path for path in files(group)}
    if option not in paths:
        named = (
            accelerator_option(option) if group == "accelerator" else model_option(option) if group == "model" else None
        )
        return {} if named is None else _told(group, named)
    node: Any = read_yaml(paths[option])
    entries: Any = node.get("defaults") or []
    inherited = [str(entry) for entry in entries if isinstance(entry, str) and entry != "_self_"]
    result: dict[str, Any] = {}
    for name in inherited:
        result |= _told(group, name) if name != option else {}
    for key in ("cluster", "accelerator") if group == "accelerator" else ():
        node = node.get(key, node) if is_mapping(node) else {}
    return result | (node if is_mapping(node) else {})
