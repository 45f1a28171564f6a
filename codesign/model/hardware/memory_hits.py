"""Hit ratios: which share of accesses a cache answers."""

import abc

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...core.fields import quantity
from ...core.jax_typed import broadcast_shapes, fori_loop, linspace, zeros
from ...core.module import Module
from ...core.smooth import at_most

POINTS, STEPS = 512, 60  # of the integral over ranks, of the bisection


class AbstractHits(Module):
    """A model of the hit ratio.

    Assumes: not log-convex in the cache's capacity (a bounded share), whatever the model.
    """

    @abc.abstractmethod
    def ratio(self, cache_bytes: Array) -> Array:
        """Share of the bytes asked for that a cache of this capacity answers."""


class WorkingSet(AbstractHits):
    """min(1, capacity / working set): data used equally often, as much of it pinned as fits.

    Weights and the key-value cache of a static batch are read once per step, so that a cache with replacement would
    hold none of them when it cannot hold all; a pinned share is what a runtime would choose.
    """

    working_set_bytes: Float[Array, "*b"] = quantity(low=1.0)

    def ratio(self, cache_bytes: Array) -> Array:
        """Capacity over working set, at most one."""
        return at_most(cache_bytes / self.working_set_bytes, 1.0)


class ZipfLru(AbstractHits):
    """Least-recently-used cache under independent accesses to items of popularity rank^-exponent.

    With the characteristic time T of the cache, in accesses, sum_k (1 - exp(-p_k T)) = items that fit, and the hit
    ratio is sum_k p_k (1 - exp(-p_k T)). Sums over ranks are integrals on a logarithmic grid.

    Assumes: independent references, equal item sizes; error below a point for a hundred items and more.
    Source: [che2002]; shown to be exact for large caches by [fricker2012].
    """

    exponent: Float[Array, "*b"] = quantity(low=0.0, high=3.0)
    items: Float[Array, "*b"] = quantity(low=2.0)
    item_bytes: Float[Array, "*b"] = quantity(low=1.0)

    def ratio(self, cache_bytes: Array) -> Array:
        """Hits over accesses; one where everything fits."""
        fits = cache_bytes / self.item_bytes
        share, width = zipf_popularity(self.exponent, self.items)
        room = at_most(fits, 0.999 * self.items)
        time = characteristic_time(share, width, room)
        hits = jnp.sum(width * share * -jnp.expm1(-share * time[..., None]), axis=-1)
        return jnp.where(fits >= self.items, 1.0, at_most(hits, 1.0))


def zipf_popularity(exponent: Array, items: Array) -> tuple[Array, Array]:
    """(popularity, number of items) at the grid's ranks; popularities sum to one over all items."""
    edges = jnp.exp(linspace(0.0, 1.0, POINTS + 1) * jnp.log(items[..., None] + 1)) - 0.5
    rank, width = jnp.sqrt(edges[..., 1:] * edges[..., :-1]), jnp.diff(edges, axis=-1)
    weight = rank ** -exponent[..., None]
    return weight / jnp.sum(width * weight, axis=-1, keepdims=True), width


def characteristic_time(share: Array, width: Array, room: Array, passing: Array | None = None) -> Array:
    """Accesses T within which what is wanted again is still there: items wanted within T fill the room.

    Bisection in log T, then one Newton step that carries the derivatives (of the fixed point).

    Args:
        share, width: popularity of items, and how many have it.
        room: items that fit.
        passing: items' room that each access brings and nobody wants again; none without.
    """
    stop = jax.lax.stop_gradient
    fixed_share, fixed_width, wanted = (stop(leaf) for leaf in (share, width, room))
    brought = None if passing is None else stop(passing)
    shapes = [share.shape[:-1]] if passing is None else [share.shape[:-1], passing.shape]

    def held(log_time: Array, p: Array, w: Array, more: Array | None) -> Array:
        result = jnp.sum(w * -jnp.expm1(-p * jnp.exp(log_time)[..., None]), axis=-1)
        return result if more is None else result + more * jnp.exp(log_time)

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        few = held(middle, fixed_share, fixed_width, brought) < wanted
        return jnp.where(few, middle, low), jnp.where(few, high, middle)

    start = zeros(broadcast_shapes(wanted.shape, *shapes))
    low, high = fori_loop(0, STEPS, halve, (start - 10.0, start + 70.0))
    log_time: Array = stop(0.5 * (low + high))
    time = jnp.exp(log_time)[..., None]
    slope = jnp.sum(fixed_width * fixed_share * time * jnp.exp(-fixed_share * time), axis=-1)
    slope = slope if brought is None else slope + brought * time[..., 0]
    return jnp.exp(log_time - (held(log_time, share, width, passing) - room) / slope)
