"""Other people's searches over one vectorised evaluator."""

from .blackbox import Blackbox, rows_with
from .peers import AbstractBlackboxOptimizer, CmaEs, DifferentialEvolution, Nsga2, Random, Tpe
from .trial import Box, Evaluator, Trial

__all__ = [
    "AbstractBlackboxOptimizer",
    "Blackbox",
    "Box",
    "CmaEs",
    "DifferentialEvolution",
    "Evaluator",
    "Nsga2",
    "Random",
    "Tpe",
    "Trial",
    "rows_with",
]  # fmt: skip
