"""Branch and bound over plans: cuts from an oracle, Lagrangian bounds, nodes that are relaxed, split and pruned."""

from .bounding import Bounding as Bounding
from .branch_and_bound import BranchAndBound as BranchAndBound
from .certified import Certified as Certified
from .convexity import Verdict as Verdict
from .convexity import check_convexity as check_convexity
from .effort import Effort as Effort
from .effort import Outcome as Outcome
from .incumbent import AbstractIncumbent as AbstractIncumbent
from .inverse import Inverse as Inverse
from .inverse import wanted_rows as wanted_rows
from .model_oracle import AbstractModelOracle as AbstractModelOracle
from .model_oracle import Oracle as Oracle
from .node_relaxation import GroupOracle as GroupOracle
from .node_relaxation import oracle_for as oracle_for
from .oracle import GOAL as GOAL
from .oracle import AbstractOracle as AbstractOracle
from .oracle import rows_of as rows_of
from .programme import Programme as Programme
from .sensitivity import polish as polish
from .sensitivity import resources as resources
from .whole import Whole as Whole

__all__ = [
    "GOAL",
    "AbstractIncumbent",
    "AbstractModelOracle",
    "AbstractOracle",
    "Bounding",
    "BranchAndBound",
    "Certified",
    "Effort",
    "GroupOracle",
    "Inverse",
    "Oracle",
    "Outcome",
    "Programme",
    "Verdict",
    "Whole",
    "check_convexity",
    "oracle_for",
    "polish",
    "resources",
    "rows_of",
    "wanted_rows",
]  # fmt: skip
