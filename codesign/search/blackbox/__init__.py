"""Other people's searches over one vectorised evaluator."""

from .blackbox import Blackbox as Blackbox
from .blackbox import rows_with as rows_with
from .box import Box as Box
from .box import Evaluator as Evaluator
from .peers import AbstractPeer as AbstractPeer
from .peers import CmaEs as CmaEs
from .peers import DifferentialEvolution as DifferentialEvolution
from .peers import Nsga2 as Nsga2
from .peers import Random as Random
from .peers import Tpe as Tpe
from .trial import Trial as Trial

__all__ = [
    "AbstractPeer", "Blackbox", "Box", "CmaEs", "DifferentialEvolution", "Evaluator", "Nsga2", "Random", "Tpe",
    "Trial", "rows_with",
]  # fmt: skip
