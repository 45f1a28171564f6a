"""Algorithms for collective operations."""

from .base import OPERATIONS as OPERATIONS
from .base import AbstractCollective as AbstractCollective
from .base import ScaledVolume as ScaledVolume
from .base import Tuned as Tuned
from .in_network import InNetworkAllReduce as InNetworkAllReduce
from .levels import Collectives as Collectives
from .levels import NetworkLevel as NetworkLevel
from .levels import Stage as Stage
from .levels import hierarchical as hierarchical
from .levels import stages as stages
from .measured import Measured as Measured
from .radix import RadixAllGather as RadixAllGather
from .radix import RadixAllReduce as RadixAllReduce
from .ring import PairwiseAllToAll as PairwiseAllToAll
from .ring import RingAllGather as RingAllGather
from .ring import RingAllReduce as RingAllReduce
from .ring import Send as Send
from .tree import DoubleBinaryTreeAllReduce as DoubleBinaryTreeAllReduce
