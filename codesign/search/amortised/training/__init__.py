"""How the networks of `search=amortised` come to be: families of studies, training, how good their answers are."""

from .families import FAMILIES
from .regret import regrets, summary

__all__ = ["FAMILIES", "regrets", "summary"]
