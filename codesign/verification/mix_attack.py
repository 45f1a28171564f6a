"""An attempt to find plans and common hardware that a bound on a mix says cannot be.

With the hardware fixed every workload's best plan is its own affair. So at each of many places, anywhere and ever
nearer the best so far, many plans of each workload are priced, and the best of each make the tuple; the best tuples are
polished by SciPy, all their workloads together.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from .attack import PENALTY, ROUNDING, polish
from .goals_blended import CheckedBlend
from .model_answers import CheckedModel

ROUNDS, ANYWHERE = 16, 4  # in which designs are drawn; the first of them in the whole box, the others near the best
PLACES = 64  # of each round
WIDEST, NEAREST = 0.3, 0.003  # of a coordinate, in the first round near the best and in the last
MOVED = 0.5  # share of the coordinates that move there
POOL, BEST = 64, 20  # plans of a workload that won somewhere, tuples that are polished
LEAST = 8  # plans of a workload in a round
SHARING = 1 << 12  # designs at least, for tables of the values that they share to be worth while


@dataclass(frozen=True)
class Tuple:
    """Plans, as places of the nodes of each workload, on common hardware."""

    plans: Int[np.ndarray, " workloads"]
    u: Float[np.ndarray, " variables"]
    rank: float


class _Joint:
    """Tuples as designs with one goal and all workloads' constraints: a plan is the fields of all, side by side."""

    def __init__(self, models: Sequence[CheckedModel], blend: CheckedBlend):
        self.models, self.blend, self.variables = models, blend, models[0].variables
        self.constraints = tuple(f"{k}.{name}" for k, model in enumerate(models) for name in model.constraints)
        ends = np.cumsum([0, *(len(model.fields) for model in models)])
        self.fields = [slice(first, last) for first, last in itertools.pairwise(ends)]

    def tangents(self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The blended goal, then every workload's constraints, with their slopes."""
        goals, slopes, limits, leaning = (list[np.ndarray]() for _ in range(4))
        for model, fields in zip(self.models, self.fields, strict=True):
            value, slope = model.tangents(plan[:, fields], u, sharpness)
            last = 1 + len(model.constraints)
            goals.append(value[:, 0])
            slopes.append(slope[:, 0])
            limits.append(value[:, 1:last])
            leaning.append(slope[:, 1:last])
        logs = np.nan_to_num(np.stack(goals, axis=-1), nan=1e3, posinf=1e3, neginf=-1e3)
        blended, weights = self.blend.tangent(logs)
        goal = np.einsum("pk,kpv->pv", weights, np.array(slopes))
        value = np.concatenate([blended[:, None], *limits], axis=1)
        return value, np.concatenate([goal[:, None], *leaning], axis=1)


@dataclass
class MixAttack:
    """Tuples that were tried, and the best of them.

    Args:
        models: evaluate the workloads.
        tables: legal plans of each, values of fields.
        blend: of their goals.
        start: claimed tuple, if there is one.
    """

    models: Sequence[CheckedModel]
    tables: list[np.ndarray]
    blend: CheckedBlend
    start: Tuple | None = None
    tried: int = 0
    feasible: int = 0
    best: Tuple | None = None
    ranked: list[Tuple] = field(default_factory=list[Tuple])
    pools: list[np.ndarray] = field(default_factory=list[np.ndarray])

    @property
    def listed_fully(self) -> bool:
        """False: tuples have no bounds of their own."""
        return False

    def run(self, count: int, rng: np.random.Generator, report: Callable[[int, int], None]) -> None:
        """Price so many designs, of all workloads together."""
        self.pools = [np.zeros(0, dtype=int) for _ in self.tables]
        if self.start is not None:
            self.pools = [self.start.plans[k : k + 1] for k in range(len(self.tables))]
            self._take(self.pools, self.start.u[None])
        per = max(count // (ROUNDS * PLACES * len(self.tables)), LEAST)
        widths = np.pad(np.geomspace(WIDEST, NEAREST, ROUNDS - ANYWHERE), (ANYWHERE, 0))
        for number, width in enumerate(widths):
            if self.tried >= count:
                break
            report(number, ROUNDS)
            u = self._places(float(width), rng, near=number >= ANYWHERE)
            self._take([self._plans(k, per, rng) for k in range(len(self.tables))], u)
        report(ROUNDS, ROUNDS)

    def _places(self, width: float, rng: np.random.Generator, *, near: bool) -> np.ndarray:
        """Hardware anywhere, some of it at edges, or around that of the best tuples."""
        shape = PLACES, len(self.models[0].variables)
        u = rng.uniform(size=shape)
        u[::4] = np.round(u[::4])
        if not near or not self.ranked:
            return u
        first = np.array([self.ranked[int(i)].u for i in rng.integers(0, min(len(self.ranked), BEST), PLACES)])
        first[::2] = self.ranked[0].u
        moved = first + width * rng.normal(size=shape) * (rng.uniform(size=shape) < MOVED)
        return np.clip(moved, 0.0, 1.0)

    def _plans(self, k: int, count: int, rng: np.random.Generator) -> np.ndarray:
        """Plans that won somewhere, neighbours of these in one field, and random ones."""
        table, pool = self.tables[k], self.pools[k]
        if len(table) <= count:
            return np.arange(len(table))
        near = [np.flatnonzero((table != table[p]).sum(axis=1) <= 1) for p in pool[: POOL // 8].tolist()]
        around = np.unique(np.concatenate([pool[:0], *near]))
        around = rng.permutation(around)[: count // 2]
        return np.unique(np.concatenate([pool, around, rng.integers(0, len(table), max(count - len(around), 1))]))

    def _take(self, plans: list[np.ndarray], u: np.ndarray) -> None:
        """Price all these plans at all these places; of each place the best of every workload."""
        best, soft, goals, ranks = (list[np.ndarray]() for _ in range(4))
        for model, table, mine in zip(self.models, self.tables, plans, strict=True):
            where, at = np.tile(mine, len(u)), np.repeat(u, len(mine), axis=0)
            result = model.exact(table[where], at, sharing=len(where) >= SHARING)
            self.tried += len(where)
            goal = np.where(result.feasible, result.rows[:, 0], np.inf).reshape(len(u), -1)
            broken = np.maximum(result.rows[:, 1 : 1 + len(model.constraints)], 0.0).sum(axis=1)
            rank = (result.rows[:, 0] + PENALTY * broken).reshape(len(u), -1)
            rank = np.where(np.isfinite(rank), rank, np.inf)
            self.feasible += int(np.isfinite(goal).sum())
            for values, numbers, least in ((goal, best, goals), (rank, soft, ranks)):
                first = values.argmin(axis=1)
                numbers.append(mine[first])
                least.append(values[np.arange(len(u)), first])
        held = self.blend.value(np.stack(goals, axis=-1))
        self._better(np.stack(best, axis=-1), u, held)
        looks = self.blend.value(np.stack(ranks, axis=-1))
        self._keep(np.stack(soft, axis=-1), u, looks)
        self._keep(np.stack(best, axis=-1), u, held)
        for k in range(len(self.pools)):
            won = [one.plans[k] for one in self.ranked[:POOL]]
            self.pools[k] = np.array(list(dict.fromkeys(won)), dtype=int)

    def _better(self, plans: np.ndarray, u: np.ndarray, held: np.ndarray) -> None:
        at = int(np.argmin(held))
        if np.isfinite(held[at]) and (self.best is None or held[at] < self.best.rank):
            self.best = Tuple(plans[at].copy(), u[at].copy(), float(held[at]))

    def _keep(self, plans: np.ndarray, u: np.ndarray, looks: np.ndarray) -> None:
        """The tuples that look best, one of each combination of plans."""
        some = [Tuple(plans[i], u[i], float(looks[i])) for i in np.argsort(looks)[:POOL] if np.isfinite(looks[i])]
        distinct: dict[tuple[int, ...], Tuple] = {}
        for one in sorted([*self.ranked, *some], key=lambda each: each.rank):
            distinct.setdefault(tuple(one.plans.tolist()), one)
        self.ranked = list(distinct.values())[:POOL]

    def polish(self, share: float = 1.0) -> int:
        """Let SciPy improve a share of the best tuples; says how many."""
        chosen = self.ranked[: math.ceil(share * BEST)]
        if not chosen:
            return 0
        plans = np.array([one.plans for one in chosen])
        table = np.concatenate([table[plans[:, k]] for k, table in enumerate(self.tables)], axis=1)
        starts = np.array([one.u for one in chosen])
        joint, target = _Joint(self.models, self.blend), np.zeros(len(chosen), dtype=int)
        lane, u = polish(joint, table, starts, target, np.zeros((len(chosen), len(joint.constraints))))
        goals: list[np.ndarray] = []
        for k, (model, plan_table) in enumerate(zip(self.models, self.tables, strict=True)):
            result = model.exact(plan_table[plans[lane, k]], u)
            self.tried += len(u)
            goals.append(np.where(result.feasible, result.rows[:, 0], np.inf))
        held = self.blend.value(np.stack(goals, axis=-1))
        self.feasible += int(np.isfinite(held).sum())
        self._better(plans[lane], u, held)
        return len(chosen)

    def below(self, limit: float) -> Tuple | None:
        """The best tuple, where it lies below this."""
        return self.best if self.best is not None and self.best.rank < limit - ROUNDING else None
