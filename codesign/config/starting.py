"""Where a study starts: the default experiment if nothing is named, neutral groups once a part of the study is.

A model, workload or accelerator that is named brings what belongs to it (its plans, its space, a goal that any job has)
and nothing of anybody else's: no ranges of hardware, no budgets.
"""

from collections.abc import Iterable

DEFAULT = "train_gpt3_175b"
NAMING = ("experiment", "model", "workload", "accelerator")
"""Groups of which any, named, says what the study is about."""


def names(overrides: Iterable[str], *groups: str) -> bool:
    """Whether one of these groups is chosen, or taken away."""
    return any(text.lstrip("+~").partition("=")[0] in groups for text in overrides)


def started(overrides: list[str]) -> list[str]:
    """The overrides, the default experiment among them where they name nothing that a study is about."""
    return list(overrides) if names(overrides, *NAMING) else [f"experiment={DEFAULT}", *overrides]


def told(overrides: list[str]) -> str:
    """The line that says so; empty where the study was named."""
    if names(overrides, *NAMING):
        return ""
    return (
        f"experiment={DEFAULT}, the default: its ranges of hardware and its budgets hold;"
        f" {', '.join(f'{group}=' for group in NAMING[1:-1])} or {NAMING[-1]}= starts from catalogue products instead"
    )
