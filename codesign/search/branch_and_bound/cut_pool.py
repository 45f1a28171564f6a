"""The cuts of the nodes that a branch and bound still works on, and what the points they were taken at have shown.

Source: see docs/optimisation.md, section 2.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from jaxtyping import Float, Int

from ..settings import BRANCH_AND_BOUND
from . import interior_point as interior


class CutPool(Mapping[int, list[np.ndarray]]):
    """Node -> its cuts, affine rows [rows, coefficients] in the order they came.

    Args:
        rows, coefficients: of a cut.

    Attributes:
        soft: node -> least goal plus penalties that a point of it has shown.
        estimate: node -> its goal when last seen, with what it broke at the price of its multipliers.
    """

    def __init__(self, rows: int, coefficients: int):
        self._shape = rows, coefficients
        self._cuts: dict[int, list[np.ndarray]] = {}
        self._at: dict[int, list[int]] = {}  # the numbers of their points
        self.soft: dict[int, float] = {}
        self.estimate: dict[int, float] = {}

    def __getitem__(self, node: int) -> list[np.ndarray]:
        """The cuts of a node."""
        return self._cuts[node]

    def __iter__(self) -> Iterator[int]:
        """Nodes that have cuts."""
        return iter(self._cuts)

    def __len__(self) -> int:
        """Nodes that have cuts."""
        return len(self._cuts)

    def __contains__(self, node: object) -> bool:
        """True if a node has cuts."""
        return node in self._cuts

    def keep(
        self,
        node: Int[np.ndarray, " k"],
        exact: Float[np.ndarray, "k rows"],
        affine: Float[np.ndarray, "k rows coefficients"],
        prices: np.ndarray | float = BRANCH_AND_BOUND.dear_enough,
        at: Int[np.ndarray, " k"] | None = None,
    ) -> None:
        """Add cuts, with the exact rows where they were taken.

        `prices` of violations [k, rows] are for the estimates; `at` numbers the points.
        """
        over = np.maximum(exact[:, 1:], 0.0)
        known = np.isfinite(exact).all(axis=1)
        soft = np.where(known, exact[:, 0] + interior.ELASTIC * over.max(axis=1, initial=0.0), np.inf).tolist()
        prices = np.broadcast_to(prices, exact.shape)[:, 1:] + BRANCH_AND_BOUND.least_price
        looks = np.where(known, exact[:, 0] + (prices * over).sum(axis=1), np.inf).tolist()
        numbers = [-1] * len(node) if at is None else at.tolist()
        latest: dict[int, float] = {}
        for i, n in enumerate(node.tolist()):
            self._cuts.setdefault(n, []).append(affine[i])
            self._at.setdefault(n, []).append(numbers[i])
            self.soft[n] = min(self.soft.get(n, np.inf), soft[i])
            latest[n] = min(latest.get(n, np.inf), looks[i])
        self.estimate |= latest

    def known(self, node: Int[np.ndarray, " k"]) -> np.ndarray:
        """Mask of the nodes that have cuts."""
        return np.array([n in self._cuts for n in node.tolist()], dtype=bool)

    def soft_of(self, node: Int[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Least goal plus penalties of each; inf where nothing was seen."""
        return np.array([self.soft.get(n, np.inf) for n in node.tolist()])

    def looks(self, node: Int[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Merit estimate of each one's optimum, from where it was seen last; inf where it was not."""
        return np.array([self.estimate.get(n, np.inf) for n in node.tolist()])

    def batches(self, node: Int[np.ndarray, " k"]) -> list[np.ndarray]:
        """Nodes with about as many cuts together: the longest programme of a batch sets the length of all."""
        if len(node) == 0:
            return []
        count = np.array([len(self._cuts[n]) for n in node.tolist()])
        order = np.argsort(count, kind="stable")
        size = np.searchsorted(BRANCH_AND_BOUND.lengths, count[order])
        return np.split(node[order], np.flatnonzero(np.diff(size)) + 1)

    def gathered(self, node: Int[np.ndarray, " k"]) -> tuple[np.ndarray, np.ndarray]:
        """(cuts of each node side by side, padded by some that say nothing; numbers of their points, -1 of padding)."""
        names = node.tolist()
        most = max(len(self._cuts[n]) for n in names)
        affine, at = np.zeros((len(names), most, *self._shape)), np.full((len(names), most), -1)
        affine[..., 0] = interior.EMPTY
        for lane, n in enumerate(names):
            affine[lane, : len(self._cuts[n])] = self._cuts[n]
            at[lane, : len(self._at[n])] = self._at[n]
        return affine, at

    def trim(self, node: int, weights: Float[np.ndarray, "cuts rows"]) -> None:
        """Drop cuts of a node with too many: keep those that its last programme leant on most."""
        count = len(self._cuts[node])
        if count > BRANCH_AND_BOUND.most_cuts:
            leant = np.argsort(-weights[:count].sum(axis=1), kind="stable")
            left = np.sort(leant[: BRANCH_AND_BOUND.most_cuts // 2]).tolist()
            for kept in (self._cuts, self._at):
                kept[node] = [kept[node][i] for i in left]

    def forget(self) -> None:
        """Drop all cuts: many times the size of all else that is known."""
        self._cuts.clear()
        self._at.clear()
