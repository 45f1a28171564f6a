"""Components of one device: accelerator, die, memory, kernels, board and links."""

from .accelerator import Accelerator as Accelerator
from .board import AbstractBoard as AbstractBoard
from .board import Board as Board
from .board import CappedBoard as CappedBoard
from .compute import AbstractKernel as AbstractKernel
from .compute import Roofline as Roofline
from .compute import Routing as Routing
from .compute import Stepped as Stepped
from .compute import Steps as Steps
from .compute import Work as Work
from .die import Die as Die
from .kernels_attention import DecodeAttention as DecodeAttention
from .kernels_attention import PrefillAttention as PrefillAttention
from .kernels_base import Chip as Chip
from .kernels_base import Elementwise as Elementwise
from .kernels_gemm import Gemm as Gemm
from .kernels_gemm import GroupedGemm as GroupedGemm
from .link import Link as Link
from .memory import AbstractMemory as AbstractMemory
from .memory import MemoryTier as MemoryTier
from .memory_hits import AbstractHits as AbstractHits
from .memory_hits import WorkingSet as WorkingSet
from .memory_hits import ZipfLru as ZipfLru
from .memory_pool import CachedPool as CachedPool
from .memory_pool import SharedPool as SharedPool
from .memory_tiers import NearFirst as NearFirst
from .memory_tiers import Placement as Placement
from .memory_tiers import TieredMemory as TieredMemory
from .optical_switch import OpticalSwitch as OpticalSwitch
from .photonic_link import PhotonicLink as PhotonicLink
from .photonic_modulator import AbstractModulator as AbstractModulator
from .photonic_modulator import ElectroAbsorptionModulator as ElectroAbsorptionModulator
from .photonic_modulator import MachZehnderModulator as MachZehnderModulator
from .photonic_modulator import RingModulator as RingModulator
from .photonic_path import OpticalPath as OpticalPath
from .photonic_receiver import PhotonicReceiver as PhotonicReceiver
from .photonic_receiver import dbm as dbm
from .photonic_receiver import quality_of as quality_of
from .point_to_point import Copied as Copied
from .point_to_point import ThreeStagePath as ThreeStagePath
from .point_to_point import Windowed as Windowed
from .point_to_point import measured_path as measured_path
from .protocols import INFINIBAND as INFINIBAND
from .protocols import LOAD_STORE as LOAD_STORE
from .protocols import PCIE as PCIE
from .protocols import AbstractProtocol as AbstractProtocol
from .protocols import Channel as Channel
from .protocols import LoadStore as LoadStore
from .protocols import Packets as Packets
from .protocols import Pcie as Pcie
from .protocols import infiniband as infiniband
from .protocols import load_store as load_store
from .protocols import pcie as pcie
from .residual import Residual as Residual
from .shoreline import Shoreline as Shoreline

__all__ = [
    "INFINIBAND",
    "LOAD_STORE",
    "PCIE",
    "AbstractBoard",
    "AbstractHits",
    "AbstractKernel",
    "AbstractMemory",
    "AbstractModulator",
    "AbstractProtocol",
    "Accelerator",
    "Board",
    "CachedPool",
    "CappedBoard",
    "Channel",
    "Chip",
    "Copied",
    "DecodeAttention",
    "Die",
    "ElectroAbsorptionModulator",
    "Elementwise",
    "Gemm",
    "GroupedGemm",
    "Link",
    "LoadStore",
    "MachZehnderModulator",
    "MemoryTier",
    "NearFirst",
    "OpticalPath",
    "OpticalSwitch",
    "Packets",
    "Pcie",
    "PhotonicLink",
    "PhotonicReceiver",
    "Placement",
    "PrefillAttention",
    "Residual",
    "RingModulator",
    "Roofline",
    "SharedPool",
    "Shoreline",
    "Stepped",
    "Steps",
    "ThreeStagePath",
    "TieredMemory",
    "Windowed",
    "Work",
    "WorkingSet",
    "ZipfLru",
    "dbm",
    "infiniband",
    "load_store",
    "measured_path",
    "pcie",
    "quality_of",
]  # fmt: skip
