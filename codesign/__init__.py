"""Co-design of AI accelerators, memory, fabrics and parallelism with gradients and proofs.

A candidate cluster is one pytree (`Scenario`), a design variable is a path to one of its leaves, and every metric is a
pure function of the tree (`evaluate`). `study_from_config` builds a study from the same configuration as the command
line, `solve` searches it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # names are imported when they are first asked for: the command line starts without JAX
    from .config import Study as Study
    from .config import scenario_from_config as scenario_from_config
    from .config import study_from_config as study_from_config
    from .errors import CodesignError as CodesignError
    from .errors import ConfigError as ConfigError
    from .fields import replace as replace
    from .metrics import Metrics as Metrics
    from .metrics import evaluate as evaluate
    from .objective import Objective as Objective
    from .scenario import Cluster as Cluster
    from .scenario import Scenario as Scenario
    from .search import Certificate as Certificate
    from .search import Certified as Certified
    from .search import Grid as Grid
    from .search import GridThenProof as GridThenProof
    from .search import Inverse as Inverse
    from .search import Mix as Mix
    from .search import Pareto as Pareto
    from .search import Problem as Problem
    from .search import Robust as Robust
    from .search import Whole as Whole
    from .solving import Solution as Solution
    from .solving import solve as solve
    from .space import Continuous as Continuous
    from .space import DesignSpace as DesignSpace
    from .space import Ratio as Ratio
    from .workloads import Plan as Plan

__version__ = "0.1.0"

_HOME = {
    "config": ("Study", "scenario_from_config", "study_from_config"),
    "errors": ("CodesignError", "ConfigError"),
    "fields": ("replace",),
    "metrics": ("Metrics", "evaluate"),
    "objective": ("Objective",),
    "scenario": ("Cluster", "Scenario"),
    "search": (
        "Certificate",
        "Certified",
        "Grid",
        "GridThenProof",
        "Inverse",
        "Mix",
        "Pareto",
        "Problem",
        "Robust",
        "Whole",
    ),
    "solving": ("Solution", "solve"),
    "space": ("Continuous", "DesignSpace", "Ratio"),
    "workloads": ("Plan",),
}

__all__ = [
    "Certificate", "Certified", "Cluster", "CodesignError", "ConfigError", "Continuous", "DesignSpace", "Grid",
    "GridThenProof", "Inverse", "Metrics", "Mix", "Objective", "Pareto", "Plan", "Problem", "Ratio", "Robust",
    "Scenario", "Solution", "Study", "Whole", "evaluate", "replace", "scenario_from_config", "solve",
    "study_from_config",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    for home, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f".{home}", __name__), name)
    raise AttributeError(f"module 'codesign' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What completion shows."""
    return sorted({*globals(), *__all__})
