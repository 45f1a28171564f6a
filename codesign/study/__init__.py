"""Optimisation problem over a model: design space, feasible plans, objective and limits."""

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from .design_space import Continuous as Continuous
    from .design_space import DesignSpace as DesignSpace
    from .design_space import Ratio as Ratio
    from .design_space import levels as levels
    from .design_space import shown as shown
    from .feasible_plans import Rules as Rules
    from .objective import Objective as Objective
    from .objective import feasible as feasible
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "design_space": ("Continuous", "DesignSpace", "Ratio", "levels", "shown"),
            "feasible_plans": ("Rules",),
            "objective": ("Objective", "feasible"),
        },
    )

__all__ = ["Continuous", "DesignSpace", "Objective", "Ratio", "Rules", "feasible", "levels", "shown"]
