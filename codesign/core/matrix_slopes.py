"""Derivatives of a function by its matrix of slopes, computed once however many directions are asked for.

Along many directions at once each operation of a long formula has a derivative of as many numbers, and a compiler
computes cheap ones again wherever they are read: of formulas of formulas, many times over. A product of matrices ends
that: what a part of a model hands on has few numbers.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

Function = TypeVar("Function", bound=Callable[..., Any])

__all__ = ["MovingLeaves", "by_matrix", "matrix", "stored_matrix", "stored_product"]


class MovingLeaves:
    """The numbers of a tree that move, as one vector.

    Args:
        tree: of numbers and arrays.
        along: of the same structure, slopes or symbolic zeros, as `jax.custom_jvp` hands them over.
    """

    def __init__(self, tree: Any, along: Any):
        self._leaves, self._tree = jax.tree.flatten(tree)
        ways = jax.tree.leaves(along, is_leaf=lambda each: isinstance(each, SymbolicZero))
        self._places = [index for index, way in enumerate(ways) if not isinstance(way, SymbolicZero)]
        self.at, self._apart = ravel_pytree([self._leaves[number] for number in self._places])
        self.way: Array = ravel_pytree([ways[number] for number in self._places])[0]

    def tree(self, at: Array) -> Any:
        """The tree with other numbers where it moves."""
        leaves = list(self._leaves)
        for index, leaf in zip(self._places, self._apart(at), strict=True):
            leaves[index] = leaf
        return jax.tree.unflatten(self._tree, leaves)


def matrix(function: Callable[[Array], Any], at: Array) -> tuple[Any, Any]:
    """Values of a function of a vector, and slopes of its numbers along each of the vector's, on a last axis."""
    return jax.vmap(lambda way: jax.jvp(function, (at,), (way,)), out_axes=(None, -1))(jnp.eye(at.size, dtype=at.dtype))


class StoredSlopes(NamedTuple):
    """Values of a function of a vector; slopes of all its numbers, [numbers, vector]; the tree of such numbers."""

    values: Any
    slopes: Array
    tree: Callable[[Array], Any]


def stored_matrix(function: Callable[[Array], Any], at: Array) -> StoredSlopes:
    """`matrix` of a long function, for slopes that many others read.

    One direction after the other, in a loop: what a loop gives is stored, where a compiler would fuse what the slopes
    end in into each operation that reads one of them, and so compile all of it as often; and along one direction slopes
    of numbers are numbers, which compile faster than arrays.
    """
    tree = ravel_pytree(jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), jax.eval_shape(function, at)))[1]

    def along(way: Array) -> Array:
        return jnp.stack([ravel_pytree(each)[0] for each in jax.jvp(function, (at,), (way,))])

    both = jax.lax.map(along, jnp.eye(at.size, dtype=at.dtype))
    return StoredSlopes(tree(both[0, 0]), both[:, 1].T, tree)


def stored_product(slopes: Array, way: Array) -> Array:
    """A matrix of slopes times a direction, row by row in a loop: in reverse, too, what is read is stored."""
    return jax.lax.map(lambda row: row @ way, slopes)


def by_matrix(function: Function, made: Callable[[Any], Any] | None = None) -> Function:
    """Mark a pure function of few numbers, given by place, whose derivatives go through its matrix of slopes.

    Args:
        function: the function.
        made: marks it, and each function of slopes, for whoever compiles it (`in_few_kernels`).
    """
    wrapped: Any = jax.custom_jvp(made(function) if made else function)

    def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        moving = MovingLeaves(primals, tangents)

        def slopes_at(at: Array) -> tuple[Any, Any]:
            return matrix(lambda at: function(*moving.tree(at)), at)

        result, slopes = by_matrix(slopes_at, made)(moving.at) if made else slopes_at(moving.at)
        return result, jax.tree.map(lambda each: each @ moving.way, slopes)

    wrapped.defjvp(rule, symbolic_zeros=True)
    return cast(Function, functools.wraps(function)(wrapped))
