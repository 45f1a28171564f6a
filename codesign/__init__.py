"""Co-design of AI accelerators, memory, fabrics and parallelism with gradients and proofs.

A candidate cluster is one pytree (`Scenario`), a design variable is a path to one of its leaves, and every metric is a
pure function of the tree (`evaluate`).
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_MENU = {
    "Cluster": "scenario",
    "Scenario": "scenario",
    "Plan": "workloads",
    "evaluate": "metrics",
    "Metrics": "metrics",
    "replace": "fields",
    "scenario_from_config": "config",
    "study_from_config": "config",
}


def __getattr__(name: str) -> Any:
    """Import the menu lazily, so that the command line starts without JAX."""
    if name in _MENU:
        return getattr(importlib.import_module(f".{_MENU[name]}", __name__), name)
    raise AttributeError(f"module 'codesign' has no attribute {name!r}")
