"""`in_few_kernels`: what it compiles is what it would be, in fewer kernels; XLA is told only what it can take."""

from importlib.metadata import version
from platform import machine

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.core import few_kernels
from codesign.core.few_kernels import MOST_NUMBERS, SUPPORTED, in_few_kernels
from codesign.core.matrix_slopes import by_matrix

HERE = version("jaxlib"), machine()
pytestmark = pytest.mark.skipif(HERE not in few_kernels.TRIED, reason="plain programs here")

MARK = 'xla_cpu_small_call = "true"'
AT = jnp.array([0.3, 0.5, 0.7])
WEIGHTS = np.linspace(1.0, 2.0, 12).reshape(4, 3)


def halved(u: jax.Array) -> jax.Array:
    """A loop with a product of matrices, and another within."""

    def closer(_: int, x: jax.Array) -> jax.Array:
        inner = jax.lax.fori_loop(0, 3, lambda i, y: jnp.sin(y) + 0.1 * i, x)
        return jnp.tanh(WEIGHTS.T @ (WEIGHTS @ inner)) + u

    return jax.lax.fori_loop(0, 5, closer, u)


def number(u: jax.Array) -> jax.Array:
    """Powers, choices, sums and a loop."""
    some = jnp.where(u > 0.4, jnp.exp(u), u**1.5)
    spread = jnp.cumsum(jnp.linspace(0.1, 1.0, 40) * some.sum())
    return jnp.log1p(spread).sum() + (halved(u) * some).sum() + jnp.maximum(some[0], some[1]) / (1 + u[2])


def marks(function, *arguments) -> int:
    return jax.jit(function).lower(*arguments).as_text().count(MARK)


def same(one, other) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "way", [jax.value_and_grad, jax.jacfwd, jax.jacrev, pytest.param(jax.hessian, marks=pytest.mark.slow), lambda f: f]
)
def test_values_and_derivatives_of_every_kind_are_those_of_the_plain_function(way):
    function = by_matrix(number, in_few_kernels)
    assert marks(way(function), AT) > 0
    same(jax.jit(way(function))(AT), jax.jit(way(number))(AT))
    same(way(function)(AT), way(number)(AT))


def test_long_programs_are_cut_and_so_are_bodies_of_long_loops(monkeypatch):
    monkeypatch.setattr(few_kernels, "MOST_EQUATIONS", 8)
    function = by_matrix(number, in_few_kernels)
    assert marks(jax.value_and_grad(function), AT) > 5
    same(jax.jit(jax.value_and_grad(function))(AT), jax.jit(jax.value_and_grad(number))(AT))


def test_batches_are_marked_as_long_as_their_arrays_are_small():
    def plain(u: jax.Array) -> jax.Array:
        return (jnp.exp(u) * jnp.sin(u) + jnp.maximum(u, 0.5) ** u).sum()

    function = in_few_kernels(plain)
    for count in (1, 7, MOST_NUMBERS):
        at = jnp.linspace(0.2, 0.9, 3 * count).reshape(count, 3)
        assert marks(jax.vmap(function), at) == (count < MOST_NUMBERS)
        same(jax.jit(jax.vmap(function))(at), jax.jit(jax.vmap(plain))(at))


def test_parameters_that_nobody_reads_once_xla_has_simplified_end_no_process():
    function = in_few_kernels(lambda a, b, c: (jnp.exp(a), jnp.where(b.size > 1, a, b), 0 * a, a - c.sum()))
    same(jax.jit(function)(AT, AT * 2, AT * 3), function(AT, AT * 2, AT * 3))
    one = in_few_kernels(lambda a, b: jnp.exp(jnp.cos(jnp.tanh(a))) + 1)
    same(jax.jit(one)(AT, AT * 2), one(AT, AT * 2))


@pytest.mark.parametrize("found", [jnp.sort, jnp.fft.rfft, lambda u: jnp.zeros(4).at[jnp.int32(u[0] * 4)].add(u[1])])
def test_what_no_kernel_may_have_is_compiled_as_ever(found):
    def function(u):
        sharp = jnp.exp(u) + jnp.tanh(u) * jnp.cos(u) - u
        other = jnp.abs(found(sharp))
        return jnp.exp(-other).sum() + jnp.log1p(other).sum() + other.max() * jnp.sin(other).min()

    assert marks(in_few_kernels(function), AT) == 2
    same(jax.jit(in_few_kernels(function))(AT), function(AT))


def test_sums_of_the_largest_arrays_and_all_their_products_are_no_calls_of_libraries():
    def function(u):
        wide = jnp.broadcast_to(u[:1], (MOST_NUMBERS,)) * jnp.arange(MOST_NUMBERS)
        square = wide.reshape(32, 32)
        return (
            jnp.exp(-wide).sum(),
            wide.max(),
            (square @ square[:, 0]).sum(),
            square.T[:3].sum(1),
            square @ square[:, :1],
        )

    assert marks(in_few_kernels(function), AT) == 1
    compiled = jax.jit(in_few_kernels(function)).lower(AT).compile()
    assert "kCustom" not in compiled.as_text()
    assert "custom-call" not in compiled.as_text()
    same(compiled(AT), function(AT))


def test_every_known_operation_runs_in_a_kernel():
    whole, u = jnp.arange(6), AT
    true = u > 0.4
    some = {
        "elementwise": lambda u: [
            f(u) for f in (
                jnp.abs, jnp.ceil, jnp.cos, jax.lax.erf, jnp.exp, jnp.exp2, jnp.expm1, jnp.floor, jnp.isfinite, jnp.log,
                jnp.log1p, jax.nn.sigmoid, jnp.negative, jnp.round, jax.lax.rsqrt, jnp.sign, jnp.sin, jnp.sqrt,
                jnp.square, jnp.tanh, lambda x: x**3, lambda x: x**u[0], lambda x: jnp.clip(x, 0.4, 0.6),
                lambda x: jax.lax.clamp(0.4, x, 0.6), lambda x: x % 0.2, lambda x: x / (1 - x) + x * u,
                lambda x: jnp.minimum(x, 0.5),
            )
        ],
        "logical": lambda u: [
            (u > 0.4) & (u < 0.6), (u >= 0.5) | (u <= 0.3), ~(u == 0.5), (u != 0.3) ^ true, (u > 0.4).any(),
            (u > 0.4).all(),
        ],
        "shapes": lambda u: [
            u[::-1], jnp.concatenate([u, 2 * u]), jnp.stack([u, 2 * u]),
            jnp.pad(u, 1), u.reshape(3, 1) * u, jnp.expand_dims(u, 0).T, u[1:],
            jnp.split(u, 3), jax.lax.dynamic_slice(u, (whole[1],), (2,)),
            jax.lax.dynamic_update_slice(u, u[:1], (whole[1],)),
            jnp.squeeze(u[:1]), u.astype(jnp.float32), jnp.cumsum(u), jax.lax.stop_gradient(u),
            jnp.where(true, u, 0.0), jax.lax.iota(float, 3) * u,
        ],
        "reductions": lambda u: [u.sum(), u.max(), u.min(), u.argmax(), u.argmin()],
    }  # fmt: skip
    used = set[str]()
    for function in some.values():
        flat = few_kernels._written_out(jax.make_jaxpr(function)(u))
        used |= {equation.primitive.name for equation in flat.jaxpr.eqns}
        assert marks(in_few_kernels(function), u) == 1
        for a, b in zip(
            jax.tree.leaves(jax.jit(in_few_kernels(function))(u)), jax.tree.leaves(function(u)), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    rest = {
        "add_any",
        "copy",
        "scan",
        "while",
    }  # loops and derivatives, in the tests above; of elementwise ones no more
    assert used <= SUPPORTED
    assert SUPPORTED - used <= rest


def test_products_of_large_arrays_are_left_as_they_are():
    def function(u):
        large = u[0] * jnp.ones((64, 64))
        return (jnp.exp(u) + jnp.sin(u) * jnp.cos(u)).sum() + (large @ large).sum()

    assert "dot_general" in jax.jit(in_few_kernels(function)).lower(AT).as_text()
    same(jax.jit(in_few_kernels(function))(AT), function(AT))


def test_versions_of_xla_that_were_not_tried_get_the_plain_program(monkeypatch):
    monkeypatch.setattr(few_kernels, "TRIED", ())
    assert marks(in_few_kernels(number), AT) == 0
    same(jax.jit(in_few_kernels(number))(AT), number(AT))


def test_other_devices_get_the_plain_program():
    lowered = jax.jit(in_few_kernels(number)).trace(AT).lower(lowering_platforms=("cuda",))
    assert MARK not in lowered.as_text()
