"""Derivatives through a matrix of slopes, against those that JAX writes out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.core.matrix_slopes import MovingLeaves, by_matrix, matrix, stored_matrix, stored_product


def plain(a, b):
    return {"first": jnp.sin(a * b["x"]) + b["y"].sum(), "second": jnp.exp(-a) * b["y"]}


AT = jnp.asarray(0.3), {"x": jnp.asarray(1.7), "y": jnp.array([0.2, 0.5, 0.9])}


@pytest.mark.slow
@pytest.mark.parametrize("way", [jax.jacfwd, jax.jacrev])
def test_slopes_of_all_orders_are_those_of_the_function(way):
    """By every argument and by one alone; once and twice."""
    own = by_matrix(plain)
    for places in ((0, 1), 0, 1):
        np.testing.assert_equal(jax.tree.structure(own(*AT)), jax.tree.structure(plain(*AT)))
        for levels in (way, lambda function, argnums: jax.jacfwd(way(function, argnums), argnums)):
            result, expected = (jax.tree.leaves(levels(one, argnums=places)(*AT)) for one in (own, plain))
            for one, other in zip(result, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-15)


def test_it_is_batched_and_compiled_as_it_stands():
    own = by_matrix(plain)
    slope = jax.grad(lambda a: own(a, AT[1])["first"])
    several = jnp.linspace(0.1, 0.9, 4)
    np.testing.assert_allclose(jax.vmap(slope)(several), [slope(a) for a in several], rtol=1e-14)
    np.testing.assert_allclose(jax.jit(slope)(several[0]), slope(several[0]), rtol=1e-14)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_stored_matrix_is_the_matrix(size: int):
    at = jnp.linspace(0.1, 0.7, size)

    def function(at):
        return jnp.cumsum(at**2), jnp.prod(at)

    values, slopes = matrix(function, at)
    stored, way = stored_matrix(function, at), jnp.arange(1.0, size + 1)
    along = stored.tree(stored_product(stored.slopes, way))
    for one, other in zip(
        jax.tree.leaves((stored.values, along)),
        jax.tree.leaves((values, [each @ way for each in slopes])),
        strict=True,
    ):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-15)
    np.testing.assert_allclose(stored.slopes, jnp.concatenate([slopes[0], slopes[1][None]]), rtol=1e-15)


def test_only_what_moves_is_in_the_vector():
    zero = jax.custom_derivatives.SymbolicZero(jax.core.ShapedArray((), float))
    moving = MovingLeaves((jnp.asarray(1.0), jnp.array([2.0, 3.0])), (zero, jnp.array([4.0, 5.0])))
    assert moving.at.tolist() == [2.0, 3.0]
    assert moving.way.tolist() == [4.0, 5.0]
    first, second = moving.tree(jnp.array([6.0, 7.0]))
    assert float(first) == 1.0
    assert second.tolist() == [6.0, 7.0]
