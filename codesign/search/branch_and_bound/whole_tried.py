"""Results of `search=integer` for each fixed combination: the relaxed optimum and the integers tried around it."""

from dataclasses import dataclass

import numpy as np

from ..base import Evidence
from .convexity import Verdict
from .effort import Outcome


@dataclass(frozen=True)
class Real:
    """Relaxed optimum with some coordinates held, no number integer; `evidence` is what its bound `lower` rests on."""

    held: dict[int, float]
    verdict: Verdict
    outcome: Outcome
    lower: float
    evidence: Evidence | None

    @property
    def u(self) -> np.ndarray:
        """Free coordinates of its best design."""
        return self.outcome.bounding.u


@dataclass(frozen=True)
class Tried:
    """Real optima, and what became of the whole numbers around them; `complete` where every combination has its own.

    ended: why not everything was searched; empty where it was.
    """

    real: list[Real]
    tried: list[tuple[dict[int, float], Outcome]]
    complete: bool
    ended: str

    @property
    def outcomes(self) -> list[Outcome]:
        """Each once."""
        every = [*(one.outcome for one in self.real), *(outcome for _, outcome in self.tried)]
        return list({id(outcome): outcome for outcome in every}.values())

    @property
    def lower(self) -> float:
        """Bound on every design, whole or not, of the combinations that were searched."""
        return min(one.lower for one in self.real)

    @property
    def stopped(self) -> str:
        """Reason of the first outcome that ended early; empty if none did."""
        return next((outcome.stopped for outcome in self.outcomes if outcome.stopped), "")
