"""A design judged in several cases: its goal a blend of theirs, every other row taken where it is worst.

A case is the scenario with other values of what is not known (`search=robust`). All cases count alike. Written for the
check alone: the search blends by code of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from ..scenario import Scenario

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
    moved: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cases:
    """All cases, and how the logs x of their goals become one.

    With n cases, and p any weights that add to 1, none more than a cap,

        log_sum   mean of x                         the geometric mean of the goals
        others    max over p of log sum_i p_i e^x_i   caps: worst 1, cvar 1 / (n tail), sum 1 / n

    so that `cvar` is the mean of the worst share `tail` of the cases, and `sum` the mean of all. Where more is better,
    x are the logs of 1 / goal: `sum` and `cvar` are then harmonic means.

    Args:
        every: the cases.
        how: one of `HOW`.
        tail: share of the cases that cvar takes the mean of.

    Source: [rockafellar2000], CVaR as the largest mean under capped weights.
    """

    every: tuple[Case, ...]
    how: str = "worst"
    tail: float = 1.0

    def __post_init__(self) -> None:
        """Known kind, some cases, a tail that is a share."""
        if self.how not in HOW or not self.every or not 0 < self.tail <= 1:
            raise ValueError(f"{len(self.every)} cases, how {self.how!r}, tail {self.tail:g}: not a blend of cases")

    @property
    def scenarios(self) -> list[Scenario]:
        """One a case."""
        return [case.scenario for case in self.every]

    def words(self, sign: float) -> str:
        """What the goal is, where less (1) or more (-1) is better: `the mean of the worst 20 %`."""
        known = HOW[self.how].replace("the mean", "the harmonic mean") if sign < 0 else HOW[self.how]
        return known + (f" {100 * self.tail:.3g} %" if self.how == "cvar" else "")

    def blended(self, logs: Float[np.ndarray, "cases points"]) -> Float[np.ndarray, " points"]:
        """The goal's log; inf where a case has none."""
        known = np.isfinite(logs).all(axis=0)
        return np.where(known, self._blend(np.where(known, logs, 0.0))[0], np.inf)

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

        For one choice of p, log sum_i p_i e^x_i is convex in x and rises with every x_i, and so does their mean. The
        blend is the largest of these over p, so its tangent at the x found here, taken with the p that is best there,
        lies below it at every x; the weights of that tangent, s_i = p_i e^x_i / sum, are not negative, so exchanging
        each x_i for a tangent below it only lowers it. A worst row is at least each case's row, so at least any mean
        of them, and that at least the same mean of their tangents, whichever weights: those used here,
        exp(sharpness (x_i - largest x)) scaled to add to 1, lean on the worst cases and pass between cases that tie.
        A case that has no number at a point takes no part there: no weight but of a geometric mean needs it, and that
        then has no number either.
        """
        known = np.isfinite(value) & np.isfinite(slope).all(axis=-1)
        value, slope = np.where(known, value, -np.inf), np.where(known[..., None], slope, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            goal, share = self._blend(value[:, :, 0])
            weight = np.exp(sharpness[:, None] * (value - value.max(axis=0)))
            weight /= weight.sum(axis=0)
        weight[:, :, 0] = share
        values = (weight * np.where(known, value, 0.0)).sum(axis=0)
        values[:, 0] = goal
        return values, np.einsum("cpr,cprv->prv", weight, slope)

    def _blend(self, logs: Float[np.ndarray, "cases points"]) -> tuple[np.ndarray, np.ndarray]:
        """(blend, its slopes in the logs)."""
        count = len(logs)
        if self.how == "log_sum":
            return logs.mean(axis=0), np.full(logs.shape, 1 / count)
        cap = {"worst": 1.0, "cvar": 1 / (count * self.tail), "sum": 1 / count}[self.how]
        place = np.argsort(np.argsort(-logs, axis=0, kind="stable"), axis=0)  # 0 for the worst
        weight = np.clip(1.0 - place * cap, 0.0, cap)
        top = logs.max(axis=0)
        part = weight * np.exp(logs - top)
        total = part.sum(axis=0)
        return top + np.log(total), part / total

    def worst(self, logs: Float[np.ndarray, " cases"], excess: Float[np.ndarray, " cases"]) -> int:
        """The case that tells most of a design: of the largest violation; where all hold of the worst goal."""
        alike = logs >= logs.max() - ALIKE
        return int(np.argmax(excess if (excess > 0).any() else np.where(alike, excess, -np.inf)))
