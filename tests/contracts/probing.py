"""Properties that are checked by looking at points: log-convexity, finite slopes."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array


def midpoint_excess(function: Callable[[Array], Array], a: Array, b: Array) -> float:
    """How far log f(exp((a + b) / 2)) lies above the mean of log f(exp a) and log f(exp b); at most 0 if convex."""
    middle, ends = jnp.log(function((a + b) / 2)), (jnp.log(function(a)) + jnp.log(function(b))) / 2
    return float(jnp.max(middle - ends))


def all_finite(tree) -> bool:
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(tree))
