"""Searches of a mix that concern one workload alone, by whatever process a runner asks: what each leaves is the same.

    on hardware of its own    every workload's best, certified
    under duals               its least leaned goal, in each round of the proof

What exchanges plans and what chooses duals needs all workloads at once and stays in one process.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np

from ...executors import AbstractRunner
from ...uncertainty import Cases
from ..base import Problem
from ..branch_and_bound.branch_and_bound import BranchAndBound
from ..branch_and_bound.effort import Effort, Outcome
from ..branch_and_bound.evidence import Recorder
from ..branch_and_bound.model_oracle import Oracle
from ..branch_and_bound.programme import Programme
from ..branch_and_bound.sent_outcome import SentOutcome
from ..branch_and_bound.warm_start import COLD, WarmStart
from ..sent_problem import AbstractSentProblems
from .joint import Member
from .leaned_oracle import LeanedOracle
from .oracles import Oracles, judged, oracle_of


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
    effort: Effort
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
        return replace(programme, oracle=LeanedOracle(programme.oracle, self.weight, self.slope))

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

    def __call__(self, asked: WorkloadSearch) -> tuple[str, SentOutcome, int]:
        """(workload, what its search left, points evaluated)."""
        if asked.name not in self.programmes:
            oracle, allowed = oracle_of(asked.name, self.problems, self.block)
            rows = judged(oracle, self.cases, self.over_cases, self.tail, self.seed)
            self.programmes[asked.name] = oracle, Programme(rows, allowed=allowed)
        oracle, programme = self.programmes[asked.name]
        before = oracle.evaluated
        outcome = asked.run(programme, self.seed).unless_interrupted()
        return asked.name, SentOutcome(outcome), oracle.evaluated - before


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

    def run(self, asked: Callable[[int, float], WorkloadSearch], spread: bool = True) -> Iterator[Outcome]:
        """Run the search for each workload, and yield the outcomes in their order; here unless `spread`.

        Args:
            asked: (number of the workload, share of the time that is left) -> its search, just before it begins.
            spread: whether a runner is asked, if there is one.

        Raises:
            CodesignError: a search whose workers were lost.
        """
        count = len(self.members)
        if self.runner is None or self.work is None or not spread:
            for k, member in enumerate(self.members):
                yield asked(k, 1 / (count - k)).run(member.programme, self.seed)
            return
        every = [asked(k, 1.0) for k in range(count)]
        result: dict[str, tuple[SentOutcome, int]] = {}
        with closing(self.runner.results(self.work, every)) as arriving:
            for one in arriving:
                result |= {} if one is None else {one[0]: one[1:]}
        for member, search in zip(self.members, every, strict=True):
            outcome, points = result[search.name]
            self.oracles[member.name][0].evaluated += points
            yield outcome.over(search.of(member.programme))
