"""Interface of fabrics: the link that each member of a process group sees."""

import abc
import dataclasses
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array, Float

from ....core.examples import by_default
from ....core.fields import Module, quantity
from ....core.jax_typed import asarray
from ....core.pretty import as_text
from ....core.smooth import at_least, at_most, floor
from ...hardware import Link

ALGORITHMS = (
    *("ring", "all_to_all", "sipac", "radix_2", "radix_4"),
    *("synthesised_64k", "synthesised_1m", "synthesised_8m", "synthesised_1g"),
)
"""Names by which a plan may choose among the algorithms of a network level that offers several (`Chosen`)."""


class BackgroundTraffic(Module):
    """The job's other traffic that is under way together with a group's own, per byte of the group's own.

    here_ratio: bytes of the others over the links that the group uses. elsewhere_s_per_byte: time that whatever is
    under way needs on the busiest of the other network levels. met_ratio: share of the group's own bytes that meets
    the others; the two numbers before count per such byte.

    beyond_ratio of all its traffic leave the node; and seconds per byte, alone, of the levels next to one's own, inside
    and beyond.
    """

    here_ratio: Float[Array, "*b"] = quantity(default=0.0)
    elsewhere_s_per_byte: Float[Array, "*b"] = quantity(default=0.0)
    met_ratio: Float[Array, "*b"] = quantity(high=1.0, default=0.0)
    beyond_ratio: Float[Array, "*b"] = quantity(high=1.0, default=0.0)
    inside_s_per_byte: Float[Array, "*b"] = quantity(default=0.0)
    beyond_s_per_byte: Float[Array, "*b"] = quantity(default=0.0)


_ZERO: Any = np.zeros(())  # JAX must not begin before `prepare_jax` has set it
ALONE = BackgroundTraffic(*[_ZERO] * 6)


class Group(Module):
    """A process group: `size` members, `stride` devices apart, while others load the same links.

    All real-valued, so that searches may relax them. `beside` is what the plan itself sends at the same time; only
    fabrics that are shared look at it. `element_bytes` is the size of a number of what is sent, 0 where it may not be
    rounded: only algorithms that round look at it. `algorithm` is the plan's place in `ALGORITHMS`.
    """

    size: Float[Array, "*b"] = quantity(low=1.0)
    stride: Float[Array, "*b"] = quantity(low=1.0, default=1.0)
    background_bytes_per_s: Float[Array, "*b"] = quantity(default=0.0)
    beside: BackgroundTraffic = ALONE
    element_bytes: Float[Array, "*b"] = quantity(high=8.0, default=2.0, doc="0: may not be rounded")
    algorithm: Float[Array, "*b"] = quantity(high=float(len(ALGORITHMS) - 1), default=0.0, doc="place in ALGORITHMS")

    def split(self, reach: Array) -> tuple["Group", "Group"]:
        """Cut at a domain of `reach` neighbouring devices: (members inside one domain, one member of each domain).

        A domain holds floor(reach / stride) members, at least one and at most all of them.
        """
        inside = at_most(at_least(floor(reach / self.stride), 1.0), self.size)
        inner = dataclasses.replace(self, size=inside, beside=ALONE)
        outer = dataclasses.replace(inner, size=self.size / inside, stride=self.stride * inside)
        return inner, outer


class AbstractFabric(Module):
    """Network that connects devices. Prices and powers are per endpoint, so a cluster multiplies by its device count.

    `sees_others` says whether a link depends on what else is under way (`Group.beside`); `whole` are parts of the names
    of numbers that count something and decide on which path a group talks: it steps there, and is continuous elsewhere.
    """

    sees_others: ClassVar[bool] = False
    whole: ClassVar[tuple[str, ...]] = ("endpoints", "radix", "rails")

    __repr__ = as_text

    @classmethod
    def example(cls) -> "AbstractFabric":
        """A small one with plain numbers, which contracts price; classes without defaults bring their own."""
        return by_default(cls)

    @abc.abstractmethod
    def link(self, group: Group) -> Link:
        """The link each member of the group sees while all of them talk."""

    def taken_ratio(self, group: Group) -> Array | None:
        """Share of the link's rate that traffic which is not the plan's takes; None where there is no such traffic."""
        del group
        return None

    @abc.abstractmethod
    def reach(self) -> Array:
        """Neighbouring devices that one instance of this fabric joins."""

    @abc.abstractmethod
    def capex_usd(self) -> Array:
        """Purchase price per endpoint."""

    @abc.abstractmethod
    def static_power_w(self) -> Array:
        """Power per endpoint whether or not anything moves."""

    def limits(self) -> dict[str, Array]:
        """Used share of whatever bounds the fabric as a thing that can be built, feasible up to 1: nothing here."""
        return {}

    def counts(self, devices: Array) -> dict[str, Array]:
        """Counts of parts of the instances that join so many devices (switches, cables): nothing here."""
        del devices
        return {}

    def joining(self, devices: Array) -> "AbstractFabric":
        """Fabric as the outermost level of a cluster of so many devices: unchanged, unless it grows with it."""
        del devices
        return self


class AbstractWrappedFabric(AbstractFabric):
    """`inner` with links of its own: in all else it is the inner fabric."""

    inner: AbstractFabric

    def reach(self) -> Array:
        """Reach of the inner fabric."""
        return self.inner.reach()

    def capex_usd(self) -> Array:
        """Price of the inner fabric per endpoint."""
        return self.inner.capex_usd()

    def static_power_w(self) -> Array:
        """Power of the inner fabric per endpoint."""
        return self.inner.static_power_w()

    def limits(self) -> dict[str, Array]:
        """Used share of whatever bounds the inner fabric."""
        return self.inner.limits()

    def counts(self, devices: Array) -> dict[str, Array]:
        """Parts of the inner fabric."""
        return self.inner.counts(devices)

    def joining(self, devices: Array) -> "AbstractWrappedFabric":
        """With an inner fabric as the outermost level of a cluster of so many devices."""
        return dataclasses.replace(self, inner=self.inner.joining(devices))


def everywhere() -> Array:
    """The reach of the outermost fabric."""
    return asarray(1e9)
