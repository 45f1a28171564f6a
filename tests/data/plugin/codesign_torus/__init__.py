"""A plug-in: a two-dimensional HyperX, recursive halving and doubling, a search that prices a few random plans."""

from .fabric import HyperX as HyperX
from .halving import HalvingDoublingAllReduce as HalvingDoublingAllReduce
from .lucky import Lucky as Lucky
