"""Descents along gradients: over the hardware of a plan, over relaxed plans."""

from .gradient import Descent, GridThenGradient, Optimizer, Transformation
from .relaxed import Gradient

__all__ = [
    "Descent", "Gradient", "GridThenGradient", "Optimizer", "Transformation",
]  # fmt: skip
