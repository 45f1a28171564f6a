"""What an operation costs: seconds and joules, and how costs combine."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .smooth import maximum


class Cost(eqx.Module):
    """Time and energy of one operation on one device.

    `a + b` is one after the other, `overlap(a, b)` side by side, `a * n` is repetition.
    """

    time_s: Float[Array, "*batch"]
    energy_j: Float[Array, "*batch"]

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.time_s + other.time_s, self.energy_j + other.energy_j)

    def __mul__(self, count: Float[Array, "*batch"] | float) -> "Cost":
        return Cost(self.time_s * count, self.energy_j * count)

    __rmul__ = __mul__


def zero() -> Cost:
    """Nothing done, nothing spent."""
    return Cost(jnp.asarray(0.0), jnp.asarray(0.0))


def overlap(a: Cost, b: Cost) -> Cost:
    """Both at once: the longer time, the sum of the energies."""
    return Cost(maximum(a.time_s, b.time_s), a.energy_j + b.energy_j)


def partly_hidden_s(work_s: Float[Array, "*b"], other_s: Float[Array, "*b"], hidden: Float[Array, "*b"]) -> Array:
    """Time of `work_s` and `other_s` when the share `hidden` of the work can cover the other.

    work + max(0, other - hidden * work), written max(work, (1 - hidden) * work + other) so that it stays log-convex.
    """
    return maximum(work_s, (1 - hidden) * work_s + other_s)
