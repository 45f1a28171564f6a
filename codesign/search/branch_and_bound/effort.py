"""Limits of a search over plans, and its result."""

from dataclasses import dataclass

from .bounding import Bounding

INTERRUPTED = "interrupted"  # how a closing that was ended early says so


@dataclass(frozen=True)
class Effort:
    """Stopping criteria and batch sizes of a search.

    Args:
        gap: log-gap at which it stops: 1e-3 proves the optimum to 0.1 %.
        seconds: limit of its time; what is left open by then is the gap of the result.
        batch: plans closed side by side.
        sample: plans of which the first incumbent is the best.
        chunk: plans bounded in one go.
        references: plans solved to start others from.
    """

    gap: float = 1e-3
    seconds: float = 600.0
    batch: int = 512
    sample: int = 4096
    chunk: int = 16384
    references: int = 256


@dataclass
class Outcome:
    """State of a search when it ends, or later: its bounding may have been worked on since."""

    bounding: Bounding
    counts: dict[str, int]
    seconds: float
    stopped: str = ""

    def unless_interrupted(self) -> "Outcome":
        """Itself.

        Raises:
            KeyboardInterrupt: somebody ended it early, and wants no other search to begin.
        """
        if self.stopped == INTERRUPTED:
            raise KeyboardInterrupt
        return self

    @property
    def upper(self) -> float:
        """Log of the best design's goal; inf where no design was found."""
        return self.bounding.upper

    @property
    def lower(self) -> float:
        """Log of a lower bound on the goal of every design; inf where none can be feasible."""
        return self.bounding.bound

    @property
    def gap(self) -> float:
        """Gap of the best design to the optimum, at most, in the log of the goal."""
        return self.upper - self.lower
