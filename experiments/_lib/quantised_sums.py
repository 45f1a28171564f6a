"""Quantised all-reduces carried out on arrays, to measure their error on real numbers."""

from collections.abc import Callable
from typing import cast

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["in_network_sum", "normalised_error", "quantised", "ring_sum"]

pad = cast(Callable[..., Array], jnp.pad)  # pyright: ignore[reportUnknownMemberType]
arange = cast(Callable[..., Array], jnp.arange)  # pyright: ignore[reportUnknownMemberType]


def quantised(values: Float[Array, "*batch n"], bits: float, block: int) -> Float[Array, "*batch n"]:
    """`values` after symmetric quantisation to `bits` in blocks of the last axis, each with its largest as the range.

    The last block may be shorter. Source: [scin] sections 3.4 and 4.1.
    """
    size = values.shape[-1]
    padded = pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -size % block)])
    blocks = padded.reshape(*padded.shape[:-1], -1, block)
    steps = 2.0 ** (bits - 1) - 1
    scale = jnp.max(jnp.abs(blocks), axis=-1, keepdims=True) / steps
    scale = jnp.where(scale > 0, scale, 1.0)
    rounded = jnp.round(blocks / scale) * scale
    return rounded.reshape(padded.shape)[..., :size]


def in_network_sum(parts: Float[Array, "n *batch d"], bits: float, block: int) -> Float[Array, "*batch d"]:
    """What every member receives: members send quantised parts, the switch quantises their sum once more."""
    return quantised(jnp.sum(quantised(parts, bits, block), axis=0), bits, block)


def ring_sum(parts: Float[Array, "n *batch d"], bits: float, block: int) -> Float[Array, "*batch d"]:
    """A ring's reduce-scatter quantises the partial sum at every hop, its all-gather the total once.

    The last axis is cut into n chunks; chunk c starts at member c and ends, summed, at member c - 1.
    """
    members, width = parts.shape[0], parts.shape[-1]
    padded = pad(parts, [(0, 0)] * (parts.ndim - 1) + [(0, -width % members)])
    chunks = jnp.moveaxis(padded.reshape(*padded.shape[:-1], members, -1), -2, 1)  # [member, chunk, ..., part]
    chunk = arange(members)
    partial = chunks[chunk, chunk]
    for hop in range(1, members):
        partial = quantised(partial, bits, block) + chunks[(chunk + hop) % members, chunk]
    result = jnp.moveaxis(quantised(partial, bits, block), 0, -2)
    return result.reshape(*result.shape[:-2], -1)[..., :width]


def normalised_error(result: Float[Array, "*batch d"], parts: Float[Array, "n *batch d"]) -> Float[Array, ""]:
    """Mean squared error of a sum over the mean square of the exact one."""
    exact = jnp.sum(parts, axis=0)
    return jnp.mean((result - exact) ** 2) / jnp.mean(exact**2)
