"""Defaults of a study: the default experiment if nothing is named, neutral groups once a part of the study is.

A model, workload or accelerator that is named brings what belongs to it (its plans, its space, a goal that any job has)
and nothing of anybody else's: no ranges of hardware, no budgets.
"""

from collections.abc import Iterable

from ..core.short_names import full_names
from .usual_framework import AUTO, NONE, serves_published_formats, usual_framework, usual_frameworks

DEFAULT = "train_gpt3_175b"
NAMING = ("experiment", "model", "workload", "accelerator")
"""Groups of which any, named, says what the study is about."""
ASKED = f"framework={AUTO}"
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
    if ASKED not in overrides and names(overrides, "experiment", "framework"):
        return _as_published(list(overrides))
    kept = [text for text in overrides if text != ASKED]
    usual = usual_framework(kept)
    return [*_as_published(kept), *([] if usual == NONE else [f"framework={usual}"])]


def _as_published(overrides: list[str]) -> list[str]:
    """The overrides, with the formats of the checkpoint where one is served that was published in others than bf16."""
    if names(overrides, "experiment") or not serves_published_formats(overrides):
        return overrides
    return [*overrides, PUBLISHED]


def framework_told(overrides: list[str]) -> str:
    """The line that says which frameworks are taken; empty where the study named one, or none was measured."""
    overrides = _with_workload(overrides)
    if not names(overrides, *NAMING) or (ASKED not in overrides and names(overrides, "experiment", "framework")):
        return ""
    usual = [name for name in usual_frameworks(overrides) if name != NONE]
    if not usual:
        return ""
    return f"framework={' and '.join(usual)}, what usually runs this; framework=none prices kernels alone"


def precision_told(overrides: list[str]) -> str:
    """The line that says that the checkpoint's number formats are taken; empty where the study named one."""
    overrides = _with_workload(overrides)
    if not names(overrides, *NAMING) or names(overrides, "experiment") or not serves_published_formats(overrides):
        return ""
    return f"{PUBLISHED}, the formats it was published in; precision=bf16 serves two bytes a weight"


def told(overrides: list[str]) -> str:
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
