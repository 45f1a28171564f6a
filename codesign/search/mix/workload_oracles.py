"""Oracles of the workloads of a mix, with a price on their hardware, and searches that concern one workload alone."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from ...core.jax_typed import structure, tree_at
from ...executors import AbstractRunner
from ...model.scenario import Scenario
from ...uncertainty import Cases
from ..base import AbstractSentProblems, Problem
from ..branch_and_bound.bounding import COLD, Outcome, SearchEffort, SentOutcome, WarmStart
from ..branch_and_bound.branch_and_bound import BranchAndBound
from ..branch_and_bound.evidence import Recorder
from ..branch_and_bound.model_oracle import Oracle
from ..branch_and_bound.oracle import GOAL, AbstractOracle, AbstractRelay, Programme, Tangents, rows_of
from ..robust import robust_oracle
from .alternating import Member

# Oracles of several workloads: those whose models differ only in their numbers share one traced program.


Oracles = dict[str, tuple[Oracle, dict[str, float]]]  # workload -> its oracle, and what its limits are allowed over it


def oracles_of(problems: dict[str, Problem], block: int) -> Oracles:
    """Name -> (oracle, row -> log by which its limit differs from the oracle's); equal structures are traced once."""
    plain = {name: _nameless(given) for name, given in problems.items()}
    return {name: _oracle(name, plain, block) for name in plain}


def oracle_of(name: str, problems: dict[str, Problem], block: int) -> tuple[Oracle, dict[str, float]]:
    """Return the oracle of one of the problems and the logs by which its limits differ from the oracle's."""
    return _oracle(name, {key: _nameless(given) for key, given in problems.items()}, block)


def judged(oracle: Oracle, cases: Cases | None, over_cases: str, tail: float, seed: int) -> AbstractOracle:
    """The rows of an oracle, in all cases where constants are uncertain; `seed` draws the cases."""
    if cases is None or not cases.uncertain:
        return oracle
    return robust_oracle(oracle, cases, over_cases, tail, seed)


def _oracle(name: str, problems: dict[str, Problem], block: int) -> tuple[Oracle, dict[str, float]]:
    """Rows are those of the first problem that is priced by the same program."""
    problem = problems[name]
    first = next(given for given in problems.values() if given is problem or _alike(given, problem))
    return Oracle(problem, rows_of(first), block), {} if first is problem else moved_limits(first, problem)


def _nameless(problem: Problem) -> Problem:
    return dataclasses.replace(problem, scenario=nameless(problem.scenario))


def nameless(scenario: Scenario) -> Scenario:
    """Without the name of the model, which is part of a tree's structure but prices nothing."""
    model: Any = cast(Any, getattr(scenario.workload, "model", None))
    if not isinstance(getattr(model, "name", None), str):
        return scenario
    workload = tree_at(attrgetter("model"), scenario.workload, dataclasses.replace(model, name=""))
    return dataclasses.replace(scenario, workload=workload)


def _alike(one: Problem, other: Problem) -> bool:
    """True if both are priced by the same program."""
    a, b = one.objective, other.objective
    names = (set(a.limits), set(a.floors)) == (set(b.limits), set(b.floors))
    goals = names and a == dataclasses.replace(b, limits=a.limits, floors=a.floors)
    spaces = one.space.hardware == other.space.hardware and list(one.space.plan) == list(other.space.plan)
    return goals and spaces and structure(one.scenario) == structure(other.scenario)


def moved_limits(one: Problem, other: Problem) -> dict[str, float]:
    """Row -> log of the second problem's bound over the first's (of a floor, the reverse)."""
    a, b = one.objective, other.objective
    limits = {name: math.log(b.limits[name] / bound) for name, bound in a.limits.items()}
    return limits | {name: math.log(bound / b.floors[name]) for name, bound in a.floors.items()}


# An oracle with a price on its hardware: how one workload of a mix is asked for what suits the others.


class LagrangianOracle(AbstractRelay):
    """The rows of another oracle, with the goal `weight * goal + slope . u`.

    Source: Lagrangian pricing, [geoffrion1974]; see docs/optimisation.md, section 6 (mixes).
    """

    def __init__(self, inner: AbstractOracle, weight: float, slope: Float[np.ndarray, " variables"]):
        super().__init__(inner)
        self._weight, self._slope, self._goal = weight, slope, inner.names.index(GOAL)

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """Evaluate and lean."""
        self.evaluated += len(plan)
        result = self.inner.tangents(plan, u, sharpness)
        affine = result.affine.copy()
        affine[:, self._goal] *= self._weight
        affine[:, self._goal, 1:] += self._slope
        return Tangents(self._leaned(result.exact, u), affine, result.broken)

    def values(self, plan: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Exact rows alone, leaned."""
        self.evaluated += len(plan)
        exact, broken = self.inner.values(plan, u)
        return self._leaned(exact, u), broken

    def _leaned(self, exact: np.ndarray, u: np.ndarray) -> np.ndarray:
        goal = exact[:, self._goal]
        legal, leaned = np.isfinite(goal), exact.copy()
        leaned[:, self._goal] = np.where(legal, self._weight * np.where(legal, goal, 0.0) + u @ self._slope, np.inf)
        return leaned


# Searches of a mix that concern one workload alone, by whatever process a runner asks: what each leaves is the same.
#
#     on hardware of its own    every workload's best, certified
#     under duals               its least leaned goal, in each round of the proof
#
# What exchanges plans and what chooses duals needs all workloads at once and stays in one process.


@dataclass(frozen=True)
class WorkloadSearch:
    """One search over the plans of one workload.

    Args:
        name: of the workload.
        effort: how hard is tried.
        weight, slope: of its goal and the prices on hardware; without a slope its goal as it is.
        warm: what is known before.
    """

    name: str
    effort: SearchEffort
    weight: float = 1.0
    slope: np.ndarray | None = None
    warm: WarmStart = field(default=COLD)

    def __str__(self) -> str:
        """Workload of the search, as text."""
        return f"workload {self.name}"

    def of(self, programme: Programme) -> Programme:
        """The programme that is searched, of the workload's own."""
        if self.slope is None:
            return programme
        return replace(programme, oracle=LagrangianOracle(programme.oracle, self.weight, self.slope))

    def run(self, programme: Programme, seed: int) -> Outcome:
        """With notes of what each bound rests on."""
        return BranchAndBound(self.of(programme), self.effort, seed, recorder=Recorder(), warm=self.warm).run()


class WorkloadWork(AbstractSentProblems):
    """Searches of the workloads of one mix; each model is traced once in a process.

    Args:
        problems: name -> its problem.
        block: points in one call of the model.
        cases: uncertain constants that all share, if any. over_cases, tail: how a goal is blended over them.
        seed: of the cases and of each search.
    """

    def __init__(
        self, problems: dict[str, Problem], block: int, cases: Cases | None, over_cases: str, tail: float, seed: int
    ):
        self.problems, self.block, self.seed = problems, block, seed
        self.cases, self.over_cases, self.tail = cases, over_cases, tail

    @functools.cached_property
    def programmes(self) -> dict[str, tuple[Oracle, Programme]]:
        """Oracle and programme of each workload that was asked for so far."""
        return {}

    def __call__(self, search: WorkloadSearch) -> tuple[str, SentOutcome, int]:
        """(workload, what its search left, points evaluated)."""
        if search.name not in self.programmes:
            oracle, allowed = oracle_of(search.name, self.problems, self.block)
            rows = judged(oracle, self.cases, self.over_cases, self.tail, self.seed)
            self.programmes[search.name] = oracle, Programme(rows, allowed=allowed)
        oracle, programme = self.programmes[search.name]
        before = oracle.evaluated
        outcome = search.run(programme, self.seed).unless_interrupted()
        return search.name, SentOutcome(outcome), oracle.evaluated - before


@dataclass(frozen=True)
class Searches:
    """Executor of a mix's searches that concern one workload, in this process or by a runner.

    Args:
        members: the workloads, which have the programmes.
        seed: of each search.
        oracles: of the workloads, whose points are counted.
        work: of this mix.
        runner: none for this process.
    """

    members: Sequence[Member]
    seed: int
    oracles: Oracles = field(default_factory=dict[str, tuple[Oracle, dict[str, float]]])
    work: WorkloadWork | None = None
    runner: AbstractRunner | None = None

    @property
    def worth_s(self) -> float:
        """Seconds that searches of all workloads must take, one after the other, to be worth sending."""
        return self.runner.chunk_s if self.runner is not None else math.inf

    def run(self, search_of: Callable[[int, float], WorkloadSearch], spread: bool = True) -> Iterator[Outcome]:
        """Run the search for each workload, and yield the outcomes in their order; here unless `spread`.

        Args:
            search_of: (number of the workload, share of the time that is left) -> its search, just before it begins.
            spread: whether a runner is asked, if there is one.

        Raises:
            CodesignError: a search whose workers were lost.
        """
        count = len(self.members)
        if self.runner is None or self.work is None or not spread:
            for k, member in enumerate(self.members):
                yield search_of(k, 1 / (count - k)).run(member.programme, self.seed)
            return
        every = [search_of(k, 1.0) for k in range(count)]
        result: dict[str, tuple[SentOutcome, int]] = {}
        with closing(self.runner.results(self.work, every)) as arriving:
            for one in arriving:
                result |= {} if one is None else {one[0]: one[1:]}
        for member, search in zip(self.members, every, strict=True):
            outcome, points = result[search.name]
            self.oracles[member.name][0].evaluated += points
            yield outcome.over(search.of(member.programme))
