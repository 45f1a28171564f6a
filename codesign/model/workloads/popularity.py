"""Popularity of rows: Zipf's law, and the share of look-ups that a memory of the hottest rows answers."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def partial_sum(rows: Array, exponent: Array) -> Float[Array, "..."]:
    """sum of k^-s for k = 1..rows, by the midpoint rule: ((rows + 1/2)^(1-s) - (1/2)^(1-s)) / (1-s).

    For s <= 1.2 a seventh above the sum at one row, and shares of it within 3 % from ten rows on; at s = 1 its limit
    log(2 rows + 1). Zero rows have a sum of zero, so that a share of the rows may run continuously from 0 to 1.
    """
    gap = 1 - exponent
    near_one = jnp.abs(gap) < 1e-6
    safe = jnp.where(near_one, 1.0, gap)
    growth = jnp.log1p(2 * rows)  # log of (rows + 1/2) / (1/2)
    return jnp.where(near_one, growth, jnp.expm1(safe * growth) / safe * 0.5**safe)


def hot_share(held: Array, rows: Array, exponent: Array) -> Float[Array, "..."]:
    """Share of all look-ups that go to the `held` most wanted of `rows` rows, popularity rank^-exponent.

    Exponent 0 is uniform: held / rows.

    Assumes: the holder knows the ranks (least frequently used with perfect counts), look-ups independent; a cache that
    must learn them, such as LRU, answers less.
    Source: [breslau1999].
    """
    return partial_sum(held, exponent) / partial_sum(rows, exponent)
