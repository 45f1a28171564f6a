"""Scaling laws for the quality of a trained model, with a range, and errors where they were published."""

from .base import AbstractLaw as AbstractLaw
from .base import BitWidths as BitWidths
from .base import FittedRange as FittedRange
from .base import Ranges as Ranges
from .base import TrainedModel as TrainedModel
from .dense import DenseLaw as DenseLaw
from .dense import FitErrors as FitErrors
from .experts import FineGrainedLaw as FineGrainedLaw
from .experts import JointLaw as JointLaw
from .precision import PrecisionLaw as PrecisionLaw
from .shape import ShapeCorrection as ShapeCorrection
from .shape import Shapes as Shapes

__all__ = [
    "AbstractLaw", "BitWidths", "DenseLaw", "FineGrainedLaw", "FitErrors", "FittedRange", "JointLaw", "PrecisionLaw",
    "Ranges", "ShapeCorrection", "Shapes", "TrainedModel",
]  # fmt: skip
