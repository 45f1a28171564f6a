"""Tangents that outlive the question they were asked for: the next programme over the same rows starts from them."""

from typing import NamedTuple

import numpy as np

from .interior import EMPTY
from .oracle import AbstractOracle, Tangents

MEMORY_BYTES = 400e6  # largest store
DEEPEST = 4  # tangents kept of one plan


class Recalled(NamedTuple):
    """Plans with one remembered tangent each, and where it was taken."""

    plan: np.ndarray
    u: np.ndarray


class Remembering(AbstractOracle):
    """An oracle that keeps the last few tangents of every plan. Tangents of all rows bound any goal under any limits.

    Args:
        inner: the oracle that is asked.
        depth: tangents of a plan; fewer where there are too many plans to keep so many.
    """

    def __init__(self, inner: AbstractOracle, depth: int = DEEPEST):
        self.inner, self.names, self.evaluated = inner, inner.names, 0
        rows, n = len(inner.names), len(inner.variables)
        most = MEMORY_BYTES / (8.0 * inner.count * (rows * (n + 2) + n))
        self.depth = int(np.clip(most, 1, depth))
        self.exact = np.full((inner.count, self.depth, rows), np.inf)
        self.affine = np.zeros((inner.count, self.depth, rows, n + 1))
        self.affine[..., 0] = EMPTY
        self.at = np.zeros((inner.count, self.depth, n))
        self.asked = np.zeros(inner.count, dtype=int)

    @property
    def count(self) -> int:
        """Plans."""
        return self.inner.count

    @property
    def variables(self) -> tuple[str, ...]:
        """Hardware variables."""
        return self.inner.variables

    def near(self, plan: int, changes: int) -> np.ndarray:
        """Plans that differ little."""
        return self.inner.near(plan, changes)

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """Ask, and remember the answer in the place of the oldest of its plan."""
        found = self.inner.tangents(plan, u, sharpness)
        self.evaluated += len(plan)
        slot = (self.asked[plan] + _repeats(plan)) % self.depth
        np.add.at(self.asked, plan, 1)
        self.exact[plan, slot] = np.where((found.broken > 0)[:, None], np.inf, found.exact)
        self.affine[plan, slot], self.at[plan, slot] = found.affine, u
        return found

    def recall(self, plan: np.ndarray, slot: int) -> Recalled:
        """Those of the plans that have a tangent in this slot."""
        plan = plan[self.asked[plan] > slot]
        return Recalled(plan, self.at[plan, slot])


class Memory(AbstractOracle):
    """Answers from what one slot of a `Remembering` holds, wherever it is asked; evaluates nothing."""

    def __init__(self, source: Remembering, slot: int):
        self.source, self.slot, self.names, self.evaluated = source, slot, source.names, 0

    @property
    def count(self) -> int:
        """Plans."""
        return self.source.count

    @property
    def variables(self) -> tuple[str, ...]:
        """Hardware variables."""
        return self.source.variables

    def near(self, plan: int, changes: int) -> np.ndarray:
        """Plans that differ little."""
        return self.source.near(plan, changes)

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """What was found for these plans before."""
        exact, tangent = self.source.exact[plan, self.slot], self.source.affine[plan, self.slot]
        return Tangents(exact, tangent, np.zeros(len(plan)))


def _repeats(plan: np.ndarray) -> np.ndarray:
    """How often each entry stood earlier in the array."""
    order = np.argsort(plan, kind="stable")
    ordered = plan[order]
    first = np.searchsorted(ordered, ordered)
    result = np.empty(len(plan), dtype=int)
    result[order] = np.arange(len(plan)) - first
    return result
