"""Latest solution of each plan's programme: where its cuts are lowest, its multipliers, its Lagrangian cut.

Source: see docs/optimisation.md, section 3.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .interior_point import Solved

SETTLED = 1e-9  # by which the weights of the goal may miss 1: multipliers that never settled bound nothing


def settled(goal: np.ndarray) -> np.ndarray:
    """Mask of the sums of the goal's weights that are 1."""
    return np.abs(goal - 1.0) < SETTLED


class Pruned(NamedTuple):
    """Proofs of pruned plans: `bound` is the least, over the cube, of their cuts with `weights` [plans, rows].

    Without the goal among them it is positive, and the constraints cannot hold together.
    """

    plan: Int[np.ndarray, " plans"]
    bound: Float[np.ndarray, " plans"]
    weights: Float[np.ndarray, "plans rows"]


class DualSolutions:
    """Dual solutions of all solved nodes.

    Attributes:
        point: where its cuts are lowest.
        weights: its multipliers [rows], those of the goal adding to 1.
        lagrangian: its weighted cut [coefficients], below its goal wherever the limits hold.
    """

    def __init__(self) -> None:
        self.point: dict[int, np.ndarray] = {}
        self.weights: dict[int, np.ndarray] = {}
        self.lagrangian: dict[int, np.ndarray] = {}

    def learn(self, node: np.ndarray, solved: Solved, affine: np.ndarray) -> None:
        """Record the solutions of programmes over the cuts `affine`."""
        total = np.einsum("ltr,ltrv->lv", solved.weights, affine)
        for lane, n in enumerate(node.tolist()):
            self.weights[n], self.point[n] = solved.weights[lane].sum(axis=0), solved.edge[lane]
            self.lagrangian[n] = total[lane]

    def known(self, node: np.ndarray) -> np.ndarray:
        """Mask of the nodes that were solved."""
        return np.array([n in self.point for n in node.tolist()], dtype=bool)

    def of(self, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(points, multipliers) of these."""
        names = node.tolist()
        return np.array([self.point[n] for n in names]), np.array([self.weights[n] for n in names])

    def borrow(self, other: "DualSolutions", node: np.ndarray) -> None:
        """Points and multipliers of another programme over the same rows, to bound others from."""
        self.point |= {n: other.point[n] for n in node.tolist()}
        self.weights |= {n: other.weights[n] for n in node.tolist()}

    def bounds(
        self, shift: Float[np.ndarray, " rows"] | float = 0.0
    ) -> tuple[Int[np.ndarray, " k"], Float[np.ndarray, " k"], Float[np.ndarray, "k rows"]]:
        """(nodes, what their Lagrangian cuts bound, multipliers) where rows are allowed `shift` more.

        More room only shifts such a bound, by the multipliers.
        """
        nodes = np.array(list(self.lagrangian), dtype=int)
        if len(nodes) == 0:
            return nodes, np.zeros(0), np.zeros((0, 0))
        total = np.array([self.lagrangian[n] for n in nodes.tolist()])
        weights = np.array([self.weights[n] for n in nodes.tolist()])
        taken = weights @ np.broadcast_to(shift, weights.shape[1:])
        return nodes, total[:, 0] - taken + np.minimum(total[:, 1:], 0.0).sum(axis=1), weights
