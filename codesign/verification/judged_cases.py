"""A design judged in several cases: its goal a blend of theirs, every other row taken where it is worst.

A case is the scenario with other values of what is not known (`search=robust`). All cases count alike. Written for the
check alone: the search blends by code of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from ..model.scenario import Scenario
from .goals_blended import CheckedBlend

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
        known = HOW[self.how].replace("the mean", "the harmonic mean") if sign < 0 else HOW[self.how]
        return known + (f" {100 * self.tail:.3g} %" if self.how == "cvar" else "")

    def blended(self, logs: Float[np.ndarray, "cases points"]) -> Float[np.ndarray, " points"]:
        """The goal's log; inf where a case has none."""
        return self.blend.value(logs.T)

    def rows(self, found: Float[np.ndarray, "cases points rows"]) -> Float[np.ndarray, "points rows"]:
        """Rows over all cases, the goal's first; the others where they are largest."""
        return np.concatenate([self.blended(found[:, :, 0])[:, None], found[:, :, 1:].max(axis=0)], axis=1)

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
        known = np.isfinite(value) & np.isfinite(slope).all(axis=-1)
        value, slope = np.where(known, value, -np.inf), np.where(known[..., None], slope, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            goal, share = self.blend.tangent(value[:, :, 0].T)
            weight = np.exp(sharpness[:, None] * (value - value.max(axis=0)))
            weight /= weight.sum(axis=0)
        weight[:, :, 0] = share.T
        values = (weight * np.where(known, value, 0.0)).sum(axis=0)
        values[:, 0] = goal
        return values, np.einsum("cpr,cprv->prv", weight, slope)

    def worst(self, logs: Float[np.ndarray, " cases"], excess: Float[np.ndarray, " cases"]) -> int:
        """The case that tells most of a design: of the largest violation; where all hold of the worst goal."""
        alike = logs >= logs.max() - ALIKE
        return int(np.argmax(excess if (excess > 0).any() else np.where(alike, excess, -np.inf)))
