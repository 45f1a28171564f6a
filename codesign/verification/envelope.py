"""Envelope of a front's statements: the least that they leave the first metric, over all values of the others."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .derivation import Refuted
from .front_claims import SAME, VALUE, Front, Statements


@dataclass(frozen=True)
class Envelope:
    """Cells between all levels, in each of which the same statements hold.

    edges: of each metric but the first, rising: what it is at least, the levels, infinity; bound: of the first metric
    within each cell, its upper edges included.
    """

    edges: list[Float[np.ndarray, " _"]]
    bound: Float[np.ndarray, "*cells"]

    def cell(self, values: Float[np.ndarray, "designs metrics"]) -> tuple[Int[np.ndarray, " designs"], ...]:
        """Cell of each design; -1 along a metric that is less than it can be."""
        return tuple(np.searchsorted(edge, values[:, k]) - 1 for k, edge in enumerate(self.edges, start=1))

    def impossible(self, values: Float[np.ndarray, "designs metrics"]) -> Int[np.ndarray, " some"]:
        """Designs that some statement says cannot be."""
        at = self.cell(values)
        below = np.logical_or.reduce([place < 0 for place in at])
        return np.flatnonzero(below | (values[:, 0] < self.bound[tuple(np.maximum(place, 0) for place in at)]))


def envelope(statements: Statements, more: Float[np.ndarray, "points metrics"]) -> Envelope:
    """Return the envelope of these statements; `more` are points whose coordinates are edges too."""
    own, edges = statements.some(np.flatnonzero(statements.metric == 0)), list[np.ndarray]()
    for k in range(1, statements.level.shape[1]):
        alone = (statements.metric == k) & np.isinf(statements.level).all(axis=1)
        least = float(statements.bound[alone].max(initial=-np.inf))
        places = np.unique(np.concatenate([own.level[:, k], more[:, k]]))
        edges.append(np.concatenate([[least], places[np.isfinite(places) & (places > least)], [np.inf]]))
    bound = np.full([len(edge) - 1 for edge in edges], -np.inf)
    last = [np.searchsorted(edge, own.level[:, k], side="right") - 2 for k, edge in enumerate(edges, start=1)]
    some = np.logical_and.reduce([at >= 0 for at in last])
    np.maximum.at(bound, tuple(at[some] for at in last), own.bound[some])
    for axis in range(bound.ndim):
        bound = np.flip(np.maximum.accumulate(np.flip(bound, axis), axis=axis), axis)
    return Envelope(edges, bound)


def check_corners(front: Front) -> str:
    """The corners lie below every design that the statements allow, and the volumes are those of corners and designs.

    In each cell a corner at its lower edges or below must be no more than what the statements leave there.

    Raises:
        Refuted: a cell that no corner covers, or another volume.
    """
    told = front.told
    reference = front.logs_of([[told["reference"][name] for name in front.metrics]])[0]
    _check_volume("hypervolume", told, front.logs, reference)
    if told["hypervolume_at_most"] is None and not told["corners"]:
        return f"hypervolume {told['hypervolume']:.6g}; nothing is claimed of any front whatever"
    corners = front.logs_of(told["corners"])
    left = envelope(front.statements, corners)
    corner = np.full(left.bound.shape, np.inf)
    first = [np.searchsorted(edge, corners[:, k] - SAME) for k, edge in enumerate(left.edges, start=1)]
    some = np.logical_and.reduce([at < size for at, size in zip(first, corner.shape, strict=True)])
    np.minimum.at(corner, tuple(at[some] for at in first), corners[some, 0])
    for axis in range(corner.ndim):
        corner = np.minimum.accumulate(corner, axis=axis)
    if not ((corner <= left.bound + SAME) | np.isposinf(left.bound)).all():
        raise Refuted("the corners do not lie below every design that the statements allow")
    _check_volume("hypervolume_at_most", told, corners, reference)
    return f"hypervolume {told['hypervolume']:.6g}, of any front whatever at most {told['hypervolume_at_most']:.6g}"


def _check_volume(name: str, told: Mapping[str, Any], points: np.ndarray, reference: np.ndarray) -> None:
    known = volume(points, reference)
    if told[name] is None or not math.isclose(told[name], known, rel_tol=1e-9, abs_tol=VALUE):
        raise Refuted(f"{name} is {known:.9g}, claimed is {told[name]}")


def volume(points: Float[np.ndarray, "points metrics"], reference: Float[np.ndarray, " metrics"]) -> float:
    """Hypervolume: of all that some point is no worse than, up to the reference.

    Slab by slab along the first metric; each is a sum over the cells of the grid of all other coordinates.
    """
    inside = points[(points < reference).all(axis=1)]
    inside = inside[np.argsort(inside[:, 0], kind="stable")]
    edges = [np.unique(column) for column in inside[:, 1:].T]
    sizes = [np.diff(np.append(edge, last)) for edge, last in zip(edges, reference[1:], strict=True)]
    place: list[np.ndarray] = [
        np.searchsorted(edge, column) for edge, column in zip(edges, inside[:, 1:].T, strict=True)
    ]
    filled, total = np.zeros([len(edge) for edge in edges], dtype=bool), 0.0
    for i, width in enumerate(np.diff(np.append(inside[:, 0], reference[0]))):
        filled[tuple(slice(at[i], None) for at in place)] = True
        if width > 0:
            area = filled.astype(float)
            for size in reversed(sizes):
                area = area @ size
            total += float(width * area)
    return total
