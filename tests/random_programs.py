"""Random small models over plan constants and hardware coordinates, to hold what the walk says against what they do."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from program_slopes import prepared

from codesign.core.smooth import at_least, at_most, maximum, used_share
from codesign.curvature import Walk
from codesign.model.hardware.compute import p_norm
from codesign.staging import PlanTable, Table, flatten, written_out

PLANS = {"a": np.array([0.0, 0.5, 1.0, 2.0]), "b": np.array([-1.0, 1.0, 3.0])}
BINARY: list[Callable] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x / y,
    jnp.maximum,
    jnp.minimum,
    maximum,
    at_least,
    at_most,
    used_share,
    lambda x, y: p_norm(jnp.asarray(2.5), jnp.abs(x), jnp.abs(y)),
    lambda x, y: jnp.where(x > y, x, y),
    lambda x, y: jnp.where(y > 0, x, y),
    lambda x, y: jnp.clip(x, 0.5, 2.0) + 0 * y,
    lambda x, y: jnp.sum(jnp.stack([x, y, x])),
    lambda x, y: jnp.max(jnp.stack([x, y])),
    lambda x, y: jnp.stack([x, y])[1] + x,
]
UNARY: list[Callable] = [
    lambda x: -x,
    jnp.exp,
    jnp.log,
    lambda x: x**2,
    lambda x: x**-1.5,
    jnp.sqrt,
    lambda x: 1.7**x,
    lambda x: 0.4**x,
    jnp.abs,
    lambda x: 3.0 - x,
    lambda x: x + 1.5,
    lambda x: 2.0 * x,
    jnp.ceil,
    jnp.sign,
    lambda x: 1 / x,
]


def random_model(rng: np.random.Generator, steps: int) -> Callable:
    """(a, b, u, v) -> every number on the way; u and v enter as monomials and as they are."""
    choices = []
    for step in range(steps):
        two = rng.uniform() < 0.6
        kind = int(rng.integers(len(BINARY if two else UNARY)))
        choices.append((two, kind, int(rng.integers(6 + step)), int(rng.integers(6 + step))))

    def model(a, b, u, v):
        values = [a, b, u, 5.0**u, 0.2 * 30.0**v, 2.0 * 9.0 ** (u - 0.4 * v)]
        for two, kind, i, j in choices:
            values.append(BINARY[kind](values[i], values[j]) if two else UNARY[kind](values[i]))
        return values

    return model


def walked(model: Callable, ordered: bool = True):
    """What the walk says of every number of a model of (a, b, u, v), and the walk."""
    half = jnp.asarray(0.5)
    program = flatten(jax.make_jaxpr(model)(half, half, half, half))
    columns = {name: np.repeat(PLANS[name], 3) if name == "a" else np.tile(PLANS[name], 4) for name in PLANS}
    plans = PlanTable(columns)
    a, b, *coordinates = program.inputs
    given = {a: Table(frozenset([0]), plans.column(0)), b: Table(frozenset([1]), plans.column(1))}
    walk = Walk(program, plans, given, coordinates, ordered=(0, 1) if ordered else ())
    return walk.outputs, walk


def sampled(model: Callable, rng: np.random.Generator, lines: int = 40, along: int = 5):
    """Numbers [plans, lines, points, numbers] at equally spaced points of random segments of the box, each plan's."""
    ends = rng.uniform(size=(2, lines, 2))
    ends[:, ::3] = np.round(ends[:, ::3])
    t = np.linspace(0, 1, along)[:, None]
    points = ends[0][:, None] * (1 - t) + ends[1][:, None] * t  # lines, points, 2
    a, b = np.meshgrid(PLANS["a"], PLANS["b"], indexing="ij")
    shape = (a.size, lines, along)
    grid = [np.broadcast_to(x.reshape(-1, 1, 1), shape) for x in (a, b)]
    grid += [np.broadcast_to(points[None, ..., k], shape) for k in (0, 1)]
    return np.stack([np.broadcast_to(values, shape) for values in values_of(model, grid)], axis=-1), points


def values_of(model: Callable, grid: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Every number of a model at points of any shape, by NumPy: compiling each model takes twenty times as long."""
    half = jnp.asarray(0.5)
    program = written_out(flatten(jax.make_jaxpr(model)(half, half, half, half)))
    slots = prepared(program, lead=grid[0].ndim)(dict(zip(program.inputs, grid, strict=True)))
    return [slots[slot] for slot in program.outputs]
