"""`search=inverse`: the least, or the most, of one hardware number such that every limit and floor is kept.

"Which bandwidth must the photonic fabric have so that it is no dearer than the other rack at its speed": the wanted
number becomes the goal, the targets become constraints, and the answer has the same certificate as any other search.

Source: see docs/optimisation.md, section 6.
"""

from dataclasses import dataclass, field, replace

import jax.numpy as jnp
from jaxtyping import Array

from ...core.errors import ConfigError, suggestion
from ...executors import AbstractRunner
from ...model.metrics import Metrics
from ..base import AbstractSearch, Problem, Report, Trace, silent
from ..certificate import GoalQuantity
from .certified import Certified
from .model_oracle import AbstractModelOracle
from .node_relaxation import oracle_for
from .oracle import GOAL, Rows, rows_of


@dataclass(frozen=True)
class Inverse(AbstractSearch):
    """The least (or most) of one variable of `space.hardware` that keeps `objective.limits` and `objective.floors`.

    The objective's own goal is not used: give it as a limit or floor where it is a target.

    Args:
        variable: name of the hardware variable.
        maximise: look for the largest value instead of the smallest.
        proof: how the search for it is run.
    """

    variable: str
    maximise: bool = False
    proof: Certified = field(default_factory=lambda: Certified(top_k=1))

    def refuse(self, problem: Problem) -> None:
        """No such variable, or nothing that it should achieve; any number of plans is bounded, in groups."""
        variables = problem.space.hardware
        self.proof.refuse_runner()
        if self.variable not in variables:
            raise ConfigError(
                f"search.variable = {self.variable!r} is not in space.hardware{suggestion(self.variable, variables)}"
            )
        if not problem.objective.limits and not problem.objective.floors:
            raise ConfigError("search=inverse needs a target: set objective.limits or objective.floors")

    def logged(self, problem: Problem) -> list[tuple[str, str]]:
        """Floors; the objective's own goal is not used."""
        return [entry for entry in super().logged(problem) if "floors" in entry[0]]

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Search over plans and the other variables; the frame holds the one design found.

        Raises:
            ConfigError: see `refuse`.
        """
        self.refuse(problem)
        wanted = GoalQuantity(self.variable, -1.0 if self.maximise else 1.0)
        maker = InverseRows(wanted, self.proof.batch_size, seed)
        return self.proof.search(maker(problem), wanted, seed, report, maker=maker)

    def over(self, runner: AbstractRunner) -> "Inverse":
        """Parts of the plans."""
        return replace(self, proof=self.proof.over(runner))

    @classmethod
    def example(cls, problem: Problem) -> "Inverse":
        """The least of the last variable."""
        return cls(
            problem.space.names[-1], proof=Certified(gap=5e-3, convexity_samples=64, batch_size=64, explain=False)
        )


@dataclass(frozen=True)
class InverseRows:
    """The rows of a problem with a hardware variable in the place of the goal, plans in groups where they are many."""

    wanted: GoalQuantity
    batch_size: int
    seed: int

    def __call__(self, problem: Problem) -> AbstractModelOracle:
        """See `oracle_for`."""
        return oracle_for(problem, wanted_rows(problem, self.wanted), self.batch_size, self.seed)


def wanted_rows(problem: Problem, wanted: GoalQuantity) -> Rows:
    """The rows of a problem with the log of a hardware variable in the place of the goal."""
    rows = rows_of(problem)

    def replaced(metrics: Metrics, values: dict[str, Array]) -> dict[str, Array]:
        return rows(metrics, values) | {GOAL: wanted.sign * jnp.log(values[wanted.name])}

    return replaced
