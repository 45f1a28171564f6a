"""Tangents that outlive the question they were asked for: the next programme over the same rows starts from them.

Source: see docs/optimisation.md, section 6.
"""

from typing import NamedTuple

import numpy as np

from ..branch_and_bound.evidence import Places
from ..branch_and_bound.interior_point import EMPTY
from ..branch_and_bound.oracle import AbstractOracle, AbstractRelay, Tangents
from ..settings import FRONT


class Recalled(NamedTuple):
    """Plans with one remembered tangent each, where it was taken, and the number of that point."""

    plan: np.ndarray
    u: np.ndarray
    at: np.ndarray


class Remembering(AbstractRelay):
    """An oracle that keeps the last few tangents of every plan or group. They bound any goal under any limits.

    Args:
        inner: the oracle that is asked.
        depth: tangents of a plan; fewer where there are too many plans to keep so many. Of plans and groups that are
            listed later and find no room none is kept.

    `places` numbers all points.
    """

    def __init__(self, inner: AbstractOracle, depth: int = FRONT.deepest):
        super().__init__(inner)
        self.places = Places()
        rows, n = len(inner.names), len(inner.variables)
        most = FRONT.memory_bytes / (8.0 * (rows * (n + 2) + n))
        self.depth = int(np.clip(most / inner.count, 1, depth))
        self.most = int(most / self.depth)
        self.exact, self.affine = np.zeros((0, self.depth, rows)), np.zeros((0, self.depth, rows, n + 1))
        self.at, self._asked = np.zeros((0, self.depth, n)), np.zeros(0, dtype=int)
        self.number = np.zeros((0, self.depth), dtype=int)
        self._make_room()

    @property
    def asked(self) -> np.ndarray:
        """Number of times that a tangent of each plan was kept."""
        self._make_room()
        return self._asked

    def _make_room(self) -> None:
        lacking = self.inner.count - len(self._asked)
        if lacking <= 0:
            return
        room = lacking + (int((FRONT.room - 1) * self.inner.count) if len(self._asked) else 0)
        kept = min(max(self.most, len(self.exact)), len(self._asked) + room) - len(self.exact)
        self._asked = np.concatenate([self._asked, np.zeros(room, dtype=int)])
        empty = np.zeros((kept, *self.affine.shape[1:]))
        empty[..., 0] = EMPTY
        self.affine = np.concatenate([self.affine, empty])
        self.exact = np.concatenate([self.exact, np.full((kept, *self.exact.shape[1:]), np.inf)])
        self.at = np.concatenate([self.at, np.zeros((kept, *self.at.shape[1:]))])
        self.number = np.concatenate([self.number, np.full((kept, self.depth), -1)])

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """Ask, and remember the answer in the place of the oldest of its plan."""
        result = self.inner.tangents(plan, u, sharpness)
        self.evaluated += len(plan)
        self._make_room()
        number = self.places.place(u, sharpness)
        kept = np.flatnonzero(plan < len(self.exact))
        plan = plan[kept]
        slot = (self._asked[plan] + _repeats(plan)) % self.depth
        np.add.at(self._asked, plan, 1)
        self.exact[plan, slot] = np.where((result.broken > 0)[:, None], np.inf, result.exact)[kept]
        self.affine[plan, slot], self.at[plan, slot] = result.affine[kept], u[kept]
        self.number[plan, slot] = number[kept]
        return result

    def recall(self, plan: np.ndarray, slot: int) -> Recalled:
        """Points of the tangents in this slot, of the plans that have one there."""
        plan = plan[self.asked[plan] > slot]
        return Recalled(plan, self.at[plan, slot], self.number[plan, slot])


class Memory(AbstractRelay):
    """Answers from what one slot of a `Remembering` holds, wherever it is asked; evaluates nothing."""

    def __init__(self, source: Remembering, slot: int):
        super().__init__(source)
        self.source, self.slot = source, slot

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """Recall the tangents of these plans."""
        exact, tangent = self.source.exact[plan, self.slot], self.source.affine[plan, self.slot]
        return Tangents(exact, tangent, np.zeros(len(plan)))


def _repeats(plan: np.ndarray) -> np.ndarray:
    """Number of earlier occurrences of each entry in the array."""
    order = np.argsort(plan, kind="stable")
    ordered = plan[order]
    first = np.searchsorted(ordered, ordered)
    result = np.empty(len(plan), dtype=int)
    result[order] = np.arange(len(plan)) - first
    return result
