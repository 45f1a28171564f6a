"""Ways to look for good designs."""

from ..uncertainty import Cases, Uncertain
from .amortised.amortised import Amortised
from .base import AbstractSearch, Evidence, Problem, Progress, Report, Trace, silent, under_assumption
from .blackbox.blackbox import Blackbox
from .blackbox.peers import CmaEs, DifferentialEvolution, Nsga2, Random, Tpe
from .branch_and_bound.certified import Certified
from .branch_and_bound.inverse import Inverse
from .branch_and_bound.whole import Whole
from .certificate import Certificate
from .descent.gradient import Descent, GridThenGradient
from .descent.relaxed import Gradient
from .descent.transformations import Optimizer, Transformation
from .exhaustive.grid import Grid
from .front.pareto import Pareto
from .grid_then_proof import GridThenProof
from .mix.entry import MixEntry
from .mix.mix import Mix
from .robust import Robust
from .single import Single

__all__ = [
    "AbstractSearch", "Amortised", "Blackbox", "Cases", "Certificate", "Certified", "CmaEs", "Descent",
    "DifferentialEvolution", "Evidence", "Gradient", "Grid", "GridThenGradient", "GridThenProof", "Inverse", "Mix",
    "MixEntry", "Nsga2", "Optimizer", "Pareto", "Problem", "Progress", "Random", "Report", "Robust", "Single", "Tpe",
    "Trace", "Transformation", "Uncertain", "Whole", "silent", "under_assumption",
]  # fmt: skip
