"""Optimisation problem over a model: design space, feasible plans, objective and limits."""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from .design_space import Continuous, DesignSpace, Ratio, levels, shown
    from .feasible_plans import Rules
    from .objective import Objective, feasible
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["Continuous", "DesignSpace", "Objective", "Ratio", "Rules", "feasible", "levels", "shown"]
