"""Searches held against each other on one problem at equal wall time, all fed the same compiled evaluator."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codesign import Blackbox, Problem
from codesign.search import CmaEs, DifferentialEvolution, Nsga2, Random, Tpe
from codesign.search.blackbox import AbstractBlackboxOptimizer, Box, Evaluator, Trial
from codesign.search.branch_and_bound import BranchAndBound, Oracle, Outcome, Programme, SearchEffort, rows_of

__all__ = ["CERTIFIED", "NEAR", "Proven", "compare", "line", "proven"]

NEAR = 0.01  # relative distance from the optimum that counts as a hit
PEERS = (DifferentialEvolution(), CmaEs(), Nsga2(), Tpe(), Random())
CERTIFIED = "certified"


@dataclass(frozen=True)
class Proven:
    """The certified search's answer: what all others are measured by."""

    outcome: Outcome

    @property
    def row(self) -> dict[str, Any]:
        """Its own line of the table."""
        history = [(seconds, upper) for seconds, upper, _ in self.outcome.bounding.history]
        row = line(CERTIFIED, self.outcome.upper, history, self.outcome.upper, self.outcome.counts["points"])
        return row | {"seconds": self.outcome.seconds, "proven_gap": float(np.expm1(self.outcome.gap))}


def proven(problem: Problem, seed: int, gap: float = 1e-3, seconds: float = 120.0) -> Proven:
    """Solve with a proof; compiled before the clock starts."""
    oracle = Oracle(problem, rows_of(problem))
    oracle.tangents(np.zeros(1, dtype=int), np.full((1, len(oracle.variables)), 0.5), 50.0)
    return Proven(
        BranchAndBound(Programme(oracle), SearchEffort(gap=float(np.log1p(gap)), seconds=seconds), seed).run()
    )


def line(
    method: str, best: float, history: Iterable[tuple[float, float]], optimum: float, points: int
) -> dict[str, Any]:
    """One run: how far from the optimum it ended (relative), whether that is a hit, and when it became one."""
    within = next((seconds for seconds, value in history if value <= optimum + np.log1p(NEAR)), float("nan"))
    gap = float(np.expm1(best - optimum))
    return {
        "method": method, "gap": gap, "hit": bool(gap <= NEAR), "best": float(np.exp(best)),
        "seconds_to_hit": float(within), "points": points,
    }  # fmt: skip


def compare(
    problem: Problem,
    seconds: float,
    seeds: Sequence[int] = (0,),
    peers: Sequence[AbstractBlackboxOptimizer] = PEERS,
    told: Callable[[dict[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:
    """The certified search once for each seed, then every peer with `seconds` of wall time for each seed.

    Gaps are to the certified optimum; a peer may lie below it by as much as its proof leaves open.
    """
    rows: list[dict[str, Any]] = []

    def note(row: dict[str, Any]) -> None:
        rows.append(row)
        told(row)

    answers = [proven(problem, seed) for seed in seeds]
    optimum = min(answer.outcome.upper for answer in answers)
    for seed, answer in zip(seeds, answers, strict=True):
        note(answer.row | {"seed": seed, "gap": float(np.expm1(answer.outcome.upper - optimum))})
    evaluator = Evaluator(Box(problem), rows_of(problem))
    for peer in peers:
        for seed in seeds:
            trial = Trial(evaluator, seconds, float("inf"))
            Blackbox(peer, seconds=seconds).ask(trial, seed)
            row = line(peer.name, trial.best, trial.history, optimum, trial.count)
            note(row | {"seed": seed, "seconds": trial.elapsed, "proven_gap": float("nan")})
    return rows
