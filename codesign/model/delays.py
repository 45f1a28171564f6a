"""Time of one collective or send amid other traffic: the mean and the slowest of a hundred."""

import dataclasses
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..core.fields import quantity
from ..core.jax_typed import asarray
from ..core.smooth import at_least, at_most, maximum, ratio
from .hardware import Link
from .networks.collectives.levels import Stage, spanning
from .networks.fabrics import AbstractFabric, Group, QueuedNode
from .networks.fabrics.queued import LONGEST
from .workloads import CommOp

__all__ = ["SLOWEST", "collective_times", "tail_s"]

SLOWEST = 2.3263479
"""Standard deviations of a normal number that 99 in a hundred stay below. Source: derived."""


class Later(AbstractFabric):
    """A fabric whose messages take `later_s` more."""

    inner: AbstractFabric
    later_s: Float[Array, "*b"] = quantity()

    def link(self, group: Group) -> Link:
        """The inner link, later."""
        link = self.inner.link(group)
        return dataclasses.replace(link, alpha_s=link.alpha_s + self.later_s)

    def reach(self) -> Array:
        """Reach of the inner fabric."""
        return self.inner.reach()

    def capex_usd(self) -> Array:
        """The inner fabric's price."""
        return self.inner.capex_usd()

    def static_power_w(self) -> Array:
        """The inner fabric's power."""
        return self.inner.static_power_w()


def tail_s(mean: Array, variance: Array) -> Array:
    """Seconds that the slowest of a hundred sums of waits exceeds the mean by, for a gamma distribution, at least 0.

        mean (1 - 1 / (9 a) + 2.326 / (3 sqrt(a)))^3 - mean,    a = mean^2 / variance

    Source: the cube root of a gamma number is nearly normal [wilson1931].
    """
    mean = at_most(mean, LONGEST)
    waits = (mean > 0) & (variance > 0)
    shape = jnp.where(waits, ratio(mean * mean, variance), 1.0)
    root = at_least(1 - 1 / (9 * shape) + SLOWEST / (3 * jnp.sqrt(shape)), 0.0)
    return jnp.where(waits, at_least(mean * root**3 - mean, 0.0), 0.0)


def steps(op: CommOp, parts: Sequence[Stage], here: int) -> Array:
    """Messages of an operation on one level that follow one another: by how much it is later if each is by a second."""

    def later(seconds: Array) -> Array:
        part = parts[here]
        level = dataclasses.replace(part.level, fabric=Later(part.level.fabric, seconds))
        return spanning(op.operation, op.nbytes, [*parts[:here], part._replace(level=level), *parts[here + 1 :]]).time_s

    return jax.jvp(later, (asarray(0.0),), (asarray(1.0),))[1]


def collective_times(ops: Iterable[tuple[CommOp, Sequence[Stage]]]) -> dict[str, Array]:
    """`collective_s.AXIS` and `collective_p99_s.AXIS`, where others' bursts are waited for: seconds of an axis' longest
    single operation, and of the slowest of a hundred such operations.

    Assumes: waits of the messages of an operation are independent. Against rings of eight carried out: within 25 %. The
    tail is not log-convex: a search under a limit on it gives no certificate.
    """
    result: dict[str, Array] = {}
    for op, parts in ops:
        if not any(isinstance(part.level.fabric, QueuedNode) for part in parts):
            continue
        mean = spread = asarray(0.0)
        for here, part in enumerate(parts):
            if isinstance(part.level.fabric, QueuedNode):
                count = steps(op, parts, here)
                one, variance = part.level.fabric.wait(part.group)
                mean, spread = mean + count * one, spread + count * variance
        once = spanning(op.operation, op.nbytes, parts).time_s
        runs = op.count > 0
        for name, seconds in (("collective_s", once), ("collective_p99_s", once + tail_s(mean, spread))):
            key = f"{name}.{op.axis}"
            result[key] = maximum(result.get(key, asarray(0.0)), jnp.where(runs, seconds, 0.0))
    return result
