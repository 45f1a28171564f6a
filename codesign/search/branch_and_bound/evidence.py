"""Evidence of the bound of each plan or group, recorded while a certified search runs, so that others can check it.

A bound is the least, over the cube, of a weighted sum of tangents: points where the rows were linearised, with which
sharpness of the maxima, and a weight for each row at each point. Without the goal among the weights it says that the
constraints cannot hold together. Bounds only rise, so the last note of a number is what its bound rests on; parts of
groups rest on the note of their group until they have a better one.

`codesign verify` reads what is kept here and computes every bound anew.

Source: see docs/optimisation.md, section 5.
"""

import abc
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ..base import Evidence
from .model_oracle import AbstractModelOracle
from .node_relaxation import GroupOracle
from .range_oracle import RangeOracle

KINDS = {"round": np.int16, "node": np.int32, "point": np.int32, "row": np.int16, "weight": np.float64}
VERSION = 1  # of the layout of `Evidence`
SINGLE = 2.0**-24  # relative error of a number in single precision
REACH = 32.0  # log that no tangent exceeds anywhere in the cube, roughly: what rounding a weight may cost


class LinearisationPoints:
    """Points that rows were linearised at, with the sharpness of the maxima there, each by its number."""

    def __init__(self) -> None:
        self._points: list[tuple[np.ndarray, np.ndarray]] = []
        self._placed = 0

    def index_of(self, u: Float[np.ndarray, "k n"], sharpness: np.ndarray | float) -> Int[np.ndarray, " k"]:
        """Numbers of these points."""
        first, self._placed = self._placed, self._placed + len(u)
        self._points.append((u.copy(), np.broadcast_to(np.asarray(sharpness, dtype=float), (len(u),))))
        return np.arange(first, self._placed)

    def distinct(self, points: Int[np.ndarray, " k"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(points, sharpness, number of each asked one among them), every point once."""
        used, where = np.unique(points, return_inverse=True)
        begins = np.cumsum([0, *(len(u) for u, _ in self._points)])
        chunk = np.searchsorted(begins, used, side="right") - 1
        rows = [
            np.concatenate([u[mine], sharpness[mine, None]], axis=1)
            for k, (u, sharpness) in enumerate(self._points)
            if len(mine := used[chunk == k] - begins[k])
        ]
        distinct, again = np.unique(np.concatenate(rows), axis=0, return_inverse=True)
        return distinct[:, :-1], distinct[:, -1], again.reshape(-1)[where]


class AbstractListener(abc.ABC):
    """Is told what bounds rest on; `places` numbers the points, `count` numbers are given out to nodes."""

    places: LinearisationPoints
    count: int = 0

    def grow(self, count: int) -> None:
        """So many numbers are given out from now on."""
        self.count = count

    @abc.abstractmethod
    def note(
        self,
        plan: Int[np.ndarray, " k"],
        at: Int[np.ndarray, "k cuts"],
        weights: Float[np.ndarray, "k cuts rows"],
        value: Float[np.ndarray, " k"],
        higher: Bool[np.ndarray, " k"],
    ) -> None:
        """Note the bound from tangents at these points with these weights; a point of -1 says nothing.

        value: least of the weighted tangents over the cube; higher: where that raises a bound.
        """

    @abc.abstractmethod
    def inherit(self, part: Int[np.ndarray, " k"], group: Int[np.ndarray, " k"]) -> None:
        """Bounds of parts rest on what bounds their groups."""


class Recorder(AbstractListener):
    """Takes notes: points that are linearised at, and which weights raised which bound.

    source: for every number the note that its bound rests on; -1 where nothing bounds it yet.
    """

    def __init__(self) -> None:
        self.source = np.zeros(0, dtype=np.int64)
        self.places = LinearisationPoints()
        self._plan: list[np.ndarray] = []
        self._at: list[np.ndarray] = []
        self._weights: list[np.ndarray] = []
        self._noted = 0

    def grow(self, count: int) -> None:
        """Make room for so many numbers."""
        new = np.full(max(count - len(self.source), 0), -1)
        self.source = np.concatenate([self.source, new])

    def note(
        self,
        plan: Int[np.ndarray, " k"],
        at: Int[np.ndarray, "k cuts"],
        weights: Float[np.ndarray, "k cuts rows"],
        value: Float[np.ndarray, " k"],
        higher: Bool[np.ndarray, " k"],
    ) -> None:
        """Keep what raises bounds; see `AbstractListener`."""
        plan, at, weights = plan[higher], at[higher], weights[higher]
        self.source[plan] = self._noted + np.arange(len(plan))
        self._noted += len(plan)
        self._plan.append(plan)
        self._at.append(at)
        self._weights.append(weights)

    def inherit(self, part: Int[np.ndarray, " k"], group: Int[np.ndarray, " k"]) -> None:
        """Bounds of parts rest on what bounds their groups."""
        self.source[part] = self.source[group]

    def retained_cuts(
        self, some: Int[np.ndarray, " k"], room: Float[np.ndarray, " k"]
    ) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """(numbers of the nodes, columns of cuts, points, sharpness) that the bounds of `some` rest on.

        Where `room`, the log by which a bound exceeds what is claimed, allows it, weights are rounded to single
        precision and those of no account are left out.
        """
        notes = np.unique(self.source[some])
        least = np.full(len(notes), np.inf)
        np.minimum.at(least, np.searchsorted(notes, self.source[some]), room)
        begins = np.cumsum([0, *(len(part) for part in self._plan)])
        columns: dict[str, list[np.ndarray]] = {name: [] for name in ("node", "point", "row", "weight")}
        nodes: list[np.ndarray] = []
        last = 0
        for k, (plan, at, weights) in enumerate(zip(self._plan, self._at, self._weights, strict=True)):
            mine = notes[(notes >= begins[k]) & (notes < begins[k + 1])] - begins[k]
            here = _rounded(weights[mine], least[last : last + len(mine)])
            lane, cut, row = np.nonzero(here)
            nodes.append(plan[mine])
            result = (last + lane, at[mine[lane], cut], row, here[lane, cut, row])
            for column, values in zip(columns.values(), result, strict=True):
                column.append(values)
            last += len(mine)
        cuts = {name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in columns.items()}
        points, sharpness, cuts["point"] = self.places.distinct(cuts["point"])
        return np.concatenate(nodes), cuts, points, sharpness


def _rounded(weights: Float[np.ndarray, "k cuts rows"], room: Float[np.ndarray, " k"]) -> np.ndarray:
    """Weights in single precision without the smallest, where the bound has room for what that costs.

    Those of the goal still add to 1: many small ones that are left out go to the others.
    """
    total = weights.sum(axis=(1, 2), keepdims=True)
    cheap = np.where(weights < SINGLE * total, 0.0, weights)
    goal, cheap_goal = weights[:, :, 0].sum(axis=1), cheap[:, :, 0].sum(axis=1)
    room = np.where((goal > 0) & (cheap_goal == 0), -np.inf, room)
    cheap[:, :, 0] *= np.divide(goal, cheap_goal, out=np.ones_like(goal), where=cheap_goal > 0)[:, None]
    cheap = cheap.astype(np.float32).astype(float)
    cost = REACH * (np.abs(cheap - weights).sum(axis=(1, 2)) + SINGLE * total[:, 0, 0])
    return np.where((cost < room)[:, None, None], cheap, weights)


def evidence_of(
    oracle: AbstractModelOracle,
    recorder: Recorder,
    rows: tuple[str, ...],
    frontier: Bool[np.ndarray, " numbers"],
    lower: Float[np.ndarray, " numbers"],
    bound: float,
    variables: tuple[str, ...] | None = None,
) -> Evidence | None:
    """Collect the evidence of the frontier's bounds; None where a part of it has no bound.

    Args:
        oracle: numbers and their plans.
        recorder: has the notes.
        rows: of the weights, the goal first.
        frontier: numbers that together stand for all plans.
        lower: their bounds, logs.
        bound: the claim, a log.
        variables: of the points that were noted, where the others are held; by default all.
    """
    variables = oracle.variables if variables is None else variables
    some = np.flatnonzero(frontier)
    if (recorder.source[some] < 0).any():
        return None
    room = np.zeros(len(some))
    finite = np.isfinite(lower[some]) & math.isfinite(bound)
    room[finite] = lower[some][finite] - bound
    nodes, cuts, points, sharpness = recorder.retained_cuts(some, room)
    header, columns = nodes_of(oracle, nodes)
    header |= {"version": VERSION, "rows": list(rows), "variables": list(variables)}
    tables = {"nodes": columns, "points": table_of_points(variables, points, sharpness), "cuts": table_of_cuts(cuts)}
    return Evidence(header, tables)


def table_of_points(variables: Sequence[str], points: np.ndarray, sharpness: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of points as they are kept."""
    return {f"u.{name}": points[:, i] for i, name in enumerate(variables)} | {"sharpness": sharpness}


def table_of_cuts(cuts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns of cuts as they are kept."""
    return {name: np.asarray(column).astype(KINDS[name]) for name, column in cuts.items()}


def together(parts: Sequence[Evidence], values: Mapping[str, Sequence[float]]) -> Evidence:
    """One of several that differ in what some variables are held at: these are fields of the nodes from now on.

    Args:
        parts: one a combination.
        values: variable -> its value in each of them.
    """
    lists = {name: np.unique(np.asarray(values[name], dtype=float)) for name in sorted(values)}
    held = {name: listed.tolist() for name, listed in lists.items()}
    nodes: list[Mapping[str, np.ndarray]] = []
    for k, part in enumerate(parts):
        nodes_of_part = part.tables["nodes"]
        indices = {name: np.searchsorted(lists[name], values[name][k]) for name in lists}
        nodes.append(nodes_of_part | {
            f"{end}.{name}": np.full(len(nodes_of_part["number"]), at, dtype=np.int32)
            for name, at in indices.items()
            for end in ("low", "high")
        })  # fmt: skip
    return Evidence(parts[0].header | ({"held": held} if held else {}), stacked(parts, nodes))


def stacked(parts: Sequence[Evidence], columns: Sequence[Mapping[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    """Tables of several as one, with these nodes; numbers of nodes and points go on from one to the next."""
    tables: dict[str, list[Mapping[str, np.ndarray]]] = {"nodes": [], "points": [], "cuts": []}
    nodes = points = 0
    for part, mine in zip(parts, columns, strict=True):
        there, cuts = part.tables["points"], part.tables["cuts"]
        tables["nodes"].append({**mine, "number": mine["number"] + np.int32(nodes)})
        tables["points"].append(there)
        moved = {"node": cuts["node"] + np.int32(nodes), "point": cuts["point"] + np.int32(points)}
        tables["cuts"].append({**cuts, **moved})
        nodes, points = nodes + len(mine["number"]), points + len(there["sharpness"])
    return {
        name: {column: np.concatenate([table[column] for table in each]) for column in each[0]}
        for name, each in tables.items()
    }


def nodes_of(oracle: AbstractModelOracle, nodes: np.ndarray) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(plan fields with their values and which rows share a view, the nodes as ranges of places)."""
    fields = list(oracle.problem.space.plan)
    lists = {name: np.unique(oracle.problem.space.lists[name]) for name in fields}
    header: dict[str, Any] = {"plan": {name: values.tolist() for name, values in lists.items()}, "views": {}}
    columns: dict[str, np.ndarray] = {"number": np.arange(len(nodes), dtype=np.int32)}
    first = last = oracle.columns(nodes)  # of a group, the first value of each range
    if isinstance(oracle, RangeOracle):
        header["ranges"] = True
        first, last = oracle.ends(nodes)
    for name in fields:
        columns[f"low.{name}"], columns[f"high.{name}"] = (
            np.searchsorted(lists[name], table[name]).astype(np.int32) for table in (first, last)
        )
    if not isinstance(oracle, GroupOracle):
        return header, columns
    tree = oracle.tree
    for j, name in enumerate(tree.inner):
        columns[f"high.{name}"] = tree.high[nodes, j].astype(np.int32)
    for k, view in enumerate(oracle.views):
        header["views"][str(k)] = [oracle.names[row] for row in view.rows]
        for j, name in enumerate(tree.inner):
            columns[f"best.{k}.{name}"] = view.best[j][tree.low[nodes, j], tree.high[nodes, j]].astype(np.int32)
    return header, columns
