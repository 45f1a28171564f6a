"""One goal out of several: weighted sum, weighted sum of logs, worst case, mean of the worst share (CVaR).

All of them are convex and increasing in the logs of the single goals, and grow by c where every log grows by c. So
where the single goals are log-convex the blend is, and its tangent at any point, a weighted mean of the logs plus a
constant, lies below it everywhere.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ..core.errors import ConfigError, suggestion

HOW = {"log_sum": "geometric mean", "sum": "mean", "worst": "worst case", "cvar": "mean of the worst"}


@dataclass(frozen=True)
class Blend:
    """Aggregation of the goals of several cases into one.

    log_sum: the weighted mean of the logs (a geometric mean: goals may be in different units). sum: the log of the
    weighted mean. worst: the largest. cvar: the mean over the worst `tail` of the weight, between the two (1 is the
    sum, a tail within the lightest weight is the worst case).

    Args:
        how: one of `HOW`.
        weights: of the cases; scaled to add up to 1.
        tail: share of the weight that counts, for cvar.
        offset: of the log of each goal; its own best makes the goals relative to what each could have.

    Source: [rockafellar2000], CVaR as the largest mean under weights of at most w / tail.
    """

    how: str
    weights: Float[np.ndarray, " cases"]
    tail: float = 1.0
    offset: Float[np.ndarray, " cases"] | float = 0.0

    def __post_init__(self) -> None:
        """Known kind, positive weights."""
        if self.how not in HOW:
            raise ConfigError(f"search.aggregate = {self.how!r} is not known{suggestion(self.how, HOW)}")
        if not 0 < self.tail <= 1:
            raise ConfigError(f"search.tail = {self.tail:g} must be more than 0 and at most 1")
        weights = np.asarray(self.weights, dtype=float)
        if not (weights > 0).all():
            raise ConfigError("weights of a mix must be positive")
        object.__setattr__(self, "weights", weights / weights.sum())

    @property
    def words(self) -> str:
        """Name of the aggregate of the single goals, such as "geometric mean"."""
        return HOW[self.how]

    def value(self, logs: Float[np.ndarray, "*points cases"]) -> Float[np.ndarray, "*points"]:
        """The blended log."""
        return self.tangent(logs)[0]

    def tangent(
        self, logs: Float[np.ndarray, "*points cases"]
    ) -> tuple[Float[np.ndarray, "*points"], Float[np.ndarray, "*points cases"]]:
        """(value, slopes), the slopes adding to 1; value + slopes (x - logs) lies below the blend at every x."""
        result = np.asarray(logs, dtype=float) - self.offset
        finite = np.asarray(np.isfinite(result).all(axis=-1))
        result = np.where(finite[..., None], result, 0.0)
        if self.how == "log_sum":
            slopes = np.broadcast_to(self.weights, result.shape)
            return np.where(finite, result @ self.weights, np.inf), slopes
        shares = np.log(np.maximum(self._shares(result), 1e-300))
        top = (result + shares).max(axis=-1, keepdims=True)
        parts = np.exp(result + shares - top)
        total = parts.sum(axis=-1, keepdims=True)
        return np.where(finite, (top + np.log(total))[..., 0], np.inf), parts / total

    def _shares(self, values: np.ndarray) -> np.ndarray:
        """The weights that count: the heaviest goals first, each at most its weight over the tail, adding to 1."""
        most = np.full_like(self.weights, 1.0) if self.how == "worst" else self.weights / self._tail
        order = np.argsort(-values, axis=-1, kind="stable")
        capped = np.broadcast_to(most, values.shape)
        sorted_most = np.take_along_axis(capped, order, axis=-1)
        before = np.cumsum(sorted_most, axis=-1) - sorted_most
        taken = np.clip(1.0 - before, 0.0, sorted_most)
        shares = np.empty_like(values)
        np.put_along_axis(shares, order, taken, axis=-1)
        return shares

    @property
    def _tail(self) -> float:
        return self.tail if self.how == "cvar" else 1.0
