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
    from .commands.comparing import compare
    from .commands.plain_questions import serve, train
    from .commands.setup import prepare_jax
    from .config import Study, scenario_from_config, study_from_config
    from .core.errors import CodesignError, ConfigError
    from .core.fields import get_path, replace
    from .model.metrics import Metrics, evaluate
    from .model.scenario import Cluster, Facility, Host, Scenario
    from .model.workloads import Plan
    from .report.side_by_side import Comparison
    from .search import (
        AbstractSearch,
        Amortised,
        Blackbox,
        Cases,
        Certificate,
        Certified,
        Descent,
        Gradient,
        Grid,
        GridThenGradient,
        GridThenProof,
        Integer,
        Inverse,
        Mix,
        MixEntry,
        ObjectiveFunction,
        Pareto,
        Problem,
        Progress,
        Robust,
        Single,
        Trace,
        Uncertain,
        objective_fn,
    )
    from .search.results import designs, elasticities, ops, pareto
    from .search.solve import Solution, solve
    from .study.design_space import Continuous, DesignSpace, Ratio
    from .study.objective import Objective
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "AbstractSearch", "Amortised", "Blackbox", "Cases", "Certificate", "Certified", "Cluster", "CodesignError",
    "Comparison", "ConfigError", "Continuous", "Descent", "DesignSpace", "Facility", "Gradient", "Grid",
    "GridThenGradient", "GridThenProof", "Host", "Integer", "Inverse", "Metrics", "Mix", "MixEntry", "Objective",
    "ObjectiveFunction", "Pareto", "Plan", "Problem", "Progress", "Ratio", "Robust", "Scenario", "Single", "Solution",
    "Study", "Trace", "Uncertain", "compare", "designs", "elasticities", "evaluate", "get_path", "objective_fn", "ops",
    "pareto", "prepare_jax", "replace", "scenario_from_config", "serve", "solve", "study_from_config", "train",
]  # fmt: skip
__version__ = _version.__version__
