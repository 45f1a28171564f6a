"""Contracts for the author of a component: `broken(cls)` says in lines what its `example()` does not keep."""

from .check import broken as broken
from .check import chosen as chosen
from .check import faults_of_plugins as faults_of_plugins
from .component_families import FAMILIES as FAMILIES
from .component_families import ComponentFamily as ComponentFamily
from .component_families import family_of as family_of
from .component_families import members as members
from .keeping import Broken as Broken
from .keeping import must as must

__all__ = [
    "FAMILIES",
    "Broken",
    "ComponentFamily",
    "broken",
    "chosen",
    "family_of",
    "faults_of_plugins",
    "members",
    "must",
]
