"""Proofs of parts of the plans, by whatever process a runner asks, and what they come to together."""

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from ...core.errors import CodesignError
from ...executors import AbstractRunner
from ..base import Evidence, Problem, Progress, Report
from ..sent_problem import AbstractSentWork
from .branch_and_bound import BranchAndBound
from .effort import INTERRUPTED, Effort, Outcome
from .evidence import Recorder, evidence_of
from .incumbent import Incumbent
from .model_oracle import AbstractModelOracle
from .node_relaxation import GroupOracle, oracle_for
from .oracle import rows_of
from .plan_parts import FoundInPart, PartProof, PartTold, PlanPart, joined_evidence, merged, plan_parts
from .programme import Programme
from .warm_start import WarmStart

OracleMaker = Callable[[Problem], AbstractModelOracle]
"""Makes the oracle over all legal plans of a problem, in whatever process it is asked for."""

SHARES = 4  # parts of each worker at the least, so that none waits long for the last


@dataclass(frozen=True)
class RowsOfProblem:
    """The rows of the problem itself, plans in groups where they are many."""

    block: int
    seed: int

    def __call__(self, problem: Problem) -> AbstractModelOracle:
        """See `oracle_for`."""
        return oracle_for(problem, rows_of(problem), self.block, self.seed)


class PartWork(AbstractSentWork):
    """Proves parts of one problem, here or in another process."""

    def __init__(self, problem: Problem, maker: OracleMaker, effort: Effort, seed: int, keep: int):
        self.problem, self.maker, self.effort, self.seed, self.keep = problem, maker, effort, seed, keep

    def __call__(self, part: PlanPart) -> PartProof:
        """The best designs of a part, and what none of its plans is below."""
        oracle, recorder = self.maker(part.of(self.problem)), Recorder()
        programme = Programme(oracle)
        warm = WarmStart(incumbent=Incumbent(programme.width, part.beat))
        outcome = BranchAndBound(programme, self.effort, self.seed, recorder=recorder, warm=warm).run()
        bounding = outcome.unless_interrupted().bounding
        lower = bounding.table.least
        kept = evidence_of(oracle, recorder, programme.rows, bounding.table.leaf, bounding.lower, lower)
        best = bounding.incumbent.ranked(self.keep)
        designs = [self._found(oracle, part, plan, *bounding.feasible[plan]) for plan in best]
        told = PartTold(outcome.counts, outcome.stopped, oracle.doubt, kept)
        return PartProof(lower, tuple(sorted(designs)), {part.number: told}, self.keep)

    def _found(
        self, oracle: AbstractModelOracle, part: PlanPart, plan: int, value: float, u: np.ndarray
    ) -> FoundInPart:
        fields = {name: float(column[0]) for name, column in oracle.columns(np.array([plan])).items()}
        return FoundInPart(value, part.number, tuple(fields.items()), tuple(u.tolist()))


@dataclass
class ProvenInParts:
    """Merged result of all parts, as one search leaves it, with the evidence of its bound."""

    outcome: Outcome
    evidence: Evidence | None
    doubt: str


def proven_in_parts(
    work: PartWork, oracle: AbstractModelOracle, runner: AbstractRunner, report: Report
) -> ProvenInParts:
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
                report(Progress("parts", len(result.told), len(parts), best, math.nan))
                if time.perf_counter() > until and len(result.told) < len(parts):
                    stopped = f"stopped at its time limit of {work.effort.seconds:g} s"
                    break
    except KeyboardInterrupt:
        stopped = INTERRUPTED
    except CodesignError as error:
        stopped = str(error)
    whole = len(result.told) == len(parts)
    _offer(search, oracle, result)
    bounding.table.raise_all(np.full(oracle.count, result.lower if whole else -math.inf))
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
    return ProvenInParts(outcome, _evidence(oracle, result) if whole else None, result.doubt)


def _offer(search: BranchAndBound, oracle: AbstractModelOracle, found: PartProof) -> None:
    """Evaluate the designs of the parts here: what a worker says of their values is not relied on."""
    if not found.designs:
        return
    plan = np.array([number_of(oracle, dict(design.plan)) for design in found.designs])
    u = np.array([design.u for design in found.designs]).reshape(len(plan), -1)
    known = plan >= 0
    search.bounding.grow()
    search.bounding.look(plan[known], u[known])


def number_of(oracle: AbstractModelOracle, plan: dict[str, float]) -> int:
    """The number that an oracle has for a plan; -1 where it lists none."""
    if isinstance(oracle, GroupOracle):
        return oracle.tree.number_of(plan)
    columns = oracle.columns(np.arange(oracle.count))
    same = np.all([columns[name] == value for name, value in plan.items()], axis=0)
    return int(np.argmax(same)) if same.any() else -1


def _evidence(oracle: AbstractModelOracle, found: PartProof) -> Evidence | None:
    parts = [found.told[number].evidence for number in sorted(found.told)]
    kept = [one for one in parts if one is not None]
    if len(kept) < len(parts) or not kept:
        return None
    lists = oracle.problem.space.lists
    return joined_evidence(kept, {name: np.unique(values) for name, values in lists.items()})
