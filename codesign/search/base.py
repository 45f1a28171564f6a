"""Inputs and outputs of a search: problem, progress, trace and the base class."""

import abc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np

from ..core.errors import ConfigError
from ..core.examples import by_default
from ..executors import AbstractRunner
from ..model.scenario import Scenario
from ..study.design_space import DesignSpace
from ..study.objective import Objective
from .certificate import Certificate, Wanted

Same = TypeVar("Same", bound="AbstractSearch")


@dataclass(frozen=True)
class Problem:
    """A scenario to vary, what may vary, and what is wanted."""

    scenario: Scenario
    space: DesignSpace
    objective: Objective

    def __post_init__(self) -> None:
        """Variables must lead to numbers of the scenario and keep them legal."""
        self.space.check(self.scenario)

    @property
    def wanted(self) -> Wanted:
        """Quantity whose log is the row of the objective's goal."""
        return Wanted(self.objective.goal, 1.0 if self.objective.minimise else -1.0)

    def check_varies(self) -> None:
        """Refuse a space in which there is nothing to search.

        Raises:
            ConfigError: saying so.
        """
        if not self.space.plan and not self.space.hardware:
            raise ConfigError("space is empty: neither space.plan nor space.hardware names anything that may vary")


@dataclass(frozen=True)
class Evidence:
    """The derivation of a bound as numbers: what `codesign verify` needs, and nothing of the search (see `evidence`).

    header: names of rows, plan fields with their values, variables, and (held) those that have listed values, each one
    more field of the nodes; what is claimed. tables, columns of equal length:
        nodes   low.FIELD, high.FIELD: range of places in the field's values that the node stands for; where it is a
                group, best.V.FIELD: the place of the value at which the rows of view V (see the header) are least
        points  u.VARIABLE: coordinates in the unit cube; sharpness: of the weighted maxima
        cuts    node, point, row, weight: one term of the node's weighted sum of tangents
    Of a mix (header: kind, workloads, and of each round the logs of goals at which the blend is linearised, their
    shares and the prices on hardware) nodes are single plans, and cuts are of a round:
        nodes       workload, at.FIELD: place of the plan's value, -1 where the workload has no such field
        tangents    node, point: of plans in the programme over the tuples that the rounds leave
    """

    header: dict[str, Any]
    tables: dict[str, dict[str, np.ndarray]]


@dataclass(frozen=True)
class Progress:
    """Progress of a search: of `total` units in `stage`, `done` are finished.

    `best` is the goal's value so far and `gap` how far, relatively, it may be from the optimum (where that is known);
    `goal` names what it is a value of where that is not the objective's. `proven` says that the gap is one that the
    result may call proven: the model has been found to keep what the bound rests on.
    """

    stage: str
    done: int
    total: int
    best: float
    gap: float = float("nan")
    goal: str = ""
    proven: bool = False


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report to nobody."""


def proving(report: Report, proven: bool) -> Report:
    """Return a report that marks the gaps it passes on as proven or not."""
    return lambda progress: report(replace(progress, proven=proven))


@dataclass
class Trace:
    """The designs a search kept, to be priced again exactly, and what it took.

    points: name -> one value per kept design; method and plan_index run along with them. counts and seconds are for
    the report; `claim` says in words how much the result proves, `certificate` in numbers (None where
    a search can prove nothing), `evidence` what the proof rests on, for others to check (None where
    none is kept). tables: name -> columns of what else is worth keeping.
    """

    points: dict[str, np.ndarray]
    method: list[str]
    counts: dict[str, int] = field(default_factory=dict[str, int])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    claim: str = ""
    certificate: Certificate | None = None
    tables: dict[str, dict[str, np.ndarray]] = field(default_factory=dict[str, dict[str, np.ndarray]])
    evidence: Evidence | None = None


CERTIFIED = "certified: "


def under_assumption(problem: Problem, trace: Trace) -> Trace:
    """The trace with what its proof is conditional on: nothing is called certified that holds under an assumption.

    Args:
        problem: that was searched.
        trace: as the search left it; changed in place.
    """
    told = problem.scenario.workload.words.assuming
    if told and trace.certificate is not None and trace.claim.startswith(CERTIFIED):
        trace.claim = f"bound under the assumption that {told}: {trace.claim.removeprefix(CERTIFIED)}"
        trace.certificate = replace(trace.certificate, assuming=told)
    return trace


class AbstractSearch(abc.ABC):
    """A way to look for good designs.

    One with parts that know nothing of each other has a field `runner`, which computes them; none: here, in turn.
    """

    runner: AbstractRunner | None = None

    def must_be_positive(self, *names: str) -> None:
        """Refuse settings that are not.

        Raises:
            ConfigError: the first.
        """
        for name in names:
            if not getattr(self, name) > 0:
                raise ConfigError(f"search.{name} = {getattr(self, name)} must be positive")

    @classmethod
    def example(cls, problem: Problem) -> "AbstractSearch":
        """A small one for a problem, which contracts run; classes without defaults bring their own."""
        return by_default(cls)

    def refuse(self, problem: Problem) -> None:
        """Refuse a problem that cannot be searched, before anything is written; most searches list every plan.

        Raises:
            ConfigError: saying what is too much.
        """
        problem.space.check_listable()
        self.refuse_runner()

    def refuse_runner(self) -> None:
        """A runner that is not there.

        Raises:
            ConfigError: what it lacks.
        """
        if self.runner is not None:
            self.runner.refuse()

    def over(self: Same, runner: AbstractRunner) -> Same:
        """Copy whose parts are computed by a runner, where it has parts that know nothing of each other.

        Raises:
            ConfigError: it has none.
        """
        if "runner" in getattr(self, "__dataclass_fields__", {}):
            return replace(cast(Any, self), runner=runner)
        raise ConfigError(
            f"runner = {type(runner).__name__}: {type(self).__name__} is one search in one process;"
            " take search=grid, certified, robust, pareto, mix, whole, inverse, grid_then_proof or grid_then_gradient,"
            " or leave runner out"
        )

    def logged(self, problem: Problem) -> list[tuple[str, str]]:
        """(key, quantity) of what the search takes logarithms of although its form may let it fall to zero or below."""
        return problem.objective.logged()

    @abc.abstractmethod
    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Search; every random number comes from `seed`."""
