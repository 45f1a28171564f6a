"""Tables of a scenario side by side, so that what a point reads of them is gathered in few calls."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .distinct import Fields, PlanTable
from .packs import Packs
from .tables import Table

PART = 512  # points of a program at a time

Place = tuple[Fields, str]
"""Fields that a number depends on, and its type."""


class Packed(NamedTuple):
    """Tables side by side: of each set of fields one matrix, of which a point reads one row.

    matrices: of one type each, [combinations, numbers]; places: of each table its matrix, columns [first, last), shape.
    """

    matrices: dict[Place, np.ndarray]
    places: list[tuple[Place, int, int, tuple[int, ...]]]

    @classmethod
    def of(cls, tables: Sequence[Table]) -> "Packed":
        """Pack these tables."""
        columns: dict[Place, list[np.ndarray]] = {}
        widths: dict[Place, int] = {}
        places: list[tuple[Place, int, int, tuple[int, ...]]] = []
        for table in tables:
            flat = np.asarray(table.values).reshape(len(table.values), -1)
            key = (table.fields, flat.dtype.str)
            first = widths.get(key, 0)
            widths[key] = first + flat.shape[1]
            columns.setdefault(key, []).append(flat)
            places.append((key, first, widths[key], table.values.shape[1:]))
        return cls({key: np.concatenate(parts, axis=1) for key, parts in columns.items()}, places)

    def at(self, codes: Int[np.ndarray, "points fields"], plans: PlanTable) -> list[np.ndarray]:
        """The numbers of each table at these points; one for all where no field reaches it."""
        rows: dict[Place, np.ndarray] = {}
        for key, matrix in self.matrices.items():
            order = sorted(key[0])
            sizes = [len(plans.values[i]) for i in order]
            rows[key] = matrix[np.ravel_multi_index(codes[:, order].T, sizes)].T if order else matrix.T
        return [
            rows[key][first:last].reshape(*shape, -1) if shape else rows[key][first]
            for key, first, last, shape in self.places
        ]


class LookUp:
    """Puts what tables have for many points where a program wants it.

    Args:
        packed: the tables.
        wanted: of each table, in turn, (which buffer, first row, rows) its numbers go to; then of other numbers.
        plans: whose codes points are given by.
    """

    def __init__(self, packed: Packed, wanted: Sequence[tuple[int, int, int]], plans: PlanTable):
        columns: dict[tuple[Place, int], list[int]] = {}
        rows: dict[tuple[Place, int], list[int]] = {}
        for (key, start, stop, _), (buffer, row, count) in zip(packed.places, wanted, strict=False):
            columns.setdefault((key, buffer), []).extend(range(start, stop))
            rows.setdefault((key, buffer), []).extend(range(row, row + count))
        self._others = [(buffer, row) for buffer, row, _ in wanted[len(packed.places) :]]
        self._steps = np.zeros((len(plans.fields), len(rows)))
        self._parts: list[tuple[int, slice | np.ndarray, np.ndarray, bool]] = []
        for number, ((key, buffer), own) in enumerate(rows.items()):
            step = 1
            for field in sorted(key[0], reverse=True):
                self._steps[field, number] = step
                step *= len(plans.values[field])
            matrix = np.ascontiguousarray(packed.matrices[key][:, columns[key, buffer]].T)
            side_by_side = own == list(range(own[0], own[0] + len(own)))
            place = slice(own[0], own[0] + len(own)) if side_by_side else np.array(own)
            self._parts.append((buffer, place, matrix, bool(key[0])))

    def run(
        self, packs: Packs, codes: Int[np.ndarray, "points fields"], others: Float[np.ndarray, "points numbers"]
    ) -> Float[np.ndarray, "points outputs"]:
        """Outputs of a program at these points, so many at a time that a cache holds what waits."""
        count = len(codes)
        parts = [slice(first, min(first + PART, count)) for first in range(0, count, PART)]
        result = [packs(p.stop - p.start, functools.partial(self._write, codes[p], others[p].T)) for p in parts]
        return result[0] if len(result) == 1 else np.concatenate(result)

    def _write(self, codes: np.ndarray, others: np.ndarray, buffers: Sequence[np.ndarray]) -> None:
        for (buffer, row), column in zip(self._others, others, strict=True):
            buffers[buffer][row] = column
        row = (codes.astype(float) @ self._steps).astype(np.intp).T  # whole numbers far below 2^53
        for number, (buffer, index, matrix, varies) in enumerate(self._parts):
            target = buffers[buffer]
            if not varies:
                target[index] = matrix
            elif isinstance(index, slice) and matrix.dtype == target.dtype:
                matrix.take(row[number], 1, target[index], "clip")
            else:
                target[index] = matrix.take(row[number], 1)
