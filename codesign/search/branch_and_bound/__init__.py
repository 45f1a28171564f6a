"""Branch and bound over plans: cuts from an oracle, Lagrangian bounds, nodes that are relaxed, split and pruned."""

from .bounding import Bounding, Outcome, SearchEffort
from .bounding_state import AbstractIncumbent
from .branch_and_bound import BranchAndBound
from .certified import Certified, polish, resources
from .convexity import Verdict, check_convexity
from .integer import Integer
from .inverse import Inverse, wanted_rows
from .model_oracle import AbstractModelOracle, Oracle
from .node_relaxation import GroupOracle, oracle_for
from .oracle import GOAL, AbstractOracle, Programme, rows_of

__all__ = [
    "GOAL", "AbstractIncumbent", "AbstractModelOracle", "AbstractOracle", "Bounding", "BranchAndBound", "Certified",
    "GroupOracle", "Integer", "Inverse", "Oracle", "Outcome", "Programme", "SearchEffort", "Verdict",
    "check_convexity", "oracle_for", "polish", "resources", "rows_of", "wanted_rows",
]  # fmt: skip
