"""A front as it was left: its designs, what is claimed of each, and the statements that these claims follow from."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ..study.objective import feasible_logs
from .derivation import Refuted, refuse_unread
from .inequality import SINGLE, UNIT, Sums, per_unit

SAME = 1e-8  # relative; how far a design may lie beyond what holds it, for rounding
VALUE = 1e-11  # how well claimed values and those derived here must agree; statements must hold as they stand


@dataclass(frozen=True)
class Statements:
    """Statements: a metric is at least `bound` wherever the others keep to their levels; logs, less is better.

    metric: its place among the front's; level: inf where any value does; bound: inf where nothing keeps to the levels.
    """

    metric: Int[np.ndarray, " statements"]
    level: Float[np.ndarray, "statements metrics"]
    bound: Float[np.ndarray, " statements"]

    def __len__(self) -> int:
        return len(self.bound)

    def some(self, which: np.ndarray) -> "Statements":
        """Selected statements."""
        return Statements(self.metric[which], self.level[which], self.bound[which])

    def words(self, one: int, metrics: Sequence[str], signs: Sequence[float]) -> str:
        """`that time_s is at least 3.8 where usd_per_million_tokens keeps to 0.95`."""
        kept = [
            f"{name} keeps to {math.exp(sign * level):.9g}"
            for name, sign, level in zip(metrics, signs, self.level[one].tolist(), strict=True)
            if math.isfinite(level)
        ]
        k, bound = int(self.metric[one]), float(self.bound[one])
        where = f" where {' and '.join(kept)}" if kept else ""
        if math.isinf(bound):
            return f"that no design is feasible{where}"
        side = "at least" if signs[k] > 0 else "at most"
        return f"that {metrics[k]} is {side} {math.exp(signs[k] * bound):.9g}{where}"

    def strongest(self) -> "Statements":
        """Without those that follow from others."""
        more = (self.level[:, None] <= self.level[None]).all(axis=2) & (self.bound[:, None] <= self.bound[None])
        more &= self.metric[:, None] == self.metric[None]
        equal = more & more.T
        more &= ~equal | (np.arange(len(self))[:, None] > np.arange(len(self))[None])  # of equal ones the first stays
        return self.some(np.flatnonzero(~more.any(axis=1)))

    def broken(self, values: Float[np.ndarray, "designs metrics"]) -> Float[np.ndarray, " designs"]:
        """Log by which each design lies within what the worst statement for it says is impossible."""
        room = (self.level[None] - values[:, None]).min(axis=2)
        return np.minimum(room, self.bound - values[:, self.metric]).max(axis=1)

    def reached(self, one: int, sums: Sums, columns: Sequence[int]) -> Bool[np.ndarray, " nodes"]:
        """Nodes whose weighted tangents say it: metrics at most their levels, taken off with outward rounding.

        Args:
            one: which statement.
            sums: of the nodes.
            columns: places of the front's metrics among the rows.
        """
        least, size = sums.least.copy(), np.abs(sums.least)
        for k, level in enumerate(self.level[one].tolist()):
            weight = sums.weights[:, columns[k]]
            if k == self.metric[one]:
                continue
            taken = np.where(weight > 0, level, 0.0) * weight
            least, size = least - taken, size + np.abs(taken)
        own = sums.weights[:, columns[self.metric[one]]]
        least = np.where(
            np.isfinite(size), least - 4 * len(columns) * UNIT * np.where(np.isfinite(size), size, 0.0), -np.inf
        )
        bound = np.where(np.abs(own - 1.0) <= SINGLE, per_unit(least, own), -np.inf)
        bound = np.where((own == 0) & (least > 0), np.inf, bound)
        return bound >= self.bound[one]


@dataclass(frozen=True)
class Front:
    """Claims of a front.

    metrics, signs: the first metric is the one that is bounded; -1 where more is better. values: of the designs.
    designs: plan fields and hardware -> values. of: statement of each design. told: as the report has it.
    """

    metrics: tuple[str, ...]
    signs: tuple[float, ...]
    values: Float[np.ndarray, "designs metrics"]
    designs: dict[str, np.ndarray]
    of: Int[np.ndarray, " designs"]
    statements: Statements
    told: Mapping[str, Any]

    @property
    def logs(self) -> Float[np.ndarray, "designs metrics"]:
        """Values, less is better."""
        return np.log(self.values) * np.array(self.signs)

    @property
    def worst(self) -> float:
        """Largest relative distance of a design from its bound; inf where one has none."""
        return float(np.expm1(self.logs[:, 0] - self.statements.bound[self.of]).max(initial=0.0))

    def logs_of(self, values: Sequence[Mapping[str, float]] | Sequence[Sequence[float]]) -> np.ndarray:
        """Logs of values given one point after the other."""
        result = np.array(list(values), dtype=float).reshape(-1, len(self.metrics))
        return np.log(result) * np.array(self.signs)


def front_of(header: Mapping[str, Any], tables: Mapping[str, Mapping[str, np.ndarray]]) -> Front:
    """The front of a certificate.

    Raises:
        Refuted: missing parts, statements about nothing, numbers that no claim can have.
    """
    try:
        told = header["front"]
        metrics, more = tuple(map(str, told["metrics"])), set(map(str, told["maximised"]))
        signs = tuple(-1.0 if name in more else 1.0 for name in metrics)
        values = np.array([[float(one["values"][name]) for name in metrics] for one in told["points"]])
        kept, designs = tables["statements"], dict(tables["designs"])
        of = np.asarray(designs.pop("statement"), dtype=np.int64)
        refuse_unread("statements", kept, {"metric", "bound", *(f"level.{name}" for name in metrics[1:])})
        level = [np.asarray(kept[f"level.{name}"], dtype=float) for name in metrics[1:]]
        level = np.stack([np.full(len(kept["bound"]), np.inf), *level], axis=-1)
        metric = np.asarray(kept["metric"], dtype=np.int64)
        statements = Statements(metric, level, np.asarray(kept["bound"], dtype=float))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refuted(f"the front cannot be read: {type(error).__name__} {error}") from error
    result = Front(metrics, signs, values.reshape(-1, len(metrics)), designs, of, statements, told)
    _check(result)
    return result


def _check(front: Front) -> None:
    statements, count = front.statements, len(front.metrics)
    if not (np.isfinite(front.values).all() and (front.values > 0).all()):
        raise Refuted("a design of the front has a value that is no positive number")
    if np.isnan(statements.level).any() or np.isnan(statements.bound).any():
        raise Refuted("statements.parquet: a level or a bound is no number")
    if ((statements.metric < 0) | (statements.metric >= count)).any():
        raise Refuted("statements.parquet: a statement is about no metric of the front")
    if len(front.of) != len(front.values) or any(len(column) != len(front.of) for column in front.designs.values()):
        raise Refuted(f"designs.parquet has {len(front.of)} designs, the front {len(front.values)}")
    if ((front.of < 0) | (front.of >= len(statements))).any():
        raise Refuted("designs.parquet: a design rests on a statement that does not exist")


def check_points(front: Front) -> str:
    """Each design keeps to the levels of its statement, and its bound and gap are what the statement says.

    Raises:
        Refuted: naming the first design that does not.
    """
    logs, statements = front.logs, front.statements
    for i, (one, own) in enumerate(zip(front.told["points"], front.of.tolist(), strict=True)):
        bound = float(statements.bound[own])  # -inf where a search that was cut off has none
        if statements.metric[own] != 0 or not feasible_logs((logs[i] - statements.level[own]).max()):
            raise Refuted(f"design {i} of the front rests on a statement about other designs")
        levels = [one.get("levels", {}).get(name, math.inf) for name in front.metrics]
        known = np.exp(statements.level[own] * np.array(front.signs))
        if not np.allclose(levels, np.where(np.isfinite(statements.level[own]), known, np.inf), rtol=VALUE, atol=0):
            raise Refuted(f"design {i} of the front is told to be bounded at levels other than its statement's")
        known = {"bound": None, "gap": None}
        if math.isfinite(bound):
            known = {"bound": math.exp(front.signs[0] * bound), "gap": math.expm1(logs[i, 0] - bound)}
        for name, value in known.items():
            said = one.get(name)
            if said is None or value is None:
                wrong = said is not value
            else:
                wrong = not math.isclose(said, value, rel_tol=VALUE, abs_tol=VALUE)
            if wrong:
                raise Refuted(f"design {i} of the front: its {name} is {_shown(value)}, claimed is {_shown(said)}")
        if one.get("certified") and not math.isfinite(bound):
            raise Refuted(f"design {i} of the front is called certified, but nothing bounds it")
        # One beyond its level, as far as rounding may be, says nothing against the bound, however steep the level's
        # price: the inequality of its node is tested at it like at every design of the attack.
        if (logs[i] <= statements.level[own] + VALUE).all() and logs[i, 0] < bound - SAME:
            raise Refuted(f"design {i} of the front is better than its bound")
    for i in range(len(logs)):
        better = (logs <= logs[i]).all(axis=1) & (logs < logs[i] - SAME).any(axis=1)
        if better.any():
            raise Refuted(f"design {i} of the front is worse in everything than design {int(np.argmax(better))}")
    return f"{len(logs)} designs, none better than another in everything, the worst {front.worst:.3%} above its bound"


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.9g}"
