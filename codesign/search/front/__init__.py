"""Fronts by the epsilon-constraint method, every design with a bound, and what no front can reach."""

from .non_dominated import hypervolume as hypervolume
from .non_dominated import knee as knee
from .non_dominated import non_dominated_rows as non_dominated_rows
from .pareto import Pareto as Pareto
from .pareto import front_rows as front_rows

__all__ = [
    "Pareto", "front_rows", "hypervolume", "knee", "non_dominated_rows",
]  # fmt: skip
