"""Solving plans over the hardware when good hardware is known already: within a box that moves and shrinks.

Source: [conn2000], trust regions; see docs/optimisation.md, section 7.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ..branch_and_bound import interior_point as interior
from ..branch_and_bound.bounding import REFERENCE_SHARPNESS
from ..branch_and_bound.cut_pool import CutPool
from ..branch_and_bound.incumbent import Incumbent
from ..branch_and_bound.inside_points import InsidePoints
from ..branch_and_bound.programme import Programme
from ..settings import AMORTISED, BRANCH_AND_BOUND


@dataclass
class TrustRegion:
    """Trust region of a plan's solution: the best point seen, its rows, how far the box reaches from it."""

    centre: Float[np.ndarray, " variables"]
    rows: Float[np.ndarray, " rows"]
    reach: float


class Settling:
    """Plans solved within boxes of their own; what is known of a box bounds it alone, and proves nothing.

    Attributes:
        incumbent: the best designs.
        inside: what each plan's goal is at least within its box, when last solved; to choose plans by.
        seen: which plans were solved.
        edges: where each plan's cuts are lowest, in its box.
    """

    def __init__(self, programme: Programme, gap: float):
        self.programme, self.gap, self.width = programme, gap, programme.width
        self.incumbent, self.cuts = Incumbent(self.width), CutPool(len(programme.rows), self.width + 1)
        self.inside = np.full(programme.oracle.count, -np.inf)
        self.seen = np.zeros(programme.oracle.count, dtype=bool)
        self.edges: dict[int, np.ndarray] = {}
        self._boxes: dict[int, TrustRegion] = {}
        self._points = InsidePoints()

    @property
    def cut(self) -> float:
        """Plans that are worth no less in their boxes need no more work."""
        return self.incumbent.upper - self.gap

    def start(self, plan: Int[np.ndarray, " k"], u: Float[np.ndarray, "k variables"]) -> None:
        """Begin with plans, each at its own hardware."""
        exact = self._learn(plan, u, REFERENCE_SHARPNESS)
        for lane, p in enumerate(plan.tolist()):
            self._boxes[p] = TrustRegion(u[lane], exact[lane], AMORTISED.reach)

    def refine(self, plan: Int[np.ndarray, " k"]) -> None:
        """One round: solve the programmes of these plans in their boxes, evaluate where those say, move the boxes."""
        for batch in self.cuts.batches(plan):
            self._refine(batch, self.cut)

    def _learn(
        self,
        plan: np.ndarray,
        u: np.ndarray,
        sharpness: np.ndarray | float,
        prices: np.ndarray | float = BRANCH_AND_BOUND.dear_enough,
    ) -> np.ndarray:
        exact, affine = self.programme.tangents(plan, u, sharpness)
        self.incumbent.notice(plan, u, exact, self.programme.oracle.single(plan))
        self.cuts.keep(plan, exact, affine, prices)
        return exact

    def _refine(self, plan: np.ndarray, enough: float) -> None:
        affine, boxes = self.cuts.gathered(plan)[0], [self._boxes[p] for p in plan.tolist()]
        centre, reach = np.array([box.centre for box in boxes]), np.array([[box.reach] for box in boxes])
        low, high = np.maximum(centre - reach, 0.0), np.minimum(centre + reach, 1.0)
        affine[..., 0] += np.einsum("ltrv,lv->ltr", affine[..., 1:], low)
        affine[..., 1:] *= (high - low)[:, None, None]
        known, least = self.cuts.soft_of(plan), self.inside[plan]
        gap = np.clip(np.where(np.isfinite(least), known - least, AMORTISED.most_gap), self.gap, AMORTISED.most_gap)
        price = np.full(len(plan), interior.ELASTIC)
        solved = interior.solve(affine, 0.3 * gap, np.clip(0.03 * gap, *AMORTISED.tolerance), enough, price)
        self.inside[plan], self.seen[plan] = solved.lower, True
        weights = np.array([each.sum(axis=0) for each in solved.weights])
        points = np.concatenate([low + (high - low) * u for u in (solved.central, solved.edge)])
        both, sharpness = np.concatenate([plan, plan]), np.full(2 * len(plan), 3.0 / self.gap)
        exact = self._learn(both, points, sharpness, np.concatenate([weights, weights]))
        lane, pulled = self._points.pulled(plan, points, exact, self.incumbent.upper)
        if len(lane):
            self._learn(plan[lane], pulled, sharpness[lane])
        self._move(plan, points, exact, weights)

    def _move(self, plan: np.ndarray, points: np.ndarray, exact: np.ndarray, weights: np.ndarray) -> None:
        """Centre every box at the best point seen; shrink those where that is not new, or not at a side."""
        for lane, p in enumerate(plan.tolist()):
            price, box = 2 * weights[lane][1:] + AMORTISED.least_price, self._boxes[p]
            rows = np.stack([box.rows, exact[lane], exact[lane + len(plan)]])
            best = int(np.argmin(rows[:, 0] + (np.maximum(rows[:, 1:], 0.0) * price).sum(axis=1)))
            self.edges[p] = points[lane + len(plan)]
            moved = points[lane + (best - 1) * len(plan)] if best else box.centre
            stayed = np.abs(moved - box.centre).max() < 0.99 * box.reach
            self._boxes[p] = TrustRegion(moved, rows[best], box.reach * AMORTISED.shrink if stayed else box.reach)
