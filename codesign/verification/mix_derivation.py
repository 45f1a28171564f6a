"""A certificate of a mix as it was left: plans of every workload, rounds of duals, points, weights, tangents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .derivation import (
    VERSION,
    Derivation,
    Refuted,
    StatedClaim,
    claim_of,
    column_table,
    derivation_of,
    refuse_unread,
)

KIND = "mix"
STRAY = 1e-6  # by which prices on hardware may miss zero, and shares 1; what they miss is charged


@dataclass(frozen=True)
class Duals:
    """One round: `shares` of the blend's tangents at `points` (logs of goals), `slopes` the price on hardware."""

    points: Float[np.ndarray, "points workloads"]
    shares: Float[np.ndarray, " points"]
    slopes: Float[np.ndarray, "workloads variables"]


@dataclass(frozen=True)
class Part:
    """Certificate of one workload: its plans and cuts (`plans`), the round of each cut, tangents of single plans."""

    name: str
    plans: Derivation
    round: Int[np.ndarray, " cuts"]
    tangent_node: Int[np.ndarray, " tangents"]
    tangent_point: Int[np.ndarray, " tangents"]


@dataclass(frozen=True)
class MixDerivation:
    """Derivation of the bound of a mix.

    offset: of the log of each goal; rounds: in order; points: logs of goals at which the blend is linearised for the
    tuples that these leave.
    """

    claim: StatedClaim
    parts: tuple[Part, ...]
    offset: Float[np.ndarray, " workloads"]
    rounds: tuple[Duals, ...]
    points: Float[np.ndarray, "points workloads"]


def mix_derivation_of(header: Mapping[str, Any], tables: Mapping[str, Mapping[str, np.ndarray]]) -> MixDerivation:
    """The certificate of these numbers, with everything checked that needs no model.

    Raises:
        Refuted: parts that are missing, numbers that point nowhere, signs that are wrong, prices that do not cancel.
    """
    try:
        if header["kind"] != KIND or header["version"] != VERSION:
            raise Refuted(f"certificate.json has kind {header['kind']!r} and layout {header['version']}")
        claim = claim_of(dict[str, Any](design={}) | dict(header["claim"]))
        counts, workloads = dict(header["counts"]), [dict(each) for each in header["workloads"]]
        variables = [str(name) for name in header["variables"]]
        shape = len(workloads), len(variables)
        offset = _numbers(header["offset"], (shape[0],), "offset")
        rounds = tuple(_duals(number, one, *shape) for number, one in enumerate(header["rounds"]))
        points = _numbers(header["points"], (-1, shape[0]), "points")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refuted(f"certificate.json cannot be read: {type(error).__name__} {error}") from error
    for name in ("nodes", "points", "cuts", "tangents"):
        lengths = {len(column) for column in tables.get(name, {}).values()}
        if lengths != {counts.get(name)}:
            result = " and ".join(map(str, sorted(lengths))) or "no"
            raise Refuted(f"{name}.parquet has {result} rows, certificate.json says {counts.get(name)}")
    parts = _parts(workloads, variables, tables, len(rounds))
    return MixDerivation(claim, parts, offset, rounds, points)


def _numbers(values: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    """An array of this shape.

    Raises:
        Refuted: it has another, or holds what is no number.
    """
    array = np.asarray(values, dtype=float)
    if array.size == 0 and -1 in shape:
        return np.zeros(tuple(max(n, 0) for n in shape))
    if array.ndim != len(shape) or any(n not in (-1, m) for n, m in zip(shape, array.shape, strict=True)):
        raise Refuted(f"certificate.json: {what} has shape {array.shape}")
    if not np.isfinite(array).all():
        raise Refuted(f"certificate.json: {what} is not finite")
    return array


def _duals(number: int, stored: Mapping[str, Any], workloads: int, variables: int) -> Duals:
    """A round whose shares are a mean and whose prices on hardware cancel, up to rounding."""
    what = f"round {number}:"
    points = _numbers(stored["points"], (-1, workloads), f"{what} points")
    shares = _numbers(stored["shares"], (len(points),), f"{what} shares")
    slopes = _numbers(stored["slopes"], (workloads, variables), f"{what} slopes")
    if (shares < 0).any() or not abs(shares.sum() - 1.0) <= STRAY:
        raise Refuted(f"{what} the shares of the blend's tangents are negative or add to {shares.sum():.9g}, not to 1")
    stray = float(np.abs(slopes.sum(axis=0)).max(initial=0.0))
    if stray > STRAY:
        raise Refuted(f"{what} the workloads' prices on hardware add to {stray:.3g}, not to zero")
    return Duals(points, shares / shares.sum(), slopes)


def _parts(
    workloads: Sequence[Mapping[str, Any]],
    variables: list[str],
    tables: Mapping[str, Mapping[str, np.ndarray]],
    rounds: int,
) -> tuple[Part, ...]:
    nodes, cuts, tangents = tables["nodes"], tables["cuts"], tables["tangents"]
    workload = column_table(nodes, ["workload"], "nodes", int)[:, 0]
    node, number = column_table(cuts, ["node", "round"], "cuts", int).T
    tangent_node, point = column_table(tangents, ["node", "point"], "tangents", int).T
    fields = {name for entry in workloads for name in entry["plan"]}
    refuse_unread("nodes", nodes, {"number", "workload", *(f"at.{name}" for name in fields)})
    refuse_unread("tangents", tangents, {"node", "point"})
    count = len(next(iter(tables["points"].values())))
    _within(workload, len(workloads), "nodes.parquet: workload")
    _within(node, len(workload), "cuts.parquet: node")
    _within(number, rounds, "cuts.parquet: round")
    _within(tangent_node, len(workload), "tangents.parquet: node")
    _within(point, count, "tangents.parquet: point")
    node_index = np.zeros(len(workload), dtype=np.int64)  # of a node among those of its workload
    parts: list[Part] = []
    for k, entry in enumerate(workloads):
        name, mine = str(entry["name"]), workload == k
        node_index[mine] = np.arange(mine.sum())
        part_cuts, seen = np.flatnonzero(mine[node]), mine[tangent_node]
        columns: dict[str, np.ndarray] = {"number": node_index[mine]}
        for field in entry["plan"]:
            at = column_table(nodes, [f"at.{field}"], "nodes", int)[mine, 0]
            columns |= {f"low.{field}": at, f"high.{field}": at}
        part_tables = {
            "nodes": columns,
            "points": tables["points"],
            "cuts": {column: np.asarray(values)[part_cuts] for column, values in cuts.items()}
            | {"node": node_index[node[part_cuts]]},
        }
        header = {
            "claim": {"goal": "", "sense": "minimise", "infeasible": False},
            "rows": entry["rows"], "plan": entry["plan"], "variables": variables, "views": {}, "version": VERSION,
            "counts": {"nodes": int(mine.sum()), "points": count, "cuts": len(part_cuts)},
        }  # fmt: skip
        try:
            plans = derivation_of(header, part_tables)
        except Refuted as why:
            raise Refuted(f"{name}: {why}") from why
        parts.append(Part(name, plans, number[part_cuts], node_index[tangent_node[seen]], point[seen]))
    return tuple(parts)


def _within(column: np.ndarray, count: int, what: str) -> None:
    """Numbers of something that there is.

    Raises:
        Refuted: naming the first that is none.
    """
    wrong = np.flatnonzero((column < 0) | (column >= count))
    if len(wrong):
        raise Refuted(f"{what} {column[wrong[0]]} does not exist, there are {count}")
