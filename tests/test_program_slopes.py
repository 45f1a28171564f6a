"""The chain rule over traced operations: numbers and slopes at many points are those of JAX, infinite ones too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from program_slopes import prepared, with_slopes
from random_programs import random_model

from codesign.core.smooth import at_least, ceil, largest, maximum, ratio, used_share
from codesign.staging import flatten

POINTS = np.random.default_rng(0).uniform(-1, 3, (40, 2))
POINTS[:8] = [[0, 0], [0, 1], [1, 0], [1, 1], [1e30, 1], [0, 1e30], [-1, 2], [2, 2]]


@jax.custom_jvp
def _borrowed(x):
    return x**2


_borrowed.defjvp(lambda primals, tangents: (primals[0] ** 2, 7.0 * tangents[0]))

FUNCTIONS = {
    "named operations": lambda x, y: maximum(x, y) + at_least(x, 1.0) * used_share(jnp.abs(x), y) + ceil(x * y),
    "slopes of somebody's own": lambda x, y: _borrowed(x) * _borrowed(y * jax.nn.relu(x)),
    "no slope": lambda x, y: lax.stop_gradient(x) * y + jnp.floor(y) * x + jnp.where(x > y, jnp.sign(x), 0.0),
    "not used": lambda x, y: 3.0 * x + 0 * jnp.round(y),
    "infinite": lambda x, y: 1 / x + jnp.log(y) + jnp.sqrt(x - 1) + ratio(x, y),
    "shapes": lambda x, y: jnp.dot(
        jnp.stack([x, y, x * y])[1:], jnp.concatenate([jnp.ones(3) * x, jnp.ones(1) * y])[::2] ** 2
    ),
    "parts": lambda x, y: jnp.prod(
        jnp.stack([a + b for a, b in zip(*jnp.split(x * jnp.arange(1.0, 5.0) + y, 2), strict=True)])
    ),
    "taken": lambda x, y: jnp.take(jnp.stack([x, y, x * y]), jnp.asarray([2, 0])).sum() + largest(jnp.stack([x, y])),
    "many uses": lambda x, y: sum((x**k * jnp.exp(-k * y) for k in range(5)), x * x),
}
RANDOM = {f"random {seed}": seed for seed in range(6)}


def function_of(name):
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    model = random_model(np.random.default_rng(RANDOM[name]), 9)
    return lambda x, y: sum(jnp.tanh(jnp.asarray(each, float)) for each in model(0.5, 3.0, x, y))


@pytest.mark.parametrize("name", [*FUNCTIONS, *RANDOM])
def test_the_same_as_jax(name):
    function = function_of(name)
    program = flatten(jax.make_jaxpr(function)(0.5, 0.5))
    program = with_slopes(program, program.inputs)
    slots = prepared(program)(dict(zip(program.inputs, POINTS.T, strict=True)))
    mine = [np.broadcast_to(slots[slot], len(POINTS)) for slot in program.outputs]
    value, slopes = jax.vmap(jax.value_and_grad(function, argnums=(0, 1)))(*jnp.asarray(POINTS).T)
    for one, other in zip(mine, (value, *slopes), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
