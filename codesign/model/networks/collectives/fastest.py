"""The best of several algorithms, message by message."""

import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ....core.cost import Cost
from ....core.errors import ConfigError
from ....core.smooth import at_least
from ...hardware import Link
from ..fabrics import Group
from .base import AbstractCollective
from .direct import TwoShotAllReduce
from .ring import RingAllReduce


class Fastest(AbstractCollective):
    """The option that takes the least time for this size and this group, with its energy: a library's tuner.

    A hard minimum: gradients follow the winner and jump where it changes. NOT log-convex, even where every option is:
    where a proof of the optimum is wanted, name one algorithm.

    Assumes: a tuner that knows the link as well as the formulas do.
    """

    log_convex: ClassVar[bool] = False

    options: dict[str, AbstractCollective]

    def __check_init__(self) -> None:
        """A choice needs something to choose from."""
        if not self.options:
            raise ConfigError("options of Fastest is empty (name -> algorithm, at least one)")

    def names(self) -> tuple[str, ...]:
        """Options in the order of `winner`."""
        return tuple(sorted(self.options))

    def each(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Costs of all options along a new first axis, in the order of `names`."""
        costs = [self.options[name].cost(nbytes, group, link) for name in self.names()]

        def stacked(*leaves: Array) -> Array:
            return jnp.stack(jnp.broadcast_arrays(*leaves))

        return jax.tree.map(stacked, *costs)

    def winner(self, nbytes: Array, group: Group, link: Link) -> Array:
        """Index into `names` of the fastest, the first of equals."""
        return jnp.argmin(self.each(nbytes, group, link).time_s, axis=0)

    def may_round(self) -> bool:
        """True if any option may round."""
        return any(option.may_round() for option in self.options.values())

    def log_perplexity_penalty(self, group: Group) -> Array:
        """The largest of any option: the tuner does not ask."""
        penalties = [self.options[name].log_perplexity_penalty(group) for name in self.names()]
        return functools.reduce(at_least, penalties)

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Cost of the fastest."""
        each = self.each(nbytes, group, link)
        best = jnp.argmin(each.time_s, axis=0)[None]

        def chosen(leaf: Array) -> Array:
            return jnp.take_along_axis(leaf, best, axis=0)[0]

        return jax.tree.map(chosen, each)

    @classmethod
    def example(cls) -> "Fastest":
        """An example: two algorithms."""
        return cls({"ring": RingAllReduce(), "shot": TwoShotAllReduce()})
