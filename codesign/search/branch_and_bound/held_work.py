"""Searches of `search=integer` with some coordinates fixed, each in this process or wherever a runner puts it."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from ...core.errors import CodesignError
from ...executors import AbstractRunner
from ..base import Evidence, Problem, Progress, Report, proving, silent
from ..sent_problem import AbstractSentWork
from .branch_and_bound import BranchAndBound
from .certified import Certified
from .convexity import PROVEN, Verdict, check_convexity
from .effort import Outcome
from .evidence import Recorder, evidence_of
from .held import Held
from .model_oracle import Oracle
from .oracle import AbstractOracle, rows_of
from .programme import Programme
from .sent_outcome import SentOutcome
from .whole_tried import Real

Coordinates = tuple[tuple[int, float], ...]
"""(variable, coordinate) of what is held, in order."""


def optimum(
    oracle: Oracle, held: dict[int, float], proof: Certified, proven: bool, seed: int, report: Report = silent
) -> Real:
    """The optimum over all variables that are not held, with what its bound rests on."""
    free = free_of(oracle, held)
    verdict = PROVEN if proven else check_convexity(free, seed, proof.convexity_samples)
    told, recorder = proving(report, verdict.convex), Recorder()
    outcome = BranchAndBound(Programme(free), proof.effort, seed, told, recorder).run()
    bounding, lower = outcome.bounding, outcome.lower
    bounding.hush()
    rows, variables = bounding.programme.rows, free.variables
    kept = evidence_of(oracle, recorder, rows, bounding.table.leaf, bounding.lower, lower, variables)
    return Real(held, verdict, outcome, lower, kept)


def closed(
    oracle: AbstractOracle, held: dict[int, float], proof: Certified, seed: int, report: Report = silent
) -> Outcome:
    """Search with some coordinates fixed, without the proof."""
    return BranchAndBound(Programme(Held(oracle, held)), proof.effort, seed, report).run()


def free_of(oracle: Oracle, held: dict[int, float]) -> AbstractOracle:
    """An oracle over the variables that are not held."""
    return Held(oracle, held) if held else oracle


@dataclass(frozen=True)
class HeldPart:
    """One search: its number, what is held, and whether what its bound rests on is asked for."""

    number: int
    held: Coordinates
    bounded: bool

    def __str__(self) -> str:
        """Fixed values of the search, as text."""
        return "values at " + ", ".join(f"{at:.4g} of variable {i}" for i, at in self.held)


@dataclass(frozen=True)
class HeldFound:
    """Result of a search with fixed coordinates: outcome, points evaluated, verdict on its bound, and evidence."""

    part: HeldPart
    outcome: SentOutcome
    points: int
    verdict: Verdict = PROVEN
    lower: float = 0.0
    evidence: Evidence | None = None

    def real(self, oracle: Oracle) -> Real:
        """Result as if this process had found it."""
        held = dict(self.part.held)
        outcome = self.outcome.over(Programme(free_of(oracle, held)))
        return Real(held, self.verdict, outcome, self.lower, self.evidence)


class HeldWork(AbstractSentWork):
    """Runs searches of one problem with some coordinates held; the model is traced once in a process.

    Args:
        problem: whose plans and hardware are searched.
        proof: how each search is run; here, whatever runner it has.
        proven: whether the rows are known to be convex for everything that is held.
        seed: of each search.
    """

    def __init__(self, problem: Problem, proof: Certified, proven: bool, seed: int):
        self.problem, self.proof, self.proven, self.seed = problem, replace(proof, runner=None), proven, seed

    @functools.cached_property
    def oracle(self) -> Oracle:
        """Rows of every plan."""
        return Oracle(self.problem, rows_of(self.problem), self.proof.batch_size)

    def __call__(self, part: HeldPart) -> HeldFound:
        """One search from beginning to end: the same wherever it runs."""
        held, before = dict(part.held), self.oracle.evaluated
        if part.bounded:
            real = optimum(self.oracle, held, self.proof, self.proven, self.seed)
            known: dict[str, Any] = {"verdict": real.verdict, "lower": real.lower, "evidence": real.evidence}
            outcome = real.outcome
        else:
            known, outcome = {}, closed(self.oracle, held, self.proof, self.seed)
        return HeldFound(part, SentOutcome(outcome.unless_interrupted()), self.oracle.evaluated - before, **known)


def held_by_runner(
    runner: AbstractRunner, work: HeldWork, helds: Sequence[Mapping[int, float]], bounded: bool, report: Report
) -> Iterator[HeldFound]:
    """One search for each of these, in their order; those that came before an error, then the error.

    Raises:
        CodesignError: a search whose workers were lost.
        KeyboardInterrupt: somebody asked to end.
    """
    parts = [HeldPart(i, tuple(sorted(held.items())), bounded) for i, held in enumerate(helds)]
    result: dict[int, HeldFound] = {}
    why: BaseException | None = None
    try:
        with closing(runner.results(work, parts)) as arriving:
            for one in arriving:
                result |= {} if one is None else {one.part.number: one}
                best = min((each.outcome.state["incumbent"].upper for each in result.values()), default=float("inf"))
                report(Progress("values" if bounded else "integer", len(result), len(parts), best))
    except (CodesignError, KeyboardInterrupt) as error:
        why = error
    for number in sorted(result):
        yield result[number]
    if why is not None:
        raise why
