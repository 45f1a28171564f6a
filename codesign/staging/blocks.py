"""A staged program over all plans and all levels of the hardware, block by block.

Inside a block every number has one axis for each hardware variable and one for the plans, of length 1 where it does not
change: what a few levels of two variables decide is computed once for them, not for every point. The longest axis comes
last, where NumPy runs fastest.
"""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float, Int

from ..scenario import Scenario
from .distinct import Fields, PlanTable
from .model import Model
from .program import Program
from .running import Running
from .staged import leaves_as_tables, stage
from .tables import Table

MOST_ROWS = 1 << 18  # of a table (memory: 2 MB): what has more distinct values is computed block by block


class Blocks:
    """Outputs of a program at any block of a grid.

    Args:
        model: whose inputs the program has.
        program: numbers that are asked for, of the model's inputs.
        scenario: what is varied.
        plans: field -> its value in each plan.
        levels: values of each hardware variable, in the model's order.
    """

    def __init__(
        self,
        model: Model,
        program: Program,
        scenario: Scenario,
        plans: dict[str, np.ndarray],
        levels: Sequence[np.ndarray],
    ):
        self.shape = tuple(map(len, levels))
        self._table = PlanTable(plans, dict(zip(model.variables, levels, strict=True)))
        self._listed = len(plans)
        given = leaves_as_tables(program.inputs[: model.leaves], jax.tree.leaves(scenario))
        for number, slot in enumerate(program.inputs[model.leaves :]):
            given[slot] = Table(frozenset([number]), self._table.column(number))
        self._program = staged = stage(program, self._table, given, MOST_ROWS)
        self._rows = {fields: self._table.rows_of(fields) for fields in self._plan_parts()}
        self._spread = [self._spread_out(table) for table in self._program.tables.values()]
        self._run = Running(staged.rest, list(staged.tables), staged.outputs, {}, staged.kinds, len(self.shape) + 1)

    @property
    def operations(self) -> int:
        """Of the program, those that are done block by block."""
        return self._run.operations

    def _plan_parts(self) -> set[Fields]:
        return {self._plan_part(table) for table in self._program.tables.values()}

    def _plan_part(self, table: Table) -> Fields:
        return frozenset(field for field in table.fields if field < self._listed)

    def _spread_out(self, table: Table) -> tuple[Fields, np.ndarray]:
        """(plan fields that reach it, [own axes, levels of each variable or 1, combinations of plan fields])."""
        part = self._plan_part(table)
        sizes = [size if self._listed + number in table.fields else 1 for number, size in enumerate(self.shape)]
        values = table.values.reshape(-1, *sizes, *table.values.shape[1:])
        levels, own = range(1, 1 + len(sizes)), range(1 + len(sizes), values.ndim)
        return part, np.ascontiguousarray(values.transpose((*own, *levels, 0)))

    def __call__(
        self, plan: Int[np.ndarray, " plans"], first: int, count: int
    ) -> list[Float[np.ndarray, "plans levels"]]:
        """Outputs at some plans and at levels `first` to `first + count`, which are whole ranges of the last variables.

        Levels are numbered with the last variable running fastest.
        """
        ranges = self._ranges(first, count)
        sizes = (*(stop - start for start, stop in ranges), len(plan))
        last = int(np.argmax(sizes))
        given = []
        for part, values in self._spread:
            own = values.ndim - len(sizes)
            cut = [
                slice(start, stop) if size > 1 else slice(None)
                for (start, stop), size in zip(ranges, values.shape[own:-1], strict=True)
            ]
            values = values[(*[slice(None)] * own, *cut)]
            if part:
                values = values.take(self._rows[part][plan], axis=-1)
            given.append(np.moveaxis(values, own + last, -1))
        answers = []
        for found in self._run(*given):
            answer = np.moveaxis(found, -1, last)
            answers.append(np.broadcast_to(answer, sizes).reshape(count, len(plan)).T)
        return answers

    def _ranges(self, first: int, count: int) -> list[tuple[int, int]]:
        """[start, stop) of the levels of each variable."""
        ranges: list[tuple[int, int]] = []
        for size in reversed(self.shape):
            first, start = divmod(first, size)
            length = min(count, size)
            ranges.append((start, start + length))
            count //= length
        return ranges[::-1]

    def wide(self, most: int) -> int:
        """The most levels of one block, at most `most`."""
        count = 1
        for size in reversed(self.shape):
            if count * size > most:
                return count * max(part for part in range(1, size + 1) if size % part == 0 and count * part <= most)
            count *= size
        return count
