"""Result of any search where nothing varies: the one design there is, priced."""

from dataclasses import dataclass

import numpy as np

from ..executors import AbstractRunner
from .base import AbstractSearch, Problem, Report, Trace, silent


@dataclass(frozen=True)
class Single(AbstractSearch):
    """The scenario as it stands."""

    def logged(self, problem: Problem) -> list[tuple[str, str]]:
        """Nothing."""
        return []

    def over(self, runner: AbstractRunner) -> "Single":
        """One design is computed here."""
        return self

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """One design; it may break limits."""
        points = {name: np.array([float(value)]) for name, value in problem.scenario.plan.told().items()}
        claim = "the one design there is: neither space.plan nor space.hardware names anything that may vary"
        return Trace(points, ["single"], {"points": 1}, {}, claim)
