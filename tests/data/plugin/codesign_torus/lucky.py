"""A search that prices a few random plans in the middle of the box."""

from dataclasses import dataclass

import numpy as np

from codesign.search import AbstractSearch, Problem, Report, Trace, silent


@dataclass(frozen=True)
class Lucky(AbstractSearch):
    """So many random legal plans, each with the hardware in the middle of its range; proves nothing.

    Args:
        plans: how many.
    """

    plans: int = 16

    def run(self, problem: Problem, seed: int, report: Report = silent) -> Trace:
        """Draw them; they are priced when the trace is."""
        table = problem.space.legal_sample(problem.scenario, self.plans, seed)
        points = {name: table[:, j] for j, name in enumerate(problem.space.plan)}
        middle = {name: (v.low * v.high) ** 0.5 for name, v in problem.space.hardware.items()}
        points |= {name: np.full(len(table), value) for name, value in middle.items()}
        return Trace(points, ["lucky"] * len(table), {"points": len(table)}, {}, "random plans, no proof")
