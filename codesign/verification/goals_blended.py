"""Several goals as one, of workloads or of cases, by code of its own: values, and tangents that lie below.

Source: [rockafellar2000], CVaR as the largest mean under capped weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from ..model.scenario import Scenario
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
        finite = np.asarray(np.isfinite(logs).all(axis=-1))
        return np.where(finite, self.tangent(np.where(finite[..., None], logs, 0.0))[0], np.inf)

    def mean(self, points: Sequence[np.ndarray], shares: Float[np.ndarray, " points"]) -> tuple[float, np.ndarray]:
        """(constant, slopes) of the mean of the tangents at these points: below the blend everywhere."""
        constant, slopes = 0.0, np.zeros(len(self.weights))
        for point, share in zip(points, shares, strict=True):
            value, slope = self.tangent(point)
            constant += float(share) * float(value - slope @ point)
            slopes += share * slope
        return constant, slopes


# A design judged in several cases: its goal a blend of theirs, every other row taken where it is worst.
#
# A case is the scenario with other values of what is not known (`search=robust`). All cases count alike. Written for
# the check alone: the search blends by code of its own.


ALIKE = 1e-9  # log by which goals of cases differ that are the same but for rounding
HOW = {"worst": "the worst", "cvar": "the mean of the worst", "sum": "the mean", "log_sum": "the geometric mean"}


@dataclass(frozen=True)
class Case:
    """One of the values that what is uncertain may have.

    Args:
        scenario: with these values.
        moved: dotted path of each uncertain leaf -> its value here.
    """

    scenario: Scenario
    moved: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class StudyCases:
    """All cases, each of equal weight, and how the logs of their goals become one (see `CheckedBlend`).

    `cvar` is the mean of the worst share `tail` of the cases, and `sum` the mean of all. Where more is better, what is
    blended are the logs of 1 / goal: `sum` and `cvar` are then harmonic means.

    Args:
        every: the cases.
        how: one of `HOW`.
        tail: share of the cases that cvar takes the mean of.
    """

    every: tuple[Case, ...]
    how: str = "worst"
    tail: float = 1.0

    def __post_init__(self) -> None:
        """Known kind, some cases, a tail that is a share."""
        if self.how not in HOW or not self.every or not 0 < self.tail <= 1:
            raise ValueError(f"{len(self.every)} cases, how {self.how!r}, tail {self.tail:g}: not a blend of cases")

    @property
    def blend(self) -> CheckedBlend:
        """Blend of goals, one a case."""
        count = len(self.every)
        return CheckedBlend(self.how, np.ones(count), self.tail, np.zeros(count))

    @property
    def scenarios(self) -> list[Scenario]:
        """One a case."""
        return [case.scenario for case in self.every]

    def words(self, sign: float) -> str:
        """Name of the goal, where less (1) or more (-1) is better: `the mean of the worst 20 %`."""
        how_text = HOW[self.how].replace("the mean", "the harmonic mean") if sign < 0 else HOW[self.how]
        return how_text + (f" {100 * self.tail:.3g} %" if self.how == "cvar" else "")

    def blended(self, logs: Float[np.ndarray, "cases points"]) -> Float[np.ndarray, " points"]:
        """The goal's log; inf where a case has none."""
        return self.blend.value(logs.T)

    def rows(self, case_rows: Float[np.ndarray, "cases points rows"]) -> Float[np.ndarray, "points rows"]:
        """Rows over all cases, the goal's first; the others where they are largest."""
        return np.concatenate([self.blended(case_rows[:, :, 0])[:, None], case_rows[:, :, 1:].max(axis=0)], axis=1)

    def tangents(
        self,
        value: Float[np.ndarray, "cases points rows"],
        slope: Float[np.ndarray, "cases points rows variables"],
        sharpness: Float[np.ndarray, " points"],
    ) -> tuple[Float[np.ndarray, "points rows"], Float[np.ndarray, "points rows variables"]]:
        """Value and slopes of a tangent below the rows over all cases, from one below those of each case.

        For one choice of weights p, log sum_i p_i e^x_i is convex in x and rises with every x_i, and so does a mean of
        x. The blend is the largest of these over p, so its tangent at the x found here, taken with the p that is best
        there, lies below it at every x; the weights of that tangent, p_i e^x_i / sum, are not negative, so exchanging
        each x_i for a tangent below it only lowers it. A worst row is at least each case's row, so at least any mean
        of them, and that at least the same mean of their tangents, whichever weights: those used here,
        exp(sharpness (x_i - largest x)) scaled to add to 1, lean on the worst cases and pass between cases that tie.
        A case that has no number at a point takes no part there: no weight but of a geometric mean needs it, and that
        then has no number either.
        """
        finite = np.isfinite(value) & np.isfinite(slope).all(axis=-1)
        value, slope = np.where(finite, value, -np.inf), np.where(finite[..., None], slope, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            goal, share = self.blend.tangent(value[:, :, 0].T)
            weight = np.exp(sharpness[:, None] * (value - value.max(axis=0)))
            weight /= weight.sum(axis=0)
        weight[:, :, 0] = share.T
        values = (weight * np.where(finite, value, 0.0)).sum(axis=0)
        values[:, 0] = goal
        return values, np.einsum("cpr,cprv->prv", weight, slope)

    def worst(self, logs: Float[np.ndarray, " cases"], excess: Float[np.ndarray, " cases"]) -> int:
        """The case that tells most of a design: of the largest violation; where all hold of the worst goal."""
        alike = logs >= logs.max() - ALIKE
        return int(np.argmax(excess if (excess > 0).any() else np.where(alike, excess, -np.inf)))
