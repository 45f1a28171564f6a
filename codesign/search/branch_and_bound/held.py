"""An oracle over some of its coordinates, the others held: what `search=integer` solves for each listed value."""

from collections.abc import Mapping, Sequence

import numpy as np

from .oracle import AbstractOracle, AbstractRelay, Tangents


class Held(AbstractRelay):
    """An oracle with some of its coordinates held: their slopes go into the intercepts."""

    def __init__(self, inner: AbstractOracle, held: dict[int, float]):
        super().__init__(inner)
        self.free = np.flatnonzero([i not in held for i in range(len(inner.variables))])
        self.fixed = np.array(sorted(held), dtype=int)
        self.at = np.array([held[int(i)] for i in self.fixed])

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the free variables."""
        return tuple(self.inner.variables[i] for i in self.free.tolist())

    def unproven(self, held: Mapping[str, Sequence[float]] | None = None) -> dict[str, str]:
        """Reasons why rows are not proven convex over the free coordinates, by row."""
        own: dict[str, Sequence[float]] = {
            self.inner.variables[int(i)]: [float(at)] for i, at in zip(self.fixed, self.at, strict=True)
        }
        return self.inner.unproven(own | dict(held or {}))

    def whole(self, u: np.ndarray) -> np.ndarray:
        """All coordinates from the free ones."""
        full = np.zeros((len(u), len(self.inner.variables)))
        full[:, self.free], full[:, self.fixed] = u, self.at
        return full

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float) -> Tangents:
        """Rows at the whole point; tangents over the free coordinates."""
        self.evaluated += len(plan)
        result = self.inner.tangents(plan, self.whole(u), sharpness)
        intercept = result.affine[..., 0] + result.affine[..., 1 + self.fixed] @ self.at
        affine = np.concatenate([intercept[..., None], result.affine[..., 1 + self.free]], axis=-1)
        return Tangents(result.exact, affine, result.broken)
