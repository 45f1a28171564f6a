"""One hardware for several workloads: plans exchanged, priced by duals, bounded together."""

from ..blend import Blend as Blend
from .alternating import Alternating as Alternating
from .entry import MixEntry as MixEntry
from .joint import Member as Member
from .mix import Mix as Mix
from .oracles import nameless as nameless

__all__ = [
    "Alternating", "Blend", "Member", "Mix", "MixEntry", "nameless",
]  # fmt: skip
