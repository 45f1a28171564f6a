"""From YAML to objects: compose a configuration, build it, refuse what is wrong with it in one line.

Only this package, `run` and `cli` know Hydra. The menu is lazy: `codesign list` reads `conf/` without JAX.
"""

import importlib
from typing import Any

_MENU = {
    "available": "groups",
    "conf_dir": "groups",
    "search_path": "groups",
    "compose": "composition",
    "build": "construct",
    "Built": "construct",
    "Study": "study",
    "study_from_config": "study",
    "study_from_resolved": "study",
    "scenario_from_config": "study",
    "check_plan": "checks",
    "check_formats": "checks",
    "check_memory": "checks",
}


def __getattr__(name: str) -> Any:
    """Import an entry of the menu when it is first asked for."""
    if name in _MENU:
        return getattr(importlib.import_module(f".{_MENU[name]}", __name__), name)
    raise AttributeError(f"module 'codesign.config' has no attribute {name!r}")
