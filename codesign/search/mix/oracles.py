"""Oracles of several workloads: those whose models differ only in their numbers share one traced program."""

import dataclasses
import math
from operator import attrgetter
from typing import Any, cast

from ...core.jax_typed import structure, tree_at
from ...model.scenario import Scenario
from ...uncertainty import Cases
from ..base import Problem
from ..branch_and_bound.model_oracle import Oracle
from ..branch_and_bound.oracle import AbstractOracle, rows_of
from ..robust import robust_oracle

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
