"""One hardware for several workloads: plans exchanged, priced by duals, bounded together."""

from ..blend import Blend
from .alternating import Alternating, Member
from .mix import Mix, MixEntry
from .workload_oracles import nameless

__all__ = [
    "Alternating", "Blend", "Member", "Mix", "MixEntry", "nameless",
]  # fmt: skip
