"""Slices of a shared rack for tenants: who is refused, how much stays in use, what is lost to fragmentation."""

from .allocators import AbstractAllocator as AbstractAllocator
from .allocators import CircuitRack as CircuitRack
from .allocators import FixedServers as FixedServers
from .allocators import Handle as Handle
from .allocators import SubCubes as SubCubes
from .allocators import TorusCuboids as TorusCuboids
from .blocking import SharedRack as SharedRack
from .blocking import blocking as blocking
from .demand import MIXES as MIXES
from .demand import DemandMix as DemandMix
from .effective import EffectiveRatios as EffectiveRatios
from .effective import effective_ratio as effective_ratio
from .effective import effective_ratios as effective_ratios
from .scheduler import SchedulerOutcome as SchedulerOutcome
from .scheduler import simulate as simulate

__all__ = [
    "MIXES",
    "AbstractAllocator",
    "CircuitRack",
    "DemandMix",
    "FixedServers",
    "Handle",
    "SchedulerOutcome",
    "SharedRack",
    "SubCubes",
    "TorusCuboids",
    "blocking",
    "effective_ratio",
    "simulate",
]  # fmt: skip
