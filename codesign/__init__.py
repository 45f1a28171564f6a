"""Co-design of AI accelerators, memory, fabrics and parallelism with gradients and proofs.

A candidate cluster is one pytree (`Scenario`), a design variable is a path to one of its leaves, and every metric is a
pure function of the tree (`evaluate`). `study_from_config` builds a study from the same configuration as the command
line, `solve` searches it; a `Problem` of a scenario, a `DesignSpace` and an `Objective` needs no configuration. What
else may be relied on is in docs/api.md.
"""

from typing import TYPE_CHECKING

from . import release
from .menus import lazily

if TYPE_CHECKING:  # names are imported when they are first asked for: the command line starts without JAX
    from .config import Study as Study
    from .config import scenario_from_config as scenario_from_config
    from .config import study_from_config as study_from_config
    from .errors import CodesignError as CodesignError
    from .errors import ConfigError as ConfigError
    from .fields import get_path as get_path
    from .fields import replace as replace
    from .metrics import Metrics as Metrics
    from .metrics import evaluate as evaluate
    from .objective import Objective as Objective
    from .report.side_by_side import Comparison as Comparison
    from .results import designs as designs
    from .results import elasticities as elasticities
    from .results import ops as ops
    from .results import pareto as pareto
    from .run.comparing import compare as compare
    from .run.setup import prepare_jax as prepare_jax
    from .scenario import Cluster as Cluster
    from .scenario import Facility as Facility
    from .scenario import Host as Host
    from .scenario import Scenario as Scenario
    from .search import AbstractSearch as AbstractSearch
    from .search import Amortised as Amortised
    from .search import Blackbox as Blackbox
    from .search import Cases as Cases
    from .search import Certificate as Certificate
    from .search import Certified as Certified
    from .search import Descent as Descent
    from .search import Gradient as Gradient
    from .search import Grid as Grid
    from .search import GridThenGradient as GridThenGradient
    from .search import GridThenProof as GridThenProof
    from .search import Inverse as Inverse
    from .search import Mix as Mix
    from .search import MixEntry as MixEntry
    from .search import Pareto as Pareto
    from .search import Problem as Problem
    from .search import Progress as Progress
    from .search import Robust as Robust
    from .search import Single as Single
    from .search import Trace as Trace
    from .search import Uncertain as Uncertain
    from .search import Whole as Whole
    from .solving import Solution as Solution
    from .solving import solve as solve
    from .space import Continuous as Continuous
    from .space import DesignSpace as DesignSpace
    from .space import Ratio as Ratio
    from .workloads import Plan as Plan
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "config": ("Study", "scenario_from_config", "study_from_config"),
            "errors": ("CodesignError", "ConfigError"),
            "fields": ("get_path", "replace"),
            "metrics": ("Metrics", "evaluate"),
            "objective": ("Objective",),
            "results": ("designs", "elasticities", "ops", "pareto"),
            "report.side_by_side": ("Comparison",),
            "run.comparing": ("compare",),
            "run.setup": ("prepare_jax",),
            "scenario": ("Cluster", "Facility", "Host", "Scenario"),
            "search": (
                "AbstractSearch",
                "Amortised",
                "Blackbox",
                "Cases",
                "Certificate",
                "Certified",
                "Descent",
                "Gradient",
                "Grid",
                "GridThenGradient",
                "GridThenProof",
                "Inverse",
                "Mix",
                "MixEntry",
                "Pareto",
                "Problem",
                "Progress",
                "Robust",
                "Single",
                "Trace",
                "Uncertain",
                "Whole",
            ),
            "solving": ("Solution", "solve"),
            "space": ("Continuous", "DesignSpace", "Ratio"),
            "workloads": ("Plan",),
        },
    )

__all__ = [
    "AbstractSearch", "Amortised", "Blackbox", "Cases", "Certificate", "Certified", "Cluster", "CodesignError",
    "Comparison", "ConfigError", "Continuous", "Descent", "DesignSpace", "Facility", "Gradient", "Grid",
    "GridThenGradient", "GridThenProof", "Host", "Inverse", "Metrics", "Mix", "MixEntry", "Objective", "Pareto", "Plan",
    "Problem", "Progress", "Ratio", "Robust", "Scenario", "Single", "Solution", "Study", "Trace", "Uncertain", "Whole",
    "compare", "designs", "elasticities", "evaluate", "get_path", "ops", "pareto", "prepare_jax", "replace",
    "scenario_from_config", "solve", "study_from_config",
]  # fmt: skip
__version__ = release.__version__
