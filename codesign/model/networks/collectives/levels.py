"""The collectives of one network level, and operations that span several levels."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ....core.computed_once import one_call
from ....core.cost import Cost, overlap, zero
from ....core.errors import ConfigError
from ....core.fields import Module, quantity
from ....core.jax_typed import asarray, where
from ....core.smooth import TINY, at_least, at_most
from ...hardware.compute import p_norm
from ..fabrics import AbstractFabric, Group
from .base import OPERATIONS, AbstractCollective
from .in_network import AbstractSwitchCollective, InNetworkAllReduce
from .quantised import Quantised
from .tree import PipelinedChain

# Phases of one operation on two network levels at once.


SUMS = "all_reduce"


class Pipelined(Module):
    """T = (inside^p + outside^p)^(1/p) + hop_s h(n) (s + (1 - s) z / (1 + z)), z = (nbytes / (N g) / switch_bytes)^2.

    A library cuts a message into pieces, and while one piece crosses between domains another moves inside of one: for
    long messages the slower phase sets the pace, and phases alike slow each other down (both move data through the
    same processors and memory). Pieces pass members one after the other. For g members inside each of N domains

        h = N (g - 1)                                             gathers and scatters: a ring
        h = 2 min(N (g - 1), (g - 1) + tree_hops log2(N))         sums: twice round a ring, or up and down a tree

    hops; those of a ring between domains are in the outer level's own time. Short pieces go by a protocol that waits
    for nothing and takes the share s = short_ratio of a hop. Nothing is added where either level has one member.

    Assumes: a tree as fast as a ring where bandwidth decides, so sums may take longer than this where a library
    hesitates between them; rings for gathers and scatters of any size, which is all that NCCL has for several devices a
    node: their hops grow with the members, milliseconds for thousands of them. Both are extrapolations beyond the 80
    members that hop_s was fitted on. Log-convex in both phases and in hop_s; not in tree_hops (the smaller of two).
    Source: which algorithm does what, and what its steps count [nccl_tuning]; constants from `conf/collective`.
    """

    norm: Float[Array, "*b"] = quantity(low=1.0, high=20.0, default=3.0)
    hop_s: Float[Array, "*b"] = quantity(default=7e-6, usual=(6e-6, 1e-5), doc="past one member of a domain")
    tree_hops: Float[Array, "*b"] = quantity(low=1.0, high=100.0, default=6.0, doc="as long as a tree's one level")
    short_ratio: Float[Array, "*b"] = quantity(high=1.0, default=0.13, doc="of a hop, that a short piece takes")
    switch_bytes: Float[Array, "*b"] = quantity(low=1.0, default=1e5, doc="of a member's piece: short below")

    def hops(self, operation: str, members: Array, domains: Array) -> Array:
        """Members that a piece passes one after the other."""
        ring = domains * (members - 1)
        if operation != SUMS:
            return ring
        return 2 * at_most(ring, members - 1 + self.tree_hops * jnp.log2(at_least(domains, 1.0)))

    def cost(self, operation: str, inside: Cost, outside: Cost, members: Array, domains: Array, nbytes: Array) -> Cost:
        """Cost of both phases together.

        Args:
            operation: of `OPERATIONS`.
            inside: of one domain, with the whole buffer.
            outside: between members that are alike, each with its share.
            members: of a domain that take part.
            domains: that take part.
            nbytes: of the whole buffer.
        """
        both = (members > 1) & (domains > 1) & (nbytes > 0)
        phases = p_norm(self.norm, inside.time_s + TINY, outside.time_s + TINY)
        large = jnp.minimum(jnp.where(both, nbytes, 1.0) / (members * domains) / self.switch_bytes, 1e6) ** 2
        share = self.short_ratio + (1 - self.short_ratio) * large / (1 + large)
        together = phases + self.hop_s * self.hops(operation, members, domains) * share
        alone = inside + outside
        return Cost(jnp.where(both, together, alone.time_s), alone.energy_j, alone.engine_s)


class Collectives(Module):
    """One algorithm per operation; broadcast and reduce along a chain unless told otherwise.

    Operations of an accelerator in the switches (`AbstractSwitchCollective`) run on the one that `all_reduce` describes
    and round their sums as it does. `pipelined` says how the library works on this level and on those inside it at
    once; without it one after the other.
    """

    all_reduce: AbstractCollective
    all_gather: AbstractCollective
    reduce_scatter: AbstractCollective
    all_to_all: AbstractCollective
    send: AbstractCollective
    broadcast: AbstractCollective = PipelinedChain()
    reduce: AbstractCollective = PipelinedChain()
    pipelined: Pipelined | None = None

    def __check_init__(self) -> None:
        """Operations of an accelerator in the switches need its all-reduce."""
        for operation in OPERATIONS:
            one = getattr(self, operation)
            if isinstance(one, AbstractSwitchCollective) and one.accelerator is None:
                self.algorithm(operation)

    def algorithm(self, operation: str) -> AbstractCollective:
        """Algorithm that carries out an operation; one in the switches has the numbers of the all-reduce beside it.

        Raises:
            ConfigError: there is no such accelerator.
        """
        one: AbstractCollective = getattr(self, operation)
        if not isinstance(one, AbstractSwitchCollective) or one.accelerator is not None:
            return one
        made = in_switch(one, self.all_reduce)
        if made is None:
            kinds = f"{operation}: {type(one).__name__}, all_reduce: {type(self.all_reduce).__name__}"
            raise ConfigError(f"{kinds}: the all_reduce beside it must be an InNetworkAllReduce, Quantised or not")
        return made


def in_switch(one: AbstractSwitchCollective, all_reduce: AbstractCollective) -> AbstractCollective | None:
    """An operation on the accelerator of an all-reduce: quantised where that is and sums are formed; None without."""
    if isinstance(all_reduce, InNetworkAllReduce):
        return one.by(all_reduce)
    if not isinstance(all_reduce, Quantised):
        return None
    inner, plain = (None if each is None else in_switch(one, each) for each in (all_reduce.inner, all_reduce.plain))
    if one.sums and inner is not None:
        return dataclasses.replace(all_reduce, inner=inner, plain=plain)
    return inner if plain is None else plain


class NetworkLevel(Module):
    """A fabric and the collectives that run on it.

    processor_ratio is the share of the compute engines that communication on this level takes while it overlaps.
    """

    fabric: AbstractFabric
    collectives: Collectives
    processor_ratio: Float[Array, "*b"] = quantity(high=1.0, default=0.0)

    def capex_usd(self) -> Array:
        """Purchase price per endpoint: the fabric, and what its sums need beside it."""
        return self.fabric.capex_usd() + self.collectives.all_reduce.capex_usd(self.fabric.reach())

    def limits(self) -> dict[str, Array]:
        """Used share of whatever bounds both as things that can be built."""
        return self.fabric.limits() | self.collectives.all_reduce.limits(self.fabric.reach())


class Stage(NamedTuple):
    """The part of a group that talks on one level."""

    level: NetworkLevel
    group: Group

    def run(self, operation: str, nbytes: Array) -> Cost:
        """Cost of the operation inside this level alone."""
        algorithm = self.level.collectives.algorithm(operation)
        cost = algorithm.cost(nbytes, self.group, self.level.fabric.link(self.group))
        return Cost(cost.time_s, cost.energy_j, cost.time_s * self.level.processor_ratio)


def stages(levels: Sequence[NetworkLevel], group: Group) -> list[Stage]:
    """Split a group over levels, innermost first; each level takes what its reach holds."""
    result, rest = list[Stage](), group
    for level in levels[:-1]:
        inner, rest = rest.split(level.fabric.reach())
        result.append(Stage(level, inner))
    return [*result, Stage(levels[-1], rest)]


def hierarchical(operation: str, nbytes: Array, parts: Sequence[Stage]) -> Cost:
    """Cost of an operation over a group that spans the given levels, innermost first.

    all-reduce: reduce-scatter inside, all-reduce of the shards outside, all-gather inside (or the level's own
    all-reduce where nobody is outside). all-gather and reduce-scatter: the shards outside, everything inside. Of a
    library that is `pipelined` outside, the operation itself inside, and both at once.
    broadcast and reduce: the whole buffer among one member of each domain, and inside every domain.
    all-to-all: both levels at once, each with its share of the traffic. send: the slowest level that is crossed.

    Raises:
        ConfigError: unknown operation.
    """
    if operation not in OPERATIONS:
        raise ConfigError(f"collective operation {operation!r} is not one of {', '.join(OPERATIONS)}")
    inner, rest = parts[0], parts[1:]
    if not rest:
        return inner.run(operation, nbytes)
    if operation == "send":
        return _crossing_send(nbytes, parts)
    if operation == "all_to_all":
        return _split_all_to_all(nbytes, parts)
    if operation in ("broadcast", "reduce"):
        return hierarchical(operation, nbytes, rest) + inner.run(operation, nbytes)
    outside = hierarchical(operation, nbytes / inner.group.size, rest)
    pipelined = rest[0].level.collectives.pipelined
    if pipelined is not None:
        inside = inner.run(operation, nbytes)
        return pipelined.cost(operation, inside, outside, inner.group.size, _members(rest), nbytes)
    if operation != "all_reduce":
        return outside + inner.run(operation, nbytes)
    beyond = _members(rest) > 1
    around = inner.run("reduce_scatter", nbytes) + inner.run("all_gather", nbytes)
    return outside + where(beyond, around, inner.run("all_reduce", nbytes))


@one_call("operation")
def _alike(nbytes: Array, parts: tuple[Stage, ...], *, operation: str) -> Cost:
    return hierarchical(operation, nbytes, parts)


def spanning(operation: str, nbytes: Array, parts: Sequence[Stage]) -> Cost:
    """`hierarchical`, traced once for all operations alike."""
    return _alike(nbytes, tuple(parts), operation=operation)


def log_perplexity_penalty(operation: str, parts: Sequence[Stage]) -> Array:
    """Increase of ln(perplexity) of a model that sums over these levels: what each level rounds, together."""
    inner, rest = parts[0], parts[1:]

    def penalty(name: str) -> Array:
        return inner.level.collectives.algorithm(name).log_perplexity_penalty(inner.group)

    if not rest:
        return penalty(operation)
    outside = log_perplexity_penalty(operation, rest)
    if operation != "all_reduce" or rest[0].level.collectives.pipelined is not None:
        return outside + penalty(operation)
    around = penalty("reduce_scatter") + penalty("all_gather")
    return outside + jnp.where(_members(rest) > 1, around, penalty("all_reduce"))


def _members(parts: Sequence[Stage]) -> Array:
    total = asarray(1.0)
    for part in parts:
        total = total * part.group.size
    return total


def _crossing_send(nbytes: Array, parts: Sequence[Stage]) -> Cost:
    """The outermost level that the group reaches sets the pace of neighbour messages."""
    chosen = parts[0].run("send", nbytes)
    for part in parts[1:]:
        chosen = where(part.group.size > 1, part.run("send", nbytes), chosen)
    return chosen


def _split_all_to_all(nbytes: Array, parts: Sequence[Stage]) -> Cost:
    """Each level carries the blocks of the members that are first met on it, all levels at once.

    A member of the group keeps 1/n of its buffer, sends (g1-1)/n inside and the rest outside; a level's own
    algorithm of g members sends (g-1)/g of what it is handed, hence the g/n.
    """
    everyone = _members(parts)
    total, met = zero(), asarray(1.0)
    for part in parts:
        size = part.group.size
        share = met * size / everyone
        total = overlap(total, part.run("all_to_all", nbytes * share))
        met = met * size
    return total
