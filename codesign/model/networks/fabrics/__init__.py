"""Fabrics, the networks that connect devices."""

from . import interference as interference
from .base import ALGORITHMS as ALGORITHMS
from .base import AbstractFabric as AbstractFabric
from .base import AbstractWrappedFabric as AbstractWrappedFabric
from .base import BackgroundTraffic as BackgroundTraffic
from .base import Group as Group
from .contended import Contended as Contended
from .contended import RoundRobin as RoundRobin
from .folded_clos import FatTree as FatTree
from .folded_clos import FoldedClos as FoldedClos
from .optical_circuit import OpticalCircuit as OpticalCircuit
from .path_energy import PathEnergy as PathEnergy
from .pcie_tree import PcieTree as PcieTree
from .photonic_rack import PhotonicRack as PhotonicRack
from .photonic_rack import on_slice as on_slice
from .queued import QueuedNode as QueuedNode
from .routed import RoutedTopology as RoutedTopology
from .routed import seconds_per_byte as seconds_per_byte
from .routed import topology_from_file as topology_from_file
from .switch_chips import PacketFormat as PacketFormat
from .switch_chips import SwitchChips as SwitchChips
from .switch_chips import SwitchDomain as SwitchDomain

__all__ = [
    "ALGORITHMS", "AbstractFabric", "AbstractWrappedFabric", "BackgroundTraffic", "Contended", "FatTree", "FoldedClos",
    "Group", "OpticalCircuit", "PacketFormat", "PathEnergy", "PcieTree", "PhotonicRack", "QueuedNode", "RoundRobin",
    "RoutedTopology", "SwitchChips", "SwitchDomain", "interference", "on_slice", "seconds_per_byte",
    "topology_from_file",
]  # fmt: skip
