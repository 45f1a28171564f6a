"""Memory layout of a block's numbers: the axes that they have, and how many of these are one long axis."""

from collections.abc import Mapping, Sequence

from ..jaxprs.program import Equation
from .distinct import Fields

ONCE, ROW, NUMBER = (
    1000.0,
    15.0,
    0.35,
)  # nanoseconds: of a call of NumPy, of each row that it does, of each number in it
"""Measured on an AMD EPYC with additions of doubles; only their ratios matter."""


def reached(equations: Sequence[Equation], given: Mapping[int, Fields]) -> dict[int, Fields]:
    """Slot -> variables that reach it, of all that the equations read or make."""
    fields = dict(given)
    for equation in equations:
        fields |= dict.fromkeys(equation.outputs, frozenset[int]().union(*(fields[slot] for slot in equation.inputs)))
    return fields


class BlockAxes:
    """Axes of a block: one for each of the first variables, and one for the plans and the others together.

    Args:
        sizes: levels of each variable in a block.
        plans: of a block.
        apart: how many variables have an axis of their own.
    """

    def __init__(self, sizes: Sequence[int], plans: int, apart: int):
        self.sizes, self.apart = tuple(sizes), apart
        self.length = plans
        for size in self.sizes[apart:]:
            self.length *= size

    def shape(self, of_plans: bool, variables: Fields) -> tuple[int, ...]:
        """Shape of a number that these reach: 1 along what does not change it."""
        front = [size if number in variables else 1 for number, size in enumerate(self.sizes[: self.apart])]
        together = of_plans or any(number >= self.apart for number in variables)
        return (*front, self.length if together else 1)

    def seconds(self, operations: Mapping[tuple[bool, Fields], float]) -> float:
        """Estimate the time of operations on numbers so reached, seconds.

        Args:
            operations: (whether any plan field reaches it, variables that do) -> how many, and of arrays each number.
        """
        total = 0.0
        for (of_plans, variables), count in operations.items():
            shape, rows = self.shape(of_plans, variables), 1
            row = max(shape[-1], shape[-2] if len(shape) > 1 and shape[-1] == 1 else 1)
            for size in shape:
                rows *= size
            total += count * (ONCE + rows / row * ROW + rows * NUMBER)
        return total * 1e-9


def best_layout(sizes: Sequence[int], plans: int, operations: Mapping[tuple[bool, Fields], float]) -> BlockAxes:
    """The one in which the operations take least."""
    layouts = [BlockAxes(sizes, plans, apart) for apart in range(len(sizes) + 1)]
    return min(layouts, key=lambda layout: layout.seconds(operations))
