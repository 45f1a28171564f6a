"""Contract of every search, on one small problem: designs of the space, a bound that nothing passes, repeatability."""

import functools
from typing import Any

import numpy as np

from ..core.errors import ConfigError
from ..model.metrics import evaluate
from ..search import AbstractSearch, Problem, Trace
from ..study.design_space import Continuous, DesignSpace
from ..study.objective import Objective
from .keeping import must
from .products import products

UP = "cluster.network.scale_up.fabric.bandwidth_bytes_per_s"
ROUNDING = 1e-6


@functools.cache
def small_problem() -> Problem:
    """Six plans and one bandwidth, within a budget."""
    space = DesignSpace({"tp": [1, 2, 4], "micro_batch": [1, 4]}, {"up": Continuous(UP, 100e9, 900e9, grid=3)})
    return Problem(products(), space, Objective("time_s", limits={"capex_usd": 8e5}))


class FoundBySearch:
    """A search and what it leaves; None where it refuses this problem, as some ask for one of their own."""

    def __init__(self, search: AbstractSearch):
        self.search, self.trace = search, _run(search)

    @classmethod
    def of(cls, kind: type[AbstractSearch]) -> "FoundBySearch":
        """The example of a class of searches, run."""
        return cls(kind.example(small_problem()))


def _run(search: AbstractSearch) -> Trace | None:
    problem = small_problem()
    try:
        search.refuse(problem)
        trace: Any = search.run(problem, 0)  # of somebody else's code
        must(isinstance(trace, Trace), f"run() returns a {type(trace).__name__}, not a Trace")
        return trace
    except ConfigError as refused:
        must("\n" not in str(refused), "a refusal is more than one line")
        return None


def leaves_designs_of_the_space(found: FoundBySearch) -> None:
    """Check the designs of a search: complete columns, listed plans, hardware inside its box, a claim of one line."""
    trace, space = found.trace, small_problem().space
    if trace is None:
        return
    must(len(trace.method) > 0, "run() leaves no design")
    must({len(column) for column in trace.points.values()} == {len(trace.method)}, "points and method differ in length")
    if trace.method == ["single"]:  # nothing was to vary
        return
    must(set(trace.points) >= {*space.plan, *space.hardware}, "points lack variables of the space")
    for name, listed in space.lists.items():
        must(np.isin(trace.points[name], listed), f"points have a {name} that the space does not list")
    for name, variable in space.hardware.items():
        column = trace.points[name]
        inside = (column >= variable.low * (1 - 1e-9)) & (column <= variable.high * (1 + 1e-9))
        must(inside, f"points have a {name} outside its range")
    must(trace.claim and "\n" not in trace.claim, "the claim is not one line")


def passes_no_bound_of_its_own(found: FoundBySearch) -> None:
    """Its designs, priced by the plain model, are no better than what it proves."""
    trace, problem = found.trace, small_problem()
    proof = trace.certificate if trace else None
    if trace is None or proof is None or proof.bound is None or proof.goal != problem.objective.goal:
        return
    for at in range(min(len(trace.method), 4)):
        point = {name: float(column[at]) for name, column in trace.points.items()}
        metrics = evaluate(problem.space.place(problem.scenario, point))
        if float(problem.objective.excess(metrics)) <= 0:
            must(metrics.time_s >= proof.bound * (1 - ROUNDING), "a design of its own is better than its bound")


def leaves_the_same_for_the_same_seed(found: FoundBySearch) -> None:
    """Every random number comes from the seed."""
    one = found.trace
    again = _run(found.search) if one is not None else None
    if one is None or again is None:
        return
    must(one.method == again.method, "the same seed leaves other designs")
    for name, column in one.points.items():
        must(np.array_equal(column, again.points[name]), f"the same seed leaves another {name}")


PROMISES = (leaves_designs_of_the_space, passes_no_bound_of_its_own, leaves_the_same_for_the_same_seed)
