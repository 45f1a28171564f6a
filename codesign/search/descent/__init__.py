"""Descents along gradients: over the hardware of a plan, over relaxed plans."""

from .gradient import Descent, GridThenGradient
from .relaxed import Gradient
from .transformations import Optimizer, Transformation

__all__ = [
    "Descent", "Gradient", "GridThenGradient", "Optimizer", "Transformation",
]  # fmt: skip
