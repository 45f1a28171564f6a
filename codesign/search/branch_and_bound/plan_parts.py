"""A proof over all plans, cut into proofs over some of them that know nothing of each other.

A part holds some plan fields at one value each; parts stand for every legal plan. What a part leaves is a `PartProof`:
its best designs, and a bound on all of its plans. Two of these merge into one: the better designs and the lower bound.
So merging is associative, commutative and idempotent, and of a part that never comes back nothing is claimed.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...study.design_space import MOST_LISTED
from ..base import Evidence, Problem
from .evidence import stacked


@dataclass(frozen=True, order=True)
class PlanPart:
    """Plans whose named fields have these values.

    number: among all parts; fields: (name, value) of each; beat: log of the goal that designs must be better than to
    be of any use.
    """

    number: int
    fields: tuple[tuple[str, Any], ...]
    beat: float = math.inf

    def of(self, problem: Problem) -> Problem:
        """The problem with these plans alone."""
        space = problem.space
        plan = {**space.plan, **{name: [value] for name, value in self.fields}}
        return Problem(problem.scenario, type(space)(plan, space.hardware, space.given), problem.objective)

    def __str__(self) -> str:
        """Plans of the part, as text."""
        return "plans with " + ", ".join(f"{name} {value}" for name, value in self.fields)


@dataclass(frozen=True, order=True)
class FoundInPart:
    """A design: log of its goal, the part it is of, plan fields with their values, coordinates of the hardware."""

    value: float
    part: int
    plan: tuple[tuple[str, float], ...]
    u: tuple[float, ...]


@dataclass(frozen=True)
class PartTold:
    """Summary of the search over one part: counts, early stop, why its plans do not stand for all, its notes."""

    counts: dict[str, int]
    stopped: str = ""
    doubt: str = ""
    evidence: Evidence | None = None


@dataclass(frozen=True)
class PartProof:
    """Proof over some parts of the plans.

    Args:
        lower: log of a bound on every plan of them; inf where none is feasible.
        designs: the best, ties in the order of the parts.
        told: part -> how its search went.
        keep: designs at most.
    """

    lower: float
    designs: tuple[FoundInPart, ...]
    told: dict[int, PartTold]
    keep: int

    @property
    def stopped(self) -> str:
        """Reason of the first part that ended early; empty if none did."""
        return next((self.told[part].stopped for part in sorted(self.told) if self.told[part].stopped), "")

    @property
    def doubt(self) -> str:
        """Reason why the plans of some part do not stand for all of them; empty if they do."""
        return next((self.told[part].doubt for part in sorted(self.told) if self.told[part].doubt), "")

    def count(self, name: str) -> int:
        """Sum over the parts."""
        return sum(one.counts.get(name, 0) for one in self.told.values())


def merged(a: PartProof, b: PartProof) -> PartProof:
    """Merge the proofs of two sets of parts."""
    keep = min(a.keep, b.keep)
    designs = sorted({*a.designs, *b.designs})[:keep]
    return PartProof(min(a.lower, b.lower), tuple(designs), b.told | a.told, keep)


def plan_parts(problem: Problem, least: int) -> list[PlanPart]:
    """At least so many parts where there are so many values: one for each combination of the first plan fields.

    Combinations of which no plan is legal are left out where all plans can be listed.
    """
    scenario, space = problem.scenario, problem.space
    fields: list[str] = []
    for name, values in space.plan.items():
        if math.prod(len(space.plan[field]) for field in fields) >= least:
            break
        if len(values) > 1:
            fields.append(name)
    every = list(itertools.product(*(space.plan[name] for name in fields)))
    if fields and space.combinations <= MOST_LISTED:
        legal, lists = space.plans(scenario), space.lists
        known = set(zip(*(legal[name].tolist() for name in fields), strict=True))
        numbers = list(itertools.product(*(lists[name].tolist() for name in fields)))
        every = [values for values, number in zip(every, numbers, strict=True) if number in known]
    return [PlanPart(i, tuple(zip(fields, values, strict=True))) for i, values in enumerate(every)]


def joined_evidence(parts: Sequence[Evidence], plan: dict[str, np.ndarray]) -> Evidence | None:
    """The derivations of all parts as one over all plans; None where they bound groups by different views.

    Args:
        parts: of parts that stand for every plan.
        plan: field -> its values in the whole space, sorted.
    """
    columns = [set(part.tables["nodes"]) for part in parts]
    if any(part.header["views"] != parts[0].header["views"] for part in parts) or any(c != columns[0] for c in columns):
        return None
    nodes: list[dict[str, np.ndarray]] = []
    for part in parts:
        known = part.header["plan"]
        place: dict[str, np.ndarray] = {name: np.searchsorted(values, known[name]) for name, values in plan.items()}
        nodes.append({column: _moved(column, numbers, place) for column, numbers in part.tables["nodes"].items()})
    header = parts[0].header | {"plan": {name: values.tolist() for name, values in plan.items()}}
    return Evidence(header, stacked(parts, nodes))


def _moved(column: str, numbers: np.ndarray, place: dict[str, np.ndarray]) -> np.ndarray:
    """Places in a part's lists as places in the whole ones."""
    name = column.split(".", 2)[-1] if column.startswith("best.") else column.partition(".")[2]
    return place[name][numbers].astype(numbers.dtype) if name in place else numbers
