"""Any fabric, shared with traffic that is not ours."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..fields import quantity
from ..hardware import Link
from .base import AbstractFabric, Group

CALM_RATIO = 0.95
"""Share of the rate up to which the law is exact. Beyond it a fluid model says nothing but 'congested'."""


def slowdown(background_ratio: Array) -> Array:
    """1 / (1 - u) where others take the share u < 0.95 of the rate; beyond, the power law that touches it there.

    u^19 has the value and the slope of 1 / (1 - u) at 0.95 and is straight in logarithms, so the whole is finite,
    rising and log-convex for every u >= 0.
    """
    calm = background_ratio < CALM_RATIO
    share = jnp.where(calm, background_ratio, 0.0)
    beyond = jnp.where(calm, 1.0, background_ratio / CALM_RATIO)
    power = CALM_RATIO / (1 - CALM_RATIO)
    return jnp.where(calm, 1 / (1 - share), beyond**power / (1 - CALM_RATIO))


class Contended(AbstractFabric):
    """`inner` with `background_bytes_per_s` of each endpoint's rate taken by others: t = nbytes / (B - background).

    Storage, checkpoints, other tenants on the same network card. The traffic named by the group comes on top.

    Assumes: a fluid, the background served first, its share of the latency neglected (waits in queues come with the
    packet model). A prediction where background < 0.95 B; beyond that a finite, rising, log-convex continuation
    (`slowdown`), so that a search sees which way out.
    """

    inner: AbstractFabric
    background_bytes_per_s: Float[Array, "*b"] = quantity(high=1e13, doc="per direction per endpoint")

    def link(self, group: Group) -> Link:
        """The inner link at what the others leave of its rate."""
        link = self.inner.link(group)
        background = self.background_bytes_per_s + group.background_bytes_per_s
        return dataclasses.replace(
            link, beta_s_per_byte=link.beta_s_per_byte * slowdown(background * link.beta_s_per_byte)
        )

    def reach(self) -> Array:
        """As far as the inner fabric."""
        return self.inner.reach()

    def capex_usd(self) -> Array:
        """The inner fabric's price."""
        return self.inner.capex_usd()

    def static_power_w(self) -> Array:
        """The inner fabric's power."""
        return self.inner.static_power_w()

    def limits(self) -> dict[str, Array]:
        """The inner fabric's."""
        return self.inner.limits()
