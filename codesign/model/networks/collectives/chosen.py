"""One of several algorithms, by the plan's choice."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.cost import Cost
from ....core.errors import ConfigError, suggestion
from ....core.fields import integer, static
from ....core.jax_typed import asarray, where
from ....core.smooth import at_least, at_most, ceil
from ...hardware import Link
from ..fabrics import ALGORITHMS, Group
from .base import AbstractCollective
from .direct import TwoShotAllReduce
from .radix import Phase, divide, in_rounds, known_splitting
from .ring import RingAllReduce

# The best of several algorithms, message by message.


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


# Algorithms on circuits that stand for the whole job: products of cliques (SiPAC), and one clique of all members.


WIDE = 1e6  # a radix that no group exceeds


def product_of_cliques(size: Array, radix: Array, lanes: Array, splitting: str) -> tuple[Phase, Array]:
    """One phase on l = ceil(log_r n) dimensions of cliques, all used at once; and the rounds that wait for circuits.

    The buffer is cut into l parts; part j starts on dimension j and takes the others in turn, so that in each round
    every dimension carries another part and no circuit idles. With n = r^(l-1) q a part that has passed the short
    dimension (q members) first is ahead of the others in size, which sets the pace:

        share = 1 - 1/n + 1/q - 1/r      (1 - 1/n where q = r)

    The l (r - 1) circuits of a member share its lanes. Where there are fewer lanes than circuits they cannot all stand:
    they are served in waves, and the second of these equations counts the rounds of such waves.
    """
    base = at_most(radix, size)
    dimensions = at_least(ceil(jnp.log(size) / jnp.log(base)), 1.0)
    short = at_most(size / base ** (dimensions - 1), base)
    division = divide(at_least(dimensions * (base - 1), 1.0), lanes, splitting)
    rounds = dimensions * division.waves
    share = (1 - 1 / size + 1 / short - 1 / base) * division.loss
    return Phase(rounds, share), jnp.where(division.waves > 1, rounds, 0.0)


class SipacAllReduce(AbstractCollective):
    """2 l alpha + 2 (1 - 1/n + 1/q - 1/r) chi nbytes beta on SiPAC(r, l): no circuit is ever moved.

    n = r^(l-1) q members as points of l dimensions, those that differ in one dimension alone joined by a clique of
    standing circuits (`product_of_cliques`). A radix of n or more is the static all-to-all.

    Assumes: n = r^(l-1) q with whole q; between such sizes an interpolation. In whole lanes the loss is that of the
    long dimensions. Not log-convex in the radix or the lanes.
    Source: [sipac2024], Flex-SiPCO; [lumorph] section 3.
    """

    radix: Float[Array, "*b"] = integer(low=2.0, high=1e6, default=4.0)
    splitting: str = static(default="lanes", converter=known_splitting)

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Reduce-scatter, then all-gather."""
        size = at_least(group.size, 1 + 1e-6)
        half, waiting = product_of_cliques(size, self.radix, link.lanes, self.splitting)
        both = Phase(2 * half.rounds, 2 * half.share)
        return in_rounds(both, 2 * waiting, nbytes, group, link, 2 * (size - 1) / size)

    @classmethod
    def example(cls) -> "SipacAllReduce":
        """With plain numbers."""
        return cls(radix=asarray(4.0))


class SipacAllGather(AbstractCollective):
    """Half of `SipacAllReduce`; a reduce-scatter runs backwards."""

    operation: ClassVar[str] = "all_gather"

    radix: Float[Array, "*b"] = integer(low=2.0, high=1e6, default=4.0)
    splitting: str = static(default="lanes", converter=known_splitting)

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """One phase."""
        size = at_least(group.size, 1 + 1e-6)
        phase, waiting = product_of_cliques(size, self.radix, link.lanes, self.splitting)
        return in_rounds(phase, waiting, nbytes, group, link, (size - 1) / size)

    @classmethod
    def example(cls) -> "SipacAllGather":
        """With plain numbers."""
        return cls(radix=asarray(3.0), splitting="ideal")


class CliqueAllReduce(AbstractCollective):
    """2 alpha + 2 (1 - 1/n) chi nbytes beta: every member has a standing circuit to every other.

    Assumes: n - 1 <= lanes; beyond, circuits are set wave by wave and every wave waits for them.
    Source: [lumorph] figure 1.
    """

    splitting: str = static(default="lanes", converter=known_splitting)

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Reduce-scatter, then all-gather, in one dimension that holds the whole group."""
        return SipacAllReduce(radix=asarray(WIDE), splitting=self.splitting).cost(nbytes, group, link)


class CliqueAllGather(AbstractCollective):
    """Half of `CliqueAllReduce`; a reduce-scatter runs backwards."""

    operation: ClassVar[str] = "all_gather"

    splitting: str = static(default="lanes", converter=known_splitting)

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """One phase."""
        return SipacAllGather(radix=asarray(WIDE), splitting=self.splitting).cost(nbytes, group, link)

    @classmethod
    def example(cls) -> "CliqueAllGather":
        """With plain numbers."""
        return cls(splitting="equal")


class CliqueAllToAll(AbstractCollective):
    """alpha + (1 - 1/n) chi nbytes beta: every member has a standing circuit to every other.

    Assumes: n - 1 <= lanes; beyond, circuits are set wave by wave and every wave waits for them.
    Source: [lumorph] figure 1.
    """

    operation: ClassVar[str] = "all_to_all"

    splitting: str = static(default="lanes", converter=known_splitting)

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """One round, or as many as there are waves."""
        size = at_least(group.size, 1 + 1e-6)
        division = divide(at_least(size - 1, 1.0), link.lanes, self.splitting)
        share = (size - 1) / size
        waiting = jnp.where(division.waves > 1, division.waves, 0.0)
        return in_rounds(Phase(division.waves, share * division.loss), waiting, nbytes, group, link, share)


class Chosen(AbstractCollective):
    """The option that the plan names (`plan.tp_algorithm`, `plan.data_algorithm`), whatever else would be faster.

    What `Fastest` decides message by message is here a field of the plan, enumerated like its degrees: for a given plan
    the cost is that of one algorithm, log-convex where that is. A name that is not offered here takes the first that
    is, in the order of `ALGORITHMS`.

    Assumes: a job sets up one algorithm for all operations of an axis; never less than `Fastest` of the same options.
    """

    options: dict[str, AbstractCollective]

    def __check_init__(self) -> None:
        """Some options, under names that a plan knows."""
        if not self.options:
            raise ConfigError(f"options of Chosen is empty (name -> algorithm, names: {', '.join(ALGORITHMS)})")
        for name in self.options:
            if name not in ALGORITHMS:
                names = f"{', '.join(ALGORITHMS)}{suggestion(name, ALGORITHMS)}"
                raise ConfigError(f"options.{name} of Chosen: a plan's algorithm is one of {names}")

    def cost(self, nbytes: Array, group: Group, link: Link) -> Cost:
        """Cost of the plan's option."""
        return self._of_the_plan(group, lambda option: option.cost(nbytes, group, link))

    def may_round(self) -> bool:
        """True if any option may round."""
        return any(option.may_round() for option in self.options.values())

    def log_perplexity_penalty(self, group: Group) -> Array:
        """Log-perplexity penalty of the plan's option."""
        return self._of_the_plan(group, lambda option: option.log_perplexity_penalty(group))

    def _of_the_plan(self, group: Group, query: Callable[[AbstractCollective], Any]) -> Any:
        """Evaluate `asked` on each option, and select the value of the one that the plan names."""
        offered = sorted(self.options, key=ALGORITHMS.index)
        result = query(self.options[offered[0]])
        for name in offered[1:]:
            chosen = jnp.abs(group.algorithm - ALGORITHMS.index(name)) < 0.5
            result = where(chosen, query(self.options[name]), result)
        return result

    @classmethod
    def example(cls) -> "Chosen":
        """An example: two algorithms."""
        return cls({"ring": RingAllReduce(), "sipac": SipacAllReduce(radix=asarray(4.0))})
