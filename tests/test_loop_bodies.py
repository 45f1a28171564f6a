"""Loops run by NumPy at many rows: what JAX gives row by row, whatever a loop has in it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.jaxprs.control_flow import Body


def halved(low: Any, high: Any, target: Any) -> Any:
    """A root by halving; each row ends after its own number of rounds."""

    def narrow(ends: Any) -> Any:
        middle = 0.5 * (ends[0] + ends[1])
        over = middle**3 > target
        return jnp.where(over, ends[0], middle), jnp.where(over, middle, ends[1])

    return jax.lax.while_loop(lambda ends: ends[1] - ends[0] > 1e-3 * target, narrow, (low, high))


def listed(start: Any, factors: Any, weight: Any) -> Any:
    """A state handed on, what each round tells, and something that no round changes."""

    def step(state: Any, factor: Any) -> Any:
        return state * jnp.exp(-weight) + factor[0], (state, jnp.sum(factor) * weight)

    return jax.lax.scan(step, start, factors)


def backwards(start: Any, factors: Any, weight: Any) -> Any:
    return jax.lax.scan(lambda state, f: (state * weight - f[1], state + f[0]), start, factors, reverse=True)


def chosen(which: Any, x: Any, weights: Any) -> Any:
    ways = (lambda: x * weights, lambda: jnp.full(3, x), lambda: jnp.cumsum(weights) - x)
    return jax.lax.switch(jnp.floor(which).astype(int), ways)


def nested(count: Any, x: Any, weights: Any) -> Any:
    """A loop in a loop, which begins where the outer one stands."""

    def outer(_: Any, state: Any) -> Any:
        low, high = halved(0.0 * state, 4.0 + state, state + jnp.sum(weights))
        return 0.5 * (low + high) + jax.lax.cond(count > 1.0, lambda: x, lambda: 0.0 * x)

    return jax.lax.fori_loop(0, 5, outer, x)


def fixed(_: Any, x: Any, weights: Any) -> Any:
    """Nothing of the state reaches a result, and a result is known from the start."""
    return jax.lax.fori_loop(0, 3, lambda _, state: (state[0] + 1.0, jnp.sum(weights)), (x, x)), jnp.arange(3.0)


CASES = {
    "while": (halved, [(), (), ()]),
    "scan": (listed, [(), (4, 2), ()]),
    "backwards": (backwards, [(), (4, 2), ()]),
    "cond": (chosen, [(), (), (3,)]),
    "nested": (nested, [(), (), (3,)]),
    "fixed": (fixed, [(), (), (3,)]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("count", [1, 9, 40])
def test_loops_by_numpy_are_those_of_jax(name: str, count: int) -> None:
    function, shapes = CASES[name]
    draw = np.random.default_rng(count)
    rows = [draw.uniform(0.1, 3.9, (count, *shape)) for shape in shapes]
    if name == "while":
        rows[0], rows[1] = 0.0 * rows[0], rows[1] + 4.0
    body = Body(jax.make_jaxpr(function)(*(each[0] for each in rows)))
    result = body(*(np.moveaxis(each, 0, -1).copy() for each in rows))
    wanted = jax.tree.leaves(jax.vmap(function)(*rows))
    assert len(result) == len(wanted)
    for part, expected in zip(result, wanted, strict=True):
        spread = np.broadcast_to(part, (*expected.shape[1:], count))
        np.testing.assert_allclose(np.moveaxis(spread, -1, 0), expected, rtol=1e-13)
