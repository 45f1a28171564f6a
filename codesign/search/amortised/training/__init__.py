"""Training of the networks of `search=amortised`: families of studies, training, quality of their answers."""

from .families import FAMILIES, regrets, summary

__all__ = ["FAMILIES", "regrets", "summary"]
