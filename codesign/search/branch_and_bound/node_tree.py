"""Plans as leaves of trees: groups of plans that agree in most fields and leave others open within a range.

A node is a legal combination of the outer fields and, for each inner field, a range of its listed values. A range of
one value everywhere is a single plan. Splitting a node halves or quarters one of its ranges; what a node was split into
is remembered, so that a plan has one number however it was reached.

Source: see docs/optimisation.md, section 4.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

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
        self._asked: dict[int, int] = {}  # key of a plan -> its number, of those listed before their group was split
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
        if not self._asked or len(child) == 0:
            return child
        single = np.flatnonzero(self.single(child))
        keys = self._keys(self.outer[child[single]], self.low[child[single]])
        known = np.flatnonzero(np.isin(keys, np.fromiter(self._asked, dtype=np.int64)))
        numbers = np.array([self._asked[key] for key in keys[known].tolist()], dtype=child.dtype)
        self.parent[numbers] = self.parent[child[single[known]]]
        child = child.copy()
        child[single[known]] = numbers
        return child

    def _keys(self, outer: np.ndarray, place: np.ndarray) -> np.ndarray:
        key = outer.astype(np.int64)
        for j, size in enumerate(self.sizes):
            key = key * size + place[:, j]
        return key

    def listed(self, outer: Int[np.ndarray, " k"], place: Int[np.ndarray, "k inner"]) -> Int[np.ndarray, " k"]:
        """Numbers of single plans, by their combination of outer fields and the place of each inner value."""
        if not self.inner:
            return np.asarray(outer)
        keys = self._keys(np.asarray(outer), place)
        unique, first = np.unique(keys, return_index=True)
        new = np.array([not (key in self._asked or key in self._reached) for key in unique.tolist()], dtype=bool)
        fresh, at_place = outer[first[new]], place[first[new]].astype(np.int32)
        at = self._append(fresh, at_place, at_place, fresh)
        self._asked.update(zip(unique[new].tolist(), range(at, self.count), strict=True))
        return np.array([self._asked.get(key, self._reached.get(key, -1)) for key in keys.tolist()], dtype=int)

    def sample(self, rng: np.random.Generator, most: int) -> Int[np.ndarray, " k"]:
        """Numbers of so many random plans, each once; all of them where there are no more."""
        numbers = np.arange(self.plans) if self.plans <= most else np.unique(rng.integers(0, self.plans, most))
        places: list[np.ndarray] = []
        for size in self.sizes[::-1]:
            numbers, place = np.divmod(numbers, size)
            places.append(place)
        place = np.stack(places[::-1], axis=-1) if places else np.zeros((len(numbers), 0), dtype=int)
        return np.sort(self.listed(numbers, place))

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
        place = np.array([[int(np.searchsorted(self.lists[name], plan[name])) for name in self.fields]])
        outer, result = self._find_outer(place[:, self.rest])
        return int(self.listed(outer, place[:, self.columns])[0]) if result[0] else -1

    def _index_outer(self) -> tuple[np.ndarray, np.ndarray]:
        """(sorted keys of the outer combinations, their order)."""
        places: list[np.ndarray] = [
            np.searchsorted(self.lists[self.fields[i]], column)
            for i, column in zip(self.rest, self.combinations.T, strict=True)
        ]
        keys = self._outer_key(np.stack(places, axis=-1) if places else np.zeros((self.roots, 0), dtype=int))
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    def _outer_key(self, place: np.ndarray) -> np.ndarray:
        key = np.zeros(len(place), dtype=np.int64)
        for j, i in enumerate(self.rest):
            key = key * len(self.lists[self.fields[i]]) + place[:, j]
        return key

    def _find_outer(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(number of each combination, which of them are legal)."""
        keys, order = self._keys_of_outer
        asked = self._outer_key(place)
        at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        return order[at], keys[at] == asked

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
