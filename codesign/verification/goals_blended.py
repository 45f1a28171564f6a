"""Several goals as one, of workloads or of cases, by code of its own: values, and tangents that lie below.

Source: [rockafellar2000], CVaR as the largest mean under capped weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .derivation import Refuted


@dataclass(frozen=True)
class CheckedBlend:
    """A mean of goals by the worst weights that it admits.

    Of goals exp(x - offset), for the weights q of a set Q of non-negative numbers adding to 1,

        log_sum   sum_k q_k (x_k - offset_k)                Q = {weights}: a geometric mean
        others    max_q log sum_k q_k exp(x_k - offset_k)   sum: Q = {weights}; worst: all; cvar: q_k <= weight_k / tail

    Each is the maximum of functions convex in x, so the tangent of any one of these lies below it.
    """

    how: str
    weights: Float[np.ndarray, " goals"]
    tail: float
    offset: Float[np.ndarray, " goals"]

    def chosen(self, logs: Float[np.ndarray, "*points goals"]) -> Float[np.ndarray, "*points goals"]:
        """The worst weights at these logs of goals: as much as is admitted to the largest goal, then to the next."""
        weights = self.weights / self.weights.sum()
        if self.how in ("log_sum", "sum"):
            return np.broadcast_to(weights, logs.shape)
        if self.how not in ("worst", "cvar"):
            raise Refuted(f"goals are blended by {self.how!r}, which is not known here")
        most = np.ones(len(weights)) if self.how == "worst" else weights / self.tail
        order = np.argsort(-(logs - self.offset), axis=-1, kind="stable")
        admitted = most[order]
        left = 1.0 - (np.cumsum(admitted, axis=-1) - admitted)
        result = np.empty(logs.shape)
        np.put_along_axis(result, order, np.clip(left, 0.0, admitted), axis=-1)
        return result

    def tangent(
        self, logs: Float[np.ndarray, "*points goals"]
    ) -> tuple[Float[np.ndarray, "*points"], Float[np.ndarray, "*points goals"]]:
        """(value at these logs of goals, slopes there)."""
        shares, there = self.chosen(logs), logs - self.offset
        if self.how == "log_sum":
            return np.asarray((shares * there).sum(axis=-1)), shares
        top = np.where(shares > 0, there, -np.inf).max(axis=-1, keepdims=True)
        parts = np.where(shares > 0, shares * np.exp(np.minimum(there - top, 0.0)), 0.0)
        total = parts.sum(axis=-1, keepdims=True)
        return (top + np.log(total))[..., 0], parts / total

    def value(self, logs: Float[np.ndarray, "*points goals"]) -> Float[np.ndarray, "*points"]:
        """The blended log; inf where a goal is."""
        known = np.asarray(np.isfinite(logs).all(axis=-1))
        return np.where(known, self.tangent(np.where(known[..., None], logs, 0.0))[0], np.inf)

    def mean(self, points: Sequence[np.ndarray], shares: Float[np.ndarray, " points"]) -> tuple[float, np.ndarray]:
        """(constant, slopes) of the mean of the tangents at these points: below the blend everywhere."""
        constant, slopes = 0.0, np.zeros(len(self.weights))
        for point, share in zip(points, shares, strict=True):
            value, slope = self.tangent(point)
            constant += float(share) * float(value - slope @ point)
            slopes += share * slope
        return constant, slopes
