"""Evidence of the bound of a mix, kept for `codesign verify`: rounds of duals, and the tangents of the plans left.

A round leans every workload's goal by its duals and bounds each plan's leaned goal; what reaches the claim is dropped
from the rounds that follow. Kept are only the rounds without which the claim would not follow, with the weights of the
plans that are still in question there, and, where tuples are left at the end, tangents of their plans.

Source: see docs/optimisation.md, section 5.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ..base import Evidence
from ..blend import Blend
from ..branch_and_bound.bounding import Bounding
from ..branch_and_bound.evidence import VERSION, Recorder, table_of_cuts, table_of_points
from ..branch_and_bound.model_oracle import Oracle
from .alternating import Member, PlanEvaluation
from .master_problem import LagrangianDuals, chosen_cuts

KIND = "mix"  # of the certificate
ALONE = "alone"  # of one that says that a workload has no feasible design, whatever the hardware
ROUNDING = 1e-10  # log that a bound may miss the claim by, put together in another order


@dataclass(frozen=True)
class Priced:
    """Bounds of one workload's leaned goals: `lower` of its `priced` plans, and the notes that they rest on."""

    recorder: Recorder
    lower: Float[np.ndarray, " plans"]
    priced: Bool[np.ndarray, " plans"]


@dataclass(frozen=True)
class Round:
    """One pricing of all workloads. `alone`: of goals as they are, without duals, on hardware of their own."""

    lean: LagrangianDuals
    sides: list[Priced]
    alone: bool = False


@dataclass(frozen=True)
class WholeShares:
    """The programme over whole shares that gave the bound: plans of each workload, tangents of each, of the blend."""

    inside: list[np.ndarray]
    cuts: list[list[list[PlanEvaluation]]]
    points: Float[np.ndarray, "points members"]

    @classmethod
    def of(cls, members: Sequence[Member], inside: list[np.ndarray], points: Sequence[np.ndarray]) -> "WholeShares":
        """With the tangents that the programme has now."""
        cuts = [[chosen_cuts(m.seen[p]) for p in mine.tolist()] for m, mine in zip(members, inside, strict=True)]
        return cls(inside, cuts, np.array(points))


def round_alone(boundings: Sequence[Bounding], blend: Blend) -> Round | None:
    """Every workload on hardware of its own, as a round: the blend's tangent at their bounds, no price on hardware."""
    least = np.array([[float(bounding.lower.min()) for bounding in boundings]])
    recorders = [bounding.recorder for bounding in boundings if isinstance(bounding.recorder, Recorder)]
    if len(recorders) < len(boundings) or not np.isfinite(least).all():
        return None
    value, weights = blend.tangent(least)
    constant = float(value[0] - (weights[0] * least[0]).sum())
    lean = LagrangianDuals(weights[0], np.zeros((len(boundings), boundings[0].width)), constant, least, np.ones(1))
    sides: list[Priced] = []
    for weight, bounding, recorder in zip(weights[0], boundings, recorders, strict=True):
        finite = np.isfinite(bounding.lower)
        lower = np.where(finite, weight * np.where(finite, bounding.lower, 0.0), bounding.lower)
        sides.append(Priced(recorder, lower, np.ones(len(lower), dtype=bool)))
    return Round(lean, sides, alone=True)


@dataclass(frozen=True)
class _Replay:
    """Replayed rounds: plans of each workload whose floor lies below the claim; plans asked and room, by round."""

    left: list[np.ndarray]
    open_plans: list[list[np.ndarray]]
    room: list[list[np.ndarray]]

    def proves(self, integer_shares: WholeShares | None) -> bool:
        """Nothing is left of a workload, or only what the whole programme covers."""
        if any(not left.any() for left in self.left):
            return True
        if integer_shares is None:
            return False
        return all(
            np.isin(np.flatnonzero(left), mine).all()
            for left, mine in zip(self.left, integer_shares.inside, strict=True)
        )


def _replayed(rounds: Sequence[Round], counts: Sequence[int], claim: float) -> _Replay | None:
    """Drop plans round by round by what the notes say; None where a plan that is asked for has no bound."""
    left = [np.ones(count, dtype=bool) for count in counts]
    floors = [np.full(count, -np.inf) for count in counts]
    result = _Replay(left, [], [])
    for one in rounds:
        if any((side.recorder.source[mine] < 0).any() for side, mine in zip(one.sides, left, strict=True)):
            return None
        result.open_plans.append([mine.copy() for mine in left])
        least = [
            float(np.min(side.lower, where=mine, initial=np.inf)) for side, mine in zip(one.sides, left, strict=True)
        ]
        bound = one.lean.constant + sum(least)
        room: list[np.ndarray] = []
        for k, side in enumerate(one.sides):
            above = side.lower - least[k] if math.isfinite(least[k]) else np.zeros(len(side.lower))
            floors[k] = np.maximum(floors[k], np.where(left[k], bound + above, -np.inf))
            spare = np.where(floors[k] >= claim, floors[k] - claim, np.inf)
            room.append(np.where(np.isfinite(side.lower), np.minimum(above, spare), 0.0))
        for mine, floor in zip(left, floors, strict=True):
            mine &= floor < claim
        result.room.append(room)
    return result


def needed(
    rounds: Sequence[Round], integer_shares: WholeShares | None, counts: Sequence[int], claim: float
) -> list[Round] | None:
    """Rounds without which the claim would not follow; None where it does not follow from all of them."""
    retained = list(rounds)
    if not _proves(retained, integer_shares, counts, claim):
        return None
    for one in rounds:
        fewer = [other for other in retained if other is not one]
        if _proves(fewer, integer_shares, counts, claim):
            retained = fewer
    return retained


def _proves(rounds: Sequence[Round], integer_shares: WholeShares | None, counts: Sequence[int], claim: float) -> bool:
    result = _replayed(rounds, counts, claim)
    return result is not None and result.proves(integer_shares)


def evidence_of_mix(
    members: Sequence[Member],
    oracles: Sequence[Oracle],
    blend: Blend,
    rounds: Sequence[Round],
    integer_shares: WholeShares | None,
    lower: float,
    claim: Mapping[str, Any],
) -> Evidence | None:
    """The notes that `lower` follows from; None where they are not all there.

    Args:
        members: programmes of the workloads.
        oracles: number of a plan -> its fields, for each.
        blend: of their goals.
        rounds: in order; the plans dropped by one are not in the next.
        integer_shares: the programme over what these leave.
        lower: log of the bound.
        claim: what is claimed, in values.
    """
    counts = [member.count for member in members]
    alone = [one for one in rounds if one.alone]
    leaning = [one for one in rounds if not one.alone]
    target = lower - ROUNDING
    retained = needed(alone, None, counts, target)
    retained, integer_shares = (
        (retained, None) if retained else (needed(leaning, integer_shares, counts, target), integer_shares)
    )
    result = None if retained is None else _replayed(retained, counts, target)
    if retained is None or result is None:
        return None
    first = np.concatenate([[0], np.cumsum(counts)])
    tables = _Tables(members[0].programme.oracle.variables)
    for number, one in enumerate(retained):
        for k, side in enumerate(one.sides):
            some = np.flatnonzero(result.open_plans[number][k])
            scale = float(one.lean.weights[k]) if one.alone else 1.0
            tables.round(number, int(first[k]), side.recorder.retained_cuts(some, result.room[number][k][some]), scale)
    points: list[list[float]] = []
    if integer_shares is not None and all(left.any() for left in result.left):
        _add_integers(tables, integer_shares, result.left, first)
        points = integer_shares.points.tolist()
    header = {
        "kind": KIND,
        "version": VERSION,
        "variables": list(members[0].programme.oracle.variables),
        "offset": np.broadcast_to(blend.offset, len(members)).tolist(),
        "workloads": [
            {"name": member.name, "rows": list(member.programme.rows), "plan": _values(oracle)}
            for member, oracle in zip(members, oracles, strict=True)
        ],
        "rounds": [
            {"points": r.lean.points.tolist(), "shares": r.lean.shares.tolist(), "slopes": r.lean.slopes.tolist()}
            for r in retained
        ],
        "points": points,
        "claim": dict(claim),
    }
    return Evidence(header, tables.columns | {"nodes": _nodes(oracles)})


def _add_integers(tables: "_Tables", shares: WholeShares, left: Sequence[np.ndarray], first: np.ndarray) -> None:
    """Add the tangents of the programme over integer shares, of the plans that no round ruled out."""
    for k, mine in enumerate(shares.inside):
        for plan, seen in zip(mine.tolist(), shares.cuts[k], strict=True):
            if left[k][plan]:
                tables.add_integer(int(first[k]) + plan, seen)


def _values(oracle: Oracle) -> dict[str, list[float]]:
    """Plan field -> its values, rising."""
    return {name: np.unique(oracle.problem.space.lists[name]).tolist() for name in oracle.problem.space.plan}


def _nodes(oracles: Sequence[Oracle]) -> dict[str, np.ndarray]:
    """Every plan of every workload: places of its fields' values, -1 for fields that a workload does not have."""
    names = list(dict.fromkeys(name for oracle in oracles for name in oracle.problem.space.plan))
    columns = {"workload": np.repeat(np.arange(len(oracles), dtype=np.int32), [o.count for o in oracles])}
    for name in names:
        parts: list[np.ndarray] = []
        for oracle in oracles:
            values = _values(oracle).get(name)
            values_index = np.full(oracle.count, -1) if values is None else np.searchsorted(values, oracle.plans[name])
            parts.append(values_index.astype(np.int32))
        columns[f"at.{name}"] = np.concatenate(parts)
    return columns


class _Tables:
    """Points and cuts, put together."""

    def __init__(self, variables: Sequence[str]):
        self.variables = variables
        self.points: list[np.ndarray] = []
        self.placed = 0
        self.cuts: dict[str, list[np.ndarray]] = {name: [] for name in ("round", "node", "point", "row", "weight")}
        self.tangents: tuple[list[int], list[np.ndarray]] = ([], [])

    def round(self, number: int, first: int, retained: tuple[np.ndarray, dict[str, np.ndarray], np.ndarray, np.ndarray],
              scale: float) -> None:  # fmt: skip
        """Notes of one workload in one round; `scale`: of the weights of constraints beside a goal's."""
        nodes, cuts, points, sharpness = retained
        weight, row = cuts["weight"], cuts["row"].astype(int)
        goal = np.bincount(cuts["node"], weights=np.where(row == 0, weight, 0.0), minlength=len(nodes)) > 0
        weight = np.where((row > 0) & goal[cuts["node"]], scale * weight, weight)
        plan = first + nodes[cuts["node"]]
        result = (np.full(len(plan), number), plan, cuts["point"] + self.placed, row, weight)
        for column, values in zip(self.cuts.values(), result, strict=True):
            column.append(values)
        self.points.append(np.column_stack([points, sharpness]))
        self.placed += len(points)

    def add_integer(self, node: int, seen: Sequence[PlanEvaluation]) -> None:
        """Tangents of one plan that is left."""
        self.tangents[0].extend([node] * len(seen))
        self.tangents[1].extend(np.append(one.u, one.sharpness) for one in seen)

    @property
    def columns(self) -> dict[str, dict[str, np.ndarray]]:
        """The tables."""
        width = len(self.variables) + 1
        extra = np.array(self.tangents[1]).reshape(-1, width)
        points, number = np.unique(np.concatenate([*self.points, extra]), axis=0, return_inverse=True)
        number = number.reshape(-1).astype(np.int32)
        cuts = table_of_cuts({name: np.concatenate([np.zeros(0), *parts]) for name, parts in self.cuts.items()})
        cuts["point"] = number[cuts["point"]]
        return {
            "points": table_of_points(self.variables, points, points[:, -1]),
            "cuts": cuts,
            "tangents": {"node": np.array(self.tangents[0], dtype=np.int32), "point": number[self.placed :]},
        }
