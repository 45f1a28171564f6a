"""Algorithms for collective operations."""

from . import quantised as quantised
from .base import OPERATIONS as OPERATIONS
from .base import AbstractCollective as AbstractCollective
from .base import ScaledVolume as ScaledVolume
from .base import Tuned as Tuned
from .base import among_many as among_many
from .chosen import Chosen as Chosen
from .chosen import CliqueAllGather as CliqueAllGather
from .chosen import CliqueAllReduce as CliqueAllReduce
from .chosen import CliqueAllToAll as CliqueAllToAll
from .chosen import Fastest as Fastest
from .chosen import SipacAllGather as SipacAllGather
from .chosen import SipacAllReduce as SipacAllReduce
from .direct import DirectAllGather as DirectAllGather
from .direct import DirectAllToAll as DirectAllToAll
from .direct import OneShotAllReduce as OneShotAllReduce
from .direct import TwoShotAllReduce as TwoShotAllReduce
from .in_network import InNetworkAllGather as InNetworkAllGather
from .in_network import InNetworkAllReduce as InNetworkAllReduce
from .in_network import InNetworkBroadcast as InNetworkBroadcast
from .in_network import InNetworkReduce as InNetworkReduce
from .in_network import InNetworkReduceScatter as InNetworkReduceScatter
from .in_network import MulticastAllReduce as MulticastAllReduce
from .in_network import SwitchMemory as SwitchMemory
from .levels import Collectives as Collectives
from .levels import NetworkLevel as NetworkLevel
from .levels import Pipelined as Pipelined
from .levels import Stage as Stage
from .levels import hierarchical as hierarchical
from .levels import log_perplexity_penalty as log_perplexity_penalty
from .levels import stages as stages
from .measured import Measured as Measured
from .quantised import PERPLEXITY_FACTOR as PERPLEXITY_FACTOR
from .quantised import Quantised as Quantised
from .radix import RadixAllGather as RadixAllGather
from .radix import RadixAllReduce as RadixAllReduce
from .radix import RadixAllToAll as RadixAllToAll
from .ring import PairwiseAllToAll as PairwiseAllToAll
from .ring import RingAllGather as RingAllGather
from .ring import RingAllReduce as RingAllReduce
from .ring import Send as Send
from .shared_memory import HostPath as HostPath
from .shared_memory import SharedMemoryAllGather as SharedMemoryAllGather
from .shared_memory import SharedMemoryAllReduce as SharedMemoryAllReduce
from .shared_memory import SharedMemoryAllToAll as SharedMemoryAllToAll
from .shared_memory import SharedMemoryReduceScatter as SharedMemoryReduceScatter
from .synthesised import Circuits as Circuits
from .synthesised import RadixBlock as RadixBlock
from .synthesised import Schedule as Schedule
from .synthesised import SynthesisedAllGather as SynthesisedAllGather
from .synthesised import SynthesisedAllReduce as SynthesisedAllReduce
from .synthesised import best_schedule as best_schedule
from .synthesised import block_s as block_s
from .synthesised import radix_blocks as radix_blocks
from .synthesised import schedule_s as schedule_s
from .tree import BinomialTree as BinomialTree
from .tree import ChainAllReduce as ChainAllReduce
from .tree import DoubleBinaryTreeAllReduce as DoubleBinaryTreeAllReduce
from .tree import PipelinedChain as PipelinedChain
from .tree import RecursiveDoublingAllReduce as RecursiveDoublingAllReduce
from .tree import ScatterAllGather as ScatterAllGather
from .tree import TreeAllReduce as TreeAllReduce

__all__ = [
    "OPERATIONS", "PERPLEXITY_FACTOR", "AbstractCollective", "BinomialTree", "ChainAllReduce", "Chosen", "Circuits",
    "CliqueAllGather", "CliqueAllReduce", "CliqueAllToAll", "Collectives", "DirectAllGather", "DirectAllToAll",
    "DoubleBinaryTreeAllReduce", "Fastest", "HostPath", "InNetworkAllGather", "InNetworkAllReduce",
    "InNetworkBroadcast", "InNetworkReduce", "InNetworkReduceScatter", "Measured", "MulticastAllReduce", "NetworkLevel",
    "OneShotAllReduce", "PairwiseAllToAll", "Pipelined", "PipelinedChain", "Quantised", "RadixAllGather",
    "RadixAllReduce", "RadixAllToAll", "RadixBlock", "RecursiveDoublingAllReduce", "RingAllGather", "RingAllReduce",
    "ScaledVolume", "ScatterAllGather", "Schedule", "Send", "SharedMemoryAllGather", "SharedMemoryAllReduce",
    "SharedMemoryAllToAll", "SharedMemoryReduceScatter", "SipacAllGather", "SipacAllReduce", "Stage", "SwitchMemory",
    "SynthesisedAllGather", "SynthesisedAllReduce", "TreeAllReduce", "Tuned", "TwoShotAllReduce", "among_many",
    "best_schedule", "block_s", "hierarchical", "log_perplexity_penalty", "quantised", "radix_blocks", "schedule_s",
    "stages",
]  # fmt: skip
