"""Prefix caches of continuous serving: which share of prompts is found, from the room that caches have.

Reuse (`AbstractPrefixReuse`) says what a cache of so many tokens finds, and what that leaves to compute:

    TracedPrefixes     of a trace with hashes of its blocks: Che's approximation (`prefix_reuse`), tabulated by the
                       number of caches that requests are spread over
    PopularPrefixes    prompts begin with one of N prefixes of P tokens, wanted as rank^-s; the rest, I - P of a prompt
                       and its answer O, is never wanted again but takes room until it is the longest unused:
                       C = P sum_k (1 - exp(-p_k T)) + (I - P + O) T
                       a beginning is found with probability sum_k p_k (1 - exp(-p_k T))

The room itself is the cluster's to say: `metrics.cache_placement` adds up what is left of each tier.

Assumes: what is found is the same share whatever the load; `PopularPrefixes`: requests independent of each other.
Source: [che2002], why it holds [fricker2012]; blocks of a prompt as a tree, least recently used first [kwon2023].
"""

import abc
import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...core.errors import ConfigError
from ...core.fields import Module, integer, quantities, quantity, static, switch
from ...core.smooth import at_least, at_most
from ..hardware.memory_pool import characteristic_time, zipf_popularity

__all__ = [
    "AbstractPrefixReuse", "PopularPrefixes", "PrefixCaching", "PrefixHits", "TracedPrefixes", "computed_cv",
    "kept_by", "keys_before",
]  # fmt: skip


# Sessions that wait for their next turn: whose cache is still there when it comes, and what the others compute again.
#
# An engine keeps what was used last and throws out what was longest unused. With N sessions that think for
# exponential times and room for K caches, each session is as likely as any other to come next. A cache stays if its
# session comes before a time T (Che's approximation), h = 1 - exp(-T / Z) of them with mean Z, and the sessions that
# have thought for less than T are those that are kept, K = N (1 - exp(-T / Z)). So h = K / N, whatever Z is: the
# share of sessions that come back to their cache is the share that there is room for.
#
# Of prompts of I tokens with variation v, of which a cache holds a share c, a share h finds it. With q = h c:
#
#     computed     I (1 - q)
#     variation    w^2 = v^2 + (1 + v^2) h (1 - h) c^2 / (1 - q)^2          of what is computed
#     keys         I (1 + v^2) / 2 (1 - h c^2) / (1 - q)                    that a computed token attends
#
# Assumes: caches of one size; a session's next prompt is independent of whether its cache is there.
# Source: [che2002], the characteristic time; closed form of this package, held against `simulation.serving`.


def kept_by(room: Array, need: Array) -> Array:
    """Share of the sessions that come back to their cache, with room for so much of what all caches need."""
    some = need > 0
    return jnp.where(some, at_most(room / jnp.where(some, need, 1.0), 1.0), 1.0)


def computed_cv(cv: Array, cached: Array, reused: Array) -> Array:
    """Variation of the tokens that prompts compute; that of their lengths where all or none find their cache."""
    more = reused * (1 - reused) * cached**2 * (1 + cv**2) / (1 - reused * cached) ** 2
    mixed = more > 0
    return jnp.where(mixed, jnp.sqrt(jnp.where(mixed, cv**2 + more, 1.0)), cv)


def keys_before(cached: Array, reused: Array) -> Array:
    """Share of a prompt that the cache holds before a computed token, on average: of prompts that find theirs.

    Where all caches stay, slopes along `kept` leave this out: the share is then a constant of the walk.
    """
    return jnp.where(reused < 1, cached * reused * (1 - cached) / (1 - reused * cached), cached)


CURVES = "workload.prefix_cache.reuse.curves"
MOST_FOUND = 0.999  # of a prompt: its last token is always computed

Row = tuple[float, float, float, float]
"""Room in tokens, share of prompt tokens found, variation of what is computed, mean keys over the mean prompt."""

Curve = tuple[float, tuple[Row, ...]]
"""Number of caches, and rows of one of them, the room rising."""


class PrefixHits(Module):
    """Share of prompt tokens found, what that leaves, and what bringing it takes, on the hardware of a design.

    `share` is of all prompt tokens, `tiers` each memory's part of it; `cv` the variation of the tokens that prompts
    compute, `keys` the mean keys that one of these attends, over the mean prompt; `fetch_s` and `fetch_j` seconds of an
    engine and joules of a device to bring what a mean prompt finds, `write_s` and `write_j` to write through one token
    that it computes; `room_tokens` what one cache holds.
    """

    share: Float[Array, "*b"] = quantity(high=1.0)
    cv: Float[Array, "*b"] = quantity()
    keys: Float[Array, "*b"] = quantity()
    fetch_s: Float[Array, "*b"] = quantity()
    fetch_j: Float[Array, "*b"] = quantity()
    tiers: dict[str, Float[Array, "*b"]] = quantities(high=1.0)
    room_tokens: dict[str, Float[Array, "*b"]] = quantities(optional=True)
    write_s: Float[Array, "*b"] = quantity(default=0.0)
    write_j: Float[Array, "*b"] = quantity(default=0.0)

    def metrics(self) -> dict[str, Array]:
        """Metrics by name."""
        result = {"prefix_hit_rate": self.share, "prefix_fetch_s": self.fetch_s}
        result |= {f"prefix_hit_rate_{tier}": share for tier, share in self.tiers.items()}
        return result | {f"prefix_room_tokens_{tier}": room for tier, room in self.room_tokens.items()}


class AbstractPrefixReuse(Module):
    """Reuse of the beginnings of prompts."""

    @abc.abstractmethod
    def found(self, room: Array, caches: Array, prompt: Array, answer: Array) -> Array:
        """Share of prompt tokens that a cache finds.

        Args:
            room: tokens of one cache.
            caches: that requests are spread over.
            prompt, answer: mean tokens.
        """

    @abc.abstractmethod
    def computed(self, share: Array, caches: Array, prompt: Array, cv: Array) -> tuple[Array, Array]:
        """Variation of the tokens that are computed, and mean keys of one of them over the mean prompt.

        Args:
            share: of prompt tokens that is found.
            caches: that requests are spread over.
            prompt, cv: mean tokens, and their variation.
        """


class PopularPrefixes(AbstractPrefixReuse):
    """`count` beginnings of `prefix_tokens`, wanted as rank^-`zipf`: see the module.

    With `affinity` a router sends prompts with one beginning to one cache, which then sees its part of them; without,
    each cache sees them all.
    """

    prefix_tokens: Float[Array, "*b"] = quantity(low=1.0, high=1e7)
    count: Float[Array, "*b"] = integer(low=1.0, high=1e9, doc="different beginnings")
    zipf: Float[Array, "*b"] = quantity(high=3.0, default=1.0, doc="exponent of their popularity")
    affinity: Float[Array, "*b"] = switch(default=0.0, doc="prompts with one beginning go to one cache")

    def held_ratio(self, room: Array, caches: Array, prompt: Array, answer: Array) -> Array:
        """Share of the prompts that find their beginning; slopes are those of the fixed point."""
        per_cache = jnp.where(self.affinity > 0, self.count / caches, self.count)
        share, width = zipf_popularity(self.zipf, at_least(per_cache, 1.0))
        passing = (at_least(prompt - self.prefix_tokens, 0.0) + answer) / self.prefix_tokens
        some = room > 0
        time = characteristic_time(share, width, jnp.where(some, room / self.prefix_tokens, 1.0), passing)
        hits = jnp.sum(width * share * -jnp.expm1(-share * time[..., None]), axis=-1)
        return jnp.where(some, at_most(hits, 1.0), 0.0)

    def found(self, room: Array, caches: Array, prompt: Array, answer: Array) -> Array:
        """See the base class."""
        return self.part(prompt) * self.held_ratio(room, caches, prompt, answer)

    def part(self, prompt: Array) -> Array:
        """Share of a mean prompt that its beginning is."""
        return at_most(self.prefix_tokens / prompt, MOST_FOUND)

    def computed(self, share: Array, caches: Array, prompt: Array, cv: Array) -> tuple[Array, Array]:
        """Moments of prompts some of which find their beginning."""
        del caches
        part = self.part(prompt)
        held = at_most(share / part, 1.0)
        keys = 0.5 * (1 + keys_before(part, held)) * (1 + cv**2)
        return computed_cv(cv, part, held), keys


class TracedPrefixes(AbstractPrefixReuse):
    """Tables of a trace, for some numbers of caches: between them and between rows straight lines are taken."""

    curves: tuple[Curve, ...] = static(converter=lambda given: checked_curves(given))

    def found(self, room: Array, caches: Array, prompt: Array, answer: Array) -> Array:
        """See the base class; more room than all blocks take finds no more."""
        del prompt, answer
        return self._mean(caches, [_line(table[:, 0], table[:, 1], room) for table in self._tables()])

    def computed(self, share: Array, caches: Array, prompt: Array, cv: Array) -> tuple[Array, Array]:
        """Moments as measured where such a share is found."""
        del prompt, cv
        tables = self._tables()
        varies, keys = (
            self._mean(caches, [_line(_rising(table[:, 1]), table[:, column], share) for table in tables])
            for column in (2, 3)
        )
        return varies, keys

    def _tables(self) -> list[np.ndarray]:
        return [np.array(rows) for _, rows in self.curves]

    def _mean(self, caches: Array, values: Sequence[Array]) -> Array:
        """Between the numbers of caches that are known, straight in their logarithm."""
        if len(values) == 1:
            return values[0] + 0.0 * caches
        log_counts = np.log([count for count, _ in self.curves])
        weights = _weights(log_counts, jnp.log(at_least(caches, 1.0)))
        return sum((weights[index] * value for index, value in enumerate(values[1:], 1)), weights[0] * values[0])


class PrefixCaching(Module):
    """Prefix caches in what serving leaves of its memories, and in a store over the network.

    All of the first memory that weights and running sequences leave is room, of the host's and of a pool's the shares
    `host_ratio` and `pool_ratio`. Prompts of running sequences are found too. A store of `store_bytes` is one for all
    replicas, over the outermost network; all of them together bring `store_bytes_per_s` of it (0: as the network does).

    Assumes: the longest unused goes first, and from a tier into the next; what replicas share keeps copies of what they
    have themselves; no price or power of the store is counted.
    """

    reuse: AbstractPrefixReuse
    host_ratio: Float[Array, "*b"] = quantity(high=1.0, default=1.0, doc="of the host memory that is left")
    pool_ratio: Float[Array, "*b"] = quantity(high=1.0, default=1.0, doc="of the pooled memory that is left")
    store_bytes: Float[Array, "*b"] = quantity(high=1e18, default=0.0, doc="of a store that all replicas share")
    store_bytes_per_s: Float[Array, "*b"] = quantity(high=1e18, default=0.0, doc="0: as fast as the network")

    @classmethod
    def example(cls) -> "PrefixCaching":
        """A hundred beginnings of 256 tokens."""
        return cls(PopularPrefixes(256.0, 100.0))


def _weights(nodes: np.ndarray, value: Array) -> list[Array]:
    """Shares of neighbouring nodes that make up a value, one each; beyond the ends those count."""
    passed = [at_most(at_least((value - low) / (high - low), 0.0), 1.0) for low, high in itertools.pairwise(nodes)]
    before, after = [jnp.ones_like(value), *passed], [*passed, jnp.zeros_like(value)]
    return [one - other for one, other in zip(before, after, strict=True)]


def _rising(values: np.ndarray) -> np.ndarray:
    """Values that rise at least a little, so that they can be read the other way."""
    return values + 1e-9 * np.arange(len(values))


def _line(nodes: np.ndarray, values: np.ndarray, at: Array) -> Array:
    """Value between nodes, straight; the ends beyond them."""
    inside = jnp.clip((jnp.asarray(at)[..., None] - nodes[:-1]) / np.diff(nodes), 0.0, 1.0)
    return values[0] + (inside * np.diff(values)).sum(-1)


def checked_curves(given: Any) -> tuple[Curve, ...]:
    """Lists of a configuration as what they are.

    Raises:
        ConfigError: no numbers of caches, or rows whose rooms and shares do not rise.
    """
    try:
        curves = tuple(
            (float(caches), tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in rows))
            for caches, rows in given
        )
    except (TypeError, ValueError):
        raise ConfigError(
            f"{CURVES}: a list of [caches, rows of room in tokens, share found, variation, keys]"
        ) from None
    counts = [caches for caches, _ in curves]
    if not curves or sorted(set(counts)) != counts or counts[0] < 1:
        raise ConfigError(f"{CURVES}: numbers of caches {counts} must rise from 1 on")
    for _, rows in curves:
        table = np.array(rows)
        sound = len(table) > 1 and (np.diff(table[:, 0]) > 0).all() and (np.diff(table[:, 1]) >= 0).all()
        if not (sound and (table >= 0).all() and table[-1, 1] < 1 and (table[:, 3] > 0).all()):
            raise ConfigError(f"{CURVES}: rooms must rise, shares may not fall and stay below 1, keys are above 0")
    return curves
