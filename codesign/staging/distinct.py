"""Combinations of plan fields: distinct values of any set of fields over all legal plans.

Most of the model sees few fields of a plan. What depends on the tensor- and pipeline-parallel degrees alone has a
hundred values however many plans there are.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float, Int

Fields = frozenset[int]
SPARSE = 64  # times more keys than rows: a sort then takes less time than a flag for each key


class PlanTable:
    """Legal plans by the fields that vary: listed combinations of some fields, times all values of others.

    Args:
        listed: field -> its value in each legal combination.
        free: field -> all its values; each of them is legal with every combination.
    """

    def __init__(self, listed: Mapping[str, np.ndarray], free: Mapping[str, np.ndarray] | None = None):
        free = free or {}
        self.fields: tuple[str, ...] = (*listed, *free)
        self.values: list[np.ndarray] = []
        codes: list[np.ndarray] = []
        for column in listed.values():
            given = np.asarray(column, dtype=float)
            self.values.append(np.unique(given))
            codes.append(np.searchsorted(self.values[-1], given))
        self._codes = np.stack(codes).T if codes else np.zeros((1, 0), dtype=int)  # columns are read
        self._listed = len(codes)
        self.values += [np.unique(np.asarray(column, dtype=float)) for column in free.values()]
        self.count = lru_cache(maxsize=None)(self._count)
        self.distinct = lru_cache(maxsize=None)(self._distinct)
        self.project = lru_cache(maxsize=None)(self._project)
        self.steps = lru_cache(maxsize=None)(self._steps)
        self.keys = lru_cache(maxsize=None)(self._keys)

    @cached_property
    def told_apart(self) -> str:
        """Equal for tables of the same fields, values and combinations."""
        digest = hashlib.sha256(repr((self.fields, self._listed, self._codes.shape)).encode())
        for array in (*self.values, self._codes):
            digest.update(repr((array.shape, array.dtype.str)).encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _count(self, fields: Fields) -> int:
        """Number of combinations of these fields."""
        inner = [i for i in fields if i >= self._listed]
        return len(self.keys(fields - set(inner))) * int(np.prod([len(self.values[i]) for i in inner], dtype=float))

    def column(self, field: int) -> Float[np.ndarray, " values"]:
        """The values of one field, in the order of `distinct({field})`."""
        return self.values[field][self.distinct(frozenset([field]))[:, 0]]

    def rows_of(self, fields: Fields) -> Int[np.ndarray, " listed"]:
        """For each listed combination, as it was given, its row among the distinct ones of these listed fields."""
        order = sorted(fields)
        return np.searchsorted(self.keys(fields), self._encoded(order, self._codes, order))

    def _keys(self, fields: Fields) -> Int[np.ndarray, " k"]:
        """Sorted distinct keys of listed fields."""
        order = sorted(fields)
        keys, most = self._encoded(order, self._codes, order), math.prod(self._sizes(order))
        if most > SPARSE * len(keys):
            return np.unique(keys)
        flags = np.zeros(most, dtype=bool)
        flags[keys] = True
        return np.flatnonzero(flags)

    def _sizes(self, order: Sequence[int]) -> list[int]:
        return [len(self.values[i]) for i in order]

    def _encoded(self, order: Sequence[int], codes: np.ndarray, at: Sequence[int]) -> Int[np.ndarray, " k"]:
        """One number for the codes of fields in this order, which are columns `at`."""
        key = np.zeros(len(codes), dtype=np.int64)
        for column, size in zip(at, self._sizes(order), strict=True):
            key *= size
            key += codes[:, column]
        return key

    def _decoded(self, order: Sequence[int], keys: np.ndarray) -> Int[np.ndarray, "k fields"]:
        places: list[np.ndarray] = []
        for size in reversed(self._sizes(order)):
            keys, place = np.divmod(keys, size)
            places.append(place)
        return np.stack(places[::-1]).T if places else np.zeros((len(keys), 0), dtype=np.int64)

    def _distinct(self, fields: Fields) -> Int[np.ndarray, "k fields"]:
        """Codes of the distinct combinations, fields in rising order; listed ones before free ones."""
        order = sorted(fields)
        inner = [i for i in order if i >= self._listed]
        outer = self.keys(frozenset(order) - set(inner))
        size = int(np.prod(self._sizes(inner), dtype=np.int64))
        keys = (outer[:, None] * size + np.arange(size)[None]).reshape(-1)
        return self._decoded(order, keys)

    def _project(self, fields: Fields, onto: Fields) -> Int[np.ndarray, " k"]:
        """For each combination of `fields` its row among those of the fewer fields `onto`."""
        order, fewer = sorted(fields), sorted(onto)
        known = self._encoded(fewer, self.distinct(onto), range(len(fewer)))
        asked = self._encoded(fewer, self.distinct(fields), [order.index(i) for i in fewer])
        most = math.prod(self._sizes(fewer))
        if most > SPARSE * len(asked):
            return np.searchsorted(known, asked)
        rows = np.empty(most, dtype=np.int64)
        rows[known] = np.arange(len(known))
        return rows[asked]

    def _steps(self, fields: Fields, field: int) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of rows that differ in one field only, by one step to its next value that is there: (lower, higher)."""
        order, codes = sorted(fields), self.distinct(fields)
        at = order.index(field)
        rest = [i for i in order if i != field]
        key = self._encoded(rest, codes, [order.index(i) for i in rest])
        sort = np.lexsort((codes[:, at], key))
        same = key[sort][1:] == key[sort][:-1]
        return sort[:-1][same], sort[1:][same]
