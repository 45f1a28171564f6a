"""What one device is made of."""

from .accelerator import Accelerator as Accelerator
from .compute import AbstractKernel as AbstractKernel
from .compute import Roofline as Roofline
from .compute import Stepped as Stepped
from .compute import Steps as Steps
from .compute import Work as Work
from .link import Link as Link
from .memory import AbstractMemory as AbstractMemory
from .memory import CachedPool as CachedPool
from .memory import MemoryTier as MemoryTier
