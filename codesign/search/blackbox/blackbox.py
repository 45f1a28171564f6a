"""`search=differential_evolution`, `cmaes`, `nsga2`, `optuna`, `random`: searches that know nothing of the model.

For models that are not log-convex, and to hold the certified search against. Same frame, no proof.

Source: see docs/optimisation.md, section 7.
"""

import contextlib
import dataclasses
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Array

from ...core.errors import ConfigError
from ...model.metrics import Metrics
from ...study.objective import signed_log
from ..base import AbstractSearch, Problem, Progress, Report, Trace, silent
from ..branch_and_bound.oracle import GOAL, Rows, rows_of
from .peers import AbstractBlackboxOptimizer, DifferentialEvolution, Random
from .trial import Box, Evaluator, Exhausted, Trial


@dataclass(frozen=True)
class Blackbox(AbstractSearch):
    """Any search that asks for prices of points, under a limit of time and evaluations.

    Args:
        optimizer: the search.
        seconds: limit of its time, compilation not counted.
        evaluations: limit of points; it ends with the batch that reaches it.
        top_k: next-best designs (each with another plan) that are kept for the frame.
        objectives: further metrics to be minimised beside the objective's goal, for searches that take several goals.
    """

    optimizer: AbstractBlackboxOptimizer = field(default_factory=DifferentialEvolution)
    seconds: float = 60.0
    evaluations: float = 10_000_000
    top_k: int = 16
    objectives: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Positive sizes, one goal for those that take one, the package there."""
        self.must_be_positive("seconds", "evaluations", "top_k")
        if self.objectives and not self.optimizer.many:
            raise ConfigError(
                f"search.objectives = {list(self.objectives)}: {self.optimizer.name} has one goal; search=nsga2 several"
            )
        self.optimizer.ready()

    def logged(self, problem: Problem) -> list[tuple[str, str]]:
        """Nothing: designs are only ranked."""
        return []

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Search until the budget is used up; an interrupt ends with what was found.

        Raises:
            ConfigError: nothing varies, or `also` names no metric.
        """
        names = tuple(name for name in self.objectives if name != problem.objective.goal)
        evaluator = Evaluator(Box(problem), rows_with(problem, names), (GOAL, *names))

        def on_progress(progress: Progress) -> None:
            report(dataclasses.replace(progress, best=problem.objective.goal_at(progress.best)))

        trial = Trial(evaluator, self.seconds, self.evaluations, on_progress, self.optimizer.name)
        stopped = self.ask(trial, seed)
        if not stopped:  # whoever interrupted would do so again at the last report
            with contextlib.suppress(KeyboardInterrupt):  # all is found already
                trial.finish()
        return self.traced(trial, stopped)

    def ask(self, trial: Trial, seed: int) -> str:
        """Let the peer ask until the trial ends it; says so where it was interrupted."""
        try:
            self.optimizer.minimise(trial, seed)
        except Exhausted:
            return ""
        except KeyboardInterrupt:
            return ", interrupted"
        return ""

    def traced(self, trial: Trial, stopped: str = "") -> Trace:
        """The best designs with different plans, then the front where there are several goals."""
        box, counts = trial.evaluator.box, {"points": trial.count}
        seconds = {self.optimizer.name: trial.elapsed}
        result = trial.incumbent.feasible
        if not result:
            _, plan, u = trial.least
            claim = f"no feasible design found by {self.optimizer.name}, no certificate{stopped}"
            return Trace(box.designs(np.array([plan]), u[None]), [self.optimizer.name], counts, seconds, claim)
        best = trial.incumbent.ranked(self.top_k)
        plans = [*best, *(point[1] for point in trial.front)]
        u = np.array([*(result[p][1] for p in best), *(point[2] for point in trial.front)])
        claim = f"heuristic solution by {self.optimizer.name}, no certificate{stopped}"
        method = [self.optimizer.name] * len(best) + ["pareto"] * len(trial.front)
        return Trace(box.designs(np.array(plans), u.reshape(len(plans), -1)), method, counts, seconds, claim)

    @classmethod
    def example(cls, problem: Problem) -> "Blackbox":
        """Random designs."""
        return cls(Random(batch=64), evaluations=128)


def rows_with(problem: Problem, names: tuple[str, ...]) -> Rows:
    """The rows of a problem, designs ranked by its goal and by further metrics under their names.

    A limit on one of those keeps its row.
    """
    rows = rows_of(problem)

    def extended(metrics: Metrics, values: dict[str, Array]) -> dict[str, Array]:
        other_rows = {f"limit.{name}" if name in names else name: row for name, row in rows(metrics, values).items()}
        return other_rows | {GOAL: problem.objective.rank(metrics)} | {n: signed_log(metrics.get(n)) for n in names}

    return extended
