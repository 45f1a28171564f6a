"""One hardware for several workloads: plans exchanged, priced by duals, bounded together."""

from ..blend import Blend
from .alternating import Alternating
from .entry import MixEntry
from .joint import Member
from .mix import Mix
from .oracles import nameless

__all__ = [
    "Alternating", "Blend", "Member", "Mix", "MixEntry", "nameless",
]  # fmt: skip
