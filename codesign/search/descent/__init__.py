"""Descents along gradients: over the hardware of a plan, over relaxed plans."""

from .gradient import Descent as Descent
from .gradient import GridThenGradient as GridThenGradient
from .relaxed import Gradient as Gradient
from .transformations import Optimizer as Optimizer
from .transformations import Transformation as Transformation

__all__ = [
    "Descent", "Gradient", "GridThenGradient", "Optimizer", "Transformation",
]  # fmt: skip
