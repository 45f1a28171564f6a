"""Functions of rows: one equation of a trace, equal in every way of running them, each distinct row done once."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from codesign.core.rowwise import rowwise
from codesign.jaxprs import control_flow
from codesign.jaxprs.evaluator import behind, doer, interpreted
from codesign.jaxprs.program import flatten
from codesign.model.hardware.residual import network_of
from codesign.staging.packing import SHARED, Packs, packing_of


@rowwise
def some_layer(rows: Any, labels: Any, weights: Any, bias: Any) -> Any:
    """One hidden layer, of rows as they are and of the logarithms of what is positive."""
    hidden = jnp.log1p(jnp.abs(rows)) @ weights + bias + labels
    return jnp.tanh(jnp.where(jnp.isfinite(hidden), hidden, 1.0)).sum(-1)


PRIMITIVE, PLAIN = control_flow.ROWWISE["some_layer"]
DRAW = np.random.default_rng(5)
WEIGHTS, BIAS = DRAW.normal(size=(4, 6)), DRAW.normal(size=6)
LABELS = DRAW.normal(size=(3, 6))


def some_rows(count: int) -> np.ndarray:
    """Rows of which many are equal."""
    return DRAW.integers(0, 3, (count, 3, 4)) * 1.5


def test_a_trace_has_one_equation_and_every_way_of_running_it_agrees():
    rows = some_rows(40)
    exact = PLAIN(rows, LABELS, WEIGHTS, BIAS)
    of_rows = functools.partial(some_layer, labels=LABELS, weights=WEIGHTS, bias=BIAS)

    def call(x):
        return some_layer(x, LABELS, WEIGHTS, BIAS)

    assert of_rows is not None
    assert [e.name for e in flatten(jax.make_jaxpr(call)(rows)).equations] == ["some_layer"]
    for result in (call(rows), jax.jit(call)(rows), jax.vmap(call)(rows), interpreted(call)(rows)):
        np.testing.assert_allclose(result, exact, rtol=1e-13)


@pytest.mark.parametrize("axes", [(0, None, None, None), (None, 0, None, None), (0, 0, None, None), (0, 0, 0, 0)])
def test_batches_of_any_argument(axes):
    given = [some_rows(3)[0], LABELS, WEIGHTS, BIAS]
    many = [x if axis is None else np.stack([x, 2 * x, 3 * x, x]) for x, axis in zip(given, axes, strict=True)]
    result = jax.vmap(some_layer, in_axes=axes)(*many)
    for place in range(4):
        one = [x if axis is None else x[place] for x, axis in zip(many, axes, strict=True)]
        np.testing.assert_allclose(result[place], PLAIN(*one), rtol=1e-13)


def test_batches_of_labels_of_fewer_axes_than_rows():
    rows, labels = some_rows(5), DRAW.normal(size=(2, 6))
    result = jax.vmap(some_layer, in_axes=(None, 0, None, None))(rows, labels, WEIGHTS, BIAS)
    np.testing.assert_allclose(result[1], PLAIN(rows, labels[1], WEIGHTS, BIAS), rtol=1e-13)


@pytest.mark.parametrize("place", range(4))
def test_slopes_are_differences_forward_and_in_reverse(place):
    given = [some_rows(2)[0] + 0.7, LABELS, WEIGHTS, BIAS]
    along = DRAW.normal(size=given[place].shape)

    def moved(step):
        return some_layer(*(x + step * along if n == place else x for n, x in enumerate(given))).sum()

    difference = float(moved(1e-5) - moved(-1e-5)) / 2e-5
    assert float(jax.jvp(moved, (0.0,), (1.0,))[1]) == pytest.approx(difference, rel=1e-7)
    assert float(jax.grad(moved)(0.0)) == pytest.approx(difference, rel=1e-7)


@pytest.mark.parametrize("lead", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 40])
def test_numpy_does_it_at_points_in_front_and_behind(lead, count):
    points = (count, 2)[:lead]
    rows = some_rows(int(np.prod(points, dtype=int))).reshape(*points, 3, 4)
    front = [rows, *(x.reshape(*[1] * lead, *x.shape) for x in (LABELS, WEIGHTS, BIAS))]
    kinds = [x.dtype for x in front]
    exact = PLAIN(rows, LABELS, WEIGHTS, BIAS)
    np.testing.assert_allclose(doer(PRIMITIVE, {}, kinds, lead)(*front), exact, rtol=1e-13)
    back = [np.moveaxis(x, range(lead), range(x.ndim - lead, x.ndim)) for x in front]
    result = behind(PRIMITIVE, {}, kinds, lead)(*back)
    np.testing.assert_allclose(np.moveaxis(result, range(1, 1 + lead), range(lead)), exact, rtol=1e-13)


def test_single_precision_stays_single():
    front = [x.astype(np.float32) for x in (some_rows(40), LABELS[None], WEIGHTS[None], BIAS[None])]
    result = doer(PRIMITIVE, {}, [x.dtype for x in front], 1)(*front)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, PLAIN(front[0], *(x[0] for x in front[1:])), rtol=1e-5)


def test_other_arguments_may_differ_from_point_to_point():
    rows, weights = some_rows(30), DRAW.normal(size=(30, 4, 6))
    result = doer(PRIMITIVE, {}, [np.dtype(float)] * 4, 1)(rows, LABELS[None], weights, BIAS[None])
    for place in (0, 29):
        np.testing.assert_allclose(result[place], PLAIN(rows[place], LABELS, weights[place], BIAS), rtol=1e-13)


def test_each_distinct_row_is_done_once_and_kept(monkeypatch):
    body, done = control_flow._body("some_layer", (((4,), float), ((6,), float), ((4, 6), float), ((6,), float))), []

    def counted(rows, *others):
        done.append(rows.shape[-1])
        return body(rows, *others)

    monkeypatch.setattr(control_flow, "FEWEST", 2)
    function = control_flow.DistinctRows(counted, [WEIGHTS, BIAS])
    rows = np.array([[1.0, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 4], [1, 2, 3, 4], [np.inf, 2, 3, 4], [np.inf, 2, 3, 5]])
    which = np.array([0, 0, 0, 1, 0, 0])
    first = function.at(rows, LABELS, which)
    assert done == [control_flow.VECTOR]
    assert len(function._values) == 5  # the third row is the first; the fourth has another label; none hides another
    np.testing.assert_allclose(first, PLAIN(rows, LABELS[which], WEIGHTS, BIAS), rtol=1e-13)
    again = function.at(rows[::-1].copy(), LABELS, which[::-1])
    assert len(done) == 1
    np.testing.assert_array_equal(again, first[::-1])
    nothing = np.full_like(rows, np.nan)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(
            function.at(nothing, LABELS, which), PLAIN(nothing, LABELS[which], WEIGHTS, BIAS), rtol=1e-13
        )


@pytest.mark.parametrize("count", [1, 3, 31, 63, 64, 100, 223, 225, 500])
def test_a_row_has_the_same_bits_in_any_batch(count):
    network = network_of("gemm")
    assert network is not None
    shared = [np.asarray(x) for x in (network.mean, network.spread, *network.weights, *network.biases)]
    draw = np.random.default_rng(8)
    rows, labels = np.exp(draw.uniform(0, 12, (700, 9))), draw.normal(size=(2, len(network.biases[0])))
    which = draw.integers(0, 2, 700)
    kinds = [(rows.shape[1:], rows.dtype), (labels.shape[1:], labels.dtype), *((x.shape, x.dtype) for x in shared)]
    body = control_flow._body("shape_network", tuple(kinds))
    together = control_flow.DistinctRows(body, shared).at(rows, labels, which)
    for first in (0, 7, 150):
        part = slice(first, first + count)
        alone = control_flow.DistinctRows(body, shared).at(rows[part], labels, which[part])
        np.testing.assert_array_equal(alone, together[part])


def test_rows_that_are_kept_end(monkeypatch):
    monkeypatch.setattr(control_flow, "MOST_VALUES", 100)
    body = control_flow._body("some_layer", (((4,), float), ((6,), float), ((4, 6), float), ((6,), float)))
    function = control_flow.DistinctRows(body, [WEIGHTS, BIAS])
    for _ in range(5):
        rows, which = DRAW.normal(size=(90, 4)), np.zeros(90, dtype=int)
        exact = PLAIN(rows, LABELS[which], WEIGHTS, BIAS)
        np.testing.assert_allclose(function.at(rows, LABELS, which), exact, rtol=1e-13)
        assert len(function._values) <= 190


def test_a_packed_program_has_no_rows_for_what_all_points_share():
    def call(x, weights, bias):
        return 2 * some_layer(x.reshape(3, 4), LABELS, weights, bias).sum() + bias[0] * 0

    program = flatten(jax.make_jaxpr(call)(np.zeros(12), WEIGHTS, BIAS))
    packing = packing_of(program, (1, 2))
    assert [buffer for buffer, _, _ in packing.wanted][1:] == [SHARED, 0]  # the bias is read by others, too
    rows = some_rows(10).reshape(10, 12)

    def write(buffers):
        for (buffer, row, count), values in zip(packing.wanted, (rows.T, None, BIAS[:, None]), strict=True):
            if values is not None:
                buffers[buffer][row : row + count] = values

    result = Packs(packing)(10, write, {packing.wanted[1][1]: WEIGHTS.ravel()})
    exact = 2 * np.asarray(PLAIN(rows.reshape(10, 3, 4), LABELS, WEIGHTS, BIAS)).sum(-1)
    np.testing.assert_allclose(result[:, 0], exact, rtol=1e-13)
