"""Proofs of parts of the plans, by whatever process a runner asks, and what they come to together."""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core.errors import CodesignError
from ...executors import AbstractRunner
from ...study.design_space import MOST_LISTED
from ..base import AbstractSentWork, Evidence, Problem, Progress, Report
from .bounding import INTERRUPTED, Outcome, SearchEffort, WarmStart
from .bounding_state import Incumbent
from .branch_and_bound import BranchAndBound
from .evidence import Recorder, evidence_of, stacked
from .model_oracle import AbstractModelOracle
from .node_relaxation import GroupOracle, oracle_for
from .oracle import Programme, rows_of

# A proof over all plans, cut into proofs over some of them that know nothing of each other.
#
# A part holds some plan fields at one value each; parts stand for every legal plan. What a part leaves is a
# `PartProof`: its best designs, and a bound on all of its plans. Two of these merge into one: the better designs and
# the lower bound. So merging is associative, commutative and idempotent, and of a part that never comes back nothing
# is claimed.


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
class PartDesign:
    """A design: log of its goal, the part it is of, plan fields with their values, coordinates of the hardware."""

    value: float
    part: int
    plan: tuple[tuple[str, float], ...]
    u: tuple[float, ...]


@dataclass(frozen=True)
class PartSummary:
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
        reports: part -> how its search went.
        keep: designs at most.
    """

    lower: float
    designs: tuple[PartDesign, ...]
    reports: dict[int, PartSummary]
    keep: int

    @property
    def stopped(self) -> str:
        """Reason of the first part that ended early; empty if none did."""
        return next((self.reports[part].stopped for part in sorted(self.reports) if self.reports[part].stopped), "")

    @property
    def doubt(self) -> str:
        """Reason why the plans of some part do not stand for all of them; empty if they do."""
        return next((self.reports[part].doubt for part in sorted(self.reports) if self.reports[part].doubt), "")

    def count(self, name: str) -> int:
        """Sum over the parts."""
        return sum(one.counts.get(name, 0) for one in self.reports.values())


def merged(a: PartProof, b: PartProof) -> PartProof:
    """Merge the proofs of two sets of parts."""
    keep = min(a.keep, b.keep)
    designs = sorted({*a.designs, *b.designs})[:keep]
    return PartProof(min(a.lower, b.lower), tuple(designs), b.reports | a.reports, keep)


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
        legal_values = set(zip(*(legal[name].tolist() for name in fields), strict=True))
        numbers = list(itertools.product(*(lists[name].tolist() for name in fields)))
        every = [values for values, number in zip(every, numbers, strict=True) if number in legal_values]
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
        plan_values = part.header["plan"]
        indices: dict[str, np.ndarray] = {
            name: np.searchsorted(values, plan_values[name]) for name, values in plan.items()
        }
        nodes.append({column: _moved(column, numbers, indices) for column, numbers in part.tables["nodes"].items()})
    header = parts[0].header | {"plan": {name: values.tolist() for name, values in plan.items()}}
    return Evidence(header, stacked(parts, nodes))


def _moved(column: str, numbers: np.ndarray, indices: dict[str, np.ndarray]) -> np.ndarray:
    """Places in a part's lists as places in the whole ones."""
    name = column.split(".", 2)[-1] if column.startswith("best.") else column.partition(".")[2]
    return indices[name][numbers].astype(numbers.dtype) if name in indices else numbers


OracleMaker = Callable[[Problem], AbstractModelOracle]
"""Makes the oracle over all legal plans of a problem, in whatever process it is asked for."""

SHARES = 4  # parts of each worker at the least, so that none waits long for the last


@dataclass(frozen=True)
class RowsOfProblem:
    """The rows of the problem itself, plans in groups where they are many.

    ranges: groups may be bounded by ranges, which are wider over all plans than over a part of them: not in parts.
    """

    block: int
    seed: int
    ranges: bool = True

    def __call__(self, problem: Problem) -> AbstractModelOracle:
        """See `oracle_for`."""
        return oracle_for(problem, rows_of(problem), self.block, self.seed, ranges=self.ranges)


class PartWork(AbstractSentWork):
    """Proves parts of one problem, here or in another process."""

    def __init__(self, problem: Problem, maker: OracleMaker, effort: SearchEffort, seed: int, keep: int):
        self.problem, self.maker, self.effort, self.seed, self.keep = problem, maker, effort, seed, keep

    def __call__(self, part: PlanPart) -> PartProof:
        """The best designs of a part, and what none of its plans is below."""
        oracle, recorder = self.maker(part.of(self.problem)), Recorder()
        programme = Programme(oracle)
        warm = WarmStart(incumbent=Incumbent(programme.width, part.beat))
        outcome = BranchAndBound(programme, self.effort, self.seed, recorder=recorder, warm=warm).run()
        bounding = outcome.unless_interrupted().bounding
        lower = bounding.table.least
        evidence = evidence_of(oracle, recorder, programme.rows, bounding.table.leaf, bounding.lower, lower)
        best = bounding.incumbent.ranked(self.keep)
        designs = [self._incumbent(oracle, part, plan, *bounding.feasible[plan]) for plan in best]
        report = PartSummary(outcome.counts, outcome.stopped, oracle.doubt, evidence)
        return PartProof(lower, tuple(sorted(designs)), {part.number: report}, self.keep)

    def _incumbent(
        self, oracle: AbstractModelOracle, part: PlanPart, plan: int, value: float, u: np.ndarray
    ) -> PartDesign:
        fields = {name: float(column[0]) for name, column in oracle.columns(np.array([plan])).items()}
        return PartDesign(value, part.number, tuple(fields.items()), tuple(u.tolist()))


@dataclass
class MergedParts:
    """Merged result of all parts, as one search leaves it, with the evidence of its bound."""

    outcome: Outcome
    evidence: Evidence | None
    doubt: str


def proven_in_parts(work: PartWork, oracle: AbstractModelOracle, runner: AbstractRunner, report: Report) -> MergedParts:
    """A first design here; then every part must beat it, wherever the runner says.

    The designs are evaluated again here, the bound is the least of all parts'. An interrupt or a lost part leaves the
    best design and no bound.

    Args:
        work: of a part.
        oracle: over all plans.
        runner: computes the parts.
        report: told after each part, in logs.
    """
    until = time.perf_counter() + work.effort.seconds
    search = BranchAndBound(Programme(oracle), work.effort, work.seed, report)
    search.incumbent()
    bounding, stopped = search.bounding, ""
    parts = [replace(part, beat=bounding.upper) for part in plan_parts(work.problem, SHARES * runner.count)]
    result = PartProof(math.inf, (), {}, work.keep)
    try:
        with closing(runner.results(work, parts)) as arriving:
            for one in arriving:
                result = result if one is None else merged(result, one)
                best = min([bounding.upper, *(design.value for design in result.designs)])
                report(Progress("parts", len(result.reports), len(parts), best, math.nan))
                if time.perf_counter() > until and len(result.reports) < len(parts):
                    stopped = f"stopped at its time limit of {work.effort.seconds:g} s"
                    break
    except KeyboardInterrupt:
        stopped = INTERRUPTED
    except CodesignError as error:
        stopped = str(error)
    complete = len(result.reports) == len(parts)
    _offer(search, oracle, result)
    bounding.table.raise_all(np.full(oracle.count, result.lower if complete else -math.inf))
    bounding.solved += result.count("solved")
    bounding.note()
    counts = {
        "plans": oracle.plan_count,
        "points": bounding.evaluated + result.count("points"),
        "solved": bounding.solved,
        "open": result.count("open"),
        "parts": len(parts),
    }
    outcome = Outcome(bounding, counts, bounding.elapsed, stopped or result.stopped)
    return MergedParts(outcome, _evidence(oracle, result) if complete else None, result.doubt)


def _offer(search: BranchAndBound, oracle: AbstractModelOracle, proof: PartProof) -> None:
    """Evaluate the designs of the parts here: what a worker says of their values is not relied on."""
    if not proof.designs:
        return
    plan = np.array([number_of(oracle, dict(design.plan)) for design in proof.designs])
    u = np.array([design.u for design in proof.designs]).reshape(len(plan), -1)
    listed = plan >= 0
    search.bounding.grow()
    search.bounding.look(plan[listed], u[listed])


def number_of(oracle: AbstractModelOracle, plan: dict[str, float]) -> int:
    """The number that an oracle has for a plan; -1 where it lists none."""
    if isinstance(oracle, GroupOracle):
        return oracle.tree.number_of(plan)
    columns = oracle.columns(np.arange(oracle.count))
    same = np.all([columns[name] == value for name, value in plan.items()], axis=0)
    return int(np.argmax(same)) if same.any() else -1


def _evidence(oracle: AbstractModelOracle, proof: PartProof) -> Evidence | None:
    parts = [proof.reports[number].evidence for number in sorted(proof.reports)]
    evidence = [one for one in parts if one is not None]
    if len(evidence) < len(parts) or not evidence:
        return None
    lists = oracle.problem.space.lists
    return joined_evidence(evidence, {name: np.unique(values) for name, values in lists.items()})
