"""Fronts by the epsilon-constraint method, every design with a bound, and what no front can reach."""

from ...core.pareto_tools import hypervolume, knee, non_dominated_rows
from .pareto import Pareto, front_rows

__all__ = [
    "Pareto", "front_rows", "hypervolume", "knee", "non_dominated_rows",
]  # fmt: skip
