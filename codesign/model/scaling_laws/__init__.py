"""Scaling laws for the quality of a trained model, with a range, and errors where they were published."""

from .base import AbstractLaw as AbstractLaw
from .base import Bits as Bits
from .base import Ranges as Ranges
from .base import Span as Span
from .base import Trained as Trained
from .dense import DenseLaw as DenseLaw
from .dense import FitErrors as FitErrors
from .experts import FineGrainedLaw as FineGrainedLaw
from .experts import JointLaw as JointLaw
from .precision import PrecisionLaw as PrecisionLaw
from .shape import ShapeCorrection as ShapeCorrection
from .shape import Shapes as Shapes

__all__ = [
    "AbstractLaw", "Bits", "DenseLaw", "FineGrainedLaw", "FitErrors", "JointLaw", "PrecisionLaw", "Ranges",
    "ShapeCorrection", "Shapes", "Span", "Trained",
]  # fmt: skip
