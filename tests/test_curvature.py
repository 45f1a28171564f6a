"""The walk over a traced program: every claim about a random model holds, and what no rule covers is not believed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_programs import random_model, sampled, values_of, walked

from codesign.core.smooth import OPERATION, ceil, largest, maximum, ratio
from codesign.curvature import AFFINE, CONCAVE, CONVEX
from codesign.curvature.operations import RULES
from codesign.staging import flatten
from codesign.staging.rows import _run

SLACK = 1e-9


def bends(values, name, tolerance):
    """Whether [.., points] stays below (CONVEX) or above (CONCAVE) its chords, point by point and end to end."""
    inner, left, right = values[..., 1:-1], values[..., :-2], values[..., 2:]
    ends = 0.5 * (values[..., 0] + values[..., -1])
    with np.errstate(invalid="ignore"):
        step = inner - 0.5 * (left + right)
        long = values[..., values.shape[-1] // 2] - ends
    sign = 1 if name == CONVEX else -1
    scale = 1 + np.abs(values).max(axis=-1)
    return (sign * step <= tolerance * scale[..., None]).all(axis=-1) & (sign * long <= tolerance * scale)


def check_claims(seed, steps=9):
    rng = np.random.default_rng(seed)
    model = random_model(rng, steps)
    values, walk = walked(model)
    result, _ = sampled(model, rng)
    claims = 0
    for number, value in enumerate(values):
        seen = result[..., number]
        usable = np.isfinite(seen).all(axis=-1)  # an infinite or undefined number bounds nothing and is never feasible
        where = f"seed {seed}, number {number}: {value}"
        numbers = seen[usable]
        if numbers.size:
            reach = SLACK * (1 + np.abs(numbers))
            assert (numbers >= value.low - reach).all(), where
            assert (numbers <= value.high + reach).all(), where
        for name in (CONVEX, CONCAVE):
            if value.plain & name:
                claims += 1
                assert bends(numbers, name, SLACK).all(), where
            if value.log & name:
                positive = numbers[(numbers > 0).all(axis=-1)]
                claims += 1
                assert bends(np.log(positive), name, SLACK).all(), where
                if not value.partial:  # positive, or zero all along
                    assert ((numbers > 0).all(axis=-1) | (numbers == 0).all(axis=-1)).all(), where
        claims += check_directions(value, walk, seen, where)
    return claims


def check_directions(value, walk, seen, where):
    grid = seen.reshape(4, 3, *seen.shape[1:])
    for field in (0, 1):
        bit = walk.direction_bit(field)
        low, high = (np.delete(grid, -1, axis=field), np.delete(grid, 0, axis=field))
        known = np.isfinite(low) & np.isfinite(high)
        slack = SLACK * (1 + np.abs(low[known]) + np.abs(high[known]))
        if value.up & bit:
            assert (high[known] >= low[known] - slack).all(), f"{where} rises along {field}"
        if value.down & bit:
            assert (high[known] <= low[known] + slack).all(), f"{where} falls along {field}"
    return bool(value.up & bit) + bool(value.down & bit)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 240, 40))
def test_every_claim_about_a_random_model_holds(first):
    assert sum(check_claims(seed) for seed in range(first, first + 40)) > 400


@pytest.mark.parametrize("seed", [1, 50])
def test_the_numbers_of_a_random_model_are_those_of_jax(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, 9)
    points = rng.uniform(size=(4, 30))
    mine = values_of(model, points)
    for one, other in zip(mine, jax.jit(jax.vmap(model))(*jnp.asarray(points)), strict=True):
        np.testing.assert_allclose(np.broadcast_to(one, 30), other, rtol=1e-12)


def kind_of(function, count=2):
    """What the walk says of a function of (a, b, u, v)."""
    (value,), _ = walked(lambda a, b, u, v: [function(a, b, 5.0**u, 30.0**v)])
    return value


POSYNOMIALS = {
    "sum": lambda a, b, x, y: x + a * y + 3,
    "maximum of sums over a product": lambda a, b, x, y: maximum(x + 1 / y, a * x) / (x * y**0.5),
    "power of a sum": lambda a, b, x, y: (x / y + a) ** 1.7,
    "overlap": lambda a, b, x, y: maximum(x, (1 - 0.3 * a / 2) * x + y),
    "what is left in a denominator": lambda a, b, x, y: x / (40.0 - y - 0.1 / x),
    "decibels": lambda a, b, x, y: 10 ** ((x + y) / 10),
    "choice of the plan": lambda a, b, x, y: jnp.where(b > 0, x + y, x * y),
    "guarded quotient": lambda a, b, x, y: ratio(x + y, a),
    "maximum of constants below": lambda a, b, x, y: x / maximum(a, 1.0) + y,
}


@pytest.mark.parametrize("name", POSYNOMIALS)
def test_what_is_log_convex_by_construction_is_proven(name):
    value = kind_of(POSYNOMIALS[name])
    assert value.log & CONVEX
    assert not value.partial


@jax.custom_jvp
def _liar(x):
    return x


_liar.defjvp(lambda primals, tangents: (primals[0], 5.0 * tangents[0]))


def _borrowed(x, y):
    return 3 + jnp.sin(x * y)


_borrowed.__name__ = OPERATION + "at_least"  # a name alone is nobody's property

LIES = {
    "an operation's name over something else": lambda a, b, x, y: jax.jit(_borrowed)(x, y),
    "a bonus for a deadline": lambda a, b, x, y: (x + y) * jnp.where((x < 2.0) & (y < 9.0), 0.6, 1.0),
    "a choice between the same numbers in another order": lambda a, b, x, y: jnp.where(
        x > 2.0, jnp.stack([x, 0.6 * x])[::-1], jnp.stack([x, 0.6 * x])
    )[0],
    "a threshold that the reading below a maximum falls under": lambda a, b, x, y: jnp.where(
        maximum(x, 0.999 * x) >= 0.9997, x, 10 * x
    ),
    "a comparison with what may be no number": lambda a, b, x, y: jnp.where(jnp.exp(9000 * x) * 0.0 >= 0, 10 * x, x),
    "a place beyond the end filled with a number": lambda a, b, x, y: (
        9 + jnp.take(jnp.stack([x, y]), (2 * a).astype(int), mode="fill", fill_value=-5.0) - x
    ),
    "a difference": lambda a, b, x, y: x + 40.0 - y,
    "a minimum over algorithms": lambda a, b, x, y: jnp.minimum(x + 1 / y, y + 1 / x),
    "a maximum in a denominator": lambda a, b, x, y: x / maximum(x, y),
    "rounding": lambda a, b, x, y: ceil(x) * y,
    "rounding that this box does not show": lambda a, b, x, y: ceil(1e-9 * x) * y,
    "a slope that is not its own": lambda a, b, x, y: _liar(x) + y,
    "a stopped slope": lambda a, b, x, y: jax.lax.stop_gradient(x) + y,
    "a sine": lambda a, b, x, y: 3 + jnp.sin(x),
    "a p-norm below one": lambda a, b, x, y: (x**0.5 + y**0.5) ** 2 - 2 * (x * y) ** 0.5,
    "a loop": lambda a, b, x, y: jax.lax.fori_loop(0, 3, lambda i, z: z + y, x),
    "a place in a table": lambda a, b, x, y: jnp.asarray([1.0, 5.0, 2.0])[x.astype(int)] + y,
    "steps of single precision": lambda a, b, x, y: (x + y).astype(jnp.float32).astype(float),
    "a remainder": lambda a, b, x, y: jnp.mod(x, 2.0) + y,
}


@pytest.mark.parametrize("name", LIES)
def test_what_no_rule_covers_is_not_believed_and_the_place_is_named(name):
    value = kind_of(lambda a, b, x, y: jnp.log(LIES[name](a, b, x, y)))
    assert not value.plain & CONVEX
    if not value.plain:
        assert " at " in value.why


def test_a_choice_that_the_box_decides_is_no_choice():
    assert kind_of(lambda a, b, x, y: jnp.where(x > 0.5, x + y, -x)).log & CONVEX
    assert not kind_of(lambda a, b, x, y: jnp.where(x > 1.5, x + y, -x)).log


def test_what_a_plan_picks_has_no_direction():
    """The entry of a table at a place that the plan says may lie anywhere, whatever the directions of the entries."""
    (value,), walk = walked(lambda a, b, u, v: [jnp.asarray([5.0, 1.0, 3.0])[a.astype(int)] * 2.0**u])
    assert value.log == AFFINE
    assert not (value.up | value.down) & walk.direction_bit(0)
    (value,), walk = walked(lambda a, b, u, v: [jnp.stack([5.0 * 2.0**u, 1.0 + 0 * u, 3.0**u])[a.astype(int)]])
    assert value.log & CONVEX
    assert not (value.up | value.down) & walk.direction_bit(0)


def test_monomials_stay_monomials():
    assert kind_of(lambda a, b, x, y: 3 * x**-2 * jnp.sqrt(y) / (x * 7)).log == AFFINE


@pytest.mark.slow
def test_rules_stand_for_all_named_operations():
    """Whatever calls itself an operation has a rule: a name without one would be unknown, and say so only when used."""
    import ast
    from pathlib import Path

    import codesign

    names = set()
    for path in Path(codesign.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(d, ast.Name) and d.id == "operation" for d in node.decorator_list
            ):
                names.add(node.name)
    assert names == set(RULES)
    assert OPERATION.endswith(".")


def test_a_reading_takes_the_mean_along_the_axis_of_the_maximum():
    """A model may map the maxima over any axis and their arguments over different ones."""
    values = jnp.asarray([[1.0, 2.0, 4.0], [3.0, 2.5, 4.1]])

    def read(function, *arguments):
        program = flatten(jax.make_jaxpr(function)(*arguments))
        result = _run(program, arguments, jnp.asarray(20.0), program.reached(program.inputs))
        return np.asarray(result[0])

    along = read(jax.vmap(largest, in_axes=1), values)
    np.testing.assert_allclose(along, read(largest, values.T), rtol=1e-12)
    assert (along < values.max(axis=0)).all()
    crossed = read(jax.vmap(maximum, in_axes=(0, 1)), values, 1 + values.T)
    np.testing.assert_allclose(crossed, read(maximum, values, 1 + values), rtol=1e-12)
    slope = read(lambda x: jax.jvp(largest, (x,), (2 * x,))[1], values)  # a slope in a model is no maximum
    np.testing.assert_allclose(slope, 2 * values.max(axis=1), rtol=1e-12)
