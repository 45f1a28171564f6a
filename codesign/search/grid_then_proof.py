"""`search=grid_then_proof`: several searches of one problem, one after the other, their designs in one frame."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import ConfigError
from .base import AbstractSearch, Problem, Report, Trace, silent


@dataclass(frozen=True)
class Chain(AbstractSearch):
    """Searches one after the other: an exhaustive grid shows the whole field, a certified search proves the best.

    Args:
        searches: in their order; the last one makes the claim.
    """

    searches: Sequence[AbstractSearch]

    def __post_init__(self) -> None:
        """At least one search."""
        if not self.searches:
            raise ConfigError("search.searches = [] must list at least one search")

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Run all; an interrupted one leaves what it found, and the next one starts."""
        return joined([search.run(problem, seed, report) for search in self.searches])


def joined(traces: Sequence[Trace]) -> Trace:
    """One trace with the designs of all; claim and certificate are those of the last, points evaluated are summed."""
    last = traces[-1]
    points = {name: np.concatenate([trace.points[name] for trace in traces]) for name in last.points}
    together = Trace(points, [method for trace in traces for method in trace.method])
    for trace in traces:
        evaluated = together.counts.get("points", 0) + trace.counts.get("points", 0)
        together.counts |= trace.counts | {"points": evaluated}
        together.seconds |= trace.seconds
        together.beside |= trace.beside
        together.tables |= trace.tables
    together.claim, together.certificate = last.claim, last.certificate
    return together
