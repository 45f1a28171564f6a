"""What the latest programme of each plan said: where its cuts are lowest, and its multipliers."""

import numpy as np

from .interior_point import Solved

SETTLED = 1e-9  # by which the weights of the goal may miss 1: multipliers that never settled bound nothing


def settled(goal: np.ndarray) -> np.ndarray:
    """Which sums of the goal's weights are 1."""
    return np.abs(goal - 1.0) < SETTLED


class DualSolutions:
    """Of every node that was solved.

    Attributes:
        point: where its cuts are lowest.
        weights: its multipliers [rows], those of the goal adding to 1.
    """

    def __init__(self) -> None:
        self.point: dict[int, np.ndarray] = {}
        self.weights: dict[int, np.ndarray] = {}

    def learn(self, node: np.ndarray, solved: Solved) -> None:
        """Of programmes of these nodes."""
        for lane, n in enumerate(node.tolist()):
            self.weights[n], self.point[n] = solved.weights[lane].sum(axis=0), solved.edge[lane]

    def known(self, node: np.ndarray) -> np.ndarray:
        """Which of these were solved."""
        return np.array([n in self.point for n in node.tolist()], dtype=bool)

    def of(self, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(points, multipliers) of these."""
        names = node.tolist()
        return np.array([self.point[n] for n in names]), np.array([self.weights[n] for n in names])

    def borrow(self, other: "DualSolutions", node: np.ndarray) -> None:
        """Points and multipliers of another programme over the same rows, to bound others from."""
        self.point |= {n: other.point[n] for n in node.tolist()}
        self.weights |= {n: other.weights[n] for n in node.tolist()}
