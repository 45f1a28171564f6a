"""The points of an exhaustive search, addressed by the number of a plan and the number of a hardware level."""

from dataclasses import dataclass

import numpy as np

from ...staging import distinct_plans
from ...study.design_space import levels
from ...study.feasible_plans import as_it_stands
from ..base import Problem


@dataclass
class Axes:
    """The points of a search: plans as listed, levels numbered with the last hardware variable running fastest."""

    plans: dict[str, np.ndarray]
    names: tuple[str, ...]
    levels: list[np.ndarray]
    listed: bool  # whether any plan field varies

    @classmethod
    def of(cls, problem: Problem) -> "Axes":
        """Return the axes of a problem.

        Raises:
            ConfigError: nothing varies, or no plan is legal.
        """
        problem.check_varies()
        space = problem.space
        plans = distinct_plans([problem.scenario], space, space.plans(problem.scenario))
        listed = bool(plans)
        plans = plans or as_it_stands(problem.scenario)
        return cls(plans, space.names, [levels(space.hardware[name]) for name in space.names], listed)

    @property
    def variables(self) -> list[tuple[str, np.ndarray]]:
        """Every variable with its distinct values: plan fields, then hardware."""
        plan = [(name, np.unique(column)) for name, column in self.plans.items()]
        return plan + list(zip(self.names, self.levels, strict=True))

    @property
    def plan_count(self) -> int:
        """Plans that are tried: legal ones, those that are equal in every metric once."""
        return len(next(iter(self.plans.values())))

    @property
    def shape(self) -> tuple[int, ...]:
        """Levels of each hardware variable."""
        return tuple(len(level) for level in self.levels) or (1,)

    @property
    def level_count(self) -> int:
        """Points of the hardware grid: one where nothing continuous varies."""
        return int(np.prod(self.shape, dtype=np.int64))

    def level_places(self, level: np.ndarray) -> np.ndarray:
        """[levels, hardware variables] which level of each variable."""
        return np.stack(np.unravel_index(level, self.shape), axis=-1)

    def values_of(self, level: np.ndarray) -> dict[str, np.ndarray]:
        """Values of the hardware variables at these levels."""
        places = self.level_places(level)
        return {name: self.levels[i][places[:, i]] for i, name in enumerate(self.names)}

    def points(self, pairs: np.ndarray) -> dict[str, np.ndarray]:
        """Values of [n, 2] (plan, level) pairs."""
        chosen = {name: column[pairs[:, 0]] for name, column in self.plans.items()} if self.listed else {}
        return chosen | self.values_of(pairs[:, 1])
