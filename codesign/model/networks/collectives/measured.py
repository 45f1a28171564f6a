"""A collective as a library runs it: curves over group and message size, fitted to measurements."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....core.cost import Cost
from ....core.fields import quantity
from ....core.jax_typed import asarray
from ....core.smooth import at_least
from ...hardware import Link
from ..fabrics import Group
from .base import AbstractCollective

MEMBERS = (2.0, 4.0, 8.0, 16.0, 64.0)  # where the curves over group size have their knots
LEAST_S = 1e-9  # no library starts sooner; the curve is a line in logarithms, which end above zero


class Measured(AbstractCollective):
    """t = T(n) + wire(n) + ramp T(n)^(1-x) wire(n)^x z / (1 + z), z = (nbytes / n / switch_bytes)^2.

    wire = rounds (n-1)/n nbytes beta / r(n); T(n) = base_n + rounds alpha, base_n the library's own time on a switch.
    r and base are straight lines in log-log between 2, 4, 8, 16 and 64 members and constant beyond. The ramp is what
    messages lose that are large enough for the bandwidth-bound protocol but too small to fill the wire.

    With in-switch reduction r may exceed one: rounds x (n-1)/n is what a ring would send, not what the wire carries.
    Energy is that of the ring's volume.

    Assumes: the mix of protocols a library chose on the fabric measured; log-convex in alpha and beta.
    Source: constants from `conf/collective`.
    """

    long: ClassVar[bool] = True

    base_2_s: Float[Array, "*b"] = quantity(low=LEAST_S, default=6e-6)
    base_4_s: Float[Array, "*b"] = quantity(low=LEAST_S, default=8e-6)
    base_8_s: Float[Array, "*b"] = quantity(low=LEAST_S, default=12e-6)
    base_16_s: Float[Array, "*b"] = quantity(low=LEAST_S, default=25e-6)
    base_64_s: Float[Array, "*b"] = quantity(low=LEAST_S, default=50e-6)
    ratio_2: Float[Array, "*b"] = quantity(low=1e-4, high=4.0, default=0.6)
    ratio_4: Float[Array, "*b"] = quantity(low=1e-4, high=4.0, default=0.7)
    ratio_8: Float[Array, "*b"] = quantity(low=1e-4, high=4.0, default=0.8)
    ratio_16: Float[Array, "*b"] = quantity(low=1e-4, high=4.0, default=0.8)
    ratio_64: Float[Array, "*b"] = quantity(low=1e-4, high=4.0, default=0.8)
    ramp: Float[Array, "*b"] = quantity(default=1.0)
    ramp_power: Float[Array, "*b"] = quantity(high=1.0, default=0.4)
    switch_bytes: Float[Array, "*b"] = quantity(low=1.0, default=3e5, doc="nbytes / n of the bandwidth-bound protocol")
    rounds: Float[Array, "*b"] = quantity(low=1.0, default=1.0, doc="2 for an all-reduce, else 1")

    def _curve(self, members: Array, values: tuple[Array, ...]) -> Array:
        knots, logs = np.log(MEMBERS), jnp.log(jnp.stack(values))
        risen = jnp.clip((jnp.log(members)[..., None] - knots[:-1]) / np.diff(knots), 0, 1)
        return jnp.exp(logs[0] + jnp.sum(risen * jnp.diff(logs), axis=-1))

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Seconds, and joules of what a ring would send; nothing for a group of one or no bytes."""
        busy = (group.size > 1) & (nbytes > 0)
        members = at_least(group.size, 1 + 1e-6)
        bases = (self.base_2_s, self.base_4_s, self.base_8_s, self.base_16_s, self.base_64_s)
        ratios = (self.ratio_2, self.ratio_4, self.ratio_8, self.ratio_16, self.ratio_64)
        start = self._curve(members, bases) + self.rounds * link.alpha_s
        sent = jnp.where(busy, self.rounds * (members - 1) / members * nbytes, 1.0)
        wire = sent * link.beta_s_per_byte / self._curve(members, ratios)
        large = jnp.minimum(jnp.where(busy, nbytes, 1.0) / members / self.switch_bytes, 1e6) ** 2
        lost = self.ramp * start ** (1 - self.ramp_power) * wire**self.ramp_power * large / (1 + large)
        return Cost(jnp.where(busy, start + wire + lost, 0.0), jnp.where(busy, sent * link.energy_j_per_byte, 0.0))

    @classmethod
    def example(cls) -> "Measured":
        """With plain numbers."""
        return cls(rounds=asarray(2.0))
