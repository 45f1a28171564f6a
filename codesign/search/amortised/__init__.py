"""A network trained on studies of a family answers at once."""

from .amortised import Amortised as Amortised
from .answer import with_plans as with_plans
from .families import FAMILIES as FAMILIES
from .guesser import FOLDER as FOLDER
from .guesser import Guesser as Guesser
from .regret import regrets as regrets
from .regret import summary as summary

__all__ = [
    "FAMILIES",
    "FOLDER",
    "Amortised",
    "Guesser",
    "regrets",
    "summary",
    "with_plans",
]  # fmt: skip
