"""The bound of every node, derived anew from the model at the stored points, rounded outward."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ..core.free_memory import give_back
from .derivation import Derivation, Refuted
from .model_answers import CheckedModel

UNIT = 2.0**-53  # rounding of one operation in float64
MODEL = 1e-12
"""Least allowance for a slope, relative to 1 + |value| + 2 sum |slopes|, and for the sums of a blend.

Values need no allowance: by how much float64 may move a row is derived (`curvature.rounding`; 1e-14 to 1e-12). Slopes
are computed by another program, made from the same equations: each is a sum, over the operations, of shares of the row
times their own slopes. The shares have the relative error of the row's parts, at most that of the row where nothing
cancels, and the slopes of one operation are its exponents, some units large. So a slope is off by no more than the row
is, times the sum of the slopes' sizes; twice that is allowed, and never less than this.
"""
BEYOND = 1e3  # log of a number that no row is beyond but where nothing bounds it
TOGETHER = 1 << 15  # tangents whose rows are in memory at a time
SINGLE = 1e-6  # by which the goal's weights may miss 1 before they are scaled: they are kept in single precision


@dataclass(frozen=True)
class WeightedSums:
    """Weighted sums of all nodes: constant + slope . u lies below the rows times `weights`, `least` below all of it."""

    least: Float[np.ndarray, " nodes"]
    constant: Float[np.ndarray, " nodes"]
    slope: Float[np.ndarray, "nodes variables"]
    weights: Float[np.ndarray, "nodes rows"]

    def excess(
        self, node: Int[np.ndarray, " k"], u: Float[np.ndarray, "k variables"], rows: Float[np.ndarray, "k rows"]
    ) -> Float[np.ndarray, " k"]:
        """By how much the weighted tangents lie above the weighted rows at designs of these nodes; never, if all holds.

        Relative to the sum of the weights.
        """
        weights = self.weights[node]
        there = np.where(weights > 0, weights * np.where(weights > 0, rows, 0.0), 0.0).sum(axis=1)
        below = self.constant[node] + (self.slope[node] * u).sum(axis=1)
        return (below - there) / np.maximum(weights.sum(axis=1), 1.0)


def derive(certificate: Derivation, model: CheckedModel, report: Callable[[int, int], None]) -> WeightedSums:
    """Evaluate the model where the certificate says and add up: weak duality over the cube.

    For weights m >= 0 of tangents below rows, with those of the goal adding to 1 and constraints at most 0,

        goal(u) >= sum m tangent(u) >= constant + sum_j min(0, slope_j)      for every u in the cube

    and without the goal a positive right-hand side says that the constraints cannot hold together. A running error
    bound is taken off: gamma = 2 (terms) 2^-53 times the sum of the magnitudes of all that is added, which covers the
    products, the sums and the minimum, and what rounding may do to the model itself: to the value that a tangent has,
    and to that of the design which it is held against.

    Assumes: rows are convex in u, and of a group each is least at the value of the open fields that the certificate
    says (what `directions` and `attack` test).

    Raises:
        Refuted: rows that the study does not have, rows that are no numbers.
    """
    rows = rows_in(certificate, model)
    cut_row, view = rows[certificate.row], certificate.view[certificate.row]
    single = (certificate.low == certificate.high).all(axis=1)
    view = np.where(single[certificate.node], 0, view)
    wanted = np.stack([certificate.node, view, certificate.point], axis=-1)
    by_ranges = np.flatnonzero(~single[certificate.node]) if certificate.ranges else np.zeros(0, dtype=int)
    wanted[by_ranges] = -1
    calls, call = np.unique(wanted, axis=0, return_inverse=True)
    call = call.reshape(-1)
    if len(by_ranges):  # is the first of the calls, and none
        calls, call = calls[1:], call - 1
    by_call = np.argsort(call, kind="stable")
    value, slope = np.zeros(len(call)), np.zeros((len(call), len(certificate.variables)))
    report(0, len(calls))
    for first in range(0, len(calls), TOGETHER):  # all rows of all calls at once would be ten times what is asked for
        give_back()
        there = calls[first : first + TOGETHER]
        plan, at = certificate.values(certificate.best[there[:, 1], there[:, 0]]), there[:, 2]
        values, slopes = model.tangents(
            plan,
            certificate.u[at],
            certificate.sharpness[at],
            lambda done, first=first: report(first + done, len(calls)),
        )
        ends = np.searchsorted(call, (first, first + len(there)), sorter=by_call)
        cuts = by_call[slice(*ends)]
        value[cuts], slope[cuts] = values[call[cuts] - first, cut_row[cuts]], slopes[call[cuts] - first, cut_row[cuts]]
    if len(by_ranges):
        value[by_ranges] = _of_ranges(certificate, model, ~single)[certificate.node[by_ranges], cut_row[by_ranges]]
    return _added(certificate, model, cut_row, value, slope)


def _of_ranges(certificate: Derivation, model: CheckedModel, groups: np.ndarray) -> Float[np.ndarray, "nodes rows"]:
    """Least of each row over the plans of the nodes that are groups; what is beyond all numbers is as large as any."""
    some, result = np.flatnonzero(groups), np.full((len(groups), len(model.names)), np.nan)
    result[some] = np.clip(model.least(certificate.low[some], certificate.high[some]), -BEYOND, BEYOND)
    return result


def rows_in(certificate: Derivation, model: CheckedModel) -> np.ndarray:
    """Place of each row of the certificate among the model's."""
    bounded_names = model.names[: model.bounded]
    for name in certificate.rows:
        if name not in bounded_names:
            raise Refuted(f"row {name!r} of the certificate is no constraint of the study")
    return np.array([bounded_names.index(name) for name in certificate.rows])


def off(model: CheckedModel, row: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Rounding error that rows of these values may have."""
    beyond = np.exp(np.clip(value, 0.0, 700.0))
    return model.off[row] * np.where(model.steep[row], beyond, 1.0)


def _added(
    certificate: Derivation, model: CheckedModel, row: np.ndarray, value: np.ndarray, slope: np.ndarray
) -> WeightedSums:
    node, weight, count = certificate.node, certificate.weight, len(certificate.low)
    wrong = np.flatnonzero(~(np.isfinite(value) & np.isfinite(slope).all(axis=1)))
    if len(wrong):
        where = certificate.named(int(node[wrong[0]]))
        name = certificate.rows[certificate.row[wrong[0]]]
        raise Refuted(f"cut {wrong[0]} of {where}: row {name} is no number there")
    doubts = off(model, row, value)
    constant, slopes, doubt = summed(node, weight, value, slope, certificate.u[certificate.point], count, doubts)
    weights = np.zeros((count, len(model.names)))
    np.add.at(weights, (node, row), weight)
    least = constant + np.minimum(slopes, 0.0).sum(axis=1) - doubt
    return WeightedSums(least, constant, slopes, weights)


def summed(
    node: np.ndarray,
    weight: np.ndarray,
    value: np.ndarray,
    slope: np.ndarray,
    u: np.ndarray,
    count: int,
    off: np.ndarray | float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(constant, slopes, doubt) of every node's weighted sum of tangents, each with this value and slope at u.

    The doubt covers rounding of the sum, of its least value over a part of the cube, and of the model's evaluation: by
    `off` a value may be off, where the tangent is taken and in any design.
    """
    product = slope * u

    def added(terms: np.ndarray) -> np.ndarray:
        return np.bincount(node, weights=terms, minlength=count)

    constant = added(weight * (value - product.sum(axis=1)))
    slopes = np.stack([added(weight * slope[:, j]) for j in range(slope.shape[1])] or [np.zeros(0)], axis=-1)
    slopes = slopes if slope.shape[1] else np.zeros((count, 0))
    size = np.abs(slope).sum(axis=1)
    magnitude = added(weight * (np.abs(value) + np.abs(product).sum(axis=1) + size))
    terms = np.bincount(node, minlength=count) + 4 * slope.shape[1] + 8
    allowed = 2 * off + np.maximum(2 * off, MODEL) * (1.0 + np.abs(value) + 2 * size)
    doubt = 2 * terms * UNIT * magnitude + added(weight * allowed)
    return constant, slopes, doubt


def lower_of(certificate: Derivation, sums: WeightedSums) -> Float[np.ndarray, " nodes"]:
    """Bounds of the log of the goal of nodes whose goal has weight 1, and inf where constraints alone are positive.

    Raises:
        Refuted: weights that bound nothing.
    """
    goal, least = sums.weights[:, 0], sums.least
    unsettled = np.flatnonzero((goal > 0) & (np.abs(goal - 1.0) > SINGLE))
    if len(unsettled):
        node = int(unsettled[0])
        raise Refuted(f"{certificate.named(node)}: the goal's weights add to {goal[node]:.9g}, not to 1")
    idle = np.flatnonzero((goal == 0) & ~(least > 0))
    if len(idle):
        node = int(idle[0])
        raise Refuted(
            f"{certificate.named(node)}: its constraints, so weighted, are {least[node]:.3g} somewhere in the box:"
            " they do not rule it out"
        )
    return np.where(goal > 0, per_unit(least, goal), np.inf)


def per_unit(least: Float[np.ndarray, " nodes"], weight: Float[np.ndarray, " nodes"]) -> Float[np.ndarray, " nodes"]:
    """Lower bound of a row of which so much is at least `least`, rounded down."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nextafter(least / weight - 4 * UNIT * np.abs(least), -np.inf)
