"""A network trained on studies of a family answers at once."""

from .amortised import Amortised, with_plans
from .guesser import FOLDER, Guesser

__all__ = ["FOLDER", "Amortised", "Guesser", "with_plans"]
