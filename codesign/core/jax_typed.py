"""Functions of JAX and Equinox whose own types leave a part unknown, under types that leave none.

They are the same functions; the checker can be strict with whoever takes them from here.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun
from jaxtyping import Array

Tree = TypeVar("Tree")
Function = TypeVar("Function", bound=Callable[..., Any])

asarray: Callable[..., Array] = jnp.asarray
zeros: Callable[..., Array] = jnp.zeros
ones_like: Callable[[Array], Array] = jnp.ones_like
zeros_like: Callable[[Array], Array] = jnp.zeros_like
pad: Callable[..., Array] = jnp.pad
linspace: Callable[[float, float, int], Array] = jnp.linspace

einsum: Callable[..., Array] = jnp.einsum
arange: Callable[..., Array] = jnp.arange
ones: Callable[..., Array] = jnp.ones
broadcast_shapes: Callable[..., tuple[int, ...]] = jnp.broadcast_shapes

structure: Callable[[Any], Any] = jax.tree.structure
flatten: Callable[[Any], tuple[list[Any], Any]] = jax.tree.flatten
flatten_with_path: Callable[[Any], tuple[list[tuple[tuple[Any, ...], Any]], Any]] = jax.tree_util.tree_flatten_with_path
unflatten: Callable[[Any, Any], Any] = jax.tree.unflatten
tree_at: Callable[..., Any] = eqx.tree_at

grad: Callable[..., Callable[..., Any]] = jax.grad
value_and_grad: Callable[..., Callable[..., tuple[Any, Any]]] = jax.value_and_grad
jacrev: Callable[..., Callable[..., Any]] = jax.jacrev
jacfwd: Callable[..., Callable[..., Any]] = jax.jacfwd
fori_loop: Callable[..., Any] = jax.lax.fori_loop
jvp: Callable[..., tuple[Any, Any]] = jax.jvp
jit: Callable[..., Callable[..., Any]] = jax.jit
shapes_of: Callable[..., Any] = jax.eval_shape
make_jaxpr: Callable[[Callable[..., Any]], Callable[..., Any]] = jax.make_jaxpr
as_function: Callable[[Any], Callable[..., list[Any]]] = jaxpr_as_fun

device_put: Callable[[Any], Any] = jax.device_put
block_until_ready: Callable[[Any], Any] = jax.block_until_ready
configure: Callable[[str, Any], None] = jax.config.update


def traced_for_all(function: Function) -> Function:
    """`jax.jit` that says what it takes and gives: traced once for all who ask with such shapes, in a trace or not."""
    return cast(Function, jax.jit(function))


def is_traced(number: Any) -> bool:
    """True if a number is traced by JAX."""
    return isinstance(number, Tracer)


def where(condition: Array, a: Tree, b: Tree) -> Tree:
    """Every number of `a` where the condition holds, else of `b`."""

    def chosen(one: Array, other: Array) -> Array:
        return jnp.where(condition, one, other)

    return jax.tree.map(chosen, a, b)


def arrays(*numbers: float) -> tuple[Any, ...]:
    """Each as an array, for the first fields of a component, whatever the others hold."""
    return tuple(asarray(float(number)) for number in numbers)


def configured(name: str) -> Any:
    """A setting of JAX."""
    return cast(dict[str, Any], jax.config.values)[name]
