"""How the goals of several workloads become one, by code of its own: values, and tangents that lie below."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .certificate import Refuted


@dataclass(frozen=True)
class Blend:
    """A mean of goals by the worst weights that it admits.

    Of goals exp(x - offset), for the weights q of a set Q of non-negative numbers adding to 1,

        log_sum   sum_k q_k (x_k - offset_k)                Q = {weights}: a geometric mean
        others    max_q log sum_k q_k exp(x_k - offset_k)   sum: Q = {weights}; worst: all; cvar: q_k <= weight_k / tail

    Each is the maximum of functions convex in x, so the tangent of any one of these lies below it.
    """

    how: str
    weights: Float[np.ndarray, " workloads"]
    tail: float
    offset: Float[np.ndarray, " workloads"]

    def chosen(self, logs: Float[np.ndarray, " workloads"]) -> Float[np.ndarray, " workloads"]:
        """The worst weights at these logs of goals: as much as is admitted to the largest goal, then to the next."""
        weights = self.weights / self.weights.sum()
        if self.how in ("log_sum", "sum"):
            return weights
        if self.how not in ("worst", "cvar"):
            raise Refuted(f"goals are blended by {self.how!r}, which is not known here")
        most = np.ones(len(weights)) if self.how == "worst" else weights / self.tail
        found, left = np.zeros(len(weights)), 1.0
        for k in np.argsort(-(logs - self.offset), kind="stable").tolist():
            found[k] = min(most[k], left)
            left -= found[k]
        return found

    def tangent(self, logs: Float[np.ndarray, " workloads"]) -> tuple[float, Float[np.ndarray, " workloads"]]:
        """(value at these logs of goals, slopes there)."""
        shares, there = self.chosen(logs), logs - self.offset
        if self.how == "log_sum":
            return float(shares @ there), shares
        top = float(there[shares > 0].max())
        parts = np.where(shares > 0, shares * np.exp(np.minimum(there - top, 0.0)), 0.0)
        return top + float(np.log(parts.sum())), parts / parts.sum()

    def value(self, logs: Float[np.ndarray, "*points workloads"]) -> Float[np.ndarray, "*points"]:
        """The blended log; inf where a goal is."""
        flat = logs.reshape(-1, logs.shape[-1])
        found = np.array([self.tangent(one)[0] if np.isfinite(one).all() else np.inf for one in flat])
        return found.reshape(logs.shape[:-1])

    def mean(self, points: Sequence[np.ndarray], shares: Float[np.ndarray, " points"]) -> tuple[float, np.ndarray]:
        """(constant, slopes) of the mean of the tangents at these points: below the blend everywhere."""
        constant, slopes = 0.0, np.zeros(len(self.weights))
        for point, share in zip(points, shares, strict=True):
            value, slope = self.tangent(point)
            constant += float(share) * (value - float(slope @ point))
            slopes += share * slope
        return constant, slopes
