"""Descents along gradients: over the hardware of a plan, over relaxed plans."""

from .gradient import Descent as Descent
from .gradient import GridThenGradient as GridThenGradient
from .optimiser import Optimiser as Optimiser
from .optimiser import Transformation as Transformation
from .relaxed import Gradient as Gradient

__all__ = [
    "Descent", "Gradient", "GridThenGradient", "Optimiser", "Transformation",
]  # fmt: skip
