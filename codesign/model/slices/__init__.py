"""Slices of a shared rack for tenants: who is refused, how much stays in use, what is lost to fragmentation."""

from .allocators import AbstractAllocator as AbstractAllocator
from .allocators import CircuitRack as CircuitRack
from .allocators import FixedServers as FixedServers
from .allocators import SliceHandle as SliceHandle
from .allocators import SubCubes as SubCubes
from .allocators import TorusCuboids as TorusCuboids
from .fragmentation import MIXES as MIXES
from .fragmentation import DemandMix as DemandMix
from .fragmentation import EffectiveRatios as EffectiveRatios
from .fragmentation import SchedulerOutcome as SchedulerOutcome
from .fragmentation import SharedRack as SharedRack
from .fragmentation import blocking as blocking
from .fragmentation import effective_ratio as effective_ratio
from .fragmentation import effective_ratios as effective_ratios
from .fragmentation import simulate as simulate

__all__ = [
    "MIXES", "AbstractAllocator", "CircuitRack", "DemandMix", "FixedServers", "SchedulerOutcome", "SharedRack",
    "SliceHandle", "SubCubes", "TorusCuboids", "blocking", "effective_ratio", "simulate",
]  # fmt: skip
