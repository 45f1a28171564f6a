"""Sessions that wait for their next turn: whose cache is still there when it comes, and what the others compute again.

An engine keeps what was used last and throws out what was longest unused. With N sessions that think for exponential
times and room for K caches, each session is as likely as any other to come next. A cache stays if its session comes
before a time T (Che's approximation), h = 1 - exp(-T / Z) of them with mean Z, and the sessions that have thought for
less than T are those that are kept, K = N (1 - exp(-T / Z)). So h = K / N, whatever Z is: the share of sessions that
come back to their cache is the share that there is room for.

Of prompts of I tokens with variation v, of which a cache holds a share c, a share h finds it. With q = h c:

    computed     I (1 - q)
    variation    w^2 = v^2 + (1 + v^2) h (1 - h) c^2 / (1 - q)^2          of what is computed
    keys         I (1 + v^2) / 2 (1 - h c^2) / (1 - q)                    that a computed token attends

Assumes: caches of one size; a session's next prompt is independent of whether its cache is there.
Source: [che2002], the characteristic time; closed form of this package, held against `simulation.serving`.
"""

import jax.numpy as jnp
from jaxtyping import Array

from ...core.smooth import at_most

__all__ = ["computed_cv", "kept_by", "keys_before"]


def kept_by(room: Array, need: Array) -> Array:
    """Share of the sessions that come back to their cache, with room for so much of what all caches need."""
    some = need > 0
    return jnp.where(some, at_most(room / jnp.where(some, need, 1.0), 1.0), 1.0)


def computed_cv(cv: Array, cached: Array, kept: Array) -> Array:
    """Variation of the tokens that prompts compute; that of their lengths where all or none find their cache."""
    more = kept * (1 - kept) * cached**2 * (1 + cv**2) / (1 - kept * cached) ** 2
    mixed = more > 0
    return jnp.where(mixed, jnp.sqrt(jnp.where(mixed, cv**2 + more, 1.0)), cv)


def keys_before(cached: Array, kept: Array) -> Array:
    """Share of a prompt that the cache holds before a computed token, on average: of prompts that find theirs.

    Where all caches stay, slopes along `kept` leave this out: the share is then a constant of the walk.
    """
    return jnp.where(kept < 1, cached * kept * (1 - cached) / (1 - kept * cached), cached)
