"""Functions of JAX and Equinox whose own types leave a part unknown, under types that leave none.

They are the same functions; the checker can be strict with whoever takes them from here.
"""

from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

asarray: Callable[..., Array] = jnp.asarray
zeros: Callable[..., Array] = jnp.zeros
ones_like: Callable[[Array], Array] = jnp.ones_like
linspace: Callable[[float, float, int], Array] = jnp.linspace

structure: Callable[[Any], Any] = jax.tree.structure
flatten: Callable[[Any], tuple[list[Any], Any]] = jax.tree.flatten
unflatten: Callable[[Any, Any], Any] = jax.tree.unflatten
tree_at: Callable[..., Any] = eqx.tree_at

grad: Callable[[Callable[..., Array]], Callable[..., Any]] = jax.grad
jacfwd: Callable[[Callable[..., Array]], Callable[..., Any]] = jax.jacfwd
jit: Callable[[Callable[..., Any]], Callable[..., Any]] = jax.jit
shapes_of: Callable[..., Any] = jax.eval_shape

device_put: Callable[[Any], Any] = jax.device_put
block_until_ready: Callable[[Any], Any] = jax.block_until_ready
configure: Callable[[str, Any], None] = jax.config.update


def configured(name: str) -> Any:
    """A setting of JAX."""
    return cast(dict[str, Any], jax.config.values)[name]
