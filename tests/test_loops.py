"""Loops of traced programs on rows: equal to the plain loop, each distinct row done once, memory bounded."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.jaxprs import control_flow
from codesign.jaxprs.evaluator import behind, doer


def halvings(high: Any, target: Any, weights: Any) -> Any:
    """The root of sum(weights) x^3 = target below `high`, by halving; ends after as many steps as a row needs."""
    power = jnp.sum(weights)

    def narrow(ends: Any) -> Any:
        low, up = ends
        middle = (low + up) / 2
        over = power * middle**3 > target
        return jnp.where(over, low, middle), jnp.where(over, middle, up)

    return jax.lax.while_loop(lambda ends: ends[1] - ends[0] > 1e-9 * high, narrow, (0.0 * high, high))[1]


def equation_of(function: Any, *arguments: Any, name: str = "while") -> Any:
    """The equation of that name in the traced function."""
    return next(e for e in jax.make_jaxpr(function)(*arguments).jaxpr.eqns if e.primitive.name == name)


def row_loop() -> control_flow.Loop:
    return control_flow.Loop(lambda *inputs: [halvings(*inputs)], several=True)


def some_rows(count: int, seed: int = 3) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.uniform(1, 9, count), draw.uniform(0.1, 1, count), draw.uniform(1, 2, (count, 3))]


@pytest.mark.parametrize("count", [1, 7, 8, 300, 2049, 2100, 4500])
def test_rows_equal_the_plain_loop(count: int) -> None:
    inputs = some_rows(count)
    (result,) = row_loop().rows(inputs)
    exact = np.cbrt(inputs[1] / inputs[2].sum(axis=1))
    np.testing.assert_allclose(result, exact, rtol=1e-7)  # the halving ends at 1e-9 of `high`
    np.testing.assert_allclose(result, jax.vmap(halvings)(*inputs), rtol=1e-15)


def test_a_row_has_the_same_bits_in_any_batch() -> None:
    inputs = some_rows(2500)
    (together,) = row_loop().rows(inputs)
    for rows in (slice(0, 1), slice(17, 30), slice(2040, 2100)):
        (alone,) = row_loop().rows([each[rows] for each in inputs])
        np.testing.assert_array_equal(alone, together[rows])


def waiting(load: Any, many: Any) -> Any:
    """The fixed point of x = exp(-load x) + log(1 + x many), by rounds that shrink the step."""

    def further(state: Any) -> Any:
        x, _ = state
        return 0.5 * x + 0.5 * (jnp.exp(-load * x) + jnp.log1p(x * many) ** 0.5), x

    return jax.lax.while_loop(lambda state: jnp.abs(state[0] - state[1]) > 1e-13, further, (load, load + 1.0))[0]


def test_a_row_has_the_same_bits_whatever_was_asked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(5)
    rows = [draw.uniform(0.1, 3.0, 40), draw.uniform(0.1, 3.0, 40)]
    fresh, busy = (control_flow.Loop(lambda *inputs: [waiting(*inputs)], several=True) for _ in range(2))
    (result,) = fresh.rows(rows)
    monkeypatch.setattr(control_flow, "CACHE_BYTES", 0)  # nothing is looked up
    busy.rows([draw.uniform(0.1, 3.0, 10_000), draw.uniform(0.1, 3.0, 10_000)])
    np.testing.assert_array_equal(busy.rows(rows)[0], result)
    assert busy.done == 10_040


def test_each_distinct_row_is_done_once() -> None:
    looped, inputs = row_loop(), some_rows(50)
    doubled = [np.concatenate([each, each[::-1]]) for each in inputs]
    (result,) = looped.rows(doubled)
    assert (looped.requested, looped.done) == (100, 50)
    (again,) = looped.rows([each[10:20] for each in inputs])
    assert (looped.requested, looped.done) == (110, 50)
    np.testing.assert_array_equal(again, result[10:20])
    np.testing.assert_array_equal(result[:50], result[50:][::-1])


def test_what_is_given_once_for_all_rows_is_the_same_row() -> None:
    looped, (high, target, weights) = row_loop(), some_rows(20)
    (once,) = looped.rows([high[:1], target, weights[:1]])
    (each,) = looped.rows([np.repeat(high[:1], 20), target, np.repeat(weights[:1], 20, axis=0)])
    np.testing.assert_array_equal(once, each)
    assert looped.done == 20


def test_long_inputs_are_told_apart_by_every_number() -> None:
    looped = control_flow.Loop(lambda x: jnp.cumsum(x), several=False)
    values = np.ones((2, 100))
    values[1, 99] = 2
    (result,) = looped.rows([values])
    assert looped.done == 2
    assert result[1, 99] == 101


@pytest.mark.slow
def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_flow, "CACHE_BYTES", 4000)
    looped = row_loop()
    for seed in range(40):
        inputs = some_rows(30, seed)
        np.testing.assert_allclose(looped.rows(inputs)[0], jax.vmap(halvings)(*inputs), rtol=1e-15)
        assert looped._bytes <= 4000
        assert looped._bytes == sum(
            control_flow.DIGEST + part[row].nbytes for results, row in looped._cached.values() for part in results
        )
    looped.rows(some_rows(500))  # more than is kept: given, not kept
    assert not looped._cached


def test_threads_find_the_same() -> None:
    looped, inputs = row_loop(), some_rows(4000)
    (expected,) = row_loop().rows(inputs)
    with ThreadPoolExecutor(4) as pool:
        starts = range(0, 3000, 250)
        parts = list(pool.map(lambda start: looped.rows([each[start : start + 1000] for each in inputs])[0], starts))
    for start, part in zip(starts, parts, strict=True):
        np.testing.assert_array_equal(part, expected[start : start + 1000])


def test_equations_of_one_program_share_their_loop() -> None:
    equation = equation_of(halvings, 1.0, 0.5, jnp.ones(3))
    same = control_flow.loop(equation.primitive, equation.params)
    assert same is control_flow.loop(equation.primitive, dict(equation.params))
    other = equation_of(lambda *x: halvings(*x) * 2, 1.0, 0.5, jnp.ones(3))
    assert same is not control_flow.loop(other.primitive, other.params)


@pytest.mark.parametrize("lead", [0, 1, 2])
def test_loops_as_operations_on_points(lead: int) -> None:
    """Axes of points in front or behind, some inputs alike at all points."""

    def counting(start: Any, step: Any) -> Any:
        return jax.lax.scan(lambda sum_, factor: (sum_ * step + factor, sum_), start, jnp.arange(3.0))

    equation = equation_of(counting, 1.0, 2.0, name="scan")
    points = (4, 5)[:lead]
    draw = np.random.default_rng(1)
    inputs = []
    for number, variable in enumerate(equation.invars):
        shape = variable.aval.shape
        front = (1,) * lead if number == 0 else points
        inputs.append(draw.uniform(0.5, 1.5, (*front, *shape)).astype(variable.aval.dtype))
    kinds = [each.dtype for each in inputs]
    result = doer(equation.primitive, equation.params, kinds, lead)(*inputs)
    bind = equation.primitive.bind
    for place in np.ndindex(*points):
        row = [each[tuple(0 if each.shape[a] == 1 else place[a] for a in range(lead))] for each in inputs]
        plain = bind(*row, **equation.params)
        for part, expected in zip(result, plain, strict=True):
            np.testing.assert_allclose(part[place], expected, rtol=1e-14)
    turned = [np.moveaxis(each, range(lead), range(-lead, 0)) if lead else each for each in inputs]
    for part, expected in zip(behind(equation.primitive, equation.params, kinds, lead)(*turned), result, strict=True):
        np.testing.assert_array_equal(np.moveaxis(part, range(-lead, 0), range(lead)) if lead else part, expected)
