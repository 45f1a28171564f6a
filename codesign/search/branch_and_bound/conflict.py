"""Relaxation of infeasible studies: by how much constraints must give, alone or together, every number with its proof.

A constraint that gives becomes what is minimised, under the others. Where none can give enough alone, first the largest
of all is minimised, then one after the other under what the others have given: that ends where none can be tightened.
"""

import math
import time
from dataclasses import replace

import numpy as np

from ..base import Progress, Report, silent
from ..certificate import MustGive
from .branch_and_bound import BranchAndBound
from .effort import Effort, Outcome
from .oracle import AbstractOracle, AbstractRelay, Tangents
from .programme import Programme

LARGEST = "largest"
SLACK = 1e-6  # log by which a constraint is allowed more than a design was found with


class Largest(AbstractRelay):
    """One row more: the largest of some.

    Args:
        inner: has these rows.
        rows: their names.
    """

    def __init__(self, inner: AbstractOracle, rows: tuple[str, ...]):
        super().__init__(inner)
        self.names = (*inner.names, LARGEST)
        self._columns = np.array([inner.names.index(row) for row in rows])

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """A tangent of the largest row there lies below the largest everywhere."""
        result = self.inner.tangents(plan, u, sharpness)
        self.evaluated += len(plan)
        at = self._columns[result.exact[:, self._columns].argmax(axis=1)]
        lane = np.arange(len(plan))
        exact = np.concatenate([result.exact, result.exact[lane, at][:, None]], axis=1)
        return Tangents(exact, np.concatenate([result.affine, result.affine[lane, at][:, None]], axis=1), result.broken)


class Conflict:
    """Constraints that no design keeps together.

    Args:
        oracle: has their rows.
        rows: their names.
        effort: of each programme; its seconds are those of all together.
        seed: of the samples.
        report: told after each programme.

    Attributes:
        proof: of each constraint, in this order.
        design: plan and coordinates of the design that asks for least.
    """

    def __init__(
        self, oracle: AbstractOracle, rows: tuple[str, ...], effort: Effort, seed: int, report: Report = silent
    ):
        self.oracle, self.rows, self.effort, self.seed, self.report = oracle, rows, effort, seed, report
        self.solved, self.planned = 0, len(rows)
        self.ends = time.perf_counter() + effort.seconds
        self.proof: list[MustGive] = []
        self.design: tuple[np.ndarray, np.ndarray] | None = None

    def explain(self) -> "Conflict":
        """Fill `proof` and `design`; nothing of both where that was interrupted."""
        try:
            self._alone()
            if self.design is None:
                self._together()
        except KeyboardInterrupt:  # half a list would say that the rest cannot help
            self.proof, self.design = [], None
        return self

    def _least(self, oracle: AbstractOracle, goal: str, others: tuple[str, ...], given: dict[str, float]) -> Outcome:
        effort = replace(self.effort, seconds=max(self.ends - time.perf_counter(), 0.1))
        outcome = BranchAndBound(Programme(oracle, goal, others, given), effort, self.seed).run().unless_interrupted()
        self.solved += 1
        self.report(Progress("what must give", self.solved, max(self.solved, self.planned), math.nan))
        return outcome

    def _take(self, outcome: Outcome) -> None:
        self.design = np.array([outcome.bounding.plan]), outcome.bounding.u[None]

    def _others(self, name: str) -> tuple[str, ...]:
        return tuple(other for other in self.rows if other != name)

    def _alone(self) -> None:
        best = np.inf
        for name in self.rows:
            least = self._least(self.oracle, name, self._others(name), {})
            alone = math.isfinite(least.upper)
            if least.upper < best:
                best = least.upper
                self._take(least)
            factor = math.exp(least.upper) if alone else None
            self.proof.append(MustGive(name, alone, factor, _factor(least.lower)))

    def _together(self) -> None:
        asked = tuple(name for name in self.rows if not name.startswith("usage."))
        self.planned += len(self.rows) + 1 + len(asked)
        alone = [self._least(self.oracle, row.constraint, (), {}).lower for row in self.proof]
        self.proof = [replace(row, needed=_factor(max(low, 0.0))) for row, low in zip(self.proof, alone, strict=True)]
        must = tuple(row.constraint for row in self.proof if (row.needed or math.inf) > 1.0)
        for giving in dict.fromkeys((must, asked, self.rows)):  # limits are easier given than hardware
            kept = tuple(name for name in self.rows if name not in giving)
            if giving:
                first = self._least(Largest(self.oracle, giving), LARGEST, kept, {})
                if math.isfinite(first.upper):
                    self._tighten(giving, first)
                    return

    def _tighten(self, giving: tuple[str, ...], first: Outcome) -> None:
        """One constraint after the other under what the others have given."""
        given = dict.fromkeys(giving, max(first.upper, 0.0) + SLACK)
        self._take(first)
        for name in giving:
            outcome = self._least(self.oracle, name, self._others(name), {k: v for k, v in given.items() if k != name})
            if math.isfinite(outcome.upper) and outcome.upper < given[name]:
                given[name] = max(outcome.upper + SLACK, 0.0)
                self._take(outcome)
        self.proof = [replace(row, together=math.exp(given.get(row.constraint, 0.0))) for row in self.proof]


def _factor(log: float) -> float | None:
    return math.exp(log) if math.isfinite(log) else None
