"""Ways to look for good designs."""

from .amortised.amortised import Amortised as Amortised
from .base import AbstractSearch as AbstractSearch
from .base import Evidence as Evidence
from .base import Problem as Problem
from .base import Progress as Progress
from .base import Report as Report
from .base import Trace as Trace
from .base import silent as silent
from .blackbox.blackbox import Blackbox as Blackbox
from .blackbox.peers import CmaEs as CmaEs
from .blackbox.peers import DifferentialEvolution as DifferentialEvolution
from .blackbox.peers import Nsga2 as Nsga2
from .blackbox.peers import Random as Random
from .blackbox.peers import Tpe as Tpe
from .branch_and_bound.certified import Certified as Certified
from .branch_and_bound.inverse import Inverse as Inverse
from .branch_and_bound.whole import Whole as Whole
from .certificate import Certificate as Certificate
from .descent.gradient import Descent as Descent
from .descent.gradient import GridThenGradient as GridThenGradient
from .descent.relaxed import Gradient as Gradient
from .descent.transformations import Optimizer as Optimizer
from .descent.transformations import Transformation as Transformation
from .exhaustive.grid import Grid as Grid
from .front.pareto import Pareto as Pareto
from .grid_then_proof import GridThenProof as GridThenProof
from .mix.entry import MixEntry as MixEntry
from .mix.mix import Mix as Mix
from .robust import Cases as Cases
from .robust import Robust as Robust
from .robust import Uncertain as Uncertain
from .single import Single as Single

__all__ = [
    "AbstractSearch", "Amortised", "Blackbox", "Cases", "Certificate", "Certified", "CmaEs", "Descent",
    "DifferentialEvolution", "Evidence", "Gradient", "Grid", "GridThenGradient", "GridThenProof", "Inverse", "Mix",
    "MixEntry", "Nsga2", "Optimizer", "Pareto", "Problem", "Progress", "Random", "Report", "Robust", "Single",
    "Tpe", "Trace", "Transformation", "Uncertain", "Whole", "silent",
]  # fmt: skip
