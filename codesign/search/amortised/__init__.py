"""A network trained on studies of a family answers at once."""

from .amortised import Amortised
from .answer import with_plans
from .families import FAMILIES
from .guesser import FOLDER, Guesser
from .regret import regrets, summary

__all__ = [
    "FAMILIES", "FOLDER", "Amortised", "Guesser", "regrets", "summary", "with_plans",
]  # fmt: skip
