"""Cost of an operation, in seconds and joules, and how costs combine."""

from jaxtyping import Array, Float

from .computed_once import one_call
from .fields import Module, quantity
from .jax_typed import asarray
from .smooth import maximum

__all__ = ["Cost", "overlap", "partly_hidden_s", "zero"]


class Cost(Module):
    """Time and energy of one operation on one device.

    `a + b` is one after the other, `overlap(a, b)` side by side, `a * n` is repetition. `engine_s` is the compute
    time that communication takes away from what runs beside it.
    """

    time_s: Float[Array, "*batch"]
    energy_j: Float[Array, "*batch"]
    engine_s: Float[Array, "*batch"] = quantity(default=0.0)

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.time_s + other.time_s, self.energy_j + other.energy_j, self.engine_s + other.engine_s)

    def __mul__(self, count: Float[Array, "*batch"] | float) -> "Cost":
        return Cost(self.time_s * count, self.energy_j * count, self.engine_s * count)

    __rmul__ = __mul__


def zero() -> Cost:
    """Nothing done, nothing spent."""
    return Cost(asarray(0.0), asarray(0.0))


def overlap(a: Cost, b: Cost) -> Cost:
    """Cost of two concurrent operations: the longer time, the sum of the energies."""
    return Cost(maximum(a.time_s, b.time_s), a.energy_j + b.energy_j, a.engine_s + b.engine_s)


@one_call()
def partly_hidden_s(work_s: Array, other: Cost, hidden: Array) -> Array:
    """Time of `work_s` and `other` when the share `hidden` of the work can cover the other.

    work + max(0, other - hidden * work), written max(work, (1 - hidden) * work + other) so that it stays log-convex;
    while it is covered, the other slows the work down by the compute time it takes.
    """
    return maximum(work_s + other.engine_s, (1 - hidden) * work_s + other.time_s)
