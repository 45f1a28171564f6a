"""Components of one device: accelerator, die, memory, kernels, board and links."""

from .accelerator import AbstractBoard as AbstractBoard
from .accelerator import Accelerator as Accelerator
from .accelerator import Board as Board
from .accelerator import CappedBoard as CappedBoard
from .compute import AbstractKernel as AbstractKernel
from .compute import Chip as Chip
from .compute import Elementwise as Elementwise
from .compute import Roofline as Roofline
from .compute import Routing as Routing
from .compute import Stepped as Stepped
from .compute import Steps as Steps
from .compute import Work as Work
from .die import Die as Die
from .die import Shoreline as Shoreline
from .kernels_attention import DecodeAttention as DecodeAttention
from .kernels_attention import PrefillAttention as PrefillAttention
from .kernels_gemm import Gemm as Gemm
from .kernels_gemm import GroupedGemm as GroupedGemm
from .link import INFINIBAND as INFINIBAND
from .link import LOAD_STORE as LOAD_STORE
from .link import PCIE as PCIE
from .link import AbstractProtocol as AbstractProtocol
from .link import BufferedCopy as BufferedCopy
from .link import Channel as Channel
from .link import Link as Link
from .link import LoadStore as LoadStore
from .link import Packets as Packets
from .link import Pcie as Pcie
from .link import ThreeStagePath as ThreeStagePath
from .link import WindowedThroughput as WindowedThroughput
from .link import infiniband as infiniband
from .link import load_store as load_store
from .link import measured_path as measured_path
from .link import pcie as pcie
from .memory import AbstractMemory as AbstractMemory
from .memory import MemoryTier as MemoryTier
from .memory import NearFirst as NearFirst
from .memory import Placement as Placement
from .memory import TieredMemory as TieredMemory
from .memory_pool import AbstractHits as AbstractHits
from .memory_pool import CachedPool as CachedPool
from .memory_pool import SharedPool as SharedPool
from .memory_pool import WorkingSet as WorkingSet
from .memory_pool import ZipfLru as ZipfLru
from .photonics import AbstractModulator as AbstractModulator
from .photonics import ElectroAbsorptionModulator as ElectroAbsorptionModulator
from .photonics import MachZehnderModulator as MachZehnderModulator
from .photonics import OpticalPath as OpticalPath
from .photonics import OpticalSwitch as OpticalSwitch
from .photonics import PhotonicLink as PhotonicLink
from .photonics import PhotonicReceiver as PhotonicReceiver
from .photonics import RingModulator as RingModulator
from .photonics import dbm as dbm
from .photonics import quality_of as quality_of
from .residual import Residual as Residual

__all__ = [
    "INFINIBAND", "LOAD_STORE", "PCIE", "AbstractBoard", "AbstractHits", "AbstractKernel", "AbstractMemory",
    "AbstractModulator", "AbstractProtocol", "Accelerator", "Board", "BufferedCopy", "CachedPool", "CappedBoard",
    "Channel", "Chip", "DecodeAttention", "Die", "ElectroAbsorptionModulator", "Elementwise", "Gemm", "GroupedGemm",
    "Link", "LoadStore", "MachZehnderModulator", "MemoryTier", "NearFirst", "OpticalPath", "OpticalSwitch", "Packets",
    "Pcie", "PhotonicLink", "PhotonicReceiver", "Placement", "PrefillAttention", "Residual", "RingModulator",
    "Roofline", "SharedPool", "Shoreline", "Stepped", "Steps", "ThreeStagePath", "TieredMemory", "WindowedThroughput",
    "Work", "WorkingSet", "ZipfLru", "dbm", "infiniband", "load_store", "measured_path", "pcie", "quality_of",
]  # fmt: skip
