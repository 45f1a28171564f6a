"""Programmes of a front at fixed levels, by whatever process a runner asks, each with what proves it.

A level's bound is a minimum over plans, and what bounds a plan is a set of weighted tangents. Sets are put together by
their union, so what comes first, last or twice makes no difference: `Pool.back` derives all bounds from the whole.
"""

import itertools
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from ...core.errors import CodesignError
from ...executors import AbstractRunner
from ..base import Problem
from ..branch_and_bound.effort import INTERRUPTED
from ..branch_and_bound.oracle import GOAL
from ..sent_problem import AbstractSentWork
from .dual_pool import Notes, Statement
from .epsilon_constraint import Cell, FrontDesign, FrontWalk
from .parametric_sequence import ParametricSequence


@dataclass(frozen=True)
class FrontLevel:
    """Level of a front: upper limits of the other metrics, (row, log) of each; number: among all levels."""

    number: int
    allowed: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        """Allowed levels of the metrics, as text."""
        return "level " + ", ".join(f"{name} {np.exp(most):.4g}" for name, most in self.allowed)


@dataclass(frozen=True)
class LevelProof:
    """The best design at a level (plan -1: there is none), the bound there, why it ended early, and what proves it."""

    level: FrontLevel
    plan: int
    u: np.ndarray
    lower: float
    stopped: str
    notes: Notes
    points: int


class LevelWork(AbstractSentWork):
    """Solves programmes of one front, here or in another process; plans are numbered as they are listed.

    Args:
        problem: whose front it is.
        sequence_of: makes what solves them; once in a process.
    """

    def __init__(self, problem: Problem, sequence_of: Callable[[Problem], ParametricSequence]):
        self.problem, self.sequence_of = problem, sequence_of

    def __call__(self, level: FrontLevel) -> LevelProof:
        """One programme, whatever was solved before in this process."""
        sequence, allowed = self.sequence_of(self.problem), dict(level.allowed)
        outcome = sequence.solve(GOAL, allowed).unless_interrupted()
        bounding, oracle = outcome.bounding, sequence.oracle.inner
        backed = sequence.pool.back([Statement(GOAL, allowed, outcome.lower)], oracle)
        notes = sequence.pool.notes(backed.used)
        return LevelProof(
            level, bounding.plan, bounding.u.copy(), outcome.lower, outcome.stopped, notes, oracle.evaluated
        )


def walked_by(runner: AbstractRunner, walk: FrontWalk, work: LevelWork) -> str:
    """Ends here, levels that are evenly spread over the runner; says why where something is missing."""
    stopped = ""
    try:
        if not walk.ends():
            return f"stopped at its time limit of {walk.sweep.effort.seconds:g} s"
        ticks = {row: np.linspace(walk.least[row], walk.most[row], walk.levels + 2) for row in walk.rows[1:]}
        every = itertools.product(*(values[1:-1].tolist() for values in ticks.values()))
        levels = [FrontLevel(i, tuple(zip(ticks, values, strict=True))) for i, values in enumerate(every)]
        walk.cells = [
            Cell(np.array([low for low, _ in ends]), np.array([high for _, high in ends]))
            for ends in itertools.product(*(list(itertools.pairwise(values)) for values in ticks.values()))
        ]
        proofs: dict[int, LevelProof] = {}
        try:
            with closing(runner.results(work, levels)) as arriving:
                for proof in arriving:
                    proofs |= {} if proof is None else {proof.level.number: proof}
                    walk.told("levels", len(proofs), len(levels))
        except CodesignError as error:
            stopped = str(error)
        for number in sorted(proofs):
            take(walk, proofs[number])
        return stopped or next((one.stopped for one in proofs.values() if one.stopped), "")
    except KeyboardInterrupt:
        return INTERRUPTED


def take(walk: FrontWalk, proof: LevelProof) -> None:
    """A level's design, evaluated again here, and its notes."""
    allowed = dict(proof.level.allowed)
    walk.sweep.pool.absorb(proof.notes)
    walk.done += 1
    if proof.plan < 0:
        walk.impossible += [allowed] if not proof.stopped else []
        return
    values, holds = walk.metrics_of(np.array([proof.plan]), proof.u[None])
    if holds[0]:
        walk.found.append(FrontDesign(proof.plan, proof.u, values[0], proof.lower, allowed, not proof.stopped))
