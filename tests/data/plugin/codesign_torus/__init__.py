"""A plug-in: a 2-D HyperX, recursive halving and doubling, sampling from a diffusion transformer, a search."""

from .fabric import HyperX as HyperX
from .halving import HalvingDoublingAllReduce as HalvingDoublingAllReduce
from .lucky import Lucky as Lucky
from .sampling import DiffusionTransformer as DiffusionTransformer
from .sampling import Sampling as Sampling
from .sampling import SamplingPlan as SamplingPlan
