"""Evaluator of a black-box search: prices points, keeps the best, ends when time or evaluations are up."""

import time

import numpy as np
from jaxtyping import Float

from ...core.pareto_tools import non_dominated_rows
from ...study.objective import feasible_logs
from ..base import Progress, Report, silent
from ..branch_and_bound.incumbent import Incumbent
from .box import Evaluator


class Exhausted(Exception):
    """Time or evaluations are used up."""


class Trial:
    """Prices points of a box under a budget.

    Args:
        evaluator: the vectorised model.
        seconds, evaluations: the budget; the clock starts with the first question, after compilation.
        report: told how it goes.
        stage: name for the report.

    Attributes:
        incumbent: the best design by its first goal, and others with other plans that come near it.
        front: feasible points that no other dominates (several goals only), as (goals, plan, coordinates).
        history: (seconds, best) at every improvement.
    """

    def __init__(
        self, evaluator: Evaluator, seconds: float, evaluations: float, report: Report = silent, stage: str = ""
    ):
        self.evaluator, self.seconds, self.evaluations = evaluator, seconds, evaluations
        self.report, self.stage = report, stage
        self.incumbent, self.count = Incumbent(len(evaluator.box.problem.space.names)), 0
        self.least = (np.inf, 0, np.zeros(0))
        self.history: list[tuple[float, float]] = []
        self.front: list[tuple[np.ndarray, int, np.ndarray]] = []
        box = evaluator.box
        self.warm_up = np.full((1, len(box.names)), 0.5)
        evaluator(box.plan_numbers(self.warm_up), box.hardware(self.warm_up))
        self.began = time.perf_counter()
        self._told = self.began

    @property
    def best(self) -> float:
        """Log of the best feasible first goal."""
        return self.incumbent.upper

    @property
    def elapsed(self) -> float:
        """Seconds of the budget that are gone."""
        return time.perf_counter() - self.began

    def prices(self, x: Float[np.ndarray, "points coordinates"]) -> tuple[np.ndarray, np.ndarray]:
        """(goals [points, goals], summed violation [points]) as logs; inf where a point has no price.

        Raises:
            Exhausted: after the answer that used up the budget was noted.
        """
        box = self.evaluator.box
        plan, u = box.plan_numbers(x), box.hardware(x)
        goals, violation, worst = self.evaluator(plan, u)
        self.count += len(x)
        self._note(goals, violation, worst, plan, u)
        if self.elapsed > self.seconds or self.count >= self.evaluations:
            raise Exhausted
        return goals, violation

    def losses(self, x: Float[np.ndarray, "points coordinates"], penalty: float) -> Float[np.ndarray, " points"]:
        """First goal plus `penalty` times the violation; a large number where a point has no price."""
        goals, violation = self.prices(x)
        loss = goals[:, 0] + penalty * violation
        return np.where(np.isfinite(loss), loss, 1e3)

    def _note(
        self, goals: np.ndarray, violation: np.ndarray, worst: np.ndarray, plan: np.ndarray, u: np.ndarray
    ) -> None:
        holds, before = feasible_logs(worst), self.best
        if not np.isfinite(self.best):
            at = int(np.argmin(violation))
            if violation[at] < self.least[0]:
                self.least = (float(violation[at]), int(plan[at]), u[at].copy())
        self.incumbent.notice(plan, u, np.stack([goals[:, 0], worst], axis=-1), np.ones(len(plan), dtype=bool))
        if self.best < before:
            self.history.append((self.elapsed, self.best))
        if goals.shape[1] > 1 and holds.any():
            self._extend(goals[holds], plan[holds], u[holds])
        now = time.perf_counter()
        if now - self._told > 0.2:
            self._told = now
            self.report(Progress(self.stage, self.count, self._total(), self.best))

    def _extend(self, goals: np.ndarray, plan: np.ndarray, u: np.ndarray) -> None:
        """Few points against a long front, without sorting it: what this costs is taken from the search's time."""
        own = non_dominated_rows(goals)
        new, known = goals[own], np.array([point[0] for point in self.front]).reshape(-1, goals.shape[1])
        own = own[~np.any(np.all(known[None] <= new[:, None], axis=2), axis=1)]
        if len(own):
            keep = ~np.any(np.all(goals[own][None] <= known[:, None], axis=2), axis=1)
            self.front = [self.front[i] for i in np.flatnonzero(keep)]
            self.front += [(goals[i], int(plan[i]), u[i].copy()) for i in own]

    def _total(self) -> int:
        """Evaluations to come to, as far as one can say."""
        by_time = self.count * self.seconds / max(self.elapsed, 1e-9)
        return max(int(min(by_time, self.evaluations)), self.count)

    def finish(self) -> None:
        """The last report."""
        self.report(Progress(self.stage, self.count, self.count, self.best))
