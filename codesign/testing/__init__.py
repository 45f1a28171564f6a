"""Contracts for the author of a component: `broken(cls)` says in lines what its `example()` does not keep."""

from .check import FAMILIES as FAMILIES
from .check import ComponentFamily as ComponentFamily
from .check import broken as broken
from .check import chosen as chosen
from .check import family_of as family_of
from .check import faults_of_plugins as faults_of_plugins
from .check import members as members
from .contracts import ContractViolation as ContractViolation
from .contracts import must as must

__all__ = [
    "FAMILIES", "ComponentFamily", "ContractViolation", "broken", "chosen", "family_of", "faults_of_plugins",
    "members", "must",
]  # fmt: skip
