"""`search=grid_then_proof`: an exhaustive grid shows the whole field, a certified search proves the best of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..executors import AbstractRunner
from .base import AbstractSearch, Problem, Report, Trace, silent
from .branch_and_bound.certified import Certified
from .exhaustive.grid import Grid


@dataclass(frozen=True)
class GridThenProof(AbstractSearch):
    """Two searches of one problem, one after the other, their designs in one frame.

    Args:
        grid: for the field: the front of time against cost, the best by every value, how much is feasible.
        proof: for the claim: the best design and how far from the optimum it may be.
        resume: run folder of an interrupted search of the same study whose grid is continued.
    """

    grid: Grid = field(default_factory=Grid)
    proof: Certified = field(default_factory=Certified)
    resume: str = ""

    @property
    def _grid(self) -> Grid:
        return replace(self.grid, resume=self.resume or self.grid.resume)

    def over(self, runner: AbstractRunner) -> "GridThenProof":
        """The grid in chunks, then the proof in parts of the plans."""
        return replace(self, grid=self.grid.over(runner), proof=self.proof.over(runner))

    def refuse(self, problem: Problem) -> None:
        """Refuse a problem that either of the two refuses."""
        self._grid.refuse(problem)
        self.proof.refuse(problem)

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Run both; an interrupted grid leaves what it found, and so does a proof that has found nothing yet.

        Raises:
            ConfigError: what cannot be proven is refused before the grid.
        """
        self.refuse(problem)
        field = self._grid.run(problem, seed, report)
        try:
            proof = self.proof.run(problem, seed, report)
        except KeyboardInterrupt:
            field.claim = f"interrupted before the proof began; {field.claim}"
            return field
        return joined([field, proof])

    @classmethod
    def example(cls, problem: Problem) -> "GridThenProof":
        """A short proof."""
        return cls(Grid.example(problem), Certified(gap=5e-3, convexity_samples=64, batch_size=64, explain=False))


def joined(traces: Sequence[Trace]) -> Trace:
    """One trace with the designs of all; claim, certificate, evidence are the last's, points are summed."""
    last = traces[-1]
    points = {name: np.concatenate([trace.points[name] for trace in traces]) for name in last.points}
    together = Trace(points, [method for trace in traces for method in trace.method])
    for trace in traces:
        evaluated = together.counts.get("points", 0) + trace.counts.get("points", 0)
        together.counts |= trace.counts | {"points": evaluated}
        together.seconds |= trace.seconds
        together.tables |= trace.tables
    together.claim, together.certificate, together.evidence = last.claim, last.certificate, last.evidence
    return together
