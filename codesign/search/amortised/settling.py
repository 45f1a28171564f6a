"""Solving plans over the hardware when good hardware is known already: within a box that moves and shrinks.

Source: [conn2000], trust regions; see docs/optimisation.md, section 7.
"""

import numpy as np
from jaxtyping import Float, Int

from ..branch_and_bound import interior_point as interior
from ..branch_and_bound.ledger import REFERENCE_SHARPNESS, Ledger, Programme

REACH, SHRINK = 0.15, 0.6  # half the first box's width; what is left of it where a step stayed inside or did not help
LEAST_PRICE = 1.0  # of a unit of violation, beyond twice its multiplier, when points are compared
MOST_GAP = 0.3  # taken for the gap of a plan at its first box
TOLERANCE = 1e-5, 5e-3  # of programmes


class Settling(Ledger):
    """A ledger whose bounds hold within the box of each plan alone: enough to choose plans by, no proof."""

    def __init__(self, programme: Programme, gap: float):
        super().__init__(programme, gap)
        self.centre: dict[int, np.ndarray] = {}
        self.rows: dict[int, np.ndarray] = {}  # at the centre
        self.reach: dict[int, float] = {}

    def start(self, plan: Int[np.ndarray, " k"], u: Float[np.ndarray, "k variables"]) -> None:
        """Begin with plans, each at its own hardware."""
        exact, affine = self.evaluate(plan, u, REFERENCE_SHARPNESS)
        self.keep(plan, exact, affine)
        for lane, p in enumerate(plan.tolist()):
            self.centre[p], self.rows[p], self.reach[p] = u[lane], exact[lane], REACH

    def _refine(self, plan: np.ndarray, enough: float) -> None:
        affine, names = self.gathered(plan), plan.tolist()
        centre, reach = np.array([self.centre[p] for p in names]), np.array([[self.reach[p]] for p in names])
        low, high = np.maximum(centre - reach, 0.0), np.minimum(centre + reach, 1.0)
        affine[..., 0] += np.einsum("ltrv,lv->ltr", affine[..., 1:], low)
        affine[..., 1:] *= (high - low)[:, None, None]
        known, bound = np.array([self.soft[p] for p in names]), self.lower[plan]
        gap = np.clip(np.where(np.isfinite(bound), known - bound, MOST_GAP), self.gap, MOST_GAP)
        price = np.array([self.price.get(p, interior.ELASTIC) for p in names])
        solved = interior.solve(affine, 0.3 * gap, np.clip(0.03 * gap, *TOLERANCE), enough, price)
        self.lower[plan] = solved.lower
        self.tried[plan] += 1
        self.solved += len(plan)
        for lane, p in enumerate(names):
            self.weights[p] = solved.weights[lane].sum(axis=0)
        central, edge = (low + (high - low) * u for u in (solved.central, solved.edge))
        sharpness = np.full(2 * len(plan), 3.0 / self.gap)
        both, points = np.concatenate([plan, plan]), np.concatenate([central, edge])
        exact, learnt = self.evaluate(both, points, sharpness)
        self.keep(both, exact, learnt, np.array([self.weights[p] for p in both.tolist()]))
        self._repair(plan, points, exact, sharpness[: len(plan)])
        self._move(plan, points, exact)

    def _move(self, plan: np.ndarray, points: np.ndarray, exact: np.ndarray) -> None:
        """Centre every box at the best point seen; shrink those where that is not new, or not at a side."""
        for lane, p in enumerate(plan.tolist()):
            price = 2 * self.weights[p][1:] + LEAST_PRICE
            rows = np.stack([self.rows[p], exact[lane], exact[lane + len(plan)]])
            best = int(np.argmin(rows[:, 0] + (np.maximum(rows[:, 1:], 0.0) * price).sum(axis=1)))
            self.solution[p] = points[lane + len(plan)]
            moved = points[lane + (best - 1) * len(plan)] if best else self.centre[p]
            if np.abs(moved - self.centre[p]).max() < 0.99 * self.reach[p]:
                self.reach[p] *= SHRINK
            self.centre[p], self.rows[p] = moved, rows[best]
