"""A network trained on studies of a family answers at once."""

from .amortised import Amortised, with_plans
from .guesser import FOLDER, TrainedPredictor

__all__ = ["FOLDER", "Amortised", "TrainedPredictor", "with_plans"]
