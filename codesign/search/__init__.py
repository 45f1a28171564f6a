"""Searches for good designs, what they claim, and frames of what they found.

Names of `results` are imported when they are first asked for: a worker that searches needs no pandas.
"""

from typing import TYPE_CHECKING

from ..core.lazy import lazily
from ..uncertainty import Cases, Uncertain
from . import assignment, settings
from .amortised.amortised import Amortised
from .base import AbstractSearch, Evidence, Problem, Progress, Report, Trace, silent, under_assumption
from .blackbox.blackbox import Blackbox
from .blackbox.peers import CmaEs, DifferentialEvolution, Nsga2, Random, Tpe
from .branch_and_bound.certified import Certified
from .branch_and_bound.integer import Integer
from .branch_and_bound.inverse import Inverse
from .certificate import Certificate, GoalQuantity, Shared
from .descent.gradient import Descent, GridThenGradient, Optimizer, Transformation
from .descent.relaxed import Gradient
from .exhaustive.grid import Grid
from .front.pareto import Pareto
from .grid_then_proof import GridThenProof
from .mix.mix import Mix, MixEntry
from .objective_fn import ObjectiveFunction, objective_fn
from .robust import Robust
from .single import Single

if TYPE_CHECKING:
    from .results import designs, elasticities, numbers_of, ops, pareto
else:
    __getattr__, _ = lazily(__name__)

__all__ = [
    "AbstractSearch", "Amortised", "Blackbox", "Cases", "Certificate", "Certified", "CmaEs", "Descent",
    "DifferentialEvolution", "Evidence", "GoalQuantity", "Gradient", "Grid", "GridThenGradient", "GridThenProof",
    "Integer", "Inverse", "Mix", "MixEntry", "Nsga2", "ObjectiveFunction", "Optimizer", "Pareto", "Problem",
    "Progress", "Random", "Report", "Robust", "Shared", "Single", "Tpe", "Trace", "Transformation", "Uncertain",
    "assignment", "designs", "elasticities", "numbers_of", "objective_fn", "ops", "pareto", "settings", "silent",
    "under_assumption",
]  # fmt: skip
