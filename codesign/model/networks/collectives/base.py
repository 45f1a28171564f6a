"""Collective operations written against a link.

Sizes follow the convention of the field's benchmarks: `nbytes` is the full buffer of an all-reduce, broadcast or
reduce, the gathered size of an all-gather, the input of a reduce-scatter or all-to-all, the message of a send. Group
sizes are real-valued; a group of one costs nothing.
"""

import abc
import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.cost import Cost
from ....core.examples import by_default
from ....core.fields import Module, quantity
from ....core.jax_typed import arrays, asarray, zeros_like
from ...hardware import Link
from ..fabrics import Group

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "broadcast", "reduce")


class AbstractCollective(Module):
    """An algorithm for one operation. `long` formulas are traced once for all operations of their kind.

    `operation` is what it carries out (a wrapper: what its example does), of `OPERATIONS`. `log_convex` says whether
    the cost is, in the link and in the algorithm's own continuous numbers.
    """

    operation: ClassVar[str] = "all_reduce"

    long: ClassVar[bool] = False
    log_convex: ClassVar[bool] = True

    @classmethod
    def example(cls) -> "AbstractCollective":
        """A small one with plain numbers, which contracts price; classes without defaults bring their own."""
        return by_default(cls)

    @abc.abstractmethod
    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Time of the operation and the energy of what one member sends."""

    def may_round(self) -> bool:
        """True if what is sent may be rounded on the way."""
        return False

    def capex_usd(self, endpoints: Array) -> Array:
        """Price of the hardware that it needs beside accelerators and fabric, an endpoint: none."""
        return zeros_like(endpoints)

    def limits(self, endpoints: Array) -> dict[str, Array]:
        """Used share of whatever bounds that hardware, feasible up to 1: nothing here."""
        del endpoints
        return {}

    def log_perplexity_penalty(self, group: Group) -> Array:
        """Increase of ln(perplexity) of a language model whose partial results are summed like this: none."""
        return zeros_like(group.size)


def among_many(group: Group, link: Link, steps: Array, sent_bytes: Array, new_partners: Array | float = 0.0) -> Cost:
    """`steps` messages one after the other that carry `sent_bytes` in all; nothing for a group of one or no bytes.

    `new_partners` counts the steps before which a circuit must be pointed at someone else.
    """
    busy = (group.size > 1) & (sent_bytes > 0)
    seconds = steps * link.alpha_s + new_partners * link.reconfiguration_s + sent_bytes * link.beta_s_per_byte
    return Cost(jnp.where(busy, seconds, 0.0), jnp.where(busy, sent_bytes * link.energy_j_per_byte, 0.0))


class Tuned(AbstractCollective):
    """Any algorithm as a library runs it: a launch time, and a share of the link's rate and of its latency.

    Source: constants from `conf/calibration`.
    """

    inner: AbstractCollective
    launch_s: Float[Array, "*b"] = quantity(default=0.0, usual=(4.6e-6, 4e-5))
    bandwidth_ratio: Float[Array, "*b"] = quantity(low=1e-3, high=4.0, default=1.0)
    latency_ratio: Float[Array, "*b"] = quantity(default=1.0)

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Launch, then the algorithm on the slower link."""
        slower = dataclasses.replace(
            link,
            alpha_s=link.alpha_s * self.latency_ratio,
            beta_s_per_byte=link.beta_s_per_byte / self.bandwidth_ratio,
        )
        launch = jnp.where((group.size > 1) & (nbytes > 0), self.launch_s, 0.0)
        return Cost(launch, zeros_like(launch)) + self.inner.cost(nbytes, group, slower)

    def capex_usd(self, endpoints: Array) -> Array:
        """Price of the inner algorithm's hardware."""
        return self.inner.capex_usd(endpoints)

    def limits(self, endpoints: Array) -> dict[str, Array]:
        """Used shares of the inner algorithm's limits."""
        return self.inner.limits(endpoints)

    def may_round(self) -> bool:
        """True if the inner algorithm may round what is sent."""
        return self.inner.may_round()

    def log_perplexity_penalty(self, group: Group) -> Array:
        """Increase of ln(perplexity) by the inner algorithm."""
        return self.inner.log_perplexity_penalty(group)

    @classmethod
    def example(cls) -> "Tuned":
        """An example: a tuned ring."""
        return cls(ScaledVolume.example(), *arrays(5e-6, 0.8, 2.0))


class ScaledVolume(AbstractCollective):
    """One latency and nbytes * scalar * (1 + offset / n) on the wire, whatever the algorithm.

    Source: [isaev2023], its network operation factors.
    """

    scalar: Float[Array, "*b"] = quantity(default=1.0)
    offset: Float[Array, "*b"] = quantity(low=-1.0, high=10.0, default=0.0)

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """One latency plus the scaled volume at the link's rate."""
        return among_many(group, link, asarray(1.0), nbytes * self.scalar * (1 + self.offset / group.size))

    @classmethod
    def example(cls) -> "ScaledVolume":
        """A ring's."""
        return cls(*arrays(2.0, -1.0))
