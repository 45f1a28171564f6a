"""What a reader sees: one page for a run, one Markdown page for a reproduced experiment. Tables and figures come from
the run folder alone: no search, no JAX. The menu is lazy: who asks for words and units alone draws nothing."""

import importlib
from typing import Any

_MENU = {
    "build_report": "build",
    "write_run_report": "committed",
    "write_experiment_report": "experiment",
    "RunFolder": "run_folder",
    "read_run": "run_folder",
}


def __getattr__(name: str) -> Any:
    """Import an entry of the menu when it is first asked for."""
    if name in _MENU:
        return getattr(importlib.import_module(f".{_MENU[name]}", __name__), name)
    raise AttributeError(f"module 'codesign.report' has no attribute {name!r}")
