"""Defaults of a study: the default experiment if nothing is named, neutral groups once a part of the study is.

A model, workload or accelerator that is named brings what belongs to it (its plans, its space, a goal that any job has)
and nothing of anybody else's: no ranges of hardware, no budgets.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from ..core.json_yaml import is_mapping
from ..core.short_names import full_names
from .groups import accelerator_option, files, read_yaml
from .model_names import OPTIONS, hub_name, model_option, overrides_of_format

# `framework=auto`: the framework that people run on an accelerator for a job.
#
# Serving engines were measured on Hopper and Blackwell; elsewhere the same constants stand in, with the intervals of
# jobs whose framework is not named (`uncertainty.draws`). Training frameworks are taken where their steps were
# measured; elsewhere the middle of all measured jobs stands in, with the errors of all of them.
#
# A study that starts from catalogue products takes it unless it names a framework; an experiment keeps what it says.
# `framework=none` prices kernels alone, a bound that nobody reaches.


AUTO, NONE = "auto", "none"
TYPICAL = "typical"
TRAINING = {
    "ampere": "megatron", "hopper": "nemo_h100", "blackwell": "nemo",
    **dict.fromkeys(("tpu_v5e", "tpu_v5p", "tpu_v6e", "tpu7", "tpu8"), "maxtext"),
}  # fmt: skip
"""Generation -> framework whose training steps were measured there, or on its kin; elsewhere `TYPICAL`."""
STATIC = "StaticBatch"
CLOSED, OPEN = "vllm", "vllm_async"
SERVING = {
    "ContinuousServing": CLOSED, "ServingAtRate": OPEN, "GoodputServing": OPEN, "DisaggregatedServing": CLOSED,
    "DisaggregatedClients": CLOSED, "AttentionFfnServing": CLOSED,
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


def published_formats(overrides: Iterable[str]) -> list[str]:
    """Overrides of the formats that a served model was published in, where the base formats are others.

    They are those that a hub's name says (`Qwen/Qwen3-32B-AWQ`), else those of the model's own release.
    """
    chosen = {"workload": "", "model": ""}
    for text in overrides:
        key, _, value = text.lstrip("+").partition("=")
        if key in chosen:
            chosen[key] = value
        elif key.startswith(("precision", "workload.precision")):
            return []
    workloads = [_option_config("workload", name.strip()) for name in chosen["workload"].split(",")]
    served = all(str(config.get("_target_", "")).rpartition(".")[2] in {*SERVING, STATIC} for config in workloads)
    if not served or any(set(config.get("precision") or {}) > {"_target_"} for config in workloads):
        return []
    models = [name.strip() for name in chosen["model"].split(",")]
    said = [_by_name(name) for name in models]
    if any(said):
        return said[0] if all(one == said[0] for one in said) else []
    return [PUBLISHED] if any(_option_config("model", name).get("formats") for name in models) else []


def _by_name(name: str) -> list[str]:
    """Overrides of the format that a quantised checkpoint's name says; none of any other name."""
    if name in {path.stem for path in files("model")}:
        return []
    try:
        row = hub_name(name)
    except ConfigError:
        return []
    model = _option_config("model", row.model)
    formats: dict[str, Any] = model.get("formats") or {}
    expert_format = str(formats.get("experts") or formats.get("dense") or "")
    if expert_format.startswith(row.format):
        return [PUBLISHED]
    experts = "experts" in (model.get("feed_forward") or {})
    return overrides_of_format(row.format, experts=experts) if row.format in OPTIONS else []


def _of(accelerator: str, workload: str) -> str:
    kind = str(_option_config("workload", workload).get("_target_", "")).rpartition(".")[2]
    if kind == "Training":
        return TRAINING.get(str(_option_config("accelerator", accelerator).get("generation", "")), TYPICAL)
    return SERVING.get(kind, NONE)


def _option_config(group: str, option: str) -> dict[str, Any]:
    """Read the file of an option, with those that it is made from."""
    paths: dict[str, Path] = {path.stem: path for path in files(group)}
    if option not in paths:
        named = (
            accelerator_option(option) if group == "accelerator" else model_option(option) if group == "model" else None
        )
        return {} if named is None else _option_config(group, named)
    node: Any = read_yaml(paths[option])
    entries: Any = node.get("defaults") or []
    inherited = [str(entry) for entry in entries if isinstance(entry, str) and entry != "_self_"]
    result: dict[str, Any] = {}
    for name in inherited:
        result |= _option_config(group, name) if name != option else {}
    for key in ("cluster", "accelerator") if group == "accelerator" else ():
        node = node.get(key, node) if is_mapping(node) else {}
    return result | (node if is_mapping(node) else {})


DEFAULT = "train_gpt3_175b"
NAMING = ("experiment", "model", "workload", "accelerator")
"""Groups of which any, named, says what the study is about."""
AUTO_FRAMEWORK = f"framework={AUTO}"
PUBLISHED = "precision=checkpoint"
REQUESTS = ("workload.input_tokens", "workload.output_tokens")
RATE = "workload.arrivals_per_s"
"""Numbers that say what is served where no workload is named."""


def names(overrides: Iterable[str], *groups: str) -> bool:
    """True if one of these groups is chosen, or taken away."""
    return any(text.lstrip("+~").partition("=")[0] in groups for text in overrides)


def _with_workload(overrides: Iterable[str]) -> list[str]:
    """The overrides, with the workload that their numbers speak of where none is named."""
    given = list(overrides)
    if names(given, "experiment", "workload"):
        return given
    stated = {text.lstrip("+").partition("=")[0] for text in full_names(given)}
    if RATE in stated:
        return ["workload=at_rate", *given]
    return ["workload=continuous", *given] if stated & {*REQUESTS} else given


def started(overrides: list[str]) -> list[str]:
    """The overrides, with what they leave open: the workload that their numbers speak of, else the default experiment;
    the framework that people run."""
    overrides = _with_workload(overrides)
    if not names(overrides, *NAMING):
        return [f"experiment={DEFAULT}", *overrides]
    if AUTO_FRAMEWORK not in overrides and names(overrides, "experiment", "framework"):
        return _as_published(list(overrides))
    chosen = [text for text in overrides if text != AUTO_FRAMEWORK]
    usual = usual_framework(chosen)
    return [*_as_published(chosen), *([] if usual == NONE else [f"framework={usual}"])]


def _as_published(overrides: list[str]) -> list[str]:
    """The overrides, with the formats of the checkpoint where one is served that was published in others than bf16."""
    return overrides if names(overrides, "experiment") else [*overrides, *published_formats(overrides)]


def framework_line(overrides: list[str]) -> str:
    """The line that says which frameworks are taken; empty where the study named one, or none was measured."""
    overrides = _with_workload(overrides)
    if not names(overrides, *NAMING) or (
        AUTO_FRAMEWORK not in overrides and names(overrides, "experiment", "framework")
    ):
        return ""
    usual = [name for name in usual_frameworks(overrides) if name != NONE]
    if not usual:
        return ""
    if usual == [TYPICAL]:
        return f"framework={TYPICAL}, the middle of all measured jobs, since none was measured on these devices"
    return f"framework={' and '.join(usual)}, what usually runs this; framework=none prices kernels alone"


def precision_line(overrides: list[str]) -> str:
    """The line that says that the checkpoint's number formats are taken; empty where the study named one."""
    overrides = _with_workload(overrides)
    if not names(overrides, *NAMING) or names(overrides, "experiment") or not (said := published_formats(overrides)):
        return ""
    return f"{said[0]}, the formats it was published in; precision=bf16 serves two bytes a weight"


def defaults_line(overrides: list[str]) -> str:
    """The line that says which study is taken; empty where it was named."""
    meant = _with_workload(overrides)
    if len(meant) > len(overrides):
        return f"{meant[0]}, since requests are described; workload=static_batch serves one batch at a time"
    if names(overrides, *NAMING):
        return ""
    return (
        f"experiment={DEFAULT}, the default: its ranges of hardware and its budgets hold;"
        f" {', '.join(f'{group}=' for group in NAMING[1:-1])} or {NAMING[-1]}= starts from catalogue products instead"
    )
