"""How devices are wired."""

from .base import AbstractFabric as AbstractFabric
from .base import Group as Group
from .fat_tree import FatTree as FatTree
from .switch import SwitchDomain as SwitchDomain
