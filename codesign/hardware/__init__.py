"""What one device is made of."""

from .accelerator import Accelerator as Accelerator
from .compute import AbstractKernel as AbstractKernel
from .compute import Roofline as Roofline
from .compute import Stepped as Stepped
from .compute import Steps as Steps
from .compute import Work as Work
from .kernels_attention import DecodeAttention as DecodeAttention
from .kernels_attention import PrefillAttention as PrefillAttention
from .kernels_base import Chip as Chip
from .kernels_base import Elementwise as Elementwise
from .kernels_gemm import Gemm as Gemm
from .kernels_gemm import GroupedGemm as GroupedGemm
from .link import Link as Link
from .memory import AbstractMemory as AbstractMemory
from .memory import CachedPool as CachedPool
from .memory import MemoryTier as MemoryTier
