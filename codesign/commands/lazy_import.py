"""Names of modules that are loaded when a command needs them, and not before."""

import gc
from collections.abc import Callable
from typing import Any

YOUNG = 20_000  # objects between two searches for garbage, instead of 700


def later(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is only loaded for its own command.

    What is loaded by then stays for good, and a trace makes many objects that stay for long: looking through all of
    them for garbage again and again would take a fifth of a default run.
    """
    import importlib

    result = getattr(importlib.import_module(f"codesign.{module}"), name)
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(YOUNG, 20, 20)
        gc.enable()
    return result
