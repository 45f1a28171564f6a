"""Contracts for the author of a component: `broken(cls)` says in lines what its `example()` does not keep."""

from .check import broken as broken
from .check import chosen as chosen
from .check import faults_of_plugins as faults_of_plugins
from .families import FAMILIES as FAMILIES
from .families import ComponentFamily as ComponentFamily
from .families import family_of as family_of
from .families import members as members
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
