"""Inputs and outputs of a search: problem, progress, trace and the base class."""

import abc
import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jaxtyping import Array

from ..core.errors import ConfigError
from ..core.examples import by_default
from ..core.jax_typed import asarray, configure
from ..executors import AbstractRunner
from ..model.scenario import Scenario
from ..staging import Answers, at_points, model_of
from ..study.design_space import DesignSpace
from ..study.objective import Objective
from .certificate import Certificate, GoalQuantity

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
    def wanted(self) -> GoalQuantity:
        """Quantity whose log is the row of the objective's goal."""
        return GoalQuantity(self.objective.goal, 1.0 if self.objective.minimise else -1.0)

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
    assumption = problem.scenario.workload.words.assuming
    if assumption and trace.certificate is not None and trace.claim.startswith(CERTIFIED):
        trace.claim = f"bound under the assumption that {assumption}: {trace.claim.removeprefix(CERTIFIED)}"
        trace.certificate = replace(trace.certificate, assuming=assumption)
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


# Goals and floors that a search takes logarithms of must be positive: told at the start, by a sample of the space.


PLANS, POINTS = 64, 256  # of the sample


def refuse_without_logarithm(search: AbstractSearch, problem: Problem, seed: int = 0) -> None:
    """Evaluate what might be zero or negative at legal plans and at hardware anywhere in its range, corners too.

    Quantities that their form keeps positive cost nothing.

    Raises:
        ConfigError: one that is not, with a value it takes and the searches that need no logarithm.
    """
    logged = search.logged(problem)
    if not logged:
        return
    space, rng = problem.space, np.random.default_rng(seed)
    plans = space.legal_sample(problem.scenario, PLANS, seed)
    plan = plans[np.arange(POINTS) % len(plans)]
    u = rng.uniform(size=(POINTS, len(space.names)))
    u[: POINTS // 2] = np.round(u[: POINTS // 2])  # most quantities are least at a corner

    def outputs(answers: Answers) -> list[Array]:
        return [problem.objective.value(answers.metrics, text) for _, text in logged]

    values = space.values({name: u[:, i] for i, name in enumerate(space.names)})
    columns = [*plan.T, *(values[name] for name in space.names)]
    program = model_of(problem.scenario, space, tuple(space.plan)).program_of(outputs)
    result = at_points(program, jax.tree.leaves(problem.scenario), columns)
    result = np.stack([np.broadcast_to(column, (POINTS,)) for column in result], axis=-1)
    for (where, text), values in zip(logged, result.T, strict=True):
        bad = values[~(values > 0)]
        if len(bad):
            raise ConfigError(
                f"{where} = {text!r} is {bad.min():.4g} in {len(bad) / POINTS:.0%} of a sample of the space, but this"
                " search takes its logarithm: make it positive, or take search=grid or search=differential_evolution"
            )


# Problems as they are sent to another process, which may not have been told to keep 64 bits.


Sent = tuple[Any, Any, Any]
"""Scenario with plain arrays, space, objective: JAX narrows what it reads before it is told not to."""


def plain(problem: Problem) -> Sent:
    """Plain arrays in place of JAX's."""
    return jax.tree.map(np.asarray, problem.scenario), problem.space, problem.objective


def read_back(sent: Sent) -> Problem:
    """Rebuild a problem in float64, as whoever sent it had it."""
    configure("jax_enable_x64", True)
    scenario, space, objective = sent
    return Problem(jax.tree.map(asarray, scenario), space, objective)


def _sent(work: object) -> dict[str, Any]:
    """State of work as it is sent, without what each process makes of it for itself."""
    work_class = type(work)
    return {name: value for name, value in vars(work).items()
            if not isinstance(getattr(work_class, name, None), functools.cached_property)}  # fmt: skip


class AbstractSentWork:
    """Work on a `problem` that is pickled with plain arrays; cached properties stay where they are."""

    problem: Problem

    def __getstate__(self) -> dict[str, Any]:
        """With the problem as it is sent."""
        return _sent(self) | {"problem": plain(self.problem)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """With the problem as it was."""
        vars(self).update(state | {"problem": read_back(state["problem"])})


class AbstractSentProblems:
    """Work on several `problems`, by name, that are pickled likewise."""

    problems: dict[str, Problem]

    def __getstate__(self) -> dict[str, Any]:
        """With the problems as they are sent."""
        return _sent(self) | {"problems": {name: plain(problem) for name, problem in self.problems.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """With the problems as they were."""
        problems = {name: read_back(sent) for name, sent in state["problems"].items()}
        vars(self).update(state | {"problems": problems})
