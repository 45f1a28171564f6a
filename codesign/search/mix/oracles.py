"""Oracles of several workloads: those whose models differ only in their numbers share one traced program."""

import dataclasses
import math

import equinox as eqx
import jax

from ...scenario import Scenario
from ..base import Problem
from ..branch_and_bound.model_oracle import Oracle
from ..branch_and_bound.oracle import rows_of

Oracles = dict[str, tuple[Oracle, dict[str, float]]]  # workload -> its oracle, and what its limits are allowed over it


def oracles_of(problems: dict[str, Problem], block: int) -> Oracles:
    """Name -> (oracle, row -> log by which its limit differs from the oracle's); equal structures are traced once."""
    found: Oracles = {}
    models: list[tuple[Problem, Oracle]] = []
    for name, given in problems.items():
        problem = dataclasses.replace(given, scenario=nameless(given.scenario))
        shared = next((entry for entry in models if _alike(entry[0], problem)), None)
        rows = rows_of(shared[0] if shared else problem)
        oracle = Oracle(problem, rows, block)
        if not shared:
            models.append((problem, oracle))
        found[name] = oracle, moved_limits(shared[0], problem) if shared else {}
    return found


def nameless(scenario: Scenario) -> Scenario:
    """Without the name of the model, which is part of a tree's structure but prices nothing."""
    model = getattr(scenario.workload, "model", None)
    if not isinstance(getattr(model, "name", None), str):
        return scenario
    workload = eqx.tree_at(lambda w: w.model, scenario.workload, dataclasses.replace(model, name=""))
    return dataclasses.replace(scenario, workload=workload)


def _alike(one: Problem, other: Problem) -> bool:
    """Whether both are priced by the same program."""
    a, b = one.objective, other.objective
    names = (set(a.limits), set(a.floors)) == (set(b.limits), set(b.floors))
    goals = names and a == dataclasses.replace(b, limits=a.limits, floors=a.floors)
    spaces = one.space.hardware == other.space.hardware and list(one.space.plan) == list(other.space.plan)
    return goals and spaces and jax.tree.structure(one.scenario) == jax.tree.structure(other.scenario)


def moved_limits(one: Problem, other: Problem) -> dict[str, float]:
    """Row -> log of the second problem's bound over the first's (of a floor, the reverse)."""
    a, b = one.objective, other.objective
    limits = {name: math.log(b.limits[name] / bound) for name, bound in a.limits.items()}
    return limits | {name: math.log(bound / b.floors[name]) for name, bound in a.floors.items()}
