"""What several parts of an evaluation ask for is computed once, and only where the result means something."""

import contextlib

import jax
import jax.numpy as jnp
import pytest

from codesign import evaluate, study_from_config
from codesign.core.computed_once import computed_once, computing_once, one_call, pieces_of, stacked
from codesign.core.smooth import maximum, reading_with_sharpness


def counted(decorator):
    calls = []

    @decorator
    def square(x):
        calls.append(x)
        return x * x

    return square, calls


def test_the_second_who_asks_is_handed_the_result():
    square, calls = counted(computed_once)
    x, same = jnp.asarray(3.0), jnp.asarray(3.0)
    with computing_once():
        assert square(x) is square(x)
        assert len(calls) == 1
        square(same)  # another object
        assert len(calls) == 2
    square(x)
    square(x)
    assert len(calls) == 4


def test_a_loop_computes_anew_what_lies_outside():
    square, calls = counted(computed_once)

    def run(x):
        with computing_once():
            before = square(x)
            inside = jax.lax.fori_loop(0, 3, lambda _, total: total + square(x), jnp.asarray(0.0))
            each = jax.vmap(lambda y: y * square(x))(jnp.arange(3.0))
            return before + inside + each.sum() + square(x)

    assert float(jax.jit(run)(2.0)) == 4.0 * (1 + 3 + 3 + 1)
    assert len(calls) >= 2


def test_a_block_inside_another_keeps_what_the_outer_one_has():
    square, calls = counted(computed_once)
    x = jnp.asarray(2.0)
    with computing_once():
        square(x)
        with computing_once():
            square(x)
        square(x)
    assert len(calls) == 1


def test_one_call_is_traced_for_the_first_and_plain_numbers_are_not():
    square, calls = counted(one_call())
    program = jax.make_jaxpr(lambda x: square(x) + square(x + 1))(2.0)
    assert len(calls) == 1
    assert sum(equation.primitive.name in ("jit", "pjit") for equation in program.jaxpr.eqns) == 2
    assert float(square(jnp.asarray(3.0))) == 9.0
    assert len(calls) == 2


def test_another_reading_of_maxima_is_traced_anew():
    @one_call()
    def larger(a, b):
        return maximum(a, b)

    def both(a, b):
        return larger(a, b)

    assert float(jax.jit(both)(1.0, 2.0)) == 2.0
    assert float(reading_with_sharpness(both)(10.0, 1.0, 2.0)) != 2.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["codesign_175b", "serve_llama31_405b"])
def test_an_evaluation_with_nothing_kept_is_the_same(name, monkeypatch):
    scenario = study_from_config(f"experiment={name}").scenario
    leaves, tree = jax.tree.flatten(scenario)

    def equations():
        program = jax.make_jaxpr(lambda *leaves: evaluate(jax.tree.unflatten(tree, leaves)).flat())(*leaves)
        return program, len(program.jaxpr.eqns)

    program, count = equations()
    result = jax.core.eval_jaxpr(program.jaxpr, program.consts, *leaves)
    monkeypatch.setattr("codesign.model.metrics.evaluation.computing_once", contextlib.nullcontext)
    plain, more = equations()
    assert more > 1.1 * count
    again = jax.core.eval_jaxpr(plain.jaxpr, plain.consts, *leaves)
    for one, other in zip(result, again, strict=True):
        assert jnp.array_equal(one, other, equal_nan=True)


def test_entries_of_an_array_are_cut_out_of_it_at_once():
    """Evenly spaced ones, in their order; others, and those that nobody remembers, are stacked."""
    array = jnp.arange(12.0).reshape(6, 2)

    def names(*places: int) -> list[str]:
        def run(array):
            with computing_once():
                pieces = pieces_of(array)
                return stacked(*(pieces[place] for place in places))

        assert jnp.array_equal(run(array), array[jnp.array(places)])
        return [equation.primitive.name for equation in jax.make_jaxpr(run)(array).eqns]

    assert names(1, 3, 5)[1:] == ["slice"]
    assert "slice" not in names(3, 1)[1:]
    assert "slice" not in names(0, 1, 3)[1:]
    assert jnp.array_equal(stacked(*pieces_of(array)), array)
