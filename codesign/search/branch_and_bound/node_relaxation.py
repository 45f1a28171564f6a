"""Plans bounded by groups: what a search asks of a model whose plans are too many to be asked one by one.

A group stands for all plans that agree but for a range of values in fields that every row orders (`orders`). Each row
of the group is the model's at the value that is best for this row, so it lies below that of every plan of the group,
and its tangents bound all of them. Groups that may hold the optimum are split until they are single plans.

Source: see docs/optimisation.md, section 4.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ...core.fields import replace
from ...curvature import Judgement, judge
from ...model.scenario import Scenario
from ...staging import distinct_plans, fields_without_rules
from ...study.design_space import MOST_BOUNDED, MOST_LISTED, DesignSpace
from ...study.feasible_plans import TooManyPlans
from ..base import Problem
from .model_oracle import AbstractModelOracle, Oracle
from .oracle import Rows, Tangents, relayed
from .range_oracle import RangeOracle

# Plans as leaves of trees: groups of plans that agree in most fields and leave others open within a range.
#
# A node is a legal combination of the outer fields and, for each inner field, a range of its listed values. A range
# of one value everywhere is a single plan. Splitting a node halves or quarters one of its ranges; what a node was
# split into is remembered, so that a plan has one number however it was reached.
#
# Source: see docs/optimisation.md, section 4.


PARTS = 4  # a range is split into at most so many
LONG, NEAR = 32, 8  # values of a long list; those on either side of one that count as its neighbours


class PlanTree:
    """Numbered nodes, listed as they are needed.

    Args:
        lists: plan field -> its values, all fields in the order of the table's columns.
        outer: legal combinations of the outer fields, one row each; all or, where they are too many, some of them.
        inner: the fields whose legality does not depend on each other's or the outer fields' values.
        effect: how much each inner field matters; the range that matters most is split first.
    """

    def __init__(
        self,
        lists: dict[str, np.ndarray],
        outer: Float[np.ndarray, "combinations outer"],
        inner: Sequence[str],
        effect: Sequence[float],
    ):
        self.fields, self.inner = tuple(lists), tuple(inner)
        self.lists, self.values = lists, [lists[name] for name in inner]
        self.sizes = np.array([len(values) for values in self.values], dtype=np.int64)
        self.effect = np.asarray(effect, dtype=float)
        self.columns = [self.fields.index(name) for name in inner]
        self.rest = [i for i, name in enumerate(self.fields) if name not in inner]
        self.combinations = outer
        roots = len(outer)
        self.outer = np.arange(roots)
        self.low = np.zeros((roots, len(inner)), dtype=np.int32)
        self.high = np.tile((self.sizes - 1).astype(np.int32), (roots, 1))
        self.roots = roots
        self.parent = np.arange(roots)  # the node each came out of; of a plan listed before that, one above it
        self._first_child = np.full(roots, -1)
        self._children = np.zeros(roots, dtype=int)
        self._requested: dict[
            int, int
        ] = {}  # key of a plan -> its number, of those listed before their group was split
        self._reached: dict[int, int] = {}  # the same, of those that came out of a group
        self._keys_of_outer = self._index_outer()

    @property
    def count(self) -> int:
        """Nodes listed so far."""
        return len(self.outer)

    @property
    def per_combination(self) -> int:
        """Plans of one combination of outer fields."""
        return int(np.prod(self.sizes))

    @property
    def plans(self) -> int:
        """Plans of all roots."""
        return self.roots * self.per_combination

    @property
    def divided(self) -> Int[np.ndarray, " groups"]:
        """Nodes whose children are listed."""
        return np.flatnonzero(self._first_child >= 0)

    def single(self, node: Int[np.ndarray, " k"]) -> Bool[np.ndarray, " k"]:
        """Mask of the nodes that are one plan."""
        return (self.low[node] == self.high[node]).all(axis=1)

    def weight(self, node: Int[np.ndarray, " k"]) -> Int[np.ndarray, " k"]:
        """Plans under each node."""
        return (self.high[node].astype(np.int64) - self.low[node] + 1).prod(axis=1)

    def table(
        self, node: Int[np.ndarray, " k"], best: Sequence[np.ndarray] | None = None
    ) -> Float[np.ndarray, "k fields"]:
        """Values of all fields; of a range the one that `best[inner field]` names for its two ends."""
        rows = np.empty((len(node), len(self.fields)))
        rows[:, self.rest] = self.combinations[self.outer[node]]
        for j, column in enumerate(self.columns):
            low = self.low[node, j]
            at = low if best is None else best[j][low, self.high[node, j]]
            rows[:, column] = self.values[j][at]
        return rows

    def split(self, node: Int[np.ndarray, " k"]) -> tuple[np.ndarray, np.ndarray]:
        """(children, position in `node` of each one's parent); single plans have none."""
        node = np.asarray(node)
        fresh = node[(self._first_child[node] < 0) & ~self.single(node)]
        if len(fresh):
            self._list_children(fresh)
        counts = self._children[node]
        parent = np.repeat(np.arange(len(node)), counts)
        offset = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return self._settled(self._first_child[node[parent]] + offset), parent

    def _list_children(self, node: np.ndarray) -> None:
        width = self.high[node] - self.low[node]
        matters = self.effect * width / np.maximum(self.sizes - 1, 1) + 1e-12
        chosen = np.argmax(np.where(width > 0, matters, -1.0), axis=1)
        rows = np.arange(len(node))
        low, size = self.low[node, chosen[rows]], width[rows, chosen] + 1
        parts = np.minimum(size, PARTS)
        parent = np.repeat(rows, parts)
        part = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
        new_low, new_high = self.low[node[parent]].copy(), self.high[node[parent]].copy()
        line = np.arange(len(parent))
        new_low[line, chosen[parent]] = low[parent] + part * size[parent] // parts[parent]
        new_high[line, chosen[parent]] = low[parent] + (part + 1) * size[parent] // parts[parent] - 1
        first = self._append(self.outer[node[parent]], new_low, new_high, node[parent])
        self._first_child[node] = first + np.cumsum(parts) - parts
        self._children[node] = parts
        single = np.flatnonzero((new_low == new_high).all(axis=1))
        keys = self._keys(self.outer[first + single], new_low[single]).tolist()
        self._reached.update(zip(keys, (first + single).tolist(), strict=True))

    def _append(self, outer: np.ndarray, low: np.ndarray, high: np.ndarray, parent: np.ndarray) -> int:
        first, count = self.count, len(outer)
        self.outer, self.parent = np.concatenate([self.outer, outer]), np.concatenate([self.parent, parent])
        self.low, self.high = np.concatenate([self.low, low]), np.concatenate([self.high, high])
        self._first_child = np.concatenate([self._first_child, np.full(count, -1)])
        self._children = np.concatenate([self._children, np.zeros(count, dtype=int)])
        return first

    def _settled(self, child: np.ndarray) -> np.ndarray:
        """The numbers that these children are known by: a plan listed before keeps its first one."""
        if not self._requested or len(child) == 0:
            return child
        single = np.flatnonzero(self.single(child))
        keys = self._keys(self.outer[child[single]], self.low[child[single]])
        requested = np.flatnonzero(np.isin(keys, np.fromiter(self._requested, dtype=np.int64)))
        numbers = np.array([self._requested[key] for key in keys[requested].tolist()], dtype=child.dtype)
        self.parent[numbers] = self.parent[child[single[requested]]]
        child = child.copy()
        child[single[requested]] = numbers
        return child

    def _keys(self, outer: np.ndarray, index: np.ndarray) -> np.ndarray:
        key = outer.astype(np.int64)
        for j, size in enumerate(self.sizes):
            key = key * size + index[:, j]
        return key

    def listed(self, outer: Int[np.ndarray, " k"], index: Int[np.ndarray, "k inner"]) -> Int[np.ndarray, " k"]:
        """Numbers of single plans, by their combination of outer fields and the place of each inner value."""
        if not self.inner:
            return np.asarray(outer)
        keys = self._keys(np.asarray(outer), index)
        unique, first = np.unique(keys, return_index=True)
        new = np.array([not (key in self._requested or key in self._reached) for key in unique.tolist()], dtype=bool)
        fresh, new_index = outer[first[new]], index[first[new]].astype(np.int32)
        at = self._append(fresh, new_index, new_index, fresh)
        self._requested.update(zip(unique[new].tolist(), range(at, self.count), strict=True))
        return np.array([self._requested.get(key, self._reached.get(key, -1)) for key in keys.tolist()], dtype=int)

    def sample(self, rng: np.random.Generator, most: int) -> Int[np.ndarray, " k"]:
        """Numbers of so many random plans, each once; all of them where there are no more."""
        numbers = np.arange(self.plans) if self.plans <= most else np.unique(rng.integers(0, self.plans, most))
        places: list[np.ndarray] = []
        for size in self.sizes[::-1]:
            numbers, index = np.divmod(numbers, size)
            places.append(index)
        index = np.stack(places[::-1], axis=-1) if places else np.zeros((len(numbers), 0), dtype=int)
        return np.sort(self.listed(numbers, index))

    def near(self, node: int, changes: int) -> Int[np.ndarray, " k"]:
        """Numbers of the plans that differ from one in at most so many fields; in long lists by at most `NEAR`."""
        base = self.table(np.array([node]))[0]
        at = np.array([int(np.searchsorted(self.lists[name], float(base[i]))) for i, name in enumerate(self.fields)])
        rows, changed = at[None], np.zeros(1, dtype=int)
        for i, name in enumerate(self.fields):
            first, last = 0, len(self.lists[name])
            if last > LONG:
                first, last = max(at[i] - NEAR, 0), min(at[i] + NEAR + 1, last)
            others = np.array([index for index in range(first, last) if index != at[i]], dtype=int)
            moved = np.repeat(rows[changed < changes], len(others), axis=0)
            moved[:, i] = np.tile(others, len(moved) // max(len(others), 1))
            changed = np.concatenate([changed, np.repeat(changed[changed < changes] + 1, len(others))])
            rows = np.concatenate([rows, moved])
        outer, result = self._find_outer(rows[:, self.rest])
        return np.unique(self.listed(outer[result], rows[result][:, self.columns]))

    def number_of(self, plan: Mapping[str, float]) -> int:
        """The number of a plan by the values of its fields; -1 where they are not listed together."""
        index = np.array([[int(np.searchsorted(self.lists[name], plan[name])) for name in self.fields]])
        outer, result = self._find_outer(index[:, self.rest])
        return int(self.listed(outer, index[:, self.columns])[0]) if result[0] else -1

    def _index_outer(self) -> tuple[np.ndarray, np.ndarray]:
        """(sorted keys of the outer combinations, their order)."""
        places: list[np.ndarray] = [
            np.searchsorted(self.lists[self.fields[i]], column)
            for i, column in zip(self.rest, self.combinations.T, strict=True)
        ]
        keys = self._outer_key(np.stack(places, axis=-1) if places else np.zeros((self.roots, 0), dtype=int))
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    def _outer_key(self, index: np.ndarray) -> np.ndarray:
        key = np.zeros(len(index), dtype=np.int64)
        for j, i in enumerate(self.rest):
            key = key * len(self.lists[self.fields[i]]) + index[:, j]
        return key

    def _find_outer(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(number of each combination, which of them are legal)."""
        keys, order = self._keys_of_outer
        wanted_keys = self._outer_key(index)
        at = np.minimum(np.searchsorted(keys, wanted_keys), len(keys) - 1)
        return order[at], keys[at] == wanted_keys

    def covering(self, plan: Int[np.ndarray, " k"], chosen: Bool[np.ndarray, " count"]) -> Int[np.ndarray, " k"]:
        """The chosen node over each single plan, or the plan itself; the chosen ones stand for every plan once."""
        node = self.outer[plan].copy()
        while True:
            down = np.flatnonzero(~chosen[node] & (self._first_child[node] >= 0))
            if len(down) == 0:
                return np.where(chosen[node], node, plan)
            for part in range(PARTS):
                child = self._first_child[node[down]] + part
                listed = part < self._children[node[down]]
                child = np.where(listed, child, 0)
                within = (self.low[child] <= self.low[plan[down]]) & (self.low[plan[down]] <= self.high[child])
                take = listed & within.all(axis=1)
                node[down[take]] = child[take]
                down = down[~take]


# Monotone plan fields: every row orders their values, so that the same is always better, whatever else is chosen.
#
# More offloading never needs more of the first memory and never takes less time. Where every row orders the values of
# a field, a whole range of them is bounded by one evaluation for each direction: every row at the value that is best
# for it. The walk over the model proves orders that run with or against the listed values. Others are tested on
# random plans and hardware, only where plans are too many to do without, and whatever rests on them is not called
# proven.
#
# Source: see docs/optimisation.md, section 4 (nodes and their relaxation).


LOOKS = 256  # random designs on which it is looked how much a field matters
FEW = 64  # random designs that show of most fields that no row orders them
SAMPLES = 1024  # random designs, each with up to `LEVELS` values of every field
LEVELS = 8  # values of a field compared in one look; of longer lists each look draws others
SAME = 1e-9  # log by which a row may contradict an order, for rounding
NEVER_OPEN = ("sequence_parallel", "zero")  # few values; next-best designs that differ in them are worth telling apart
Ask = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]  # (plan rows, u) -> (exact rows, broken)


class FieldEffect(NamedTuple):
    """Effect of a field on every row.

    below: [row, a, b], no design was seen whose row is lower at value b than at value a; effect: mean range of the
    rows over the values tried, summed over the rows.
    """

    below: Bool[np.ndarray, "rows values values"]
    effect: float


@dataclass(frozen=True)
class View:
    """Rows that agree which values are best: all are bounded by one evaluation.

    best: for each inner field, [first, last] of a range -> the place of the value that these rows have least at.
    """

    rows: np.ndarray
    best: list[np.ndarray]


def order_of(judgement: Judgement, rows: Sequence[str], field: str, values: np.ndarray) -> FieldEffect | None:
    """The order that the walk proves of a field; None where some row has none."""
    ways = [judgement.direction(row, field) for row in rows]
    if None in ways:
        return None
    rising = np.triu(np.ones((len(values), len(values)), dtype=bool))
    below = {1: rising, -1: rising.T, 0: rising | rising.T}
    return FieldEffect(np.stack([below[way] for way in ways if way is not None]), 0.0)


def effects(
    lists: dict[str, np.ndarray],
    plans: Float[np.ndarray, "plans fields"],
    width: int,
    ask: Ask,
    seed: int,
    fields: Collection[str],
) -> dict[str, float]:
    """Mean range of the rows between the ends of each of these fields, summed over the rows: how much it matters."""
    rng = np.random.default_rng(seed)
    result: dict[str, float] = {}
    for column, (name, values) in enumerate(lists.items()):
        if name in fields:
            rows = np.repeat(plans[rng.integers(0, len(plans), LOOKS)], 2, axis=0)
            rows[:, column] = np.tile(values[[0, -1]], LOOKS)
            exact, _ = ask(rows, np.repeat(rng.uniform(size=(LOOKS, width)), 2, axis=0))
            moved = np.abs(exact[1::2] - exact[::2])
            result[name] = float(np.where(np.isfinite(moved), moved, 0.0).mean(axis=0).sum())
    return result


def find_orders(
    lists: dict[str, np.ndarray],
    plans: Float[np.ndarray, "plans fields"],
    width: int,
    ask: Ask,
    seed: int,
    fields: Collection[str],
    samples: int = SAMPLES,
) -> dict[str, FieldEffect]:
    """Find the fields that every row orders, on random plans and hardware, half of it at corners of the box."""
    rng = np.random.default_rng(seed)
    result: dict[str, FieldEffect] = {}
    for column, (name, values) in enumerate(lists.items()):
        if name not in fields:
            continue
        taken = np.sort(rng.permuted(np.tile(np.arange(len(values)), (samples, 1)), axis=1)[:, :LEVELS], axis=1)
        rows = np.repeat(plans[rng.integers(0, len(plans), samples)], taken.shape[1], axis=0)
        rows[:, column] = values[taken.reshape(-1)]
        u = rng.uniform(size=(samples, width))
        u[::2] = np.round(u[::2])
        exact, broken = ask(rows, np.repeat(u, taken.shape[1], axis=0))
        order = _order(exact.reshape(samples, taken.shape[1], -1), broken.reshape(samples, -1), taken, len(values))
        if order is not None and all(_ranking(below) is not None for below in order.below):
            result[name] = order
    return result


def _order(exact: np.ndarray, broken: np.ndarray, taken: np.ndarray, count: int) -> FieldEffect | None:
    """The order that these designs leave possible; None where the field decides what is legal."""
    if not np.isfinite(exact).all() or (broken != broken[:, :1]).any():
        return None
    below = np.ones((exact.shape[2], count, count), dtype=bool)
    for i in range(taken.shape[1]):
        for k in range(taken.shape[1]):
            wrong, lane = np.nonzero((exact[:, i] > exact[:, k] + SAME).T)
            below[wrong, taken[lane, i], taken[lane, k]] = False
    return FieldEffect(below, float((exact.max(axis=1) - exact.min(axis=1)).mean(axis=0).sum()))


def _ranking(*below: np.ndarray) -> np.ndarray | None:
    """Places from best to worst by which none of these relations is contradicted."""
    both = np.logical_and.reduce(below)
    rising = np.arange(len(both))
    for places in (rising, rising[::-1], np.argsort(-both.sum(axis=1), kind="stable")):
        if both[np.ix_(places, places)][np.triu_indices(len(places))].all():
            return places
    return None


def views(orders: Sequence[FieldEffect], rows: int) -> list[View]:
    """Rows sorted into as few views as their orders allow; one view of all where nothing is grouped."""
    groups: list[list[int]] = []
    for row in range(rows):
        for group in groups:
            if all(_ranking(*(order.below[r] for r in (*group, row))) is not None for order in orders):
                group.append(row)
                break
        else:
            groups.append([row])
    return [
        View(np.array(group), [_best_of_ranges(*(order.below[r] for r in group)) for order in orders])
        for group in groups
    ]


def _best_of_ranges(*below: np.ndarray) -> np.ndarray:
    """[first, last] -> the place of lowest rank between them, of relations that have a ranking."""
    ranking = _ranking(*below)
    assert ranking is not None
    count = len(ranking)
    rank = np.empty(count, dtype=int)
    rank[ranking] = np.arange(count)
    best = np.zeros((count, count), dtype=np.int32)
    for first in range(count):
        lowest = np.minimum.accumulate(rank[first:])
        best[first, first:] = ranking[lowest]
    return best


WORTH_RANGES = 1 << 18  # legal plans from which on they are bounded by ranges where nothing but the plan varies
WORTH_GROUPING = 20_000  # combinations below which every plan is bounded by itself
MOST_CHECKED = 1 << 27  # combinations of which `codesign verify` writes down what stands for them
MOST_ROOTS = 5_000_000  # combinations of ungrouped fields up to which orders must be proven to be used
TRIED = 200_000  # legal plans that are tried where not even the groups can be listed


def oracle_for(problem: Problem, rows: Rows, block: int, seed: int = 0, *, ranges: bool = False) -> AbstractModelOracle:
    """An oracle over all legal plans, in groups where they are many.

    Raises:
        ConfigError: no plan is legal.
    """
    if problem.space.combinations < WORTH_GROUPING:
        return Oracle(problem, rows, block)
    if ranges and not problem.space.names and problem.space.size(problem.scenario) >= WORTH_RANGES:
        with contextlib.suppress(TooManyPlans):
            oracle = RangeOracle(problem, rows, block, seed)
            if oracle.bounds:
                return oracle
    return GroupOracle(problem, rows, block, seed)


class GroupOracle(AbstractModelOracle):
    """Numbers stand for plans and for groups of plans, given out as they are asked for.

    Args:
        problem, rows, block: as of `Oracle`.
        seed: of the plans on which orders are tested.

    `model` answers for plans given by the values of their fields.
    """

    def __init__(self, problem: Problem, rows: Rows, block: int = 512, seed: int = 0):
        space, scenario = problem.space, problem.scenario
        some = space.legal_sample(scenario, 4096, seed)
        self.problem = problem
        self.model = Oracle(problem, rows, block, plans=dict(zip(space.plan, some.T, strict=True)))
        self.names = self.model.names
        lists = {name: np.unique(values) for name, values in space.lists.items()}
        legal_with_all = fields_without_rules(self.model.program, scenario)
        free = [n for n in lists if len(lists[n]) > 1 and n not in NEVER_OPEN and n in legal_with_all]
        self._free = {name: lists[name] for name in free}
        self._judgement: Judgement | None = None
        self._listed, self.doubt = self._outer(free, some)
        self.orders = self._orders(some, seed)
        inner = list(self.orders)
        self.views = views(list(self.orders.values()), len(self.names))
        outer, rest = self._listed, {name: values for name, values in self._free.items() if name not in inner}
        table = crossed([outer[name] for name in lists if name in outer], list(rest.values()))
        order = [*(name for name in lists if name in outer), *rest]
        columns = [order.index(name) for name in lists if name not in inner]
        effect = [self.orders[name].effect for name in inner]
        self.tree = PlanTree(lists, table[:, columns], inner, effect)

    def _outer(self, free: list[str], some: np.ndarray) -> tuple[dict[str, np.ndarray], str]:
        """Legal combinations of the other fields, and why these are not all of them."""
        space, scenario = self.problem.space, self.problem.scenario
        outer = DesignSpace({name: values for name, values in space.plan.items() if name not in free})
        fixed = replace(scenario, {f"plan.{name}": float(values[0]) for name, values in self._free.items()})
        few = outer.combinations <= MOST_LISTED
        if few or outer.size(fixed) <= MOST_BOUNDED:
            legal = outer.plans(fixed) if outer.plan else {}
            many = f"{space.combinations:,} combinations of plan values are too many for a proof that can be checked"
            why = "" if few or space.combinations <= MOST_CHECKED else f"{many}; all that are legal were searched"
            return distinct_plans([scenario], space, legal, self._free), why
        plans = space.legal_sample(scenario, TRIED)
        columns = [i for i, name in enumerate(space.plan) if name not in free]
        table = np.unique(plans[:, columns], axis=0)
        count = len(table) * int(np.prod([len(values) for values in self._free.values()], dtype=float))
        why = f"{space.combinations:,} combinations of plan values are too many to bound; {count:,} plans were searched"
        return dict(zip(outer.plan, table.T, strict=True)), why

    def _orders(self, some: np.ndarray, seed: int) -> dict[str, FieldEffect]:
        """Fields that every row orders: proven by the walk; tested ones as well where plans are too many without.

        Without hardware variables there is nothing else to prove: fields that designs contradict are not walked for.
        """
        lists = {name: np.unique(values) for name, values in self.problem.space.lists.items()}
        width, result = len(self.variables), dict[str, FieldEffect]()
        if width or find_orders(lists, some, width, self._ask, seed, list(self._free), FEW):
            judgement = self.judged()
            proven = {name: order_of(judgement, self.names, name, values) for name, values in self._free.items()}
            result = {name: order for name, order in proven.items() if order is not None}
        left = [name for name in self._free if name not in result]
        roots = len(next(iter(self._listed.values()), [0])) * np.prod([len(self._free[n]) for n in left], dtype=float)
        if roots > MOST_ROOTS:
            tested = find_orders(lists, some, width, self._ask, seed, left)
            result |= tested
            if tested and not self.doubt:
                self.doubt = f"the order of {', '.join(tested)} was tested on {SAMPLES} designs, not proven"
        size = effects(lists, some, width, self._ask, seed, list(result))
        return {name: order._replace(effect=size[name]) for name, order in result.items()}

    def judged(
        self,
        held: Mapping[str, Sequence[float]] | None = None,
        scenarios: Sequence[Scenario] = (),
        ordered: Sequence[str] = (),
    ) -> Judgement:
        """The rows of all plans, listed and free fields; of the problem itself walked once, when first asked for."""
        if not held and not scenarios and not ordered:
            if self._judgement is None:
                self._judgement = self._judge([self.problem.scenario], None, tuple(self._free))
            return self._judgement
        return self._judge(scenarios or [self.problem.scenario], held, ordered)

    def _judge(
        self, cases: Sequence[Scenario], held: Mapping[str, Sequence[float]] | None, ordered: Sequence[str]
    ) -> Judgement:
        return judge(self.model.program, cases, self._listed, self._free, held, ordered)

    def _ask(self, rows: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        result = self.model.evaluate(rows, u, 1.0, slopes=False)
        return result.exact, result.broken

    evaluated: Any = relayed("model", "evaluated")
    count: Any = relayed("tree", "count")
    plan_count: Any = relayed("tree", "plans")
    parents: Any = relayed("tree", "parent")
    divided: Any = relayed("tree", "divided")
    sample, single, weight = (relayed("tree", name) for name in ("sample", "single", "weight"))
    split, near = (relayed("tree", name) for name in ("split", "near"))

    @property
    def roots(self) -> np.ndarray:
        """One group for each legal combination of ungrouped fields."""
        return np.arange(self.tree.roots)

    def columns(self, plan: np.ndarray) -> dict[str, np.ndarray]:
        """Fields of single plans."""
        return dict(zip(self.tree.fields, self.tree.table(plan).T, strict=True))

    def tangents(
        self, plan: np.ndarray, u: np.ndarray, sharpness: np.ndarray | float, scenario: Scenario | None = None
    ) -> Tangents:
        """Rows and tangents; of a group, rows that no plan of it has all at once (`exact` is no design's)."""
        plan, sharpness = np.asarray(plan), np.broadcast_to(np.asarray(sharpness, dtype=float), (len(plan),))
        group, rows = self._best_of(plan)
        result = self.model.of_rows(rows, u, sharpness, scenario)
        for view in self.views[1:] if len(group) else []:
            names, table = [self.names[row] for row in map(int, view.rows)], self.tree.table(plan[group], view.best)
            other = self.model.of_rows(table, u[group], sharpness[group], scenario, names)
            result.exact[np.ix_(group, view.rows)] = other.exact
            result.affine[np.ix_(group, view.rows)] = other.affine
        return result

    def screening(self, plan: np.ndarray, u: np.ndarray) -> Tangents | None:
        """Tangents of memory and the like alone, of single plans."""
        assert self.single(plan).all()
        return self.model.screened(self.tree.table(plan), u)

    def values(
        self, plan: np.ndarray, u: np.ndarray, scenario: Scenario | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows alone; of a group as in `tangents`."""
        plan = np.asarray(plan)
        group, rows = self._best_of(plan)
        result = self.model.evaluate(rows, u, 1.0, scenario, slopes=False)
        for view in self.views[1:] if len(group) else []:
            names, table = [self.names[row] for row in map(int, view.rows)], self.tree.table(plan[group], view.best)
            other = self.model.evaluate(table, u[group], 1.0, scenario, names, slopes=False)
            result.exact[np.ix_(group, view.rows)] = other.exact
        return result.exact, result.broken

    def _best_of(self, plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(places of groups, fields of all: of groups, those that are best for the rows of the first view)."""
        group, rows = np.flatnonzero(~self.tree.single(plan)), self.tree.table(plan)
        rows[group] = self.tree.table(plan[group], self.views[0].best)
        return group, rows


def crossed(columns: Sequence[np.ndarray], lists: Sequence[np.ndarray]) -> np.ndarray:
    """Every row of some columns with every combination of lists: [rows x combinations, columns and lists]."""
    rows = np.stack(list(columns), axis=-1) if len(columns) else np.zeros((1, 0))
    for values in lists:
        rows = np.concatenate([np.repeat(rows, len(values), axis=0), np.tile(values, len(rows))[:, None]], axis=1)
    return rows
