"""Co-design of AI accelerators, memory, fabrics and parallelism with gradients and proofs.

A candidate cluster is one pytree (`Scenario`), a design variable is a path to one of its leaves, and every metric is a
pure function of the tree (`evaluate`). `study_from_config` builds a study from the same configuration as the command
line, `solve` searches it; a `Problem` of a scenario, a `DesignSpace` and an `Objective` needs no configuration. What
else may be relied on is in docs/api.md.
"""

from typing import TYPE_CHECKING

from . import _version
from .core.lazy import lazily

if TYPE_CHECKING:  # names are imported when they are first asked for: the command line starts without JAX
    from .commands.comparing import compare as compare
    from .commands.plain_questions import serve as serve
    from .commands.plain_questions import train as train
    from .commands.setup import prepare_jax as prepare_jax
    from .config import Study as Study
    from .config import scenario_from_config as scenario_from_config
    from .config import study_from_config as study_from_config
    from .core.errors import CodesignError as CodesignError
    from .core.errors import ConfigError as ConfigError
    from .core.fields import get_path as get_path
    from .core.fields import replace as replace
    from .model.metrics import Metrics as Metrics
    from .model.metrics import evaluate as evaluate
    from .model.scenario import Cluster as Cluster
    from .model.scenario import Facility as Facility
    from .model.scenario import Host as Host
    from .model.scenario import Scenario as Scenario
    from .model.workloads import Plan as Plan
    from .report.side_by_side import Comparison as Comparison
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
    from .search import Integer as Integer
    from .search import Inverse as Inverse
    from .search import Mix as Mix
    from .search import MixEntry as MixEntry
    from .search import ObjectiveFunction as ObjectiveFunction
    from .search import Pareto as Pareto
    from .search import Problem as Problem
    from .search import Progress as Progress
    from .search import Robust as Robust
    from .search import Single as Single
    from .search import Trace as Trace
    from .search import Uncertain as Uncertain
    from .search import objective_fn as objective_fn
    from .search.results import designs as designs
    from .search.results import elasticities as elasticities
    from .search.results import ops as ops
    from .search.results import pareto as pareto
    from .search.solve import Solution as Solution
    from .search.solve import solve as solve
    from .study.design_space import Continuous as Continuous
    from .study.design_space import DesignSpace as DesignSpace
    from .study.design_space import Ratio as Ratio
    from .study.objective import Objective as Objective
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "config": ("Study", "scenario_from_config", "study_from_config"),
            "core.errors": ("CodesignError", "ConfigError"),
            "core.fields": ("get_path", "replace"),
            "model.metrics": ("Metrics", "evaluate"),
            "study.objective": ("Objective",),
            "search.results": ("designs", "elasticities", "ops", "pareto"),
            "report.side_by_side": ("Comparison",),
            "commands.comparing": ("compare",),
            "commands.plain_questions": ("serve", "train"),
            "commands.setup": ("prepare_jax",),
            "model.scenario": ("Cluster", "Facility", "Host", "Scenario"),
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
                "Integer",
                "ObjectiveFunction",
                "objective_fn",
            ),
            "search.solve": ("Solution", "solve"),
            "study.design_space": ("Continuous", "DesignSpace", "Ratio"),
            "model.workloads": ("Plan",),
        },
    )

__all__ = [
    "AbstractSearch",
    "Amortised",
    "Blackbox",
    "Cases",
    "Certificate",
    "Certified",
    "Cluster",
    "CodesignError",
    "Comparison",
    "ConfigError",
    "Continuous",
    "Descent",
    "DesignSpace",
    "Facility",
    "Gradient",
    "Grid",
    "GridThenGradient",
    "GridThenProof",
    "Host",
    "Integer",
    "Inverse",
    "Metrics",
    "Mix",
    "MixEntry",
    "Objective",
    "ObjectiveFunction",
    "Pareto",
    "Plan",
    "Problem",
    "Progress",
    "Ratio",
    "Robust",
    "Scenario",
    "Single",
    "Solution",
    "Study",
    "Trace",
    "Uncertain",
    "compare",
    "designs",
    "elasticities",
    "evaluate",
    "get_path",
    "objective_fn",
    "ops",
    "pareto",
    "prepare_jax",
    "replace",
    "scenario_from_config",
    "serve",
    "solve",
    "study_from_config",
    "train",
]  # fmt: skip
__version__ = _version.__version__
