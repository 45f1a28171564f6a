"""Programs rewritten for blocks of a grid say what they said: arrays written out, identities, layouts, memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_programs import random_model

from codesign.jaxprs.identities import largest, without_identities
from codesign.staging import flatten, running, written_out
from codesign.staging.blocks import BlockAxes, best_layout
from codesign.staging.lanes import by_lanes
from codesign.staging.packing import Packs, packing_of
from codesign.staging.running import Running


def many(a, b, c):
    """Arrays of a few numbers in every way a model has them; some products are with zero."""
    stacked = jnp.stack([a, b, a * 0.0])
    matrix = jnp.outer(stacked, c) + jnp.array([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]])
    masked = jnp.where(jnp.array([True, False, True]), stacked, 0.0) + jnp.zeros(3)
    total = jnp.sum(matrix, axis=0) * jnp.max(matrix) + jnp.prod(masked + 2.0)
    moved = jnp.concatenate([matrix.T.reshape(-1)[1:4], stacked[::-1]]) / 1.0
    sorted_places = jnp.argmin(moved) * 1.0  # has no lanes
    return total, moved, jnp.min(moved[None], axis=1), sorted_places, stacked


def lanes_of(found, given):
    """Arguments of the rewritten program."""
    return [
        array
        for slot, value in given.items()
        for array in ([value[index] for _, index in found.parts[slot]] if slot in found.parts else [value])
    ]


@pytest.mark.parametrize("ends", [(0.1, 3.0), (-2.0, 2.0), (np.inf, np.inf)])
def test_arrays_written_out_are_the_same_numbers(ends):
    numbers = [jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((), (), (2,))]
    program = written_out(flatten(jax.make_jaxpr(many)(*numbers)))
    rng = np.random.default_rng(3)
    points = [
        rng.uniform(*ends, (*shape.shape, 50)) if np.isfinite(ends[0]) else np.full((*shape.shape, 50), ends[0])
        for shape in numbers
    ]
    given = dict(zip(program.inputs, points, strict=True))
    result = by_lanes(program, {slot: largest(value) for slot, value in given.items()})
    assert all(result.program.shapes[slot] == () for slot in result.program.inputs)
    said = running(result.program)(*lanes_of(result, given))
    for was, now in zip(running(program)(*points), said, strict=True):
        np.testing.assert_allclose(np.broadcast_to(now, was.shape), was, rtol=1e-13)


@pytest.mark.parametrize("seed", range(12))
def test_random_models_without_identities(seed):
    """A zero added, a one multiplied by, a zero multiplied by: none of them is left, and no number moves."""
    rng = np.random.default_rng(seed)
    model, zero, one = random_model(rng, 12), np.zeros(()), np.ones(())

    def decorated(a, b, u, v):
        return [x * one + zero * a - zero for x in model(a, b, u, v)]

    program = written_out(flatten(jax.make_jaxpr(decorated)(*[jnp.asarray(0.5)] * 4)))
    points = [rng.uniform(0.1, 2.0, 40) for _ in range(4)]
    less = without_identities(program, dict.fromkeys(program.inputs, 2.0))
    assert len(less.equations) < len(program.equations)
    for was, now in zip(running(program)(*points), running(less)(*points), strict=True):
        np.testing.assert_allclose(np.broadcast_to(now, was.shape), was, rtol=0, atol=0)


def test_a_product_of_zero_and_no_end_is_kept():
    program = flatten(jax.make_jaxpr(lambda x: x * 0.0 + 1.0)(1.0))
    endless = without_identities(program, {program.inputs[0]: np.inf})
    assert np.isnan(running(endless)(np.array([np.inf]))[0]).all()
    assert not without_identities(program, {program.inputs[0]: 5.0}).equations[1:]


@pytest.mark.parametrize("seed", range(8))
def test_memory_used_again_moves_no_number(seed):
    rng = np.random.default_rng(100 + seed)
    program = written_out(flatten(jax.make_jaxpr(random_model(rng, 25))(*[jnp.asarray(0.5)] * 4)))
    points = [rng.uniform(0.1, 2.0, 30) for _ in range(4)]
    kept = [point.copy() for point in points]
    alike = {slot: (shape, bool(program.reached(program.inputs).intersection([slot])))
             for slot, shape in enumerate(program.shapes)}  # fmt: skip
    again = Running(program.equations, program.inputs, program.outputs, program.constants, program.kinds, 1, alike)
    for _ in range(2):
        for was, now in zip(running(program)(*points), again(*points), strict=True):
            np.testing.assert_array_equal(now, was)
    for was, now in zip(kept, points, strict=True):
        np.testing.assert_array_equal(now, was)


def test_choices_are_written_over_what_nobody_reads():
    """One choice for all points and one for each, over either argument."""

    def chosen(a, b, first, second):
        x, y, z = jnp.exp(a), jnp.exp(b), jnp.exp(a + b)
        low = jnp.where(first > 0.5, x, y)  # over x; y is read below
        return jnp.where(second > 0.5, z, y * 2.0) + low, jnp.where(second > 0.5, y, jnp.sin(low))

    program = written_out(flatten(jax.make_jaxpr(chosen)(*[jnp.asarray(0.5)] * 4)))
    rng = np.random.default_rng(5)
    for first in (np.zeros(1), np.ones(1), rng.uniform(size=40)):
        points = [rng.uniform(size=40), rng.uniform(size=40), first, rng.uniform(size=40)]
        alone = program.reached(program.inputs[2:3]) if len(first) == 1 else ()
        alike = {slot: slot in alone and program.kinds[slot].kind == "b" for slot in range(len(program.shapes))}
        again = Running(program.equations, program.inputs, program.outputs, program.constants, program.kinds, 1, alike)
        for was, now in zip(running(program)(*points), again(*points), strict=True):
            np.testing.assert_array_equal(now, was)


def test_norms_of_two_take_half_the_powers():
    """Equal to the last bit, with no end and none at all too; what only looks like a norm is left alone."""
    from codesign.model.hardware.compute import p_norm

    def norms(p, a, b, c):
        other = jnp.maximum(a, b)
        alike = (
            (a / other) ** p + (c / other) ** p,
            (a / other) ** p + (b / other) ** (p + 1),
            (a / c) ** p + (b / c) ** p,
        )
        return p_norm(p, a, b), p_norm(p, a, b, c), *alike

    program = written_out(flatten(jax.make_jaxpr(norms)(*[jnp.asarray(2.0)] * 4)))
    rng = np.random.default_rng(6)
    points = [rng.uniform(1.0, 9.0, 400), *(10 ** rng.uniform(-30.0, 9.0, (3, 400)))]
    for number, odd in enumerate((np.inf, np.nan, 0.0)):
        points[1][number::7], points[2][number::11] = odd, odd
    points[2][::5] = points[1][::5]
    result = by_lanes(program, dict.fromkeys(program.inputs, np.inf)).program
    assert sum(each.name == "pow" for each in result.equations) == sum(e.name == "pow" for e in program.equations) - 1
    for was, now in zip(running(program)(*points), running(result)(*points), strict=True):
        np.testing.assert_array_equal(now, was)


def packed(program, points):
    """Outputs of a program run as packs."""
    packs = Packs(packing_of(program))

    def write(buffers):
        for (buffer, first, count), values in zip(packs.wanted, points, strict=True):
            buffers[buffer][first : first + count] = values.reshape(count, -1)

    return packs(points[0].shape[-1], write)


@pytest.mark.parametrize("seed", range(8))
def test_packs_move_no_number(seed):
    """Equations of one kind done together: fewer operations, equal to the last bit, whatever the order."""
    rng = np.random.default_rng(200 + seed)
    program = written_out(flatten(jax.make_jaxpr(random_model(rng, 40))(*[jnp.asarray(0.5)] * 4)))
    points = [rng.uniform(0.1, 2.0, 30) for _ in range(4)]
    assert Packs(packing_of(program)).operations <= len(program.equations)
    for was, now in zip(running(program)(*points), packed(program, points).T, strict=True):
        np.testing.assert_array_equal(now, np.broadcast_to(was, now.shape))


def test_packs_of_arrays_and_roots():
    """Seven chains alike are one; one exponent of a half for some points is a root there, as it is for all."""

    def alike(x, y, exponent):
        chains = [jnp.log(x * k + y) - y[::-1] / k for k in range(1, 8)]
        return jnp.sum(jnp.stack(chains), axis=0)[0], x**exponent, jnp.where(x > y[0], x, 2.0)

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((), (2,), ())]
    program = written_out(flatten(jax.make_jaxpr(alike)(*shapes)))
    rng = np.random.default_rng(4)
    points = [rng.uniform(0.5, 2.0, (*shape.shape, 20)) for shape in shapes]
    points[2][::2] = 0.5
    result = packed(program, points)
    for was, now in zip(running(program)(*points), result.T, strict=True):
        np.testing.assert_allclose(now, was, rtol=1e-15)
    np.testing.assert_array_equal(result[::2, 1], np.sqrt(points[0][::2]))
    assert Packs(packing_of(program)).operations < len(program.equations) / 2


def test_packs_of_whole_arrays():
    """The place of the least is of an array, not of each number."""
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((), (), (2,))]
    program = written_out(
        flatten(jax.make_jaxpr(lambda *x: jnp.concatenate([y.ravel() for y in many(*x)]).sum())(*shapes))
    )
    rng = np.random.default_rng(3)
    points = [rng.uniform(0.1, 3.0, (*shape.shape, 50)) for shape in shapes]
    np.testing.assert_allclose(packed(program, points)[:, 0], running(program)(*points)[0], rtol=1e-13)


@pytest.mark.parametrize("count", [3, 50])
def test_packs_of_an_array_that_is_one_number_throughout(count):
    """Its rows are one row: each place has a row of its own all the same, also where points are as many as places."""

    def spread(x, y):
        same = jnp.broadcast_to(x, (3,))
        return jnp.cumsum(same)[2] + y, jnp.sort(jnp.stack([*same, y]))[1], jnp.argmin(same)

    shapes = [jax.ShapeDtypeStruct((), jnp.float64)] * 2
    program = written_out(flatten(jax.make_jaxpr(spread)(*shapes)))
    points = list(np.random.default_rng(6).uniform(0.1, 3.0, (2, count)))
    for was, now in zip(running(program)(*points), packed(program, points).T, strict=True):
        np.testing.assert_allclose(now, np.broadcast_to(was, now.shape), rtol=1e-14)


def test_a_layout_by_hand():
    """Three and five levels, seven plans: one axis of 35 for plans and last variable, or of 7 for plans alone."""
    only_plans, last, first = (True, frozenset()), (False, frozenset([1])), (False, frozenset([0]))
    assert BlockAxes([3, 5], 7, 1).shape(*last) == (1, 35)
    assert BlockAxes([3, 5], 7, 1).shape(*first) == (3, 1)
    assert BlockAxes([3, 5], 7, 2).shape(*only_plans) == (1, 1, 7)
    assert BlockAxes([3, 5], 7, 2).shape(*last) == (1, 5, 1)
    everything = (True, frozenset([0, 1]))
    assert best_layout([3, 5], 7, {everything: 100.0}).apart == 0  # one row
    assert (
        best_layout([40, 50], 7000, {last: 1000.0, everything: 1.0}).apart == 2
    )  # what few variables decide stays small
