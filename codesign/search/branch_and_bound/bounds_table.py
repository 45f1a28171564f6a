"""The lower bound of every node of a branch and bound: an array that only rises, changed by nobody else.

Source: see docs/optimisation.md, section 4.
"""

import numpy as np
from jaxtyping import Bool, Float, Int


class BoundsTable:
    """Proven bound of every node, which nodes are leaves, and how often each was refined.

    Every bound holds from the moment it is there: `lower` and `leaf` may be read by anybody and written by none.

    Args:
        count: nodes listed so far.
        leaves: those that together stand for all plans.

    Attributes:
        lower: bound of each node (log of the goal); -inf where nothing is known, inf where none of it is feasible.
        leaf: nodes that were not split; they stand for every plan once.
        rounds: how often the programme of each was solved.
    """

    def __init__(self, count: int, leaves: Int[np.ndarray, " leaves"]):
        self._lower, self._leaf, self._rounds = np.zeros(0), np.zeros(0, dtype=bool), np.zeros(0, dtype=np.int32)
        self.grow(count)
        self._leaf[leaves] = True

    def grow(self, count: int) -> None:
        """Make room for so many nodes."""
        new = count - len(self._lower)
        if new > 0 or len(self._lower) == 0:
            self._lower = np.concatenate([self._lower, np.full(new, -np.inf)])
            self._leaf = np.concatenate([self._leaf, np.zeros(new, dtype=bool)])
            self._rounds = np.concatenate([self._rounds, np.zeros(new, dtype=np.int32)])
            self._show()

    def _show(self) -> None:
        self.lower, self.leaf, self.rounds = map(_read_only, (self._lower, self._leaf, self._rounds))

    def __getstate__(self) -> dict[str, np.ndarray]:
        """The arrays; what others read of them are views."""
        return {"_lower": self._lower, "_leaf": self._leaf, "_rounds": self._rounds}

    def __setstate__(self, state: dict[str, np.ndarray]) -> None:
        """Restore the arrays and the views of them."""
        vars(self).update(state)
        self._show()

    def raise_(self, node: Int[np.ndarray, " k"], bound: Float[np.ndarray, " k"]) -> Bool[np.ndarray, " k"]:
        """Take these bounds where they are higher than what is known; says where. No number raises nothing."""
        known = self._lower[node]
        self._lower[node] = np.fmax(known, bound)
        return bound > known

    def raise_all(self, lower: Float[np.ndarray, " some"]) -> None:
        """Raise the bounds of the first nodes, in order."""
        np.fmax(self._lower[: len(lower)], lower, out=self._lower[: len(lower)])

    def split(self, group: Int[np.ndarray, " groups"], part: Int[np.ndarray, " parts"]) -> None:
        """Parts stand in the place of their groups from now on."""
        self._leaf[group], self._leaf[part] = False, True

    def follow(self, leaf: Bool[np.ndarray, " nodes"]) -> None:
        """The leaves of another tree over the same nodes, which stand for all plans as well."""
        self._leaf[:] = False
        self._leaf[: len(leaf)] = leaf

    def refined(self, node: Int[np.ndarray, " k"]) -> None:
        """The programmes of these nodes were solved once more."""
        self._rounds[node] += 1

    @property
    def least(self) -> float:
        """The least bound of the leaves: what no design is below."""
        return float(np.min(self._lower, where=self._leaf, initial=np.inf))

    def ordered(self, some: Bool[np.ndarray, " nodes"]) -> Int[np.ndarray, " some"]:
        """The leaves among these, least bound first."""
        left = np.flatnonzero(self._leaf & some)
        return left[np.argsort(self._lower[left], kind="stable")]


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def passed_down(lower: Float[np.ndarray, " nodes"], parents: Int[np.ndarray, " nodes"]) -> np.ndarray:
    """Bounds of parts raised to those of their groups."""
    while True:
        raised = np.maximum(lower, lower[parents])
        if (raised == lower).all():
            return raised
        lower = raised
